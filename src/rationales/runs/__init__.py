"""Runs that resume: one folder, one identity, one line for each finished piece of work.

    identity ─► RunFolder ─► parts/*.jsonl (Lines) ─► results
                (one process
                 at a time)

Experiments and training keep their state here. Whatever has its name on disk is whole.
"""

from rationales.runs.folder import PARTS, RUN, RunFolder, versions
from rationales.runs.lines import Line, Lines, OnProgress, Pace, seconds_in

__all__ = [
    "PARTS",
    "RUN",
    "Line",
    "Lines",
    "OnProgress",
    "Pace",
    "RunFolder",
    "seconds_in",
    "versions",
]
