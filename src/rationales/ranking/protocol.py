"""An importance per context token, and the order that follows from it.

A baseline adds the candidates by falling importance until the subset is sufficient. Everything
that tells one baseline from another is in the importances.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from rationales.context import Context, Subset
from rationales.errors import RationalesError
from rationales.ties import ranked


class Ranker(Protocol):
    """Anything that says how important each token of a context is for its target."""

    def rank(self, context: Context) -> list[float]:
        """One importance per context index: the higher, the earlier the token is added.

        Required and pinned indices have values too; they are kept anyway, so a search ignores them.
        """
        ...


@runtime_checkable
class TogetherRanker(Ranker, Protocol):
    """A ranker that is faster when it is given all the targets of a text at once."""

    def rank_all(self, contexts: Sequence[Context]) -> list[list[float]]:
        """The importances of each context, as ``rank`` gives them one by one."""
        ...


def order(context: Context, importances: Sequence[float]) -> tuple[Subset, ...]:
    """The choices of the context by falling importance; ties go to the lowest index.

    A word or a sentence is as important as the most important of its tokens.
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
    values = [max(importances[i] for i in unit) for unit in context.choices]
    # Importances have no unit: they are equal where they differ by less than rounding does.
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    places = ranked(values, tie=1e-6 * largest)
    return tuple(context.choices[place] for place in places)
