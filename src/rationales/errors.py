"""One exception for everything a user can put right: its message is one clear line."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Sequence
from string import Formatter
from typing import Any


class RationalesError(ValueError):
    """What was given, what was expected, and what to do next, in one line."""


class RationalesWarning(UserWarning):
    """Something that a user should know and that stops nothing, in one line."""


class OptionError(RationalesError):
    """An error about options, which are named as they are in Python or as they were typed.

    In the template, ``{max_size}`` stands for the option of that name; ``values`` fill in the rest.
    """

    def __init__(self, template: str, **values: Any) -> None:
        super().__init__(template)
        self.values = values

    def __str__(self) -> str:
        return self.named(lambda option: option)

    def named(self, name: Callable[[str], str]) -> str:
        """The message, with the name that each option goes by."""
        template: str = self.args[0]
        names = {key: name(key) for _, key, _, _ in Formatter().parse(template) if key}
        return template.format(**names | self.values)


class BudgetError(RationalesError):
    """No more may be asked. ``scores`` are those that were still found of what was asked last."""

    def __init__(self, message: str, scores: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.scores = tuple(scores)


class MissingExtraError(RationalesError):
    """An optional dependency is not installed; the message is the command that installs it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an extra: pip install 'rationales[{extra}]'")


def given(value: object) -> str:
    """What was given, for a message: a short value itself, the type of any other."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return reprlib.repr(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"a value of type {type(value).__name__}"


def first_line(error: BaseException) -> str:
    """The first line of what an exception says, or its name if it says nothing."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:160].rstrip(".:") if lines else type(error).__name__


def cannot(verb: str, path: object, error: OSError | UnicodeDecodeError) -> RationalesError:
    """The error that a file cannot be read or written, in one line."""
    if isinstance(error, UnicodeDecodeError):
        return RationalesError(f"cannot {verb} {path}: it is not UTF-8 text ({error.reason})")
    return RationalesError(f"cannot {verb} {path}: {error.strerror or error}")
