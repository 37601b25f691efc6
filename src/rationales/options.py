"""What can be asked of an explanation: which tokens, which search, within which limits.

An option that only some methods or inputs read is None (or 0, or False) unless it is given: so one
that is given where nothing reads it can be refused, which ``option_rules`` does. ``DEFAULTS`` are
the values of those that are not given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from rationales.errors import OptionError, RationalesError
from rationales.methods import check_method
from rationales.option_rules import check_together
from rationales.search.criterion import parse

UNITS = ("token", "word", "sentence")
DEFAULTS: Mapping[str, Any] = {
    "generate": 8,
    "beam": 3,
    "penalty": 0.5,
    "max_evaluations": 100_000,
    "seed": 0,
    "language": "en",
}

_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "generate": ((int,), "a whole number"),
    "continuation": ((str,), "a text"),
    "src_lang": ((str,), "the code of a language"),
    "tgt_lang": ((str,), "the code of a language"),
    "prefix": ((str,), "a text"),
    "max_length": ((int,), "a whole number"),
    "target": (
        (str, int, list, tuple),
        "all, last, an index, a range such as 3:7, a word, or a list of indices",
    ),
    "chat": ((bool,), "true or false"),
    "specials": ((str,), "pinned or candidate"),
    "method": ((str,), "the name of a method"),
    "max_size": ((int,), "a whole number"),
    "max_evaluations": ((int,), "a whole number"),
    "absolute": ((bool,), "true or false"),
    "keep_candidates": ((int,), "a whole number"),
    "seed": ((int,), "a whole number"),
    "ig_steps": ((int,), "a whole number"),
    "fast": ((bool,), "true or false"),
    "minimal": ((bool,), "true or false"),
    "beam": ((int,), "a whole number"),
    "unit": ((str,), "token, word or sentence"),
    "coarse_to_fine": ((bool,), "true or false"),
    "language": ((str,), "the code of a language"),
    "criterion": ((str,), "the name of a criterion"),
    "instead_of": ((str,), "a text"),
    "disjoint": ((int,), "a whole number"),
    "span": ((bool,), "true or false"),
    "penalty": ((int, float), "a number"),
}
"""What the values are of; None besides, where it is the default."""

_LEAST: dict[str, int] = {
    **dict.fromkeys(("generate", "max_size", "max_length", "ig_steps", "beam", "disjoint"), 1),
    **dict.fromkeys(("max_evaluations", "keep_candidates"), 0),
}


@dataclass(frozen=True)
class Options:
    """The questions and limits of one explanation; every field has a sensible default."""

    generate: int | None = None
    """How many tokens the model continues with; each is explained."""
    continuation: str | None = None
    """A text that the model is made to continue with, instead of its own."""
    target: str | int | Sequence[int] | None = None
    """Tokens of the text itself: ``"all"``, ``"last"``, an index or a list of indices, a range
    without its end (``"3:7"``), or a word (``"word#2"`` its second occurrence; ``"2024#1"`` one
    that is a number)."""
    chat: bool = False
    """Wrap the text in the model's chat template; the template's tokens are pinned."""
    specials: Literal["pinned", "candidate"] = "pinned"
    """Whether special tokens that the tokenizer adds are always kept, or searched like others."""
    method: str = None  # type: ignore[assignment]  # a name as soon as there is an object
    """The name of the search; if none is given, ``greedy``, or ``beam`` where ``beam`` is given."""
    fast: bool = False
    """Greedy search that scores a shortlist in most of its steps."""
    minimal: bool = False
    """Drop what is not needed from a rationale that was found, until nothing can go."""
    beam: int | None = None
    """How many subsets of each size the method ``beam`` keeps."""
    penalty: float | None = None
    """What a token costs in the method ``soft``, in nats: the paper's λ."""
    unit: Literal["token", "word", "sentence"] = "token"
    """What a search adds at a time."""
    coarse_to_fine: bool = False
    """Search sentences first, then words in the sentences kept, then tokens in these."""
    language: str | None = None
    """The language of the text (``"de"``), by which sentences are told apart."""
    criterion: str = "argmax"
    """When a subset is enough: ``argmax``, ``top-k=K``, ``prob=P`` or ``ratio=R``."""
    instead_of: str | None = None
    """A subset is enough if the target is more likely than this alternative's first token."""
    disjoint: int = 1
    """Up to so many rationales for each target, that share nothing but what is required."""
    span: bool = False
    """One rationale for all tokens of the continuation or target, as one answer."""
    max_size: int | None = None
    """No rationale grows beyond this many tokens, or words, or sentences."""
    max_evaluations: int | None = None
    """The budget of an exhaustive search, for each target; 0: there is no limit."""
    absolute: bool = False
    """Signed baselines order by absolute value."""
    keep_candidates: int = 0
    """How many of the best candidates each greedy step records."""
    seed: int | None = None
    """The seed of the random control."""
    ig_steps: int | None = None
    """Steps of the integral of integrated gradients: 100, or 50 for a translation, if not given."""
    src_lang: str | None = None
    """The language of the source, for translation models that know several."""
    tgt_lang: str | None = None
    """The language of the translation, for such models."""
    prefix: str | None = None
    """A text before the source that tells a model what to do (T5); its tokens are pinned."""
    max_length: int | None = None
    """No translation has more tokens than this."""

    def __post_init__(self) -> None:
        check_values({field.name: getattr(self, field.name) for field in fields(self)})
        if isinstance(self.target, list):
            object.__setattr__(self, "target", tuple(self.target))
        # As it was given: what is changed later may call for another method.
        object.__setattr__(self, "_given_method", self.method)
        if self.method is None:
            object.__setattr__(self, "method", "greedy" if self.beam is None else "beam")
        check_together(self)

    def is_given(self, name: str) -> bool:
        """Whether an option has another value than it has if left out."""
        return bool(getattr(self, name) != getattr(Options, name))

    def value(self, name: str) -> Any:
        """The option as it was given, or else its default."""
        given = getattr(self, name)
        return DEFAULTS[name] if given is None else given

    def shaping(self) -> dict[str, Any]:
        """The options that decide what a rationale is, as far as they are not the usual ones."""
        names = ["fast", "minimal", "unit", "coarse_to_fine", "language", "criterion"]
        names += ["instead_of", "disjoint", "span", "max_size"]
        always = {"beam": ["beam"], "soft": ["penalty"]}.get(self.method, [])
        given = {name: getattr(self, name) for name in names if self.is_given(name)}
        return given | {name: self.value(name) for name in always}

    def change(self, **changes: Any) -> Options:
        """These options with some fields changed."""
        known = [field.name for field in fields(self)]
        for name in changes:
            if name not in known:
                raise RationalesError(f"unknown option {name!r}: choose from {', '.join(known)}")
        return replace(self, **{"method": self.__dict__["_given_method"], **changes})


