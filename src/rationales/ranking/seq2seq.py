"""Importances over both sides of a translation: the source tokens, then the target prefix.

Gradients are those of log p(target | full context) with respect to the token embeddings of both
sides, before positions are added; one number per token of either side, in the same unit.

Attention is that of the decoder's last position: its cross-attention weighs the source, its
self-attention the target prefix. Each sums to 1 over all tokens of its side. Pinned tokens are in
no order, and ends and starts of a text draw weight to themselves whatever they say: so each side
is normalised to 1 over its tokens that are not pinned, and the two are merged into one order.

A decoder looks back only: one forward pass over a translation has in it those of all its targets.
``rank_all`` takes them from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from rationales.context import Context
from rationales.errors import RationalesError
from rationales.ranking.inside import as_list, eager_attention, frozen, input_device
from rationales.ranking.protocol import Ranker
from rationales.scoring.hooks import last_only, logits_of

_TOGETHER = 12
"""Targets of a run: a backward pass goes over the whole of it, whatever the target needs."""

LogProbability = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class SidesAttention:
    """The attention of the decoder's last position, of its last layer or of all layers alike."""

    model: Any
    all_layers: bool

    def rank(self, context: Context) -> list[float]:
        """The normalised weights of the source, then those of the target prefix."""
        return self.rank_all([context])[0]

    def rank_all(self, contexts: Sequence[Context]) -> list[list[float]]:
        """The weights of each context: one pass for all targets of a translation."""
        found: list[list[float]] = []
        with frozen(self.model), eager_attention(self.model):
            for text in _texts(contexts):
                found += self._of_text(text)
        return found

    def _of_text(self, text: Sequence[Context]) -> list[list[float]]:
        head = self.model.get_output_embeddings()
        with torch.no_grad(), last_only(head):
            output = self.model(**_inputs(self.model, text[-1], 1), output_attentions=True)
        cross = self._over_layers(output.cross_attentions)
        own = self._over_layers(output.decoder_attentions)
        found = []
        for context in text:
            pinned = {*context.pinned}
            free = torch.tensor([float(i not in pinned) for i in range(len(context.ids))])
            source, prefix = free[: context.source], free[context.source :]
            at = len(prefix) - 1
            sides = _normalised(cross[at], source), _normalised(own[at, : at + 1], prefix)
            found.append(as_list(torch.cat(sides)))
        return found

    def _over_layers(self, layers: Any) -> torch.Tensor:
        """The weights of each position, averaged over heads and the layers that count."""
        if not layers or any(layer is None for layer in layers):
            raise RationalesError(
                f"{type(self.model).__name__} returns no attention weights; "
                "use gradient-norm, gradient-x-embedding or integrated-gradients"
            )
        chosen = layers if self.all_layers else layers[-1:]
        rows = [layer[0].float().mean(dim=0).cpu().double() for layer in chosen]
        return torch.stack(rows).mean(dim=0)


