"""The package's rationales against the oracle's, on every family of models.

First the oracle is checked, and the models it is run on; then greedy rationalization must find the
same indices in the same order, with the same numbers.
"""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import pytest
import torch

from rationales import Context, Explainer, Rationale, rationalize
from rationales.context import causal_context
from rationales.models import default as default_model
from rationales.scoring import positions
from rationales.scoring.causal import CausalScorer
from rationales.scoring.protocol import Query, Score
from rationales.search.driver import run
from rationales.search.greedy import greedy

import oracle
from tiny_models import FAMILIES, STRETCHED, SWITCH, VOCABULARY, WINDOW, WINDOWED, build, shared

TOLERANCE = 1e-3  # of log-probabilities; what a wrong evaluation changes is more than CLEARLY
CLEARLY = 0.1

every_family = pytest.mark.parametrize("family", FAMILIES)
by_hand_families = pytest.mark.parametrize("family", oracle.BY_HAND)
windowed_families = pytest.mark.parametrize("family", WINDOWED)
stretched_families = pytest.mark.parametrize("family", STRETCHED)


def random_text(seed: int, length: int) -> tuple[int, ...]:
    """Random tokens, none of them special."""
    rng = random.Random(seed)
    return tuple(rng.randrange(2, VOCABULARY) for _ in range(length))


def own_text(model: Any, seed: int, length: int) -> tuple[int, ...]:
    """Random tokens with the model's own continuation: its targets have sufficient rationales."""
    text = random_text(seed, length // 2)
    while len(text) < length:
        text += (int(oracle.ordinary(model, text).argmax()),)
    return text


def random_subset(rng: random.Random, length: int) -> tuple[int, ...]:
    """Some indices and the last one, which a causal model predicts from."""
    return tuple(i for i in range(length) if i == length - 1 or rng.random() < 0.5)


def random_queries(seed: int, lengths: Iterable[int]) -> list[Query]:
    """For each length a context of random tokens, and a subset of it."""
    rng = random.Random(seed)
    return [
        (
            Context(random_text(rng.randrange(10**6), length), rng.randrange(2, VOCABULARY)),
            random_subset(rng, length),
        )
        for length in lengths
    ]


def explain_all_targets(
    scorer: CausalScorer,
    texts: Sequence[tuple[int, ...]],
    pinned: frozenset[int] = frozenset(),
    max_size: int | None = None,
) -> dict[tuple[tuple[int, ...], int], Rationale]:
    """Greedy rationales of every target of every text, all searched side by side."""
    contexts = {
        (text, target): causal_context(text, target, pinned)
        for text in texts
        for target in range(1, len(text))
    }
    searches = [(key, c, greedy(c, max_size=max_size)) for key, c in contexts.items()]
    return dict(run(searches, scorer))


def assert_same(rationale: Rationale, expected: oracle.Found) -> None:
    """The rationale is the oracle's: its indices, their order, and every number on the way."""
    assert rationale.indices == expected.indices
    assert rationale.sufficient == expected.sufficient
    assert rationale.evaluations == expected.evaluations
    assert [step.prediction_id for step in rationale.steps] == list(expected.predictions)
    logprobs = [step.target_logprob for step in rationale.steps]
    assert logprobs == pytest.approx(expected.logprobs, abs=TOLERANCE, rel=0)


def assert_greedy_is_the_oracle(
    scorer: CausalScorer,
    texts: Sequence[tuple[int, ...]],
    pinned: frozenset[int] = frozenset(),
    max_size: int | None = None,
) -> None:
    """Every target of every text has the oracle's rationale."""
    for (text, target), rationale in explain_all_targets(scorer, texts, pinned, max_size).items():
        assert_same(rationale, oracle.greedy(scorer.model, text, target, pinned, max_size))


def assert_scores(
    scores: Sequence[Score], expected: Sequence[torch.Tensor], q: list[Query]
) -> None:
    """The scores are those of the expected log-probabilities over the vocabulary."""
    targets = [float(p[context.target_id]) for p, (context, _) in zip(expected, q, strict=True)]
    assert [s.target_logprob for s in scores] == pytest.approx(targets, abs=TOLERANCE, rel=0)
    assert [s.prediction_id for s in scores] == [int(p.argmax()) for p in expected]
    best = [float(p.max()) for p in expected]
    assert [s.prediction_logprob for s in scores] == pytest.approx(best, abs=TOLERANCE, rel=0)


def over_the_vocabulary(
    scorer: CausalScorer, text: tuple[int, ...], kept: tuple[int, ...]
) -> torch.Tensor:
    """The scorer's log-probability of each id as the target."""
    queries = [(Context(text, target_id), kept) for target_id in range(VOCABULARY)]
    return torch.tensor([score.target_logprob for score in scorer.score(queries)])


def difference(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).abs().max())


