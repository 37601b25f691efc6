"""Importance from the attention weights that the last position gives to each token.

With A_l the weights of layer l averaged over its heads, of shape (t, t):

- ``last-attention``      the last row of A_L
- ``all-attention``       the last row of the mean of A_1 … A_L
- ``attention-rollout``   the last row of Ā_L ⋯ Ā_2 Ā_1, where Ā_l = ½ A_l + ½ I with its rows
  renormalised to 1 (Abnar and Zuidema, 2020)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from rationales.context import Context
from rationales.errors import RationalesError
from rationales.ranking.inside import (
    as_list,
    eager_attention,
    forward_arguments,
    frozen,
    input_ids,
)


@dataclass(frozen=True)
class LastAttention:
    """The attention of the last layer."""

    model: Any

    def rank(self, context: Context) -> list[float]:
        """The weights of the last position in the last layer, averaged over heads."""
        return as_list(_layers(self.model, context)[-1, -1])


@dataclass(frozen=True)
class AllAttention:
    """The attention of all layers alike."""

    model: Any

    def rank(self, context: Context) -> list[float]:
        """The weights of the last position, averaged over heads and layers."""
        return as_list(_layers(self.model, context)[:, -1].mean(dim=0))


@dataclass(frozen=True)
class AttentionRollout:
    """The attention of all layers, followed from the last position down to the tokens."""

    model: Any

    def rank(self, context: Context) -> list[float]:
        """How much of the last position comes from each token, residual connections included."""
        layers = _layers(self.model, context)
        identity = torch.eye(len(context.ids), dtype=layers.dtype)
        # Only the last row of the product is wanted, and a row times a matrix costs t² where the
        # product of two matrices costs t³: so the row is carried from the last layer to the first.
        row = identity[-1]
        for layer in layers.flip(0):
            mixed = (layer + identity) / 2
            row = row @ (mixed / mixed.sum(dim=-1, keepdim=True))
        return as_list(row)


def _layers(model: Any, context: Context) -> torch.Tensor:
    """The attention weights averaged over heads: (layers, t, t), on the CPU."""
    with torch.no_grad(), frozen(model), eager_attention(model):
        ids = input_ids(model, context.ids)
        arguments = forward_arguments(model, *ids.shape)
        weights = model(input_ids=ids, output_attentions=True, **arguments).attentions
    if not weights or any(layer is None for layer in weights):
        raise RationalesError(
            f"{type(model).__name__} returns no attention weights; "
            "use gradient-norm, gradient-x-embedding or integrated-gradients"
        )
    return torch.stack([layer[0].float().mean(dim=0).cpu().double() for layer in weights])
