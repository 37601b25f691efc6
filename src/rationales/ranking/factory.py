"""Names of the ranking methods, and the ranker that each stands for."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rationales.errors import MissingExtraError, RationalesError
from rationales.ranking.controls import NearestFirst, RandomOrder
from rationales.ranking.protocol import Ranker

RANKERS = (
    "gradient-norm",
    "gradient-x-embedding",
    "integrated-gradients",
    "attention-rollout",
    "last-attention",
    "all-attention",
    "random",
    "nearest-first",
)
"""The names that ``make_ranker`` knows: the paper's baselines in its order, then two controls."""

BLACK_BOX_RANKERS = ("random", "nearest-first")
"""The rankers that need no model."""

SIGNED_RANKERS = ("gradient-x-embedding", "integrated-gradients")
"""The rankers whose importances have a sign, so that their absolute value is another order."""

GRADIENT_RANKERS = ("gradient-norm", *SIGNED_RANKERS)
"""The rankers that need Captum."""

IG_STEPS, TRANSLATION_IG_STEPS = 100, 50
"""Points of the path integral if nobody says: for a language model, and for a translation."""


@dataclass(frozen=True)
class RankingOptions:
    """What can be set about a ranking method; each method reads the options that concern it."""

    absolute: bool = False
    """Rank by the absolute value of a signed importance."""
    seed: int = 0
    """Of the random order."""
    ig_steps: int | None = None
    """Points of the path integral of integrated gradients; None: those of the model's kind."""
    batch_tokens: int = 4096
    """Tokens in one forward pass of integrated gradients: bounds its memory, not its result."""

    def __post_init__(self) -> None:
        for name in ("ig_steps", "batch_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RationalesError(f"{name} must be at least 1, not {value}")


def make_ranker(
    name: str, model: Any | None = None, options: RankingOptions | None = None
) -> Ranker:
    """The ranker of this name over a Hugging Face model, or over none (a black box).

    The model is a causal language model or an encoder–decoder.
    """
    options = options or RankingOptions()
    if name not in RANKERS:
        raise RationalesError(f"unknown ranking method {name!r}; choose from {', '.join(RANKERS)}")
    if options.absolute and name not in SIGNED_RANKERS:
        raise RationalesError(
            f"{name} has no sign to take the absolute value of; "
            f"absolute goes with {' and '.join(SIGNED_RANKERS)}"
        )
    if name == "random":
        return RandomOrder(options.seed)
    if name == "nearest-first":
        return NearestFirst()
    if model is None:
        raise RationalesError(
            f"{name} looks inside the model; "
            f"a black box has greedy, exhaustive, beam, soft, {', '.join(BLACK_BOX_RANKERS)}"
        )
    if name == "attention-rollout" and getattr(model.config, "is_encoder_decoder", False):
        raise RationalesError(
            f"attention-rollout follows one stack of layers, and {type(model).__name__} is an "
            "encoder–decoder; use last-attention or all-attention"
        )
    return _looking_inside(name, model, options)


def check_installed(name: str) -> None:
    """Raise if the method of this name needs an extra that is not installed."""
    if name in GRADIENT_RANKERS and importlib.util.find_spec("captum") is None:
        raise MissingExtraError(f"the method {name}", "baselines")


def _looking_inside(name: str, model: Any, options: RankingOptions) -> Ranker:
    """The ranker of this name that reads gradients or attention."""
    # Imported here: these load torch, which naming a method (``--help``) must not.
    from rationales.ranking import attention, gradients

    translates = getattr(model.config, "is_encoder_decoder", False)
    steps = options.ig_steps or (TRANSLATION_IG_STEPS if translates else IG_STEPS)
    if translates and name in ("last-attention", "all-attention"):
        from rationales.ranking.seq2seq import SidesAttention

        return SidesAttention(model, all_layers=name == "all-attention")
    makers: dict[str, Callable[[], Ranker]] = {
        "gradient-norm": lambda: gradients.GradientNorm(model),
        "gradient-x-embedding": lambda: gradients.GradientTimesEmbedding(model, options.absolute),
        "integrated-gradients": lambda: gradients.IntegratedGradients(
            model, options.absolute, steps, options.batch_tokens
        ),
        "attention-rollout": lambda: attention.AttentionRollout(model),
        "last-attention": lambda: attention.LastAttention(model),
        "all-attention": lambda: attention.AllAttention(model),
    }
    ranker = makers[name]()
    if not translates:
        return ranker
    from rationales.ranking.seq2seq import SidesGradients, integral

    return SidesGradients(
        ranker,
        model,
        path=integral(steps) if name == "integrated-gradients" else ((1.0, 1.0),),
        norm=name == "gradient-norm",
        absolute=options.absolute,
        batch_tokens=options.batch_tokens,
    )
