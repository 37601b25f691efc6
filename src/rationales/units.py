"""Tokens → units: the words, sentences or documents that a search keeps or leaves out as a whole.

Units are made of whole tokens, and of whole words or sentences as far as the tokens allow:

- *words*: tokens that share a word are in one unit. A token that holds parts of two words joins
  them (". The"). Punctuation is a unit of its own unless a token joins it to a word.
- *sentences*: a token belongs to the sentence of its first character that is not a space. A blank
  line, a heading and an item of a list end a sentence. Quotation marks and brackets hold sentences
  together up to 150 characters, so that a stray one costs little; a sentence of more than 500
  characters is cut where it pauses.

- *lines* and *paragraphs* (up to a blank line): as sentences, a token is in the one of its first
  character that is not a space.
- *parts*: messages and documents, as the prompt has them. No other unit reaches from one part into
  another. Text without parts is one.
- *a pattern's*: what a regular expression matches, and what lies between two matches.

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
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from itertools import accumulate, groupby, pairwise
from typing import Any, Literal

from rationales.context import Part, Token
from rationales.errors import OptionError, RationalesError

Unit = Literal["token", "word", "sentence", "line", "paragraph", "document", "message"]
LEVELS: tuple[Unit, ...] = ("document", "paragraph", "sentence", "word", "token")
"""The units of a coarse-to-fine search, level by level; a message is a document there."""

HELD_TOGETHER = 150
"""Sentences in quotation marks or brackets are one unit up to this many characters."""
LONGEST = 500
"""No sentence has more characters than this; the token that it ends in may have more."""

_WINDOW = 5_000  # characters that are segmented at a time: the time grows with their square
_LANGUAGE = re.compile(r"([A-Za-z]{2,3})(?:[-_][A-Za-z0-9]{1,8})*")
_NOT_ASCII_SPACE = re.compile(r"[^\S\x00-\x7f]")
_BLOCK = re.compile(
    r"""\n\s*(?=\n)  # blank lines
    | ^[^\S\n]*(?:[-*+•‣◦]|\(?\d{1,3}[.)]|\(?[A-Za-z]\)|\#{1,6})[ \t]+  # an item or a heading
    | ^[^\S\n]*[–—][ \t]*(?![a-zß-öø-ÿά-ώа-яё\s])  # what somebody says in a dialogue""",
    re.MULTILINE | re.VERBOSE,
)
_ENDS = {"line": re.compile(r"\n"), "paragraph": re.compile(r"\n[^\S\n]*\n\s*")}
_HEADING = re.compile(r"^[^\S\n]*#{1,6} [^\n]*", re.MULTILINE)
_OPENING = "«‘‚“„‹《「『(（<{[【"
_APOSTROPHES = "'`‘’‚‛"
_MARKS = _OPENING + _APOSTROPHES + '"»”‟›》」』)）>}]】'
_STRAIGHT = re.compile('"')
_HOLDING = re.compile(rf"(?!(?<=\w)[{_APOSTROPHES}]\w)[{re.escape(_MARKS)}]")
_PAUSES = tuple(map(re.compile, (r"\n", r"[;:](?=\s)|[；：؛]", r",(?=\s)|[，、،]", r"\s")))


