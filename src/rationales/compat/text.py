"""Text files → rows of tokens that begin like real inputs begin.

A row is as many tokens as fit, from the start of a paragraph if there is one near, else from the
start of a sentence, and after the special tokens that the tokenizer puts before a text.

WikiText's corpora are split into words: punctuation stands alone, and ``@`` marks what was inside a
word. That spacing is undone: ``role @-@ playing , `` becomes ``role-playing,``. A model that is
trained on such text would learn the spacing first.
"""

from __future__ import annotations

import hashlib
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import NamedTuple

import torch

from rationales.errors import RationalesError, cannot
from rationales.text import Tokenizer, prefix_ids

_SENTENCE_END = re.compile(r"""(?<=[.!?…])["'”’)\]]*\s+(?=\S)|(?<=[。！？])""")
_TOKENIZER_BATCH = 4096

# The spacing of WikiText; a text with a mark is in it.
_MARK = re.compile(r" @([-,.])@(?: |$)")
_HEADING = re.compile(r"\s*= .* =\s*")
_PAIRED = re.compile(r"""(?<![^\s("'\[])(["'])(?!\S)""")
_SUFFIX = re.compile(r" (n't|'(?:s|S|re|ve|ll|d|m|t|n)\b)|(?<=\b[A-Z]) ('(?=\w))")  # and O'Neill
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"([(\[{]) +"), r"\1"),
    (re.compile(r" +([)\]}])"), r"\1"),
    (re.compile(r" +([,.;:!?%…])(?=[\s)\]}\"',.;:!?]|$)"), r"\1"),
    (re.compile(r"(?<=\d): (?=\d\d(?!\d))"), ":"),  # the time, 10:30
    (re.compile(r"([$£€¥]) (?=\d)"), r"\1"),
    (re.compile(r" ([/°]) ?(?=\S)"), r"\1"),
    (re.compile(r'(?<=[.!?]) "$'), '"'),  # of a quotation that began in another line
    (re.compile(r" {2,}"), " "),
)


@dataclass(frozen=True)
class TextFile:
    """The text of a file, with its name (not its path) and the sha256 of its bytes."""

    name: str
    sha256: str
    text: str


class _Piece(NamedTuple):
    """A sentence, or a part of one that is very long, with the white space after it."""

    text: str
    starts_paragraph: bool


def read_text(path: str | Path) -> TextFile:
    """A UTF-8 file; the spacing of WikiText, if that is what it looks like, made normal."""
    try:
        data = Path(path).read_bytes()
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise cannot("read", path, error) from error
    text = text.replace("\r\n", "\n")
    return TextFile(
        name=Path(path).name,
        sha256=hashlib.sha256(data).hexdigest(),
        text=detokenise(text) if _MARK.search(text) else text,
    )


def pack(text: str, tokenizer: Tokenizer, length: int) -> torch.Tensor:
    """Rows of ``length`` tokens of a text: (rows, length), of int32; no row if it is too short."""
    prefix = prefix_ids(tokenizer)
    room = length - len(prefix)
    if room < 1:
        raise RationalesError(f"--length {length} leaves no room beside the tokenizer's own tokens")
    pieces = list(_pieces(text))
    counts = _counts(tokenizer, pieces)
    if max(counts, default=0) > room:
        parts = (_shorten(p, count / room) for p, count in zip(pieces, counts, strict=True))
        pieces = list(chain.from_iterable(parts))
        counts = _counts(tokenizer, pieces)
    texts = list(_row_texts(pieces, counts, room))
    rows = [[*prefix, *ids[:room]] for ids in _tokenise(tokenizer, texts) if len(ids) >= room]
    return torch.tensor(rows, dtype=torch.int32).reshape(-1, length)


