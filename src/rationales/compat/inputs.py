"""One forward pass that trains every target of a sequence under a subset of its context.

Query *i* sees key *j ≤ i* if *j* is kept or *j = i*. The hidden state at *i* is then that of a
model that was given *i* and what is kept before it, at their positions, and nothing else: what a
sparse evaluation with *i* as the token before the target computes. One pass over T tokens learns
all of the T predictions f(y_{i+1} | y_{S<i}, y_i). Encoder–decoders are in ``seq2seq.py``.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import torch

from rationales.errors import RationalesError
from rationales.scoring import positions
from rationales.scoring.causal import CausalScorer
from rationales.scoring.guard import at_rest
from rationales.scoring.logits import agree

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def attention_mask(keep: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The additive mask (rows, heads or 1, queries, keys) of a decoder that sees what is kept.

    ``keep`` is (rows, heads or 1, length) and True where a token is kept.
    """
    places = torch.arange(keep.shape[-1], device=keep.device)
    before, itself = places < places[:, None], places == places[:, None]
    return additive(keep[..., None, :] & before | itself, dtype)


def additive(sees: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What is added to the attention scores: 0 where a query sees a key, else the lowest number.

    Eager attention would add a mask of bools as it is.
    """
    mask = torch.zeros(sees.shape, dtype=dtype, device=sees.device)
    return mask.masked_fill_(~sees, torch.finfo(dtype).min)


class MaskedPass:
    """Forward passes of a causal model under subsets; logits of all positions, with gradients.

    The passes go through a module that is given each time: the model itself, or what wraps it
    (an adapter, a distributed model).
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.heads = int(positions.text_config(model).num_attention_heads)
        self._dtype = model.dtype
        self._takes_positions = "position_ids" in inspect.signature(model.forward).parameters
        self._alibi = positions.alibi_builders(model)

    def __call__(
        self, module: torch.nn.Module, ids: torch.Tensor, keep: torch.Tensor | None
    ) -> torch.Tensor:
        """Logits (rows, length, vocabulary) given the kept tokens; ``keep`` None: all of them."""
        places = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        # Some models would count only what the mask keeps.
        more = {"position_ids": places} if self._takes_positions else {}
        # Without a subset, a mask of ones: attention is faster without a mask of its own.
        mask = torch.ones_like(ids) if keep is None else attention_mask(keep, self._dtype)
        with positions.alibi_at(self._alibi, places):
            output = module(input_ids=ids, attention_mask=mask, use_cache=False, **more)
        logits: torch.Tensor = output.logits
        return logits


@torch.no_grad()
def check_model(model: PreTrainedModel, length: int) -> None:
    """Raise unless a masked pass over ``length`` tokens is what the package evaluates later."""
    limit, window = positions.max_positions(model), positions.window(model)
    for most, what in (
        (limit, f"the {limit} positions of the model"),
        (window, f"the attention window of the model ({window} tokens)"),
    ):
        if most is not None and length > most:
            raise RationalesError(f"--length {length} is more than {what}: take a smaller one")
    CausalScorer(model)  # refuses what no mask can describe, such as recurrent models
    rng, length = torch.Generator().manual_seed(0), min(length, 32)
    ids = torch.randint(0, positions.text_config(model).vocab_size, (1, length), generator=rng)
    ids = ids.to(model.device)
    places = torch.arange(length, device=model.device)[None]
    keep = places % 3 == 0
    masked_pass = MaskedPass(model)
    with at_rest(model):
        # One subset for each head, so that the axis of the heads is tried too.
        trained = masked_pass(model, ids, keep[:, None].expand(-1, masked_pass.heads, -1))
        seen = keep | (places == length - 1)
        evaluated = positions.NextToken(model)(ids, places, seen.long())
    check_agreement(model, trained[:, -1], evaluated)


def check_agreement(model: PreTrainedModel, trained: torch.Tensor, later: torch.Tensor) -> None:
    """Raise unless the logits of a masked pass are those of an evaluation."""
    one, other = (logits.float().log_softmax(-1) for logits in (trained, later))
    if not agree(one, other, model.dtype):
        raise RationalesError(
            f"{model.config.model_type} models cannot be trained for compatibility: "
            "they do not follow a mask for each query"
        )
