"""Answers of endpoints on disk: nothing is asked twice, and a run that was killed goes on for free.

An answer is found by a digest of the endpoint, the model and the request: the prompt itself is not
stored. Each is committed as it arrives, so a process that is killed loses only what is in flight.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import weakref
from pathlib import Path
from typing import Any

from rationales.cache import cache_folder


class Answers:
    """Answers by their digests; where nothing can be written, they last as long as the process."""

    def __init__(self, file: Path | None = None) -> None:
        self.file = cache_folder() / "endpoints" / "answers.sqlite" if file is None else file
        self._known: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._disk: sqlite3.Connection | None = None
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.touch(mode=0o600)
            self._disk = sqlite3.connect(self.file, timeout=30, check_same_thread=False)
            weakref.finalize(self, self._disk.close)
            # What is committed outlives the process, though not a power failure.
            self._disk.execute("PRAGMA journal_mode=WAL")
            self._disk.execute("PRAGMA synchronous=NORMAL")
            self._disk.execute(
                "CREATE TABLE IF NOT EXISTS answers (digest TEXT PRIMARY KEY, json TEXT)"
            )
            self._disk.commit()
        except (OSError, sqlite3.Error):
            self._disk = None

    def get(self, digest: str) -> Any:
        """The answer of that digest; None if there is none."""
        with self._lock:
            if digest not in self._known and self._disk is not None:
                try:
                    query = "SELECT json FROM answers WHERE digest = ?"
                    row = self._disk.execute(query, (digest,)).fetchone()
                    if row is not None:
                        self._known[digest] = json.loads(row[0])
                except (sqlite3.Error, ValueError):
                    return None
            return self._known.get(digest)

    def put(self, digest: str, answer: Any) -> None:
        """Keep an answer, at once."""
        with self._lock:
            self._known[digest] = answer
            if self._disk is not None:
                try:
                    with self._disk:
                        row = (digest, json.dumps(answer))
                        self._disk.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", row)
                except sqlite3.Error:
                    pass


def digest_of(*request: Any) -> str:
    """The digest of a request: the address, the model, the path, the body, which repeat it is."""
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
