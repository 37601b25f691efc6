"""The folder of an experiment: its settings, its finished parts, and in the end its results.

    settings.json     which run this is; a run of other settings is refused
    parts/            what is finished: a run that was killed goes on from here
    results.json, table.md, figures

Whatever is written gets its name when it is whole, so a file that is there is a finished one.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from rationales.errors import RationalesError, first_line
from rationales.render import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SETTINGS, PARTS, RESULTS, TABLE = "settings.json", "parts", "results.json", "table.md"
_LOCK = "run.lock"


class ExperimentFolder:
    """Where one run of an experiment keeps what it has, open for one process at a time."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        self.parts = self.path / PARTS

    @contextmanager
    def opened(self, settings: dict[str, Any], overwrite: bool = False) -> Iterator[None]:
        """A context in which the folder holds the run of these settings and nobody else writes.

        With ``overwrite``, a run of other settings makes way; one of the same settings goes on.
        """
        from filelock import FileLock, Timeout

        with self._writing(SETTINGS):
            self.path.mkdir(parents=True, exist_ok=True)
        lock = self.path / _LOCK
        try:
            with FileLock(lock, timeout=0):
                self._claim(json.loads(json.dumps(settings)), overwrite)
                yield
        except Timeout as error:
            raise RationalesError(
                f"another process is at work in {self.path}: wait for it, or give another --out"
            ) from error
        lock.unlink(missing_ok=True)

    def part(self, name: str, compute: Callable[[], Any]) -> Any:
        """What a part of the run found: read if it was finished before, else computed and kept.

        It is read back in any case, so that a run that goes on sees the same as an unbroken one.
        """
        path = self.parts / f"{name}.json"
        if not path.exists():
            self.write(f"{PARTS}/{name}.json", json.dumps(compute()))
        return json.loads(path.read_text(encoding="utf-8"))

    def write(self, name: str, text: str) -> Path:
        """The path of a text file of the run, written as a whole."""
        with self.writing(name) as path:
            path.write_text(text, encoding="utf-8")
        return self.path / name

    def draw(self, name: str, figure: Figure) -> None:
        """Write a figure as PNG and as SVG."""
        for kind in ("png", "svg"):
            with self.writing(f"{name}.{kind}") as path:
                plots.save(figure, path)

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """A context with a path to write to, which in the end becomes the file of this name."""
        target = self.path / name
        with self._writing(name):
            target.parent.mkdir(exist_ok=True)
            handle, temporary = tempfile.mkstemp(
                prefix=".", suffix=target.suffix, dir=target.parent
            )
            os.close(handle)
            work = Path(temporary)
            try:
                yield work
                work.chmod(0o644)  # temporary files are private; results are not
                work.replace(target)
            finally:
                work.unlink(missing_ok=True)

    def _claim(self, settings: dict[str, Any], overwrite: bool) -> None:
        """Make the folder that of this run, or raise if it is another's."""
        found = self._found()
        if found == settings:
            return
        others = [file for file in self.path.iterdir() if not file.name.startswith((".", _LOCK))]
        if found is None and others:
            raise RationalesError(
                f"{self.path} has other files, and no run of an experiment: give another --out"
            )
        if found is not None:
            if found.get("experiment") != settings["experiment"]:
                raise RationalesError(
                    f"{self.path} holds a run of {found.get('experiment')}: give another --out"
                )
            if not overwrite:
                raise RationalesError(
                    f"{self.path} holds a run of other settings ({_difference(found, settings)}): "
                    "give another --out, or --overwrite"
                )
            self._clear()
        self.write(SETTINGS, json.dumps(settings, indent=2) + "\n")

    def _found(self) -> dict[str, Any] | None:
        """The settings of the run that is here, or None."""
        try:
            found = json.loads((self.path / SETTINGS).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise RationalesError(
                f"cannot read {self.path / SETTINGS} ({first_line(error)}): give another --out"
            ) from error
        return found if isinstance(found, dict) else {}

    def _clear(self) -> None:
        """Remove what a run writes, and nothing else: the folder may hold things of the user's."""
        with self._writing(SETTINGS):
            for name in (RESULTS, TABLE):
                (self.path / name).unlink(missing_ok=True)
            if self.parts.exists():
                shutil.rmtree(self.parts)

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        """A context in which a disk that is full, or closed to us, is one line."""
        try:
            yield
        except (OSError, SafetensorError) as error:
            why = getattr(error, "strerror", None) or first_line(error)
            raise RationalesError(
                f"cannot write {what} to {self.path}: {why}; what was finished before is kept"
            ) from error


def markdown_table(columns: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown; all columns but the first are numbers, to the right."""
    rule = ["---", *("---:" for _ in columns[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in [columns, rule, *rows])


def _difference(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    """The first setting in which two runs differ, in words."""
    for name in [*wanted, *found]:
        if found.get(name) != wanted.get(name):
            return f"its {name} is {found.get(name)}, not {wanted.get(name)}"
    return "its settings differ"
