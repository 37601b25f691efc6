"""The one seam between searches and models: the log-probability of a target given a kept subset.

A scorer answers a batch of questions. Its contract:

- kept tokens keep their *original positions*;
- an answer does not depend on what else is in the batch, or on how the batch was cut;
- the full subset reproduces the model's ordinary forward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rationales.context import Context

Query = tuple[Context, tuple[int, ...]]
"""A context, and the indices that the model sees of it: pinned ones included, in text order."""


@dataclass(frozen=True)
class Score:
    """The target's log-probability and the model's own most likely next token.

    These two are all that greedy and exhaustive search need. The others are there where the model
    can tell them: ``rank`` is 1 if the target is the most likely token (for an answer of several
    tokens: the worst of their ranks), ``asked`` are the log-probabilities of ``Context.asked``.
    """

    target_logprob: float
    prediction_id: int
    prediction_logprob: float | None = None
    rank: int | None = None
    asked: tuple[float, ...] = ()


class SubsetScorer(Protocol):
    """Anything that predicts the target from a kept subset of its context."""

    def score(self, queries: Sequence[Query]) -> list[Score]:
        """One score for each query, in order."""
        ...