def group(
    tokens: Sequence[Token],
    unit: Unit,
    language: str = "en",
    *,
    parts: Sequence[Part] = (),
    pattern: str | None = None,
    spans: Sequence[tuple[int, int]] | None = None,
) -> tuple[tuple[int, ...], ...]:
    """The units of these tokens, in text order: every index that is not pinned is in one of them.

    ``language`` is a code such as ``"de"``; it tells sentences by their abbreviations and
    punctuation. One that is not known is read like a related language, or like English. ``parts``
    are messages and documents. With a ``pattern``, units are what it matches; with ``spans``, they
    are what lies between these characters of the text; pinned tokens are not counted.
    """
    code = _LANGUAGE.fullmatch(language) if isinstance(language, str) else None
    if code is None:
        raise RationalesError(
            f"language must be a code such as 'en', 'de' or 'pt-BR', not {language!r}"
        )
    texts = [token.text for token in tokens]
    part_of = {i: n for n, part in enumerate(parts) for i in range(part.start, part.end)}
    sides = [None if token.pinned else (token.side, part_of.get(token.index)) for token in tokens]
    if spans is not None:
        own = [token.index for token in tokens if not token.pinned]
        starts = sorted({0, *(border for span in spans for border in span)})
        if starts[-1] > (length := sum(len(texts[index]) for index in own)):
            raise OptionError(
                "{units} end at character {end}, and the text has {length} characters that are not "
                "pinned",
                end=starts[-1],
                length=length,
            )
        pinned = [*accumulate(token.pinned for token in tokens)]  # how many up to each token
        joined = _joined(own, texts, starts)
        runs = (groupby(unit, key=lambda index: (sides[index], pinned[index])) for unit in joined)
        return tuple(tuple(run) for unit in runs for _, run in unit)
    return tuple(map(tuple, group_texts(texts, sides, unit, code[1].lower(), pattern)))


def make_levels(
    split: Callable[[Unit], tuple[tuple[int, ...], ...]], finest: Unit | None = None
) -> dict[Unit, tuple[tuple[int, ...], ...]]:
    """The units of each level that a text has, from coarse to fine: not one unit, nor the same.

    A unit that reaches over a border of a coarser level (a word so long that its sentence was cut
    within it) is cut there.
    """
    last = LEVELS.index("token" if finest is None else finest)
    levels: dict[Unit, tuple[tuple[int, ...], ...]] = {}
    above: dict[int, int] = {}
    for level in LEVELS[: last + 1]:
        whole = split(level)
        levels[level] = tuple(
            tuple(run) for unit in whole for _, run in groupby(unit, key=above.get)
        )
        above = {index: n for n, unit in enumerate(levels[level]) for index in unit}
    finer = [*levels.values(), None][1:]
    return {
        level: units
        for (level, units), below in zip(levels.items(), finer, strict=True)
        if below is None or (len(units) > 1 and units != below)
    }


def group_texts(
    texts: Sequence[str],
    sides: Sequence[Hashable],
    unit: Unit,
    language: str = "en",
    pattern: str | None = None,
) -> list[list[int]]:
    """The units of tokens with these texts, as lists of their places.

    A side is None for a pinned token; tokens of two sides are never in one unit.
    """
    units: list[list[int]] = []
    if pattern is None and unit in ("document", "message"):
        whole: dict[Hashable, list[int]] = {}
        for place, side in enumerate(sides):
            if side is not None:
                whole.setdefault(side, []).append(place)
        return [*whole.values()]
    for side, run in groupby(range(len(texts)), key=sides.__getitem__):
        if side is not None:
            places = list(run)
            if pattern is None and unit == "token":
                units += [[place] for place in places]
            else:
                units += _group_run(places, texts, unit, language, pattern)
    return units


def _group_run(
    places: list[int], texts: Sequence[str], unit: Unit, language: str, pattern: str | None
) -> list[list[int]]:
    """The units of a run of tokens, side by side, without a pinned one."""
    whole = "".join([texts[place] for place in places])
    if pattern is not None:
        starts = sorted({0, *(end for m in re.finditer(pattern, whole) for end in m.span())})
    elif unit == "word":
        starts = word_starts(whole)
    elif unit == "sentence":
        starts = _sentence_starts(whole, language)
    else:
        starts = [0, *(match.end() for match in _ENDS[unit].finditer(whole))]
    return _joined(places, texts, starts, spread=pattern is None and unit == "word")


