"""Lambada passages with human annotations: the words that an annotator needed to guess the last.

The target is the last word's first token. An annotation is given in characters; a token is part of
it if the two share a character that is not a space.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from rationales.data import data_file
from rationales.errors import RationalesError
from rationales.experiments.language.templates import Completed, encode
from rationales.metrics import Span, tokens_in_span
from rationales.text import Tokenizer

PASSAGES = "annotated_lambada.jsonl"


@dataclass(frozen=True)
class Annotated(Completed):
    """A passage up to its target, and its human annotation, as token indices."""

    human: frozenset[int]
    before: frozenset[int]
    """The tokens of the word before the target, which is part of every annotation."""
    single_token: bool
    """Whether the target is the whole last word."""


def passages(tokenizer: Tokenizer) -> list[Annotated]:
    """All annotated passages, in the order of the file."""
    found = []
    lines = data_file(PASSAGES).read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
            text, id = str(data["text"]), str(data["lambadaIndex"])
            spans = [(int(start), int(end)) for start, end in data["rationale"]]
        except (ValueError, KeyError, TypeError) as error:
            raise RationalesError(f"line {number} of {PASSAGES} is not a passage") from error
        found.append(annotate(tokenizer, text, spans, id))
    return found


def annotate(tokenizer: Tokenizer, text: str, spans: list[Span], id: str = "") -> Annotated:
    """The passage with its annotation in tokens."""
    words = [match.span() for match in re.finditer(r"\S+", text)]
    if len(words) < 2:
        raise RationalesError(f"a passage has a last word and others before it: {text!r}")
    encoded = encode(tokenizer, text)
    shift = len(encoded.prefix)
    last = tokens_in_span(text, encoded.offsets, words[-1])
    target = last[0]

    def chosen(span: Span) -> set[int]:
        """The tokens of a span, as far as they come before the target."""
        return {i + shift for i in tokens_in_span(text, encoded.offsets, span) if i < target}

    return Annotated(
        id=id,
        ids=encoded.prefix + encoded.ids[: target + 1],
        pinned=shift,
        human=frozenset(i for span in spans for i in chosen(span)),
        before=frozenset(chosen(words[-2])),
        single_token=len(last) == 1,
    )