# --- the oracle, and the models it is run on


GAPS = (0, 4, 5, 11)  # kept of twelve tokens


@by_hand_families
def test_the_oracle_is_the_forward_pass_written_by_hand(family: str) -> None:
    model, by_hand = shared(family), oracle.BY_HAND[family]
    for context, kept in random_queries(seed=1, lengths=range(1, 13)):
        tokens = [context.ids[i] for i in kept]
        expected = torch.tensor(by_hand(model, tokens, kept))
        assert difference(oracle.log_probabilities(model, context.ids, kept), expected) < 1e-4


@every_family
def test_the_oracle_on_everything_is_the_ordinary_forward_pass(family: str) -> None:
    text = random_text(seed=2, length=12)
    everything = oracle.log_probabilities(shared(family), text, range(12))
    assert difference(everything, oracle.ordinary(shared(family), text)) < 1e-4


@every_family
def test_closing_the_gaps_between_kept_tokens_would_be_noticed(family: str) -> None:
    for seed in range(3):
        text = random_text(seed, length=12)
        right = oracle.log_probabilities(shared(family), text, GAPS)
        closed = oracle.ordinary(shared(family), [text[i] for i in GAPS])
        assert difference(right, closed) > CLEARLY


# Families in which transformers takes a gap in the positions for the start of a packed sequence.
@pytest.mark.parametrize("family", ["gpt2", "llama", "gpt-neox", "qwen2", "mistral", "phi3"])
def test_leaving_out_the_mask_would_be_noticed(family: str) -> None:
    text = random_text(seed=3, length=12)
    right = oracle.log_probabilities(shared(family), text, GAPS)
    ids, places = torch.tensor([[text[i] for i in GAPS]]), torch.tensor([GAPS])
    with torch.no_grad():
        unmasked = shared(family)(input_ids=ids, position_ids=places, use_cache=False).logits
        masked = shared(family)(
            input_ids=ids,
            position_ids=places,
            attention_mask=torch.ones_like(ids),
            use_cache=False,
        ).logits
    assert difference(right, unmasked[0, -1].log_softmax(-1)) > CLEARLY
    assert difference(right, masked[0, -1].log_softmax(-1)) < 1e-4


@pytest.mark.parametrize("family", ["gpt2", "llama"])
@pytest.mark.parametrize("fault", ["closed gaps", "no mask"])
def test_the_comparison_catches_a_faulty_scorer(family: str, fault: str) -> None:
    model = shared(family)

    class Faulty(positions.NextToken):
        @torch.no_grad()
        def __call__(
            self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor
        ) -> torch.Tensor:
            closed = torch.arange(ids.shape[1]).expand_as(ids)
            return model(
                input_ids=ids,
                position_ids=closed if fault == "closed gaps" else positions,
                attention_mask=None if fault == "no mask" and mask.all() else mask,
                use_cache=False,
            ).logits[:, -1]

    scorer = CausalScorer(model, share_prefixes=False)
    scorer._next_token = Faulty(model)
    assert not scorer._self_test()  # it would have fallen back on masked evaluation
    text = random_text(seed=4, length=8)
    with pytest.raises(AssertionError):
        assert_greedy_is_the_oracle(scorer, [text])


