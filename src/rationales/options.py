"""What can be asked of an explanation: which tokens, which search, within which limits.

``Options`` is the one definition of every option: its type and bounds are checked, the docstring
under it is the command line's help, and a line of JSON has the same names. An option that only some
methods or inputs read is None (or False) unless it is given: so one that is given where nothing
reads it is an error, not a silence. ``DEFAULTS`` are the values of options that are not given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, MinLen
from typing_extensions import TypedDict

from rationales.checking import Expected, check_values
from rationales.errors import OptionError, RationalesError, first_line
from rationales.methods import METHODS, SIGNED
from rationales.search.criterion import parse
from rationales.units import LEVELS, Unit

Specials = Literal["pinned", "candidate"]
ShownAs = Literal["deleted"]
Target = str | int | Sequence[int]

DEFAULTS: Mapping[str, Any] = {
    "generate": 8,
    "beam": 3,
    "penalty": 0.5,
    "max_evaluations": 100_000,
    "seed": 0,
    "language": "en",
}

_Text = Annotated[str, MinLen(1)]
_Language = Expected("the code of a language")


@dataclass(frozen=True)
class Options:
    """The questions and limits of one explanation; every field has a sensible default."""

    generate: Annotated[int | None, Ge(1)] = None
    """Explain this many tokens of the model's own continuation; if left out, 8, and in a chat or
    about documents the whole answer, up to 32."""
    continuation: Annotated[_Text | None, Expected("a text")] = None
    """Explain this continuation (or translation) instead of the model's own."""
    target: Annotated[
        str | int | Annotated[Sequence[int], MinLen(1)] | None,
        Expected(
            "all, last, an index, a range such as 3:7, a word, or a list of whole numbers, at "
            "least one"
        ),
    ] = None
    """Explain tokens of the text itself, or of the answer, if there is one (a chat, documents, a
    continuation); of a translation, with indices that count from the first token of the source:
    all, last (of an answer: without the token that ends it), an index (negative from the end), a
    range such as 3:7 (without token 7), a list such as 3,7, or a word (its last
    occurrence; WORD#2: its second; 2024#1: a word that is a number)."""
    chat: bool = False
    """Wrap the text in the model's chat template; the template's own tokens are pinned."""
    src_lang: Annotated[str | None, _Language] = None
    """The language of the source, for models that know several."""
    tgt_lang: Annotated[str | None, _Language] = None
    """The language of the translation, for models that know several."""
    prefix: str | None = None
    """A text before the source that tells the model what to do (T5); its tokens are pinned."""
    max_length: Annotated[int | None, Ge(1)] = None
    """Translate into at most this many tokens; about twice the source if left out."""
    specials: Specials = "pinned"
    """Special tokens that the tokenizer adds: pinned (always kept, not counted) or candidate."""
    method: Annotated[str, Expected("the name of a method")] = None  # type: ignore[assignment]  # a name as soon as there is an object
    """How to search: METHODS; greedy if left out."""
    fast: bool = False
    """Greedy search that scores a shortlist in most steps, and ends minimal: several times faster
    on long contexts and long rationales."""
    evaluation: ShownAs | None = None
    """How the model is shown a subset. If left out, the kept tokens stay at their positions, with
    gaps; deleted: what is left out is deleted, and the kept tokens move together."""
    minimal: bool = False
    """Then drop tokens that are not needed, until no single one can be dropped."""
    certify: bool = False
    """Then ask the model what else is true of each rationale: its margin, whether it is minimal or
    even the smallest, what is predicted without it, whether recent words alone would do."""
    beam: Annotated[int | None, Ge(1)] = None
    """Keep this many best subsets of each size (method beam; 3 if left out): never longer than
    greedy."""
    unit: Unit = "token"
    """Add a token, a word, a sentence, a line, a paragraph, a document or a message at a time."""
    unit_pattern: Annotated[_Text | None, Expected("a regular expression")] = None
    """Add what this regular expression matches at a time, and what lies between two matches."""
    units: Annotated[
        Annotated[Sequence[tuple[int, int]], MinLen(1)] | None,
        Expected("a list of (start, end) in characters, at least one"),
    ] = None
    """Add these parts of the text at a time, from one character to another; pinned ones are not
    counted."""
    coarse_to_fine: bool = False
    """For long texts: search documents, then paragraphs in those kept, then sentences, words and
    tokens."""
    finest: Unit | None = None
    """Where coarse-to-fine search ends: document, paragraph, sentence, word or token."""
    language: Annotated[_Text | None, _Language] = None
    """The language of the text, such as de, by which sentences are split; en if left out."""
    criterion: Annotated[str, Expected("the name of a criterion")] = "argmax"
    """When a subset is sufficient: argmax, top-k=K, prob=P, ratio=R (of the probability given the
    full context), or none (never: the search goes on to --max-size)."""
    instead_of: Annotated[_Text | None, Expected("a text")] = None
    """A contrast: a subset is sufficient if the target is more likely than the first token of this
    text. Why "she", and not " he"?"""
    disjoint: Annotated[int, Ge(1)] = 1
    """Up to this many rationales for each target, without a token in common."""
    span: bool = False
    """One rationale for all tokens of the target or continuation together."""
    penalty: Annotated[float | None, Gt(0)] = None
    """The cost of a token in the method soft, in nats (the paper's λ); 0.5 if left out. On
    the command line, --lambda is another name for it."""
    max_size: Annotated[int | None, Ge(1)] = None
    """Stop at rationales of this many tokens (or other units)."""
    max_evaluations: Annotated[int | None, Ge(0)] = None
    """At most this many subsets for each target in exhaustive search (100,000 if left out), in
    search by deletion (no limit if left out), or to certify it (1,000); 0: no limit."""
    absolute: bool = False
    """Order gradient-x-embedding and integrated-gradients by absolute value."""
    keep_candidates: Annotated[int, Ge(0)] = 0
    """Record this many of the best candidates of each greedy step."""
    seed: int | None = None
    """The seed of the method random; 0 if left out."""
    ig_steps: Annotated[int | None, Ge(1)] = None
    """Steps of integrated-gradients; 100 if left out, 50 for a translation."""

    def __post_init__(self) -> None:
        # As it was given: what is changed later may call for another method.
        object.__setattr__(self, "_given_method", self.method)
        if self.method is None:
            object.__setattr__(self, "method", "greedy" if self.beam is None else "beam")
        if isinstance(self.units, list | tuple):  # JSON has lists only
            pairs = (tuple(each) if isinstance(each, list) else each for each in self.units)
            object.__setattr__(self, "units", tuple(pairs))
        check_option_values({field.name: getattr(self, field.name) for field in fields(self)})
        if isinstance(self.target, list):  # what is frozen can be hashed
            object.__setattr__(self, "target", tuple(self.target))
        _check_together(self)

    def is_given(self, name: str) -> bool:
        """Whether an option has another value than it has if left out."""
        return bool(getattr(self, name) != getattr(Options, name))

    def value(self, name: str) -> Any:
        """The option as it was given, or else its default."""
        given = getattr(self, name)
        return DEFAULTS[name] if given is None else given

    def shaping(self) -> dict[str, Any]:
        """The options that decide what a rationale is, where they are not the default ones."""
        names = ["fast", "minimal", "unit", "unit_pattern", "units", "coarse_to_fine", "finest"]
        names += ["language", "criterion", "evaluation"]
        names += ["instead_of", "disjoint", "span", "max_size"]
        always = {"beam": ["beam"], "soft": ["penalty"]}.get(self.method, [])
        given = {name: getattr(self, name) for name in names if self.is_given(name)}
        if self.units is not None:  # as JSON has them
            given["units"] = [list(pair) for pair in self.units]
        return given | {name: self.value(name) for name in always}

    def change(self, **changes: Any) -> Options:
        """These options with some fields changed."""
        known = [field.name for field in fields(self)]
        for name in changes:
            if name not in known:
                raise RationalesError(f"unknown option {name!r}: choose from {', '.join(known)}")
        return replace(self, **{"method": self.__dict__["_given_method"], **changes})


