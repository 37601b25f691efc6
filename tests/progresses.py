"""How far a run is, told to nobody, or to somebody who kills it; and what it left behind."""

from __future__ import annotations

import json


def silent(what, done, total, note):
    """A progress that nobody watches."""


def dies_when(text, after=0):
    """A progress that kills the run once something is said, and so far done."""

    def progress(what, done, total, note):
        if text in what and done >= after:
            raise KeyboardInterrupt

    return progress


def untimed(path):
    """The lines of a file of a run, in some order of their own, but for how long they took."""
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return sorted(json.dumps(line | {"seconds": None}, sort_keys=True) for line in lines)
