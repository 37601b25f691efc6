"""Where answers go: a terminal, a pipe, a JSON file."""

from __future__ import annotations

import json
import os
import stat
import sys
from contextlib import suppress
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import TextIO

import typer
from rich.console import Console

from rationales.cli.arguments import Printing, Texts
from rationales.errors import RationalesError
from rationales.requests import Failure
from rationales.result import Explanation

FORMATS = ("table", "tsv", "json")


class Ended(Exception):
    """A command that is over, with an exit code, and in one line why, if that has to be said.

    Typer has answers of its own to an interrupt and to a broken pipe; to this it has none.
    """

    def __init__(self, code: int, why: str = "") -> None:
        super().__init__(why)
        self.code = code


class JsonFile:
    """Writes JSON to a file, which takes its name when it is whole.

    Until then it is ``FILE.partial``, beside what may be there under that name: it is opened before
    the work begins, so that a folder that cannot be written is known at once. Devices and named
    pipes are written to as they are; of a symbolic link, the file that it leads to is replaced.
    """

    def __init__(self, path: str) -> None:
        # The link stays: what is replaced is where it leads. (A pipe has no place to lead to.)
        follow = os.path.islink(path) and (os.path.isfile(path) or not os.path.exists(path))
        self._path = Path(os.path.realpath(path) if follow else path)
        self._partial: Path | None = None
        self._whole = 0
        """Bytes of whole answers."""
        try:
            if self._path.is_dir():
                raise IsADirectoryError(21, "it is a folder")
            if follow and self._path.is_symlink():
                raise OSError(40, "the link leads back to itself")
            if self._path.exists() and not self._path.is_file():
                self._file = FileIO(path, "w")  # a device or a named pipe
                return
            self._partial = self._path.with_name(f"{self._path.name}.partial")
            self._file = FileIO(self._partial, "x")
        except FileExistsError as error:
            raise RationalesError(
                f"{self._partial} is there already: another run is writing it, or has left there "
                "what it had finished; rename it, or delete it"
            ) from error
        except (OSError, ValueError) as error:
            said = error.strerror if isinstance(error, OSError) else None
            raise RationalesError(
                f"cannot write {path}: {said or error}; give --json another place"
            ) from error

    def write(self, text: str) -> None:
        """Write one answer, and see to it that it is in the file."""
        data = text.encode()
        left = memoryview(data)
        try:
            while left:
                left = left[self._file.write(left) or 0 :]
            self._whole += len(data)
        except BaseException as error:
            if self._partial is not None:
                with suppress(OSError):
                    os.ftruncate(self._file.fileno(), self._whole)  # no half answers
            if isinstance(error, OSError):
                raise self._cannot_write(error) from error
            raise

    def finish(self) -> None:
        """Give the file its name."""
        try:
            if self._partial is not None:
                os.fsync(self._file.fileno())
            self._file.close()
            if self._partial is not None:
                self._partial.replace(self._path)
        except OSError as error:
            raise self._cannot_write(error) from error

    def leave(self) -> Path | None:
        """Where the answers so far are, if the file will not be whole; nothing stays of none."""
        with suppress(OSError):
            self._file.close()
        if self._partial is not None and not self._whole:
            self._partial.unlink(missing_ok=True)
        return self._partial if self._whole else None

    def _cannot_write(self, error: OSError) -> RationalesError:
        return RationalesError(f"cannot write {self._path}: {error.strerror or error}")


