"""What else is true of a rationale, asked of the model and not inferred.

    margin        how far the target is ahead of the runner-up
    minimal       no single unit can go
    lower bound   no subset of fewer units is sufficient: all of them were tried
    without       what the model predicts from everything but the rationale
    critical      single units without which the full context is not sufficient
    suffix        how many of the most recent units are sufficient by themselves

Each is asked within a budget. What could not be asked is absent, never false.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from rationales.context import Context
from rationales.result import Proof, Rationale, Unit
from rationales.scoring.protocol import Score
from rationales.search.base import Asking, Trail, Units, make_step
from rationales.search.criterion import Criterion
from rationales.search.prune import without_one

_SHORT = 128
"""In contexts of more tokens, only the rationale's own units are tried as critical ones: each such
question is about nearly all of the context."""

_SUFFIX_TOKENS = 20_000
"""The tokens of all suffixes that are tried, at most: the longest has about 200."""

_AT_ONCE = 16
"""Suffixes that are asked for together."""


def certify(
    context: Context, found: Rationale, criterion: Criterion, full: Score, budget: float
) -> Asking[Rationale]:
    """The rationale with its proof; one that is not sufficient has nothing to prove.

    ``budget`` is how many subsets are scored at most. ``full`` is the score of the full context.
    """
    if not found.sufficient:
        return found
    trail = Trail(context, criterion)
    kept = tuple(unit for unit in context.choices if {*unit} <= {*found.indices})
    [score] = yield from trail.ask([kept])
    fewer = yield from trail.ask(without_one(kept))
    minimal = not any(map(trail.criterion.met, fewer))
    others = tuple(unit for unit in context.choices if unit not in kept)
    [without] = yield from trail.ask([others])
    critical = None
    if trail.criterion.met(full):  # or there is no prediction to change
        critical = yield from _critical(trail, kept)
    suffix = yield from _suffix(trail, budget)
    bound = yield from _lower_bound(trail, len(kept), budget)
    smallest = bound is not None and bound == len(kept)
    proof = Proof(
        margin=score.margin,
        lower_bound=bound,
        without=make_step(without),
        without_sufficient=trail.criterion.met(without),
        critical_units=critical,
        critical_tried="all" if len(context.ids) <= _SHORT else "rationale",
        suffix=suffix,
        evaluations=trail.evaluations,
    )
    if smallest and context.excluded:
        smallest = False  # among all tokens, a smaller one may be sufficient
    return replace(found, minimal=minimal, optimal=True if smallest else found.optimal, proof=proof)


def _critical(trail: Trail, kept: Units) -> Asking[tuple[Unit, ...]]:
    """The units without each of which the full context is not sufficient."""
    choices = trail.context.choices
    tried = choices if len(trail.context.ids) <= _SHORT else kept
    scores = yield from trail.ask([tuple(u for u in choices if u != unit) for unit in tried])
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
        if tokens > _SUFFIX_TOKENS or trail.evaluations + len(suffixes) > budget:
            return None
        scores = yield from trail.ask(suffixes)
        for n, score in zip(sizes, scores, strict=True):
            if trail.criterion.met(score):
                return n
        size = sizes[-1] + 1
    return None


def _lower_bound(trail: Trail, size: int, budget: float) -> Asking[int | None]:
    """No subset of fewer units than this is sufficient; None if not even the smallest was tried."""
    choices = trail.context.choices
    for fewer in range(size):
        if trail.evaluations + math.comb(len(choices), fewer) > budget:
            return fewer
        scores = yield from _all(trail, choices, fewer)
        if any(map(trail.criterion.met, scores)):
            return fewer
    return size


def _all(trail: Trail, choices: Sequence[tuple[int, ...]], size: int) -> Asking[list[Score]]:
    return (yield from trail.ask([*combinations(choices, size)]))
