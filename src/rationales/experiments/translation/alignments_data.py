"""Sentence pairs with gold word alignments, and IWSLT14: readers of the files as they are found.

A link joins a source word and a target word, both counted from 0. *Sure* links are beyond doubt;
*possible* ones include them, as Och and Ney define it.

    hansards    en-fr.txt  `english ||| french`     gold.txt  `1-1 2p3`, counted from 1
    NAACL       a text file a language              `sentence source target [S|P]` a line
    RWTH        de, en (Latin-1)                    alignmentDeEn  `SENT: n`, then `S 0 0` a line
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rationales.data import data_file
from rationales.errors import RationalesError, first_line
from rationales.experiments.translation.detokenization import Language

HANSARDS = "alignments/en-fr-hansards/en-fr.txt"
HANSARDS_GOLD = "alignments/en-fr-hansards/gold.txt"

Link = tuple[int, int]
"""The place of a source word and that of a target word, from 0."""


@dataclass(frozen=True)
class AlignedPair:
    """The words of a sentence and of its translation, and which belong together."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    sure: frozenset[Link] = frozenset()
    possible: frozenset[Link] = frozenset()
    """All that are allowed: the sure ones, and others."""

    def of_target(self, word: int) -> frozenset[int]:
        """The source words that a target word is aligned with, surely or possibly."""
        return frozenset(source for source, target in self.possible if target == word)


@dataclass(frozen=True)
class Format:
    """A data set as it is found: the names of its files, and how they are read."""

    files: tuple[str, ...]
    read: Callable[[Path], tuple[AlignedPair, ...]]
    source: Language
    target: Language


def read_folder(folder: str | Path, name: str) -> tuple[AlignedPair, ...]:
    """The sentences of a folder in a format that ``FORMATS`` knows, none of them empty."""
    if name not in FORMATS:
        raise RationalesError(f"unknown format {name!r}: choose from {', '.join(FORMATS)}")
    home = Path(folder).expanduser()
    found = FORMATS[name].read(home)
    for number, pair in enumerate(found, start=1):
        if not pair.source or not pair.target:
            side = "target" if pair.source else "source"
            raise RationalesError(f"the {side} of sentence {number} in {home} is empty")
    return found


def read_hansards(
    text: str | Path | None = None, gold: str | Path | None = None
) -> tuple[AlignedPair, ...]:
    """The Hansards sentences, French as the source; those of RATIONALES_DATA if none are given."""
    text_file = _path(text, HANSARDS)
    gold_file = _path(gold, HANSARDS_GOLD)
    pairs, links = _lines(text_file), _lines(gold_file)
    _check_counts({text_file: len(pairs), gold_file: len(links)})
    found = []
    for number, (pair, line) in enumerate(zip(pairs, links, strict=True), start=1):
        sides = [side.split() for side in pair.split("|||")]
        if len(sides) != 2 or not all(sides):
            raise RationalesError(f"line {number} of {text_file} is not `english ||| french`")
        english, french = sides
        marked = [_pharaoh(link, number, gold_file) for link in line.split()]
        turned = [(sure, (there, here)) for sure, (here, there) in marked]
        found.append(_pair(french, english, turned, 1, f"line {number} of {gold_file}"))
    return tuple(found)


def read_naacl(
    source: str | Path,
    target: str | Path,
    gold: str | Path,
    base: int = 1,
    lenient: bool = False,
) -> tuple[AlignedPair, ...]:
    """Sentences of two files, and their links in NAACL's format: ``sentence source target [S|P]``.

    Sentences are counted from 1; words from ``base``, which is 1 in the shared task and 0 in
    ``de-en.ref.wa``. A link without a letter is sure. With ``lenient``, links to words that are
    not there are left out (``de-en.ref.wa`` has one) instead of refused.
    """
    files = Path(source).expanduser(), Path(target).expanduser(), Path(gold).expanduser()
    texts = [_lines(file) for file in files[:2]]
    _check_counts(dict(zip(files, map(len, texts), strict=False)))
    marked: dict[int, list[tuple[bool, Link]]] = {}
    for number, line in enumerate(_lines(files[2]), start=1):
        match = re.fullmatch(r"\s*(\d+)\s+(\d+)\s+(\d+)(?:\s+([SP]))?(?:\s+[\d.]+)?\s*", line)
        if match is None:
            raise RationalesError(
                f"line {number} of {files[2]} is not `sentence source target [S|P]`"
            )
        sentence, here, there = (int(match[n]) for n in (1, 2, 3))
        marked.setdefault(sentence, []).append((match[4] != "P", (here, there)))
    if lenient:
        words = [[len(line.split()) for line in text] for text in texts]
        for sentence, (here, there) in enumerate(zip(*words, strict=True), start=1):
            marked[sentence] = [
                (sure, link)
                for sure, link in marked.get(sentence, ())
                if link[0] - base < here and link[1] - base < there
            ]
    return _together(texts, marked, base, files[2])


