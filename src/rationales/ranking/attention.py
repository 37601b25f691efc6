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
    accepts,
    as_list,
    at_rest,
    eager_attention,
    forward_arguments,
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


class PassageAttention:
    """The attention of all layers alike, for many targets of one text: a hint, not a baseline.

    One pass over the text serves all targets, as long as its weights, layers × heads × t², are not
    too many; in a longer text, each target has a pass whose last position alone gives weights.
    """

    def __init__(self, model: Any, ids: tuple[int, ...]) -> None:
        self._model = model
        self._ids = ids
        self._rows: torch.Tensor | None = None

    def rank(self, context: Context) -> list[float]:
        """The weights of the last position, averaged over heads and layers; zeros if unknown."""
        place = len(context.ids) - 1
        try:
            if self._weights() > _WEIGHTS_AT_ONCE:
                return as_list(_last_row(self._model, context.ids))
            if self._rows is None:
                self._rows = _layers(self._model, Context(self._ids, target_id=0)).mean(dim=0)
            return as_list(self._rows[place, : place + 1])
        except RationalesError:  # a model that shows no weights: any order is as good as another
            return [0.0] * len(context.ids)

    def _weights(self) -> int:
        config = self._model.config.get_text_config(decoder=True)
        heads = getattr(config, "num_attention_heads", 0) * getattr(config, "num_hidden_layers", 0)
        return int(heads) * len(self._ids) ** 2


_WEIGHTS_AT_ONCE = 2**26


def _last_row(model: Any, ids: tuple[int, ...]) -> torch.Tensor:
    """The weights of the last position, averaged over heads and layers, in little memory."""
    if len(ids) == 1 or not accepts(model, "position_ids"):
        return _layers(model, Context(ids, target_id=0))[:, -1].mean(dim=0)
    tokens = input_ids(model, ids)
    with torch.no_grad(), at_rest(model):
        first = forward_arguments(model, 1, len(ids) - 1) | {"use_cache": True}
        past = model(input_ids=tokens[:, :-1], **first).past_key_values
        last = forward_arguments(model, 1, len(ids)) | {"use_cache": True}
        last["position_ids"] = last["position_ids"][:, -1:]
        with eager_attention(model):
            weights = model(
                input_ids=tokens[:, -1:], past_key_values=past, output_attentions=True, **last
            ).attentions
    return _averaged(model, weights)[:, -1].mean(dim=0)


def _layers(model: Any, context: Context) -> torch.Tensor:
    """The attention weights averaged over heads: (layers, t, t), on the CPU."""
    with torch.no_grad(), at_rest(model), eager_attention(model):
        ids = input_ids(model, context.ids)
        arguments = forward_arguments(model, *ids.shape)
        weights = model(input_ids=ids, output_attentions=True, **arguments).attentions
    return _averaged(model, weights)


def _averaged(model: Any, weights: Any) -> torch.Tensor:
    """The weights of each layer averaged over its heads."""
    if not weights or any(layer is None for layer in weights):
        raise RationalesError(
            f"{type(model).__name__} returns no attention weights; "
            "use gradient-norm, gradient-x-embedding or integrated-gradients"
        )
    return torch.stack([layer[0].float().mean(dim=0).cpu().double() for layer in weights])
