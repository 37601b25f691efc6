"""Sentence pairs, and a split of them in which neither side leaks.

Tatoeba has many translations of one sentence, and many sentences with one translation. Pairs that
share a sentence of either language belong together, and so do the pairs that share one with those:
the connected components of a graph. A component is held out as a whole, or not at all.
"""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rationales.data import data_file
from rationales.errors import RationalesError, first_line

PAIRS = "tatoeba-fr-en/en-fr.tsv"
HELD_OUT = 2_000
"""Pairs for the validation, and as many for the test."""


@dataclass(frozen=True)
class Pair:
    """A sentence in French and its translation into English."""

    french: str
    english: str


@dataclass(frozen=True)
class Split:
    """What is learned from, what is looked at on the way, and what is measured in the end."""

    train: tuple[Pair, ...]
    validation: tuple[Pair, ...]
    test: tuple[Pair, ...]


def read_pairs(path: str | Path | None = None) -> tuple[Pair, ...]:
    """The pairs of a file of lines, English TAB French, in its order; Tatoeba's if none is given.

    No-break and thin spaces become plain ones, which is how people type.
    """
    file = Path(path).expanduser() if path is not None else data_file(PAIRS)
    try:
        lines = file.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or first_line(error)
        raise RationalesError(f"cannot read {file}: {why}") from error
    pairs = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        english, *others = (plain(field) for field in line.split("\t"))
        # Tatoeba's newer files have a third column, the authors.
        if not others or not english or not others[0]:
            raise RationalesError(f"line {number} of {file} is not English TAB French")
        pairs.append(Pair(others[0], english))
    return tuple(pairs)


def plain(text: str) -> str:
    """The text with plain single spaces and without characters that nobody sees."""
    seen = "".join(c for c in text if unicodedata.category(c) != "Cf")  # soft hyphens and such
    return " ".join(seen.split())


def split(pairs: Sequence[Pair], seed: int = 0, held_out: int = HELD_OUT) -> Split:
    """A random split with so many pairs for the validation and as many for the test.

    Components are gone through in a random order, and held out while there is room for all of one:
    each is as likely to be held out as any other, and so is each pair.
    """
    whole = sorted(set(components(pairs)))
    random.Random(f"{seed}/split").shuffle(whole)
    home: list[str | None] = [None] * len(pairs)
    room = {"validation": held_out, "test": held_out}
    for together in whole:
        part = next((name for name, left in room.items() if len(together) <= left), None)
        if part is not None:
            room[part] -= len(together)
            for member in together:
                home[member] = part
        if not any(room.values()):
            break
    if any(room.values()):
        raise RationalesError(
            f"{len(pairs)} pairs are too few, or belong together too much, to hold out "
            f"2 × {held_out}: hold out fewer"
        )

    def part_of(name: str | None) -> tuple[Pair, ...]:
        return tuple(pair for pair, where in zip(pairs, home, strict=True) if where == name)

    return Split(part_of(None), part_of("validation"), part_of("test"))


def components(pairs: Sequence[Pair]) -> list[tuple[int, ...]]:
    """For each pair, all the pairs that it shares a sentence with, directly or by way of others."""
    parents = list(range(len(pairs)))

    def root(index: int) -> int:
        while parents[index] != index:
            parents[index] = parents[parents[index]]  # halves the path for the next time
            index = parents[index]
        return index

    first_with: dict[tuple[str, str], int] = {}
    for index, pair in enumerate(pairs):
        for key in (("fr", _letters(pair.french)), ("en", _letters(pair.english))):
            one, other = root(index), root(first_with.setdefault(key, index))
            parents[max(one, other)] = min(one, other)
    found: dict[int, list[int]] = {}
    for index in range(len(pairs)):
        found.setdefault(root(index), []).append(index)
    whole = {at: tuple(indices) for at, indices in found.items()}
    return [whole[root(index)] for index in range(len(pairs))]


def _letters(sentence: str) -> str:
    """What makes a sentence the same one: its letters and digits, but not case or punctuation."""
    folded = unicodedata.normalize("NFKC", sentence).casefold()
    return "".join(c if c.isalnum() else " " for c in folded).strip() or sentence
