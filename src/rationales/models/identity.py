"""The identity of a model: what its weights are, not what it is called."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


def fingerprint(model: PreTrainedModel, dtype: torch.dtype | None = None) -> str:
    """A sha256 over the name, the shape and the first 1024 values of every parameter.

    With a ``dtype``, of the values that the model has when it is loaded in that type.
    """
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        values = parameter.detach().flatten()[:1024]
        values = values.to(dtype or values.dtype).float().cpu()
        digest.update(f"{name} {tuple(parameter.shape)}\n".encode())
        digest.update(values.numpy().astype("<f4").tobytes())
    return digest.hexdigest()


def fingerprints(model: PreTrainedModel) -> dict[str, str]:
    """The fingerprints of a model in each type that it may be loaded in."""
    import torch

    names = ("float32", "bfloat16", "float16")
    return {name: fingerprint(model, getattr(torch, name)) for name in names}
