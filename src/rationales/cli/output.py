"""Where answers go: a terminal, a pipe, a JSON file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
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


@contextmanager
def json_file(path: str) -> Iterator[Callable[[str], None]]:
    """A context that gives a function to write answers to a file, whole at the end of the context.

    Until then it is ``FILE.partial``, beside what may be there under that name: it is opened before
    the work begins, so that a folder that cannot be written is known at once. If the work ends
    early, whole answers stay there. Devices and named pipes are written to as they are; of a
    symbolic link, the file that it leads to is replaced.
    """
    place = Path(path)
    partial: Path | None = None
    sizes: list[int] = []
    if not os.path.exists(path) or os.path.isfile(path):
        place = Path(os.path.realpath(path))
        partial = place.with_name(f"{place.name}.partial")

    def write(answer: str) -> None:
        data = answer.encode()
        with told(f"write {place}"):
            file.write(data)
            file.flush()
        sizes.append(len(data))

    with told(f"write {path}"):
        try:
            file = open(partial or path, "xb" if partial else "wb")  # noqa: SIM115  # closed below
        except FileExistsError as error:
            raise RationalesError(
                f"{partial} is there already: another run is writing it, or has left there what it "
                "had finished; rename it, or give --json another place"
            ) from error
    try:
        yield write
        with told(f"write {place}"):
            if partial is not None:
                os.fsync(file.fileno())
            file.close()
            if partial is not None:
                partial.replace(place)
    except BaseException:
        with suppress(OSError):
            file.close()
        if partial is not None:
            with suppress(OSError):
                os.truncate(partial, sum(sizes))  # no half answers
            if sizes:
                are = "1 answer is" if len(sizes) == 1 else f"{len(sizes):,} answers are"
                typer.echo(f"{are} in {partial}", err=True)
            else:
                partial.unlink(missing_ok=True)
        raise


@contextmanager
def opened(printing: Printing, texts: Texts) -> Iterator[Output]:
    """The output of a command; at the end, exits with code 3 if requests have failed."""
    several = texts.jsonl is not None
    format = _format(printing, several)
    path = None if printing.json_path == "-" else printing.json_path
    if format is not None and sys.stdout is None:
        raise RationalesError("standard output is closed: give --json a file")
    _check_files(texts, path, is_printing=format is not None)
    _check_pictures(printing, texts, path)
    with nullcontext() if path is None else json_file(path) as write:
        output = Output(format, several, printing.steps is not None, write)
        output.keeps = printing.html is not None or printing.plot is not None
        yield output
    if printing.html is not None and output.explanations:
        from rationales.render.viewer import page

        with told(f"write {printing.html}"):
            Path(printing.html).write_text(page(output.explanations), encoding="utf-8")
    if printing.plot is not None and output.explanations:
        with told(f"write {printing.plot}"):
            output.explanations[0].plot(printing.plot, kind=printing.plot_kind)
    if output.failures:
        lines = "1 line" if output.answers == 1 else f"{output.answers:,} lines"
        first = f"the first: {output.failures[0]}"
        typer.echo(f"{len(output.failures):,} of {lines} failed; {first}", err=True)
        raise typer.Exit(3)


@dataclass
class Output:
    """What the user sees of each answer: a table, tab-separated lines, JSON; and JSON in a file."""

    format: str | None
    several: bool
    steps: bool
    write_file: Callable[[str], None] | None
    answers: int = 0
    failures: list[str] = field(default_factory=list)
    keeps: bool = False
    """Whether explanations are kept, for a page or a figure at the end."""
    explanations: list[Explanation] = field(default_factory=list)

    def write(self, answer: Explanation | Failure, line: int | None = None) -> None:
        """Put out one answer, that of a line if there are several."""
        if isinstance(answer, Failure):
            message = " ".join(str(answer.error).split())
            data = {"id": answer.id, "line": line, "error": message}
            known = {name: value for name, value in data.items() if value is not None}
            as_json = json.dumps(known, ensure_ascii=False)
            self.failures.append(f"line {line}: {message}")
        else:
            as_json = answer.to_json(indent=None if self.several else 1)
            if self.keeps:
                self.explanations.append(answer)
        if self.write_file is not None:
            self.write_file(as_json + "\n")
        self.answers += 1
        with told("write to standard output"):
            if self.format == "json":
                typer.echo(as_json.encode())  # UTF-8, wherever it goes
            elif isinstance(answer, Failure):
                if self.format is not None:
                    typer.echo(f"error: {self.failures[-1]}", err=True)
            elif self.format == "table":
                self._show_table(answer, line)
            elif self.format == "tsv":
                self._show_lines(answer, line)

    def _show_table(self, explanation: Explanation, line: int | None) -> None:
        from rich.console import Console

        from rationales.render.terminal import show

        console = Console()
        if self.several:
            which = [f"line {line}"] * (line is not None)
            which += [f"id {explanation.id}"] * (explanation.id is not None)
            console.print(" · ".join(which), style="bold", markup=False, highlight=False)
        show(explanation, steps=self.steps, console=console)
        if self.several:
            console.print()

    def _show_lines(self, explanation: Explanation, line: int | None) -> None:
        from rationales.render.tsv import COLUMNS, lines

        which = f"{json.dumps(line)}\t{json.dumps(explanation.id)}\t" if self.several else ""
        rows = [which + each for each in lines(explanation)]
        if self.answers - len(self.failures) == 1:
            rows.insert(0, "\t".join([*["line", "id"] * self.several, *COLUMNS]))
        if rows:
            typer.echo("\n".join(rows).encode())  # UTF-8, wherever it goes


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
    read = [stdin if file == "-" else file for file in texts.files]
    if not read and texts.text is None:
        read = [stdin]
    if path is not None and any(_same(file, path) for file in read):
        raise RationalesError(
            f"the text is read from {path}, which --json would write: give --json another place"
        )
    if path is not None and is_printing and _same(stdout, path):
        raise RationalesError(f"standard output goes to {path} too: give --json - instead")
    if is_printing and any(_same(file, stdout) for file in read):
        raise RationalesError("standard output goes to the file that the text is read from")


def _check_pictures(printing: Printing, texts: Texts, json_path: str | None) -> None:
    """Raise for a page or a figure that could not be written after all the work."""
    taken = [*texts.files, *([] if json_path is None else [json_path])]
    for path in (printing.html, printing.plot):
        if path is None:
            continue
        if not Path(path).absolute().parent.is_dir() or Path(path).is_dir():
            raise RationalesError(f"cannot write {path}: give a file in a folder that exists")
        if any(Path(path).resolve() == Path(each).resolve() for each in taken):
            raise RationalesError(f"{path} is read or written already: give another file")
        taken.append(path)
    if printing.plot is None:
        if printing.plot_kind != "matrix":
            raise RationalesError("--plot-kind says what --plot draws: give --plot a file")
        return
    if printing.plot_kind == "candidates" and not printing.steps:
        raise RationalesError("--plot-kind candidates needs them: give --steps a number")
    if texts.jsonl is not None:
        raise RationalesError("--plot draws one text: leave it out, or leave out --jsonl")
    from rationales.render import figures

    figures.check(Path(printing.plot))


def _same(one: str | int, other: str | int) -> bool:
    """Whether two paths or open files are one regular file; devices can be read and written."""
    return os.path.isfile(one) and os.path.isfile(other) and os.path.samefile(one, other)
