"""The rows of a corpus: read from a file of a common format, each made a request or a failure.

    JSONL · CSV · Parquet · datasets folder ─► Source (number, cells) ─► Corpus ─► Row

A row that is wrong (not JSON, not UTF-8, no text, an option with a value that it cannot have) is a
row too: it is answered by a failure, and the others go on.
"""

from __future__ import annotations

import csv
import hashlib
import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard, get_args, get_type_hints

from rationales.data import sha256
from rationales.errors import MissingExtraError, RationalesError, cannot, first_line
from rationales.options import Options
from rationales.prompt import PROMPT, Conversation, Documents, Given, prompt_of
from rationales.requests import Failure, Request
from rationales.text import check_unicode

Cells = Mapping[str, Any]
"""The values of a row, by the names of their columns."""

Ask = Callable[[Mapping[str, Any]], Options]
"""The options of a row, from those that it has of its own."""

OPTIONS = frozenset(field.name for field in fields(Options))
"""The columns that hold options."""

_FORMATS = "a .jsonl, .csv, .tsv or .parquet file, or a folder that datasets has saved"


@dataclass(frozen=True)
class Columns:
    """Which columns hold what; a column that has the name of an option holds that option."""

    text: str = "text"
    id: str = "id"
    group: str | None = None


@dataclass(frozen=True)
class Row:
    """One row: its number in the input, from 1, and a request or what is wrong with it."""

    number: int
    request: Request | Failure

    @property
    def id(self) -> str | int:
        """The id that came with it, or else its number."""
        return self.number if self.request.id is None else self.request.id


