"""Answers of several tokens: one question about the whole is one about each of its tokens.

For an answer a₀ … aₘ₋₁ and a kept subset S of what comes before it

    log p(a | S) = Σⱼ log p(aⱼ | S, a₀ … aⱼ₋₁)

and S is sufficient if every aⱼ is the model's first choice. The tokens of the answer before aⱼ are
always kept: they are what the model has said so far, not a part of the context.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from rationales.context import Context
from rationales.errors import RationalesError
from rationales.scoring.protocol import Query, Score, SubsetScorer, fresh

_DELEGATED = ("max_positions", "batch_tokens", "evaluation", "model", "tokens")

_NOT_FIRST = sys.maxsize
"""The rank of an answer of which no more is known than that it is not the first choice."""


class SpanScorer:
    """Scores answers of several tokens with a scorer of single ones.

    Contexts without a ``span`` are passed on as they are. What ``base`` has to tell of itself
    (``max_positions``, ``batch_tokens``, ``evaluation``, ``model``, ``tokens``) is told here too.
    """

    def __init__(self, base: SubsetScorer) -> None:
        self.base = base

    def __getattr__(self, name: str) -> Any:
        if name in _DELEGATED:
            return getattr(self.base, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def fresh(self) -> SpanScorer:
        """This scorer for one run."""
        return SpanScorer(fresh(self.base))

    def score(self, queries: Sequence[Query]) -> list[Score]:
        """One score for each query, in order; all its tokens are asked for in one call."""
        prefixed: dict[int, list[Context]] = {}  # many queries share a context: made once for each
        for context, _ in queries:
            if context.span_ids and id(context) not in prefixed:
                prefixed[id(context)] = _prefixed(context)
        questions: list[Query] = []
        for context, kept in queries:
            before = len(context.ids)
            for said, longer in enumerate(prefixed.get(id(context), [context])):
                questions.append((longer, (*kept, *range(before, before + said))))
        answers = iter(self.base.score(questions))
        return [_merge(context, answers) for context, _ in queries]


def _prefixed(context: Context) -> list[Context]:
    """The contexts of the answer's tokens: each holds what was said before, as pinned tokens."""
    if context.extra_ids:
        raise RationalesError(
            "an alternative is compared with a single token: leave out the span or the alternative"
        )
    answer = (context.target_id, *context.span_ids)
    end = len(context.ids)
    return [
        replace(
            context,
            ids=(*context.ids, *answer[:said]),
            target_id=target_id,
            pinned=(*context.pinned, *range(end, end + said)),
            span_ids=(),
        )
        for said, target_id in enumerate(answer)
    ]


def _merge(context: Context, answers: Iterator[Score]) -> Score:
    """The score of the whole answer, from the next ones: as many as it has tokens.

    The prediction is the target if all of the answer is predicted, else the first that is not the
    answer's token. That one may by chance be the target's id, in a later place ("New New" for "New
    York"): the rank, which is 1 if and only if all is predicted, tells the two apart. A scorer
    without ranks is given one in this case alone.
    """
    if not context.span_ids:
        return next(answers)
    answer = (context.target_id, *context.span_ids)
    scores = [next(answers) for _ in answer]
    predictions = [score.prediction_id for score in scores]
    wrong = [p for p, target_id in zip(predictions, answer, strict=True) if p != target_id]
    ranks = [score.rank for score in scores if score.rank is not None]
    logprobs = [s.prediction_logprob for s in scores if s.prediction_logprob is not None]
    rank = max(ranks) if len(ranks) == len(scores) else None
    if wrong and rank is not None:
        rank = max(2, rank)
    elif wrong and wrong[0] == context.target_id:
        rank = _NOT_FIRST
    return Score(
        target_logprob=sum(score.target_logprob for score in scores),
        prediction_id=wrong[0] if wrong else context.target_id,
        prediction_logprob=sum(logprobs) if not wrong and len(logprobs) == len(scores) else None,
        rank=rank,
    )
