"""The loop that trains: rows and subsets in, a step of AdamW at a time.

    for each step:
        rows, subsets  =  functions of (seed, step)
        loss           =  mean over all targets of KL(teacher ‖ student), or of -log f(y_t | y_S),
                          full contexts by their weight
        AdamW, at a rate that rises over the warmup and then falls in a line to zero

Nothing else is random. So a run that was killed and goes on from a checkpoint ends in the same
weights as one that was not, bit for bit, on the same device and for a number of steps; a run that
is bounded by time goes on with the time that it had left.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast

from rationales.compat.inputs import MaskedPass
from rationales.compat.losses import data_loss, distill_loss
from rationales.compat.options import TrainOptions
from rationales.compat.rows import Rows, generator
from rationales.compat.run import RunFolder, State
from rationales.compat.student import make_student, trained_weights
from rationales.compat.subsets import DISTRIBUTIONS, mixture
from rationales.errors import RationalesError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_RECENT = 100
_LONGEST_GRADIENT = 1.0


@dataclass(frozen=True)
class StepReport:
    """How a run stands after a step: the loss is the mean of the last hundred steps."""

    step: int
    fraction: float
    loss: float
    tokens_per_second: float


class Learner:
    """A student, its optimizer, and how far they are."""

    def __init__(
        self,
        model: PreTrainedModel,
        rows: Rows,
        options: TrainOptions,
        accelerator: Accelerator,
    ) -> None:
        self.student = make_student(model, options)
        self._rows, self._options, self._accelerator = rows, options, accelerator
        self._masked_pass = MaskedPass(model)
        self._draw = mixture(DISTRIBUTIONS[options.distribution], options.mixture, rows.pinned)
        self._weights = trained_weights(self.student.module)
        self._module, self._optimizer = accelerator.prepare(
            self.student.module,
            torch.optim.AdamW(self._weights.values(), lr=options.highest_rate, weight_decay=0.0),
        )
        self._step, self._seconds = 0, 0.0
        self._losses: deque[float] = deque(maxlen=_RECENT)
        self._paces: deque[float] = deque(maxlen=20)
        self._is_updating = False

    def learn(self, run: RunFolder, on_step: Callable[[StepReport], None] | None = None) -> None:
        """Take steps until the run is finished, from its last checkpoint on."""
        if (state := run.load()) is not None:
            self._restore(state)
        try:
            while self._agreed(self._fraction()) < 1:
                self._take_step()
                if self._step % self._options.checkpoint_every == 0:
                    self._save(run)
                if on_step is not None:
                    on_step(self._report())
        except KeyboardInterrupt:
            # Between two updates the weights are those of the last step, and worth keeping.
            if self._step and not self._is_updating:
                self._save(run)
            raise

    def summary(self) -> dict[str, Any]:
        """Steps, tokens, seconds and the loss in the end."""
        return {
            "steps": self._step,
            "tokens": self._step * self._options.batch * self._options.length,
            "seconds": round(self._seconds, 1),
            "loss": self._recent_loss(),
        }

    def _take_step(self) -> None:
        began = time.monotonic()
        middle = self._agreed(self._fraction(ahead=0.5))
        rate = self._options.highest_rate * schedule(middle, self._options.warmup)
        loss = self._gradients()
        if not math.isfinite(loss):
            raise RationalesError(
                f"the loss is {loss} at step {self._step + 1}: lower --learning-rate"
            )
        self._accelerator.clip_grad_norm_(self._weights.values(), _LONGEST_GRADIENT)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._is_updating = True
        self._optimizer.step()
        self._step += 1
        self._is_updating = False
        self._optimizer.zero_grad()
        self._losses.append(loss)
        self._paces.append(time.monotonic() - began)
        self._seconds += self._paces[-1]

    def _gradients(self) -> float:
        """The loss of the next step, whose gradients are then in place: the mean over targets."""
        options, accelerator = self._options, self._accelerator
        draw = generator(options.seed, "subsets", self._step)
        ids = self._rows.batch(self._step, options.batch)
        keep = self._draw(options.batch, options.length, self._masked_pass.heads, draw)
        own = slice(accelerator.process_index, None, accelerator.num_processes)
        ids, keep = ids[own].to(accelerator.device), keep[own].to(accelerator.device)
        batches = list(
            zip(*(torch.split(t, options.micro_batch) for t in (ids, keep)), strict=True)
        )
        self._optimizer.zero_grad()  # of a step that was interrupted
        total = torch.zeros((), device=accelerator.device)
        for number, (some_ids, some_keep) in enumerate(batches, start=1):
            # Processes add up their gradients once, after the last of their passes.
            waits = number < len(batches)
            with accelerator.no_sync(self._module) if waits else nullcontext():
                loss = self._loss(some_ids, some_keep) / len(ids)
                accelerator.backward(loss)
            total += loss.detach()
        return float(accelerator.reduce(total, "mean"))

    def _loss(self, ids: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        """The sum over rows of the mean loss of their targets, in one pass of the student."""
        device = self._accelerator.device.type
        weights = row_weights(keep, self._options.mixture, self._options.full_weight)
        with torch.autocast(device, torch.bfloat16, enabled=self._options.dtype == "bfloat16"):
            if self._options.loss == "data":
                student = self._masked_pass(self._module, ids, keep)
                return data_loss(student, ids, weights) / (ids.shape[1] - 1)
            with self.student.teacher() as teacher:
                soft_targets = self._masked_pass(teacher, ids, None)
            student = self._masked_pass(self._module, ids, keep)
            return distill_loss(student, soft_targets, weights) / ids.shape[1]

    def _fraction(self, ahead: float = 0.0) -> float:
        """How much of the run is done, or will be so many steps ahead."""
        if self._options.total_steps is not None:
            return (self._step + ahead) / self._options.total_steps
        assert self._options.minutes is not None
        pace = sum(self._paces) / max(1, len(self._paces))
        return min(1.0, (self._seconds + ahead * pace) / (60 * self._options.minutes))

    def _agreed(self, fraction: float) -> float:
        """The fraction of the first process, in all of them: their clocks differ."""
        if self._accelerator.num_processes == 1:
            return fraction
        return float(broadcast(torch.tensor(fraction, device=self._accelerator.device)))

    def _report(self) -> StepReport:
        tokens = self._options.batch * self._options.length * len(self._paces)
        return StepReport(
            step=self._step,
            fraction=self._fraction(),
            loss=self._recent_loss(),
            tokens_per_second=tokens / sum(self._paces),
        )

    def _recent_loss(self) -> float:
        return sum(self._losses) / max(1, len(self._losses))

    def _save(self, run: RunFolder) -> None:
        if self._accelerator.is_main_process:
            weights = {name: weight.detach() for name, weight in self._weights.items()}
            optimizer = self._optimizer.state_dict()
            run.save(State(self._step, self._seconds, list(self._losses), weights, optimizer))

    @torch.no_grad()
    def _restore(self, state: State) -> None:
        for name, weight in self._weights.items():
            weight.copy_(state.weights[name])
        self._optimizer.load_state_dict(state.optimizer)
        self._step, self._seconds = state.step, state.seconds
        self._losses.extend(state.losses)


def row_weights(keep: torch.Tensor, mixture: float, full_weight: float) -> torch.Tensor:
    """What each row counts: full ones so many times as much as others, and one on average."""
    is_full = keep.flatten(1).all(-1)
    average = mixture + (1 - mixture) * full_weight
    return torch.where(is_full, full_weight, 1.0) / average


def schedule(fraction: float, warmup: float) -> float:
    """The share of the highest learning rate: up to 1 over the warmup, then down to 0."""
    if fraction < warmup:
        return fraction / warmup
    return (1 - fraction) / (1 - warmup) if warmup < 1 else 1.0