class Source:
    """The rows of one file or folder, which can be read again and again."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        if not self.path.exists():
            raise RationalesError(f"there is no {path}: give {_FORMATS}, or - for a pipe")
        is_folder = self.path.is_dir()
        self._files = _arrow_files(self.path) if is_folder else [self.path]
        reader = _read_arrow if is_folder else _READERS.get(self.path.suffix.lower())
        if reader is None:
            raise RationalesError(f"cannot tell what {path} holds by its name: give {_FORMATS}")
        self._read: Callable[[Path], Rows] = reader

    @cached_property
    def sha256(self) -> str:
        """The digest of all that is read."""
        digests = [sha256(file) for file in self._files]
        return digests[0] if len(digests) == 1 else _digest("".join(digests))

    def move(self, path: Path) -> None:
        """Move the file, which is read from there from now on."""
        self.path = self.path.replace(path)
        self._files = [self.path]

    def __iter__(self) -> Iterator[tuple[int, Cells | RationalesError]]:
        """Each row with its number, or why it cannot be read."""
        before = 0
        for file in self._files:
            number = 0
            try:
                for number, cells in self._read(file):
                    yield before + number, cells
            except OSError as error:
                raise cannot("read", file, error) from error
            before += number


@dataclass(frozen=True)
class Corpus:
    """The rows of a source that a run is about, and what is asked of them."""

    source: Source
    ask: Ask = field(compare=False)
    columns: Columns = Columns()
    sample: int | None = None
    """So many rows, chosen at random; all if left out."""
    seed: int = 0

    @cached_property
    def _first(self) -> dict[str | int, int]:
        """The number of the first row with each id."""
        first: dict[str | int, int] = {}
        for number, cells in self.source:
            first.setdefault(self._id(number, cells), number)
            self._numbers.append(number)
        return first

    @cached_property
    def _numbers(self) -> list[int]:
        """The numbers of all rows, known when ``_first`` is."""
        return []

    @cached_property
    def chosen(self) -> frozenset[int]:
        """The numbers of the rows that the run is about."""
        if not self._first or self.sample is None or self.sample >= len(self._numbers):
            return frozenset(self._numbers)
        return frozenset(random.Random(self.seed).sample(self._numbers, self.sample))

    def rows(self) -> Iterator[Row]:
        """The rows of the run, in their order."""
        for number, cells in self.source:
            if number in self.chosen:
                yield self._row(number, cells)

    def unread(self) -> list[str]:
        """Columns of the first row that nothing reads: one may be a misspelt option."""
        columns = self.columns
        _, cells = next(iter(self.source), (0, {}))
        if isinstance(cells, RationalesError):
            return []
        read = {*OPTIONS, columns.text, columns.id, columns.group}
        read |= {*PROMPT} if {"messages", "documents"} & cells.keys() else set()
        return [name for name in cells if name not in read]

    def _row(self, number: int, cells: Cells | RationalesError) -> Row:
        id = self._id(number, cells)
        try:
            if isinstance(cells, RationalesError):
                raise cells
            if (first := self._first[id]) != number:
                raise RationalesError(f"the id {id!r} is that of row {first} too: ids must differ")
            return Row(number, self._request(id, cells))
        except RationalesError as error:
            return Row(number, Failure(error, id))
        except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
            return Row(number, Failure(RationalesError(first_line(error)), id))

    def _id(self, number: int, cells: Cells | RationalesError) -> str | int:
        """The id of a row: its number, if it has none that can be one."""
        given = None if isinstance(cells, RationalesError) else cells.get(self.columns.id)
        return given if _is_name(given) and given != "" else number

    def _request(self, id: str | int, cells: Cells) -> Request:
        columns = self.columns
        if cells.get(columns.id) is not None and not _is_name(cells[columns.id]):
            raise RationalesError("the id must be a string or a whole number")
        text = cells.get(columns.text)
        prompt = cells if _has_prompt(cells) else {}
        asked: Given | None = read_prompt(prompt, text) if prompt else None
        if asked is None and isinstance(text, str):
            asked = text
        if asked is None:
            found = "nothing" if text is None else f"a value of type {type(text).__name__}"
            raise RationalesError(f"expected a text in the column {columns.text!r}, found {found}")
        own = {
            name: value
            for name, value in cells.items()
            if name in OPTIONS and name not in (columns.text, columns.id) and value is not None
        }
        group = None if columns.group is None else cells.get(columns.group)
        if group is not None and not _is_name(group):
            group = str(group)
        said = [text, id, group, own, *(prompt.get(name) for name in PROMPT)]
        check_unicode(json.dumps(said, ensure_ascii=False, default=str))
        return Request(asked, self.ask(own), id, group)


def _has_prompt(cells: Cells) -> bool:
    """Whether a row has messages or documents. If not, its "question" is some column."""
    return any(cells.get(name) is not None for name in ("messages", "documents"))


def read_prompt(cells: Cells, text: Any = None) -> Conversation | Documents | None:
    """The conversation or the documents in a row; None if it has none."""
    found = {name: cells[name] for name in PROMPT if cells.get(name) is not None}
    for name in ("messages", "documents"):
        if not isinstance(found.get(name, []), list):
            raise RationalesError(f"{name} must be a list")
    for name in ("question", "template"):
        if not isinstance(found.get(name, ""), str):
            raise RationalesError(f"the {name} must be a text")
    if not isinstance(found.get("search_question", False), bool):
        raise RationalesError("search_question must be true or false")
    messages, documents = found.pop("messages", None), found.pop("documents", None)
    return prompt_of(text, messages, documents, **found)


def read_line(line: bytes) -> dict[str, Any]:
    """The object in a line of JSON."""
    try:
        cells = json.loads(line.decode())
    except UnicodeDecodeError as error:
        raise RationalesError(f"not UTF-8 text ({error.reason})") from error
    except json.JSONDecodeError as error:
        raise RationalesError(f"not JSON ({error.msg}, character {error.pos + 1})") from error
    except (ValueError, RecursionError) as error:  # numbers of too many digits, too many [[[
        raise RationalesError(first_line(error)) from error
    if not isinstance(cells, dict):
        raise RationalesError('expected an object with a "text"')
    return cells


def numbered_lines(file: Any) -> Iterator[tuple[int, bytes]]:
    """The lines of a binary file with their numbers, but for blank ones."""
    for number, line in enumerate(file, start=1):
        if line := line.removeprefix(b"\xef\xbb\xbf").strip():  # a byte order mark
            yield number, line


Rows = Iterator[tuple[int, Cells | RationalesError]]


def _read_jsonl(path: Path) -> Rows:
    with path.open("rb") as file:
        for number, line in numbered_lines(file):
            try:
                yield number, read_line(line)
            except RationalesError as error:
                yield number, error


def _read_csv(path: Path) -> Rows:
    """The rows of a CSV or TSV file whose first line has the names of the columns."""
    types = {name: _type(hint) for name, hint in get_type_hints(Options).items()}
    csv.field_size_limit(sys.maxsize)
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    # What is not UTF-8 is found row by row: a half character is in no text.
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.DictReader(file, delimiter=delimiter, restkey="", restval="")
        number = 0
        while True:
            number += 1
            try:
                cells = next(reader)
                if "" in cells:
                    raise RationalesError("more cells than columns")
                if any(_is_torn(cell) for cell in cells.values()):
                    raise RationalesError("not UTF-8 text")
                yield (
                    number,
                    {
                        name: types[name](name, cell) if name in types else cell
                        for name, cell in cells.items()
                        if cell != "" or name not in types
                    },
                )
            except StopIteration:
                return
            except csv.Error as error:
                yield number, RationalesError(f"not CSV ({error})")
            except RationalesError as error:
                yield number, error


def _read_parquet(path: Path) -> Rows:
    parquet = _pyarrow("parquet")
    try:
        batches = parquet.ParquetFile(path).iter_batches()
        rows = (row for batch in batches for row in batch.to_pylist())
        yield from enumerate(rows, start=1)
    except ValueError as error:  # pyarrow's own errors are ValueErrors
        raise RationalesError(f"{path} is no Parquet file ({first_line(error)})") from error


def _read_arrow(path: Path) -> Rows:
    ipc = _pyarrow("ipc")
    try:
        with path.open("rb") as file, ipc.open_stream(file) as stream:
            rows = (row for batch in stream for row in batch.to_pylist())
            yield from enumerate(rows, start=1)
    except ValueError as error:
        raise RationalesError(f"{path} is no Arrow file ({first_line(error)})") from error


_READERS: dict[str, Callable[[Path], Rows]] = {
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".parquet": _read_parquet,
}


def _arrow_files(folder: Path) -> list[Path]:
    """The files of a folder that ``Dataset.save_to_disk`` has written."""
    try:
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        return [folder / file["filename"] for file in state["_data_files"]]
    except FileNotFoundError as error:
        splits = sorted(each.parent.name for each in folder.glob("*/state.json"))
        if splits:
            raise RationalesError(
                f"{folder} holds the splits {', '.join(splits)}: give one, as in {splits[0]!r}"
            ) from error
        raise RationalesError(f"{folder} is no folder that datasets has saved") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RationalesError(
            f"cannot read {folder / 'state.json'}: {first_line(error)}"
        ) from error


def _pyarrow(module: str) -> Any:
    from importlib import import_module

    try:
        return import_module(f"pyarrow.{module}")
    except ImportError as error:
        raise MissingExtraError("reading Parquet or Arrow files", "parquet") from error


def _type(hint: Any) -> Callable[[str, str], Any]:
    """What makes a value of an option of this type from the text of a cell."""
    members = {*(get_args(hint) or (hint,))} - {type(None)}

    def read(name: str, cell: str) -> Any:
        try:
            if members == {bool}:
                return {"true": True, "false": False, "1": True, "0": False}[cell.lower()]
            return members.copy().pop()(cell) if members in ({int}, {float}) else cell
        except (KeyError, ValueError) as error:
            raise RationalesError(f"the column {name!r} holds {cell!r}, which it cannot") from error

    return read


def _is_name(value: Any) -> TypeGuard[str | int]:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _is_torn(cell: Any) -> bool:
    return isinstance(cell, str) and any("\udc80" <= character <= "\udcff" for character in cell)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
