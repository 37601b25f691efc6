"""Importances over both sides of a translation: the source tokens, then the target prefix.

Gradients are those of log p(target | full context) with respect to the token embeddings of both
sides, before positions are added; one number per token of either side, in the same unit.

Attention is that of the decoder's last position: its cross-attention weighs the source, its
self-attention the target prefix. Each sums to 1 over all tokens of its side. Pinned tokens are in
no order, and ends and starts of a text draw weight to themselves whatever they say: so each side
is normalised to 1 over its tokens that are not pinned, and the two are merged into one order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from rationales.context import Context
from rationales.errors import RationalesError
from rationales.ranking.inside import as_list, at_rest, eager_attention, input_device

LogProbability = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class SidesAttention:
    """The attention of the decoder's last position, of its last layer or of all layers alike."""

    model: Any
    all_layers: bool

    def rank(self, context: Context) -> list[float]:
        """The normalised weights of the source, then those of the target prefix."""
        with torch.no_grad(), at_rest(self.model), eager_attention(self.model):
            output = self.model(**_inputs(self.model, context, 1), output_attentions=True)
        weights = [
            self._over_layers(output.cross_attentions),
            self._over_layers(output.decoder_attentions),
        ]
        pinned = {*context.pinned}
        free = torch.tensor([float(i not in pinned) for i in range(len(context.ids))])
        sides = [
            _normalised(side, mask)
            for side, mask in zip(
                weights, (free[: context.source], free[context.source :]), strict=True
            )
        ]
        return as_list(torch.cat(sides))

    def _over_layers(self, layers: Any) -> torch.Tensor:
        """The weights of the last position, averaged over heads and the layers that count."""
        if not layers or any(layer is None for layer in layers):
            raise RationalesError(
                f"{type(self.model).__name__} returns no attention weights; "
                "use gradient-norm, gradient-x-embedding or integrated-gradients"
            )
        chosen = layers if self.all_layers else layers[-1:]
        rows = [layer[0, :, -1].float().mean(dim=0).cpu().double() for layer in chosen]
        return torch.stack(rows).mean(dim=0)


def attribute(
    model: Any, context: Context, method: Callable[[LogProbability, torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """The method's attribution to each token of both sides: (length, dimensions), on the CPU.

    The method sees one row of embeddings: those of the source, then those of the target prefix.
    """
    with ExitStack() as stack:
        # The caller may have switched gradients off around everything.
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(at_rest(model))
        inputs = _inputs(model, context, 1)
        embedded = [
            part.get_input_embeddings()(inputs[name])
            for part, name in zip(_parts(model), ("input_ids", "decoder_input_ids"), strict=True)
        ]

        def log_probability(embedded: torch.Tensor) -> torch.Tensor:
            sides = embedded[:, : context.source], embedded[:, context.source :]
            with _embedded_as(model, *sides):
                logits = model(**_inputs(model, context, len(embedded))).logits[:, -1]
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            return logits.log_softmax(dim=-1)[:, context.target_id]  # type: ignore[no-any-return]

        attribution = method(log_probability, torch.cat(embedded, dim=1).detach())
    return attribution[0].detach().cpu().double()


@contextmanager
def _embedded_as(model: Any, source: torch.Tensor, target: torch.Tensor) -> Iterator[None]:
    """Within it, these are the token embeddings, whatever the ids.

    ``inputs_embeds`` would not do: Marian scales what its decoder is given, and not what its
    encoder is, so that the two sides would have different units.
    """
    waiting = [source, target]

    def give(module: Any, inputs: Any, output: Any) -> torch.Tensor:
        return waiting.pop(0)  # the encoder comes first, also where both share one module

    with ExitStack() as stack:
        for module in {
            id(m): m for m in (p.get_input_embeddings() for p in _parts(model))
        }.values():
            stack.enter_context(module.register_forward_hook(give))
        yield


def _inputs(model: Any, context: Context, rows: int) -> dict[str, Any]:
    """What the ordinary forward pass over whole contexts is given."""
    if not 0 < context.source < len(context.ids):
        raise RationalesError(
            "an encoder–decoder ranks contexts with two sides: make them with seq2seq_context"
        )
    ids = torch.tensor([context.ids], device=input_device(model)).expand(rows, -1)
    source, target = ids[:, : context.source], ids[:, context.source :]
    return {
        "input_ids": source,
        "attention_mask": torch.ones_like(source),
        "decoder_input_ids": target,
        "decoder_attention_mask": torch.ones_like(target),
        "use_cache": False,
        "return_dict": True,
    }


def _parts(model: Any) -> tuple[Any, Any]:
    return model.get_encoder(), model.get_decoder()


def _normalised(weights: torch.Tensor, free: torch.Tensor) -> torch.Tensor:
    """The weights as shares of what the free tokens have together; pinned tokens have none."""
    weights = weights * free
    total = weights.sum()
    return weights / total if total > 0 else weights
