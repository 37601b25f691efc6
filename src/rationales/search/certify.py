"""What else is true of a rationale, asked of the model and not inferred.

    margin        how far the target is ahead of the runner-up
    minimal       no single unit can go
    lower bound   no subset of fewer units is sufficient: all of them were tried
    without       what the model predicts from everything but the rationale
    critical      single units without which the full context is not sufficient
    suffix        how many of the most recent units are sufficient by themselves
    more          whether another rationale is found among what is left

Each is asked within a budget of subsets. What could not be asked is absent, never false.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations, islice
from typing import TYPE_CHECKING

from rationales.context import Context
from rationales.errors import BudgetError
from rationales.result import Proof, Rationale, Unit
from rationales.scoring.protocol import Score
from rationales.search.base import Asking, Search, Trail, Units, make_step
from rationales.search.criterion import Criterion
from rationales.search.prune import without_one

if TYPE_CHECKING:
    from rationales.options import Options

_BUDGET = 1000
"""Subsets that certify a rationale at most, if nothing else is asked for."""

_STABILITY = 2
"""This many of them are reserved for whether the rationale is stable (``stability.py``)."""

_SHORT = 128
"""In contexts of more tokens, only the rationale's own units are tried as critical ones: each such
question is about nearly all of the context."""

_SUFFIX_TOKENS = 20_000
"""The tokens of all suffixes that are tried, at most: the longest has about 200."""

_AT_ONCE = 16
"""Suffixes that are asked for together."""

_SMALLER_AT_ONCE = 512
"""Smaller subsets that are asked for together."""


def budget_of(options: Options) -> float:
    """How many subsets may be scored to certify a rationale."""
    return math.inf if options.max_evaluations == 0 else options.max_evaluations or _BUDGET


def certify(
    context: Context,
    found: Rationale,
    criterion: Criterion,
    full: Score,
    budget: float,
    another: Search | None = None,
) -> Asking[Rationale]:
    """The rationale with its proof; one that is not sufficient has nothing to prove.

    ``budget`` is how many subsets are scored at most. ``full`` is the score of the full context.
    ``another`` searches for one more disjoint rationale; None if there is known to be none.
    """
    if not found.sufficient:
        return found
    trail = Trail(context, criterion)
    left = budget - _STABILITY
    kept = tuple(unit for unit in context.choices if {*unit} <= {*found.indices})
    if {*context.required, *(index for unit in kept for index in unit)} != {*found.indices}:
        return found  # parts of units: the caller's own levels do not lie within each other
    others = tuple(unit for unit in context.choices if unit not in kept)
    own = yield from _ask(trail, [kept], left)
    fewer = yield from _ask(trail, without_one(kept), left)
    # What is excluded from the search is part of "everything else" all the same.
    always = tuple(sorted({*context.required, *context.excluded}))
    wide = Trail(replace(context, required=always, excluded=()), criterion)
    without = yield from _ask(wide, [others], left - trail.evaluations)
    critical = None
    tries_all = len(context.ids) <= _SHORT and not context.excluded
    if trail.criterion.met(full):  # or there is no prediction to change
        tried = context.choices if tries_all else kept
        critical = yield from _critical(wide, tried, left - trail.evaluations)
    left -= wide.evaluations
    suffix, bound, smaller = None, None, False
    if not context.excluded:  # else they would be about what the search may add, not about all
        suffix = yield from _suffix(trail, left)
        bound, smaller = yield from _lower_bound(trail, len(kept), left)
    more: bool | None = False
    spent = 0
    if another is not None:
        more, spent = yield from _more(another, left - trail.evaluations)
    proof = Proof(
        margin=own[0].margin if own and math.isfinite(own[0].margin or 0) else None,
        lower_bound=bound,
        without=make_step(without[0]) if without else None,
        without_sufficient=trail.criterion.met(without[0]) if without else None,
        critical_units=critical,
        critical_tried=None if critical is None else "all" if tries_all else "rationale",
        suffix=suffix,
        more=more,
        evaluations=trail.evaluations + wide.evaluations + spent,
    )
    minimal = found.minimal if fewer is None else not any(map(trail.criterion.met, fewer))
    optimal = False if smaller else found.optimal
    if bound == len(kept):
        optimal = True
    return replace(found, minimal=minimal, optimal=optimal, proof=proof)


def _ask(trail: Trail, many: list[Units], budget: float) -> Asking[list[Score] | None]:
    """The scores of these units; None if the budget, or an endpoint's, has no room for them."""
    if trail.evaluations + len(many) > budget:
        return None
    try:
        return (yield from trail.ask(many))
    except BudgetError:
        return None


def _critical(trail: Trail, tried: Units, budget: float) -> Asking[tuple[Unit, ...] | None]:
    """Those of these units without which the full context is not sufficient; None: not known."""
    rest = [tuple(u for u in trail.context.choices if u != unit) for unit in tried]
    scores = yield from _ask(trail, rest, budget)
    if scores is None:
        return None
    missed = zip(tried, scores, strict=True)
    return tuple(unit for unit, score in missed if not trail.criterion.met(score))


def _suffix(trail: Trail, budget: float) -> Asking[int | None]:
    """How many of the most recent units are sufficient, and fewer are not; None: not known."""
    choices = trail.context.choices
    tokens, size = 0, 0
    while size <= len(choices):
        sizes = range(size, min(size + _AT_ONCE, len(choices) + 1))
        suffixes = [choices[len(choices) - n :] for n in sizes]
        tokens += sum(len(unit) for suffix in suffixes for unit in suffix)
        if tokens > _SUFFIX_TOKENS:
            return None
        scores = yield from _ask(trail, suffixes, budget)
        if scores is None:
            return None
        for n, score in zip(sizes, scores, strict=True):
            if trail.criterion.met(score):
                return n
        size = sizes[-1] + 1
    return None


def _more(search: Search, budget: float) -> Asking[tuple[bool | None, int]]:
    """Whether a search finds a sufficient subset (None: not known), and how many it has asked."""
    asked = 0
    try:
        wanted = next(search)
        while asked + len(wanted) <= budget:
            asked += len(wanted)
            scores = yield wanted
            wanted = search.send(scores)
    except StopIteration as end:
        found: Rationale = end.value
        return None if found.stopped == "budget" else found.sufficient, asked
    except BudgetError:
        pass
    finally:
        search.close()
    return None, asked


def _lower_bound(trail: Trail, size: int, budget: float) -> Asking[tuple[int | None, bool]]:
    """No subset of fewer units than this is sufficient, and whether one of just as many is.

    None if not even the smallest was tried.
    """
    choices = trail.context.choices
    for fewer in range(size):
        if trail.evaluations + math.comb(len(choices), fewer) > budget:
            return fewer or None, False
        subsets = combinations(choices, fewer)
        while batch := [*islice(subsets, _SMALLER_AT_ONCE)]:
            scores = yield from _ask(trail, batch, budget)
            if scores is None:
                return fewer or None, False
            if any(map(trail.criterion.met, scores)):
                return fewer, True
    return size, False
