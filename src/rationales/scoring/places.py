"""Hooks on the parts of an encoder–decoder: tokens in other places, logits of some positions alone.

A hook belongs to the model, which threads may share: each acts in the thread that has set it only.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch


@contextmanager
def at_places(part: Any, places: torch.Tensor | None) -> Iterator[None]:
    """Within it, the encoder or decoder puts its tokens in these places; None: one by one."""
    module = getattr(part, "embed_positions", None)
    if places is None or module is None:
        yield
        return
    thread = threading.get_ident()

    def place(module: Any, inputs: Any, output: Any) -> torch.Tensor | None:
        return _rows_at(module, places) if threading.get_ident() == thread else None

    with module.register_forward_hook(place):
        yield


@contextmanager
def logits_of(head: Any, positions: list[int]) -> Iterator[list[torch.Tensor]]:
    """Within it, logits are computed for these positions alone.

    The list is of what the head was given of them, once it has been called.
    """
    thread = threading.get_ident()
    given: list[torch.Tensor] = []

    def cut(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if threading.get_ident() != thread:
            return None
        given.append(inputs[0][:, positions])
        return (given[-1], *inputs[1:])

    if head is None:
        yield given
        return
    with head.register_forward_pre_hook(cut):
        yield given


def last_only(head: Any) -> AbstractContextManager[list[torch.Tensor]]:
    """A context within which logits are computed for the last position alone."""
    return logits_of(head, [-1])


def has_table(module: Any) -> bool:
    """Whether this is a module with a row for each position."""
    return module is not None and (hasattr(module, "weight") or hasattr(module, "weights"))


def skips_pads(module: Any) -> bool:
    """Whether positions are counted from the ids, pads left out (M2M100)."""
    return module is not None and not isinstance(module, torch.nn.Embedding)


def _rows_at(module: Any, places: torch.Tensor) -> torch.Tensor:
    """The position embeddings of these places: (rows, length, dimensions)."""
    if skips_pads(module):
        table: torch.Tensor = module.weights
        return table[places + module.padding_idx + 1]
    # The first rows of BART's table are unused.
    table = module.weight
    return table[places + getattr(module, "offset", 0)]
