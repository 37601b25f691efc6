"""Exhaustive search: the paper's combinatorial objective, solved by trying everything.

    argmin |S|  such that  argmax p(· | y_S) = y_t

Subsets are tried from small to large, in lexicographic order within a size. The number of
evaluations explodes with size, so a budget bounds it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations, islice

from rationales.context import Context
from rationales.search.base import Search, Trail, Units
from rationales.search.criterion import Criterion
from rationales.ties import TIE

_AT_ONCE = 512
"""How many subsets are scored together: they fill a pass, and the search can still stop early."""


def exhaustive(
    context: Context,
    criterion: Criterion | None = None,
    *,
    max_size: int | None = None,
    max_evaluations: int | None = None,
) -> Search:
    """A smallest sufficient subset; if none is found within the limits, the best one seen.

    The best is the one of the highest value, and ``stopped`` says which limit was met. The first in
    lexicographic order wins among subsets of the same size.
    """
    trail = Trail(context, criterion, max_size)
    budget = math.inf if max_evaluations is None else max_evaluations
    best: tuple[float, Units] = (-math.inf, ())
    for size in range(trail.limit + 1):
        subsets = combinations(context.choices, size)
        while batch := list(islice(subsets, int(min(_AT_ONCE, budget - trail.evaluations)))):
            scores = yield from trail.ask(batch)
            for units, score in zip(batch, scores, strict=True):
                if trail.criterion.met(score):
                    rationale = yield from trail.follow(units)
                    return replace(rationale, minimal=True, optimal=True)
                value = trail.criterion.value(score)
                if value > best[0] + TIE:
                    best = (value, units)
        if next(subsets, None) is not None:  # the budget has come to its end, not the size
            yield from trail.follow(best[1])
            return trail.rationale("budget")
    yield from trail.follow(best[1])
    return trail.at_limit()
