"""Searches made of searches: level by level, and again without what was found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rationales.context import Context
from rationales.result import Rationale
from rationales.search.base import Search, at_level

Find = Callable[[Context], Search]


def coarse_to_fine(context: Context, find: Find, find_last: Find) -> Search:
    """The rationale of the last level, each level searching only in what the one before has kept.

    What a level keeps is sufficient, so the next one ends sufficient too, at the latest when it has
    kept all of it again. ``find_last`` is the search of the last level.
    """
    evaluations, within = 0, (*context.required, *context.candidates)
    searches = [find] * (len(context.levels) - 1) + [find_last]
    names = context.level_names or ("unit",) * len(context.levels)
    for search, units, name in zip(searches, context.levels, names, strict=True):
        level = context.grouped(units, within)
        if len(level.choices) < 2 and units is not context.levels[-1]:
            continue  # nothing to choose from
        rationale = yield from at_level(name, search(level))
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
    evaluations = 0
    left: Context | None = context
    while left is not None and len(found) < how_many:
        rationale = yield from find(left)
        evaluations += rationale.evaluations
        if found and not rationale.sufficient:
            break
        if found and _added(left, rationale) > 1:
            rationale = replace(rationale, optimal=None)  # a smaller one may use what is gone
        found.append(rationale)
        left = left_over(left, rationale)
    first, *others = found
    return replace(first, alternatives=tuple(others), evaluations=evaluations)


def _added(context: Context, rationale: Rationale) -> int:
    """How many units were added to what is required."""
    if rationale.units is None:
        return len(rationale) - len(context.required)
    return len(rationale.units) - bool(context.required)


def left_over(context: Context, rationale: Rationale) -> Context | None:
    """The context with what a rationale and its alternatives have not used.

    None if nothing more is to be found: the last of them is not sufficient, or needs nothing.
    """
    all_found = (rationale, *rationale.alternatives)
    last = context.grouped(context.levels[-1]) if context.levels else context
    used = [{*each.indices} - {*last.required} for each in all_found]
    if not all(used) or not all(each.sufficient for each in all_found):
        return None
    gone = {index for indices in used for index in indices}
    return replace(context, units=tuple(u for u in context.choices if gone.isdisjoint(u)))
