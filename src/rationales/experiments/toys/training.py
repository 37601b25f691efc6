"""Small models trained from scratch: Adam, a rate that falls with the square root of the step.

    rate(s) = highest · min(s / warmup, √(warmup / s)), and in a line to zero over the last steps

A training that was killed resumes from its checkpoint and ends in the same weights.
"""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import torch
from annotated_types import Ge, Lt
from safetensors import safe_open
from safetensors.torch import load_model, save_model

from rationales.checking import check_fields
from rationales.compat.inputs import MaskedPass
from rationales.compat.options import Count
from rationales.compat.rows import Rows, generator
from rationales.compat.subsets import Distribution
from rationales.compat.trainer import SubsetTrainer, training_arguments
from rationales.errors import OptionError
from rationales.runs import PARTS, OnProgress, RunFolder

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class ModelSettings:
    """The seed and the architecture of a small GPT-2."""

    seed: Annotated[int, Ge(0)] = 0
    """Seed of everything that is random."""
    layers: Count = 4
    """Layers of the model."""
    heads: Count = 4
    """Attention heads of a layer."""
    width: Count = 128
    """Dimensions of the hidden states, a multiple of the heads."""
    weight_dropout: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Dropout after the embeddings and after each sublayer."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.width % self.heads:
            raise OptionError(
                "{width} must be a multiple of {heads}, not {value}",
                value=f"{self.width} with {self.heads} heads",
            )


@dataclass(frozen=True)
class Schedule:
    """How long and how fast a model learns."""

    steps: int
    batch: int
    """Rows of a step."""
    learning_rate: float
    """The highest of the run, at the end of the warmup."""
    warmup: int
    cooldown: float = 0.2
    """The share of the steps over which the rate falls to zero in the end."""
    checkpoint_every: int = 250

    def fraction(self, step: int, seconds: float = 0.0) -> float:
        """The part of the training that is done after these steps."""
        return step / self.steps

    def rate(self, step: int, seconds: float = 0.0) -> float:
        """The share of the highest learning rate for a step, counted from 0."""
        rising, falling = (step + 1) / self.warmup, math.sqrt(self.warmup / (step + 1))
        left = (self.steps - step) / max(1.0, self.cooldown * self.steps)
        return min(rising, falling) * min(1.0, left)


@dataclass(frozen=True)
class Task:
    """What is learned: the next token of each row, given all before it or a random subset of it."""

    name: str
    rows: torch.Tensor
    """(rows, length + 1): the last token of a row is predicted only."""
    seed: int
    draw: Distribution | None = None
    """The distribution of the subsets; None: every context is complete."""


def trained(
    model: PreTrainedModel,
    task: Task,
    schedule: Schedule,
    folder: RunFolder,
    progress: OnProgress,
) -> float:
    """The seconds that the training took; the model is then trained, now or in an earlier run."""
    weights = folder.parts / f"{task.name}.safetensors"
    if weights.exists():
        load_model(model, weights)
        with safe_open(weights, framework="pt") as file:
            return float(file.metadata()["seconds"])
    checkpoints = folder.parts / f"{task.name}-training"
    arguments = training_arguments(
        checkpoints,
        steps=schedule.steps,
        batch=schedule.batch,
        micro_batch=schedule.batch,
        cpu=True,
        learning_rate=schedule.learning_rate,
        adam_beta2=0.98,
        save_steps=schedule.checkpoint_every,
        seed=task.seed,
    )
    masked_pass, draw, length = MaskedPass(model), task.draw, task.rows.shape[1] - 1
    rows = Rows(
        task.rows,
        task.seed,
        draw=draw and (lambda generator: draw(1, length, masked_pass.heads, generator)[0]),
    )

    def on_step(trainer: SubsetTrainer) -> None:
        done = trainer.state.global_step
        left = trainer.seconds / done * (schedule.steps - done)
        note = f"loss {trainer.recent_loss:.3f} · {left // 60:.0f}:{left % 60:02.0f} left"
        progress(f"training {task.name}", done, schedule.steps, note)

    trainer = SubsetTrainer(
        model, masked_pass, rows, arguments, schedule, weight_dropout=True, on_step=on_step
    )
    trainer.run()
    with folder.writing(f"{PARTS}/{weights.name}") as path:
        save_model(model, str(path), metadata={"seconds": f"{trainer.seconds:.1f}"})
    shutil.rmtree(checkpoints, ignore_errors=True)
    return round(trainer.seconds, 1)


def untrained_gpt2(
    settings: ModelSettings, vocabulary: int, positions: int, **more: Any
) -> PreTrainedModel:
    """A GPT-2 of these settings; its weights are a function of the seed.

    ``more`` goes to its configuration.
    """
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=vocabulary,
        n_positions=positions,
        n_embd=settings.width,
        n_layer=settings.layers,
        n_head=settings.heads,
        embd_pdrop=settings.weight_dropout,
        resid_pdrop=settings.weight_dropout,
        attn_pdrop=0.0,
        **more,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator(settings.seed, "weights", 0).initial_seed())
        model: PreTrainedModel = GPT2LMHeadModel(config)  # type: ignore[no-untyped-call]
    model.train(False)
    return model
