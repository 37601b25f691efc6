"""A model and its compatible twin: the one for whole contexts, the other for parts of them.

A compatibility adapter teaches a model what to make of contexts with holes. The whole context is
still answered by the original model, so what is explained is the original model's prediction.
"""

from __future__ import annotations

from collections.abc import Sequence

from rationales.context import Context
from rationales.scoring.causal import CausalScorer, Evaluation
from rationales.scoring.protocol import Query, Score


class AdaptedScorer:
    """Scores complete contexts with ``base`` and proper subsets with ``adapted``."""

    def __init__(self, base: CausalScorer, adapted: CausalScorer) -> None:
        self.base = base
        self.adapted = adapted

    @property
    def max_positions(self) -> int | None:
        """How many tokens the model has positions for."""
        return self.base.max_positions

    @property
    def batch_tokens(self) -> int:
        """How many tokens a forward pass holds at most."""
        return self.adapted.batch_tokens

    @property
    def tokens(self) -> int:
        """How many tokens the forward passes of both have computed."""
        return self.base.tokens + self.adapted.tokens

    def fresh(self) -> AdaptedScorer:
        """This scorer for one run."""
        return AdaptedScorer(self.base.fresh(), self.adapted.fresh())

    def evaluation(self, context: Context) -> Evaluation:
        """How proper subsets of this context are shown to the model."""
        return self.adapted.evaluation(context)

    def score(self, queries: Sequence[Query]) -> list[Score]:
        """One score for each query, in order."""
        whole = [len(kept) == len(context.ids) for context, kept in queries]
        of_base = iter(
            self.base.score([q for q, is_whole in zip(queries, whole, strict=True) if is_whole])
        )
        of_adapted = iter(
            self.adapted.score(
                [q for q, is_whole in zip(queries, whole, strict=True) if not is_whole]
            )
        )
        return [next(of_base if is_whole else of_adapted) for is_whole in whole]
