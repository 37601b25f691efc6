"""A translation in a terminal: target tokens × source tokens, a filled cell for each one kept.

Beside each row stand the words of the translation itself that were kept.
"""

from __future__ import annotations

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from rationales.context import Token
from rationales.rationale import Explanation, Rationale
from rationales.render.terminal import DROPPED, label, size, target

CELL = "bold #ffd75f"

_LEAST_BESIDE = 16
"""Characters that the words of the translation need beside the matrix, at least."""


def matrix(explanation: Explanation, width: int) -> Table | None:
    """Rows are targets, columns source tokens; None if there is no source, or no room for it.

    Where the source tokens are too long to stand side by side, they are written downwards.
    """
    source = [t for t in explanation.tokens if t.side == "source" and not t.pinned]
    if not source:
        return None
    room = width - _LEAST_BESIDE - _width_before(explanation)
    labels = [label(token.text) for token in source]
    if sum(cell_len(text) + 1 for text in labels) > room:
        if sum(max(map(cell_len, text)) + 1 for text in labels) > room:
            return None
        labels = ["\n".join(text) for text in labels]
    grid = Table(box=None, padding=(0, 1, 0, 0), header_style="bright_black")
    grid.add_column("target", no_wrap=True, vertical="bottom")
    grid.add_column("size", justify="right", no_wrap=True)
    for text in labels:
        grid.add_column(Text(text), justify="center", no_wrap=True)
    grid.add_column("after", overflow="fold")
    for rationale in explanation:
        grid.add_row(target(rationale), size(rationale), *_cells(rationale, source))
        for other in rationale.alternatives:
            grid.add_row(Text("or", "bright_black"), size(other), *_cells(other, source))
    return grid


def _cells(rationale: Rationale, source: list[Token]) -> list[Text]:
    """A mark for each source token, and the words of the translation that were kept."""
    kept = {*rationale.indices}
    marks = [Text("■", CELL) if t.index in kept else Text("·", DROPPED) for t in source]
    return [*marks, Text(rationale.texts[-1])]


def _width_before(explanation: Explanation) -> int:
    """What the columns of the targets and the sizes take."""
    texts = [label(rationale.target_text or "") for rationale in explanation]
    return max([len("target"), *(cell_len(text) + 1 for text in texts)]) + 1 + len("size") + 1
