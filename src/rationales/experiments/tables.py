"""Tables of means with confidence intervals, in JSON and Markdown, beside the paper's values.

A table is plain data: columns, and rows that hold for each column an estimate (``mean``, ``low``,
``high``, ``examples``) or nothing, and the paper's value or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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


def markdown(table: dict[str, Any]) -> str:
    """The table in Markdown: each mean with its interval, the paper's value in the next column."""
    rows = [row for row in table["rows"] if row["shown"]]
    columns = [["method", *(row["label"] for row in rows)]]
    for column in table["columns"]:
        columns.append([column["title"], *_cells(rows, column)])
        values = [row["paper"].get(column["key"], "") for row in rows]
        if any(value != "" for value in values):
            digits = column["digits"]
            said = (value if isinstance(value, str) else f"{value:.{digits}f}" for value in values)
            columns.append(["paper", *said])
    examples = max((row["examples"] for row in rows), default=0)
    title = f"### {table['title']} ({examples} example{'' if examples == 1 else 's'})"
    if not examples:
        return f"{title}\n\nThere are none."
    headings, *bodies = map(list, zip(*columns, strict=True))
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


def _cells(rows: Sequence[dict[str, Any]], column: dict[str, Any]) -> Iterator[str]:
    """A column as it is printed; the best mean is bold, if it is better than any other."""
    cells = [row["cells"][column["key"]] for row in rows]
    means = {cell["mean"] for cell in cells if cell is not None}
    choose, digits = {"min": min, "max": max}.get(column["best"]), column["digits"]
    best = f"{choose(means):.{digits}f}" if choose and len(means) > 1 else None
    for cell in cells:
        if cell is None:
            yield "–"
            continue
        mean, low, high = (f"{cell[name]:.{digits}f}" for name in ("mean", "low", "high"))
        interval = "" if cell["low"] == cell["high"] else f" ({low}–{high})"
        yield (f"**{mean}**" if mean == best else mean) + interval
