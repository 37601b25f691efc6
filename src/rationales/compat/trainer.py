"""Training under subsets, on transformers' Trainer.

    for each step:
        rows, subsets  =  functions of the seed and their numbers (rows.py)
        loss           =  mean over all targets of KL(teacher ‖ student), or of -log f(y_t | y_S)
        AdamW, at the rate that the schedule gives for the steps and seconds done

The Trainer accumulates micro-batches, shares rows among processes, and writes checkpoints. A run
for a number of steps that was killed ends in the same weights as an unbroken one, bit for bit, on
the same device; a run that is bounded by time continues with the time that it had left.
"""

from __future__ import annotations

import math
import shutil
import time
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from accelerate.utils import broadcast
from safetensors.torch import load_file, save_file
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import TrainerState

from rationales.compat.inputs import MaskedPass
from rationales.compat.losses import data_loss, distill_loss
from rationales.compat.rows import Rows, generator
from rationales.errors import RationalesError, RationalesWarning, first_line
from rationales.models.files import quietly

if TYPE_CHECKING:
    from transformers import TrainerControl

_RECENT = 100
_ENDLESS = 10**9
_WEIGHTS = "model.safetensors"


class Schedule(Protocol):
    """How long a model learns, and how fast at which time."""

    def fraction(self, step: int, seconds: float) -> float:
        """The part of the training that is done after these steps and seconds; 1 at its end."""
        ...

    def rate(self, step: int, seconds: float) -> float:
        """The share of the highest learning rate for a step, counted from 0."""
        ...


