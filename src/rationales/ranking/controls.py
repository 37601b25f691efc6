"""Orders that ignore the model: any other order has to beat them.

``random`` adds tokens in a random order, ``nearest-first`` from the target backwards.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from rationales.context import Context


@dataclass(frozen=True)
class RandomOrder:
    """A random order that repeats: it depends on the seed and the context only."""

    seed: int = 0

    def rank(self, contexts: Sequence[Context]) -> list[list[float]]:
        """Uniform numbers in [0, 1), drawn from the seed, the token ids and the target."""
        return [self._rank(context) for context in contexts]

    def _rank(self, context: Context) -> list[float]:
        # A text seed is hashed with SHA-512: the numbers repeat across processes and Python
        # versions, and do not depend on which other contexts were ranked before.
        generator = random.Random(f"{self.seed} {context.ids} {context.target_id}")
        return [generator.random() for _ in context.ids]


@dataclass(frozen=True)
class NearestFirst:
    """The tokens from the target backwards."""

    def rank(self, contexts: Sequence[Context]) -> list[list[float]]:
        """The index of each token: the nearer to the target, the higher."""
        return [[float(index) for index in range(len(context.ids))] for context in contexts]
