"""Greedy rationalization, the paper's Algorithm 1.

S ← {t−1};  while argmax p(· | y_S) ≠ y_t:  S ← S ∪ argmax_k p(y_t | y_{S ∪ k})
"""

from __future__ import annotations

from collections.abc import Sequence

from rationales.context import Context, Subset
from rationales.rationale import Candidate
from rationales.scoring.protocol import Score
from rationales.search.base import Search, Trail


def greedy(context: Context, *, max_size: int | None = None, keep_candidates: int = 0) -> Search:
    """The rationale that grows by the token that helps the target most, until it is enough.

    Ties go to the lowest index. With ``keep_candidates``, each step records that many of the best
    tokens that were tried.
    """
    trail = Trail(context)
    kept = context.required
    [score] = yield from trail.ask([kept])
    trail.add(kept, score)
    limit = len(context.everything) if max_size is None else max_size
    while not trail.sufficient and len(kept) < min(limit, len(context.everything)):
        tried = [(*kept, k) for k in context.candidates if k not in kept]
        scores = yield from trail.ask(tried)
        best = max(range(len(tried)), key=lambda i: scores[i].target_logprob)  # the first of equals
        kept = tried[best]
        trail.add(kept, scores[best], _best_candidates(tried, scores, keep_candidates))
    return trail.rationale(stopped="max-size" if len(kept) < len(context.everything) else None)


def _best_candidates(
    tried: Sequence[Subset], scores: Sequence[Score], how_many: int
) -> list[Candidate]:
    candidates = [
        Candidate(subset[-1], score.target_logprob)
        for subset, score in zip(tried, scores, strict=True)
    ]
    return sorted(candidates, key=lambda c: -c.target_logprob)[:how_many]
