"""The folder of a training run: what it is, its checkpoints, and in the end its result.

    run.json                    which run this is: options, data and base model
    checkpoints/step-00000050/  the last two; gone when the run is finished
    self.safetensors            the model's own text, if it was sampled
    compat.json                 the record of a finished run, written last, beside its weights

Whatever is written goes to a hidden folder first and is then renamed: a file or a checkpoint that
has its name is whole. A run of the same options goes on; any other is refused.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from rationales.compat.adapter import RECORD
from rationales.errors import RationalesError, first_line

RUN, CHECKPOINTS, SAMPLES = "run.json", "checkpoints", "self.safetensors"
_STATE = "state.pt"
_KEPT = 2


@dataclass
class State:
    """Where a run is: after ``step`` steps that took ``seconds``, with these weights."""

    step: int
    seconds: float
    losses: list[float]
    """Of the last steps."""
    weights: dict[str, torch.Tensor]
    optimizer: dict[str, Any]


class RunFolder:
    """The folder of one run, open for one process at a time; ``record``: the file of its record."""

    def __init__(self, path: str | Path, record: str = RECORD) -> None:
        self.path = Path(path).expanduser()
        self._record = record
        self._checkpoints = self.path / CHECKPOINTS
        self._last_saved: Path | None = None

    @contextmanager
    def opened(self, identity: dict[str, Any], overwrite: bool) -> Iterator[None]:
        """A context in which the folder holds this run and no other process writes to it."""
        from filelock import FileLock, Timeout

        lock = self.path / "run.lock"
        with self._writing("the run"):
            self.path.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(lock, timeout=0):
                self._claim(identity, overwrite)
                yield
        except Timeout as error:
            raise RationalesError(
                f"another process trains in {self.path}: wait for it, or give another --out"
            ) from error
        lock.unlink(missing_ok=True)

    def record(self) -> dict[str, Any] | None:
        """The record of the run if it is finished, else None."""
        try:
            record = json.loads((self.path / self._record).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return record if isinstance(record, dict) else None

    def save(self, state: State) -> None:
        """Write a checkpoint; the last two are kept."""
        target = self._checkpoints / f"step-{state.step:08d}"
        if target == self._last_saved:
            return
        with self._writing("a checkpoint"):
            self._checkpoints.mkdir(exist_ok=True)
            if target.exists():  # one that could not be read, or this run would be further
                shutil.rmtree(target)
            with self._renamed_into(target) as folder, (folder / _STATE).open("wb") as file:
                torch.save(vars(state), file)
                file.flush()
                os.fsync(file.fileno())  # or a power cut may leave a name without its content
        self._last_saved = target
        for old in self._saved()[:-_KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def load(self) -> State | None:
        """The last checkpoint that can be read, on the CPU, or None."""
        for folder in reversed(self._saved()):
            try:
                state = torch.load(folder / _STATE, map_location="cpu", weights_only=True)
                return State(**state)
            except Exception:  # damaged by something else: the one before it will do
                continue
        return None

    def save_samples(self, rows: torch.Tensor) -> None:
        """Write the model's own text, so that a run that goes on need not sample it again."""
        with self._writing("the model's own text"):
            partial = self.path / f".{SAMPLES}"
            save_file({"ids": rows.contiguous()}, partial)
            partial.chmod(0o644)  # safetensors writes 0600
            partial.replace(self.path / SAMPLES)

    def load_samples(self) -> torch.Tensor | None:
        """The model's own text if it is here, else None."""
        try:
            return load_file(self.path / SAMPLES)["ids"]
        except (OSError, SafetensorError, KeyError):
            return None

    def last_step(self) -> int:
        """The step of the last checkpoint; 0 if there is none."""
        saved = self._saved()
        return int(saved[-1].name.removeprefix("step-")) if saved else 0

    @contextmanager
    def finishing(self) -> Iterator[Path]:
        """A context with a folder whose files become the result; the record comes last."""
        with self._writing("the result"):
            work = Path(tempfile.mkdtemp(prefix=".result.", dir=self.path))
            try:
                yield work
                for file in sorted(work.iterdir(), key=lambda file: file.name == self._record):
                    file.chmod(0o644)
                    file.replace(self.path / file.name)
            finally:
                shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(self._checkpoints, ignore_errors=True)

    @contextmanager
    def _renamed_into(self, target: Path) -> Iterator[Path]:
        """A context with a new hidden folder that in the end becomes ``target``."""
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            yield work
            work.rename(target)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _claim(self, identity: dict[str, Any], overwrite: bool) -> None:
        """Make the folder that of this run, or raise if it is another's."""
        run = self.path / RUN
        others = [file for file in self.path.iterdir() if file.name not in (RUN, "run.lock")]
        try:
            found = json.loads(run.read_text(encoding="utf-8"))
        except FileNotFoundError:
            found = None
        except (OSError, ValueError):
            found = {}
        if found == identity:
            # What a killed process left unfinished is of no use.
            for hidden in (*self.path.glob(".result.*"), *self._checkpoints.glob(".step-*")):
                shutil.rmtree(hidden, ignore_errors=True)
            return
        if (found is not None or others) and not overwrite:
            what = _difference(found, identity) if found is not None else "it has other files"
            raise RationalesError(
                f"{self.path} does not hold this run ({what}): give another --out, or --overwrite"
            )
        with self._writing("the run"):
            # Only what a run wrote is removed: the folder may hold things of the user's own.
            written = (self.record() or {}).get("files", [])
            for name in (self._record, SAMPLES, RUN, *written):
                (self.path / Path(name).name).unlink(missing_ok=True)
            if self._checkpoints.exists():
                shutil.rmtree(self._checkpoints)
            partial = run.with_name(f".{RUN}")
            partial.write_text(json.dumps(identity, indent=2) + "\n", encoding="utf-8")
            partial.replace(run)

    def _saved(self) -> list[Path]:
        """The finished checkpoints, the oldest first; hidden folders are unfinished ones."""
        return sorted(self._checkpoints.glob("step-*"))

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        """A context in which a disk that is full, or closed to us, is one line."""
        try:
            yield
        except RationalesError:
            raise
        except Exception as error:
            saved = self._saved()
            rest = f"; {saved[-1].name} is kept, the same command goes on from it" if saved else ""
            if _is_full(error):
                raise RationalesError(
                    f"no space left in {self.path} for {what}: free some{rest}"
                ) from error
            if isinstance(error, OSError):
                raise RationalesError(
                    f"cannot write {what} to {self.path}: {error.strerror or first_line(error)}"
                ) from error
            raise


def _difference(found: Any, wanted: dict[str, Any], within: str = "") -> str:
    """The first thing in which another run differs, in words."""
    if not isinstance(found, dict):
        return f"its {within or 'record'} differs"
    for name, value in wanted.items():
        if found.get(name) != value:
            if isinstance(value, dict):
                return _difference(found.get(name), value, name)
            if isinstance(value, list):
                return f"its {name} differs"
            return f"its {name} is {found.get(name)}, not {value}"
    return "its options differ"


def _is_full(error: BaseException | None) -> bool:
    """Whether an error, or what led to it, says that the disk is full."""
    while error is not None:
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            return True
        if "No space left" in str(error):  # safetensors has an exception of its own
            return True
        error = error.__cause__ or error.__context__
    return False
