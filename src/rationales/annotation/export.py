"""A study's annotations in the files that people expect.

    annotations.jsonl     the format of the released data: for each passage whose word was found,
                          the words shown up to the first correct guess, as character spans
    annotators/NAME.jsonl what one annotator has done, a line for each passage
    selections.csv        a row for each ranked word           guesses.csv  a row for each guess
    synonyms.json         the accepted synonyms, by passage

Of a passage that two selectors ranked, annotations.jsonl has the ranking that was finished first
and found; the other files have both.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rationales.annotation.people import Annotator, normal
from rationales.annotation.study import ORGANISER, Study
from rationales.errors import RationalesError, cannot
from rationales.experiments.language.annotations import Row, split_words
from rationales.runs.folder import RUN


def export(study: Study, folder: Path) -> dict[str, int]:
    """How many lines each file has, which are now in the folder."""
    if (folder / RUN).exists() or (folder / ORGANISER).exists():
        raise RationalesError(f"{folder} is a study: give export another --out")
    files = {"annotations.jsonl": _lines(released_format(study))}
    for annotator in study.annotators.values():
        files[f"annotators/{annotator.name}.jsonl"] = _lines(_work_of(study, annotator))
    ranked = ("passage", "selector", "rank", "place", "start", "end", "word", "finished")
    guessed = ("passage", "source", "selector", "predictor", "revealed", "guess", "right", "time")
    files["selections.csv"] = _table(ranked, _ranked(study))
    files["guesses.csv"] = _table(guessed, _guessed(study))
    synonyms = {id: sorted(words) for id, words in study.synonyms.items() if words}
    try:
        (folder / "annotators").mkdir(parents=True, exist_ok=True)
        for old in (folder / "annotators").glob("*.jsonl"):  # of someone whose data were deleted
            old.unlink()
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8", newline="")
        said = json.dumps(synonyms, ensure_ascii=False, indent=1)
        (folder / "synonyms.json").write_text(said + "\n", encoding="utf-8")
    except OSError as error:
        raise cannot("write", folder, error) from error
    return {name: text.count("\n") - name.endswith(".csv") for name, text in files.items()}


def released_format(study: Study) -> Iterator[dict[str, Any]]:
    """The passages whose word was found with their rationales, as the released data have them."""
    found: dict[str, tuple[int, ...]] = {}
    for _, passage, words, count in study.rationales():
        if count is not None:
            found.setdefault(passage, words[:count])
    for id, row in study.passages.items():
        if id in found:
            spans = [row.words[place] for place in found[id]]
            is_split = row.words == split_words(row.text, spans)
            own = {} if is_split else {"words": row.words}
            yield _identified(row) | {"text": row.text, "rationale": spans} | own


def _work_of(study: Study, annotator: Annotator) -> Iterator[dict[str, Any]]:
    """What an annotator has done, passage by passage."""
    counts = {(maker.id, passage): n for maker, passage, _, n in study.rationales()}
    for each in annotator.selections:
        if each.finished:
            row = study.passages[each.passage]
            yield {
                **_identified(row),
                "role": "selector",
                "begun": each.begun,
                "finished": each.finished,
                "ranking": _spans(row, each.words),
                "words": [row.word(place) for place in each.words],
                "found": counts.get((annotator.id, each.passage)),
            }
    for who, play in study.plays():
        if who is annotator:
            yield {
                **_identified(study.passages[play.passage]),
                "role": "predictor",
                "begun": play.begun,
                "source": play.of.source,
                "selector": _name(study, play.of.selector),
                "finished": study.is_over(play),
                "guesses": [vars(guess) for guess in play.guesses],
                "found": play.found(study.right(play.passage)),
            }


def _ranked(study: Study) -> Iterator[Sequence[Any]]:
    for annotator in study.annotators.values():
        for each in annotator.selections:
            if each.finished:
                row = study.passages[each.passage]
                for rank, place in enumerate(each.words, start=1):
                    where = (place, *row.words[place], row.word(place))
                    yield row.id, annotator.name, rank, *where, each.finished


def _guessed(study: Study) -> Iterator[Sequence[Any]]:
    for annotator, play in study.plays():
        id, right = study.passages[play.passage].id, study.right(play.passage)
        whose = (play.of.source, _name(study, play.of.selector) or "", annotator.name)
        for each in play.guesses:
            is_right = int(normal(each.guess) in right)
            yield id, *whose, each.revealed, each.guess, is_right, each.time


def _identified(row: Row) -> dict[str, Any]:
    return {row.key: row.id}


def _spans(row: Row, places: Iterable[int]) -> list[list[int]]:
    return [[*row.words[place]] for place in places]


def _name(study: Study, annotator: str | None) -> str | None:
    """The pseudonym of an annotator."""
    return study.annotators[annotator].name if annotator else None


def _lines(rows: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([[_inert(cell) for cell in row] for row in rows])
    return file.getvalue()


def _inert(cell: Any) -> Any:
    """A cell that no spreadsheet takes for a formula."""
    is_formula = isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{cell}" if is_formula else cell
