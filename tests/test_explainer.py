"""The whole pipeline on tiny models: which tokens are explained, and what is said of them."""

from __future__ import annotations

import pytest
import torch
from transformers import PreTrainedTokenizerFast

import rationales
from rationales import (
    METHODS,
    Explainer,
    Explanation,
    Interrupted,
    Progress,
    RationalesError,
    Request,
)
from rationales.scoring.causal import CausalScorer
from rationales.units import LEVELS

TEXT = "The Supreme Court on"
CHAT = (
    "{% for m in messages %}<s>{{ m['role'] }}\n{{ m['content'] }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)


def argmax_continuation(model, ids: list[int], how_many: int, end: int) -> list[int]:
    """The model's own words by plain forward passes."""
    for _ in range(how_many):
        with torch.no_grad():
            ids = [*ids, int(model(torch.tensor([ids])).logits[0, -1].argmax())]
        if ids[-1] == end:
            break
    return ids


def test_the_continuation_is_the_raw_argmax(tiny_explainer, tiny_model, tiny_tokenizer):
    # A generation config that forbids what the model wants must not matter.
    plain = list(tiny_tokenizer(TEXT)["input_ids"])
    ids = argmax_continuation(tiny_model, plain, 5, tiny_tokenizer.eos_token_id)
    tiny_model.generation_config.suppress_tokens = [ids[len(plain)]]
    tiny_model.generation_config.repetition_penalty = 9.0
    try:
        explanation = tiny_explainer.explain(TEXT, generate=5)
    finally:
        tiny_model.generation_config.suppress_tokens = None
        tiny_model.generation_config.repetition_penalty = None
    assert [token.id for token in explanation.tokens] == ids
    assert [r.target for r in explanation] == list(range(len(plain), len(ids)))
    assert all(r.predicted for r in explanation)
    # With the whole context at hand every one of them can be reached.
    assert all(r.sufficient for r in explanation)


def test_generation_stops_at_the_end_of_the_text(tiny_explainer, tiny_tokenizer, tiny_model):
    ids = list(tiny_tokenizer(TEXT)["input_ids"])
    first = argmax_continuation(tiny_model, ids, 1, end=-1)[-1]
    before = tiny_model.generation_config.eos_token_id
    tiny_model.generation_config.eos_token_id = [first]
    try:
        explanation = tiny_explainer.explain(TEXT, generate=5)
    finally:
        tiny_model.generation_config.eos_token_id = before
    assert [r.target_id for r in explanation] == [first]


def test_a_forced_continuation_is_explained_instead(tiny_explainer):
    explanation = tiny_explainer.explain(TEXT, continuation=" Tuesday ruled")
    assert "".join(r.target_text for r in explanation) == " Tuesday ruled"
    assert explanation.text == TEXT + " Tuesday ruled"
    # Nobody asked the model whether it would say so.
    assert not all(r.predicted for r in explanation)


def test_targets_of_the_text_itself(tiny_explainer):
    explanation = tiny_explainer.explain("the dog and the dog", target="dog#1")
    assert "".join(r.target_text for r in explanation).strip() == "dog"
    everything = tiny_explainer.explain("the dog and the dog", target="all")
    assert everything.unexplainable == (0,)
    assert [r.target for r in everything] == list(range(1, len(everything.tokens)))


def test_not_reaching_sufficiency_is_a_value(tiny_explainer):
    explanation = tiny_explainer.explain("the dog and the dog", target="all", max_size=1)
    short = [r for r in explanation if not r.sufficient]
    assert short
    assert all(len(r) == 1 and len(r.steps) == 1 for r in explanation)
    assert all(r.stopped == "max-size" for r in short if r.target > 1)


def test_special_tokens_are_pinned_or_candidates(tiny_explainer_with_bos):
    pinned = tiny_explainer_with_bos.explain(TEXT, generate=3)
    assert [t.index for t in pinned.tokens if t.pinned] == [0]
    assert all(0 not in r.indices for r in pinned)
    candidate = tiny_explainer_with_bos.explain(TEXT, target="all", specials="candidate")
    assert not any(t.pinned for t in candidate.tokens)
    assert candidate.unexplainable == (0,)
    assert any(0 in r.indices for r in candidate)


def test_only_pinned_tokens_before_the_target(tiny_explainer_with_bos):
    """The first word after BOS has a rationale: the empty one, be it enough or not."""
    first = tiny_explainer_with_bos.explain(TEXT, target="all")[0]
    assert first.target == 1
    assert first.indices == ()
    assert [step.index for step in first.steps] == [None]


def test_a_chat_template_is_pinned(tiny_model, tiny_tokenizer):
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tiny_tokenizer._tokenizer, bos_token="<s>", eos_token="</s>"
    )
    tokenizer.chat_template = CHAT
    explainer = Explainer(CausalScorer(tiny_model), tokenizer, model=tiny_model)
    explanation = explainer.explain("the law", chat=True, generate=2)
    own = [t for t in explanation.tokens if not t.pinned and t.index < explanation[0].target]
    assert "".join(t.text for t in own) == "the law"
    pinned = {t.index for t in explanation.tokens if t.pinned}
    assert all(pinned.isdisjoint(r.indices) for r in explanation)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_explains(tiny_explainer, method):
    explanation = tiny_explainer.explain(TEXT, generate=2, method=method)
    assert explanation.method == method
    for r in explanation:
        assert r.sufficient
        assert r.indices[0] == r.target - 1
        assert len(r.steps) == len(r.indices)