# --- every family


@cache
def expected_rationales(
    family: str, pinned: frozenset[int], max_size: int | None
) -> dict[tuple[tuple[int, ...], int], oracle.Found]:
    """The oracle's rationales for the targets of two texts, by text and target."""
    model = shared(family)
    return {
        (text, target): oracle.greedy(model, text, target, pinned, max_size)
        for text in (random_text(5, length=9), own_text(model, 22, length=9))
        for target in range(1, len(text))
    }


@every_family
@pytest.mark.parametrize("batch_tokens", [5, 4096])
@pytest.mark.parametrize(
    ("pinned", "max_size"),
    [(frozenset(), None), (frozenset({0, 3}), None), (frozenset({0}), 3)],
    ids=["free", "pinned", "bounded"],
)
def test_greedy_is_the_oracle(
    family: str, batch_tokens: int, pinned: frozenset[int], max_size: int | None
) -> None:
    expected = expected_rationales(family, pinned, max_size)
    scorer = CausalScorer(shared(family), batch_tokens=batch_tokens)
    texts = list(dict.fromkeys(text for text, _ in expected))
    found = explain_all_targets(scorer, texts, pinned, max_size)
    assert found.keys() == expected.keys()
    for key, rationale in found.items():
        assert_same(rationale, expected[key])


@every_family
def test_both_endings_occur_among_the_comparisons(family: str) -> None:
    found = expected_rationales(family, frozenset(), None).values()
    assert any(f.sufficient and len(f.indices) > 1 for f in found)
    assert any(not f.sufficient for f in found)
    # The order of the indices says something: it is not that of the text.
    assert any(f.indices[1:] != tuple(sorted(f.indices[1:])) for f in found)


@every_family
def test_rationalize_one_context_alone(family: str) -> None:
    model = shared(family)
    text = own_text(model, seed=7, length=8)
    scorer = CausalScorer(model)
    context = causal_context(text, 7, frozenset())
    assert scorer.evaluation(context) == FAMILIES[family].evaluation
    rationale = rationalize(context, scorer, keep_candidates=99)
    assert_same(rationale, oracle.greedy(model, text, 7))
    assert rationale.predicted is True
    for size, step in enumerate(rationale.steps[1:], start=1):
        for candidate in step.candidates:
            kept = (*rationale.indices[:size], candidate.index)
            expected = oracle.log_probabilities(model, text[:7], kept)[text[7]]
            assert candidate.target_logprob == pytest.approx(float(expected), abs=TOLERANCE, rel=0)


@every_family
def test_everything_kept_is_the_ordinary_forward_pass(family: str) -> None:
    queries = [(c, c.everything) for c, _ in random_queries(seed=8, lengths=range(1, 13))]
    expected = [oracle.ordinary(shared(family), context.ids) for context, _ in queries]
    assert_scores(CausalScorer(shared(family)).score(queries), expected, queries)


@every_family
def test_scores_do_not_depend_on_the_batch(family: str) -> None:
    lengths = [1, 2, 3, 5, 8, 8, 8, 12, 12, 12]
    queries = random_queries(seed=9, lengths=lengths) + random_queries(seed=10, lengths=lengths)
    expected = [oracle.log_probabilities(shared(family), c.ids, kept) for c, kept in queries]
    order = random.Random(11).sample(range(len(queries)), len(queries))
    for batch_tokens in (1, 17, 4096):
        scorer = CausalScorer(shared(family), batch_tokens=batch_tokens)
        assert_scores(scorer.score(queries), expected, queries)
        shuffled = scorer.score([queries[place] for place in order])
        assert_scores(shuffled, [expected[p] for p in order], [queries[p] for p in order])
        alone = [scorer.score([query])[0] for query in queries[:4]]
        assert_scores(alone, expected[:4], queries[:4])


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2", "falcon-alibi", "bloom"])
def test_eager_attention_is_exact_too(family: str) -> None:
    model = build(family, attn_implementation="eager")
    assert model.config._attn_implementation == "eager"
    text = own_text(model, seed=12, length=8)
    assert_greedy_is_the_oracle(CausalScorer(model), [text])


