"""Random tables: a function from the kept set to a score stands in for a model.

Any behaviour that a model can have, and many that no model has. Contexts are small enough for every
subset to be looked at.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st

from rationales import Context, Rationale, Score, TableScorer
from rationales.search.base import Search
from rationales.search.driver import run

TARGET, OTHER = 5, 9

# Two cores that others use too: time says nothing here.
properties = settings(deadline=None, max_examples=150)


@dataclass(frozen=True)
class Problem:
    """A context, and the answer to each question about it."""

    context: Context
    table: Callable[[frozenset[int]], Score]

    def score(self, subset: tuple[int, ...]) -> Score:
        """The answer for a subset, pinned tokens left out as searches leave them out."""
        return self.table(frozenset(subset) | frozenset(self.context.pinned))

    def yields_target(self, subset: tuple[int, ...]) -> bool:
        return self.score(subset).prediction_id == TARGET


def random_table(seed: int, ease: float, levels: int) -> Callable[[frozenset[int]], Score]:
    """A table that predicts the target for a fraction ``ease`` of the sets.

    Log-probabilities take one of ``levels`` values: few of them make many ties.
    """
    known: dict[frozenset[int], Score] = {}

    def look_up(kept: frozenset[int]) -> Score:
        if kept not in known:
            # A text is hashed with SHA-512: the same table in every process.
            draw = random.Random(f"{seed} {sorted(kept)}")
            prediction = TARGET if draw.random() < ease else OTHER
            known[kept] = Score(-draw.randrange(levels) / 8, prediction, -draw.random())
        return known[kept]

    return look_up


@st.composite
def problems(draw: st.DrawFn, ease: float | None = None) -> Problem:
    size = draw(st.integers(0, 7))
    shuffled = draw(st.permutations(range(size)))
    required = draw(st.integers(0, min(2, size)))
    pinned = draw(st.integers(0, min(3, size - required)))
    context = Context(
        ids=tuple(range(100, 100 + size)),
        target_id=TARGET,
        required=tuple(shuffled[:required]),
        pinned=tuple(shuffled[required : required + pinned]),
    )
    if ease is None:
        ease = draw(st.sampled_from([0.0, 0.03, 0.15, 0.5]))
    levels = draw(st.sampled_from([1, 3, 1000]))
    return Problem(context, random_table(draw(st.integers(0, 10**6)), ease, levels))


def find(problem: Problem, search: Search) -> tuple[Rationale, list[frozenset[int]]]:
    """The rationale that a search finds, and the sets it asked for on the way."""
    scorer = TableScorer(problem.table)
    [(_, rationale)] = run([(0, problem.context, search)], scorer)
    return rationale, scorer.scored
