"""Importance from the attention weights that the last position gives to each token.

With A_l the weights of layer l averaged over its heads, of shape (t, t):

- ``last-attention``      the last row of A_L
- ``all-attention``       the last row of the mean of A_1 … A_L
- ``attention-rollout``   the last row of Ā_L ⋯ Ā_2 Ā_1, where Ā_l = ½ A_l + ½ I with its rows
  renormalised to 1 (Abnar and Zuidema, 2020)

In an encoder–decoder, cross-attention weighs the source and self-attention the target prefix; each
sums to 1 over all tokens of its side. The ends and starts of a text attract weight whatever they
say. They are pinned and in no order, so each side is normalised to 1 over its tokens that are not
pinned, and the two sides are merged into one order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from rationales.context import Context
from rationales.errors import RationalesError
from rationales.ranking.inside import frozen, inputs, is_encoder_decoder, places
from rationales.scoring.hooks import eager_attention, logits_of


@torch.no_grad()
def attention_importances(model: Any, method: str, run: Sequence[Context]) -> torch.Tensor:
    """The attention weight of each token."""
    at = places(run)
    with frozen(model), eager_attention(model), logits_of(model, lambda states: states[:, -1:]):
        output = model(**inputs(model, run[-1]), output_attentions=True)
    if not is_encoder_decoder(model):
        return _rows(model, method, output.attentions, at)
    sides = [
        _rows(model, method, weights, at)
        for weights in (output.cross_attentions, output.decoder_attentions)
    ]
    for rows, start in zip(sides, (0, run[-1].source), strict=True):
        for row, context in zip(rows, run, strict=True):
            row[[i - start for i in context.pinned if 0 <= i - start < len(row)]] = 0
        rows /= rows.sum(dim=1, keepdim=True).clamp_min(1e-300)  # all pinned: all zero
    return torch.cat(sides, dim=1)


def _rows(model: Any, method: str, weights: Sequence[torch.Tensor], at: list[int]) -> torch.Tensor:
    """What the positions ``at`` give to each token: (positions, tokens), on the CPU."""
    if not weights or any(layer is None for layer in weights):
        raise RationalesError(
            f"{type(model).__name__} returns no attention weights; "
            "use gradient-norm, gradient-x-embedding or integrated-gradients"
        )
    layers = [layer[0].float().mean(dim=0).cpu().double() for layer in weights]
    if method == "last-attention":
        return layers[-1][at]
    if method == "all-attention":
        return torch.stack([layer[at] for layer in layers]).mean(dim=0)
    identity = torch.eye(len(layers[0]), dtype=torch.float64)
    # Only some rows of the product are wanted, and a row times a matrix costs t² where the
    # product of two matrices costs t³: so rows are carried from the last layer to the first.
    rows = identity[at]
    for layer in reversed(layers):
        mixed = (layer + identity) / 2
        rows = rows @ (mixed / mixed.sum(dim=-1, keepdim=True))
    return rows
