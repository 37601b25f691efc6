"""What is trained, and the teacher it is held to: an adapter on frozen weights, or all weights.

The teacher is the model as it was. For an adapter that is the same model with the adapter switched
off, which costs no memory; for all weights it is a frozen copy.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rationales.compat.adapter import WEIGHTS
from rationales.compat.losses import row_weights
from rationales.compat.options import TrainOptions
from rationales.compat.rows import generator
from rationales.compat.trainer import Objective
from rationales.errors import RationalesError, first_line
from rationales.models import save_model
from rationales.text import Tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CONFIG = "adapter_config.json"


def make_student(model: PreTrainedModel, options: TrainOptions) -> tuple[Any, Objective]:
    """The module that is trained, of which the model becomes a part, and what it is trained for."""
    weigh = partial(row_weights, mixture=options.mixture, full_weight=options.full_weight)
    teacher: Any = None
    if options.method == "lora":
        module = _with_adapter(model, options)
        teacher = partial(_adapter_off, module)
    else:
        module = model.requires_grad_(True)
        if options.loss == "distill":
            frozen = copy.deepcopy(model).requires_grad_(False).train(False)
            teacher = partial(nullcontext, frozen)
    return module, Objective(teacher if options.loss == "distill" else None, weigh)


def save_student(
    module: Any, options: TrainOptions, folder: Path, name: str, tokenizer: Tokenizer
) -> None:
    """Write what was learned to a folder; ``name`` is that of the base model."""
    if options.method == "full":
        module.config._name_or_path = name
        save_model(module, tokenizer, folder)
        return
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

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
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=options.lora_rank,
        lora_alpha=options.lora_alpha,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # GPT-2's transposed layers are noticed, and told of
        torch.manual_seed(generator(options.seed, "lora", 0).initial_seed())
        module: Any = get_peft_model(model.requires_grad_(False), config)
    if options.start is not None:
        _continue_from(module, Path(options.start), options)
    return module


def _continue_from(module: Any, folder: Path, options: TrainOptions) -> None:
    """Give the module the weights of an adapter that was trained before."""
    from peft import set_peft_model_state_dict
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        weights = load_file(folder / WEIGHTS)
    except (OSError, ValueError, SafetensorError) as error:
        raise RationalesError(f"cannot start from {folder}: {first_line(error)}") from error
    shape = (config.get("r"), config.get("lora_alpha"))
    if shape != (options.lora_rank, options.lora_alpha):
        raise RationalesError(
            f"the adapter in {folder} has rank {shape[0]} and alpha {shape[1]}: "
            "give the same with --lora-rank and --lora-alpha"
        )
    set_peft_model_state_dict(module, {name: weight.float() for name, weight in weights.items()})


@contextmanager
def _adapter_off(module: Any) -> Iterator[torch.nn.Module]:
    """A context with the module as it was before it had an adapter."""
    with module.disable_adapter():
        yield module
