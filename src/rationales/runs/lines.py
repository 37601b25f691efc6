"""One JSON line for each finished piece of work, so that a run can be killed and goes on.

A line is found again by some of its fields, its key: what has a line is not done again. A run that
was killed while it wrote leaves a torn last line, which is dropped.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rationales.errors import RationalesError, cannot

OnProgress = Callable[[str, float, float | None, str], None]
"""Called with what is being done, how much of it is done, of how much, and a short note."""

Line = dict[str, Any]


class Lines:
    """A file of JSON lines, each found by its key.

    A line that is added outlives the process. To outlive the machine, it may need a second.
    """

    def __init__(self, path: Path, key: tuple[str, ...]) -> None:
        self.path = path
        self._key = key
        self._lines: dict[tuple[Any, ...], Line] = {}
        self._synced = 0.0
        drop_torn_line(path)
        try:
            data = path.read_bytes() if path.exists() else b""
        except OSError as error:
            raise cannot("read", path, error) from error
        for number, text in enumerate(data.splitlines(), start=1):
            try:
                line = json.loads(text)
                self._lines.setdefault(self._key_of(line), line)
            except (ValueError, KeyError, TypeError) as error:
                raise damaged(path, number) from error

    def __contains__(self, key: tuple[Any, ...]) -> bool:
        return key in self._lines

    def __getitem__(self, key: tuple[Any, ...]) -> Line:
        return self._lines[key]

    def __iter__(self) -> Iterator[Line]:
        return iter(self._lines.values())

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, line: Line) -> None:
        """Write a line, and remember it."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
                file.flush()
                if (now := time.monotonic()) - self._synced > 1:  # small lines come by hundreds
                    os.fsync(file.fileno())
                    self._synced = now
        except OSError as error:
            told = cannot("write", self.path, error)
            raise RationalesError(f"{told}; what was finished before is kept") from error
        self._lines[self._key_of(line)] = line

    def _key_of(self, line: Line) -> tuple[Any, ...]:
        return tuple(line[name] for name in self._key)


def drop_torn_line(path: Path) -> None:
    """Cut off what a file has after its last line break: a write that was not finished."""
    try:
        with path.open("r+b") as file:
            at = size = file.seek(0, os.SEEK_END)
            while at > 0:
                start = max(0, at - (1 << 16))
                file.seek(start)
                if (found := file.read(at - start).rfind(b"\n")) >= 0:
                    at = start + found + 1
                    break
                at = start
            if at < size:
                file.truncate(at)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise cannot("read", path, error) from error


def damaged(path: Path, number: int) -> RationalesError:
    """The error that a line in the middle of a file is not one that a run has written."""
    return RationalesError(f"line {number} of {path} is damaged: remove it, or give another --out")


def seconds_in(path: Path) -> float:
    """What the work in a file of whole lines took, over all the runs that wrote it."""
    data = path.read_bytes() if path.exists() else b""
    return float(sum(json.loads(line).get("seconds", 0) for line in data.splitlines()))


@dataclass
class Pace:
    """How far a run is and how long it will take, from the mean time of each kind of work."""

    remaining: Counter[str]
    """How many pieces of each kind are to be done."""
    total: int
    _seconds: dict[str, tuple[float, int]] = field(default_factory=dict)
    _since: float = field(default_factory=time.monotonic)

    @property
    def done(self) -> int:
        """Pieces that are finished, by this run or one before."""
        return self.total - self.remaining.total()

    def begin(self) -> None:
        """Start the clock for a new piece."""
        self._since = time.monotonic()

    def finish(self, kind: str) -> float:
        """A piece of this kind is done; the seconds since it began, or since the one before it.

        Pieces that are done side by side finish at about the same time, and the first one of them
        has most of it: only the sum says something.
        """
        now = time.monotonic()
        took = now - self._since
        seconds, pieces = self._seconds.get(kind, (0.0, 0))
        self._seconds[kind] = seconds + took, pieces + 1
        self._since = now
        self.remaining[kind] -= 1
        return round(took, 2)

    @property
    def note(self) -> str:
        """The time left, in words; nothing as long as little is known."""
        if not self._seconds or not self.remaining.total():
            return ""
        means = {kind: seconds / pieces for kind, (seconds, pieces) in self._seconds.items()}
        usual = sum(means.values()) / len(means)
        left = sum(means.get(kind, usual) * pieces for kind, pieces in self.remaining.items())
        return f"{duration(left)} left"


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
