"""A model with a compatibility adapter: the model for full contexts, the adapter for parts of them.

A compatibility adapter teaches a model to predict from contexts with gaps. The full context is
still scored by the original model, so what is explained is the original model's prediction.
"""

from __future__ import annotations

from collections.abc import Sequence

from rationales.context import Context
from rationales.scoring.causal import CausalScorer
from rationales.scoring.protocol import PASS_TOKENS, Evaluation, Query, Score


class AdaptedScorer:
    """Scores full contexts with ``base`` and proper subsets with ``adapted``."""

    pass_tokens = PASS_TOKENS
    can_delete = True

    def __init__(self, base: CausalScorer, adapted: CausalScorer) -> None:
        self.base = base
        self.adapted = adapted

    @property
    def max_positions(self) -> int | None:
        return self.base.max_positions

    @property
    def batch_tokens(self) -> int:
        return self.adapted.batch_tokens

    @property
    def tokens(self) -> int:
        return self.base.tokens + self.adapted.tokens

    def evaluation(self, context: Context) -> Evaluation:
        return self.adapted.evaluation(context)

    def fresh(self) -> AdaptedScorer:
        return AdaptedScorer(self.base.fresh(), self.adapted.fresh())

    def attention(self, context: Context) -> list[float] | None:
        return self.base.attention(context)

    def score(self, queries: Sequence[Query]) -> list[Score]:
        """One score for each query, in order."""
        full = [len(kept) == len(context.ids) for context, kept in queries]
        scores = {
            which: iter(
                scorer.score([q for q, own in zip(queries, full, strict=True) if own == which])
            )
            for which, scorer in ((True, self.base), (False, self.adapted))
        }
        return [next(scores[which]) for which in full]
