"""The user's cache folder: the converted default model, the verdicts of self-tests."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from rationales.errors import RationalesError


def cache_folder() -> Path:
    """The folder in $RATIONALES_CACHE, or ``rationales`` in the user's cache."""
    users = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "rationales")
    try:
        return Path(os.environ.get("RATIONALES_CACHE") or users).expanduser()
    except RuntimeError as error:
        raise RationalesError("no home folder: set RATIONALES_CACHE to a folder") from error


def read_json(file: Path) -> Any:
    """The value in a file; None if there is no such file, or a damaged one."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def keep_json(file: Path, value: Any) -> None:
    """Write a value that can be had again without the file: where nothing can be written, not.

    The file is replaced at once: whoever reads it has the old value or the new one.
    """
    work = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    with suppress(OSError):
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            work.write_text(json.dumps(value) + "\n", encoding="utf-8")
            work.replace(file)
        finally:
            work.unlink(missing_ok=True)
