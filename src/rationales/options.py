"""What can be asked of an explanation: which tokens, which search, within which limits."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from rationales.errors import RationalesError

DEFAULT_MAX_EVALUATIONS = 100_000

_NONE = type(None)
_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "generate": ((int,), "a whole number"),
    "continuation": ((str, _NONE), "a text"),
    "target": ((str, int, _NONE), "all, last, an index or a word"),
    "chat": ((bool,), "true or false"),
    "specials": ((str,), "pinned or candidate"),
    "method": ((str,), "the name of a method"),
    "max_size": ((int, _NONE), "a whole number"),
    "max_evaluations": ((int, _NONE), "a whole number"),
    "absolute": ((bool,), "true or false"),
    "keep_candidates": ((int,), "a whole number"),
    "seed": ((int,), "a whole number"),
    "ig_steps": ((int,), "a whole number"),
}


@dataclass(frozen=True)
class Options:
    """The questions and limits of one explanation; every field has a sensible default."""

    generate: int = 8
    """How many tokens the model continues with; each is explained."""
    continuation: str | None = None
    """A text that the model is made to continue with, instead of its own."""
    target: str | int | None = None
    """Tokens of the text itself: ``"all"``, ``"last"``, an index, or a word (``"word#2"``)."""
    chat: bool = False
    """Wrap the text in the model's chat template; the template's tokens are pinned."""
    specials: Literal["pinned", "candidate"] = "pinned"
    """Whether special tokens that the tokenizer adds are always kept, or searched like others."""
    method: str = "greedy"
    max_size: int | None = None
    """No rationale grows beyond this many tokens."""
    max_evaluations: int | None = DEFAULT_MAX_EVALUATIONS
    """The budget of an exhaustive search, for each target."""
    absolute: bool = False
    """Signed baselines order by absolute value."""
    keep_candidates: int = 0
    """How many of the best candidates each greedy step records."""
    seed: int = 0
    """The seed of the random control."""
    ig_steps: int = 100
    """Steps of the integral of integrated gradients."""

    def __post_init__(self) -> None:
        for name, (kinds, words) in _TYPES.items():
            value = getattr(self, name)
            # True is an int to Python, but not to a user.
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                raise RationalesError(f"{name} must be {words}, not {value!r}")
        if self.target is not None and self.continuation is not None:
            raise RationalesError(
                "target and continuation exclude each other: the target names tokens of the text"
            )
        if self.continuation == "":
            raise RationalesError("the continuation is empty: give the text to explain")
        if self.specials not in ("pinned", "candidate"):
            raise RationalesError(f"specials is pinned or candidate, not {self.specials!r}")
        at_least_one = {
            "generate": self.generate,
            "max_size": self.max_size,
            "max_evaluations": self.max_evaluations,
            "ig_steps": self.ig_steps,
        }
        for name, value in at_least_one.items():
            if value is not None and value < 1:
                raise RationalesError(f"{name} must be at least 1, not {value}")
        if self.keep_candidates < 0:
            raise RationalesError(f"keep_candidates must not be negative: {self.keep_candidates}")

    def change(self, **changes: Any) -> Options:
        """These options with some fields changed."""
        known = [field.name for field in fields(self)]
        for name in changes:
            if name not in known:
                raise RationalesError(f"unknown option {name!r}: choose from {', '.join(known)}")
        return replace(self, **changes)
