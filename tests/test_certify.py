"""Proofs of rationales: all that is said is true of the table, what is not known is absent."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rationales import Options, Score, rationalize
from rationales.context import Context
from rationales.errors import RationalesError
from rationales.render.proof import proof_line
from rationales.result import Explanation, Proof, Rationale
from rationales.scoring.table import TableScorer
from rationales.search.choose import make_search

from tables import TARGET, Problem, find, problems, properties


def certified(problem: Problem, **options: Any) -> Rationale:
    asked = Options(certify=True, **options)
    return find(problem, make_search(problem.context, asked, list))[0]


def sizes_of(problem: Problem) -> list[int]:
    """The sizes of all sufficient subsets, without what is required."""
    choices = problem.context.choices
    required = problem.context.required
    return [
        size
        for size in range(len(choices) + 1)
        for units in combinations(choices, size)
        if problem.yields_target((*required, *(i for unit in units for i in unit)))
    ]


@properties
@given(problems(), st.booleans(), st.sampled_from([0, 3, 10, 50]))
def test_what_is_said_is_true(problem: Problem, fast: bool, budget: int) -> None:
    found = certified(problem, fast=fast, max_evaluations=budget)
    if not found.sufficient:
        assert found.proof is None
        return
    proof, context = found.proof, problem.context
    assert proof is not None
    own = [unit for unit in context.choices if {*unit} <= {*found.indices}]
    required = context.required
    assert proof.lower_bound is not None
    assert proof.lower_bound <= min(sizes_of(problem)) <= len(own)
    if not budget:
        assert proof.lower_bound == min(sizes_of(problem))
    if found.optimal:
        assert len(own) == min(sizes_of(problem))
    smaller = [tuple(i for i in found.indices if i not in unit) for unit in own]
    assert found.minimal is not any(map(problem.yields_target, smaller))
    rest = tuple(i for i in context.everything if i not in found.indices or i in required)
    assert proof.without_sufficient is problem.yields_target(rest)
    assert proof.without is not None
    assert proof.without.target_logprob == problem.score(rest).target_logprob
    if problem.yields_target(context.everything):
        assert proof.critical_units == tuple(
            unit
            for unit in context.choices
            if not problem.yields_target(tuple(i for i in context.everything if i not in unit))
        )
    suffixes = [
        (*required, *(i for unit in context.choices[len(context.choices) - n :] for i in unit))
        for n in range(len(context.choices) + 1)
    ]
    enough = [n for n, suffix in enumerate(suffixes) if problem.yields_target(suffix)]
    if proof.suffix is not None:
        assert proof.suffix == enough[0]
    elif not budget:
        assert not enough


@properties
@given(problems(), st.integers(1, 3))
def test_whether_there_are_more_disjoint_ones(problem: Problem, count: int) -> None:
    found = certified(problem, disjoint=count, max_evaluations=0)
    if found.proof is None:
        return
    plain = find(problem, make_search(problem.context, Options(disjoint=count + 1), list))[0]
    assert len(found.alternatives) == min(len(plain.alternatives), count - 1)
    assert found.proof.more is (len(plain.alternatives) >= count)


def test_the_budget_bounds_the_proof() -> None:
    context = Context(ids=tuple(range(100, 130)), target_id=TARGET, required=(29,))
    asked: list[frozenset[int]] = []

    def table(kept: frozenset[int]) -> Any:
        asked.append(kept)
        return Score(-1.0, TARGET if {3, 7, 11} <= kept else 9)

    scorer = TableScorer(table)
    found = rationalize(context, scorer, minimal=True, certify=True, max_evaluations=100)
    assert found.proof is not None
    assert found.proof.lower_bound == 2  # 0 and 1 units were tried, 406 pairs were not
    assert found.proof.evaluations <= 100
    whole = rationalize(context, scorer, minimal=True, certify=True, max_evaluations=5000)
    assert whole.proof is not None
    assert whole.optimal is True
    assert whole.proof.suffix == 26  # from token 3 on
    assert whole.proof.critical_units == ((3,), (7,), (11,))
    assert whole.proof.without_sufficient is False


def test_a_rationale_of_a_real_model_is_proven_and_told(tiny_explainer: Any) -> None:
    text = "The quick brown fox jumps over the lazy"
    found = tiny_explainer.explain(text, generate=2, certify=True)
    for rationale in found:
        proof = rationale.proof
        assert isinstance(proof, Proof)
        assert proof.margin is not None
        assert proof.margin >= -1e-4
        assert proof.deleted_sufficient is not None
        assert proof.without_adapter_sufficient is None  # there is no adapter
        assert "nats ahead" in (proof_line(rationale) or "")
    assert Explanation.from_json(found.to_json()) == found
    kept = "".join(found.tokens[i].text for i in sorted(found[0].indices))
    closed = tiny_explainer.explain(kept, continuation=found[0].target_text)
    if len(closed.tokens) == len(found[0].indices) + 1:  # joined, they are the same tokens
        assert found[0].proof.deleted_sufficient is closed[0].predicted
    assert tiny_explainer.explain(text, generate=1)[0].proof is None


def test_a_budget_needs_something_that_reads_it() -> None:
    with pytest.raises(RationalesError, match="max_evaluations goes with"):
        Options(max_evaluations=5)
    assert Options(max_evaluations=5, certify=True).max_evaluations == 5