class Output:
    """What the user sees of each answer: a table, tab-separated lines, JSON; and JSON in a file.

    Used in a ``with`` statement, at whose end the file is whole. It then exits with code 3 if
    requests have failed.
    """

    def __init__(self, printing: Printing, texts: Texts) -> None:
        self.several = texts.jsonl is not None
        self.answers = 0
        self._steps = printing.steps is not None
        self._failed = 0
        self._first_failure = ""
        self._format = _format(printing, self.several)
        path = None if printing.json_path == "-" else printing.json_path
        if self._format is not None and sys.stdout is None:
            raise RationalesError("standard output is closed: give --json a file")
        _check_files(texts, path, is_printing=self._format is not None)
        self._file = None if path is None else JsonFile(path)

    def __enter__(self) -> Output:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            try:
                if self._file is not None:
                    self._file.finish()
            except RationalesError as cannot:
                raise self._with_place(cannot) from cannot
            if self._failed:
                lines = "1 line" if self.answers == 1 else f"{self.answers:,} lines"
                first = f"the first: {self._first_failure}"
                raise Ended(3, f"{self._failed:,} of {lines} failed; {first}")
        elif (named := self._with_place(error)) is not error:
            raise named from error

    def _with_place(self, error: BaseException) -> BaseException:
        """The error, with the place of what was finished, if there is anything."""
        place = None if self._file is None else self._file.leave()
        if place is None:
            return error
        are = "answer is" if self.answers == 1 else "answers are"
        said = f"{self.answers:,} {are} in {place}"
        if isinstance(error, RationalesError):
            return RationalesError(f"{error}; {said}")
        if isinstance(error, KeyboardInterrupt):
            return Ended(130, f"interrupted: {said}")
        if isinstance(error, Ended):
            return Ended(error.code, said)
        typer.echo(said, err=True)
        return error

    def write(self, answer: Explanation | Failure, line: int | None = None) -> None:
        """Put out one answer, that of a line if there are several."""
        if isinstance(answer, Failure):
            message = " ".join(str(answer.error).split())
            data = {"id": answer.id, "line": line, "error": message}
            known = {name: value for name, value in data.items() if value is not None}
            as_json = json.dumps(known, ensure_ascii=False)
        else:
            as_json = answer.to_json(indent=None if self.several else 1)
        if self._file is not None:
            self._file.write(as_json + "\n")
        self.answers += 1
        if isinstance(answer, Failure):
            self._failed += 1
            self._first_failure = self._first_failure or f"line {line}: {message}"
        try:
            if self._format == "json":
                _print(as_json)
            elif isinstance(answer, Failure):
                if self._format is not None:
                    typer.echo(f"error: line {line}: {message}", err=True)
            elif self._format == "table":
                self._show_table(answer, line)
            elif self._format == "tsv":
                self._show_lines(answer, line)
        except BrokenPipeError as error:
            raise Ended(141) from error
        except OSError as error:
            raise RationalesError(
                f"cannot write to standard output: {error.strerror or error}"
            ) from error

    def _show_table(self, explanation: Explanation, line: int | None) -> None:
        from rationales.render.terminal import show

        console = _Console()
        if self.several:
            which = [f"line {line}"] * (line is not None)
            which += [f"id {explanation.id}"] * (explanation.id is not None)
            console.print(" · ".join(which), style="bold", markup=False, highlight=False)
        show(explanation, steps=self._steps, console=console)
        if self.several:
            console.print()

    def _show_lines(self, explanation: Explanation, line: int | None) -> None:
        from rationales.render.tsv import COLUMNS, lines

        which = f"{json.dumps(line)}\t{json.dumps(explanation.id)}\t" if self.several else ""
        if self.answers - self._failed == 1:
            _print("\t".join((*(("line", "id") if self.several else ()), *COLUMNS)))
        for each in lines(explanation):
            _print(which + each)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Let the command say how it ends when the reader has gone; rich would exit with 1."""
        raise BrokenPipeError


def _format(printing: Printing, several: bool) -> str | None:
    """What is printed on standard output; None: nothing."""
    format, path = printing.format, printing.json_path
    if format is not None and format not in FORMATS:
        raise RationalesError(f"--format is table, tsv or json, not {format!r}")
    if path == "-" and format not in (None, "json"):
        raise RationalesError(f"--json - and --format {format} exclude each other: give one")
    if format is not None:
        return format
    if path == "-" or (several and path is None):
        return "json"
    if several:
        return None
    return "table" if sys.stdout is not None and sys.stdout.isatty() else "tsv"


def _check_files(texts: Texts, path: str | None, is_printing: bool) -> None:
    """Raise if one file is to be read and written, or written twice, whatever it is called."""
    given = texts.jsonl if texts.jsonl is not None else texts.file
    from_stdin = given == "-" or (given is None and texts.text is None)
    read = _stat(sys.stdin) if from_stdin else None if given is None else _stat(given)
    printed = _stat(sys.stdout) if is_printing else None
    if path is not None:
        partial = f"{os.path.realpath(path)}.partial"
        for place, written in ((path, _stat(path)), (partial, _stat(partial))):
            if _same(read, written):
                raise RationalesError(
                    f"the text is read from {place}, which --json would write: give --json "
                    "another place"
                )
        if _same(printed, _stat(path)):
            raise RationalesError(f"standard output goes to {path} too: give --json - instead")
    if _same(read, printed):
        raise RationalesError("standard output goes to the file that the text is read from")


def _stat(place: str | TextIO | None) -> os.stat_result | None:
    """What is known of a path or an open file; None if it is not there, or no real file."""
    try:
        return (
            None if place is None else os.stat(place if isinstance(place, str) else place.fileno())
        )
    except (OSError, ValueError):
        return None


def _same(one: os.stat_result | None, other: os.stat_result | None) -> bool:
    """Whether the two are the same regular file; devices and pipes can be read and written."""
    if one is None or other is None or not stat.S_ISREG(one.st_mode):
        return False
    return os.path.samestat(one, other)


def _print(line: str) -> None:
    """Print a line in UTF-8, wherever it goes, and now."""
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:  # something that stands in for it
        sys.stdout.write(line + "\n")
    else:
        sys.stdout.flush()
        buffer.write((line + "\n").encode())
    sys.stdout.flush()
