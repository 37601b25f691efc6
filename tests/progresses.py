"""How far a run is, told to nobody, or to somebody who kills it."""

from __future__ import annotations


def silent(what, done, total, note):
    """A progress that nobody watches."""


def dies_when(text, after=0):
    """A progress that kills the run once something is said, and so far done."""

    def progress(what, done, total, note):
        if text in what and done >= after:
            raise KeyboardInterrupt

    return progress
