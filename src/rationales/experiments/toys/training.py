"""Small models trained from scratch: Adam, a rate that falls with the square root of the step.

    rate(s) = highest · min(s / warmup, √(warmup / s)), and in a line to zero over the last steps

The rows, the subsets and the dropped weights of a step are functions of the seed and the number of
the step alone, so a run that was killed goes on from its checkpoint and ends in the same weights.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from safetensors import safe_open
from safetensors.torch import load_model, save_model

from rationales.compat.inputs import MaskedPass
from rationales.compat.rows import generator
from rationales.compat.run import RunFolder, State
from rationales.compat.student import trained_weights
from rationales.compat.subsets import Distribution
from rationales.errors import RationalesError
from rationales.runs import PARTS
from rationales.runs import RunFolder as Folder

if TYPE_CHECKING:
    from transformers import GPT2Config, PreTrainedModel

Progress = Callable[[str, float, float | None, str], None]
"""Called with what is being done, how much of it is done, of how much, and a short note."""

_LONGEST_GRADIENT = 1.0


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

    def fraction(self, step: int, seconds: float) -> float:
        """How much of the training is done after so many steps."""
        return step / self.steps

    def rate(self, step: int, seconds: float = 0.0) -> float:
        """The learning rate of a step, counted from 0."""
        left = (self.steps - step) / max(1.0, self.cooldown * self.steps)
        return self.learning_rate * inverse_square_root(step, self.warmup) * min(1.0, left)


class Plan(Protocol):
    """How long a model learns, and how fast at which time."""

    @property
    def checkpoint_every(self) -> int:
        """Steps between checkpoints."""
        ...

    def fraction(self, step: int, seconds: float) -> float:
        """How much of the training is done after so many steps and seconds: 1 in the end."""
        ...

    def rate(self, step: int, seconds: float) -> float:
        """The learning rate of a step, counted from 0, that begins after so many seconds."""
        ...


class Learned(NamedTuple):
    """How many steps a model has learned for, in how many seconds, and the loss of the last one."""

    steps: int
    seconds: float
    loss: float


def inverse_square_root(step: int, warmup: int) -> float:
    """The share of the highest rate that a step, counted from 0, learns at."""
    number = step + 1
    return min(number / warmup, math.sqrt(warmup / number))


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
    folder: Folder,
    progress: Progress,
) -> float:
    """The seconds that the training took; the model is then trained, now or in an earlier run."""
    name = f"{task.name}.safetensors"
    weights = folder.path / PARTS / name
    if weights.exists():
        load_model(model, weights)
        with safe_open(weights, framework="pt") as file:
            return float(file.metadata()["seconds"])
    checkpoints = folder.path / PARTS / f"{task.name}-training"
    seconds = _train(model, task, schedule, checkpoints, progress)
    with folder.writing(f"{PARTS}/{name}") as path:
        save_model(model, str(path), metadata={"seconds": f"{seconds:.1f}"})
    shutil.rmtree(checkpoints, ignore_errors=True)
    return round(seconds, 1)


def untrained_gpt2(config: GPT2Config, seed: int) -> PreTrainedModel:
    """A GPT-2 of this configuration whose weights are a function of the seed."""
    from transformers import GPT2LMHeadModel

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator(seed, "weights", 0).initial_seed())
        model: PreTrainedModel = GPT2LMHeadModel(config)  # type: ignore[no-untyped-call]
    model.train(False)
    return model


def learn(
    model: PreTrainedModel,
    loss_of: Callable[[int], torch.Tensor],
    plan: Plan,
    run: RunFolder,
    on_step: Callable[[int, float, float], None],
) -> Learned:
    """How long the training was, from the last checkpoint on if there is one.

    ``loss_of`` gives the loss of a step, counted from 0, as a function of its number alone;
    ``on_step`` hears how many steps are done, in how many seconds, and the loss of the last one.
    The time that it takes for itself is not counted.
    """
    weights = trained_weights(model)
    optimizer = torch.optim.Adam(weights.values(), betas=(0.9, 0.98))
    step, seconds, value = 0, 0.0, math.nan
    if (state := run.load()) is not None:
        with torch.no_grad():
            for name, weight in weights.items():
                weight.copy_(state.weights[name])
        optimizer.load_state_dict(state.optimizer)
        step, seconds, value = state.step, state.seconds, state.losses[-1]
    model.train()  # weights are dropped, if the model's configuration says so
    while plan.fraction(step, seconds) < 1:
        began = time.monotonic()
        loss = loss_of(step)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise RationalesError(f"the loss is {value} at step {step + 1}: take another --seed")
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch
        torch.nn.utils.clip_grad_norm_(weights.values(), _LONGEST_GRADIENT)
        for group in optimizer.param_groups:
            group["lr"] = plan.rate(step, seconds)
        optimizer.step()
        step, seconds = step + 1, seconds + time.monotonic() - began
        if step % plan.checkpoint_every == 0 or plan.fraction(step, seconds) >= 1:
            kept = {name: weight.detach() for name, weight in weights.items()}
            run.save(State(step, seconds, [value], kept, optimizer.state_dict()))
        on_step(step, seconds, value)
    model.train(False)
    return Learned(step, seconds, value)


def _train(
    model: PreTrainedModel, task: Task, schedule: Schedule, checkpoints: Path, progress: Progress
) -> float:
    """The seconds of the training, from the last checkpoint on if there is one."""
    checkpoints.mkdir(parents=True, exist_ok=True)
    masked_pass = MaskedPass(model)

    def tell(done: int, seconds: float, loss: float) -> None:
        left = seconds / done * (schedule.steps - done)
        note = f"loss {loss:.3f} · {left // 60:.0f}:{left % 60:02.0f} left"
        progress(f"training {task.name}", done, schedule.steps, note)

    def loss_of(step: int) -> torch.Tensor:
        return _loss(model, masked_pass, task, schedule.batch, step)

    return learn(model, loss_of, schedule, RunFolder(checkpoints), tell).seconds


def _loss(
    model: PreTrainedModel, masked_pass: MaskedPass, task: Task, batch: int, step: int
) -> torch.Tensor:
    """The mean of -log f(y_t | y_S) over the targets of the rows of a step."""
    ids = _batch(task, batch, step)
    keep = None
    if task.draw is not None:
        of_step = generator(task.seed, "subsets", step)
        keep = task.draw(batch, ids.shape[1] - 1, masked_pass.heads, of_step)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator(task.seed, "dropped weights", step).initial_seed())
        logits = masked_pass(model, ids[:, :-1], keep)
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def _batch(task: Task, batch: int, step: int) -> torch.Tensor:
    """The rows of a step: all rows in a random order, then again in another one."""
    numbers = torch.arange(step * batch, (step + 1) * batch)
    epochs = numbers // len(task.rows)
    chosen = [
        _order(task.seed, epoch, len(task.rows))[numbers[epochs == epoch] % len(task.rows)]
        for epoch in range(int(epochs[0]), int(epochs[-1]) + 1)
    ]
    return task.rows[torch.cat(chosen)].long()


@lru_cache(maxsize=2)
def _order(seed: int, epoch: int, rows: int) -> torch.Tensor:
    return torch.randperm(rows, generator=generator(seed, "rows", epoch))
