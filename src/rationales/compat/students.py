"""What is trained, and the teacher it is held to: an adapter on frozen weights, or all weights.

The teacher is the model as it was. For an adapter that is the same model with the adapter switched
off, which costs no memory; for all weights it is a frozen copy.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors.torch import save_file

from rationales.compat.adapter import CONFIG, WEIGHTS
from rationales.compat.inputs import MaskedPass
from rationales.compat.options import TrainOptions
from rationales.compat.rows import generator
from rationales.errors import RationalesError
from rationales.models.files import reading, save_model
from rationales.models.loading import LoadedModel

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Teacher = Callable[[torch.Tensor], torch.Tensor]
"""From rows of ids to the logits of the model as it was."""


def make_student(
    model: PreTrainedModel, masked_pass: MaskedPass, options: TrainOptions
) -> tuple[Any, Teacher | None]:
    """The module that is trained, of which the model becomes a part, and its teacher, if any."""
    if options.method == "lora":
        module = _with_adapter(model, options)

        def teacher(ids: torch.Tensor) -> torch.Tensor:
            with module.disable_adapter():
                return masked_pass(module, ids, None)

        return module, teacher if options.loss == "distill" else None
    if options.loss == "data":
        return model.requires_grad_(True), None
    frozen = copy.deepcopy(model).requires_grad_(False).train(False)
    return model.requires_grad_(True), lambda ids: masked_pass(frozen, ids, None)


def save_student(module: Any, loaded: LoadedModel, name: str, folder: Path) -> None:
    """Write what was learned to a folder; ``name`` is that of the base model."""
    if module is loaded.model:
        module.config._name_or_path = name
        save_model(module, loaded.tokenizer, folder)
        return
    # Without the embeddings: whether they changed, peft would ask the hub.
    weights = get_peft_model_state_dict(module, save_embedding_layers=False)
    halves = {key: weight.detach().half().cpu().contiguous() for key, weight in weights.items()}
    save_file(halves, folder / WEIGHTS, metadata={"format": "pt"})
    config: dict[str, Any] = module.peft_config["default"].to_dict()
    config |= {"base_model_name_or_path": name, "inference_mode": True}
    text = json.dumps(config, indent=2, sort_keys=True, default=sorted)  # sets
    (folder / CONFIG).write_text(text + "\n", encoding="utf-8")


def _with_adapter(model: PreTrainedModel, options: TrainOptions) -> Any:
    """The model with (alpha / rank) · B A x added to all linear layers but the last."""
    model.requires_grad_(False)
    rank, alpha, start = options.lora_rank, options.lora_alpha, options.start
    if start is None:
        config = LoraConfig(
            r=rank, lora_alpha=alpha, target_modules="all-linear", task_type="CAUSAL_LM"
        )
        with torch.random.fork_rng(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # GPT-2's transposed layers are noticed, and told of
            torch.manual_seed(generator(options.seed, "lora", 0).initial_seed())
            return get_peft_model(model, config)
    with reading(f"the adapter in {start}"):
        device = str(model.device)
        module = PeftModel.from_pretrained(model, start, is_trainable=True, torch_device=device)
    found: Any = module.peft_config["default"]
    if (found.r, found.lora_alpha) != (rank, alpha):
        raise RationalesError(
            f"the adapter in {start} has rank {found.r} and alpha {found.lora_alpha}: "
            "give the same with --lora-rank and --lora-alpha"
        )
    return module
