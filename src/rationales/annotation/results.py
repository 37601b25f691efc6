"""What a study says: how far two selectors agree, and from how many words people guess.

Agreement: Cohen's κ, IOU and F1 of two selectors' words among the words before the target, for each
passage that two have ranked. Simulatability: from how many words of each source's lists a person
guesses the word; the word is hidden from the predictor, and so is the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rationales import metrics
from rationales.annotation.people import PERSON, ListId, Play
from rationales.annotation.study import Study
from rationales.errors import RationalesError
from rationales.experiments import tables
from rationales.experiments.language.lambada import PAPER_KAPPA
from rationales.experiments.methods import Compared
from rationales.options import Options

AGREEMENT = (
    tables.Column("kappa", "κ"),
    tables.Column("iou", "IOU"),
    tables.Column("f1", "F1"),
    tables.Column("kappa_without", "κ, word before left out"),
    tables.Column("f1_without", "F1, word before left out"),
)
COMPARED = {
    "rationale": "rationales: up to the first correct guess",
    "ranking": "all ranked words",
}
GAME = (
    tables.Column("found", "found", "max"),
    tables.Column("count", "words until found, if it is", "min", 1),
    tables.Column("at_least", "words, at least", "min", 1),
)
SOURCES = {
    PERSON: "a person's words",
    "greedy": "greedy",
    "minimal": "greedy, minimal",
    "baseline": "baseline",
    "random": "random (control)",
}


def agreement(study: Study) -> dict[str, Any]:
    """The table of agreement between two selectors, over the passages that two have ranked."""
    ranked: dict[str, list[tuple[tuple[int, ...], int | None]]] = {}
    for _, passage, words, count in study.rationales():
        ranked.setdefault(passage, []).append((words, count))
    pairs = {passage: made[:2] for passage, made in ranked.items() if len(made) > 1}
    if not pairs:
        raise RationalesError(
            "no passage is ranked by two selectors yet: agreement needs one at least"
        )
    measured: dict[str, list[tables.Values]] = {name: [] for name in COMPARED}
    for passage in sorted(pairs):
        (one, ends), (other, other_ends) = pairs[passage]
        items = range(len(study.passages[passage].words) - 1)
        measured["ranking"].append(overlap(one, other, items))
        if ends and other_ends:
            measured["rationale"].append(overlap(one[:ends], other[:other_ends], items))
    paper = {"rationale": {"kappa": PAPER_KAPPA}}
    title = "Agreement of two selectors"
    return tables.table(
        title, AGREEMENT, measured, _rows(COMPARED), paper, seed=study.settings.seed
    )


def overlap(one: Sequence[int], other: Sequence[int], items: range) -> dict[str, float]:
    """The agreement of two lists of words, among the items; the last of these is in both."""
    before, rest = {items[-1]}, items[:-1]
    left, right = {*one} - before, {*other} - before
    values = {
        "kappa": metrics.set_kappa(one, other, items),
        "iou": metrics.iou(one, other),
        "f1": metrics.f1(one, other),
        "f1_without": metrics.f1(left, right),
    }
    return values | ({"kappa_without": metrics.set_kappa(left, right, rest)} if rest else {})


def game(study: Study) -> dict[str, Any]:
    """The table of guesses by source: the first finished play of each list counts."""
    first: dict[ListId, Play] = {}
    for _, play in study.plays():
        if study.is_over(play):
            first.setdefault(play.of, play)
    if not first:
        raise RationalesError("no list is played to its end yet: results need one at least")
    measured: dict[str, list[tables.Values]] = {source: [] for source in SOURCES}
    for of, play in sorted(first.items(), key=lambda item: (item[0].passage, item[0].source)):
        count = play.found(study.right(of.passage))
        at_least = float(count or len(play.guesses) + 1)
        values = {"found": float(count is not None), "at_least": at_least}
        measured[of.source].append(values if count is None else values | {"count": float(count)})
    played = {source: label for source, label in SOURCES.items() if measured[source]}
    if study.baseline and "baseline" in played:
        played["baseline"] += f" {study.baseline}"
    rows = {source: f"{label} ({len(measured[source])} lists)" for source, label in played.items()}
    return tables.table(
        "Guesses by people", GAME, measured, _rows(rows), {}, seed=study.settings.seed
    )


def _rows(labels: dict[str, str]) -> list[Compared]:
    return [Compared(name, label, Options()) for name, label in labels.items()]