def test_texts_in_one_call_are_those_one_by_one(tiny_explainer):
    texts = [TEXT, "the dog", "Die Größe der Straße"]
    together = tiny_explainer.explain(texts, target="all")
    assert isinstance(together, list)
    for text, explanation in zip(texts, together, strict=True):
        alone = tiny_explainer.explain(text, target="all")
        assert [r.indices for r in explanation] == [r.indices for r in alone]
        assert explanation.tokens == alone.tokens


def test_evaluation_is_named(tiny_explainer, tiny_model, tiny_tokenizer):
    assert tiny_explainer.explain(TEXT).evaluation == "sparse"
    scorer = CausalScorer(tiny_model, evaluation="masked")
    masked = Explainer(scorer, tiny_tokenizer, model=tiny_model).explain(TEXT)
    assert masked.evaluation == "masked"
    assert [r.indices for r in masked] == [r.indices for r in tiny_explainer.explain(TEXT)]


def test_progress_says_the_level(tiny_explainer):
    text = "The law. The land is.\n\nThe court. On Tuesday.\n\nThe fox sleeps. The dog"
    told = []
    asked = Request(text, rationales.Options(generate=1, coarse_to_fine=True))
    [*_] = tiny_explainer.explain_all([asked], on_progress=told.append)
    levels = [*dict.fromkeys(each.level for each in told)]
    # A level that asks nothing new is not told.
    assert levels[:2] == [None, "paragraph"]
    assert "word" in levels
    assert levels == [each for each in (None, *LEVELS) if each in levels]
    grown = []
    [*_] = tiny_explainer.grow(asked, on_progress=grown.append)
    assert {each.level for each in grown} == {*levels}
    plain = []
    [*_] = tiny_explainer.explain_all([Request(text, rationales.Options(generate=1))], plain.append)
    assert {each.level for each in plain} == {None}


def test_progress_counts_up(tiny_explainer):
    seen: list[Progress] = []
    list(tiny_explainer.explain_all([Request(TEXT)], on_progress=seen.append))
    assert seen[-1].done == seen[-1].total > 0
    assert seen[-1].evaluations > 0
    assert [p.done for p in seen] == sorted(p.done for p in seen)


def test_an_interrupt_keeps_what_is_finished(tiny_explainer):
    requests = [Request(TEXT, id=1), Request("the dog and the dog", id=2)]
    done: list[Explanation] = []

    def interrupt(progress: Progress) -> None:
        if progress.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        done.extend(tiny_explainer.explain_all(requests, on_progress=interrupt))
    partial = caught.value.explanations
    assert sum(len(explanation) for explanation in [*done, *partial]) == 3
    assert any(not explanation.complete for explanation in partial)


