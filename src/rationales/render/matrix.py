"""A translation in a terminal: target tokens × source tokens, a filled cell for each one kept.

Beside each row stand the words of the translation itself that were kept.
"""

from __future__ import annotations

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from rationales.context import Token
from rationales.render.columns import leading, shown
from rationales.render.marks import CELL, DROPPED, label
from rationales.result import Explanation, Rationale

_LEAST_BESIDE = 16
"""Characters that the words of the translation need beside the matrix, at least."""


def matrix(explanation: Explanation, width: int) -> Table | None:
    """Rows are targets, columns source tokens; None if there is no source, or no room for it.

    Where the source tokens are too long to stand side by side, they are written downwards.
    """
    source = [t for t in explanation.tokens if t.side == "source" and not t.pinned]
    if not source:
        return None
    labels = [label(token.text) for token in source]
    beside = min(_LEAST_BESIDE, max(cell_len(r.texts[-1]) for r in shown(explanation)))
    first = leading(explanation, width, rest=_width(labels) + max(5, beside), padding=1)
    if first.room < 0:
        labels = ["\n".join(text) for text in labels]
        first = leading(explanation, width, rest=_width(labels) + max(5, beside), padding=1)
    if first.room < 0:
        return None
    grid = first.grid()
    for text in labels:
        grid.add_column(Text(text), justify="center", no_wrap=True, vertical="top")
    grid.add_column("after", overflow="fold")
    for rationale, cells in first.rows():
        marks = _marks(rationale, source)
        grid.add_row(*cells, *marks, first.completed(rationale, Text(rationale.texts[-1])))
    return grid


def _marks(rationale: Rationale, source: list[Token]) -> list[Text]:
    """A mark for each source token."""
    kept = {*rationale.indices}
    return [Text("■", CELL) if t.index in kept else Text("·", DROPPED) for t in source]


def _width(labels: list[str]) -> int:
    """The cells that columns under these labels take."""
    return sum(max(map(cell_len, text.split("\n"))) + 1 for text in labels)
