"""A run over a corpus as a whole: how large rationales are, how far they reach, what they keep.

    part-*.jsonl ─► Tally ─► Report ─► render/report.py (one page)
    failed.jsonl    (one                data frame
                     pass)

The lines are read once, and those of the rows that are listed once more.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rationales.context import Token
from rationales.errors import MissingExtraError, RationalesError, cannot
from rationales.result import Explanation, Rationale
from rationales.runs.folder import RunFolder
from rationales.runs.lines import damaged
from rationales.runs.parts import FAILED, KIND, Place, part_files, read_lines
from rationales.runs.tally import (
    VERDICTS,
    Group,
    Row,
    Summary,
    Tally,
    Word,
    mean,
    quantile,
    reach_of,
    size_of,
)

if TYPE_CHECKING:
    import pandas

REPORT = "report.html"
_LARGE = 200_000
"""Bytes of a line; of a longer one, the viewer gets only the targets that are listed."""
_MOST_ERRORS = 1_000
_DETAIL = re.compile(r"'[^']*'|\"[^\"]*\"|\d[\d,.]*")
"""What differs between two messages of the same error: quoted texts and numbers."""
_COLUMNS = ("id", "group", "target", "target_text", "size", "reach", *VERDICTS, "rationale")
_NULLABLE: dict[Any, Any] = {"reach": "Int64"} | dict.fromkeys(VERDICTS, "boolean")
"""The columns that may lack a value, and their types."""


class Listed(NamedTuple):
    """A rationale that is listed."""

    item: int
    """The place of its row among the explanations."""
    rationale: Rationale
    size: int
    reach: int | None


class Errors(NamedTuple):
    """Rows that failed for the same reason."""

    error: str
    """The message of the first of them."""
    rows: int
    examples: tuple[tuple[Any, Any], ...]
    """The first of them: their ids and their numbers in the input."""


@dataclass(frozen=True, repr=False)
class Report:
    """What a run over a corpus found, as a whole."""

    folder: Path
    """The folder of the run."""
    rows: int
    """How many rows are explained."""
    failed: int
    """How many rows failed."""
    total: int | None
    """How many rows the run has, if it tells; those that are neither are still to be done."""
    overall: Summary
    """Counts over all rationales."""
    parts: dict[str, Summary]
    """Counts over those that are sufficient or not, predicted or not."""
    groups: dict[Group, Summary]
    """Counts by group; empty if no row has a group, or if there are too many groups."""
    too_many_groups: bool
    settings: dict[str, int]
    """What explained the rows (model, adapter, method, options), and how many of them."""
    units: dict[str, int]
    """What sizes count (tokens, words, sentences), and in how many rationales."""
    sides: bool
    """Whether there are translations."""
    words_by_share: tuple[Word, ...]
    """The words that are kept in the largest share of the contexts in which they occur."""
    words_by_count: tuple[Word, ...]
    """The words that are in most rationales."""
    word_share: float | None
    """The share of the contexts' words that is kept."""
    lists: dict[str, tuple[Listed, ...]]
    """The rows with the longest and the farthest sufficient rationales, and insufficient ones."""
    errors: tuple[Errors, ...]
    """Why rows failed, the most frequent reason first."""
    explanations: tuple[Explanation, ...]
    """The rows that are listed."""

    def __repr__(self) -> str:
        return f"<Report on {self.folder.name}: {self.summary[0]}>"

    @property
    def finished(self) -> bool:
        """Whether every row is explained or has failed, as far as is known."""
        return self.total is None or self.rows + self.failed >= self.total

    @property
    def unit(self) -> str:
        """What sizes count, in the plural."""
        return f"{next(iter(self.units), 'token')}s" if len(self.units) < 2 else "units"

    @property
    def summary(self) -> tuple[str, str, str]:
        """Three lines: how many rows, how many rationales are sufficient, how large they are."""
        found = self.overall
        rows = f"{self.rows:,} rows explained, {self.failed:,} failed"
        if not self.finished:
            rows += f", of {self.total:,}: the run is not finished"
        numbers = (("size", found.sizes, self.unit), ("reach", found.reaches, "tokens"))
        return (
            f"{rows}; {found.rationales:,} rationales",
            ", ".join(f"{each}: {share(*found.checked(each))}" for each in VERDICTS),
            "; ".join(
                f"{name}: mean {mean(counts):.1f}, median {quantile(counts, 50):,} {unit}"
                if counts
                else f"{name}: none"
                for name, counts, unit in numbers
            ),
        )

    def to_dataframe(self) -> pandas.DataFrame:
        """One row for each rationale of the run, without alternatives; reads the folder again."""
        try:
            import pandas
        except ImportError as error:
            raise MissingExtraError("to_dataframe()", "dataframe") from error
        columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
        for _, row in _read_rows(self.folder):
            tokens = tuple(Token(**token) for token in row["tokens"])
            for data in row["rationales"]:
                indices = tuple(data["indices"])
                kept = Rationale(data["target"], data["target_id"], indices, False, 0)
                values = {
                    **data,
                    "id": row.get("id"),
                    "group": row.get("group"),
                    "size": size_of(data),
                    "reach": reach_of(data, row["tokens"]),
                    "rationale": kept.with_tokens(tokens).text,
                }
                for name, column in columns.items():
                    column.append(values.get(name))
        return pandas.DataFrame(columns).astype(_NULLABLE)

    def save(self, path: str | Path) -> None:
        """Write the report as one HTML page that needs nothing else."""
        from rationales.render.report import page

        try:
            Path(path).write_text(page(self), encoding="utf-8", newline="\n")
        except OSError as error:
            raise cannot("write", path, error) from error

    def _repr_html_(self) -> str:
        """What a notebook shows: the page in a frame."""
        from rationales.render.report import page
        from rationales.render.viewer import framed

        return framed(page(self), height=900)


