"""An importance per context token, the order that follows from it, and two orders without a model.

A baseline adds the candidates by falling importance until the subset is sufficient. Baselines
differ in their importances only. ``random`` and ``nearest-first`` are controls: they ignore the
model, and any other order has to beat them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rationales.context import Context, Subset
from rationales.errors import RationalesError
from rationales.ties import ranked


class Ranker(Protocol):
    """Anything that says how important each token of a context is for its target."""

    def rank(self, contexts: Sequence[Context]) -> list[list[float]]:
        """One importance per index of each context: the higher, the earlier a token is added.

        Importances are signed where the method has a sign. Required and pinned indices have values
        too; they are kept anyway, so a search ignores them. Each context is ranked as if it were
        given alone; contexts that extend each other cost less when they follow each other.
        """
        ...


@dataclass(frozen=True)
class RandomOrder:
    """A random order that repeats: it depends on the seed and the context only."""

    seed: int = 0

    def rank(self, contexts: Sequence[Context]) -> list[list[float]]:
        """Uniform numbers in [0, 1), drawn from the seed, the token ids and the target."""
        # A text seed is hashed with SHA-512: the numbers repeat across processes and Python
        # versions, and do not depend on which other contexts were ranked before.
        generators = [random.Random(f"{self.seed} {c.ids} {c.target_id}") for c in contexts]
        return [
            [generator.random() for _ in context.ids]
            for context, generator in zip(contexts, generators, strict=True)
        ]


@dataclass(frozen=True)
class NearestFirst:
    """The tokens from the target backwards."""

    def rank(self, contexts: Sequence[Context]) -> list[list[float]]:
        """The index of each token: the nearer to the target, the higher."""
        return [[float(index) for index in range(len(context.ids))] for context in contexts]


def order(
    context: Context, importances: Sequence[float], absolute: bool = False
) -> tuple[Subset, ...]:
    """The choices of the context by falling importance; ties go to the lowest index.

    With ``absolute``, the size of an importance counts and its sign does not. A word or a sentence
    is as important as the most important of its tokens.
    """
    if len(importances) != len(context.ids):
        raise RationalesError(
            f"{len(importances)} importances for a context of {len(context.ids)} tokens: "
            "a ranker gives one per context index"
        )
    for index in context.candidates:
        if math.isnan(importances[index]):
            raise RationalesError(
                f"the importance of the token at index {index} is not a number; "
                "if the model is in half precision, load it in float32"
            )
    if absolute:
        importances = [abs(importance) for importance in importances]
    values = [max(importances[i] for i in unit) for unit in context.choices]
    # Importances have no unit: they are equal where they differ by less than rounding does.
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    places = ranked(values, tie=1e-6 * largest)
    return tuple(context.choices[place] for place in places)