class SubsetTrainer(Trainer):
    """Trains a causal model to predict from subsets; the loss of every step is logged."""

    def __init__(
        self,
        model: torch.nn.Module,
        masked_pass: MaskedPass,
        rows: Rows,
        arguments: TrainingArguments,
        schedule: Schedule,
        *,
        teacher: Callable[[torch.Tensor], torch.Tensor] | None = None,
        weigh: Callable[[torch.Tensor], torch.Tensor] | None = None,
        weight_dropout: bool = False,
        on_step: Callable[[SubsetTrainer], None] = lambda _: None,
    ) -> None:
        """``teacher`` gives the logits that rows of ids are held to; None: the next token is.

        ``weigh`` gives the weight of each row, from what is kept of it. With ``weight_dropout``,
        activations are dropped as well as words, as the model's configuration says.
        """
        super().__init__(model=model, args=arguments, train_dataset=rows)
        self.model: torch.nn.Module = model
        self.remove_callback(PrinterCallback)
        self.add_callback(_Clock(self))
        self.schedule = schedule
        self.seconds = 0.0
        """The time of all steps so far, over all processes that worked on the run."""
        self.saved_step = 0
        """The step of the newest checkpoint."""
        self.is_between_steps = False
        self._masked_pass, self._teacher, self._weigh = masked_pass, teacher, weigh
        self._weight_dropout, self._on_step = weight_dropout, on_step

    def run(self) -> None:
        """Train to the end, from the newest checkpoint on that can be read, if there is one.

        An interrupt between two steps saves a checkpoint first.
        """
        checkpoint = last_checkpoint(Path(str(self.args.output_dir)))
        if checkpoint is not None:
            self.saved_step = _step_of(checkpoint)
            self.state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
            self.seconds = self.state.log_history[-1]["seconds"]
            if self.fraction >= 1:  # the Trainer would do one step more
                self._load_from_checkpoint(str(checkpoint))
                return
        try:
            with quietly():
                self.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
                self.model.train(False)
        except KeyboardInterrupt:
            if self.is_between_steps:  # the weights are those of the last step
                self._save_checkpoint(self.model_wrapped, None)
            raise

    @property
    def recent_loss(self) -> float:
        """The mean loss of the last hundred steps."""
        losses = [entry["loss"] for entry in self.state.log_history]
        return sum(losses) / max(1, len(losses))

    @property
    def fraction(self) -> float:
        """The part of the training that is done."""
        return self.schedule.fraction(self.state.global_step, self.seconds)

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, torch.Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> torch.Tensor:
        """The mean over all targets of the rows, in one pass."""
        ids, keep = inputs["ids"], inputs.get("keep")
        model.train(self._weight_dropout)  # the Trainer drops activations by default
        with self.accelerator.autocast():
            if self._teacher is None:
                losses = data_loss(self._masked_pass(model, ids[:, :-1], keep), ids[:, 1:])
            else:
                with torch.no_grad():
                    soft_targets = self._teacher(ids)
                losses = distill_loss(self._masked_pass(model, ids, keep), soft_targets)
        return (losses if self._weigh is None else losses * self._weigh(inputs["keep"])).mean()

    def create_scheduler(
        self, num_training_steps: int, optimizer: Any = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        """The learning rates of the schedule."""
        assert self.optimizer is not None
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: self.schedule.rate(step, self.seconds)
        )
        return self.lr_scheduler

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Keep the loss of a step, and tell of it; raise if it is no number."""
        if "loss" not in logs:  # the summary at the end
            return
        if not math.isfinite(logs["loss"]):
            raise RationalesError(
                f"the loss is {logs['loss']} at step {self.state.global_step}: "
                "give a lower learning rate, or another seed"
            )
        super().log(logs | {"seconds": self.seconds}, start_time)
        del self.state.log_history[:-_RECENT]
        self.is_between_steps = True
        self._on_step(self)

    # A checkpoint holds the trained weights alone, by name, whether they are an adapter's or all.

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        self.saved_step = self.state.global_step

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        folder = Path(str(output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        weights = {name: w.detach().cpu().contiguous() for name, w in self._trained()}
        save_file(weights, folder / _WEIGHTS)

    @torch.no_grad()
    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        saved = load_file(Path(resume_from_checkpoint) / _WEIGHTS)
        for name, weight in self._trained():
            weight.copy_(saved[name])

    def _trained(self) -> list[tuple[str, torch.nn.Parameter]]:
        return [(name, w) for name, w in self.model.named_parameters() if w.requires_grad]


class _Clock(TrainerCallback):
    """Counts the seconds of the steps, and ends the training when the schedule is done."""

    def __init__(self, trainer: SubsetTrainer) -> None:
        self._trainer = trainer
        self._began = 0.0

    def on_step_begin(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        # What a step drops of the activations is a function of its number, too.
        draws = generator(args.seed, f"dropout {args.process_index}", state.global_step)
        torch.manual_seed(draws.initial_seed())
        self._began = time.monotonic()

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        self._trainer.is_between_steps = False

    def on_optimizer_step(self, args: TrainingArguments, *_: Any, **__: Any) -> None:
        seconds = self._trainer.seconds + time.monotonic() - self._began
        if args.world_size > 1:  # clocks differ: that of the first process counts
            seconds = float(broadcast(torch.tensor(seconds, device=args.device)))
        self._trainer.seconds = seconds

    def on_step_end(self, args: Any, state: Any, control: TrainerControl, **_: Any) -> None:
        control.should_training_stop |= self._trainer.fraction >= 1


def training_arguments(
    folder: Path,
    *,
    steps: int | None,
    batch: int,
    micro_batch: int,
    cpu: bool = False,
    **others: Any,
) -> TrainingArguments:
    """The Trainer's arguments for checkpoints in this folder; steps None: the schedule ends it."""
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps or _ENDLESS,
        use_cpu=cpu or not torch.accelerator.is_available(),
        optim="adamw_torch",
        train_sampling_strategy="sequential",  # the rows have an order of their own
        remove_unused_columns=False,
        dataloader_pin_memory=not cpu and torch.accelerator.is_available(),
        ddp_find_unused_parameters=False,
        logging_steps=1,
        logging_nan_inf_filter=False,
        save_total_limit=2,
        disable_tqdm=True,
        report_to="none",
        **others,
    )
    arguments._n_gpu = min(1, arguments.n_gpu)  # one device a process: more come by `launch`
    if batch % arguments.world_size:
        raise RationalesError(
            f"--batch {batch} cannot be shared among {arguments.world_size} processes: "
            "give a multiple of that"
        )
    rows = batch // arguments.world_size
    passes = next(n for n in range(1, rows + 1) if rows % n == 0 and rows // n <= micro_batch)
    arguments.per_device_train_batch_size = rows // passes
    arguments.gradient_accumulation_steps = passes
    return arguments


def last_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint in a folder that can be read; None if there is none at all.

    One that cannot be read is named in a warning; if no other can, that is an error.
    """
    damaged: list[str] = []
    for path in sorted(folder.glob("checkpoint-*"), key=_step_of, reverse=True):
        if not (path / TRAINER_STATE_NAME).exists():  # written last: the process was killed before
            shutil.rmtree(path, ignore_errors=True)
            continue
        try:
            _check(path)
        except Exception as error:  # whatever torch, safetensors or json make of damaged files
            damaged.append(f"{path.name} ({first_line(error)})")
            continue
        if damaged:
            message = f"cannot read {', '.join(damaged)} in {folder}: going on from {path.name}"
            warnings.warn(message, RationalesWarning, stacklevel=2)
        return path
    if damaged:
        raise RationalesError(
            f"cannot read any checkpoint in {folder}: {', '.join(damaged)}; "
            "remove that folder to begin again at step 0"
        )
    return None


def _step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def _check(checkpoint: Path) -> None:
    """Raise if a file of a checkpoint is damaged."""
    TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
    load_file(checkpoint / _WEIGHTS)
    for name in ("optimizer.pt", "scheduler.pt"):
        with zipfile.ZipFile(checkpoint / name) as archive:
            if archive.testzip() is not None:
                raise ValueError(f"{name} has a wrong checksum")
