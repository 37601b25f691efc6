"""Search by deletion: QuickXplain's bound, minimality, and budgets."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rationales import Context, Score, TableScorer, rationalize
from rationales.search.deletion import deletion

from tables import OTHER, TARGET, Problem, find, problems, properties


def monotone(n: int, needed: frozenset[int], known: bool = False) -> Problem:
    """A model that predicts the target if and only if it sees these tokens."""
    context = Context(ids=tuple(range(n + 1)), target_id=TARGET, required=(n,))

    def score(kept: frozenset[int]) -> Score:
        return Score(-1.0, TARGET if needed <= kept else OTHER, known=known)

    return Problem(context, score)


@given(st.data(), st.integers(1, 300))
@properties
def test_few_of_many_are_found_within_the_bound(data: st.DataObject, n: int) -> None:
    """At most 2k·log₂(n/k) + 2k questions find them; k more show that none can be left out."""
    size = data.draw(st.integers(1, min(n, 12)))
    needed = data.draw(st.sets(st.integers(0, n - 1), min_size=size, max_size=size))
    problem = monotone(n, frozenset(needed))
    rationale, asked = find(problem, deletion(problem.context))
    k = len(needed)
    assert {*rationale.indices} == {*needed, n}
    assert rationale.sufficient
    assert rationale.minimal
    assert rationale.steps == ()  # there are no log-probabilities to show
    both_ends_and_proof = 2 + k + 1
    assert len(asked) <= 2 * k * math.log2(n / k) + 2 * k + both_ends_and_proof


@given(problems())
@properties
def test_whatever_the_model_does_no_single_unit_can_be_left_out(problem: Problem) -> None:
    rationale, asked = find(problem, deletion(problem.context))
    assert len({*map(frozenset, asked)}) == len(asked) == rationale.evaluations
    everything = problem.context.everything
    required = {*problem.context.required}
    if not problem.yields_target(everything):
        assert rationale.sufficient == problem.yields_target(tuple(required))
        assert {*rationale.indices} == required
        return
    assert rationale.sufficient
    assert rationale.minimal
    assert problem.yields_target(rationale.indices)
    for kept in combinations(rationale.indices, max(0, len(rationale.indices) - 1)):
        assert len(kept) == len(rationale.indices) or not (
            {*kept} >= required and problem.yields_target(kept)
        )


@given(problems(ease=0.5), st.integers(1, 12))
@properties
def test_a_budget_is_never_exceeded_and_its_best_is_reported(problem: Problem, most: int) -> None:
    scorer = TableScorer(problem.table)
    found = rationalize(problem.context, scorer, method="deletion", max_evaluations=most)
    assert len(scorer.scored) <= 1 + most  # the full context is asked for first
    assert found.sufficient == problem.yields_target(found.indices)
    if found.stopped == "budget":
        if problem.yields_target(problem.context.everything):
            assert found.sufficient
        assert len(scorer.scored) == 1 + most
        smallest = min(
            (len(s) for s in scorer.scored if problem.table(s).prediction_id == TARGET), default=0
        )
        if found.sufficient:
            assert len(found.indices) + len(problem.context.pinned) == smallest


def test_a_rationale_that_is_too_large_is_not_reported() -> None:
    problem = monotone(8, frozenset({1, 4, 6}), known=True)
    found = rationalize(problem.context, TableScorer(problem.table), method="deletion", max_size=3)
    assert (found.sufficient, found.stopped, found.indices) == (False, "max-size", (8,))


@pytest.mark.parametrize("coarse_to_fine", [False, True])
def test_scores_that_are_known_show_the_steps(coarse_to_fine: bool) -> None:
    problem = monotone(6, frozenset({1, 4}), known=True)
    context = problem.context
    if coarse_to_fine:
        levels = (((0, 1, 2), (3, 4, 5)), tuple((i,) for i in range(6)))
        context = Context(context.ids, TARGET, required=(6,), levels=levels)
    found = rationalize(
        context, TableScorer(problem.table), method="deletion", coarse_to_fine=coarse_to_fine
    )
    assert {*found.indices} == {1, 4, 6}
    assert len(found.steps) == 3
    assert found.full_context is not None
