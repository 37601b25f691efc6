"""Answers of several tokens: a query about the whole is one about each of its tokens.

For an answer a₀ … aₘ₋₁ and a kept subset S of what comes before it

    log p(a | S) = Σⱼ log p(aⱼ | S, a₀ … aⱼ₋₁)

and S is sufficient if every aⱼ is the model's most likely token. The tokens of the answer before aⱼ
are always kept: they are what the model has said so far, not a part of the context.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rationales.context import Context
from rationales.errors import RationalesError
from rationales.scoring.protocol import Query, Score

_NOT_FIRST = sys.maxsize
"""The rank of an answer of which only this is known: it is not the most likely one."""


def single_tokens(queries: Sequence[Query]) -> list[Query]:
    """A query for each token of each answer; queries without ``span_ids`` as they are."""
    prefixed: dict[int, list[Context]] = {}  # many queries share a context: made once for each
    single: list[Query] = []
    for context, kept in queries:
        if id(context) not in prefixed:
            prefixed[id(context)] = _prefixed(context)
        before = len(context.ids)
        for said, longer in enumerate(prefixed[id(context)]):
            single.append((longer, (*kept, *range(before, before + said))))
    return single


def merged(queries: Sequence[Query], scores: Sequence[Score]) -> list[Score]:
    """One score for each query, from those of its single tokens."""
    left = iter(scores)
    return [_merge(context, left) for context, _ in queries]


def merged_known(queries: Sequence[Query], scores: Sequence[Score | None]) -> list[Score | None]:
    """As ``merged``, where some scores are missing; None for a query that misses one."""
    left = iter(scores)
    found: list[Score | None] = []
    for query in queries:
        own = [next(left, None) for _ in range(1 + len(query[0].span_ids))]
        known = [score for score in own if score is not None]
        found += merged([query], known) if len(known) == len(own) else [None]
    return found


def _prefixed(context: Context) -> list[Context]:
    """The contexts of the answer's tokens: each holds what was said before, as pinned tokens."""
    if not context.span_ids:
        return [context]
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


def _merge(context: Context, left: Iterator[Score]) -> Score:
    """The score of the whole answer, from the next ones: as many as it has tokens.

    The prediction is the target if all of the answer is predicted, else the first that is not the
    answer's token. That one may by chance be the target's id, in a later place ("New New" for "New
    York"): the rank, which is 1 if and only if all is predicted, tells the two apart. A scorer
    without ranks is given one in this case only.
    """
    if not context.span_ids:
        return next(left)
    answer = (context.target_id, *context.span_ids)
    scores = [next(left) for _ in answer]
    predictions = [score.prediction_id for score in scores]
    wrong = [p for p, target_id in zip(predictions, answer, strict=True) if p != target_id]
    ranks = [score.rank for score in scores if score.rank is not None]
    logprobs = [s.prediction_logprob for s in scores if s.prediction_logprob is not None]
    margins = [score.margin for score in scores if score.margin is not None]
    rank = max(ranks) if len(ranks) == len(scores) else None
    if rank is not None:
        rank = max(2, rank) if wrong else 1
    elif wrong and wrong[0] == context.target_id:
        rank = _NOT_FIRST
    return Score(
        target_logprob=sum(score.target_logprob for score in scores),
        prediction_id=wrong[0] if wrong else context.target_id,
        prediction_logprob=sum(logprobs) if not wrong and len(logprobs) == len(scores) else None,
        rank=rank,
        margin=min(margins) if len(margins) == len(scores) else None,
        known=all(score.known for score in scores),
    )
