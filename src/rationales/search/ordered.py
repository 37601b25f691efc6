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
    limit = min(len(order), trail.limit)
    for start in range(0, limit + 1, _AT_ONCE):
        prefixes = [tuple(order[:n]) for n in range(start, min(start + _AT_ONCE, limit + 1))]
        scores = yield from trail.ask(prefixes)
        for prefix, score in zip(prefixes, scores, strict=True):
            trail.add(prefix, score)
            if trail.sufficient:
                return trail.rationale()
    return trail.rationale(stopped="max-size" if limit < len(context.choices) else None)
