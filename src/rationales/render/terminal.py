"""An explanation in a terminal: one row a target, its rationale marked in the text."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from rationales.render.columns import leading, shown
from rationales.render.marks import (
    BRACKETS,
    CELL,
    DROPPED,
    FAINT,
    KEPT,
    NOT_REACHED,
    PINNED,
    SUFFICIENT,
    Encodable,
    Marks,
    highlighted,
    kinds,
    label,
    marks_of,
    visible,
)
from rationales.result import Explanation


def show(explanation: Explanation, *, steps: bool = False, console: Console | None = None) -> None:
    """Print the explanation; with ``steps``, how each rationale grew."""
    from rationales.render.matrix import matrix
    from rationales.render.steps import steps_table

    console = console or Console()
    marks = marks_of(console)

    def put(renderable: RenderableType) -> None:
        console.print(Encodable(renderable))

    put(header(explanation))
    if translation := [t for t in explanation.tokens if t.side == "target" and not t.pinned]:
        put(Text(f"translation: {visible(''.join(token.text for token in translation))}"))
    for index in explanation.unexplainable:
        text = visible(explanation.tokens[index].text)
        put(Text(f"token {index} {text!r} has nothing before it: unexplainable"))
    if explanation.rationales:
        grid = matrix(explanation, console.width)
        put(grid or table(explanation, console.width, marks))
        put(legend(explanation, console.width, None if grid else marks))
    if steps:
        for rationale in explanation:
            put("")
            put(steps_table(rationale, console.width))


def header(explanation: Explanation) -> Text:
    """The line that says what was run."""
    parts = [
        explanation.model,
        *(["compatible"] if explanation.adapter else []),
        explanation.method,
        *_options(explanation),
        f"{explanation.evaluation} evaluation",
        f"{explanation.seconds:.1f} s",
    ]
    if not explanation.complete:
        parts.append("interrupted: only the finished targets")
    return Text(" · ".join(parts), style=FAINT)


def _options(explanation: Explanation) -> list[str]:
    """The options that shaped the rationales, in words: ``fast``, ``unit word``, ``span``."""
    return [
        name.replace("_", "-") if value is True else f"{name.replace('_', '-')} {label(str(value))}"
        for name, value in explanation.options.items()
    ]


def table(explanation: Explanation, width: int, marks: Marks) -> Table:
    """One row a target: verdict, target, size, probabilities, and the text before the target."""
    room = min(40, max(12, width // 2))
    texts = [highlighted(rationale, marks, room) for rationale in shown(explanation)]
    longest = max(text.cell_len for text in texts)
    first = leading(explanation, width, rest=min(longest, max(18, width // 3)), padding=2)
    grid = first.grid()
    grid.add_column("context", overflow="fold")
    for (rationale, cells), text in zip(first.rows(), texts, strict=True):
        grid.add_row(*cells, first.completed(rationale, text))
    return grid


def legend(explanation: Explanation, width: int, marks: Marks | None) -> Text:
    """What the marks stand for, as far as they occur; ``marks`` is None for those of a matrix."""
    rationales = shown(explanation)
    occurring = {
        kind
        for rationale in rationales
        for token, kind in kinds(rationale)
        if marks is not None or token.side == "source"
    }
    entries: list[Text] = []
    if "kept" in occurring:
        cell = Text.assemble(("■", CELL), " kept")
        entries.append(cell if marks is None else Text("kept".join(marks.kept), KEPT))
    if "dropped" in occurring and marks != BRACKETS:
        entries.append(Text("· dropped" if marks is None else "dropped", DROPPED))
    if "pinned" in occurring and marks is not None:
        entries.append(Text("pinned: always kept".join(marks.pinned), PINNED))
    if any(rationale.sufficient for rationale in rationales):
        entries.append(Text("✓ sufficient", SUFFICIENT))
    if not all(rationale.sufficient for rationale in rationales):
        entries.append(Text("✗ not reached", NOT_REACHED))
    if any(rationale.predicted is False for rationale in rationales):
        entries.append(Text("* not the model's first choice given all", FAINT))
    if any(rationale.optimal for rationale in rationales):
        entries.append(Text("! no smaller subset is sufficient", FAINT))
    text = Text()
    for entry in entries:  # none of them is broken, if a line is long enough for it
        line = text.plain.rpartition("\n")[2]
        fits = cell_len(line) + 2 + entry.cell_len <= width
        text.append("" if not line else "  " if fits else "\n").append_text(entry)
    return text
