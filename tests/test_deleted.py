"""Deleted evaluation: what is left out is deleted, and the kept tokens move together."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest
import torch

from rationales import BlackBoxScorer, Context, Options, Score, TableScorer, rationalize
from rationales.context import causal_context
from rationales.errors import RationalesError
from rationales.explainer import Explainer
from rationales.scoring.adapted import AdaptedScorer
from rationales.scoring.causal import CausalScorer
from rationales.scoring.protocol import Query, closed_up
from rationales.scoring.seq2seq import Seq2SeqScorer
from rationales.scoring.span import merged, single_tokens
from test_seq2seq_scorer import some_queries

from tiny_models import FAMILIES, VOCABULARY, build, shared, shared_translator

TEXT = "The quick brown fox jumps over the lazy"


def text(length: int, seed: int = 0) -> tuple[int, ...]:
    rng = random.Random(seed)
    return tuple(rng.randrange(2, VOCABULARY) for _ in range(length))


def queries(length: int) -> list[Query]:
    """Subsets of a context that deletes what is left out: small ones, large ones, everything."""
    rng = random.Random(length)
    context = replace(causal_context(text(length + 1), length, frozenset({0})), deletes=True)
    chosen = [{i for i in range(length) if rng.random() < share} for share in (0, 0.2, 0.5, 0.8, 1)]
    return [(context, tuple(sorted({0, length - 1, *each}))) for each in chosen]


@torch.no_grad()
def directly(model: Any, ids: tuple[int, ...], target_id: int) -> tuple[float, int]:
    """What the model's own forward pass on just these ids says of the target."""
    logprobs = model(input_ids=torch.tensor([ids])).logits[0, -1].float().log_softmax(-1)
    return float(logprobs[target_id]), int(logprobs.argmax())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_subset_is_a_forward_pass_on_the_shortened_ids(family: str) -> None:
    model = shared(family)
    asked = [query for length in (6, 40) for query in queries(length)]
    scores = CausalScorer(model).score(asked)
    for (context, kept), score in zip(asked, scores, strict=True):
        ids = tuple(context.ids[index] for index in kept)
        logprob, prediction = directly(model, ids, context.target_id)
        assert score.target_logprob == pytest.approx(logprob, abs=1e-3)
        best, _ = directly(model, ids, prediction)
        assert score.prediction_logprob == pytest.approx(best, abs=1e-3)


@pytest.mark.parametrize("family", ["marian", "bart", "t5"])
def test_both_sides_of_a_translation_move_together(family: str) -> None:
    model = shared_translator(family)
    scorer = Seq2SeqScorer(model)
    asked = [(replace(context, deletes=True), kept) for context, kept in some_queries()]
    for (context, kept), score in zip(asked, scorer.score(asked), strict=True):
        source = [context.ids[i] for i in kept if i < context.source]
        prefix = [context.ids[i] for i in kept if i >= context.source]
        with torch.no_grad():
            logits = model(
                input_ids=torch.tensor([source or [model.config.pad_token_id]]),
                attention_mask=torch.ones(1, len(source) or 1),
                decoder_input_ids=torch.tensor([prefix]),
            ).logits[0, -1]
        expected = logits.log_softmax(-1)[context.target_id]
        assert score.target_logprob == pytest.approx(float(expected), abs=1e-3)


def test_answers_of_several_tokens_follow_the_kept_ones() -> None:
    model, ids = shared("llama"), text(12)
    context = Context(ids[:8], ids[8], required=(7,), pinned=(0,), span_ids=ids[9:12], deletes=True)
    query = (context, (0, 3, 7))
    [score] = merged([query], CausalScorer(model).score(single_tokens([query])))
    kept = (ids[0], ids[3], ids[7])
    each = [directly(model, (*kept, *ids[8 : 8 + n]), ids[8 + n])[0] for n in range(4)]
    assert score.target_logprob == pytest.approx(sum(each), abs=1e-3)


def test_the_adapter_answers_for_proper_subsets_and_the_model_for_full_contexts() -> None:
    base, adapted = build("gpt2"), build("gpt2")
    with torch.no_grad():
        adapted.lm_head.weight.mul_(1.3)
    scorer = AdaptedScorer(CausalScorer(base), CausalScorer(adapted))
    *parts, full = queries(9)
    for (context, kept), score in zip([*parts, full], scorer.score([*parts, full]), strict=True):
        model = base if len(kept) == len(context.ids) else adapted
        ids = tuple(context.ids[index] for index in kept)
        logprob, _ = directly(model, ids, context.target_id)
        assert score.target_logprob == pytest.approx(logprob, abs=1e-3)


