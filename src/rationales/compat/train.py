"""Fine-tuning for compatibility: word dropout on a causal model, with an adapter or in full.

    texts ─► rows ─► SubsetTrainer ─► adapter or model, and compat.json, which says how it was made

    run.json                        which run this is: options, data and base model
    parts/checkpoints/checkpoint-50 the newest two; removed when the run is finished
    parts/self.safetensors          the model's own text, if it was sampled
    compat.json                     the record of a finished run, written last

The same options in the same folder resume a run that stopped.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from rationales.compat.adapter import RECORD, WEIGHTS, check_base, read_record
from rationales.compat.inputs import MaskedPass, check_model
from rationales.compat.options import SELF, TrainOptions
from rationales.compat.rows import Rows, sample_rows
from rationales.compat.students import make_student, save_student
from rationales.compat.subsets import DISTRIBUTIONS, mixture
from rationales.compat.text import TextFile, pack, read_text
from rationales.compat.trainer import SubsetTrainer, last_step, training_arguments
from rationales.errors import RationalesError
from rationales.models import (
    DEFAULT_MODEL,
    LoadedModel,
    check_bfloat16,
    fingerprints,
    is_default,
    load_model,
)
from rationales.runs import PARTS, Progress, RunFolder, versions
from rationales.text import prefix_ids

if TYPE_CHECKING:
    from transformers import TrainingArguments

_FORMAT = 1
_SAMPLES = "self.safetensors"


@dataclass(frozen=True)
class TrainResult:
    """A finished run: its folder, and the numbers of its record."""

    folder: Path
    steps: int
    tokens: int
    seconds: float
    loss: float
    """The mean of the last hundred steps."""


class TrainingInterrupted(KeyboardInterrupt):
    """The run was interrupted; ``step`` is that of the checkpoint it can resume from."""

    def __init__(self, step: int) -> None:
        super().__init__("interrupted")
        self.step = step


def train(options: TrainOptions, *, progress: Progress | None = None) -> TrainResult:
    """The finished run of these options: begun, resumed, or found as it was finished before."""
    run = RunFolder(options.out, "compat train")
    checkpoints = run.parts / "checkpoints"
    arguments = training_arguments(
        checkpoints,
        steps=options.total_steps,
        batch=options.batch,
        micro_batch=options.micro_batch,
        cpu=options.cpu,
        bf16=options.dtype == "bfloat16",
        learning_rate=options.highest_rate,
        save_steps=options.checkpoint_every,
        seed=options.seed,
    )
    if options.dtype == "bfloat16" and arguments.device.type == "cpu":
        check_bfloat16()
    is_main = arguments.process_index == 0
    tell = progress if progress is not None and is_main else lambda *_: None
    files = [read_text(path) for path in options.files]
    loaded = load_model(
        options.model,
        dtype="float32",
        device=str(arguments.device),
        progress=lambda what, share: tell(what, share, 1.0, f"{share:.0%}"),
    )
    check_model(loaded.model, options.length)
    identity = _identity(loaded, files, options)
    with run.opened(identity, options.overwrite) if is_main else nullcontext():
        _wait(arguments)
        record = read_record(run.path) if (run.path / RECORD).exists() else None
        if record is None:
            rows = _rows(loaded, files, options, run, arguments, tell)
            trainer = _trainer(loaded, rows, options, arguments, tell)
            try:
                with run.explained("a checkpoint"):
                    trainer.run()
            except KeyboardInterrupt as interrupt:
                raise TrainingInterrupted(last_step(checkpoints)) from interrupt
            steps = trainer.state.global_step
            record = {
                "command": options.command(identity["base"]["name"], [file.name for file in files]),
                **identity,
                "steps": steps,
                "tokens": steps * options.batch * options.length,
                "seconds": round(trainer.seconds, 1),
                "loss": trainer.recent_loss,
                "data": _data(files, rows),
                "versions": versions(),
            }
            if is_main:
                _finish(run, record, partial(save_student, trainer.model, options), loaded)
                shutil.rmtree(checkpoints, ignore_errors=True)
                with suppress(OSError):
                    run.parts.rmdir()  # unless it holds the model's own text
            _wait(arguments)
    numbers = {name: record[name] for name in ("steps", "tokens", "seconds", "loss")}
    return TrainResult(folder=run.path, **numbers)


def _trainer(
    loaded: LoadedModel,
    rows: Rows,
    options: TrainOptions,
    arguments: TrainingArguments,
    tell: Progress,
) -> SubsetTrainer:
    """What trains the model of a run."""

    def on_step(trainer: SubsetTrainer) -> None:
        step = trainer.state.global_step
        pace = step * options.batch * options.length / max(1e-9, trainer.seconds)
        note = f"step {step:,} · loss {trainer.recent_loss:.3f} · {pace:,.0f} tok/s"
        tell("training", trainer.fraction, 1.0, note)

    masked_pass = MaskedPass(loaded.model)
    arguments.use_cache = bool(getattr(loaded.model.config, "use_cache", False))  # left as it is
    module, objective = make_student(loaded.model, options)
    return SubsetTrainer(module, masked_pass, rows, arguments, options, objective, on_step=on_step)


def _wait(arguments: TrainingArguments) -> None:
    """Return when all processes are here."""
    if arguments.distributed_state is not None:
        arguments.distributed_state.wait_for_everyone()


def _identity(loaded: LoadedModel, files: list[TextFile], options: TrainOptions) -> dict[str, Any]:
    """What makes two runs the same one, without a path of this machine."""
    return {
        "format": _FORMAT,
        "base": {"name": _public_name(options.model), "fingerprints": fingerprints(loaded.model)},
        "options": options.recorded(),
        **({"start": _start(loaded, options.start)} if options.start is not None else {}),
        "data": [{"name": file.name, "sha256": file.sha256} for file in files],
    }


def _start(loaded: LoadedModel, folder: str | Path) -> dict[str, Any]:
    """Which adapter a run continues from, and how that one was trained."""
    record = read_record(folder)
    check_base(loaded.model, record, folder)
    try:
        digest = hashlib.sha256((Path(folder) / WEIGHTS).read_bytes()).hexdigest()
    except OSError as error:
        raise RationalesError(f"cannot start from {folder}: {error.strerror or error}") from error
    kept = ("command", "start", "steps", "tokens", "seconds", "loss", "data")
    return {"sha256": digest, **{name: record[name] for name in kept if name in record}}


def _public_name(name: str | None) -> str:
    """The name of a model; of one that is a folder or a file, the last part of its path."""
    if name is None or is_default(name):
        return DEFAULT_MODEL
    path = Path(name).expanduser()
    return path.resolve().name if path.exists() else name


def _rows(
    loaded: LoadedModel,
    files: list[TextFile],
    options: TrainOptions,
    run: RunFolder,
    arguments: TrainingArguments,
    tell: Progress,
) -> Rows:
    """The rows of the files and, if asked for, of the model's own text, with their subsets."""
    packed = [torch.empty(0, options.length, dtype=torch.int32)]
    for number, file in enumerate(files):
        tell("reading", number, len(files), "")
        packed.append(pack(file.text, loaded.tokenizer, options.length))
        if not len(packed[-1]):
            raise RationalesError(
                f"{file.name} is too short: it does not fill a row of {options.length} tokens "
                "(--length)"
            )
    rows = torch.cat(packed)
    own = packed[0]
    if options.own_share:
        samples = run.parts / _SAMPLES
        if arguments.process_index == 0 and not samples.exists():
            sampled = sample_rows(
                loaded.model,
                loaded.tokenizer,
                (options.self_rows, options.length),
                seed=options.seed,
                starts=rows[:, 0] if len(rows) else None,
                progress=lambda share: tell("sampling", share, 1.0, f"{share:.0%}"),
            )
            with run.writing(f"{PARTS}/{_SAMPLES}") as path:
                save_file({"ids": sampled.contiguous()}, path)
        _wait(arguments)
        try:
            own = load_file(samples)["ids"]
        except (OSError, SafetensorError) as error:
            raise RationalesError(
                f"cannot read {samples}: remove it, and it is sampled again"
            ) from error
    draw = mixture(
        DISTRIBUTIONS[options.distribution], options.mixture, len(prefix_ids(loaded.tokenizer))
    )
    heads = MaskedPass(loaded.model).heads
    # The last token of a row is a target alone, if the next token is learned.
    length = options.length - (options.loss == "data")
    return Rows(
        rows,
        options.seed,
        count=arguments.max_steps * options.batch,
        own=own,
        own_share=options.own_share,
        draw=lambda generator: draw(1, length, heads, generator)[0],
    )


def _data(files: list[TextFile], rows: Rows) -> list[dict[str, Any]]:
    """What was learned from, for the record."""
    data: list[dict[str, Any]] = [{"name": file.name, "sha256": file.sha256} for file in files]
    if len(rows.own):
        digest = hashlib.sha256(rows.own.numpy().astype("<i4").tobytes()).hexdigest()
        data.append({"name": SELF, "sha256": digest})
    return data


def _finish(
    run: RunFolder, record: dict[str, Any], save: Callable[..., None], loaded: LoadedModel
) -> None:
    """Write the result of a run: files under another name first, and the record last."""
    with run.explained("the result"):
        work = run.parts / "result"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        save(work, record["base"]["name"], loaded.tokenizer)
        record["files"] = sorted(file.name for file in work.iterdir())
        run.record(record["files"])
        for name in record["files"]:
            (work / name).chmod(0o644)  # safetensors writes 0600
            (work / name).replace(run.path / name)
        work.rmdir()
    run.write(RECORD, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
