"""Searches made of searches: level by level, and again without what was found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rationales.context import Context
from rationales.result import Rationale
from rationales.search.base import Search

Find = Callable[[Context], Search]


def coarse_to_fine(context: Context, find: Find, find_last: Find) -> Search:
    """The rationale of the last level, each level searching only in what the one before has kept.

    What a level keeps is sufficient, so the next one ends sufficient too, at the latest when it has
    kept all of it again. ``find_last`` is the search of the last level.
    """
    evaluations, within = 0, (*context.required, *context.candidates)
    searches = [find] * (len(context.levels) - 1) + [find_last]
    for search, units in zip(searches, context.levels, strict=True):
        level = context.grouped(units, within)
        if len(level.choices) < 2 and units is not context.levels[-1]:
            continue  # nothing to choose from
        rationale = yield from search(level)
        evaluations += rationale.evaluations
        if not rationale.sufficient:
            break  # finer levels see less, not more
        within = rationale.indices
    return replace(rationale, evaluations=evaluations)


def disjoint(context: Context, how_many: int, find: Find) -> Search:
    """The first rationale, with up to ``how_many`` − 1 others as its alternatives.

    Each is searched for among what the ones before it have not used. It ends when what is left is
    not sufficient, or when what is required is sufficient on its own.
    """
    found: list[Rationale] = []
    left, evaluations = context, 0
    for _ in range(how_many):
        rationale = yield from find(left)
        evaluations += rationale.evaluations
        if found and not rationale.sufficient:
            break
        found.append(rationale)
        used = {*rationale.indices} - {*context.required}
        if not used or not rationale.sufficient:
            break
        left = replace(left, units=tuple(u for u in left.choices if used.isdisjoint(u)))
    first, *others = found
    return replace(first, alternatives=tuple(others), evaluations=evaluations)
