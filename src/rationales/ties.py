"""Which numbers are equal, and which of several equal ones comes first: the one place for both.

A model's answer for the same subset differs a little with what else is in the batch, whether
prefixes are shared and how many threads there are: sums are rounded in another order. Two equal
tokens, far from the target, can be told apart by nothing but that. So log-probabilities within
``TIE`` of the best are as good as the best, and the first of them wins.
"""

from __future__ import annotations

from collections.abc import Sequence

ROUNDING = 1e-6
"""A log-probability may be above 0 by this much, which is then taken for rounding."""

TIE = 1e-4
"""Log-probabilities this close, in nats, are equal: more than rounding in float32 makes of one."""


def best_place(values: Sequence[float]) -> int:
    """The first place of those whose value is within ``TIE`` of the highest."""
    least = max(values) - TIE
    return next(place for place, value in enumerate(values) if value >= least)


def ranked(values: Sequence[float], tie: float = TIE) -> list[int]:
    """The places from the highest value to the lowest, equal ones in their own order.

    Equal are those within ``tie`` of the highest that is left.
    """
    found: list[int] = []
    equal: list[int] = []
    for place in sorted(range(len(values)), key=lambda place: -values[place]):
        if equal and values[place] < values[equal[0]] - tie:
            found += sorted(equal)
            equal = []
        equal.append(place)
    return found + sorted(equal)
