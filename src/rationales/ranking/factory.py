"""The ranker that each baseline's name stands for."""

from __future__ import annotations

from typing import Any

from rationales.errors import RationalesError
from rationales.methods import BASELINES, CONTROLS, METHODS, SEARCHES
from rationales.ranking.controls import NearestFirst, RandomOrder
from rationales.ranking.protocol import Ranker

IG_STEPS, TRANSLATION_IG_STEPS = 100, 50
"""Default points of the path integral: for a language model, and for a translation."""


def make_ranker(
    method: str,
    model: Any | None = None,
    *,
    seed: int = 0,
    ig_steps: int | None = None,
    batch_tokens: int = 4096,
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

    steps = ig_steps or (TRANSLATION_IG_STEPS if translates else IG_STEPS)
    return Gradients(model, method, steps, batch_tokens)
