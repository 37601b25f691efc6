"""What can be asked of an explanation: which tokens, which search, within which limits."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from rationales.errors import RationalesError
from rationales.search.criterion import parse

UNITS = ("token", "word", "sentence")
DEFAULT_MAX_EVALUATIONS = 100_000

_NONE = type(None)
_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "generate": ((int,), "a whole number"),
    "continuation": ((str, _NONE), "a text"),
    "src_lang": ((str, _NONE), "the code of a language"),
    "tgt_lang": ((str, _NONE), "the code of a language"),
    "prefix": ((str, _NONE), "a text"),
    "max_length": ((int, _NONE), "a whole number"),
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
    "fast": ((bool,), "true or false"),
    "minimal": ((bool,), "true or false"),
    "beam": ((int,), "a whole number"),
    "unit": ((str,), "token, word or sentence"),
    "coarse_to_fine": ((bool,), "true or false"),
    "criterion": ((str,), "the name of a criterion"),
    "instead_of": ((str, _NONE), "a text"),
    "disjoint": ((int,), "a whole number"),
    "span": ((bool,), "true or false"),
    "penalty": ((int, float), "a number"),
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
    fast: bool = False
    """Greedy search that scores a shortlist in most of its steps."""
    minimal: bool = False
    """Drop what is not needed from a rationale that was found, until nothing can go."""
    beam: int = 3
    """How many subsets of each size the method ``beam`` keeps."""
    penalty: float = 0.5
    """What a token costs in the method ``soft``, in nats: the paper's λ."""
    unit: Literal["token", "word", "sentence"] = "token"
    """What a search adds at a time."""
    coarse_to_fine: bool = False
    """Search sentences first, then words in the sentences kept, then tokens in these."""
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
    src_lang: str | None = None
    """The language of the source, for translation models that know several."""
    tgt_lang: str | None = None
    """The language of the translation, for such models."""
    prefix: str | None = None
    """A text before the source that tells a model what to do (T5); its tokens are pinned."""
    max_length: int | None = None
    """No translation has more tokens than this."""

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
            "max_length": self.max_length,
            "max_evaluations": self.max_evaluations,
            "ig_steps": self.ig_steps,
            "beam": self.beam,
            "disjoint": self.disjoint,
        }
        for name, value in at_least_one.items():
            if value is not None and value < 1:
                raise RationalesError(f"{name} must be at least 1, not {value}")
        if self.keep_candidates < 0:
            raise RationalesError(f"keep_candidates must not be negative: {self.keep_candidates}")
        if not 0 < self.penalty < float("inf"):
            raise RationalesError(f"the penalty must be more than 0, not {self.penalty}")
        if self.unit not in UNITS:
            raise RationalesError(f"unit is {', '.join(UNITS)}, not {self.unit!r}")
        if self.instead_of == "":
            raise RationalesError("the alternative is empty: give the word that was not said")
        parse(self.criterion)
        self._check_combinations()

    def _check_combinations(self) -> None:
        """Raise if two of the options contradict each other."""
        contradictions = {
            "fast goes with the method greedy": self.fast and self.method != "greedy",
            "coarse_to_fine goes with the method greedy": self.coarse_to_fine
            and self.method != "greedy",
            "coarse_to_fine has units of its own: leave out unit": self.coarse_to_fine
            and self.unit != "token",
            "instead_of is a criterion of its own: leave out criterion": self.instead_of is not None
            and self.criterion != "argmax",
            "instead_of compares single tokens: leave out span": self.instead_of is not None
            and self.span,
            "soft weighs size against probability: leave out criterion, instead_of, minimal "
            "and disjoint": self.method == "soft"
            and (
                self.criterion != "argmax"
                or self.instead_of is not None
                or self.minimal
                or self.disjoint > 1
            ),
        }
        for message, holds in contradictions.items():
            if holds:
                raise RationalesError(message)

    def shaping(self) -> dict[str, Any]:
        """The options that decide what a rationale is, as far as they are not the usual ones."""
        usual = Options()
        names = ["fast", "minimal", "unit", "coarse_to_fine", "criterion", "instead_of"]
        names += ["disjoint", "span", "max_size"]
        names += {"beam": ["beam"], "soft": ["penalty"]}.get(self.method, [])
        always = ("beam", "penalty")
        return {
            name: getattr(self, name)
            for name in names
            if name in always or getattr(self, name) != getattr(usual, name)
        }

    def change(self, **changes: Any) -> Options:
        """These options with some fields changed."""
        known = [field.name for field in fields(self)]
        for name in changes:
            if name not in known:
                raise RationalesError(f"unknown option {name!r}: choose from {', '.join(known)}")
        return replace(self, **changes)
