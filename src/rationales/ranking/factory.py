"""The ranker that each baseline's name stands for, and the importances that a run shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rationales.context import Context
from rationales.errors import RationalesError
from rationales.methods import BASELINES, CONTROLS, METHODS, SEARCHES
from rationales.ranking.orders import NearestFirst, RandomOrder, Ranker

IG_STEPS, TRANSLATION_IG_STEPS = 100, 50
"""Default points of the path integral: for a language model, and for a translation."""

_REMEMBERED = 4096
"""Attributions that are kept at most; then the oldest ones go."""


def make_ranker(
    method: str,
    model: Any | None = None,
    *,
    seed: int = 0,
    ig_steps: int | None = None,
    batch_tokens: int | None = None,
) -> Ranker:
    """The ranker of this name over a Hugging Face model, or over none (a black box).

    The model is a causal language model or an encoder–decoder. ``seed`` is that of the random
    order, ``ig_steps`` the points of integrated gradients (None: the default for the model's kind).
    ``batch_tokens`` is how many tokens a forward pass of integrated gradients has at most, if one
    context fits: it bounds the memory and does not change the result.
    """
    if method not in BASELINES:
        raise RationalesError(
            f"unknown ranking method {method!r}; choose from {', '.join(BASELINES)}"
        )
    for name, value in (("ig_steps", ig_steps), ("batch_tokens", batch_tokens)):
        if value is not None and value < 1:
            raise RationalesError(f"{name} must be at least 1, not {value}")
    if method == "random":
        return RandomOrder(seed)
    if method == "nearest-first":
        return NearestFirst()
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
    if METHODS[method].kind == "attention":
        from rationales.ranking.attention import Attention

        return Attention(model, method)
    from rationales.ranking.gradients import Gradients
    from rationales.scoring.logits import DEFAULT_BATCH_TOKENS

    steps = ig_steps or (TRANSLATION_IG_STEPS if translates else IG_STEPS)
    return Gradients(model, method, steps, batch_tokens or DEFAULT_BATCH_TOKENS)


class Importances:
    """The importances of contexts under one model, kept for one run: each attribution is made once.

    Signed and absolute orders, and searches to several sizes, follow from the same attribution.
    Contexts that extend each other (the targets of one text) are attributed together.
    """

    def __init__(self, model: Any | None, batch_tokens: int | None = None) -> None:
        self._model = model
        self._batch_tokens = batch_tokens
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

        def key(context: Context) -> tuple[Any, ...]:
            # Importances do not depend on what a search may add, or has already.
            bare = replace(context, required=(), units=None, levels=())
            return method, seed, ig_steps, bare

        if key(context) not in self._known:
            ranker = make_ranker(
                method,
                self._model,
                seed=seed,
                ig_steps=ig_steps,
                batch_tokens=self._batch_tokens,
            )
            new = [each for each in together or [context] if key(each) not in self._known]
            self._known.update(zip(map(key, new), ranker.rank(new), strict=True))
        importances = self._known[key(context)]
        while len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]
        return importances
