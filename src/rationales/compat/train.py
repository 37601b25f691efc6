"""Fine-tuning for compatibility: word dropout on a causal model, with an adapter or in full.

    texts ─► rows ─► SubsetTrainer ─► adapter or model, and compat.json, which says how it was made

    run.json                        which run this is: options, data and base model
    parts/checkpoints/checkpoint-50 the newest two; removed when the run is finished
    parts/self.json                 the model's own text, if it was sampled
    compat.json                     the record of a finished run, written last

The same options in the same folder resume a run that stopped.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate import PartialState

from rationales.compat.adapter import RECORD, WEIGHTS, check_adapter, check_base, read_record
from rationales.compat.inputs import MaskedPass, check_model
from rationales.compat.losses import row_weights
from rationales.compat.options import SELF, TrainOptions
from rationales.compat.rows import Rows, sample_rows
from rationales.compat.students import make_student, save_student
from rationales.compat.subsets import DISTRIBUTIONS, mixture
from rationales.compat.text import TextFile, pack, read_text
from rationales.compat.trainer import SubsetTrainer, training_arguments
from rationales.data import sha256
from rationales.errors import RationalesError
from rationales.models.default import DEFAULT_MODEL
from rationales.models.identity import fingerprints
from rationales.models.loading import LoadedModel, check_bfloat16, is_default, load_model
from rationales.runs import OnProgress, RunFolder, versions
from rationales.text import prefix_ids

if TYPE_CHECKING:
    from transformers import TrainingArguments

_FORMAT = 1


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


def train(options: TrainOptions, *, progress: OnProgress | None = None) -> TrainResult:
    """The finished run of these options: begun, resumed, or found as it was finished before."""
    run = RunFolder(options.out, "compat train")
    arguments = training_arguments(
        run.parts / "checkpoints",
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
    processes = PartialState()
    tell = progress if progress and processes.is_main_process else lambda *_: None
    files = [read_text(path) for path in options.files]
    loaded = load_model(
        options.model,
        dtype="float32",
        device=str(arguments.device),
        progress=lambda what, share: tell(what, share, 1.0, f"{share:.0%}"),
    )
    check_model(loaded.model, options.length)
    identity = _identity(loaded, files, options)
    compared = identity | {
        "base": identity["base"]["fingerprints"]["float32"],
        "data": [file["sha256"] for file in identity["data"]],
    }
    name = identity["base"]["name"]
    opened = run.opened(compared, options.overwrite, {"base": name})
    with opened if processes.is_main_process else nullcontext():
        processes.wait_for_everyone()
        if (run.path / RECORD).exists():
            record = read_record(run.path)
        else:
            rows = _rows(loaded, files, options, run, tell)
            trainer = _trainer(loaded, rows, options, arguments, tell)
            try:
                with run.explained("a checkpoint"):
                    trainer.run()
            except KeyboardInterrupt as interrupt:
                raise TrainingInterrupted(trainer.saved_step) from interrupt
            steps = trainer.state.global_step
            record = {
                "command": options.command(name, [file.name for file in files]),
                **identity,
                "steps": steps,
                "tokens": steps * options.batch * options.length,
                "seconds": round(trainer.seconds, 1),
                "loss": trainer.recent_loss,
                "data": [*identity["data"], *_own_data(rows)],
                "versions": versions(),
            }
            if processes.is_main_process:
                _write_result(run, record, trainer.model, loaded)
            processes.wait_for_everyone()
    numbers = {name: record[name] for name in ("steps", "tokens", "seconds", "loss")}
    return TrainResult(folder=run.path, **numbers)


def _identity(loaded: LoadedModel, files: list[TextFile], options: TrainOptions) -> dict[str, Any]:
    """What makes two runs the same one, without a path of this machine."""
    name = options.model
    if name is None or is_default(name):
        name = DEFAULT_MODEL
    elif (path := Path(name).expanduser()).exists():
        name = path.resolve().name
    return {
        "format": _FORMAT,
        "base": {"name": name, "fingerprints": fingerprints(loaded.model)},
        "options": options.recorded(),
        **({"start": _start(loaded, options.start)} if options.start is not None else {}),
        "data": [{"name": file.name, "sha256": file.sha256} for file in files],
    }


def _start(loaded: LoadedModel, folder: str | Path) -> dict[str, Any]:
    """Which adapter a run continues from, and how that one was trained."""
    record = check_adapter(folder)
    check_base(loaded.model, record, folder)
    kept = ("command", "start", "steps", "tokens", "seconds", "loss", "data")
    digest = sha256(Path(folder) / WEIGHTS)
    return {"sha256": digest, **{name: record[name] for name in kept if name in record}}


def _rows(
    loaded: LoadedModel,
    files: list[TextFile],
    options: TrainOptions,
    run: RunFolder,
    tell: OnProgress,
) -> Rows:
    """The rows of the files and, if asked for, of the model's own text, with their subsets."""
    model, tokenizer, length = loaded.model, loaded.tokenizer, options.length
    own = torch.empty(0, length, dtype=torch.int32)
    packed = [own]
    for number, file in enumerate(files):
        tell("reading", number, len(files), "")
        packed.append(pack(file.text, tokenizer, length))
        if not len(packed[-1]):
            raise RationalesError(
                f"{file.name} is too short: it does not fill a row of {length} tokens (--length)"
            )
    rows = torch.cat(packed)
    if options.own_share:

        def sample() -> list[list[int]]:
            sampled = sample_rows(
                model,
                tokenizer,
                (options.self_rows, length),
                seed=options.seed,
                starts=rows[:, 0] if len(rows) else None,
                progress=lambda share: tell("sampling", share, 1.0, f"{share:.0%}"),
            )
            return sampled.tolist()

        with PartialState().main_process_first():  # the others read what it has written
            own = torch.tensor(run.part(SELF, sample), dtype=torch.int32)
    draw = mixture(DISTRIBUTIONS[options.distribution], options.mixture, len(prefix_ids(tokenizer)))
    heads = MaskedPass(model).heads
    # The last token of a row is a target alone, if the next token is learned.
    drawn = length - (options.loss == "data")
    return Rows(
        rows,
        options.seed,
        own=own,
        own_share=options.own_share,
        draw=lambda generator: draw(1, drawn, heads, generator)[0],
    )


