"""Importance from the gradient of the target's log-probability.

With f(x) = log p(target | full context) as a function of the token embeddings x₁ … x_t:

- ``gradient-norm``          ‖∂f/∂xᵢ‖₂ (Li et al., 2016)
- ``gradient-x-embedding``   xᵢ · ∂f/∂xᵢ (Denil et al., 2014)
- ``integrated-gradients``   xᵢ · ∫₀¹ ∂f(αx)/∂xᵢ dα (Sundararajan et al., 2017)

The integral is a Gauss–Legendre sum. The importances of integrated gradients add up to f(x) − f(0),
as far as the sum approximates the integral. Where positions are rotary or a bias, f is steep near
zero, and this needs more points than with learned position embeddings.

For an encoder–decoder, x are the embeddings of the source, then those of the target prefix.
Position embeddings are added later, so they are no part of x: the path of integrated gradients
starts at tokens without a meaning, each in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from numpy.polynomial.legendre import leggauss

from rationales.context import Context
from rationales.errors import RationalesError
from rationales.ranking.inside import frozen, inputs, is_encoder_decoder, places
from rationales.scoring.hooks import changing, logits_of


@torch.enable_grad()  # the caller may have switched gradients off
@torch.inference_mode(False)
def gradient_importances(
    model: Any, method: str, steps: int, batch_tokens: int, run: Sequence[Context]
) -> torch.Tensor:
    """One number per token: the gradient's norm, or its signed product with the embedding.

    ``steps`` are the points of the integral; a forward pass over several points has at most
    ``batch_tokens`` tokens.
    """
    length = len(run[-1].ids)
    importances = torch.zeros(len(run), length, dtype=torch.float64)
    path = torch.ones(2, 1, dtype=torch.float64)  # scales of the embeddings, the weight of each
    if method == "integrated-gradients":
        nodes, weights = map(torch.from_numpy, leggauss(steps))
        path = torch.stack([(nodes + 1) / 2, weights / 2])  # from [−1, 1] to [0, 1]
    # The logits of many targets need more memory than the layers of a short context.
    rows = max(1, batch_tokens // max(1, length, 8 * len(run)))
    for scales, weights in torch.split(path, rows, dim=1):
        with frozen(model):
            for number, (embedded, gradients) in enumerate(_gradients(model, run, scales)):
                if method == "gradient-norm":
                    effects = gradients.norm(dim=-1)
                else:
                    effects = (embedded * gradients).sum(dim=-1)
                importances[number] += weights @ effects
    return importances


def _gradients(
    model: Any, run: Sequence[Context], scales: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Embeddings and gradients for each target of a run, with a row per scale.

    Both are (rows, length, dimensions), in double precision on the CPU: what half precision has
    left should not be rounded again. All targets share one forward pass.
    """
    at = places(run)
    with (
        _scaled_embeddings(model, scales) as (embedded, scaled),
        logits_of(model, lambda states: states[:, at]) as given,
    ):
        logits = model(**inputs(model, run[-1], len(scales))).logits
    if sum(side.shape[1] for side in scaled) != len(run[-1].ids):
        raise RationalesError(
            f"{type(model).__name__} does not read its tokens from its input embeddings, which the "
            "gradient methods need; use last-attention or all-attention"
        )
    if not given:  # no head to be hooked: all positions have logits
        logits = logits[:, at]
    states = given[0] if given else logits
    logprobs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)
    values = logprobs[:, torch.arange(len(run)), [context.target_id for context in run]]
    # A target's log-probability depends on its own state alone. So one backward pass through the
    # wide head serves all targets, and each needs one of its own through the layers only.
    [upper] = torch.autograd.grad(values.sum(), states, retain_graph=True)
    joined = _joined(embedded)
    for number in range(len(run)):
        gradients = torch.autograd.grad(
            states[:, number], scaled, upper[:, number], retain_graph=number + 1 < len(run)
        )
        yield joined, _joined(gradients)


@contextmanager
def _scaled_embeddings(
    model: Any, scales: torch.Tensor
) -> Iterator[tuple[list[torch.Tensor], list[torch.Tensor]]]:
    """Within it, each row's token embeddings are scaled; the lists get them before and after.

    The source comes first. ``inputs_embeds`` would not do: Marian scales what its decoder is given,
    and not what its encoder is, so that the two sides would have different units.
    """
    embedded: list[torch.Tensor] = []
    scaled: list[torch.Tensor] = []

    def scale(output: torch.Tensor) -> torch.Tensor:
        embedded.append(output.detach())
        scaled.append((embedded[-1] * scales.to(output)[:, None, None]).requires_grad_())
        return scaled[-1]

    with ExitStack() as stack:
        for module in _embeddings(model):
            stack.enter_context(changing(module, scale))
        yield embedded, scaled


def _embeddings(model: Any) -> set[Any]:
    """The modules that give token embeddings; an encoder and a decoder may share one."""
    if is_encoder_decoder(model):
        return {part.get_input_embeddings() for part in (model.get_encoder(), model.get_decoder())}
    # BLOOM normalises its token embeddings first, so that their length is lost: f(αx) = f(x) for
    # α > 0. The gradient along x would be zero, and its order that of rounding errors. So x are
    # the normalised embeddings there.
    normalised = getattr(model.base_model, "word_embeddings_layernorm", None)
    return {model.get_input_embeddings() if normalised is None else normalised}


def _joined(sides: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([side.detach().cpu().double() for side in sides], dim=1)
