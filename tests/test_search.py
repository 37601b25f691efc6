"""The searches against plain transcriptions, over random tables."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from unittest import mock

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rationales import Context, Score, TableScorer, rationalize
from rationales.ranking import attribute, order
from rationales.search import exhaustive as exhaustive_module
from rationales.search.base import Search
from rationales.search.driver import run
from rationales.search.exhaustive import exhaustive
from rationales.search.greedy import greedy
from rationales.search.ordered import ordered

from tables import OTHER, TARGET, Problem, find, problems, properties

METHODS = ("greedy", "exhaustive", "random", "nearest-first")


def every_search(problem: Problem) -> dict[str, Search]:
    context = problem.context
    return {
        "greedy": greedy(context),
        "exhaustive": exhaustive(context),
        "ordered": ordered(context, tuple(reversed(context.choices))),
    }


# The algorithms, as the paper writes them -----------------------------------------------------


def papers_greedy(problem: Problem) -> list[int]:
    """Algorithm 1, started from the required tokens; it ends where no token is left to add."""
    kept = list(problem.context.required)
    while not problem.yields_target(tuple(kept)):
        rest = set(range(len(problem.context.ids))) - set(kept) - set(problem.context.pinned)
        if not rest:
            break
        best, best_logprob = None, float("-inf")
        for k in sorted(rest):
            logprob = problem.score((*kept, k)).target_logprob
            if best is None or logprob > best_logprob:
                best, best_logprob = k, logprob
        kept.append(best)
    return kept


def all_subsets(problem: Problem) -> list[tuple[int, ...]]:
    """Every subset a rationale may be: small ones first, in lexicographic order within a size."""
    candidates = problem.context.candidates
    return [
        problem.context.required + added
        for size in range(len(candidates) + 1)
        for added in combinations(candidates, size)
    ]


@given(problems())
@properties
def test_greedy_is_the_papers_algorithm(problem: Problem) -> None:
    rationale, _ = find(problem, greedy(problem.context))
    assert list(rationale.indices) == papers_greedy(problem)
    assert rationale.sufficient == problem.yields_target(rationale.indices)


@given(problems())
@properties
def test_exhaustive_is_a_plain_loop_over_all_subsets(problem: Problem) -> None:
    rationale, _ = find(problem, exhaustive(problem.context))
    first = next(filter(problem.yields_target, all_subsets(problem)), None)
    assert rationale.sufficient == (first is not None)
    if first is not None:
        assert rationale.indices == first


@given(problems(ease=0.1))
@properties
def test_exhaustive_is_minimal(problem: Problem) -> None:
    rationale, _ = find(problem, exhaustive(problem.context))
    assume(rationale.sufficient)
    # Counted over bit masks, which come in no particular order of size.
    places = problem.context.candidates
    enough = [
        bin(mask).count("1")
        for mask in range(2 ** len(places))
        if problem.yields_target(
            (*problem.context.required, *(p for bit, p in enumerate(places) if mask >> bit & 1))
        )
    ]
    assert len(rationale) == len(problem.context.required) + min(enough)


@given(problems())
@properties
def test_exhaustive_is_never_longer_than_greedy(problem: Problem) -> None:
    shortest, _ = find(problem, exhaustive(problem.context))
    quick, _ = find(problem, greedy(problem.context))
    if quick.sufficient:
        assert shortest.sufficient
        assert len(shortest) <= len(quick)


@given(problems(), st.randoms(use_true_random=False))
@properties
def test_ordered_is_the_shortest_sufficient_prefix(
    problem: Problem, shuffle: random.Random
) -> None:
    candidates = list(problem.context.candidates)
    shuffle.shuffle(candidates)
    units = [(index,) for index in candidates]
    rationale, asked = find(problem, ordered(problem.context, units))
    prefixes = [
        (*problem.context.required, *candidates[:size]) for size in range(len(candidates) + 1)
    ]
    expected = next(filter(problem.yields_target, prefixes), prefixes[-1])
    assert rationale.indices == expected
    # No prefix is asked for twice, and few beyond the sufficient one: four share a pass.
    assert len(asked) == len(set(asked))
    needed = len(expected) - len(problem.context.required) + 1
    assert needed <= len(asked) <= needed + 3


# Ties -----------------------------------------------------------------------------------------


def indifferent(enough: Callable[[frozenset[int]], bool]) -> TableScorer:
    """A model to which all subsets are equally good, until one is enough."""
    return TableScorer(lambda kept: Score(-1.0, TARGET if enough(kept) else OTHER))


def test_ties_go_to_the_lowest_index_in_greedy() -> None:
    context = Context(ids=(1,) * 6, target_id=TARGET, required=(5,), pinned=(1,))
    rationale = rationalize(context, indifferent(lambda kept: len(kept) == 5))
    assert rationale.indices == (5, 0, 2, 3)


def test_ties_go_to_the_first_subset_in_exhaustive() -> None:
    context = Context(ids=(1,) * 6, target_id=TARGET, required=(5,), pinned=(1,))
    scorer = indifferent(lambda kept: len(kept) == 4 and 0 not in kept)
    assert rationalize(context, scorer, method="exhaustive").indices == (5, 2, 3)


def test_ties_among_insufficient_subsets_go_to_the_first_and_smallest() -> None:
    context = Context(ids=(1,) * 4, target_id=TARGET, required=(3,))
    rationale = rationalize(context, indifferent(lambda kept: False), method="exhaustive")
    assert rationale.indices == (3,)
    assert not rationale.sufficient


def test_ties_go_to_the_lowest_index_in_an_order() -> None:
    context = Context(ids=(1,) * 6, target_id=TARGET, required=(5,), pinned=(1,))
    assert order(context, [0.5, 9.0, 0.5, 0.7, 0.5, 9.0]) == ((3,), (0,), (2,), (4,))


# Limits ---------------------------------------------------------------------------------------


@given(problems(), st.integers(1, 8))
@properties
def test_max_size_cuts_greedy_short(problem: Problem, max_size: int) -> None:
    free, _ = find(problem, greedy(problem.context))
    limited, _ = find(problem, greedy(problem.context, max_size=max_size))
    limit = max(max_size, len(problem.context.required))  # what is required is always kept
    if len(free) <= limit:
        assert limited == free
    else:
        assert limited.indices == free.indices[:limit]
        assert limited.steps == free.steps[: len(limited.steps)]
        assert (limited.sufficient, limited.stopped) == (False, "max-size")


@given(problems(), st.integers(1, 8))
@properties
def test_max_size_cuts_an_order_short(problem: Problem, max_size: int) -> None:
    units = problem.context.choices
    free, _ = find(problem, ordered(problem.context, units))
    limited, _ = find(problem, ordered(problem.context, units, max_size=max_size))
    limit = max(max_size, len(problem.context.required))
    if len(free) <= limit:
        assert replace(limited, evaluations=0) == replace(free, evaluations=0)
    else:
        assert limited.indices == free.indices[:limit]
        assert (limited.sufficient, limited.stopped) == (False, "max-size")


@given(problems(), st.integers(1, 8))
@properties
def test_max_size_cuts_exhaustive_short(problem: Problem, max_size: int) -> None:
    free, _ = find(problem, exhaustive(problem.context))
    limited, asked = find(problem, exhaustive(problem.context, max_size=max_size))
    limit = max(max_size, len(problem.context.required))
    assert len(limited) <= limit
    assert all(len(kept) <= limit + len(problem.context.pinned) for kept in asked)
    if free.sufficient and len(free) <= limit:
        assert limited == free
    else:
        assert not limited.sufficient
        reached_the_end = limit >= len(problem.context.everything)
        assert limited.stopped == (None if reached_the_end else "max-size")


@given(problems(), st.integers(1, 140), st.integers(1, 20))
@properties
def test_budget_bounds_exhaustive(problem: Problem, budget: int, at_once: int) -> None:
    with mock.patch.object(exhaustive_module, "_AT_ONCE", at_once):
        rationale, asked = find(problem, exhaustive(problem.context, max_evaluations=budget))
    # The prefixes of the rationale, which show its steps, are smaller: they are known by then.
    assert len(asked) <= budget
    everything = all_subsets(problem)
    within = everything[:budget]
    found = next(filter(problem.yields_target, within), None)
    if found is not None:
        assert (rationale.indices, rationale.sufficient, rationale.stopped) == (found, True, None)
        return
    best = max(within, key=lambda subset: problem.score(subset).target_logprob)
    assert rationale.indices == best
    assert not rationale.sufficient
    assert rationale.stopped == ("budget" if budget < len(everything) else None)
    assert len(asked) == min(budget, len(everything))


@given(problems(), st.integers(1, 20))
@properties
def test_exhaustive_does_not_depend_on_how_many_it_asks_at_once(
    problem: Problem, at_once: int
) -> None:
    usual, _ = find(problem, exhaustive(problem.context))
    with mock.patch.object(exhaustive_module, "_AT_ONCE", at_once):
        other, _ = find(problem, exhaustive(problem.context))
    # How many were scored beside the one that was found may differ, and nothing else.
    assert (other.indices, other.steps, other.stopped) == (
        usual.indices,
        usual.steps,
        usual.stopped,
    )


def test_a_budget_that_is_spent_on_one_target_leaves_the_next_its_own() -> None:
    hard = Context(ids=(1,) * 6, target_id=TARGET, required=(5,))
    easy = Context(ids=(1,) * 3, target_id=TARGET, required=(2,))
    scorer = indifferent(lambda kept: kept == {0, 2})
    searches = [
        ("hard", hard, exhaustive(hard, max_evaluations=4)),
        ("easy", easy, exhaustive(easy, max_evaluations=4)),
    ]
    found = dict(run(searches, scorer))
    assert found["hard"].stopped == "budget"
    assert found["hard"].indices == (5,)
    assert found["easy"].sufficient
    assert found["easy"].indices == (2, 0)


def test_the_budget_and_the_size_limit_are_told_apart() -> None:
    context = Context(ids=(1,) * 5, target_id=TARGET, required=(4,))
    never = TableScorer(lambda kept: Score(-1.0, OTHER))

    def stopped(**limits: int) -> str | None:
        return rationalize(context, never, method="exhaustive", **limits).stopped

    # Sizes 1 and 2 are five subsets: the budget ends the search only if it is smaller.
    assert stopped(max_size=2, max_evaluations=4) == "budget"
    assert stopped(max_size=2, max_evaluations=5) == "max-size"
    assert stopped(max_evaluations=16) is None


@given(problems(ease=0.0))
@properties
def test_the_whole_context_without_the_target_is_an_answer(problem: Problem) -> None:
    context = problem.context
    for search in (greedy(context), ordered(context, context.choices)):
        rationale, _ = find(problem, search)
        assert (rationale.sufficient, rationale.stopped) == (False, None)
        assert sorted(rationale.indices) == list(context.everything)
    # The best of all subsets, which need not be the largest.
    rationale, _ = find(problem, exhaustive(context))
    assert (rationale.sufficient, rationale.stopped) == (False, None)
    logprobs = [problem.score(subset).target_logprob for subset in all_subsets(problem)]
    assert problem.score(rationale.indices).target_logprob == max(logprobs)


# What a rationale records ---------------------------------------------------------------------


@given(problems())
@properties
def test_steps_follow_the_indices(problem: Problem) -> None:
    required = problem.context.required
    for name, search in every_search(problem).items():
        rationale, _ = find(problem, search)
        assert rationale.indices[: len(required)] == required, name
        prefixes = [
            rationale.indices[:size] for size in range(len(required), len(rationale) + 1)
        ]  # what is required is there from the first step on
        assert len(rationale.steps) == len(prefixes), name
        for step, prefix in zip(rationale.steps, prefixes, strict=True):
            score = problem.score(prefix)
            assert step.index == (prefix[-1] if prefix else None), name
            assert step.target_logprob == score.target_logprob, name
            assert step.prediction_id == score.prediction_id, name
            assert step.prediction_logprob == score.prediction_logprob, name


@given(problems(), st.integers(1, 8))
@properties
def test_only_a_search_that_falls_short_was_stopped(problem: Problem, limit: int) -> None:
    context = problem.context
    for search in (
        greedy(context, max_size=limit),
        ordered(context, context.choices, max_size=limit),
        exhaustive(context, max_size=limit, max_evaluations=limit),
    ):
        rationale, _ = find(problem, search)
        assert rationale.sufficient == problem.yields_target(rationale.indices)
        assert not (rationale.sufficient and rationale.stopped)


@given(problems())
@properties
def test_pinned_tokens_are_always_seen_and_never_counted(problem: Problem) -> None:
    pinned, required = set(problem.context.pinned), set(problem.context.required)
    for name, search in every_search(problem).items():
        rationale, asked = find(problem, search)
        assert not pinned & set(rationale.indices), name
        assert len(set(rationale.indices)) == len(rationale.indices), name
        assert all(pinned | required <= kept for kept in asked), name


@given(problems())
@properties
def test_evaluations_are_what_the_scorer_was_asked(problem: Problem) -> None:
    for name, search in every_search(problem).items():
        rationale, asked = find(problem, search)
        assert rationale.evaluations == len(asked), name


@pytest.mark.parametrize("method", METHODS)
@given(problem=problems())
@settings(deadline=None, max_examples=60)
def test_the_full_context_is_asked_for_first_and_nothing_twice(
    method: str, problem: Problem
) -> None:
    scorer = TableScorer(problem.table)
    rationale = rationalize(problem.context, scorer, method=method)
    assert len({*scorer.scored}) == len(scorer.scored)
    # It counts only if the search itself comes to it.
    assert rationale.evaluations in (len(scorer.scored) - 1, len(scorer.scored))
    assert scorer.scored[0] == frozenset(range(len(problem.context.ids)))
    assert rationale.predicted == problem.yields_target(problem.context.everything)
    assert rationale.target == len(problem.context.ids)


@given(problems(), st.integers(0, 8))
@properties
def test_greedy_keeps_the_best_candidates(problem: Problem, how_many: int) -> None:
    rationale, _ = find(problem, greedy(problem.context, keep_candidates=how_many))
    without, _ = find(problem, greedy(problem.context))
    assert rationale.indices == without.indices
    assert rationale.steps[0].candidates == ()  # nothing was chosen there
    for size, step in enumerate(rationale.steps[1:], start=len(problem.context.required)):
        before = rationale.indices[:size]
        tried = [
            (-problem.score((*before, k)).target_logprob, k)
            for k in problem.context.candidates
            if k not in before
        ]
        # Tuples sort by falling log-probability, then by rising index.
        expected = [(k, -negative) for negative, k in sorted(tried)[:how_many]]
        assert [(c.index, c.target_logprob) for c in step.candidates] == expected
        if how_many:
            assert step.candidates[0].index == step.index


def test_controls_add_in_their_order() -> None:
    context = Context(ids=(7, 8, 9, 7, 8), target_id=TARGET, required=(4,), pinned=(1,))
    never = TableScorer(lambda kept: Score(-1.0, OTHER))
    nearest = rationalize(context, never, method="nearest-first")
    assert nearest.indices == (4, 3, 2, 0)
    assert order(context, *attribute([context], "nearest-first")) == ((3,), (2,), (0,))
    for seed in range(5):
        shuffled = rationalize(context, never, method="random", seed=seed)
        ranked = order(context, *attribute([context], "random", seed=seed))
        assert shuffled.indices == (4, *(index for (index,) in ranked))
    orders = {rationalize(context, never, method="random", seed=s).indices for s in range(40)}
    assert len(orders) == 6  # all orders of three candidates
