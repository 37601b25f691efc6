"""What a forward pass changes in a model: positions, which logits, which kind of attention.

A hook belongs to the model, which threads may share: each acts only in the thread that has set it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

Change = Callable[[torch.Tensor], torch.Tensor]


@contextmanager
def changing(module: Any, change: Change, *, its_input: bool = False) -> Iterator[None]:
    """Within it, the module's output (or its input) is changed; nothing is, if it is no module."""
    thread = threading.get_ident()

    def before(_: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        return (change(inputs[0]), *inputs[1:]) if threading.get_ident() == thread else None

    def after(_: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor | None:
        return change(output) if threading.get_ident() == thread else None

    if not isinstance(module, torch.nn.Module):
        yield
    elif its_input:
        with module.register_forward_pre_hook(before):
            yield
    else:
        with module.register_forward_hook(after):
            yield


@contextmanager
def logits_of(model: Any, choose: Change) -> Iterator[list[torch.Tensor]]:
    """Within it, the last layer is given only what is chosen of its input; the list then holds it.

    The logits of all tokens would be the largest tensor by far. The list stays empty if the model
    has no last layer that can be hooked: then it computes all logits.
    """
    given: list[torch.Tensor] = []

    def cut(states: torch.Tensor) -> torch.Tensor:
        given.append(choose(states))
        return given[-1]

    with changing(model.get_output_embeddings(), cut, its_input=True):
        yield given


@contextmanager
def at_places(part: Any, places: torch.Tensor | None) -> Iterator[None]:
    """Within it, the encoder or decoder puts its tokens at these places; None: one by one."""
    module = None if places is None else getattr(part, "embed_positions", None)
    with changing(module, lambda _: _rows_at(module, places)):
        yield


def has_table(module: Any) -> bool:
    """Whether this is a module with a row for each position."""
    return hasattr(module, "weight") or hasattr(module, "weights")


def skips_pads(module: Any) -> bool:
    """Whether positions are counted from the ids, pads left out (M2M100)."""
    return module is not None and not isinstance(module, torch.nn.Embedding)


def _rows_at(module: Any, places: Any) -> torch.Tensor:
    """The position embeddings of these places: (rows, length, dimensions)."""
    if skips_pads(module):
        return module.weights[places + module.padding_idx + 1]  # type: ignore[no-any-return]
    # The first rows of BART's table are unused.
    return module.weight[places + getattr(module, "offset", 0)]  # type: ignore[no-any-return]


@contextmanager
def eager_attention(model: Any) -> Iterator[None]:
    """The model with the attention that returns its weights; the former one is put back."""
    # One entry per sub-config: the parts of a composite model can differ.
    configs = {"": model.config}
    configs |= {name: getattr(model.config, name) for name in model.config.sub_configs}
    before = {n: getattr(each, "_attn_implementation", None) for n, each in configs.items()}
    if not hasattr(model, "set_attn_implementation") or before[""] == "eager":
        yield
        return
    try:
        model.set_attn_implementation("eager")
        yield
    finally:
        model.set_attn_implementation(before)
