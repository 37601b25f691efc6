"""What ``explain`` and ``rationalize`` are given: of the right type, or one clear line.

Python would find out later, by an attribute that is missing, or not at all: a dictionary is an
iterable of its keys, and the characters of a text are texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rationales.context import Context
from rationales.errors import RationalesError, given
from rationales.options import Options


def check_tokenizer(tokenizer: object) -> None:
    """Raise unless this has the methods of a tokenizer."""
    wanted = ("__call__", "decode", "convert_ids_to_tokens")
    if isinstance(tokenizer, type) or not all(hasattr(tokenizer, name) for name in wanted):
        raise RationalesError(
            "the tokenizer must be one of transformers: "
            f"AutoTokenizer.from_pretrained(...), not {given(tokenizer)}"
        )


def check_scorer(scorer: object) -> None:
    """Raise unless this is a scorer."""
    if isinstance(scorer, type) or not callable(getattr(scorer, "score", None)):
        raise RationalesError(
            f"the scorer must have a method score, as BlackBoxScorer has, not {given(scorer)}"
        )


def check_context(context: object) -> None:
    """Raise unless this is a context."""
    if not isinstance(context, Context):
        raise RationalesError(f"give a Context, not {given(context)}; texts are for explain")


def checked_options(options: object) -> Options:
    """The options that were given, or the default ones."""
    if options is None:
        return Options()
    if not isinstance(options, Options):
        raise RationalesError(
            f"options must be Options(...), not {given(options)}; "
            "single ones can be given as keywords: explain(text, method='greedy')"
        )
    return options


def text_list(text: object) -> list[str]:
    """The texts in what ``explain`` was given: a text, or any iterable of texts."""
    if isinstance(text, str):
        return [text]
    no_list = (bytes, bytearray, memoryview, Mapping, set, frozenset)
    if not isinstance(text, Iterable) or isinstance(text, no_list):
        raise RationalesError(f"give a text (str) or a list of texts, not {given(text)}")
    texts = list(text)
    for place, each in enumerate(texts):
        if not isinstance(each, str):
            raise RationalesError(
                f"give a list of texts (str): at place {place} it has {given(each)}"
            )
    return texts
