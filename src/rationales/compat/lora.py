"""A LoRA adapter as peft writes it, on a model that keeps its own weights.

    y = W x + b   becomes   y = (W + s B A) x + b        merged: a new W for each adapted layer
                  or        y = (W x + b) + s B (A x)    beside the weights: W is the model's own

An adapter has ``base_model.model.<layer>.lora_A.weight`` (rank, inputs) and ``….lora_B.weight``
(outputs, rank). The adapted model is a second model object: it has modules of its own, and shares
with the first every tensor that the adapter leaves as it is. Both can be used at any time.
"""

from __future__ import annotations

import copy
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from rationales.compat.adapter import CONFIG, WEIGHTS
from rationales.errors import OptionError
from rationales.models.identity import is_plain

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MERGED_BELOW = 1_000_000_000
"""Parameters of a model: from here on, an adapter is not merged, and no weights are copied."""

_TENSOR = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
_SETTINGS = {
    "alpha_pattern", "base_model_name_or_path", "exclude_modules", "fan_in_fan_out",
    "inference_mode", "layers_pattern", "layers_to_transform", "lora_alpha", "lora_dropout",
    "megatron_core", "peft_version", "qalora_group_size", "r", "rank_pattern", "revision",
    "target_modules", "task_type", "use_rslora",
}  # fmt: skip
"""What a configuration may say: it is in the names and shapes of the tensors, or read below."""


@dataclass(frozen=True)
class Update:
    """What an adapter adds to the weights of one layer: B A, of which B is scaled."""

    down: torch.Tensor
    """A, (rank, inputs)."""
    up: torch.Tensor
    """B, (outputs, rank)."""
    scaling: float


def read_updates(model: PreTrainedModel, folder: Path) -> dict[str, Update] | None:
    """What the adapter in a folder adds to each layer; None if it is more than LoRA on linear ones.

    Only peft knows the rest: DoRA, biases, embeddings, weights saved in full.
    """
    from safetensors.torch import load_file
    from transformers.pytorch_utils import Conv1D

    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    if not _is_plain(config):
        return None
    pairs: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in load_file(folder / WEIGHTS).items():
        if (found := _TENSOR.fullmatch(name)) is None:
            return None
        pairs.setdefault(found[1], {})[found[2]] = tensor.float()
    layers = dict(model.named_modules())
    updates = {}
    for name, pair in pairs.items():
        if len(pair) != 2 or not isinstance(layers.get(name), torch.nn.Linear | Conv1D):
            return None
        down, up = pair["A"], pair["B"]
        shape = tuple(layers[name].weight.shape)
        shape = shape[::-1] if isinstance(layers[name], Conv1D) else shape
        if (len(up), down.shape[1], len(down)) != (*shape, up.shape[1]):
            raise ValueError(f"size mismatch for {name}")
        if not (down.isfinite().all() and up.isfinite().all()):
            raise ValueError(f"NaN or infinite weights for {name}")
        rank = math.sqrt(len(down)) if config.get("use_rslora") else len(down)
        updates[name] = Update(down, up, _alpha(config, name) / rank)
    return updates


def adapted(
    model: PreTrainedModel, updates: dict[str, Update], merge: bool | None
) -> PreTrainedModel:
    """A model that shares its tensors with this one, but for what the updates change.

    They are merged into new weights if ``merge`` says so; if it is None, below a size of the model.
    Weights that are quantised or offloaded cannot be changed: they are never merged.
    """
    layers: dict[str, Any] = {name: model.get_submodule(name) for name in updates}
    mergeable = all(
        is_plain(layer.weight) and not layer.weight.is_meta for layer in layers.values()
    )
    if merge is None:
        merge = mergeable and sum(w.numel() for w in model.parameters()) < MERGED_BELOW
    elif merge and not mergeable:
        raise OptionError(
            "the weights of this model are quantised or offloaded, so no adapter can be merged "
            "into them: leave out {merge}"
        )
    # A copy takes from the memo what it shall not copy.
    shared: list[Any] = [*model.parameters(), *model.buffers()]
    # The hooks by which accelerate moves weights hold those that are offloaded.
    shared += [m._hf_hook for m in model.modules() if hasattr(m, "_hf_hook")]
    memo: dict[int, Any] = {id(each): each for each in shared}
    for name, update in updates.items():
        layer = copy.deepcopy(layers[name], memo)
        if merge:
            layer.weight = torch.nn.Parameter(_merged(layer, update), requires_grad=False)
        else:
            layer = LowRank(layer, update, model.dtype)
        memo[id(layers[name])] = layer
    result: Any = copy.deepcopy(model, memo)
    result.eval()
    return result  # type: ignore[no-any-return]


class LowRank(torch.nn.Module):
    """A linear layer and, beside its weights, what an adapter adds to them."""

    def __init__(self, layer: Any, update: Update, dtype: torch.dtype) -> None:
        super().__init__()
        self.layer = layer
        place: dict[str, Any] = {"dtype": dtype}
        if not layer.weight.is_meta:
            place["device"] = layer.weight.device
        down, up = update.down.to(**place), (update.up.T.contiguous() * update.scaling).to(**place)
        self.down = torch.nn.Parameter(down, requires_grad=False)
        self.up = torch.nn.Parameter(up, requires_grad=False)

    @property
    def weight(self) -> Any:
        """The layer's own; some models ask for its type."""
        return self.layer.weight

    @property
    def bias(self) -> Any:
        return self.layer.bias

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        # An offloaded layer runs on a device that is known only now.
        down, up = self.down.to(states.device), self.up.to(states.device)
        output = self.layer(states)
        added = functional.linear(states, down).flatten(0, -2)
        # B is transposed and its product summed in place: for few tokens that is twice as fast.
        sums = output.flatten(0, -2).addmm_(added, up)
        return sums.view(output.shape)  # type: ignore[no-any-return]


def _merged(layer: Any, update: Update) -> torch.Tensor:
    """The weights of a layer with what the adapter adds, summed in float32: it is small."""
    weight = layer.weight.detach()
    up, down = update.up.to(weight.device), update.down.to(weight.device)
    if not isinstance(layer, torch.nn.Linear):  # GPT-2's layers hold the transposed weights
        up, down = down.T, up.T
    return torch.addmm(weight.float(), up, down, alpha=update.scaling).to(weight.dtype)


def _is_plain(config: dict[str, Any]) -> bool:
    """Whether this is the configuration of LoRA without any variant."""
    values = {"peft_type": ("LORA",), "bias": ("none",), "init_lora_weights": (True, "gaussian")}
    return all(
        value in values.get(name, ()) or name in _SETTINGS
        for name, value in config.items()
        if value  # what is off, empty or None
    )


def _alpha(config: dict[str, Any], name: str) -> float:
    """What the scaling of this layer's update goes by; a pattern may be that of some layers."""
    for pattern, alpha in (config.get("alpha_pattern") or {}).items():
        if re.match(rf"(.*\.)?({pattern})$", name):
            return float(alpha)
    return float(config["lora_alpha"])
