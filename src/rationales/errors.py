"""One exception for everything a user can put right: its message is one clear line."""

from __future__ import annotations


class RationalesError(ValueError):
    """What was given, what was expected, and what to do next, in one line."""


class MissingExtraError(RationalesError):
    """An optional dependency is not installed; the message is the command that installs it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an extra: pip install 'rationales[{extra}]'")


def first_line(error: BaseException) -> str:
    """The first line of what an exception says, or its name if it says nothing."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:160].rstrip(".:") if lines else type(error).__name__
