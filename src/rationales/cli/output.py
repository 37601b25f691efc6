"""Where answers go: a terminal, a pipe, a JSON file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import typer

from rationales.cli.arguments import Printing, Texts
from rationales.errors import RationalesError
from rationales.requests import Failure
from rationales.result import Explanation


@contextmanager
def told(doing: str) -> Iterator[None]:
    """A context in which an error of the system is one line: cannot do this, and why."""
    try:
        yield
    except BrokenPipeError:
        raise  # the reader has gone: the command ends without a word
    except OSError as error:
        raise RationalesError(f"cannot {doing}: {error.strerror or error}") from error


class JsonFile:
    """Writes JSON to a file, which takes its name when it is whole.

    Until then it is ``FILE.partial``, beside what may be there under that name: it is opened before
    the work begins, so that a folder that cannot be written is known at once. Devices and named
    pipes are written to as they are; of a symbolic link, the file that it leads to is replaced.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._partial: Path | None = None
        self._whole = 0
        """Bytes of whole answers."""
        with told(f"write {path}"):
            if not self._path.exists() or self._path.is_file():
                self._path = Path(os.path.realpath(path))
                self._partial = self._path.with_name(f"{self._path.name}.partial")
            try:
                mode = "wb" if self._partial is None else "xb"
                self._file = open(self._partial or path, mode)  # noqa: SIM115  # finish() closes it
            except FileExistsError as error:
                raise RationalesError(
                    f"{self._partial} is there already: another run is writing it, or has left "
                    "there what it had finished; rename it, or give --json another place"
                ) from error

    def write(self, text: str) -> None:
        """Write one answer, and see to it that it is in the file."""
        data = text.encode()
        with told(f"write {self._path}"):
            self._file.write(data)
            self._file.flush()
        self._whole += len(data)

    def finish(self) -> None:
        """Give the file its name."""
        with told(f"write {self._path}"):
            if self._partial is not None:
                os.fsync(self._file.fileno())
            self._file.close()
            if self._partial is not None:
                self._partial.replace(self._path)

    def leave(self) -> Path | None:
        """Where the answers so far are, if the file will not be whole; nothing stays of none."""
        with suppress(OSError):
            self._file.close()
        if self._partial is None:
            return None
        if not self._whole:
            self._partial.unlink(missing_ok=True)
            return None
        os.truncate(self._partial, self._whole)  # no half answers
        return self._partial


class Output:
    """What the user sees of each answer: a table, tab-separated lines, JSON; and JSON in a file."""

    def __init__(self, printing: Printing, texts: Texts) -> None:
        self.several = texts.jsonl is not None
        self.answers = 0
        self._steps = printing.steps is not None
        self._failures: list[str] = []
        self._format = _format(printing, self.several)
        path = None if printing.json_path == "-" else printing.json_path
        if self._format is not None and sys.stdout is None:
            raise RationalesError("standard output is closed: give --json a file")
        _check_files(texts, path, is_printing=self._format is not None)
        self._file = None if path is None else JsonFile(path)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """A context at whose end the file is whole; exits with code 3 if requests have failed."""
        try:
            yield
            if self._file is not None:
                self._file.finish()
        except BaseException:
            if self._file is not None and (place := self._file.leave()):
                are = "answer is" if self.answers == 1 else "answers are"
                typer.echo(f"{self.answers:,} {are} in {place}", err=True)
            raise
        if self._failures:
            lines = "1 line" if self.answers == 1 else f"{self.answers:,} lines"
            first = f"the first: {self._failures[0]}"
            typer.echo(f"{len(self._failures):,} of {lines} failed; {first}", err=True)
            raise typer.Exit(3)

    def write(self, answer: Explanation | Failure, line: int | None = None) -> None:
        """Put out one answer, that of a line if there are several."""
        if isinstance(answer, Failure):
            message = " ".join(str(answer.error).split())
            data = {"id": answer.id, "line": line, "error": message}
            known = {name: value for name, value in data.items() if value is not None}
            as_json = json.dumps(known, ensure_ascii=False)
            self._failures.append(f"line {line}: {message}")
        else:
            as_json = answer.to_json(indent=None if self.several else 1)
        if self._file is not None:
            self._file.write(as_json + "\n")
        self.answers += 1
        with told("write to standard output"):
            if self._format == "json":
                _print(as_json)
            elif isinstance(answer, Failure):
                if self._format is not None:
                    typer.echo(f"error: {self._failures[-1]}", err=True)
            elif self._format == "table":
                self._show_table(answer, line)
            elif self._format == "tsv":
                self._show_lines(answer, line)

    def _show_table(self, explanation: Explanation, line: int | None) -> None:
        from rich.console import Console

        from rationales.render.terminal import show

        console = Console()
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
        if self.answers - len(self._failures) == 1:
            _print("\t".join((*(("line", "id") if self.several else ()), *COLUMNS)))
        for each in lines(explanation):
            _print(which + each)


def _format(printing: Printing, several: bool) -> str | None:
    """What is printed on standard output; None: nothing."""
    format, path = printing.format, printing.json_path
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
    stdin, stdout = 0, 1
    read = texts.jsonl or texts.file or (stdin if texts.text is None else "")
    read = stdin if read == "-" else read
    if path is not None and _same(read, path):
        raise RationalesError(
            f"the text is read from {path}, which --json would write: give --json another place"
        )
    if path is not None and is_printing and _same(stdout, path):
        raise RationalesError(f"standard output goes to {path} too: give --json - instead")
    if is_printing and _same(read, stdout):
        raise RationalesError("standard output goes to the file that the text is read from")


def _same(one: str | int, other: str | int) -> bool:
    """Whether two paths or open files are one regular file; devices can be read and written."""
    return os.path.isfile(one) and os.path.isfile(other) and os.path.samefile(one, other)


def _print(line: str) -> None:
    """Print a line in UTF-8, wherever it goes, and now."""
    typer.echo(line.encode())