@by_hand_families
def test_scores_are_the_forward_pass_written_by_hand(family: str) -> None:
    model, queries = shared(family), random_queries(seed=13, lengths=range(1, 13))
    expected = [
        torch.tensor(oracle.BY_HAND[family](model, [c.ids[i] for i in kept], kept))
        for c, kept in queries
    ]
    assert_scores(CausalScorer(model).score(queries), expected, queries)
    masked = CausalScorer(model, evaluation="masked")
    assert_scores(masked.score(queries), expected, queries)


def test_a_text_from_end_to_end(tiny_explainer_with_bos: Explainer, tiny_model: Any) -> None:
    explanation = tiny_explainer_with_bos.explain("The law of the café on Tuesday", generate=5)
    ids = [token.id for token in explanation.tokens]
    assert explanation.tokens[0].pinned
    assert [r.target for r in explanation] == list(range(len(ids) - len(explanation), len(ids)))
    for rationale in explanation:
        assert_same(rationale, oracle.greedy(tiny_model, ids, rationale.target, pinned={0}))
        ordinary = oracle.ordinary(tiny_model, ids[: rationale.target])
        assert int(ordinary.argmax()) == rationale.target_id  # the continuation is the model's own
        assert rationale.predicted


# --- windows: layers that count back by index


@cache
def windowed(name: str) -> Any:
    family, changes = WINDOWED[name]
    return build(family, **changes)


@windowed_families
def test_contexts_beyond_the_window_are_masked(family: str) -> None:
    scorer = CausalScorer(windowed(family))
    for length in range(1, 12):
        evaluation = scorer.evaluation(Context(tuple(range(length)), target_id=0))
        assert evaluation == ("sparse" if length <= WINDOW else "masked")


@windowed_families
@pytest.mark.parametrize("batch_tokens", [7, 4096])
def test_windows_are_exact(family: str, batch_tokens: int) -> None:
    model = windowed(family)
    scorer = CausalScorer(model, batch_tokens=batch_tokens)
    text = own_text(model, seed=14, length=10)
    assert_greedy_is_the_oracle(scorer, [text], max_size=5)
    queries = random_queries(seed=15, lengths=[1, 2, 3, 3, 4, 4, 4, 5, 5, 6, 8, 12, 12])
    expected = [oracle.log_probabilities(model, c.ids, kept) for c, kept in queries]
    assert_scores(scorer.score(queries), expected, queries)


@windowed_families
def test_ignoring_the_window_would_be_noticed(family: str) -> None:
    scorer = CausalScorer(windowed(family), evaluation="sparse")
    scorer._longest_sparse = None
    differences = []
    for context, kept in random_queries(seed=16, lengths=[12, 12, 12, 12]):
        right = oracle.log_probabilities(windowed(family), context.ids, kept)
        differences.append(difference(over_the_vocabulary(scorer, context.ids, kept), right))
    assert max(differences) > CLEARLY


# --- RoPE whose frequencies depend on the length of the input


@cache
def never_run(name: str) -> Any:
    """A model that no input was ever given to: it remembers none."""
    family, changes = STRETCHED[name]
    return build(family, **copy.deepcopy(changes))


def on_a_fresh_copy(name: str, context: Context, kept: tuple[int, ...]) -> torch.Tensor:
    return oracle.log_probabilities(copy.deepcopy(never_run(name)), context.ids, kept)


STRETCHED_LENGTHS = [3, 16, 8, 7, 9, 12, 8, 16, 9, 2, 10]


