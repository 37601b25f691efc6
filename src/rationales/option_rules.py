"""Which options go together: who reads which, and what excludes what.

An option that is given where nothing reads it is an error, not a silence: whoever gave it expects
another answer. All of this is known before a model is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from rationales.errors import OptionError
from rationales.method_names import SIGNED

if TYPE_CHECKING:
    from rationales.options import Options

Input = Literal["causal", "seq2seq", "ids"]
"""What is explained: a text by a language model, one by an encoder–decoder, or bare ids."""

READ_BY: dict[str, tuple[str, ...]] = {
    "fast": ("greedy",),
    "coarse_to_fine": ("greedy",),
    "keep_candidates": ("greedy",),
    "max_evaluations": ("exhaustive",),
    "beam": ("beam",),
    "penalty": ("soft",),
    "absolute": SIGNED,
    "ig_steps": ("integrated-gradients",),
    "seed": ("random",),
}
"""The methods that read an option; all methods read one that is not here."""

_RULES: tuple[tuple[str, Callable[[Options], bool]], ...] = (
    (
        "{target} and {continuation} exclude each other: a target names tokens of the text",
        lambda o: o.target is not None and o.continuation is not None,
    ),
    (
        "leave out {generate}: {target} names tokens of the text, and nothing is generated",
        lambda o: o.generate is not None and o.target is not None,
    ),
    (
        "leave out {generate}: {continuation} is given, and nothing is generated",
        lambda o: o.generate is not None and o.continuation is not None,
    ),
    (
        "leave out {max_length}: {continuation} is given, and nothing is translated",
        lambda o: o.max_length is not None and o.continuation is not None,
    ),
    (
        "leave out {specials} or {chat}: the special tokens of a chat template are always pinned",
        lambda o: o.specials == "candidate" and o.chat,
    ),
    (
        "leave out {language}, which tells sentences apart, or give {unit} sentence or "
        "{coarse_to_fine}",
        lambda o: o.language is not None and o.unit != "sentence" and not o.coarse_to_fine,
    ),
    (
        "{coarse_to_fine} has units of its own: leave out {unit}",
        lambda o: o.coarse_to_fine and o.unit != "token",
    ),
    (
        "{instead_of} is a criterion of its own: leave out {criterion}",
        lambda o: o.instead_of is not None and o.criterion != "argmax",
    ),
    (
        "{instead_of} compares single tokens: leave out {span}",
        lambda o: o.instead_of is not None and o.span,
    ),
    *(
        (
            f"the method soft weighs size against probability: leave out {{{name}}}",
            lambda o, name=name: o.method == "soft" and o.is_given(name),
        )
        for name in ("criterion", "instead_of", "minimal", "disjoint")
    ),
)
"""What is said if these options are given together."""

_OF_TRANSLATIONS = dict.fromkeys(
    ("src_lang", "tgt_lang", "prefix", "max_length"), "it is for translation, by an encoder–decoder"
)
_NOT_FOR: dict[Input, dict[str, str]] = {
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
        "unit": "it is for texts; give the context its units",
        "coarse_to_fine": "it is for texts; give the context units, then search again within what "
        "was kept",
        "instead_of": "it is for texts; give the context the id to ask for",
        "span": "it is for texts; give the context the ids of the span",
    },
}
"""Options that have no meaning for an input, and why."""


def check_together(options: Options) -> None:
    """Raise if two options contradict each other, or if the method does not read one."""
    for name, methods in READ_BY.items():
        if options.is_given(name) and options.method not in methods:
            raise OptionError(
                f"{{{name}}} goes with the method {{methods}}, not {{value}}: leave it out, "
                "or give another {method}",
                methods=" or ".join(methods),
                value=options.method,
            )
    for message, holds in _RULES:
        if holds(options):
            raise OptionError(message)


def check_input(options: Options, kind: Input) -> None:
    """Raise if an option that is given has no meaning for this kind of input."""
    for name, why in _NOT_FOR[kind].items():
        if options.is_given(name):
            raise OptionError(f"leave out {{{name}}}: {why}")
    if kind == "seq2seq" and options.method == "attention-rollout":
        raise OptionError(
            "attention-rollout follows one stack of layers, and an encoder–decoder has two: give "
            "another {method}, such as last-attention or all-attention"
        )
