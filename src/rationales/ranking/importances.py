"""An importance per context token, and the order that follows from it.

A baseline adds the candidates by falling importance until the subset is sufficient. Baselines
differ in their importances only. ``random`` and ``nearest-first`` are controls: they ignore the
model, and any other order has to beat them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rationales.context import Context, Subset
from rationales.errors import RationalesError
from rationales.methods import CONTROLS, METHODS, SEARCHES
from rationales.ties import ranked

IG_STEPS, TRANSLATION_IG_STEPS = 100, 50
"""Default points of the path integral: for a language model, and for a translation."""

_REMEMBERED = 4096
"""Attributions that are kept at most; then the oldest ones go."""


def attribute(
    contexts: Sequence[Context],
    method: str,
    model: Any | None = None,
    seed: int = 0,
    ig_steps: int | None = None,
    batch_tokens: int | None = None,
) -> list[list[float]]:
    """One importance per index of each context: the higher, the earlier a token is added.

    Importances are signed where the method has a sign. Required and pinned indices have values too;
    they are kept anyway, so a search ignores them. Each context is attributed as if it were given
    alone; contexts that extend each other cost less when they follow each other.

    ``batch_tokens`` is how many tokens a forward pass of integrated gradients has at most, if one
    context fits: it bounds the memory and does not change the result.
    """
    if method == "random":
        return [_random(context, seed) for context in contexts]
    if method == "nearest-first":
        return [[float(index) for index in range(len(context.ids))] for context in contexts]
    if model is None:
        raise RationalesError(
            f"{method} looks inside the model; a black box has {', '.join((*SEARCHES, *CONTROLS))}"
        )
    translates = getattr(model.config, "is_encoder_decoder", False)
    if METHODS[method].causal_only and translates:
        raise RationalesError(
            f"{method} follows one stack of layers, and {type(model).__name__} is an "
            "encoder–decoder; use last-attention or all-attention"
        )
    # Imported here: these load torch, and naming a method (``--help``) must not.
    from rationales.ranking.attention import attention_importances
    from rationales.ranking.gradients import gradient_importances
    from rationales.ranking.inside import rank_in_runs
    from rationales.scoring.logits import DEFAULT_BATCH_TOKENS

    if METHODS[method].kind == "attention":
        return rank_in_runs(model, contexts, partial(attention_importances, model, method))
    steps = ig_steps or (TRANSLATION_IG_STEPS if translates else IG_STEPS)
    budget = batch_tokens or DEFAULT_BATCH_TOKENS
    by_gradients = partial(gradient_importances, model, method, steps, budget)
    return rank_in_runs(model, contexts, by_gradients)


def _random(context: Context, seed: int) -> list[float]:
    """Uniform numbers in [0, 1), which depend on the seed, the token ids and the target only."""
    # A text seed is hashed with SHA-512: the numbers repeat across processes and Python versions.
    generator = random.Random(f"{seed} {context.ids} {context.target_id}")
    return [generator.random() for _ in context.ids]


class Importances:
    """The importances of contexts under one model, kept for one run: each attribution is made once.

    Signed and absolute orders, and searches to several sizes, follow from the same attribution.
    Contexts that extend each other (the targets of one text) are attributed together.
    """

    def __init__(self, model: Any | None, batch_tokens: int | None) -> None:
        self._model = model
        self._batch_tokens = batch_tokens
        self._known: dict[tuple[Any, ...], list[float]] = {}

    def of(
        self,
        context: Context,
        method: str,
        seed: int,
        ig_steps: int | None,
        together: Sequence[Context],
    ) -> list[float]:
        """One importance per index; ``together`` are the context and those that come next."""

        def key(context: Context) -> tuple[Any, ...]:
            # Importances do not depend on what a search may add, or has already.
            bare = replace(context, required=(), units=None, levels=(), level_names=())
            return method, seed, ig_steps, bare

        if key(context) not in self._known:
            new = [each for each in together if key(each) not in self._known]
            found = attribute(new, method, self._model, seed, ig_steps, self._batch_tokens)
            self._known.update(zip(map(key, new), found, strict=True))
        importances = self._known[key(context)]
        while len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]
        return importances


def order(
    context: Context, importances: Sequence[float], absolute: bool = False
) -> tuple[Subset, ...]:
    """The choices of the context by falling importance; ties go to the lowest index.

    With ``absolute``, the size of an importance counts and its sign does not. A word or a sentence
    is as important as the most important of its tokens.
    """
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
