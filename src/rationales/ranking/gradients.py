"""Importance from the gradient of the target's log-probability.

With f(x) = log p(target | full context) as a function of the input embeddings x₁ … x_t:

- ``gradient-norm``          ‖∂f/∂xᵢ‖₂ (Li et al., 2016)
- ``gradient-x-embedding``   xᵢ · ∂f/∂xᵢ (Denil et al., 2014)
- ``integrated-gradients``   xᵢ · ∫₀¹ ∂f(αx)/∂xᵢ dα (Sundararajan et al., 2017)

Position embeddings are added inside the model, so they are no part of x: the path of integrated
gradients starts at tokens without a meaning, each in its place. Where a model normalises its token
embeddings first (BLOOM), x are the normalised ones. The attributions are Captum's.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from rationales.context import Context
from rationales.errors import MissingExtraError, RationalesError
from rationales.ranking.inside import accepts, as_list, forward_arguments, frozen, input_ids

LogProbability = Callable[[torch.Tensor], torch.Tensor]
"""Embeddings (rows, length, dimensions) → the target's log-probability in each row."""


@dataclass(frozen=True)
class GradientNorm:
    """The length of the gradient at each token."""

    model: Any

    def __post_init__(self) -> None:
        _captum("gradient-norm")

    def rank(self, context: Context) -> list[float]:
        """The l2 norm of the gradient with respect to each token's embedding."""
        saliency = _captum("gradient-norm").Saliency
        gradient = _attribute(
            self.model, context, lambda f, x: saliency(f).attribute(x.requires_grad_(), abs=False)
        )
        return as_list(gradient.norm(dim=-1))


@dataclass(frozen=True)
class GradientTimesEmbedding:
    """The first-order effect of a token's embedding; tokens that speak against rank last."""

    model: Any
    absolute: bool = False

    def __post_init__(self) -> None:
        _captum("gradient-x-embedding")

    def rank(self, context: Context) -> list[float]:
        """The sum over dimensions of gradient times embedding, or its absolute value."""
        product = _captum("gradient-x-embedding").InputXGradient
        attribution = _attribute(
            self.model, context, lambda f, x: product(f).attribute(x.requires_grad_())
        )
        return as_list(_per_token(attribution, self.absolute))


@dataclass(frozen=True)
class IntegratedGradients:
    """The effect of a token's embedding, summed along the way from zero embeddings.

    The importances sum to f(x) − f(0), as far as ``steps`` points approximate the integral. Where
    positions are rotary or a bias, nothing but x is in the first layer's normalisation: f is steep
    near zero, and the sum needs more steps than with learned position embeddings.
    """

    model: Any
    absolute: bool = False
    steps: int = 100
    batch_tokens: int = 4096

    def __post_init__(self) -> None:
        _captum("integrated-gradients")

    def rank(self, context: Context) -> list[float]:
        """The sum over dimensions of the integrated gradient, or its absolute value."""
        integrated = _captum("integrated-gradients").IntegratedGradients
        rows = max(1, self.batch_tokens // max(1, len(context.ids)))
        attribution = _attribute(
            self.model,
            context,
            lambda f, x: integrated(f).attribute(
                x, baselines=torch.zeros_like(x), n_steps=self.steps, internal_batch_size=rows
            ),
        )
        return as_list(_per_token(attribution, self.absolute))


def _attribute(
    model: Any, context: Context, method: Callable[[LogProbability, torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """The method's attribution to each token and dimension: (length, dimensions), on the CPU."""
    if getattr(model.config, "is_encoder_decoder", False):
        from rationales.ranking import seq2seq

        return seq2seq.attribute(model, context, method)
    if not accepts(model, "inputs_embeds"):
        raise RationalesError(
            f"{type(model).__name__} takes no inputs_embeds, which the gradient methods need; "
            "use attention-rollout, last-attention or all-attention"
        )
    with ExitStack() as stack:
        # The caller may have switched gradients off around everything.
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(frozen(model))
        embedded = model.get_input_embeddings()(input_ids(model, context.ids))
        normalise = getattr(model.base_model, "word_embeddings_layernorm", None)
        if normalise is not None:
            # The length of an embedding is lost in this layer: f(αx) = f(x) for every α > 0, so
            # the gradient along x is zero and its order would be that of rounding errors. The
            # embeddings are normalised once, here; the layer then hands them on as they are.
            embedded = normalise(embedded)
            stack.enter_context(
                normalise.register_forward_hook(lambda module, inputs, output: inputs[0])
            )
        attribution = method(_log_probability(model, context), embedded.detach())
    # In double precision from here: what half precision has left should not be rounded again.
    return attribution[0].detach().cpu().double()


def _log_probability(model: Any, context: Context) -> LogProbability:
    """The target's log-probability as a function of the embeddings of its full context."""

    def log_probability(embedded: torch.Tensor) -> torch.Tensor:
        rows, length, _ = embedded.shape
        arguments = forward_arguments(model, rows, length)
        logits: torch.Tensor = model(inputs_embeds=embedded, **arguments).logits[:, -1]
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return logits.log_softmax(dim=-1)[:, context.target_id]

    return log_probability


def _per_token(attribution: torch.Tensor, absolute: bool) -> torch.Tensor:
    """The sum over dimensions; its sign dropped if only the size of the effect counts."""
    signed = attribution.sum(dim=-1)
    return signed.abs() if absolute else signed


def _captum(method: str) -> Any:
    """Captum's attribution methods; a clear error where the extra is not installed."""
    try:
        import captum.attr
    except ImportError as error:
        raise MissingExtraError(f"the method {method}", "baselines") from error
    return captum.attr
