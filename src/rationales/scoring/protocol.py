"""The one seam between searches and models: the log-probability of a target given a kept subset.

A scorer answers a batch of questions. Its contract:

- kept tokens keep their *original positions*, unless the context deletes what is left out;
- an answer does not depend on what else is in the batch, or on how the batch was cut;
- the full subset reproduces the model's ordinary forward pass.

All this is but for rounding: log-probabilities within ``ties.TIE`` of each other are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from rationales.context import Context

Query = tuple[Context, tuple[int, ...]]
"""A context, and the indices that the model sees of it: pinned ones included, in text order."""

Evaluation = Literal["sparse", "masked"]
"""How a model is shown a subset: the kept tokens only, or all tokens under a mask."""


PASS_TOKENS = 64
"""What a forward pass costs before its first token, in tokens: the weights are read, the layers
called. A scorer of which this is true says so in ``pass_tokens``."""


@dataclass(frozen=True)
class Score:
    """The target's log-probability and the model's own most likely next token.

    These two are all that greedy and exhaustive search need. The others are there where the model
    can tell them: ``rank`` is 1 if the target is the most likely token (for an answer of several
    tokens: the worst of their ranks), ``extra_logprobs`` are those of ``Context.extra_ids``,
    ``margin`` is how far the target is ahead of the most likely other token (or behind it).

    Of tokens within ``TIE`` of the most likely one, the target is the prediction if it is among
    them, else the one with the lowest id.
    """

    target_logprob: float
    prediction_id: int
    prediction_logprob: float | None = None
    rank: int | None = None
    extra_logprobs: tuple[float, ...] = ()
    margin: float | None = None
    known: bool = True
    """Whether the log-probabilities are known. A model that answers in text only tells none: 0
    stands for a target that it says, minus infinity for one that it does not say."""


class SubsetScorer(Protocol):
    """Anything that predicts the target from a kept subset of its context."""

    def score(self, queries: Sequence[Query]) -> list[Score]:
        """One score for each query, in order."""
        ...


def can_delete(scorer: SubsetScorer) -> bool:
    """Whether a scorer answers for contexts that delete what is left out."""
    return getattr(scorer, "can_delete", False) is True


def closed_up(query: Query) -> Query:
    """The query, about kept tokens that have moved together if its context deletes the others.

    Of a source of which nothing is kept, one token stays that is not kept: a translation has one.
    """
    context, kept = query
    if not context.deletes or len(kept) == len(context.ids):
        return query
    source = sum(index < context.source for index in kept)
    gone = (0,) if context.source and not source else ()
    closed = Context(
        ids=tuple(context.ids[index] for index in (*gone, *kept)),
        target_id=context.target_id,
        extra_ids=context.extra_ids,
        span_ids=context.span_ids,
        source=source or len(gone),
    )
    return closed, tuple(range(len(gone), len(closed.ids)))


def fresh(scorer: SubsetScorer) -> SubsetScorer:
    """The scorer for one run: what it stores on the way is its own, and ends with the run.

    Between two runs a model may have changed without a trace, so nothing is kept from one to the
    next. A scorer that stores nothing serves as it is.
    """
    begin = getattr(scorer, "fresh", None)
    return scorer if begin is None else begin()
