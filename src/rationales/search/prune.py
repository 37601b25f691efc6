"""Dropping what is not needed: a rationale from which nothing can be taken away.

    while some k ∈ S leave S \\ k sufficient:  drop them, those that are missed least first,
                                              as many as can go together

Greedy search cannot take back a token that later ones have made superfluous. The result is minimal
(no single unit can go); a smaller subset of other tokens may still exist.
"""

from __future__ import annotations

from dataclasses import replace

from rationales.context import Context
from rationales.result import Rationale
from rationales.search.base import Asking, Search, Trail, Units
from rationales.search.criterion import Criterion
from rationales.ties import ranked


def prune(context: Context, found: Rationale, criterion: Criterion | None = None) -> Search:
    """The rationale without what is superfluous; one that is not sufficient stays as it is."""
    if not found.sufficient or found.minimal:
        return found
    trail = Trail(context, criterion)
    place = {index: number for number, index in enumerate(found.indices)}
    units = [unit for unit in context.choices if {*unit} <= {*place}]
    before = tuple(sorted(units, key=lambda unit: place[unit[0]]))
    kept = yield from shrink(trail, before)
    rationale = found if kept == before else (yield from trail.follow(kept))
    evaluations = found.evaluations + trail.evaluations
    return minimal(replace(rationale, evaluations=evaluations, optimal=found.optimal), kept)


def shrink(trail: Trail, kept: Units) -> Asking[Units]:
    """These units, which are sufficient, without those that are not needed."""
    while (fewer := (yield from _drop(trail, kept))) is not None:
        kept = fewer
    return kept


def _drop(trail: Trail, kept: Units) -> Asking[Units | None]:
    """The fewest units that are left and sufficient; None if no single one can be dropped.

    Units that can be dropped one by one are dropped together, the least missed first.
    """
    met, value = trail.criterion.met, trail.criterion.value
    # If none can, the way to all of them is asked for next.
    way = [kept[:size] for size in range(1, len(kept))]
    scores = yield from trail.ask(without_one(kept), [way])
    # Of equals the last, which was added last.
    superfluous = [n for n in reversed(range(len(kept))) if met(scores[n])]
    superfluous = [superfluous[n] for n in ranked([value(scores[n]) for n in superfluous])]
    fewer: list[Units] = []
    for how_many in range(1, len(superfluous) + 1):
        gone = {*superfluous[:how_many]}
        fewer.append(tuple(unit for place, unit in enumerate(kept) if place not in gone))
    # What is left then has to be shown to be needed, most likely where all could be dropped.
    scores = yield from trail.ask(fewer, map(without_one, fewer[-1:]))
    sufficient = [units for units, score in zip(fewer, scores, strict=True) if met(score)]
    return sufficient[-1] if sufficient else None


def without_one(units: Units) -> list[Units]:
    """These units without each one of them."""
    return [units[:place] + units[place + 1 :] for place in range(len(units))]


def minimal(rationale: Rationale, kept: Units) -> Rationale:
    """The rationale of these units, known to be minimal."""
    # Nothing is smaller than what is required, and that alone was not sufficient.
    return replace(rationale, minimal=True, optimal=True if len(kept) <= 1 else rationale.optimal)