def test_a_users_own_model(tiny_model, tiny_tokenizer):
    explainer = rationales.load(model=tiny_model, tokenizer=tiny_tokenizer, batch_tokens=64)
    assert explainer.scorer.batch_tokens == 64
    assert len(explainer.explain(TEXT, generate=1)) == 1
    with pytest.raises(RationalesError, match="needs its tokenizer"):
        rationales.load(model=tiny_model)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"colour": 1}, "unknown option 'colour'"),
        ({"method": "magic"}, "unknown method 'magic'"),
        ({"generate": 100_000}, "positions"),
        ({"method": "random", "absolute": True}, "absolute"),
    ],
)
def test_mistakes_are_one_line(tiny_explainer, options, says):
    with pytest.raises(RationalesError, match=says) as caught:
        tiny_explainer.explain(TEXT, **options)
    assert "\n" not in str(caught.value)


def test_rationalize_needs_no_text():
    context = rationales.Context(ids=(3, 4), target_id=5, required=(1,))
    table = rationales.TableScorer(
        {
            frozenset({1}): rationales.Score(-2.0, 7),
            frozenset({0, 1}): rationales.Score(-0.1, 5),
        }
    )
    found = rationales.rationalize(context, table)
    assert (found.indices, found.sufficient, found.predicted) == ((1, 0), True, True)
    with pytest.raises(RationalesError, match="inside"):
        rationales.rationalize(context, table, method="last-attention")


def test_an_explanation_grows_to_what_explain_gives(tiny_explainer):
    seen: list[Progress] = []
    request = Request(TEXT, rationales.Options(generate=4))
    grown = list(tiny_explainer.grow(request, on_progress=seen.append))
    assert [len(each) for each in grown] == [0, 1, 2, 3, 4]
    assert [each.complete for each in grown] == [False] * 4 + [True]
    assert grown[-1] == tiny_explainer.explain(TEXT, generate=4)
    assert (seen[0].done, seen[0].total, seen[-1].done) == (0, 4, 4)
    with pytest.raises(RationalesError, match="empty"):
        list(tiny_explainer.grow(Request(" ")))


def test_a_prediction_is_that_of_the_steps(tiny_explainer):
    explanation = tiny_explainer.explain(TEXT, generate=5)
    for rationale in explanation:
        for size, step in enumerate(rationale.steps, start=1):
            found = tiny_explainer.predict(
                explanation.tokens, rationale.target, rationale.indices[:size]
            )
            assert found.target_logprob == pytest.approx(step.target_logprob, abs=1e-4)
            assert found.prediction_id == step.prediction_id
            assert found.prediction_text == step.prediction_text
            assert found.sufficient == (found.rank == 1)
    with pytest.raises(RationalesError, match="must come before"):
        tiny_explainer.predict(explanation.tokens, 3, [3])
    with pytest.raises(RationalesError, match="give all tokens"):
        tiny_explainer.predict(explanation.tokens[1:], 2, [])


@pytest.mark.parametrize(
    "options",
    [{}, {"unit": "word"}, {"coarse_to_fine": True}, {"fast": True}, {"method": "exhaustive"}],
)
def test_a_search_within_some_tokens_keeps_no_others(tiny_explainer, options):
    explanation = tiny_explainer.explain(TEXT, generate=5)
    first = max(explanation, key=len)
    within = tuple(i for i in range(first.target) if i != first.indices[-1])
    asked = rationales.Options(target=first.target, **options)
    *_, found = tiny_explainer.grow(Request(explanation.tokens, asked, within=within))
    [rationale] = found
    assert {*rationale.indices} <= {*within, first.target - 1}
    assert rationale.predicted == first.predicted
    assert rationale.optimal is None  # among all tokens, a smaller one may be sufficient
    assert found.options["within"] == list(within)
    assert Explanation.from_json(found.to_json()) == found
