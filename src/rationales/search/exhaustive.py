"""Exhaustive search: the paper's combinatorial objective, solved by trying everything.

    argmin |S|  such that  argmax p(· | y_S) = y_t

Subsets are tried from small to large, in lexicographic order within a size. The number of
evaluations explodes with size, so a budget bounds it.
"""

from __future__ import annotations

from itertools import combinations, islice

from rationales.context import Context, Subset
from rationales.search.base import Search, Trail, follow

_AT_ONCE = 512
"""How many subsets are asked for together: enough to fill a pass, few enough to stop soon."""


def exhaustive(
    context: Context, *, max_size: int | None = None, max_evaluations: int | None = None
) -> Search:
    """A smallest sufficient subset; if none is found within the limits, the best one seen.

    The best is the one under which the target is most likely, and ``stopped`` says which limit was
    met. The first in lexicographic order wins among subsets of the same size.
    """
    trail = Trail(context)
    smallest, largest = len(context.required), len(context.everything)
    limit = largest if max_size is None else max(smallest, min(max_size, largest))
    best: tuple[float, Subset] | None = None
    stopped = "max-size" if limit < largest else None
    for size in range(smallest, limit + 1):
        subsets = (
            (*context.required, *added)
            for added in combinations(context.candidates, size - smallest)
        )
        while batch := list(islice(subsets, _room(trail.evaluations, max_evaluations))):
            scores = yield from trail.ask(batch)
            for subset, score in zip(batch, scores, strict=True):
                if score.prediction_id == context.target_id:
                    return (yield from follow(context, subset, trail))
                if best is None or score.target_logprob > best[0]:
                    best = (score.target_logprob, subset)
        if next(subsets, None) is not None:  # the budget, not the size, has come to its end
            stopped = "budget"
            break
    chosen = best[1] if best else context.required
    rationale = yield from follow(context, chosen, trail)
    return rationale if stopped is None else trail.rationale(stopped)


def _room(evaluations: int, max_evaluations: int | None) -> int:
    return _AT_ONCE if max_evaluations is None else min(_AT_ONCE, max_evaluations - evaluations)
