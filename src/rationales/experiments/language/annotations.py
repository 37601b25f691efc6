"""Lambada passages with human annotations: the words that an annotator needed to guess the last.

    {"lambadaIndex": 66, "text": "… with only a few scratches", "rationale": [[279, 282], …]}

An annotation is given in characters, in the order in which the words were shown. A token is part of
it if the two share a character that is not a space. The target is the last word: its first token
where tokens are compared, all of its tokens where words are shown one by one.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from rationales.context import Context
from rationales.data import data_file
from rationales.errors import RationalesError, cannot
from rationales.experiments.language.templates import Completed, encode
from rationales.metrics import Span, tokens_in_span
from rationales.text import Tokenizer, check_unicode

PASSAGES = "annotated_lambada.jsonl"


@dataclass(frozen=True)
class Annotated(Completed):
    """A passage up to its target, and its human annotation, as token indices."""

    human: frozenset[int]
    before: frozenset[int]
    """The tokens of the word before the target, which is part of every annotation."""
    single_token: bool
    """Whether the target is the whole last word."""


@dataclass(frozen=True)
class Row:
    """A line of a file of passages."""

    id: str | int
    text: str
    rationale: tuple[Span, ...] = ()
    """The annotation, if there is one, in the order in which its words were shown."""
    words: tuple[Span, ...] = ()
    """The words that can be chosen, the last of them the target."""
    key: str = "id"
    """What the file calls the id: released ones are a ``lambadaIndex``."""

    def word(self, place: int) -> str:
        """The word at this place."""
        start, end = self.words[place]
        return self.text[start:end]


def read_rows(path: Path) -> Iterator[Row]:
    """The passages of a file of JSON lines, released or exported; blank lines are skipped."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise cannot("read", path, error) from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield _row(json.loads(line), number)
        except RationalesError as error:
            raise RationalesError(f"line {number} of {path.name}: {error}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RationalesError(
                f"line {number} of {path.name} is not a passage: it needs a text, as in "
                '{"id": 1, "text": "…"}'
            ) from error


def _row(data: Mapping[str, Any], number: int) -> Row:
    text = data["text"] if "text" in data else data["context"] + data["continuation"]
    key = "lambadaIndex" if "lambadaIndex" in data else "id"
    id = data.get(key, number)
    if not isinstance(text, str) or not isinstance(id, str | int) or isinstance(id, bool):
        raise TypeError
    check_unicode(text)
    check_unicode(str(id))
    rationale, words = (
        tuple((int(start), int(end)) for start, end in data.get(name) or ())
        for name in ("rationale", "words")
    )
    for start, end in (*rationale, *words):
        if not 0 <= start < end <= len(text):
            raise RationalesError(f"the span [{start}, {end}] is not within the text")
    words = words or split_words(text, rationale)
    for one, other in pairwise(words):
        if one[1] > other[0]:
            raise RationalesError(f"the words {[*one]} and {[*other]} overlap, or are out of order")
    return Row(id, text, rationale, words, key)


def split_words(text: str, spans: Sequence[Span] = ()) -> tuple[Span, ...]:
    """The words of a text, without the punctuation around them; dashes part words, hyphens do not.

    The ``spans`` of an annotation are words as they are: the released ones have some punctuation.
    """
    found = [(m.start(1), after_marks(text, m.end(1))) for m in _WORD.finditer(text)]
    others = (w for w in found if not any(s < w[1] and w[0] < e for s, e in spans))
    return tuple(sorted({*others, *spans}))


_WORD = re.compile(r"(?<![^\W_])([^\W_](?:(?:(?!--)[^\s—–…])*[^\W_])?)")
"""From a letter or digit to the last one before a space or a dash."""


def after_marks(text: str, end: int) -> int:
    """The end of a word that ends in a letter here, with its combining marks: no letters to re."""
    while unicodedata.category(text[end : end + 1] or " ").startswith("M"):
        end += 1
    return end


def passages(tokenizer: Tokenizer, path: Path | None = None) -> list[Annotated]:
    """All annotated passages, in the order of the file: the released one if none is named."""
    rows = read_rows(path or data_file(PASSAGES))
    return [
        annotate(tokenizer, row.text, list(row.rationale), str(row.id), row.words) for row in rows
    ]


def annotate(
    tokenizer: Tokenizer,
    text: str,
    spans: list[Span],
    id: str = "",
    words: tuple[Span, ...] | None = None,
) -> Annotated:
    """The passage with its annotation in tokens; the last of the words is the target."""
    words = split_words(text) if words is None else words
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


@dataclass(frozen=True)
class Worded:
    """A passage of which whole words are shown; the target is the whole last word."""

    id: str
    context: Context
    """The words before the target as units. The one right before it is required; so is the token
    before the target, if that is another one. Punctuation is never shown."""
    words: tuple[tuple[int, ...], ...]
    """The tokens of each word before the target."""
    chosen: tuple[int, ...]
    """The places of the annotated words, in the order in which they were shown: first the word
    right before the target."""

    def place(self, unit: Sequence[int]) -> int:
        """The place of the word that has these tokens, or some of them."""
        return next(place for place, own in enumerate(self.words) if {*unit} & {*own})


def in_words(tokenizer: Tokenizer, row: Row) -> Worded:
    """The passage in words, for a model that is to guess its last one."""
    *before, target = row.words
    encoded = encode(tokenizer, row.text)
    shift = len(encoded.prefix)
    first, *more = tokens_in_span(row.text, encoded.offsets, target)
    words: list[tuple[int, ...]] = []
    taken = {*range(first, len(encoded.ids))}
    for span in reversed(before):  # a token of two words is the latter's
        own = [i for i in tokens_in_span(row.text, encoded.offsets, span) if i not in taken]
        taken |= {*own}
        words.insert(0, tuple(i + shift for i in own))
    if not words[-1]:
        raise RationalesError(
            f"passage {row.id}: {row.word(-2)!r} and the target {row.word(-1)!r} are one token of "
            "this model: leave the passage out, or take another model"
        )
    end = first + shift
    required = sorted({*words[-1], end - 1})
    rest = {*range(shift, end)} - {*required, *(i for own in words for i in own)}
    ids = encoded.prefix + encoded.ids
    context = Context(
        ids=ids[:end],
        target_id=ids[end],
        required=tuple(required),
        pinned=tuple(range(shift)),
        units=tuple(own for own in words[:-1] if own),
        span_ids=tuple(ids[i + shift] for i in more),
        excluded=tuple(sorted(rest)),
    )
    places = {span: place for place, span in enumerate(before)}
    last = len(words) - 1
    others = (places[span] for span in row.rationale if places.get(span, last) != last)
    return Worded(str(row.id), context, tuple(words), (last, *others))