@stretched_families
@pytest.mark.parametrize("evaluation", ["auto", "masked"])
@pytest.mark.parametrize("order", ["mixed", "rising", "falling"])
def test_lengths_do_not_change_each_others_frequencies(
    family: str, evaluation: Any, order: str
) -> None:
    scorer = CausalScorer(copy.deepcopy(never_run(family)), evaluation=evaluation)
    queries = random_queries(seed=17, lengths=STRETCHED_LENGTHS)
    if order != "mixed":
        queries.sort(key=lambda query: len(query[0].ids), reverse=order == "falling")
    expected = [on_a_fresh_copy(family, *query) for query in queries]
    assert_scores(scorer.score(queries), expected, queries)
    assert_scores([scorer.score([query])[0] for query in queries], expected, queries)
    if evaluation == "auto":
        assert {scorer.evaluation(context) for context, _ in queries} == {"sparse"}


@stretched_families
def test_greedy_beyond_the_original_length(family: str) -> None:
    text = random_text(seed=18, length=12)
    scorer = CausalScorer(copy.deepcopy(never_run(family)))
    for (_, target), rationale in explain_all_targets(scorer, [text], max_size=3).items():
        fresh = copy.deepcopy(never_run(family))  # all its inputs have the length of this context
        assert_same(rationale, oracle.greedy(fresh, text, target, max_size=3))


@stretched_families
def test_the_frequencies_do_change_with_the_length(family: str) -> None:
    name, changes = STRETCHED[family]
    changes = copy.deepcopy(changes)
    changes["rope_parameters"] = None
    plain = build(name, **changes)  # the same weights
    text = random_text(seed=19, length=2 * SWITCH)
    stretched = oracle.ordinary(copy.deepcopy(never_run(family)), text)
    assert difference(stretched, oracle.ordinary(plain, text)) > CLEARLY


@pytest.mark.parametrize("family", ["dynamic", "dynamic-by-layer"])
def test_remembering_a_longer_input_would_be_noticed(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    [long, *shorter] = random_queries(seed=20, lengths=[4 * SWITCH, *[SWITCH + 1] * 4])
    scorer = CausalScorer(copy.deepcopy(never_run(family)))

    def largest_difference() -> float:
        scorer.score([long])
        return max(
            difference(over_the_vocabulary(scorer, c.ids, kept), on_a_fresh_copy(family, c, kept))
            for c, kept in shorter
        )

    assert largest_difference() < TOLERANCE
    monkeypatch.setattr(positions, "forget_long_sequences", lambda layers: None)
    assert largest_difference() > CLEARLY


# --- real models


@pytest.mark.real_model
def test_greedy_is_the_oracle_on_the_default_model() -> None:
    if default_model.find() is None and default_model.installed_gguf() is None:
        pytest.skip("the default model is not here: run `rationales model get`")
    from rationales.models.loading import load_model

    loaded = load_model()
    texts = [
        "The Supreme Court on Tuesday ruled that the Supreme",
        "Paris is in France. Rome is in",
    ]
    ids = [tuple(loaded.tokenizer(text)["input_ids"][:12]) for text in texts]
    # The first token is pinned, as the beginning of a text often is; small rationales only.
    assert_greedy_is_the_oracle(CausalScorer(loaded.model), ids, frozenset({0}), max_size=3)


def test_greedy_is_the_oracle_on_a_given_model() -> None:
    folder = os.environ.get("RATIONALES_TEST_MODEL")
    if not folder:
        pytest.skip("RATIONALES_TEST_MODEL names no folder of a model")
    from rationales.models.loading import load_model

    loaded = load_model(folder)
    texts = ["Once upon a time there was a little girl", "Tom had a red ball. Tom gave the red"]
    ids = [tuple(loaded.tokenizer(text)["input_ids"][:12]) for text in texts]
    # The first token is pinned, as the beginning of a text often is; small rationales only.
    assert_greedy_is_the_oracle(CausalScorer(loaded.model), ids, frozenset({0}), max_size=3)
