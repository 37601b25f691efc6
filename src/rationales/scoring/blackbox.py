"""Any model at all: a callable that predicts a target from token ids and their positions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rationales.errors import RationalesError, given
from rationales.scoring.protocol import Query, Score, closed_up
from rationales.ties import ROUNDING

Predict = Callable[[list[tuple[list[int], list[int]]], int], Sequence[tuple[float, int]]]
"""(list of (kept token ids, kept positions), target id) → list of (log-probability, argmax)."""


class BlackBoxScorer:
    """Scores subsets through a callable: a remote model, another framework, a plain function.

    The callable gets a list of ``(kept token ids, kept positions)`` and the target's id, and gives
    back, for each, the target's log-probability and the id of the most likely next token. That is
    sufficient for greedy and exhaustive search. It is called with at most ``batch_size`` subsets.
    """

    can_delete = True

    def __init__(self, predict: Predict, *, batch_size: int = 64) -> None:
        if not callable(predict):
            raise RationalesError(f"a black box must be a callable, not {given(predict)}")
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:
            raise RationalesError(
                f"batch_size must be a whole number of at least 1, not {given(batch_size)}"
            )
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
        shown = map(closed_up, queries)
        subsets = [([context.ids[i] for i in kept], list(kept)) for context, kept in shown]
        answers: Any = self._predict(subsets, target_id)
        no_list = (
            isinstance(answers, str | bytes | Mapping | set) or getattr(answers, "ndim", 1) == 0
        )
        if no_list or not isinstance(answers, Iterable):
            raise RationalesError(f"the black box answered {given(answers)}: {_EXPECTED}")
        answers = list(answers)
        if len(answers) != len(subsets):
            raise RationalesError(
                f"the black box was asked for {len(subsets)} subsets and answered {len(answers)}: "
                f"{_EXPECTED}"
            )
        return [_score(answer, place) for place, answer in enumerate(answers)]


_EXPECTED = "it must return one (log-probability, argmax) for each subset"


def _score(answer: Any, place: int) -> Score:
    """The score in an answer to the question at this place."""
    try:
        logprob, prediction = answer
    except (TypeError, ValueError) as error:
        raise RationalesError(
            f"the black box answered {given(answer)} for subset {place}: {_EXPECTED}"
        ) from error
    number, id = _number(logprob), _number(prediction)
    if number is None or not number <= ROUNDING:  # which NaN is not, either
        what = "NaN" if number is not None and number != number else given(logprob)
        raise RationalesError(
            f"the black box answered {what} for the log-probability of the target given subset "
            f"{place}: it must be a number of at most 0, or minus infinity"
        )
    if id is None or id < 0 or not id.is_integer():
        raise RationalesError(
            f"the black box answered {given(prediction)} for the most likely next token given "
            f"subset {place}: it must be the id of a token, a whole number"
        )
    return Score(min(number, 0.0), int(id))


def _number(value: Any) -> float | None:
    """The value as a plain number, or None. Scalars of other libraries are numbers, too."""
    if isinstance(value, str | bytes | bool) or getattr(value, "ndim", 0) > 0:
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None