def report(folder: str | Path) -> Report:
    """What the run in a folder, the ``--out`` of ``rationales run``, has found so far."""
    path = Path(folder).expanduser()
    RunFolder(path, KIND).check("rationales run")
    tally = Tally()
    for place, row in _read_rows(path):
        try:
            tally.add(place, row)
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise damaged(place.path, place.number) from error
    failed, errors = _read_failed(path)
    lists, explanations = _read_listed({name: top.first() for name, top in tally.tops.items()})
    return Report(
        folder=path,
        rows=tally.rows,
        failed=failed,
        total=_read_total(path),
        overall=tally.sum(),
        parts={
            "sufficient": tally.sum(sufficient=True),
            "not sufficient": tally.sum(sufficient=False),
            "predicted": tally.sum(predicted=True),
            "not predicted": tally.sum(predicted=False),
        },
        groups={name: tally.sum(group=name) for name in tally.groups},
        too_many_groups=tally.too_many_groups,
        settings=dict(tally.settings.most_common()),
        units=dict(tally.units.most_common()),
        sides=tally.sides,
        words_by_share=tally.words.by_share(),
        words_by_count=tally.words.by_count(),
        word_share=tally.words.share,
        lists=lists,
        errors=errors,
        explanations=explanations,
    )


def share(true: int, checked: int) -> str:
    """The share of those that were checked, in words."""
    return f"{100 * true / checked:.1f} % of {checked:,} checked" if checked else "not checked"


def _read_rows(folder: Path) -> Iterator[tuple[Place, Row]]:
    """The finished rows of a run, and where their lines are."""
    for path in part_files(folder):
        yield from read_lines(path, {"model", "method", "tokens", "rationales"})


def _read_listed(
    found: dict[str, list[tuple[Place, int]]],
) -> tuple[dict[str, tuple[Listed, ...]], tuple[Explanation, ...]]:
    """The rationales at these places, and the explanations of their rows, each row once."""
    targets: dict[Place, set[int]] = defaultdict(set)
    for place, target in (each for places in found.values() for each in places):
        targets[place].add(target)
    rows = {place: _read_row(place, wanted) for place, wanted in targets.items()}
    explanations = tuple(_explanation(place, row) for place, row in rows.items())
    items = {place: item for item, place in enumerate(rows)}

    def listed(place: Place, target: int) -> Listed:
        item, row = items[place], rows[place]
        [number] = [n for n, each in enumerate(row["rationales"]) if each["target"] == target]
        data = row["rationales"][number]
        rationale = explanations[item][number]
        return Listed(item, rationale, size_of(data), reach_of(data, row["tokens"]))

    lists = {name: tuple(listed(*each) for each in places) for name, places in found.items()}
    return lists, explanations


def _read_row(place: Place, targets: set[int]) -> Row:
    """The row in a line; if that is long, with these targets only."""
    with place.path.open("rb") as file:
        file.seek(place.start)
        row: Row = json.loads(file.read(place.length))
    if place.length > _LARGE:
        row["rationales"] = [each for each in row["rationales"] if each["target"] in targets]
    return row


def _explanation(place: Place, row: Row) -> Explanation:
    """The row as an explanation, checked as a whole."""
    try:
        return Explanation.from_dict(row)
    except RationalesError as error:
        raise damaged(place.path, place.number) from error


def _read_failed(folder: Path) -> tuple[int, tuple[Errors, ...]]:
    """How many rows failed, and why; a row that failed again has its last error."""
    path = folder / FAILED
    last: dict[Any, tuple[Any, str]] = {}
    for _, data in read_lines(path, {"id", "line", "error"}) if path.exists() else ():
        last[data["line"]] = data["id"], data["error"]
    counts: Counter[str] = Counter()
    first: dict[str, list[tuple[Any, Any, str]]] = defaultdict(list)
    for line, (id, error) in last.items():
        kind = _DETAIL.sub("…", error)
        if kind not in counts and len(counts) >= _MOST_ERRORS:
            kind = ""  # the rest
        counts[kind] += 1
        if len(first[kind]) < 5:
            first[kind].append((id, line, error))
    return len(last), tuple(
        Errors(
            first[kind][0][2] if kind else "other errors",
            count,
            tuple((id, line) for id, line, _ in first[kind]),
        )
        for kind, count in counts.most_common()
    )


def _read_total(folder: Path) -> int | None:
    """How many rows the run has; None if it does not tell."""
    try:
        total = json.loads((folder / "status.json").read_text(encoding="utf-8"))["total"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return total if isinstance(total, int) else None
