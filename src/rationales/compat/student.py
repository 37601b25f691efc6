"""What is trained, and the teacher it is held to: an adapter on frozen weights, or all weights.

The teacher is the model as it was. For an adapter that is the same model with the adapter switched
off, which costs no memory; for all weights it is a frozen copy.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from rationales.compat.adapter import WEIGHTS
from rationales.compat.options import TrainOptions
from rationales.compat.rows import generator
from rationales.errors import RationalesError, first_line
from rationales.models import save_model
from rationales.text import Tokenizer

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from transformers import PreTrainedModel


class Student(Protocol):
    """A model in training: its module, its teacher, and how it is saved."""

    module: Any

    def teacher(self) -> AbstractContextManager[torch.nn.Module]:
        """A context with the model as it was, whose predictions are the soft targets."""
        ...

    def save(self, folder: Path, name: str, tokenizer: Tokenizer) -> None:
        """Write what was learned to a folder; ``name`` is that of the base model."""
        ...


def make_student(model: PreTrainedModel, options: TrainOptions) -> Student:
    """The student that the options ask for; the model becomes a part of it."""
    return LoraStudent(model, options) if options.method == "lora" else FullStudent(model, options)


def trained_weights(module: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """The parameters that gradients flow to, by name."""
    return {name: weight for name, weight in module.named_parameters() if weight.requires_grad}


class LoraStudent:
    """Low-rank additions to all linear layers but the last, W x + (alpha / rank) · B A x."""

    def __init__(self, model: PreTrainedModel, options: TrainOptions) -> None:
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
            # No dropout of weights: in evaluation mode, what is dropped is words.
            self.module = get_peft_model(model.requires_grad_(False), config).eval()
        if options.start is not None:
            _go_on_from(self.module, Path(options.start), options)

    @contextmanager
    def teacher(self) -> Iterator[torch.nn.Module]:
        with torch.no_grad(), self.module.disable_adapter():
            yield self.module

    def save(self, folder: Path, name: str, tokenizer: Tokenizer) -> None:
        from peft import get_peft_model_state_dict
        from safetensors.torch import save_file

        # Without the embeddings: whether they changed, peft would ask the hub.
        weights = get_peft_model_state_dict(self.module, save_embedding_layers=False)
        halves = {key: weight.detach().half().cpu().contiguous() for key, weight in weights.items()}
        save_file(halves, folder / WEIGHTS, metadata={"format": "pt"})
        config: dict[str, Any] = self.module.peft_config["default"].to_dict()
        config |= {"base_model_name_or_path": name, "inference_mode": True}
        text = json.dumps(config, indent=2, sort_keys=True, default=sorted)  # sets
        (folder / "adapter_config.json").write_text(text + "\n", encoding="utf-8")


def _go_on_from(module: Any, folder: Path, options: TrainOptions) -> None:
    """Give the module the weights of an adapter that was trained before."""
    from peft import set_peft_model_state_dict
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        weights = load_file(folder / WEIGHTS)
    except (OSError, ValueError, SafetensorError) as error:
        raise RationalesError(f"cannot start from {folder}: {first_line(error)}") from error
    shape = (config.get("r"), config.get("lora_alpha"))
    if shape != (options.lora_rank, options.lora_alpha):
        raise RationalesError(
            f"the adapter in {folder} has rank {shape[0]} and alpha {shape[1]}: "
            "give the same with --lora-rank and --lora-alpha"
        )
    floats = {name: weight.float() for name, weight in weights.items()}
    set_peft_model_state_dict(module, floats)


class FullStudent:
    """All weights of the model."""

    def __init__(self, model: PreTrainedModel, options: TrainOptions) -> None:
        self._frozen = None
        if options.loss == "distill":
            self._frozen = copy.deepcopy(model).requires_grad_(False).train(False)
        self.module = model.requires_grad_(True).train(False)

    @contextmanager
    def teacher(self) -> Iterator[torch.nn.Module]:
        assert self._frozen is not None
        with torch.no_grad():
            yield self._frozen

    def save(self, folder: Path, name: str, tokenizer: Tokenizer) -> None:
        self.module.config._name_or_path = name
        save_model(self.module, tokenizer, folder)