def read_rwth(folder: str | Path) -> tuple[AlignedPair, ...]:
    """The German–English sentences of RWTH Aachen, from a folder with its three files.

    They have to be licensed from RWTH: https://www-i6.informatik.rwth-aachen.de/goldAlignment/
    """
    home = Path(folder).expanduser()
    texts = [
        [line for line in _lines(home / name, "latin-1") if line.strip()] for name in ("de", "en")
    ]
    _check_counts({home / "de": len(texts[0]), home / "en": len(texts[1])})
    gold = home / "alignmentDeEn"
    marked: dict[int, list[tuple[bool, Link]]] = {}
    sentences = 0
    for number, line in enumerate(_lines(gold, "latin-1"), start=1):
        if not line.strip():
            continue
        if line.startswith("SENT:"):
            sentences += 1  # in the order of the text, whatever number follows
            continue
        match = re.fullmatch(r"([SP])\s+(\d+)\s+(\d+)\s*", line)
        if match is None or not sentences:
            raise RationalesError(f"line {number} of {gold} is not `SENT: n` nor `S 0 0`")
        link = int(match[2]), int(match[3])
        marked.setdefault(sentences, []).append((match[1] == "S", link))
    _check_counts({home / "de": len(texts[0]), gold: sentences})
    return _together(texts, marked, 0, gold)


def read_iwslt14(
    folder: str | Path, part: str = "test", source: str = "de", target: str = "en"
) -> tuple[AlignedPair, ...]:
    """The sentences of a part of IWSLT14 as fairseq's script prepares it, without links.

    ``folder`` is its ``iwslt14.tokenized.de-en``; ``part`` one of train, valid, test. The marks
    of byte-pair encoding (``@@``) are taken out: what is left are the tokeniser's words.
    """
    files = [Path(folder).expanduser() / f"{part}.{language}" for language in (source, target)]
    texts = [[re.sub(r"@@( |$)", "", line) for line in _lines(file)] for file in files]
    _check_counts(dict(zip(files, map(len, texts), strict=True)))
    return _together(texts, {}, 0, files[0])


FORMATS = {
    "hansards": Format(
        ("en-fr.txt", "gold.txt"),
        lambda home: read_hansards(home / "en-fr.txt", home / "gold.txt"),
        "fr",
        "en",
    ),
    "europarl": Format(
        ("test.de", "test.en", "de-en.ref.wa"),
        lambda home: read_naacl(
            home / "test.de", home / "test.en", home / "de-en.ref.wa", base=0, lenient=True
        ),
        "de",
        "en",
    ),
    "rwth": Format(("de", "en", "alignmentDeEn"), lambda home: read_rwth(home), "de", "en"),
}
"""The data sets with gold alignments that can be read from a folder."""


def _pharaoh(link: str, number: int, file: Path) -> tuple[bool, Link]:
    """A link of the form ``1-1``, or ``1p1`` for a possible one, and whether it is sure."""
    match = re.fullmatch(r"(\d+)([-p])(\d+)", link)
    if match is None:
        raise RationalesError(f"line {number} of {file} has {link!r}: a link is like 1-1 or 1p1")
    return match[2] == "-", (int(match[1]), int(match[3]))


def _together(
    texts: Sequence[Sequence[str]],
    marked: dict[int, list[tuple[bool, Link]]],
    base: int,
    gold: Path,
) -> tuple[AlignedPair, ...]:
    """The pairs of two texts, with the links of each sentence, counted from 1."""
    if marked and max(marked) > len(texts[0]):
        raise RationalesError(
            f"{gold} has links of sentence {max(marked)}, but the text has {len(texts[0])}"
        )
    return tuple(
        _pair(here.split(), there.split(), marked.get(n, []), base, f"sentence {n} of {gold}")
        for n, (here, there) in enumerate(zip(*texts, strict=True), start=1)
    )


def _pair(
    source: Sequence[str],
    target: Sequence[str],
    marked: Iterable[tuple[bool, Link]],
    base: int,
    where: str,
) -> AlignedPair:
    """A pair with its links, which must be among its words."""
    sure, possible = set(), set()
    for is_sure, (here, there) in marked:
        link = here - base, there - base
        if not (0 <= link[0] < len(source) and 0 <= link[1] < len(target)):
            raise RationalesError(
                f"{where} links the words {here} and {there}, counted from {base}, of "
                f"{len(source)} and {len(target)}"
            )
        possible.add(link)
        if is_sure:
            sure.add(link)
    return AlignedPair(tuple(source), tuple(target), frozenset(sure), frozenset(possible))


def _path(given: str | Path | None, name: str) -> Path:
    return Path(given).expanduser() if given is not None else data_file(name)


def _lines(file: Path, encoding: str = "utf-8-sig") -> list[str]:
    """The lines of a text file, without a byte-order mark."""
    try:
        text = file.read_text(encoding=encoding)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or first_line(error)
        raise RationalesError(f"cannot read {file}: {why}") from error
    # Not splitlines: a text may have characters in it that it takes for ends of lines.
    return text.removesuffix("\n").split("\n") if text else []


def _check_counts(counts: dict[Path, int]) -> None:
    """Raise if files that belong together have different numbers of sentences."""
    (one, first), (other, second) = counts.items()
    if first != second:
        raise RationalesError(
            f"{other} has {second} sentences, but {one} has {first}: they do not belong together"
        )