def test_prefixes_are_shared() -> None:
    asked = queries(40) * 2
    plain, shares = (CausalScorer(shared("llama"), share_prefixes=s) for s in (False, True))
    assert shares.shares_prefixes
    before = [each.tokens for each in (plain, shares)]
    for one, other in zip(plain.score(asked), shares.score(asked), strict=True):
        assert one.target_logprob == pytest.approx(other.target_logprob, abs=1e-4)
    one, other = (s.tokens - n for s, n in zip((plain, shares), before, strict=True))
    assert 2 * other <= one


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"fast": True},
        {"method": "exhaustive", "max_size": 3},
        {"beam": 2},
        {"coarse_to_fine": True},
        {"unit": "word"},
        {"span": True},
        {"method": "gradient-norm"},
    ],
)
def test_every_search_ends_with_what_the_shortened_text_predicts(
    options: dict[str, Any], tiny_explainer: Explainer, tiny_model: Any
) -> None:
    found = tiny_explainer.explain(TEXT, generate=3, evaluation="deleted", **options)
    assert found.evaluation == "deleted"
    assert found.options["evaluation"] == "deleted"
    ids = [token.id for token in found.tokens]
    for rationale in found:
        kept = tuple(ids[i] for i in sorted(rationale.indices))
        first = rationale.target
        says = [
            directly(tiny_model, (*kept, *ids[first : first + n]), 0)[1] == ids[first + n]
            for n in range(rationale.target_length)
        ]
        assert rationale.sufficient is all(says)
    assert any(rationale.sufficient for rationale in found)
    assert type(found).from_json(found.to_json()) == found


def test_what_is_certified_as_deleted_is_what_the_evaluation_says(tiny_explainer: Explainer):
    found = tiny_explainer.explain(TEXT, generate=4, certify=True)
    for rationale in found:
        kept = [index for index in rationale.indices if index != rationale.target - 1]
        asked = tiny_explainer.predict(found.tokens, rationale.target, kept, evaluation="deleted")
        assert rationale.proof is not None
        assert rationale.proof.deleted_sufficient is asked.sufficient
    deleted = tiny_explainer.explain(TEXT, generate=4, certify=True, evaluation="deleted")
    for rationale in deleted:
        if rationale.proof is not None:
            assert rationale.proof.deleted_sufficient is None  # that was the search's question
            assert rationale.proof.stable is None


def test_requests_of_both_kinds_run_side_by_side(tiny_explainer: Explainer) -> None:
    from rationales import Request

    both = [Options(generate=2), Options(generate=2, evaluation="deleted")]
    found = [*tiny_explainer.explain_all([Request(TEXT, options) for options in both])]
    assert [each.evaluation for each in found] == ["sparse", "deleted"]
    alone = [tiny_explainer.explain(TEXT, options) for options in both]
    assert [[r.indices for r in each] for each in found] == [
        [r.indices for r in each] for each in alone
    ]


def test_a_black_box_is_given_positions_without_gaps() -> None:
    seen: list[list[int]] = []

    def predict(subsets: list[tuple[list[int], list[int]]], target: int) -> list[Any]:
        seen.extend(positions for _, positions in subsets)
        return [(-1.0, target if 3 in ids else 0) for ids, _ in subsets]

    context = Context((3, 4, 5, 6), 7, required=(3,))
    found = rationalize(context, BlackBoxScorer(predict), evaluation="deleted")
    assert found.indices == (3, 0)
    assert all(positions == [*range(len(positions))] for positions in seen)


def test_a_scorer_of_sets_is_refused() -> None:
    scorer = TableScorer(lambda kept: Score(-1.0, 7))
    with pytest.raises(RationalesError, match=r"evaluation deleted is for models .* TableScorer"):
        rationalize(Context((3, 4), 7, required=(1,)), scorer, evaluation="deleted")
    with pytest.raises(RationalesError, match="evaluation must be"):
        Options(evaluation="sparse")  # type: ignore[arg-type]


def test_what_is_complete_or_keeps_its_gaps_is_left_as_it_is() -> None:
    context = Context((3, 4, 5), 7, required=(2,))
    assert closed_up((context, (0, 2))) == (context, (0, 2))
    deletes = replace(context, deletes=True)
    assert closed_up((deletes, (0, 1, 2))) == (deletes, (0, 1, 2))
    assert closed_up((deletes, (0, 2))) == (Context((3, 5), 7), (0, 1))


def test_the_command_says_that_the_rest_was_deleted(run: Any) -> None:
    asked = ["explain", TEXT, "--generate", "2", "--evaluation", "deleted"]
    code, out, _ = run(*asked, "--json", "-")
    assert code == 0
    found = json.loads(out)
    assert found["evaluation"] == "deleted"
    assert found["options"] == {"evaluation": "deleted"}
    code, out, _ = run(*asked, "--format", "table")
    assert code == 0
    assert "What is not kept was deleted" in " ".join(out.split())
    assert " ".join(out.split()).count("deleted evaluation") == 1
    code, _, err = run("explain", TEXT, "--evaluation", "sparse")
    assert code == 2
    assert "--evaluation must be" in err
    assert err.count("\n") == 1
