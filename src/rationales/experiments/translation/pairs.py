"""Sentence pairs, a split of them in which neither side leaks, and what a model has held out.

Tatoeba has many translations of one sentence, and many sentences with one translation. Pairs that
share a sentence of either language belong together, and so do the pairs that share one with those:
the connected components of a graph. A component is held out as a whole, or not at all.

A model that ``recipes/fr_en.py`` trained has a record beside its weights. It tells the split.
"""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rationales.data import sha256
from rationales.errors import RationalesError
from rationales.experiments.translation.alignments_data import read_lines
from rationales.explainer import Explainer

PAIRS = "tatoeba-fr-en/en-fr.tsv"
HELD_OUT = 2_000
"""Pairs for validation, and as many for the test."""
RECORD = "training.json"
"""The record of a training, beside the weights."""


class Pair(NamedTuple):
    """A sentence in French and its translation into English."""

    french: str
    english: str


class Split(NamedTuple):
    """The pairs of each part."""

    train: tuple[Pair, ...]
    validation: tuple[Pair, ...]
    test: tuple[Pair, ...]


def held_out(explainer: Explainer, file: Path) -> tuple[Pair, ...]:
    """The test pairs of the split that a translation model was trained with.

    A model without a record gets the default split: it may have seen these pairs.
    """
    # The folder of the weights, not the model's name: any folder can be called fr-en.
    folder = explainer.folder
    seed, size = 0, HELD_OUT
    if folder is not None and (folder / RECORD).is_file():
        seed, size = split_of(read_record(folder, file))
    return split(read_pairs(file), seed, size).test


def read_record(folder: Path, file: Path) -> dict[str, Any]:
    """The record of a model that was trained on the pairs of this file; an error for any other."""
    try:
        record: dict[str, Any] = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        split_of(record)
        digest = record["data"]["sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RationalesError(
            f"{folder} has no {RECORD} of a trained model: give a folder that recipes/fr_en.py made"
        ) from error
    if digest != sha256(file):
        raise RationalesError(
            f"{folder} was trained on other pairs than {file}, and held-out pairs would leak: "
            "give the file of its training"
        )
    return record


def split_of(record: dict[str, Any]) -> tuple[int, int]:
    """The seed of a model's split, and the number of its test pairs."""
    while "trained" in record:  # a fine-tuned model has the split of the model it started from
        record = record["trained"]
    return int(record["settings"]["seed"]), int(record["settings"]["held_out"])


def read_pairs(file: Path) -> tuple[Pair, ...]:
    """The pairs of a file of lines, English TAB French, in its order.

    No-break and thin spaces become plain ones, as they are typed.
    """
    pairs = []
    for number, line in enumerate(read_lines(file), start=1):
        if not line.strip():
            continue
        english, *others = (plain(field) for field in line.split("\t"))
        # Tatoeba's newer files have a third column, the authors.
        if not others or not english or not others[0]:
            raise RationalesError(f"line {number} of {file} is not English TAB French")
        pairs.append(Pair(others[0], english))
    return tuple(pairs)


def plain(text: str) -> str:
    """The text with plain single spaces and without invisible characters."""
    seen = "".join(c for c in text if unicodedata.category(c) != "Cf")  # soft hyphens and such
    return " ".join(seen.split())


def split(pairs: Sequence[Pair], seed: int = 0, held_out: int = HELD_OUT) -> Split:
    """A random split with ``held_out`` pairs for validation and as many for the test.

    Components come in a random order. Each is held out if all of it still fits: every component,
    and so every pair, is equally likely to be held out.
    """
    whole = components(pairs)
    random.Random(f"{seed}/split").shuffle(whole)
    validation, test = list[int](), list[int]()
    for together in whole:
        for part in (validation, test):
            if len(part) + len(together) <= held_out:
                part.extend(together)
                break
    if len(validation) + len(test) < 2 * held_out:
        raise RationalesError(
            f"cannot hold out 2 × {held_out} of {len(pairs)} pairs, where pairs that share a "
            "sentence stay together: hold out fewer, or give more pairs"
        )
    train = {*range(len(pairs))}.difference(validation, test)
    parts = (sorted(part) for part in (train, validation, test))
    return Split(*(tuple(pairs[index] for index in part) for part in parts))


def components(pairs: Sequence[Pair]) -> list[tuple[int, ...]]:
    """Indices of pairs that belong together, by the first of each component."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    # Sentences are the nodes of the graph, and pairs are its edges.
    nodes: dict[tuple[int, str], int] = {}
    ends = [
        [nodes.setdefault((side, _letters(text)), len(nodes)) for side, text in enumerate(pair)]
        for pair in pairs
    ]
    if not ends:
        return []
    edges = [True] * len(ends), tuple(zip(*ends, strict=True))
    graph = coo_array(edges, shape=(len(nodes), len(nodes)))
    _, component = connected_components(graph, directed=False)
    members: dict[int, list[int]] = {}
    for index, (french, _) in enumerate(ends):
        members.setdefault(int(component[french]), []).append(index)
    return [tuple(indices) for indices in members.values()]


def _letters(sentence: str) -> str:
    """The letters and digits of a sentence: two with the same ones are the same sentence."""
    folded = unicodedata.normalize("NFKC", sentence).casefold()
    return "".join(c if c.isalnum() else " " for c in folded).strip() or sentence
