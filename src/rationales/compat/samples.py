"""The model's own text: rows that it samples at temperature 1, so that no corpus is needed.

A row begins with what the tokenizer puts before a text; where it puts nothing, with a token that a
given text begins with, or else any token. Special tokens are never drawn after that: a text that is
explained has none inside.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from rationales.compat.rows import generator
from rationales.scoring import positions
from rationales.text import Tokenizer, prefix_ids

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_ROWS_AT_ONCE = 64


@torch.no_grad()
def sample_rows(
    model: PreTrainedModel,
    tokenizer: Tokenizer,
    shape: tuple[int, int],
    *,
    seed: int,
    starts: torch.Tensor | None = None,
    progress: Callable[[float], None] | None = None,
) -> torch.Tensor:
    """The model's own text, (rows, length) of int32 for this shape; the same for the same seed.

    ``starts`` are ids that texts begin with, to draw the first token from.
    """
    rows, length = shape
    vocabulary = int(positions.text_config(model).vocab_size)
    special = [id for id in tokenizer.all_special_ids if 0 <= id < vocabulary]
    forbidden = torch.zeros(vocabulary, dtype=torch.bool)
    forbidden[special] = True
    forbidden[len(tokenizer) :] = True  # rows of the embedding that stand for nothing
    first = starts if starts is not None else (~forbidden).nonzero()[:, 0]
    prefix = torch.tensor(prefix_ids(tokenizer), dtype=torch.long)
    sampled = []
    for start in range(0, rows, _ROWS_AT_ONCE):
        count = min(_ROWS_AT_ONCE, rows - start)
        draw = generator(seed, "sample", start)
        if len(prefix):
            begin = prefix.expand(count, -1)
        else:
            begin = first[torch.randint(len(first), (count, 1), generator=draw)].long()

        def tell(share: float, done: int = start, count: int = count) -> None:
            if progress is not None:
                progress((done + share * count) / rows)

        sampled.append(_continue(model, begin, length, forbidden, draw, tell))
    return torch.cat(sampled)[:, :length].int()


def _continue(
    model: PreTrainedModel,
    begin: torch.Tensor,
    length: int,
    forbidden: torch.Tensor,
    draw: torch.Generator,
    tell: Callable[[float], None],
) -> torch.Tensor:
    """The given ids and a sampled continuation, (rows, length)."""
    ids, cache = begin, None
    while ids.shape[1] < length:
        tell(ids.shape[1] / length)
        new = ids if cache is None else ids[:, -1:]
        output = model(input_ids=new.to(model.device), past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        # Drawn on the CPU: the same tokens, whichever device computes the logits.
        logits = output.logits[:, -1].float().cpu().masked_fill_(forbidden, -math.inf)
        ids = torch.cat([ids, torch.multinomial(logits.softmax(-1), 1, generator=draw)], dim=1)
    return ids
