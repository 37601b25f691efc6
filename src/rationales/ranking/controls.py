"""Orders that know nothing of the model: what any other order has to beat.

``random`` adds tokens in a random order, ``nearest-first`` from the target backwards.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from rationales.context import Context


@dataclass(frozen=True)
class RandomOrder:
    """A random order that repeats: it depends on the seed and the context, and nothing else."""

    seed: int = 0

    def rank(self, context: Context) -> list[float]:
        """Uniform numbers in [0, 1), drawn afresh from the seed, the token ids and the target."""
        # A text seed is hashed with SHA-512: the numbers repeat across processes and Python
        # versions, and do not depend on which other contexts were ranked before.
        generator = random.Random(f"{self.seed} {context.ids} {context.target_id}")
        return [generator.random() for _ in context.ids]


@dataclass(frozen=True)
class NearestFirst:
    """The tokens from the target backwards."""

    def rank(self, context: Context) -> list[float]:
        """The index of each token: the nearer to the target, the higher."""
        return [float(index) for index in range(len(context.ids))]