def _row_texts(pieces: Sequence[_Piece], counts: Sequence[int], room: int) -> Iterator[str]:
    """For each row, the text that is sure to fill it; pieces have these counts of tokens."""
    before = [0, *accumulate(counts)]
    paragraphs = [place for place, piece in enumerate(pieces) if piece.starts_paragraph]
    paragraphs.append(len(pieces))
    start = 0
    while start < len(pieces):
        # Tokens are counted piece by piece; tokenised together, there may be a few less.
        end = bisect_left(before, before[start] + room + room // 8 + 8)
        yield "".join(piece.text for piece in pieces[start:end]).lstrip()
        cut = bisect_right(before, before[start] + room) - 1
        start = max(cut, start + 1)  # the piece that was cut short begins the next row …
        paragraph = paragraphs[bisect_left(paragraphs, start)]
        if before[paragraph] - before[start] < room // 2:
            start = paragraph  # … unless a paragraph begins soon


def _pieces(text: str) -> Iterator[_Piece]:
    """The sentences of a text, in order; joined, they are the text without its blank ends."""
    # Blank lines separate paragraphs that have line breaks of their own; without any, lines do.
    blank = re.search(r"\n[ \t]*\n", text.strip())
    paragraph_end = re.compile(r"\n[ \t]*\n\s*" if blank else r"\n\s*")
    for paragraph in _split(text.strip(), paragraph_end):
        for number, sentence in enumerate(_split(paragraph, _SENTENCE_END)):
            yield _Piece(sentence, starts_paragraph=number == 0)


def _split(text: str, separator: re.Pattern[str]) -> Iterator[str]:
    """The parts of a text, each with the separator at its end."""
    ends = (match.end() for match in separator.finditer(text))
    return (text[a:b] for a, b in pairwise([0, *ends, len(text)]) if a < b)


def _shorten(piece: _Piece, rows: float) -> Iterator[_Piece]:
    """The parts of a piece that fills this many rows: cut after white space, if there is any."""
    text, is_start = piece.text, piece.starts_paragraph
    longest = math.ceil(len(text) / max(1.0, rows))
    while len(text) > longest:
        cut = max(text.rfind(space, 0, longest) for space in " \n\t") + 1
        cut = cut if cut > longest // 2 else longest
        yield _Piece(text[:cut], is_start)
        text, is_start = text[cut:], False
    yield _Piece(text, is_start)


def _counts(tokenizer: Tokenizer, pieces: Sequence[_Piece]) -> list[int]:
    return [len(ids) for ids in _tokenise(tokenizer, [piece.text for piece in pieces])]


def _tokenise(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[list[int]]:
    for start in range(0, len(texts), _TOKENIZER_BATCH):
        batch = list(texts[start : start + _TOKENIZER_BATCH])
        yield from tokenizer(batch, add_special_tokens=False, verbose=False)["input_ids"]


def detokenise(text: str) -> str:
    """A text in WikiText's spacing as it is usually written; headings are left out.

    What was one line is one line; blank lines are left out, too.
    """
    lines = (line.strip() for line in text.split("\n") if not _HEADING.fullmatch(line))
    return "\n".join(_line(line) for line in lines if line) + "\n"


def _line(line: str) -> str:
    line = _MARK.sub(r"\1", line)
    line = _SUFFIX.sub(r"\1\2", line)
    line = _quotes(line)
    for pattern, replacement in _RULES:
        line = pattern.sub(replacement, line)
    return line.strip()


def _quotes(line: str) -> str:
    """Straight quotes that stand alone, moved to what they open or close: they take turns."""
    is_open = {'"': False, "'": False}
    done, rest = "", line
    while match := _PAIRED.search(rest):
        mark, before, after = match[1], rest[: match.start()], rest[match.end() :]
        done += before
        if is_open[mark]:
            done, rest = done.rstrip(" ") + mark, after
            is_open[mark] = False
        elif mark == "'" and done.endswith("s "):  # the players ' choice
            done, rest = done[:-1] + mark, after
        else:
            done, rest = done + mark, after.lstrip(" ")
            is_open[mark] = True
    return done + rest
