"""Looking inside a model without leaving a trace.

A ranker may be handed a model in the middle of somebody's training. Dropout has to be off and the
parameters need no gradient while it is looked at; afterwards every flag is what it was.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from rationales.errors import RationalesError
from rationales.scoring.guard import at_rest


@contextmanager
def frozen(model: Any) -> Iterator[None]:
    """The model at rest (``scoring.guard``) with frozen parameters; all is put back at the end."""
    with at_rest(model):
        learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
        try:
            for parameter in learning:
                parameter.requires_grad_(False)
            yield
        finally:
            for parameter in learning:
                parameter.requires_grad_(True)


@contextmanager
def eager_attention(model: Any) -> Iterator[None]:
    """The model with the attention that returns its weights; the former one is put back."""
    if not hasattr(model, "set_attn_implementation") or _implementation(model.config) == "eager":
        yield
        return
    # One entry per sub-config: the parts of a composite model can differ.
    before = {"": _implementation(model.config)}
    for name in model.config.sub_configs:
        before[name] = _implementation(getattr(model.config, name))
    try:
        model.set_attn_implementation("eager")
        yield
    finally:
        model.set_attn_implementation(before)


def accepts(model: Any, argument: str) -> bool:
    """Whether the model's forward pass names this argument."""
    return argument in inspect.signature(model.forward).parameters


def forward_arguments(model: Any, rows: int, length: int) -> dict[str, Any]:
    """What the ordinary forward pass over whole contexts is given besides its tokens.

    The mask is explicit, the positions too where the model takes them: nothing is left to a
    model's guess. Where it can, the model computes the logits of the last position only.
    """
    device = input_device(model)
    arguments: dict[str, Any] = {
        "attention_mask": torch.ones(rows, length, dtype=torch.long, device=device),
        "use_cache": False,
        "return_dict": True,
    }
    if accepts(model, "position_ids"):
        arguments["position_ids"] = torch.arange(length, device=device).expand(rows, length)
    if accepts(model, "logits_to_keep"):
        arguments["logits_to_keep"] = 1
    return arguments


def input_ids(model: Any, ids: tuple[int, ...]) -> torch.Tensor:
    """The token ids as a batch of one row, where the model's embedding is."""
    if not ids:
        raise RationalesError("the context is empty: a causal model needs one token at least")
    return torch.tensor([ids], dtype=torch.long, device=input_device(model))


def input_device(model: Any) -> torch.device:
    """The device of the input embedding: that of the model, unless its layers are spread out."""
    device: torch.device = model.get_input_embeddings().weight.device
    return device


def as_list(importances: torch.Tensor) -> list[float]:
    """The importances as plain numbers."""
    return [float(importance) for importance in importances.tolist()]


def _implementation(config: Any) -> str | None:
    """The name of the attention implementation that a config asks for."""
    return getattr(config, "_attn_implementation", None)
