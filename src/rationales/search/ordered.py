"""Baselines: units are added in a given order until the rationale is sufficient."""

from __future__ import annotations

from collections.abc import Sequence

from rationales.context import Context, Subset
from rationales.search.base import Search, Trail
from rationales.search.criterion import Criterion

_AT_ONCE = 4
"""Prefixes of the order that are scored together; the first of them that is sufficient is taken."""


def ordered(
    context: Context,
    order: Sequence[Subset],
    criterion: Criterion | None = None,
    *,
    max_size: int | None = None,
) -> Search:
    """The shortest sufficient prefix of the order, after what is required."""
    trail = Trail(context, criterion, max_size)
    sizes = range(trail.limit + 1)
    for start in sizes[::_AT_ONCE]:
        prefixes = [tuple(order[:size]) for size in sizes[start : start + _AT_ONCE]]
        scores = yield from trail.ask(prefixes)
        for prefix, score in zip(prefixes, scores, strict=True):
            trail.add(prefix, score)
            if trail.sufficient:
                return trail.rationale()
    return trail.at_limit()
