"""Baselines: tokens are added in a given order until the rationale is sufficient."""

from __future__ import annotations

from rationales.context import Context, Subset
from rationales.search.base import Search, Trail


def ordered(context: Context, order: Subset, *, max_size: int | None = None) -> Search:
    """The shortest sufficient prefix of the order, after the token before the target."""
    trail = Trail(context)
    limit = len(context.everything) if max_size is None else max_size
    for size in range(len(order) + 1):
        kept = (*context.required, *order[:size])
        [score] = yield from trail.ask([kept])
        trail.add(kept, score)
        if trail.sufficient or len(kept) >= limit:
            break
    return trail.rationale(stopped="max-size" if len(kept) < len(context.everything) else None)
