"""The identity of a model: what its weights are, not what it is called."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


def fingerprint(model: PreTrainedModel, dtype: torch.dtype | None = None) -> str:
    """A sha256 over the name, the shape and the first 1024 values of every parameter.

    With a ``dtype``, of the values that the model has when it is loaded in that type.
    """
    digest = hashlib.sha256()
    tied = getattr(model, "all_tied_weights_keys", {})
    for name, parameter in sorted(model.named_parameters()):
        if parameter.is_meta and name in tied:
            continue  # offloaded, a weight that two layers share is two parameters
        values = _numbers(model, name, parameter.detach()).flatten()[:1024]
        values = values.to(dtype or values.dtype).float().cpu()
        digest.update(f"{name} {tuple(parameter.shape)}\n".encode())
        digest.update(values.numpy().astype("<f4").tobytes())
    return digest.hexdigest()


def fingerprints(model: PreTrainedModel) -> dict[str, str]:
    """The fingerprints of a model in each type that it may be loaded in."""
    import torch

    names = ("float32", "bfloat16", "float16")
    return {name: fingerprint(model, getattr(torch, name)) for name in names}


def is_quantized(model: PreTrainedModel) -> bool:
    """Whether some weights of the model are stored as other numbers than it computes with."""
    return not all(is_plain(parameter) for parameter in model.parameters())


def is_plain(weight: torch.Tensor) -> bool:
    """Whether a weight is a tensor of floating-point numbers, not one that stands for another."""
    import torch

    return type(weight.detach()) is torch.Tensor and weight.is_floating_point()


def _numbers(model: PreTrainedModel, name: str, weight: torch.Tensor) -> torch.Tensor:
    """The numbers of a parameter that may be quantised (torchao) or offloaded (accelerate)."""
    if not is_plain(weight):
        return weight.dequantize()
    if not weight.is_meta:
        return weight
    module, _, own_name = name.rpartition(".")
    hook: Any = model.get_submodule(module)._hf_hook
    stored = [each.weights_map for each in getattr(hook, "hooks", [hook]) if each.weights_map]
    numbers: torch.Tensor = stored[0][own_name]
    return numbers
