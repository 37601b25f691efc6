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
from dataclasses import dataclass
from typing import Any

import torch

from rationales.context import Context
from rationales.errors import RationalesError
from rationales.ranking.inside import (
    eager_attention,
    inputs,
    is_encoder_decoder,
    places,
    rank_in_runs,
)
from rationales.scoring.hooks import logits_of


@dataclass(frozen=True)
class Attention:
    """A ranker by one of the three methods."""

    model: Any
    method: str

    def rank(self, contexts: Sequence[Context]) -> list[list[float]]:
        """The attention weight of each token."""
        return rank_in_runs(self.model, contexts, self._rank_run)

    @torch.no_grad()
    def _rank_run(self, run: Sequence[Context]) -> torch.Tensor:
        at, model = places(run), self.model
        with eager_attention(model), logits_of(model, lambda states: states[:, -1:]):
            output = model(**inputs(model, run[-1]), output_attentions=True)
        if not is_encoder_decoder(model):
            return self._rows(output.attentions, at)
        sides = self._rows(output.cross_attentions, at), self._rows(output.decoder_attentions, at)
        for rows, start in zip(sides, (0, run[-1].source), strict=True):
            for row, context in zip(rows, run, strict=True):
                row[[i - start for i in context.pinned if 0 <= i - start < len(row)]] = 0
            rows /= rows.sum(dim=1, keepdim=True).clamp_min(1e-300)  # all pinned: all zero
        return torch.cat(sides, dim=1)

    def _rows(self, weights: Sequence[torch.Tensor], at: list[int]) -> torch.Tensor:
        """What the positions ``at`` give to each token: (positions, tokens), on the CPU."""
        if not weights or any(layer is None for layer in weights):
            raise RationalesError(
                f"{type(self.model).__name__} returns no attention weights; "
                "use gradient-norm, gradient-x-embedding or integrated-gradients"
            )
        layers = [layer[0].float().mean(dim=0).cpu().double() for layer in weights]
        if self.method == "last-attention":
            return layers[-1][at]
        if self.method == "all-attention":
            return torch.stack([layer[at] for layer in layers]).mean(dim=0)
        identity = torch.eye(len(layers[0]), dtype=torch.float64)
        # Only some rows of the product are wanted, and a row times a matrix costs t² where the
        # product of two matrices costs t³: so rows are carried from the last layer to the first.
        rows = identity[at]
        for layer in reversed(layers):
            mixed = (layer + identity) / 2
            rows = rows @ (mixed / mixed.sum(dim=-1, keepdim=True))
        return rows