def check_values(values: Mapping[str, Any]) -> None:
    """Raise if an option has a value that it cannot have, whatever the others are."""
    for name, value in values.items():
        if value is None and getattr(Options, name) is None:
            continue
        kinds, words = _TYPES[name]
        # True is an int to Python, but not to a user.
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise OptionError(f"{{{name}}} must be {words}, not {{value!r}}", value=value)
        _check_value(name, value)


def _check_value(name: str, value: Any) -> None:
    """Raise if a value is of the right type, but none of those that the option takes."""
    if name in _LEAST and value < _LEAST[name]:
        least = _LEAST[name]
        raise OptionError(f"{{{name}}} must be at least {least}, not {{value}}", value=value)
    if name in ("continuation", "instead_of", "language") and not value:
        raise OptionError(f"{{{name}}} is empty: give {_TYPES[name][1]}, or leave it out")
    if name == "target" and isinstance(value, list | tuple):
        if not value or not all(isinstance(i, int) and not isinstance(i, bool) for i in value):
            raise OptionError(
                "{target} must be a list of whole numbers, at least one, not {value!r}", value=value
            )
    elif name == "method":
        check_method(value)
    elif name == "criterion":
        parse(value)
    elif name == "specials" and value not in ("pinned", "candidate"):
        raise OptionError("{specials} must be pinned or candidate, not {value!r}", value=value)
    elif name == "unit" and value not in UNITS:
        raise OptionError("{unit} must be token, word or sentence, not {value!r}", value=value)
    elif name == "penalty" and not 0 < value < float("inf"):
        raise OptionError("{penalty} must be more than 0, not {value}", value=value)