class OptionKeywords(TypedDict, total=False):
    """The fields of ``Options`` as keywords, for editors and type checkers."""

    generate: int | None
    continuation: str | None
    target: Target | None
    chat: bool
    src_lang: str | None
    tgt_lang: str | None
    prefix: str | None
    max_length: int | None
    specials: Specials
    method: str
    fast: bool
    evaluation: ShownAs | None
    minimal: bool
    certify: bool
    beam: int | None
    unit: Unit
    unit_pattern: str | None
    units: Sequence[tuple[int, int]] | None
    coarse_to_fine: bool
    finest: Unit | None
    language: str | None
    criterion: str
    instead_of: str | None
    disjoint: int
    span: bool
    penalty: float | None
    max_size: int | None
    max_evaluations: int | None
    absolute: bool
    keep_candidates: int
    seed: int | None
    ig_steps: int | None


Input = Literal["causal", "seq2seq", "ids"]
"""What is explained: a text by a language model, one by an encoder–decoder, or bare ids."""

READ_BY: dict[str, tuple[str, ...]] = {
    "fast": ("greedy",),
    "coarse_to_fine": ("greedy", "deletion"),
    "keep_candidates": ("greedy",),
    "max_evaluations": ("exhaustive", "deletion"),
    "beam": ("beam",),
    "penalty": ("soft",),
    "absolute": SIGNED,
    "ig_steps": ("integrated-gradients",),
    "seed": ("random",),
}
"""The methods that read an option; all methods read one that is not here."""

