"""The soft objective of the paper's section on classification rationales.

    minimise  λ |S| − log p(y_t | y_S)

Tokens are added greedily, and the best subset on the way is returned. It need not be sufficient:
with a high penalty λ, fewer tokens with a lower probability cost less.
"""

from __future__ import annotations

from rationales.context import Context
from rationales.search.base import Search, Trail, Units, required_size
from rationales.search.criterion import Criterion
from rationales.ties import TIE, best_place


def soft(
    context: Context,
    criterion: Criterion | None = None,
    *,
    penalty: float,
    max_size: int | None = None,
) -> Search:
    """The subset of lowest cost on the greedy path, sufficient or not."""
    trail = Trail(context, criterion, max_size)
    fixed = required_size(context)
    [score] = yield from trail.ask([()])
    grown: Units = ()
    best: Units = ()
    lowest = penalty * fixed - score.target_logprob
    # −log p is never below 0, so a subset whose penalty alone is higher than the lowest cost so
    # far cannot win, and neither can any larger one.
    while len(grown) < trail.limit and penalty * (fixed + len(grown) + 1) < lowest:
        tried = trail.larger(grown)
        scores = yield from trail.ask(tried)
        place = best_place([score.target_logprob for score in scores])
        grown = tried[place]
        cost = penalty * (fixed + len(grown)) - scores[place].target_logprob
        if cost < lowest - TIE:
            lowest, best = cost, grown
    return (yield from trail.follow(best))
