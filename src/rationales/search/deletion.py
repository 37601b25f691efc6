"""Search by deletion: QuickXplain (Junker, 2004), which needs no scores, only verdicts.

    needed(B, U):  nothing, if B is sufficient;  U, if it is one unit
                   else  U₂* ← needed(B ∪ U₁, U₂),  U₁* ← needed(B ∪ U₂*, U₁),  U₁* ∪ U₂*

where U₁ and U₂ are the halves of U. If adding a unit never makes a sufficient subset insufficient,
k needed units of n are found with about 2k·log₂(n/k) + 2k questions, and none of them can be left
out. Models are not like that: so what is found is asked about, and where it is not sufficient, the
smallest subset that was is taken instead. Then units are dropped until no single one can be.
"""

from __future__ import annotations

from rationales.context import Context
from rationales.search.base import Asking, Search, Trail, Units
from rationales.search.criterion import Criterion
from rationales.search.prune import minimal, shrink


def deletion(
    context: Context, criterion: Criterion | None = None, *, max_size: int | None = None
) -> Search:
    """A minimal rationale, found by leaving out halves of the context while it is sufficient.

    If the full context is not sufficient, only what is required is kept, and nothing searched.
    """
    trail = Trail(context, criterion, max_size)
    full, empty = yield from trail.ask([context.choices, ()])
    trail.add((), empty)
    if trail.sufficient or not trail.criterion.met(full):
        found = trail.rationale()
        return minimal(found, ()) if trail.sufficient else found
    seen = [context.choices]  # those that were sufficient
    kept = yield from _needed(trail, seen, (), False, context.choices)
    if not (yield from _is_sufficient(trail, seen, kept)):
        kept = min(seen, key=len)
    kept = yield from shrink(trail, kept)
    if len(kept) > trail.limit:
        return trail.at_limit()
    [score] = yield from trail.ask([kept])
    if score.known:
        return minimal((yield from trail.follow(kept)), kept)
    trail.add(kept, score)
    return minimal(trail.rationale(), kept)


def _needed(
    trail: Trail, seen: list[Units], base: Units, has_grown: bool, units: Units
) -> Asking[Units]:
    """Units without which the base is not sufficient; all of them with it are."""
    if has_grown and (yield from _is_sufficient(trail, seen, base)):
        return ()
    if len(units) == 1:
        return units
    first, second = units[: len(units) // 2], units[len(units) // 2 :]
    of_second = yield from _needed(trail, seen, base + first, True, second)
    of_first = yield from _needed(trail, seen, base + of_second, bool(of_second), first)
    return of_first + of_second


def _is_sufficient(trail: Trail, seen: list[Units], units: Units) -> Asking[bool]:
    [score] = yield from trail.ask([units])
    if trail.criterion.met(score):
        seen.append(units)
        return True
    return False