def _joined(
    places: Sequence[int], texts: Sequence[str], starts: Sequence[int], spread: bool = False
) -> list[list[int]]:
    """Tokens that are in the same of the pieces that begin there, as units.

    A token is in the piece of its first character; with ``spread``, it joins all that it is in.
    """
    units: list[list[int]] = []
    waiting: list[int] = []  # spaces, until it is known what follows them
    # The piece (a word, a sentence) that would draw the next token into the last unit.
    piece_before, position = -1, 0
    for place in places:
        text = texts[place]
        own = text.strip()
        if own:
            start = position + text.index(own)
            first = last = bisect_right(starts, start)  # the piece that its first character is in
            if spread and len(own) > 1:
                last = bisect_right(starts, start + len(own) - 1)
            if first == piece_before:
                units[-1] += [*waiting, place]
            else:
                units.append([*waiting, place])
            waiting = []
            piece_before = last
        elif not text and units and not waiting:
            units[-1].append(place)
        else:
            waiting.append(place)
        position += len(text)
    if not units:
        return [waiting]
    units[-1] += waiting
    return units


def word_starts(text: str) -> list[int]:
    """Where words begin, and what is between them: spaces, punctuation marks; then the end."""
    return [*accumulate(map(len, _piece().findall(text)), initial=0)]


@cache
def _piece() -> Any:
    """The pattern of a word, or of what is between two words."""
    import regex

    # `regex` follows UAX #29 but for one thing: it does not part an apostrophe from a vowel after
    # it, so that 'apple' in quotes would begin with one, and 'pear' would not. No word ends within
    # ASCII letters and digits, so that there is no need to look for an end there.
    return regex.compile(r"(?sw)(?:[A-Za-z0-9_]++|.).*?(?:\b|(?<=\b['’]))")


def _sentence_starts(text: str, language: str) -> list[int]:
    """Where sentences begin, in rising order."""
    # sentencex 1.0.32 panics (a BaseException) on a capital, a space beyond ASCII and a full stop,
    # "vitamin B\u00a0.". One space for another leaves every character where it was.
    plain = _NOT_ASCII_SPACE.sub(" ", text)
    marks = [match.span() for match in _BLOCK.finditer(plain)]
    marks += [(match.end(), match.end()) for match in _HEADING.finditer(plain)]
    starts: list[int] = []
    for (start, body), (end, _) in pairwise([(0, 0), *sorted(marks), (len(plain), len(plain))]):
        # A list's "1." would be a sentence, and its "-" would keep sentencex from finding any.
        block = " " * (body - start) + plain[body:end]
        starts.append(start)
        while len(block) > _WINDOW:  # what is cut off at the end of a window is read again
            *inner, last = _bounded_starts(block[:_WINDOW], language)
            starts += [start + place for place in (*inner, last) if place]
            start, block = start + last, block[last:]
        starts += [start + place for place in _bounded_starts(block, language) if place]
    return starts


def _bounded_starts(text: str, language: str) -> list[int]:
    """Where the sentences of a text begin, none of them too long; the first at 0."""
    starts: list[int] = []
    stray = _STRAIGHT if text.count('"') % 2 else None
    for start, end in pairwise([*_segment(text, language, stray), len(text)]):
        piece = text[start:end]
        inner = [0] if len(piece) <= HELD_TOGETHER else _segment(piece, language, _HOLDING)
        for begin, stop in pairwise([*inner, len(piece)]):
            starts += [start + begin + place for place in _cut_starts(piece[begin:stop])]
    return starts


def _cut_starts(text: str) -> list[int]:
    """Where the parts of a sentence begin that is too long: after the last of its best pauses."""
    starts = [0]
    while len(text) - starts[-1] > LONGEST:
        low, high = starts[-1] + LONGEST // 4, starts[-1] + LONGEST
        ends = ([m.end() for m in pause.finditer(text, low, high)] for pause in _PAUSES)
        starts.append(next((found[-1] for found in ends if found), high))
    return starts


def _segment(text: str, language: str, ignored: re.Pattern[str] | None) -> list[int]:
    """Where sentences begin according to sentencex, which does not see these marks; first 0."""
    import sentencex

    seen = text if ignored is None else ignored.sub(" ", text)
    starts = {0}
    for boundary in sentencex.get_sentence_boundaries(language, seen):
        # A mark that opens belongs to what follows it, also where it was seen as a space.
        before = text[: boundary["start_index"]]
        bare = before.rstrip(_MARKS)
        opens = not bare or bare[-1].isspace()
        starts.add(len(bare if opens else before.rstrip(_OPENING)))
    return sorted(starts)
