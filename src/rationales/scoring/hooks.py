"""Hooks on the parts of an encoder–decoder: tokens in other places, logits of some positions alone.

A hook belongs to the model, which threads may share: each acts in the thread that has set it only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
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


def logits_of(head: Any, positions: list[int]) -> AbstractContextManager[list[torch.Tensor]]:
    """A context within which logits are computed for these positions alone.

    The list is of what the head was given of them, once it has been called.
    """
    return _cut(head, lambda states: states[:, positions])


def last_only(head: Any) -> AbstractContextManager[list[torch.Tensor]]:
    """A context within which logits are computed for the last position alone."""
    return logits_of(head, [-1])


def logits_at(head: Any, ends: list[int]) -> AbstractContextManager[list[torch.Tensor]]:
    """A context within which logits are computed for one position of each row alone."""
    return _cut(head, lambda states: rows_at(states, ends)[:, None])


def rows_at(values: torch.Tensor, ends: list[int]) -> torch.Tensor:
    """What (rows, length, …) has at one position of each row: (rows, …)."""
    return values[torch.arange(len(ends)), ends]


@contextmanager
def _cut(head: Any, choose: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Within it, the head is given what is chosen of its input, which the list then holds."""
    thread = threading.get_ident()
    given: list[torch.Tensor] = []

    def cut(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if threading.get_ident() != thread:
            return None
        given.append(choose(inputs[0]))
        return (given[-1], *inputs[1:])

    if head is None:
        yield given
        return
    with head.register_forward_pre_hook(cut):
        yield given


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
