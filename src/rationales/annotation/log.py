"""Append-only logs of events: what was acknowledged is on the disk, and the state is a replay.

An event is one JSON line with its time. ``append`` returns after the line is on the disk. A process
that is killed while it writes leaves a torn last line, which was never acknowledged: it is dropped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rationales.errors import RationalesError, cannot
from rationales.runs.lines import damaged, drop_torn_line

Event = dict[str, Any]


class Log:
    """One file of events; only one process may append to it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def repair(self) -> None:
        """Drop a line that was not finished; only while no other process appends."""
        drop_torn_line(self.path)

    def read(self) -> Iterator[Event]:
        """All events, but for one that is being written."""
        return whole_lines(self.path, ("event", "time"))

    def append(self, name: str, /, **what: Any) -> Event:
        """The event of this name with the time, now on the disk; an error leaves no part of it."""
        now = datetime.now(timezone.utc).isoformat(timespec="microseconds")
        event = {"event": name, "time": now, **what}
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_new = not self.path.exists()
            with open(self.path, "ab", buffering=0, opener=_private) as file:
                before = file.seek(0, os.SEEK_END)
                try:
                    line = json.dumps(event, ensure_ascii=False).encode() + b"\n"
                    if file.write(line) != len(line):
                        raise OSError("the disk took only a part of it")
                    os.fsync(file.fileno())
                except OSError:
                    file.truncate(before)
                    raise
            if is_new:
                sync_folder(self.path.parent)
        except OSError as error:
            told = cannot("write", self.path.name, error)
            raise RationalesError(f"{told}; nothing of it is kept: try again") from error
        return event

    def delete(self) -> None:
        """Remove the file."""
        try:
            self.path.unlink(missing_ok=True)
            sync_folder(self.path.parent)
        except OSError as error:
            raise cannot("delete", self.path, error) from error


def whole_lines(path: Path, fields: tuple[str, ...]) -> Iterator[Event]:
    """The JSON lines of a file, which have these fields, but for one that is being written."""
    try:
        data = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise cannot("read", path, error) from error
    for number, text in enumerate(data.split(b"\n")[:-1], start=1):
        try:
            line = json.loads(text)
            [line[name] for name in fields]
        except (ValueError, KeyError, TypeError) as error:
            raise damaged(path, number) from error
        yield line


def _private(path: str, flags: int) -> int:
    """A file that only its owner can read: it has tokens."""
    return os.open(path, flags, 0o600)


def sync_folder(folder: Path) -> None:
    """Write to the disk which files a folder has."""
    if hasattr(os, "O_DIRECTORY"):
        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
