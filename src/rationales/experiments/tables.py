"""Tables of means with confidence intervals, in JSON and Markdown, beside the paper's values.

A table is plain data: columns, and rows that hold for each column an estimate (``mean``, ``low``,
``high``, ``examples``) or nothing, and the paper's value or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rationales.experiments.methods import Compared
from rationales.metrics import Total, estimate
from rationales.runs import Line, Lines

_NO_LENGTH = {"mean": float("inf")}
Values = Mapping[str, float | Total]
"""The measurements of one example, by column; a column that does not apply is left out."""


@dataclass(frozen=True)
class Column:
    """A column: its key in the rows, its heading, and which of its values is the best."""

    key: str
    title: str
    best: str = ""
    """``"min"``, ``"max"``, or nothing where neither is better."""
    digits: int = 2


def table(
    title: str,
    columns: Sequence[Column],
    measured: Mapping[str, Sequence[Values]],
    methods: Sequence[Compared],
    paper: Mapping[str, Mapping[str, float | str]],
    seed: int = 0,
) -> dict[str, Any]:
    """The table of what was measured with each method, a row for each in their order.

    Of two forms of a method, the one with the shorter mean length is marked as shown.
    """
    rows: list[dict[str, Any]] = []
    for method in methods:
        examples = measured.get(method.name, ())
        cells: dict[str, Any] = {}
        for column in columns:
            found = [each[column.key] for each in examples if column.key in each]
            values = [each for each in found if not isinstance(each, Total) or each.number]
            cells[column.key] = asdict(estimate(values, seed)) if values else None
        rows.append(
            {
                "method": method.name,
                "row": method.row,
                "label": method.label,
                "examples": len(examples),
                "cells": cells,
                "paper": dict(paper.get(method.row, {})),
            }
        )
    for row in rows:
        rivals = [other for other in rows if other["row"] == row["row"]]
        shortest = min(rivals, key=lambda each: (each["cells"].get("length") or _NO_LENGTH)["mean"])
        row["shown"] = row is shortest  # of equals the first: the signed one
    return {"title": title, "columns": [asdict(column) for column in columns], "rows": rows}


def measure_lines(
    lines: Lines,
    examples: Sequence[Line],
    methods: Sequence[Compared],
    measure: Callable[[Line, Line], Values],
    *,
    adapter: bool,
    added: int | None = None,
) -> dict[str, list[Values]]:
    """What each method's rationales measure, by method, from the lines and the examples' lines.

    In the order of the examples, whatever that of the lines: intervals depend on it.
    """
    return {
        method.name: [
            measure(lines[key], example)
            for example in examples
            if (key := (example["example"], adapter, method.name, added)) in lines
        ]
        for method in methods
    }


def like(other: dict[str, Any], chosen: dict[str, Any]) -> dict[str, Any]:
    """A table with the forms of methods that another table, over the same methods, shows."""
    shown = {row["method"]: row["shown"] for row in chosen["rows"]}
    return other | {"rows": [row | {"shown": shown[row["method"]]} for row in other["rows"]]}


def shown_rows(table: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows to show: of each method the stronger form."""
    return [row for row in table["rows"] if row["shown"]]


def markdown(table: dict[str, Any]) -> str:
    """The table in Markdown: each mean with its interval, the paper's value in the next column."""
    rows = shown_rows(table)
    headings, bodies = ["method"], [[row["label"]] for row in rows]
    for column in table["columns"]:
        key, digits = column["key"], column["digits"]
        best = _best(rows, column)
        headings.append(column["title"])
        for row, body in zip(rows, bodies, strict=True):
            body.append(_cell(row["cells"][key], digits, best))
        if any(key in row["paper"] for row in rows):
            headings.append("paper")
            for row, body in zip(rows, bodies, strict=True):
                value = row["paper"].get(key, "")
                body.append(value if isinstance(value, str) else f"{value:.{digits}f}")
    examples = max((row["examples"] for row in rows), default=0)
    title = f"### {table['title']} ({examples} example{'' if examples == 1 else 's'})"
    if not examples:
        return f"{title}\n\nThere are none."
    return f"{title}\n\n{markdown_table(headings, bodies)}"


def heading(title: str, results: Mapping[str, Any], more: str = "") -> str:
    """The first lines of a report: its title, the command that makes it, and the model."""
    name, settings = results["experiment"], results["settings"]
    command = f"`rationales experiment {name} --seed {settings['seed']} --out DIR`"
    return f"# {title}\n\n{command} · {settings['model']}{more}"


def adapter_words(settings: Mapping[str, Any]) -> str:
    """Which adapter a run's model has, for its heading."""
    adapter = settings["adapter"]
    return f", with the adapter {adapter}" if adapter else ", without an adapter"


def length_note(settings: Mapping[str, Any]) -> str:
    """The beginning of a report's note on length."""
    size = settings["max_size"]
    end = f" (no search goes beyond {size})" if size else ""
    return (
        f"- Length: tokens of the rationale, the token before the target included{end}; a "
        "rationale that is not\n  sufficient counts as the whole context"
    )


FORMS_NOTE = """\
- Of signed and absolute importances the one with the shorter rationales is shown; both are in
  `results.json`."""


def markdown_table(columns: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown; all columns but the first are numbers, aligned to the right."""
    rule = ["---", *("---:" for _ in columns[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in [columns, rule, *rows])


def _best(rows: Sequence[dict[str, Any]], column: dict[str, Any]) -> str | None:
    """The best mean of a column as it is printed; None if none is better than the others."""
    means = [cell["mean"] for row in rows if (cell := row["cells"][column["key"]]) is not None]
    if not column["best"] or len(set(means)) < 2:
        return None
    best = min(means) if column["best"] == "min" else max(means)
    return f"{best:.{column['digits']}f}"


def _cell(cell: dict[str, Any] | None, digits: int, best: str | None) -> str:
    if cell is None:
        return "–"
    mean = f"{cell['mean']:.{digits}f}"
    shown = f"**{mean}**" if mean == best else mean
    if cell["low"] == cell["high"]:
        return shown
    return f"{shown} ({cell['low']:.{digits}f}–{cell['high']:.{digits}f})"
