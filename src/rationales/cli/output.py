"""Where explanations go: a terminal, a pipe, a JSON file."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO

import typer

from rationales.errors import RationalesError
from rationales.rationale import Explanation


class JsonWriter:
    """Writes explanations to a file or to standard output (``-``).

    A file is opened before the work begins, so that a folder that cannot be written is known at
    once, under a temporary name, so that what is there is never half-written.
    """

    def __init__(self, path: str, lines: bool) -> None:
        self._lines = lines
        self._path = None if path == "-" else Path(path)
        self._temporary: Path | None = None
        self._file: IO[str] = sys.stdout
        if self._path is None:
            return
        try:
            if self._path.exists() and not self._path.is_file():
                if self._path.is_dir():
                    raise IsADirectoryError(21, "it is a folder")
                self._file = self._path.open("w", encoding="utf-8")  # a device or a named pipe
                return
            handle, name = tempfile.mkstemp(prefix=".rationales-", dir=self._path.parent)
        except OSError as error:
            raise RationalesError(
                f"cannot write {path}: {error.strerror or error}; give --json another place"
            ) from error
        self._temporary = Path(name)
        self._file = os.fdopen(handle, "w", encoding="utf-8")

    def write(self, explanation: Explanation) -> None:
        """Write one explanation: a line of its own, or an indented object."""
        self._file.write(explanation.to_json(indent=None if self._lines else 1) + "\n")
        self._file.flush()

    def close(self, keep: bool) -> None:
        """Finish the file; it takes its name if there is anything to keep."""
        if self._file is not sys.stdout:
            self._file.close()
        if self._temporary is not None and self._path is not None:
            if keep:
                mask = os.umask(0)
                os.umask(mask)
                self._temporary.chmod(0o666 & ~mask)  # temporary files are private; results are not
                self._temporary.replace(self._path)
            else:
                self._temporary.unlink(missing_ok=True)


class Output:
    """What the user sees of each explanation: JSON where asked, else a table or plain lines."""

    def __init__(self, json_path: str | None, lines: bool, steps: bool) -> None:
        to_stdout = json_path == "-" or (lines and json_path is None)
        target = "-" if to_stdout else json_path
        self._json = None if target is None else JsonWriter(target, lines)
        self._steps = steps
        self._show = not to_stdout and not lines
        self._is_first = True
        self._written = 0

    def __enter__(self) -> Output:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._json is not None:
            self._json.close(keep=self._written > 0)

    def write(self, explanation: Explanation) -> None:
        """Put out one explanation."""
        if self._json is not None:
            self._json.write(explanation)
        self._written += 1
        if not self._show:
            return
        if sys.stdout.isatty():
            from rationales.render.terminal import show

            show(explanation, steps=self._steps)
        else:
            from rationales.render.tsv import COLUMNS, lines

            if self._is_first:
                typer.echo("\t".join(COLUMNS))
            for line in lines(explanation):
                typer.echo(line)
        self._is_first = False
