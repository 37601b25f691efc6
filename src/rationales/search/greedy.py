"""Greedy rationalization, the paper's Algorithm 1.

S ← {t−1};  while argmax p(· | y_S) ≠ y_t:  S ← S ∪ argmax_k p(y_t | y_{S ∪ k})
"""

from __future__ import annotations

from collections.abc import Sequence

from rationales.context import Context
from rationales.result import Candidate
from rationales.scoring.protocol import Score
from rationales.search.base import Search, Trail, Units
from rationales.search.criterion import Criterion
from rationales.ties import best_place, ranked


def greedy(
    context: Context,
    criterion: Criterion | None = None,
    *,
    max_size: int | None = None,
    keep_candidates: int = 0,
) -> Search:
    """The rationale that grows by the unit that helps the target most, until it is sufficient.

    Ties go to the lowest index. With ``keep_candidates``, each step records that many of the best
    units that were tried.
    """
    trail = Trail(context, criterion, max_size)
    [score] = yield from trail.ask([()], [trail.larger(())])
    trail.add((), score)
    while not trail.sufficient and len(trail.added) < trail.limit:
        tried = trail.larger(trail.added)
        scores = yield from trail.ask(tried)
        values = [trail.criterion.value(score) for score in scores]
        best = best_place(values)
        trail.add(tried[best], scores[best], best_candidates(tried, scores, keep_candidates))
    return trail.at_limit()


def best_candidates(
    tried: Sequence[Units], scores: Sequence[Score], how_many: int
) -> list[Candidate]:
    """The best of the units that were tried last, by the target's log-probability."""
    candidates = [
        Candidate(
            units[-1][-1], score.target_logprob, unit=units[-1] if len(units[-1]) > 1 else None
        )
        for units, score in zip(tried, scores, strict=True)
    ]
    places = ranked([candidate.target_logprob for candidate in candidates])
    return [candidates[place] for place in places[:how_many]]
