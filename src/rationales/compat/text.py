"""Text files → rows of tokens that begin like real inputs begin.

A row is as many tokens as fit, from the start of a paragraph or a sentence on, and after the
special tokens that the tokenizer puts before a text.

WikiText's corpora are split into words: punctuation stands alone, and ``@`` marks what was inside a
word. That spacing is undone: ``role @-@ playing , `` becomes ``role-playing,``. A model that is
trained on such text would learn the spacing first.
"""

from __future__ import annotations

import hashlib
import re
import textwrap
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

import torch

from rationales.errors import RationalesError
from rationales.text import Tokenizer, prefix_ids

_SENTENCE_END = r"""(?<=[.!?…])["'”’)\]]*\s+(?=\S)|(?<=[。！？])"""
_TOKENIZER_BATCH = 4096

_MARK = re.compile(r" @([-,.])@(?: |$)")
_HEADING = re.compile(r"\s*= .* =\s*")
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (_MARK, r"\1"),
    (re.compile(r" (n't|'(?:s|S|re|ve|ll|d|m|t|n)\b)"), r"\1"),
    (re.compile(r"(?<=\b[A-Z]) '(?=\w)"), "'"),  # O'Neill
    (re.compile(r"(?<=s) '(?!\S)"), "'"),  # the players' choice, or the end of a quotation
    # Quotes that stand alone take turns: the first opens, the second closes.
    (re.compile(r'(?<![^\s("\'\[])" ([^"]*?) ?"(?!\S)'), r'"\1"'),
    (re.compile(r"(?<![^\s(\"'\[])' (.*?) '(?![^\s\"])"), r"'\1'"),
    (re.compile(r'(?<=[.!?]) "$'), '"'),  # of a quotation that began in another line
    (re.compile(r"""(?<!\S)(["']) (?=\S)"""), r"\1"),
    (re.compile(r"([(\[{]) +"), r"\1"),
    (re.compile(r" +([)\]}])"), r"\1"),
    (re.compile(r" +([,.;:!?%…])(?=[\s)\]}\"',.;:!?]|$)"), r"\1"),
    (re.compile(r"(?<=\d): (?=\d\d(?!\d))"), ":"),  # the time, 10:30
    (re.compile(r"([$£€¥]) (?=\d)"), r"\1"),
    (re.compile(r" ([/°]) ?(?=\S)"), r"\1"),
    (re.compile(r" {2,}"), " "),
)
"""The spacing of WikiText, and what it stands for; one after the other."""


@dataclass(frozen=True)
class TextFile:
    """The text of a file, with its name (not its path) and the sha256 of its bytes."""

    name: str
    sha256: str
    text: str


def read_text(path: str | Path) -> TextFile:
    """A UTF-8 file; the spacing of WikiText, if that is what it looks like, made normal."""
    try:
        data = Path(path).read_bytes()
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise RationalesError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise RationalesError(
            f"cannot read {path}: it is not UTF-8 text ({error.reason})"
        ) from error
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
    pieces = _sentences(text)
    pieces = [  # so that a long one has several starts
        part
        for piece, count in zip(pieces, _counts(tokenizer, pieces), strict=True)
        for part in ([piece] if count <= room else _parts(piece, len(piece) * room // count))
    ]
    ends = list(accumulate(_counts(tokenizer, pieces)))
    texts, start = [], 0
    while start < len(pieces):
        before = ends[start - 1] if start else 0
        # Tokens are counted piece by piece; tokenised together, there may be a few less.
        end = bisect_left(ends, before + room + room // 8 + 8) + 1
        texts.append("".join(pieces[start:end]).lstrip())
        # A piece that was cut short begins the next row.
        start = max(start + 1, bisect_right(ends, before + room))
    rows = [[*prefix, *ids[:room]] for ids in _tokenise(tokenizer, texts) if len(ids) >= room]
    return torch.tensor(rows, dtype=torch.int32).reshape(-1, length)


def _sentences(text: str) -> list[str]:
    """The sentences of a text, each with the white space after it."""
    text = text.strip()
    # Blank lines separate paragraphs that have line breaks of their own; without any, lines do.
    paragraph_end = r"\n[ \t]*\n\s*" if re.search(r"\n[ \t]*\n", text) else r"\n\s*"
    ends = [match.end() for match in re.finditer(f"{paragraph_end}|{_SENTENCE_END}", text)]
    pieces = (text[start:end] for start, end in pairwise([0, *ends, len(text)]))
    return [piece for piece in pieces if piece]


def _parts(text: str, width: int) -> list[str]:
    """A text in parts of so many characters at most, cut between words if possible."""
    return textwrap.wrap(
        text,
        max(1, width),
        expand_tabs=False,
        replace_whitespace=False,
        drop_whitespace=False,
        break_on_hyphens=False,
    )


def _counts(tokenizer: Tokenizer, texts: Sequence[str]) -> list[int]:
    return [len(ids) for ids in _tokenise(tokenizer, texts)]


def _tokenise(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[list[int]]:
    for start in range(0, len(texts), _TOKENIZER_BATCH):
        batch = list(texts[start : start + _TOKENIZER_BATCH])
        yield from tokenizer(batch, add_special_tokens=False, verbose=False)["input_ids"]


def detokenise(text: str) -> str:
    """A text in WikiText's spacing as it is usually written; headings are left out.

    What was one line is one line; blank lines are left out, too.
    """
    lines = [line.strip() for line in text.split("\n") if not _HEADING.fullmatch(line)]
    for pattern, replacement in _RULES:
        lines = [pattern.sub(replacement, line).strip() for line in lines if line]
    return "\n".join(lines) + "\n"
