"""Which tokens of a text a target names: all, last, indices, a range or a word."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from textwrap import shorten

from rationales.errors import RationalesError
from rationales.text import Passage


def find_targets(passage: Passage, target: str | int | Sequence[int], start: int = 0) -> list[int]:
    """The indices that a target stands for, in text order; all of them from ``start`` on.

    A target is ``"all"``, ``"last"``, an index (``7``, ``"-1"``), indices (``[3, 7]``,
    ``"3,7"``), a range without its end (``"3:7"``, ``"-4:"``) or a word. What looks like an index
    is one: ``"2024#1"`` names the word.
    """
    if start:
        # To the finder, everything before is out of bounds, as pinned tokens are.
        hidden = tuple(replace(t, pinned=t.pinned or t.index < start) for t in passage.tokens)
        seen = replace(passage, tokens=hidden, start=start)
        found = find_targets(seen, target)
        what = "translation" if passage.source else "answer"
        for index in found:
            if index < start:
                is_word = isinstance(target, str | int) and _find(seen, str(target), whole=True)
                hint = f"; {target}#1 names the word" if is_word else ""
                raise RationalesError(
                    f"token {index} is none of the {what}, whose tokens are "
                    f"{start} … {len(passage.tokens) - 1}{hint}"
                )
        return found
    own = [token.index for token in passage.tokens if not token.pinned]
    if target == "all":
        return own
    if target == "last":
        return own[-1:]
    if isinstance(target, int):
        return [_index(passage, target)]
    if not isinstance(target, str):
        return sorted({_index(passage, index) for index in target})
    if re.fullmatch(_NUMBER, target):
        return [_index(passage, int(target))]
    if re.fullmatch(rf"{_PLAIN}(, ?{_PLAIN})+", target):
        _check_no_word(passage, target)
        return sorted({_index(passage, int(each)) for each in target.split(",")})
    if bounds := re.fullmatch(rf"(?=.*\d)({_PLAIN})?:({_PLAIN})?", target):
        _check_no_word(passage, target)
        first, end = (None if bound is None else int(bound) for bound in bounds.groups())
        chosen = range(len(passage.tokens))[first:end]
        if found := [index for index in own if index in chosen]:
            return found
        there = f"{own[0]} … {own[-1]}" if own else "none"
        raise RationalesError(f"no token can be explained in {target}: there are {there}")
    return _find_word(passage, target)


_NUMBER = r"[+-]?\d{1,4000}"
"""An index; Python reads no longer numbers than this."""
_PLAIN = r"[+-]?(?:0|[1-9]\d{0,3999})"
"""One in a list or a range: without leading zeros, so that "1,000" and "10:05" are words."""


def _index(passage: Passage, index: int) -> int:
    """The index, counted from the beginning; an error if there is no such token."""
    count = len(passage.tokens)
    if -count <= index < count:
        return index % count
    hint = f"; {index}#1 names the word" if _find(passage, str(index), whole=True) else ""
    raise RationalesError(
        f"there is no token {index}: the text has {count} tokens, 0 … {count - 1}{hint}"
    )


def _check_no_word(passage: Passage, target: str) -> None:
    """Raise if a range or list is a word of the text too ("10:30", "3,141"): which is meant?"""
    if _find(passage, target, whole=True):
        raise RationalesError(
            f"the target {target} is a word of the text, and indices of tokens too: give "
            f"{target}#1 for the word, or write the indices in another way, such as +3:7"
        )


def _find_word(passage: Passage, target: str) -> list[int]:
    """Every token of one occurrence of a word: the last, or the one that ``word#2`` names."""
    word, _, number = target.rpartition("#")
    is_numbered = word and number.isdecimal()  # isdigit() holds for "²" too, which int() refuses
    if not is_numbered or _find(passage, target, whole=True):  # "issue #1" may be in the text
        word, number = target, ""
    if not word.strip():
        raise RationalesError("the target is empty: give all, last, an index or a word")
    # Languages without spaces have no word boundaries to find.
    places = _find(passage, word, whole=True) or _find(passage, word, whole=False)
    if not places:
        raise RationalesError(
            f"the target {target!r} is not in {_shown(passage)}: give a word of it, an index, last "
            "or all"
        )
    which = int(number[:4000]) if number else len(places)
    if not 1 <= which <= len(places):
        raise RationalesError(
            f"the text has {len(places)} occurrence(s) of {word!r}, not a number {which}"
        )
    text, (start, end) = _own_text(passage), places[which - 1]
    found: list[int] = []
    position = 0
    for token in passage.tokens:
        own = text[max(start, position) : min(end, position + len(token.text))]
        # Between its words a target has spaces; a later byte of a character stands for nothing.
        inside = bool(found) and start < position and position + len(token.text) <= end
        if own.strip() or (inside and not token.pinned):
            found.append(token.index)
        position += len(token.text)
    return found


def _shown(passage: Passage) -> str:
    """The text in which a target is looked for, for a message: an answer is not known before."""
    if passage.start == len(passage.tokens) or passage.source:
        return "the text"
    answer = "".join(token.text for token in passage.tokens[passage.start :])
    return f"the answer, {shorten(answer, 80, placeholder=' …')!r}"


def _find(passage: Passage, word: str, whole: bool) -> list[tuple[int, int]]:
    """Where a word stands in the text, in order; ``whole``: and not within a longer one.

    Between words, any space or line break serves for another.
    """
    quoted = r"\s+".join(map(re.escape, word.split()))
    pattern = rf"(?<!\w){quoted}(?!\w)" if whole else quoted
    return [match.span() for match in re.finditer(pattern, _own_text(passage))]


def _own_text(passage: Passage) -> str:
    """The user's own text: pinned tokens are blanked, in place."""
    return "".join("\0" * len(t.text) if t.pinned else t.text for t in passage.tokens)
