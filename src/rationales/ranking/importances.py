"""The importances that a run of baselines shares: each attribution is made once.

Signed and absolute orders, and searches to several sizes, follow from the same attribution.
Contexts that extend each other (the targets of one text) are attributed together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rationales.context import Context
from rationales.ranking.factory import make_ranker
from rationales.ranking.protocol import Ranker

_REMEMBERED = 4096
"""Attributions that are kept at most; then the oldest ones go."""


class Importances:
    """The importances of contexts under one model, kept for one run."""

    def __init__(self, model: Any | None, batch_tokens: int | None = None) -> None:
        self._model = model
        self._bound = {} if batch_tokens is None else {"batch_tokens": batch_tokens}
        self._rankers: dict[tuple[Any, ...], Ranker] = {}
        self._known: dict[tuple[Any, ...], list[float]] = {}

    def of(
        self,
        context: Context,
        method: str,
        seed: int,
        ig_steps: int | None,
        together: Sequence[Context] = (),
    ) -> list[float]:
        """One importance per index; ``together`` are contexts that will be asked for next."""
        settings = (method, seed, ig_steps)
        if (settings, _bare(context)) not in self._known:
            if settings not in self._rankers:
                self._rankers[settings] = make_ranker(
                    method, self._model, seed=seed, ig_steps=ig_steps, **self._bound
                )
            new = [c for c in together or [context] if (settings, _bare(c)) not in self._known]
            for each, found in zip(new, self._rankers[settings].rank(new), strict=True):
                self._known[settings, _bare(each)] = found
        importances = self._known[settings, _bare(context)]
        while len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]
        return importances


def _bare(context: Context) -> Context:
    """What importances depend on: not on what a search may add, or has already."""
    return replace(context, required=(), units=None, levels=())