_OF_TRANSLATIONS = dict.fromkeys(
    ("src_lang", "tgt_lang", "prefix", "max_length"), "it is for translation, by an encoder–decoder"
)
NOT_FOR: dict[Input, dict[str, str]] = {
    "causal": _OF_TRANSLATIONS,
    "seq2seq": {
        "chat": "an encoder–decoder has no chat template",
        "generate": "a translation ends by itself; {max_length} bounds it",
    },
    "ids": {
        **dict.fromkeys(
            ("generate", "continuation", "target", "chat", "specials", *_OF_TRANSLATIONS),
            "it is for texts; a context has its ids and its target",
        ),
        **dict.fromkeys(
            ("unit", "unit_pattern", "units", "finest"),
            "it is for texts; give the context its units",
        ),
        "language": "it is for texts; give the context its units",
        "instead_of": "it is for texts; give the context the id of the alternative",
        "span": "it is for texts; give the context all ids of its target",
    },
}
"""Options that have no meaning for an input, and why."""


def check_option_values(values: Mapping[str, Any]) -> None:
    """Raise if an option has a value that it cannot have, whatever the others are."""
    check_values(Options, values)
    method = values.get("method", "greedy")
    if method not in METHODS:
        raise RationalesError(f"unknown method {method!r}: choose one of {', '.join(METHODS)}")
    if "criterion" in values:
        parse(values["criterion"])


def check_input(options: Options, kind: Input) -> None:
    """Raise if an option that is given has no meaning for this kind of input."""
    for name, why in NOT_FOR[kind].items():
        if options.is_given(name):
            raise OptionError(f"leave out {{{name}}}: {why}")
    if kind == "seq2seq" and METHODS[options.method].causal_only:
        raise OptionError(
            "{value} follows one stack of layers, and an encoder–decoder has two: give "
            "another {method}, such as last-attention or all-attention",
            value=options.method,
        )


def _check_together(options: Options) -> None:
    """Raise if two options contradict each other, or if the method does not read one."""
    for name, methods in READ_BY.items():
        if name == "max_evaluations" and options.certify:
            continue
        if options.is_given(name) and options.method not in methods:
            raise OptionError(
                f"{{{name}}} goes with the method {{methods}}, not {{value}}: leave it out, "
                "or give another {method}",
                methods=" or ".join(methods),
                value=options.method,
            )
    for message in _contradictions(options):
        raise OptionError(message)


def _fault(pattern: str) -> str | None:
    """What is wrong with a regular expression, if anything is."""
    try:
        if re.compile(pattern).fullmatch(""):
            return "matches the empty text: it must match at least one character"
    except (re.error, OverflowError, RecursionError) as error:
        said = first_line(error).replace("{", "{{").replace("}", "}}")
        return f"is no regular expression: {said}"
    return None


def _contradictions(o: Options) -> Iterator[str]:
    """What is wrong with options that are given together."""
    if o.generate is not None and o.continuation is not None:
        yield "leave out {generate}: {continuation} is given, and nothing is generated"
    if o.max_length is not None and o.continuation is not None:
        yield "leave out {max_length}: {continuation} is given, and nothing is translated"
    if o.specials == "candidate" and o.chat:
        yield (
            "leave out {specials} or {chat}: the special tokens of a chat template are always "
            "pinned"
        )
    kinds = [name for name in ("unit", "unit_pattern", "units") if o.is_given(name)]
    if len(kinds) > 1:
        yield f"{{{kinds[0]}}} and {{{kinds[1]}}} exclude each other: leave out one"
    if o.unit_pattern is not None and (fault := _fault(o.unit_pattern)):
        yield f"{{unit_pattern}} {fault}"
    if o.finest is not None and not o.coarse_to_fine:
        yield "{finest} is where {coarse_to_fine} ends: give both, or leave it out"
    if o.finest is not None and o.finest not in LEVELS:
        yield f"{{finest}} must be one of {', '.join(LEVELS)}"
    for start, end in sorted(o.units or ()):
        if not 0 <= start < end:
            yield f"{{units}} go from one character to a later one, not from {start} to {end}"
    for (_, end), (start, _) in pairwise(sorted(o.units or ())):
        if start < end:
            yield f"{{units}} must not overlap: one ends at {end}, the next begins at {start}"
    if o.language is not None and o.unit != "sentence" and not o.coarse_to_fine:
        yield (
            "leave out {language}, by which sentences are split, or give {unit} sentence or "
            "{coarse_to_fine}"
        )
    if o.coarse_to_fine and kinds:
        yield f"{{coarse_to_fine}} has units of its own: leave out {{{kinds[0]}}}"
    if o.instead_of is not None and o.criterion != "argmax":
        yield "{instead_of} is a criterion of its own: leave out {criterion}"
    if o.instead_of is not None and o.span:
        yield "{instead_of} compares single tokens: leave out {span}"
    if o.coarse_to_fine and o.criterion == "none":
        yield (
            "{coarse_to_fine} keeps what is sufficient, and with {criterion} none nothing is: "
            "leave out one"
        )
    if o.criterion == "none" and o.max_size is None:
        yield "{criterion} none ends at a size: give {max_size}"
    for name in ("criterion", "instead_of", "minimal", "certify", "disjoint"):
        if o.method == "soft" and o.is_given(name):
            yield f"the method soft weighs size against probability: leave out {{{name}}}"
