"""Any model at all: a callable that predicts a target from token ids and their positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rationales.errors import RationalesError
from rationales.scoring.protocol import Query, Score

Predict = Callable[[list[tuple[list[int], list[int]]], int], Sequence[tuple[float, int]]]
"""(list of (kept token ids, kept positions), target id) → list of (log-probability, argmax)."""


class BlackBoxScorer:
    """Scores subsets through a callable: a remote model, another framework, a plain function.

    The callable gets a list of ``(kept token ids, kept positions)`` and the target's id, and gives
    back, for each, the target's log-probability and the id of the most likely next token. That is
    enough for greedy and exhaustive search. It is called with at most ``batch_size`` subsets.
    """

    def __init__(self, predict: Predict, *, batch_size: int = 64) -> None:
        if batch_size < 1:
            raise RationalesError(f"batch_size must be at least 1, not {batch_size}")
        self._predict = predict
        self._batch_size = batch_size

    def score(self, queries: Sequence[Query]) -> list[Score]:
        """One score for each query; queries with the same target share calls."""
        by_target: dict[int, list[int]] = {}
        for place, (context, _) in enumerate(queries):
            by_target.setdefault(context.target_id, []).append(place)
        scores: dict[int, Score] = {}
        for target_id, places in by_target.items():
            for start in range(0, len(places), self._batch_size):
                batch = places[start : start + self._batch_size]
                answers = self._ask([queries[place] for place in batch], target_id)
                scores.update(zip(batch, answers, strict=True))
        return [scores[place] for place in range(len(queries))]

    def _ask(self, queries: Sequence[Query], target_id: int) -> list[Score]:
        subsets = [([context.ids[i] for i in kept], list(kept)) for context, kept in queries]
        answers = self._predict(subsets, target_id)
        if len(answers) != len(subsets):
            raise RationalesError(
                f"the black box was asked for {len(subsets)} subsets and answered {len(answers)}: "
                "it must return one (log-probability, argmax) for each"
            )
        scores = [Score(float(logprob), int(prediction)) for logprob, prediction in answers]
        if any(score.target_logprob != score.target_logprob for score in scores):
            raise RationalesError("the black box answered NaN for a log-probability")
        return scores