@dataclass(frozen=True)
class SidesGradients:
    """A ranker by gradients, and the same for all targets of a translation at once.

    Each target has a backward pass of its own, but all have the forward passes in common.
    """

    one: Ranker
    """What ranks a single context."""
    model: Any
    path: tuple[tuple[float, float], ...] = ((1.0, 1.0),)
    """How much of the embeddings gradients are taken at, and what each of these weighs."""
    norm: bool = False
    """Whether the gradient's length counts, and not its product with the embedding."""
    absolute: bool = False
    batch_tokens: int = 4096

    def rank(self, context: Context) -> list[float]:
        """The importances of one context."""
        return self.one.rank(context)

    def rank_all(self, contexts: Sequence[Context]) -> list[list[float]]:
        """The importances of each context."""
        found: list[list[float]] = []
        for text in _texts(contexts):
            with _gradients(self.model):
                found += self._of_text(text)
        return found

    def _of_text(self, text: Sequence[Context]) -> list[list[float]]:
        embedded = _embedded(self.model, text[-1])
        sums = torch.zeros(len(text), *embedded.shape[1:], dtype=torch.float64)
        rows = max(1, self.batch_tokens // embedded.shape[1])
        for start in range(0, len(self.path), rows):
            scales, weights = torch.tensor(self.path[start : start + rows]).T[:, :, None, None]
            scaled = (scales.to(embedded) * embedded).requires_grad_()
            for number, values in enumerate(_log_probabilities(self.model, text, scaled)):
                [gradient] = torch.autograd.grad(
                    values.sum(), scaled, retain_graph=number + 1 < len(text)
                )
                sums[number] += (gradient.cpu().double() * weights).sum(dim=0)
        products = sums.norm(dim=-1) if self.norm else (sums * embedded[0].cpu()).sum(dim=-1)
        products = products.abs() if self.absolute else products
        return [as_list(row[: len(c.ids)]) for row, c in zip(products, text, strict=True)]


def integral(steps: int) -> tuple[tuple[float, float], ...]:
    """The points of Gauss and Legendre's integral over [0, 1], and their weights."""
    from numpy.polynomial.legendre import leggauss

    points, weights = leggauss(steps)
    return tuple((float(p + 1) / 2, float(w) / 2) for p, w in zip(points, weights, strict=True))


def attribute(
    model: Any, context: Context, method: Callable[[LogProbability, torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """The method's attribution to each token of both sides: (length, dimensions), on the CPU.

    The method sees one row of embeddings: those of the source, then those of the target prefix.
    """
    with _gradients(model):
        attribution = method(
            lambda embedded: next(_log_probabilities(model, [context], embedded)),
            _embedded(model, context),
        )
    return attribution[0].detach().cpu().double()


@contextmanager
def _gradients(model: Any) -> Iterator[None]:
    """A context in which gradients with respect to inputs can be taken, and no others are."""
    with ExitStack() as stack:
        # The caller may have switched gradients off around everything.
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(frozen(model))
        yield


def _embedded(model: Any, context: Context) -> torch.Tensor:
    """The token embeddings of both sides: (1, length, dimensions)."""
    inputs = _inputs(model, context, 1)
    sides = [
        part.get_input_embeddings()(inputs[name])
        for part, name in zip(_parts(model), ("input_ids", "decoder_input_ids"), strict=True)
    ]
    return torch.cat(sides, dim=1).detach()


def _log_probabilities(
    model: Any, text: Sequence[Context], embedded: torch.Tensor
) -> Iterator[torch.Tensor]:
    """What each target of a text has, given rows of embeddings of the whole: a number a row."""
    longest, head = text[-1], model.get_output_embeddings()
    border = longest.source
    places = [len(context.ids) - border - 1 for context in text]
    with (
        _embedded_as(model, embedded[:, :border], embedded[:, border:]),
        logits_of(head, places) as given,
    ):
        logits = model(**_inputs(model, longest, len(embedded))).logits
    with torch.no_grad():  # what comes after the head is a constant: a bias, or nothing
        after = logits - head(given[0])
    for number, context in enumerate(text):
        # Each from its own state: the head is wide, and has nothing to say of other targets.
        own = head(given[0][:, number]) + after[:, number]
        own = own.to(torch.promote_types(own.dtype, torch.float32))
        yield own.log_softmax(dim=-1)[:, context.target_id]


def _texts(contexts: Sequence[Context]) -> list[list[Context]]:
    """The contexts in runs, in each of which one begins with the one before it."""
    texts: list[list[Context]] = []
    for context in contexts:
        last = texts[-1][-1] if texts else None
        if (
            last is not None
            and len(texts[-1]) < _TOGETHER
            and last.source == context.source
            and last.ids == context.ids[: len(last.ids)]
        ):
            texts[-1].append(context)
        else:
            texts.append([context])
    return texts


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
