"""Greedy rationalization of translations, with nothing shared with the package.

One subset at a time: the whole source and the whole target prefix go in, masks cover what is
dropped, attention is computed by the plain code, all logits come out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from oracle import Found, grow

PAD = 2


@contextmanager
def eager(model: Any) -> Iterator[None]:
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def log_probabilities(
    model: Any, source: Sequence[int], prefix: Sequence[int], kept: Collection[int]
) -> torch.Tensor:
    """log p(· | kept tokens at their positions); indices go through the source, then the prefix."""
    s = len(source)
    ids, mask = [*source], [int(i in kept) for i in range(s)]
    if not any(mask):  # a pad token in the first place, alone
        ids[0], mask[0] = PAD, 1
    encoder_input: dict[str, Any] = {"input_ids": torch.tensor([ids])}
    if model.config.model_type == "m2m_100" and ids[0] == PAD:
        # From ids, M2M100 would give a pad no position and count without it.
        embedded = model.get_encoder().embed_tokens(torch.tensor([ids]))
        encoder_input = {"inputs_embeds": embedded}
    with torch.no_grad(), eager(model):
        logits = model(
            **encoder_input,
            attention_mask=torch.tensor([mask]),
            decoder_input_ids=torch.tensor([list(prefix)]),
            decoder_attention_mask=torch.tensor([[int(s + i in kept) for i in range(len(prefix))]]),
            use_cache=False,
        ).logits
    return logits[0, -1].log_softmax(-1)


def ordinary(model: Any, source: Sequence[int], prefix: Sequence[int]) -> torch.Tensor:
    """log p(· | everything): the model called as everybody calls it."""
    with torch.no_grad():
        logits = model(
            input_ids=torch.tensor([list(source)]), decoder_input_ids=torch.tensor([list(prefix)])
        ).logits
    return logits[0, -1].log_softmax(-1)


def greedy(
    model: Any,
    source: Sequence[int],
    prefix: Sequence[int],
    y: int,
    pinned: Collection[int] = (),
) -> Found:
    """Conditional greedy rationalization: each step adds a token of either side."""
    n = len(source) + len(prefix)
    start = [i for i in [n - 1] if i not in pinned]
    others = [k for k in range(n) if k not in pinned and k not in start]

    def p(subset: Sequence[int]) -> torch.Tensor:
        return log_probabilities(model, source, prefix, [*subset, *pinned])

    return grow(p, start, others, y)
