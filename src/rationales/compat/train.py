"""Fine-tuning for compatibility: word dropout on a causal model, with an adapter or in full.

The texts become rows, the run gets its folder, the learner learns, the result is written: an
adapter (or a model) and ``compat.json``, which says how it came about. The same options in the same
folder go on where a run stopped.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

import rationales
from rationales.compat.adapter import RECORD, WEIGHTS, check_base, read_record
from rationales.compat.inputs import check_model
from rationales.compat.learner import Learner, StepReport
from rationales.compat.options import SELF, TrainOptions
from rationales.compat.rows import Rows
from rationales.compat.run import RunFolder
from rationales.compat.samples import sample_rows
from rationales.compat.text import TextFile, pack, read_text
from rationales.errors import RationalesError
from rationales.models import (
    DEFAULT_MODEL,
    LoadedModel,
    Progress,
    check_bfloat16,
    fingerprints,
    is_default,
    load_model,
)
from rationales.text import prefix_ids

__all__ = ["StepReport", "TrainOptions", "TrainResult", "TrainingInterrupted", "train"]

_FORMAT = 1


@dataclass(frozen=True)
class TrainResult:
    """A finished run: its folder, and what its record says of it."""

    folder: Path
    steps: int
    tokens: int
    seconds: float
    loss: float
    """The mean of the last hundred steps."""


class TrainingInterrupted(KeyboardInterrupt):
    """The run was interrupted; ``step`` is that of the checkpoint it goes on from."""

    def __init__(self, folder: Path, step: int) -> None:
        super().__init__("interrupted")
        self.folder = folder
        self.step = step


def train(
    options: TrainOptions,
    *,
    on_step: Callable[[StepReport], None] | None = None,
    progress: Progress | None = None,
) -> TrainResult:
    """The finished run of these options: begun, gone on with, or found as it was finished before.

    ``on_step`` hears of every step, ``progress`` of what comes before the first.
    """
    accelerator = Accelerator(cpu=options.cpu)
    is_main = accelerator.is_main_process
    if not is_main:
        on_step = progress = None
    if options.batch % accelerator.num_processes:
        raise RationalesError(
            f"--batch {options.batch} cannot be shared among {accelerator.num_processes} "
            "processes: take a multiple of that"
        )
    if options.dtype == "bfloat16" and accelerator.device.type == "cpu":
        check_bfloat16()
    files = [read_text(path) for path in options.files]
    loaded = load_model(
        options.model, dtype="float32", device=str(accelerator.device), progress=progress
    )
    check_model(loaded.model, options.length)
    identity = _identity(loaded, files, options)
    run = RunFolder(options.out)
    with run.opened(identity, options.overwrite) if is_main else nullcontext():
        accelerator.wait_for_everyone()
        record = run.record()
        if record is None:
            rows = _rows(loaded, files, options, run, accelerator, progress)
            learner = Learner(loaded.model, rows, options, accelerator)
            try:
                learner.learn(run, on_step)
            except KeyboardInterrupt as interrupt:
                raise TrainingInterrupted(run.path, run.last_step()) from interrupt
            name = identity["base"]["name"]
            record = {
                "command": options.command(name, [file.name for file in files]),
                **identity,
                **learner.summary(),
                "data": _data(files, rows),
                "versions": versions("torch", "transformers", "peft", "accelerate"),
            }
            if is_main:
                with run.finishing() as folder:
                    learner.student.save(folder, name, loaded.tokenizer)
                    record["files"] = sorted(file.name for file in folder.iterdir())
                    text = json.dumps(record, indent=2, ensure_ascii=False)
                    (folder / RECORD).write_text(text + "\n", encoding="utf-8")
            accelerator.wait_for_everyone()
    numbers = {name: record[name] for name in ("steps", "tokens", "seconds", "loss")}
    return TrainResult(folder=run.path, **numbers)


def _identity(loaded: LoadedModel, files: list[TextFile], options: TrainOptions) -> dict[str, Any]:
    """What makes two runs the same one, without a path of this machine."""
    name = _public_name(options.model)
    return {
        "format": _FORMAT,
        "base": {"name": name, "fingerprints": fingerprints(loaded.model)},
        "options": options.recorded(),
        **({"start": _start(loaded, options.start)} if options.start is not None else {}),
        "data": [{"name": file.name, "sha256": file.sha256} for file in files],
    }


def _start(loaded: LoadedModel, folder: str | Path) -> dict[str, Any]:
    """Which adapter a run goes on from, and how that one came about."""
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
    accelerator: Accelerator,
    progress: Progress | None,
) -> Rows:
    """The rows of the files and, if asked for, of the model's own text."""
    packed: list[torch.Tensor] = []
    for file in files:
        if progress is not None:
            progress("reading", len(packed) / len(files))
        packed.append(pack(file.text, loaded.tokenizer, options.length))
        if not len(packed[-1]):
            raise RationalesError(
                f"{file.name} is too short: it does not fill a row of {options.length} tokens "
                "(--length)"
            )
    nothing = torch.empty(0, options.length, dtype=torch.int32)
    rows = torch.cat(packed) if packed else nothing
    own = nothing
    if options.own_share:
        if accelerator.is_main_process and run.load_samples() is None:
            own = sample_rows(
                loaded.model,
                loaded.tokenizer,
                (options.self_rows, options.length),
                seed=options.seed,
                starts=rows[:, 0] if len(rows) else None,
                progress=partial(progress, "sampling") if progress is not None else None,
            )
            run.save_samples(own)
        accelerator.wait_for_everyone()
        sampled = run.load_samples()
        assert sampled is not None
        own = sampled
    pinned = len(prefix_ids(loaded.tokenizer))
    return Rows(rows, own, options.own_share, options.seed, pinned)


def _data(files: list[TextFile], rows: Rows) -> list[dict[str, Any]]:
    """What was learned from, for the record."""
    data: list[dict[str, Any]] = [{"name": file.name, "sha256": file.sha256} for file in files]
    if len(rows.own):
        digest = hashlib.sha256(rows.own.numpy().astype("<i4").tobytes()).hexdigest()
        data.append({"name": SELF, "sha256": digest})
    return data


def versions(*packages: str) -> dict[str, str]:
    """The versions of what a run depends on."""
    found = {"python": platform.python_version(), "rationales": rationales.__version__}
    for name in packages:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