def _trainer(
    loaded: LoadedModel,
    rows: Rows,
    options: TrainOptions,
    arguments: TrainingArguments,
    tell: OnProgress,
) -> SubsetTrainer:
    """What trains the model of a run."""

    def on_step(trainer: SubsetTrainer) -> None:
        step = trainer.state.global_step
        pace = step * options.batch * options.length / max(1e-9, trainer.seconds)
        note = f"step {step:,} · loss {trainer.recent_loss:.3f} · {pace:,.0f} tok/s"
        tell("training", trainer.fraction, 1.0, note)

    masked_pass = MaskedPass(loaded.model)
    arguments.use_cache = bool(getattr(loaded.model.config, "use_cache", False))  # left as it is
    module, teacher = make_student(loaded.model, masked_pass, options)
    return SubsetTrainer(
        module,
        masked_pass,
        rows,
        arguments,
        options,
        teacher=teacher,
        weigh=partial(row_weights, mixture=options.mixture, full_weight=options.full_weight),
        on_step=on_step,
    )


def _own_data(rows: Rows) -> list[dict[str, str]]:
    """The model's own text, as a record names it; nothing if there is none."""
    digest = hashlib.sha256(rows.own.numpy().astype("<i4").tobytes()).hexdigest()
    return [{"name": SELF, "sha256": digest}] if len(rows.own) else []


def _write_result(
    run: RunFolder, record: dict[str, Any], module: torch.nn.Module, loaded: LoadedModel
) -> None:
    """Write what a run learned: files under another name first, and the record last."""
    with run.explained("the result"):
        work = run.parts / "result"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        save_student(module, loaded, record["base"]["name"], work)
        record["files"] = sorted(file.name for file in work.iterdir())
        run.record(record["files"])
        for name in record["files"]:
            (work / name).chmod(0o644)  # safetensors writes 0600
            (work / name).replace(run.path / name)
        work.rmdir()
    run.write(RECORD, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    shutil.rmtree(run.parts / "checkpoints", ignore_errors=True)
    with suppress(OSError):
        run.parts.rmdir()  # unless it holds the model's own text
