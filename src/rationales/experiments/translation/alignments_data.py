"""Sentence pairs with gold word alignments, and IWSLT14: readers of the files as they are found.

A link joins a source word and a target word, both counted from 0. *Sure* links are beyond doubt.
*Possible* ones include them, as Och and Ney define it.

    hansards    en-fr.txt  `english ||| french`      gold.txt  `1-1 2p3` a sentence, from 1
    europarl    test.de, test.en                     de-en.ref.wa  `sentence source target [S|P]`
    rwth        de, en (Latin-1)                     alignmentDeEn  `SENT: n`, then `S 0 0` a line
    iwslt14     test.de, byte-pair encoded: `haus@@ tür`           (no links)
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from rationales.errors import RationalesError, cannot
from rationales.experiments.translation.detokenization import Language

IWSLT14 = "test.de"
"""The file of sources in fairseq's ``iwslt14.tokenized.de-en``."""

Link = tuple[int, int]
"""The index of a source word and that of a target word."""
Links = dict[int, list[tuple[Link, bool]]]
"""The links of each sentence, counted from 1, and whether each is sure."""


@dataclass(frozen=True)
class AlignedPair:
    """The words of a sentence and of its translation, and the links between them."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    sure: frozenset[Link] = frozenset()
    possible: frozenset[Link] = frozenset()
    """All links: the sure ones too."""

    def of_target(self, word: int) -> frozenset[int]:
        """The source words that a target word is aligned with, surely or possibly."""
        return frozenset(source for source, target in self.possible if target == word)


@dataclass(frozen=True)
class Format:
    """A data set as it is found: its languages, its files, and how their lines are read."""

    languages: tuple[Language, Language]
    """Of the source and of the target."""
    files: tuple[str, ...]
    """One text file with both sides, or one a side; then the file of the links."""
    links: Callable[[Path, Iterable[tuple[int, str]]], Links]
    """The links in the numbered lines of the last file."""
    encoding: str = "utf-8-sig"
    is_partial: bool = False
    """Whether the links may leave sentences out, or name words that the text does not have."""


def read_folder(home: Path, name: str) -> tuple[AlignedPair, ...]:
    """The sentences of a folder in one of the ``FORMATS``, none of them empty."""
    form = FORMATS[name]
    *texts, gold = (home / file for file in form.files)
    sides = _texts(texts, form)
    links = form.links(gold, enumerate(read_lines(gold, form.encoding), start=1))
    last = max(links, default=0)
    if last > len(sides) or (last < len(sides) and not form.is_partial):
        raise RationalesError(
            f"{gold} has links of {last} sentences, but {texts[0]} has {len(sides)}: "
            "give files that belong together"
        )
    pairs = []
    for number, (source, target) in enumerate(sides, start=1):
        if not source or not target:
            side = "target" if source else "source"
            raise RationalesError(f"the {side} of sentence {number} in {home} is empty")
        sure = frozenset(link for link, is_sure in links.get(number, ()) if is_sure)
        possible = frozenset(link for link, _ in links.get(number, ()))
        words = frozenset(product(range(len(source)), range(len(target))))
        if possible - words and not form.is_partial:
            raise RationalesError(
                f"sentence {number} of {gold} links the words {min(possible - words)}, counted "
                f"from 0, but it has {len(source)} source and {len(target)} target words"
            )
        pairs.append(AlignedPair(tuple(source), tuple(target), sure & words, possible & words))
    return tuple(pairs)


def read_iwslt14(file: Path) -> list[list[str]]:
    """The words of each German test sentence of IWSLT14, as fairseq's script prepares it.

    Byte-pair encoding (``@@``) and the tokenizer's entities (``&apos;``) are undone.
    """
    lines = read_lines(file)
    words = (html.unescape(re.sub(r"@@( |$)", "", line)).split() for line in lines)
    return [sentence for sentence in words if sentence]


def read_lines(file: Path, encoding: str = "utf-8-sig") -> list[str]:
    """The lines of a text file, without a byte-order mark."""
    try:
        text = file.read_text(encoding=encoding)
    except (OSError, UnicodeDecodeError) as error:
        raise cannot("read", file, error) from error
    # Not splitlines: it also splits at characters that occur within sentences.
    return text.removesuffix("\n").split("\n") if text else []


def _texts(files: list[Path], form: Format) -> list[tuple[list[str], list[str]]]:
    """The source words and the target words of each sentence, from one file or from two."""
    texts = [read_lines(file, form.encoding) for file in files]
    if len(texts) == 1:
        sides = [line.partition("|||") for line in texts[0]]
        return [(french.split(), english.split()) for english, _, french in sides]
    if form.encoding == "latin-1":  # RWTH's files have empty lines between sentences
        texts = [[line for line in text if line.strip()] for text in texts]
    if len(texts[0]) != len(texts[1]):
        raise RationalesError(
            f"{files[1]} has {len(texts[1])} sentences, but {files[0]} has {len(texts[0])}: "
            "give files that belong together"
        )
    return [(source.split(), target.split()) for source, target in zip(*texts, strict=True)]


def _hansards_links(file: Path, lines: Iterable[tuple[int, str]]) -> Links:
    """A line a sentence: links such as ``1-2`` (sure) and ``1p2``, English first, from 1."""
    links: Links = {}
    for number, line in lines:
        links[number] = []
        for link in line.split():
            english, mark, french = _match(r"(\d+)([-p])(\d+)", link, number, file, "1-1 or 1p1")
            links[number].append(((int(french) - 1, int(english) - 1), mark == "-"))
    return links


def _europarl_links(file: Path, lines: Iterable[tuple[int, str]]) -> Links:
    """A link a line: its sentence, from 1, its words, from 0, and S or P; sure without a letter."""
    links: Links = {}
    pattern = r"\s*(\d+)\s+(\d+)\s+(\d+)(?:\s+([SP]))?(?:\s+[\d.]+)?\s*"
    for number, line in lines:
        *numbers, mark = _match(pattern, line, number, file, "sentence source target [S|P]")
        sentence, source, target = map(int, numbers)
        links.setdefault(sentence, []).append(((source, target), mark != "P"))
    return links


def _rwth_links(file: Path, lines: Iterable[tuple[int, str]]) -> Links:
    """A link a line, its words from 0, below a line ``SENT: n`` for each sentence.

    The files are licensed by RWTH: https://www-i6.informatik.rwth-aachen.de/goldAlignment/
    """
    links: Links = {}
    for number, line in lines:
        if line.startswith("SENT:"):
            links[len(links) + 1] = []  # in the order of the text, whatever number follows
        elif line.strip():
            pattern = r"([SP])\s+(\d+)\s+(\d+)\s*" if links else "(?!)"  # a sentence comes first
            found = _match(pattern, line, number, file, "SENT: n, then S 0 0")
            links[len(links)].append(((int(found[1]), int(found[2])), found[0] == "S"))
    return links


FORMATS = {
    "hansards": Format(("fr", "en"), ("en-fr.txt", "gold.txt"), _hansards_links),
    "europarl": Format(
        ("de", "en"), ("test.de", "test.en", "de-en.ref.wa"), _europarl_links, is_partial=True
    ),
    "rwth": Format(("de", "en"), ("de", "en", "alignmentDeEn"), _rwth_links, "latin-1"),
}
"""The data sets with gold alignments that can be read from a folder."""


def _match(pattern: str, text: str, number: int, file: Path, expected: str) -> tuple[str, ...]:
    """The groups of a pattern; an error that names the line if the text is something else."""
    match = re.fullmatch(pattern, text)
    if match is None:
        raise RationalesError(f"line {number} of {file} has {text!r}: expected `{expected}`")
    return match.groups()
