"""Equal candidates: the lowest index wins, however subsets are batched and sums are rounded."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import rationales
from rationales import Context, Explainer, Options, Score, SubsetScorer, TableScorer, rationalize
from rationales.context import causal_context
from rationales.ranking import order
from rationales.scoring.adapted import AdaptedScorer
from rationales.scoring.causal import CausalScorer
from rationales.scoring.logits import read_scores
from rationales.ties import TIE, best_place, ranked

from tiny_models import build

NOISE = TIE / 10

values = st.lists(
    st.one_of(st.floats(-3, 0), st.integers(-3, 0).map(float), st.just(-math.inf)), min_size=1
)


@given(values)
def test_the_first_of_the_best_is_the_first_in_order(numbers: list[float]) -> None:
    best = best_place(numbers)
    assert numbers[best] >= max(numbers) - TIE
    assert all(number < max(numbers) - TIE for number in numbers[:best])
    assert ranked(numbers)[0] == best


@given(values)
def test_an_order_holds_every_place_and_falls_but_for_ties(numbers: list[float]) -> None:
    places = ranked(numbers)
    assert sorted(places) == list(range(len(numbers)))
    for before, after in itertools.pairwise(places):
        assert numbers[before] >= numbers[after] - TIE
        assert before < after or numbers[before] > numbers[after]


@given(st.lists(st.integers(-4, 0), min_size=1), st.data())
def test_noise_does_not_change_an_order(numbers: list[int], data: st.DataObject) -> None:
    noise = st.floats(-NOISE, NOISE)
    noisy = [number + data.draw(noise) for number in numbers]
    assert ranked(noisy) == ranked([float(number) for number in numbers])


METHODS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "fast": {"fast": True},
    "beam": {"method": "beam"},
    "soft": {"method": "soft"},
    "exhaustive": {"method": "exhaustive", "max_size": 3},
    "minimal": {"minimal": True},
    "prob": {"criterion": "prob=0.3"},
    "ratio": {"criterion": "ratio=0.5"},
    "top-k": {"criterion": "top-k=2"},
}


@pytest.mark.parametrize("method", METHODS)
@given(seed=st.integers(0, 2**16), sizes=st.lists(st.integers(0, 2), min_size=5, max_size=5))
def test_rounding_does_not_choose_between_equals(method: str, seed: int, sizes: list[int]) -> None:
    """Every index is worth one of three amounts, so most candidates are equal to others."""
    context = Context(tuple(range(6)), target_id=9, required=(5,))

    def scorer(noise: float) -> TableScorer:
        def score(kept: frozenset[int]) -> Score:
            worth = sum(sizes[i] for i in kept if i < 5)
            wobble = noise * math.sin(seed + sum(7**i for i in kept))
            logprob = -4 + worth / 2 + wobble
            first = logprob >= math.log(0.5) - TIE
            return Score(logprob, 9 if first else 1, logprob, 1 if first else 3 - (worth > 3))

        return TableScorer(score)

    quiet, noisy = (rationalize(context, scorer(noise), **METHODS[method]) for noise in (0, NOISE))
    assert noisy.indices == quiet.indices
    assert noisy.sufficient == quiet.sufficient


def test_a_target_as_likely_as_the_best_is_the_prediction() -> None:
    contexts = [Context((3,), target_id=4, extra_ids=(1,))] * 4
    logits = torch.zeros(4, 6)
    logits[0, 2] = NOISE  # the target is within the tolerance of the best
    logits[1, [1, 2]] = torch.tensor([1.0, 1.0 + NOISE])  # two others are: the lowest id wins
    logits[2, 2] = 2 * TIE
    logits[3, 4] = 1.0
    scores = read_scores(logits, contexts)
    assert [score.prediction_id for score in scores] == [4, 1, 2, 4]
    assert [score.rank for score in scores] == [1, 3, 2, 1]
    for score in scores:
        if score.prediction_id == 4:
            assert score.prediction_logprob == score.target_logprob


def test_a_contrast_needs_more_than_a_tie() -> None:
    context = Context((3, 4), target_id=5, required=(1,), extra_ids=(6,))
    table = {
        frozenset({1}): Score(-1.0, 5, extra_logprobs=(-1.0 - NOISE,)),
        frozenset({0, 1}): Score(-1.0, 5, extra_logprobs=(-1.0 - 2 * TIE,)),
    }
    assert rationalize(context, TableScorer(table)).indices == (1, 0)


def test_equal_importances_keep_the_order_of_the_text() -> None:
    context = Context(tuple(range(5)), target_id=9, required=(4,))
    noisy = [0.25, 0.5, 0.25 * (1 + 1e-9), 0.5 * (1 + 1e-9), 0.0]
    assert order(context, noisy) == ((1,), (3,), (0,), (2,))


def test_two_equal_tokens_are_told_apart_by_nothing(tiny_tokenizer: Any) -> None:
    """Without positions, the same token in two places is the same: only rounding differs."""
    model = build("gpt2", vocab_size=len(tiny_tokenizer))
    with torch.no_grad():
        model.transformer.wpe.weight.zero_()
    text = (7, 8, 9, 7, 8, 9, 7, 8, 9, 11)
    for batch_tokens in (4, 11, 64, 4096):
        scorer = CausalScorer(model, batch_tokens=batch_tokens)
        for target in range(40, 80):
            context = Context(text, target, (9,))
            added = rationalize(context, scorer, max_size=2).indices[1:]
            assert not added or added[0] < 3


# --- the same rationales, however they are computed

PROMPTS = (
    "The city council announced on Monday that",
    "To make a simple tomato soup, first",
    "Once upon a time there was a girl who",
    "Water boils at a lower temperature when",
    "Dear Anna, thank you very much for",
    "In the middle of the night, the old man",
)


Answers = dict[Context, tuple[tuple[int, ...], bool]]


def together(contexts: list[Context], scorer: SubsetScorer) -> Answers:
    found = Explainer(scorer).rationalize(zip(contexts, contexts, strict=True), Options())
    return {context: (r.indices, r.sufficient) for context, r in found}


@contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def assert_one_answer(
    explainer: Explainer, make: Callable[..., Any], prompts: list[str], generate: int
) -> None:
    """All targets of all texts: together, alone, in small passes, without sharing, one thread."""
    contexts: list[Context] = []
    for explanation in explainer.explain(prompts, generate=generate, max_size=1):
        ids = tuple(token.id for token in explanation.tokens)
        contexts += [causal_context(ids, r.target, frozenset()) for r in explanation]
    assert len(contexts) == len(prompts) * generate
    expected = together(contexts, explainer.scorer)
    with one_thread():
        results = {"one thread": together(contexts, explainer.scorer)}
    results["256 tokens a pass"] = together(contexts, make(batch_tokens=256))
    results["nothing shared"] = together(contexts, make(share_prefixes=False))
    results["alone"] = {
        context: answer
        for one in contexts
        for context, answer in together([one], explainer.scorer).items()
    }
    wrong = [
        (name, context.ids, context.target_id, answer, expected[context])
        for name, result in results.items()
        for context, answer in result.items()
        if answer != expected[context]
    ]
    assert not wrong


def test_one_answer_however_it_is_computed(tiny_tokenizer: Any) -> None:
    model = build("llama", vocab_size=len(tiny_tokenizer))
    explainer = Explainer(CausalScorer(model), tiny_tokenizer, model=model)
    assert_one_answer(explainer, lambda **how: CausalScorer(model, **how), list(PROMPTS[:2]), 4)


@pytest.mark.real_model
@pytest.mark.long
def test_one_answer_for_300_targets() -> None:
    torch.set_num_threads(2)
    explainer = rationales.load()
    scorer = explainer.scorer
    assert isinstance(scorer, AdaptedScorer)

    def make(**how: Any) -> AdaptedScorer:
        base, adapted = (CausalScorer(s.model, **how) for s in (scorer.base, scorer.adapted))
        return AdaptedScorer(base, adapted)

    try:
        assert_one_answer(explainer, make, list(PROMPTS), 50)
    finally:
        torch.set_num_threads(1)
