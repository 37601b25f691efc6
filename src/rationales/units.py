"""Tokens → units: the words or sentences that a search keeps or leaves out as a whole.

Units are made of whole tokens, and of whole words or sentences as far as the tokens allow:

- *words*: tokens that share a word are in one unit. A token that holds parts of two words joins
  them (". The"). Punctuation is a unit of its own unless a token joins it to a word.
- *sentences*: a token belongs to the sentence of its first character that is not a space.

Spaces and line breaks go with what follows them, or with what precedes them at the end. A later
byte of a split character, a token without text, goes with the token before it. Pinned tokens are in
no unit, and what they separate is never one unit: the text on either side is read by itself. So
are the source and the target of a translation.

Words are those of Unicode's word segmentation (UAX #29), which needs no dictionary: "don't" and
"l'eau" are one word each; a Chinese character or a hiragana is a word, and so is a cluster of Thai,
Lao, Khmer or Burmese characters. In these scripts words are therefore about as long as tokens.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Literal, get_args

from rationales.context import Token
from rationales.errors import RationalesError

Unit = Literal["token", "word", "sentence"]

_NOT_ASCII_SPACE = re.compile(r"[^\S\x00-\x7f]")


def group(tokens: Sequence[Token], unit: Unit, language: str = "en") -> tuple[tuple[int, ...], ...]:
    """The units of these tokens, in text order: every index that is not pinned is in one of them.

    ``language`` is a code such as ``"de"``; it tells sentences by their abbreviations and
    punctuation. One that is not known is read like a related language, or like English.
    """
    if unit not in get_args(Unit):
        raise RationalesError(f"unit must be one of {', '.join(get_args(Unit))}, not {unit!r}")
    if unit == "token":
        return tuple((token.index,) for token in tokens if not token.pinned)
    return tuple(
        tuple(indices)
        for (pinned, _), run in groupby(tokens, key=lambda token: (token.pinned, token.side))
        if not pinned
        for indices in _group_run(list(run), unit, language)
    )


def _group_run(run: Sequence[Token], unit: Unit, language: str) -> list[list[int]]:
    """The units of a run of tokens without a pinned one."""
    text = "".join(token.text for token in run)
    piece_at = _pieces(_word_starts(text) if unit == "word" else _sentence_starts(text, language))
    units: list[list[int]] = []
    waiting: list[int] = []  # spaces, until it is known what follows them
    piece_before, position = -1, 0  # the piece that would draw the next token into the last unit
    for token in run:
        own = token.text.strip()
        start = position + len(token.text) - len(token.text.lstrip())
        position += len(token.text)
        if not token.text and units and not waiting:
            units[-1].append(token.index)
        elif not own:
            waiting.append(token.index)
        else:
            first, last = piece_at(start), piece_at(start + len(own) - 1)
            if first != piece_before:
                units.append([])
            units[-1] += [*waiting, token.index]
            waiting = []
            piece_before = last if unit == "word" else first
    if waiting and not units:
        return [waiting]
    if waiting:
        units[-1] += waiting
    return units


def _pieces(starts: Sequence[int]) -> Callable[[int], int]:
    """A function from the place of a character to the number of the piece that it lies in."""
    return lambda place: bisect_right(starts, place)


def _word_starts(text: str) -> list[int]:
    """Where words begin, and what is between them: spaces, punctuation marks."""
    import regex

    # `regex` follows UAX #29 but for one thing: it does not part an apostrophe from a vowel after
    # it, so that 'apple' in quotes would begin with one, and 'pear' would not.
    return [match.start() for match in regex.finditer(r"(?w)\b|(?<=\b['’])", text)]


def _sentence_starts(text: str, language: str) -> list[int]:
    """Where sentences begin, and the blank lines between them."""
    import sentencex

    # sentencex 1.0.32 panics (a BaseException) on a capital, a space beyond ASCII and a full stop,
    # "vitamin B\u00a0.". One space for another leaves every character where it was.
    plain = _NOT_ASCII_SPACE.sub(" ", text)
    boundaries = sentencex.get_sentence_boundaries(language, plain)
    return [int(boundary["start_index"]) for boundary in boundaries]
