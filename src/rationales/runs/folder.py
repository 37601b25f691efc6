"""The folder of a run: what the run is, what it has finished, and its results.

    run.json     kind, identity, names, versions, and the files that the run wrote
    parts/       finished work: a run that was killed goes on from here
    …            results, tables, figures, weights

The identity says which run this is: settings, and digests of weights and data. The same identity
goes on; another one is refused. Versions of libraries are recorded; other ones only warn.
Every file is written under a temporary name and then renamed, so a file with its name is whole.
"""

from __future__ import annotations

import errno
import json
import platform
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rationales.errors import RationalesError, RationalesWarning, first_line
from rationales.runs.lines import Lines

RUN, PARTS = "run.json", "parts"
_LOCK = ".lock"
_LIBRARIES = ("rationales", "torch", "transformers", "peft", "accelerate")


class RunFolder:
    """The folder of one run; ``kind`` is the command that writes it (``"experiment lambada"``)."""

    def __init__(self, path: str | Path, kind: str) -> None:
        self.path = Path(path).expanduser()
        self.parts = self.path / PARTS
        self._kind = kind

    @contextmanager
    def opened(
        self,
        identity: dict[str, Any],
        overwrite: bool = False,
        names: Mapping[str, str | None] | None = None,
    ) -> Iterator[None]:
        """A context in which the folder holds the run of this identity, for this process alone.

        With ``overwrite``, a run of another identity is removed first; the same one goes on.
        ``names`` of models are recorded and not compared: a run is what its weights are.
        """
        with self.locked():
            self.claim(identity, names, overwrite)
            yield

    @contextmanager
    def locked(self) -> Iterator[None]:
        """A context in which no other process writes to the folder."""
        from filelock import FileLock, Timeout

        with self.explained(RUN):
            self.path.mkdir(parents=True, exist_ok=True)
            # The lock file stays: if it were removed, two processes could each hold "the" lock.
            lock = FileLock(self.path / _LOCK)
            try:
                lock.acquire(timeout=0)
            except Timeout as error:
                raise RationalesError(
                    f"another process is writing to {self.path}: wait for it, or give another --out"
                ) from error
        try:
            yield
        finally:
            lock.release()

    @property
    def is_locked(self) -> bool:
        """Whether a process is writing to the folder now."""
        if not (self.path / _LOCK).exists():
            return False
        try:
            with self.locked():
                return False
        except RationalesError:
            return True

    def check(self, command: str) -> None:
        """Raise if the folder holds no run that this command has written."""
        known = self._read()
        if known is None or known["kind"] != self._kind:
            holds = "no run" if known is None else f"a run of {known['kind']}"
            raise RationalesError(f"{self.path} holds {holds}: give the --out of {command}")

    def part(self, name: str, compute: Callable[[], Any]) -> Any:
        """The result of one part of the run: read if it was finished before, else computed.

        It is read back in any case, so a run that goes on sees the same as an unbroken one.
        """
        path = self.parts / f"{name}.json"
        if not path.exists():
            self.write(f"{PARTS}/{name}.json", json.dumps(compute()))
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RationalesError(f"cannot read {path}: remove it to compute it again") from error

    def lines(self, key: tuple[str, ...], name: str = "lines") -> Lines:
        """The finished lines of this name, each found by the values of its ``key`` fields."""
        return Lines(self.parts / f"{name}.jsonl", key)

    def write(self, name: str, text: str) -> Path:
        """The path of a text file of the run, now written."""
        with self.writing(name) as path:
            path.write_text(text, encoding="utf-8")
        return self.path / name

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """A context with a temporary path, which becomes the file of this name at its end."""
        target = self.path / name
        with self.explained(name):
            target.parent.mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".", dir=target.parent) as folder:
                work = Path(folder, target.name)
                yield work
                work.chmod(0o644)  # safetensors writes 0600
                self.record([name])
                work.replace(target)

    def record(self, names: Iterable[str]) -> None:
        """Note files that the run writes, so that ``overwrite`` removes these and no others."""
        known = self._read()
        if known is None:  # not opened: a report over several runs, which is no run itself
            return
        new = [name for name in names if not name.startswith(PARTS) and name not in known["files"]]
        if new:
            self._write_run(known | {"files": sorted({*known["files"], *new})})

    def claim(
        self,
        identity: dict[str, Any],
        names: Mapping[str, str | None] | None = None,
        overwrite: bool = False,
    ) -> None:
        """Make the locked folder that of this run, or raise if it holds anything else."""
        identity = json.loads(json.dumps(identity))
        known = self._read()
        if known is None:
            # Also with overwrite: what no run has recorded is not for a run to replace.
            if any(not file.name.startswith(".") for file in self.path.iterdir()):
                raise RationalesError(
                    f"{self.path} has other files and no {RUN}: give another --out"
                )
        elif known["kind"] != self._kind:
            raise RationalesError(f"{self.path} holds a run of {known['kind']}: give another --out")
        elif known["identity"] == identity:
            before = known.get("versions", {})
            changed = ", ".join(
                f"{name} {before.get(name, '(not recorded)')} → {now}"
                for name, now in versions().items()
                if before.get(name) != now
            )
            if changed:
                message = f"{self.path} was begun with other versions: {changed}"
                warnings.warn(message, RationalesWarning, stacklevel=4)
            return
        elif not overwrite:
            raise RationalesError(
                f"{self.path} holds another run ({_difference(known['identity'], identity)}): "
                "give another --out, or --overwrite if the command has it"
            )
        else:
            with self.explained(RUN):
                for name in known["files"]:
                    (self.path / name).unlink(missing_ok=True)
                if self.parts.exists():
                    shutil.rmtree(self.parts)
        begun = {"kind": self._kind, "identity": identity, "names": dict(names or {})}
        self._write_run(begun | {"versions": versions(), "files": []})

    def _read(self) -> dict[str, Any] | None:
        """The content of run.json; None if there is none."""
        path = self.path / RUN
        try:
            known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            known["kind"], known["identity"], known["files"]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RationalesError(
                f"cannot read {path} ({first_line(error)}): give another --out"
            ) from error
        return known

    def _write_run(self, content: dict[str, Any]) -> None:
        work = self.path / f".{RUN}"
        with self.explained(RUN):
            work.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
            work.replace(self.path / RUN)

    @contextmanager
    def explained(self, what: str) -> Iterator[None]:
        """A context in which a full or read-only disk is an error of one line."""
        try:
            yield
        except Exception as error:
            full = "no space left on the disk" if _is_full(error) else None
            why = full or getattr(error, "strerror", None)
            if why is None:
                raise
            raise RationalesError(
                f"cannot write {what} to {self.path}: {why}; what was finished before is kept"
            ) from error


def versions(*more: str) -> dict[str, str]:
    """The versions of Python, this package and the libraries that its numbers depend on."""
    found = {"python": platform.python_version()}
    for name in (*_LIBRARIES, *more):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _difference(found: Any, wanted: Any, name: str = "identity") -> str:
    """The first field in which another identity differs, in words."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        pairs = ((name, found.get(name), wanted.get(name)) for name in [*wanted, *found])
        told = (_difference(one, other, name) for name, one, other in pairs if one != other)
        return next(told, f"its {name} differs")
    if isinstance(wanted, dict | list):
        return f"its {name} differs"
    return f"its {name} is {found}, not {wanted}"


def _is_full(error: BaseException | None) -> bool:
    """Whether an error, or its cause, says that the disk is full."""
    while error is not None:
        number = getattr(error, "errno", None)
        # safetensors has an exception of its own
        if number in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
