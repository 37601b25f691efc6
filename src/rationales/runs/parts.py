"""The answers of a corpus run on disk: parts of whole lines, and the rows that failed.

    part-00000.jsonl, part-00001.jsonl …   an explanation in each line
    failed.jsonl                           id, line, error, attempts

One process writes. The lines of a batch of rows are one write, and then on disk. A process that is
killed while it writes leaves a batch of which some lines are missing: the lines that are there are
dropped, because the batch is done again as a whole. Rows that share forward passes are answered to
the last digit only in the same company.
"""

from __future__ import annotations

import json
import os
from collections.abc import Container, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rationales.errors import cannot
from rationales.runs.folder import RunFolder
from rationales.runs.lines import damaged, drop_torn_line

KIND, FAILED = "run", "failed.jsonl"
_PART = "part-*.jsonl"
_PART_LINES = 1000
"""Lines of a part; then the next one begins."""


@dataclass(frozen=True)
class Failed:
    """A row without an answer, and why."""

    id: str | int
    line: int
    error: str
    attempts: int = 1


class Parts:
    """The parts of one run: which rows are answered, and where the next answer is written."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self.done: set[str | int] = set()
        """The ids of the rows that are answered."""
        self.failed: dict[int, Failed] = {}
        """The rows that have failed, by their numbers."""
        self._ends: list[tuple[str | int, int]] = []
        """Of each line of the last part: its id, and where it begins."""
        paths = part_files(folder.path)
        for path in paths:
            drop_torn_line(path)
            self._ends = [(row["id"], place.start) for place, row in read_lines(path, {"id"})]
            self.done.update(id for id, _ in self._ends)
        self._number = max(0, len(paths) - 1)
        failed = folder.path / FAILED
        drop_torn_line(failed)
        for _, row in read_lines(failed, {"id", "line", "error"}) if failed.exists() else ():
            self.failed[row["line"]] = Failed(**row)

    @property
    def path(self) -> Path:
        """The part that is written to."""
        return self._folder.path / f"part-{self._number:05}.jsonl"

    def drop_last(self, ids: Container[str | int]) -> None:
        """Drop the lines of these rows, as far as they are the last ones."""
        while self._ends and self._ends[-1][0] in ids:
            id, start = self._ends.pop()
            self.done.discard(id)
            with self._folder.explained(self.path.name):
                os.truncate(self.path, start)

    def forget_failed(self, numbers: Iterable[int]) -> None:
        """Take these rows out of those that have failed: they are tried again."""
        gone = {*numbers}
        kept = {n: each for n, each in self.failed.items() if n not in gone}
        if len(kept) < len(self.failed):
            self.failed = kept
            self._folder.write(FAILED, "".join(_json(vars(each)) for each in kept.values()))

    def write(self, answers: Sequence[tuple[str | int, str]], failed: Sequence[Failed]) -> None:
        """Put the answers of a batch on disk: those that failed first, then the lines."""
        if failed:
            self._append(self._folder.path / FAILED, [_json(vars(each)) for each in failed])
            self.failed |= {each.line: each for each in failed}
        if answers:
            if len(self._ends) >= _PART_LINES:
                self._number, self._ends = self._number + 1, []
            self._append(self.path, [f"{line}\n" for _, line in answers])
            self._ends += [(id, -1) for id, _ in answers]
            self.done.update(id for id, _ in answers)

    def _append(self, path: Path, lines: list[str]) -> None:
        with self._folder.explained(path.name), path.open("ab", buffering=0) as file:
            size = file.tell()
            try:
                data = memoryview("".join(lines).encode())
                while data:  # a disk that is nearly full takes a part of it
                    data = data[file.write(data) :]
                os.fsync(file.fileno())
            except OSError:
                file.truncate(size)  # what is there is whole
                raise


def part_files(folder: Path) -> list[Path]:
    """The parts of a run, in their order."""
    return sorted(folder.glob(_PART))


class Place(NamedTuple):
    """Where a line is: its number, from 1, its first byte and how many it has."""

    path: Path
    number: int
    start: int
    length: int


def read_lines(path: Path, fields: Set[str]) -> Iterator[tuple[Place, dict[str, Any]]]:
    """The lines of a file, which have these fields; a torn one at its end is left out."""
    start = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    return
                place = Place(path, number, start, len(line))
                start += len(line)
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise damaged(path, number) from error
                if not isinstance(row, dict) or not fields <= row.keys():
                    raise damaged(path, number)
                yield place, row
    except OSError as error:
        raise cannot("read", path, error) from error


def _json(data: dict[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=False) + "\n"
