"""The masked pass of an encoder–decoder: every target of a sentence, under subsets of both sides.

A subset of the source and one of the target, for each attention head and the same at each layer:

- in the encoder, query *i* sees source token *j* if *j* is kept or *j = i*;
- in the decoder, query *i* sees target token *j ≤ i* if *j* is kept or *j = i*;
- across, every query sees the source tokens that are kept.

Where all heads keep the same tokens, the state at *i* is that of a model that was given nothing
but these and *i*, at their positions: what a sparse evaluation computes. The source's end token and
the token that the decoder starts with are always kept, so that no query sees nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.nn import functional

from rationales.checking import check_fields
from rationales.compat.inputs import additive, attention_mask, check_agreement
from rationales.compat.options import DistributionName, Share
from rationales.compat.subsets import DISTRIBUTIONS
from rationales.errors import RationalesError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Kept(NamedTuple):
    """What is kept of both sides, True where it is: (rows, heads or 1, length) each."""

    source: torch.Tensor
    target: torch.Tensor


@dataclass(frozen=True)
class WordDropout:
    """The distribution of the subsets of a pair; the defaults are the paper's for translation."""

    distribution: DistributionName = "inverse-length"
    mixture: Share = 0.5
    """With this probability a pair is incomplete, on both sides; otherwise it is complete."""

    def __post_init__(self) -> None:
        check_fields(self)

    def draw(
        self,
        sources: torch.Tensor,
        targets: torch.Tensor,
        heads: int,
        generator: torch.Generator,
    ) -> Kept:
        """Subsets of rows of these lengths, the source's end and the decoder's start included.

        Both of these are no part of the draw: always kept. What is beyond a row's end is not.
        """
        full = torch.rand(len(sources), 1, 1, generator=generator) >= self.mixture

        def draw_side(lengths: torch.Tensor) -> torch.Tensor:
            kept = full.repeat(1, heads, int(lengths.max()))
            for row, length in zip(kept, lengths.tolist(), strict=True):
                if length:
                    [drawn] = DISTRIBUTIONS[self.distribution](1, length, heads, generator)
                    row[:, :length] |= drawn
            return kept

        places, lengths = torch.arange(int(sources.max())), sources[:, None, None]
        source = functional.pad(draw_side(sources - 1), (0, 1)) | (places == lengths - 1)
        target = functional.pad(draw_side(targets - 1), (1, 0), value=True)
        return Kept(source & (places < lengths), target)


class Seq2SeqPass:
    """Forward passes of an encoder–decoder under subsets; logits of all targets, with gradients."""

    def __init__(self, model: PreTrainedModel) -> None:
        config = model.config
        if not config.is_encoder_decoder:
            raise RationalesError(f"{type(model).__name__} is no encoder–decoder")
        self.heads = int(config.num_attention_heads)
        if int(getattr(config, "decoder_attention_heads", self.heads)) != self.heads:
            raise RationalesError("encoder and decoder have different numbers of attention heads")
        self._pad = int(config.pad_token_id)
        self._dtype = model.dtype

    def __call__(
        self,
        model: PreTrainedModel,
        sources: torch.Tensor,
        inputs: torch.Tensor,
        keep: Kept | None,
    ) -> torch.Tensor:
        """Logits (rows, target length, vocabulary) given what is kept; None: everything.

        ``sources`` is padded on the right, and so is ``inputs``, what the decoder reads. Each head
        has to keep a token of each source, as the draws of ``WordDropout`` do.
        """
        network: Any = model
        common = {"decoder_input_ids": inputs, "use_cache": False}
        if keep is None:
            there = sources != self._pad
            # Without pads, without a mask: attention is faster.
            mask = None if bool(there.all()) else there.long()
            whole: torch.Tensor = network(input_ids=sources, attention_mask=mask, **common).logits
            return whole
        itself = torch.eye(sources.shape[-1], dtype=torch.bool, device=sources.device)
        seen = additive(keep.source[..., None, :] | itself, self._dtype)
        logits: torch.Tensor = network(
            encoder_outputs=network.get_encoder()(input_ids=sources, attention_mask=seen),
            attention_mask=additive(keep.source[:, :, None], self._dtype),
            decoder_attention_mask=attention_mask(keep.target, self._dtype),
            **common,
        ).logits
        return logits


@torch.no_grad()
def check_seq2seq(model: PreTrainedModel) -> None:
    """Raise unless a masked pass is what is evaluated later, on one random incomplete pair."""
    network: Any = model
    masked_pass, rng = Seq2SeqPass(model), torch.Generator().manual_seed(0)
    vocabulary, pad = int(model.config.vocab_size), int(model.config.pad_token_id)
    sources, inputs = (torch.randint(0, vocabulary, (1, n), generator=rng) for n in (8, 6))
    sources = sources.masked_fill(sources == pad, (pad + 1) % vocabulary)
    keep = Kept(torch.arange(8)[None] % 3 == 1, torch.arange(6)[None] % 3 == 0)
    for_heads = Kept(*(side[:, None].expand(-1, masked_pass.heads, -1) for side in keep))
    trained = masked_pass(model, sources, inputs, for_heads)
    later = network(
        input_ids=sources,
        attention_mask=keep.source.long(),
        decoder_input_ids=inputs,
        decoder_attention_mask=(keep.target | (torch.arange(6) == 5)).long(),
        use_cache=False,
    ).logits
    check_agreement(model, trained[:, -1], later[:, -1])
