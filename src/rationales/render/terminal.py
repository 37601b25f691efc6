"""An explanation in a terminal: one row a target, its rationale marked in the text.

A translation is a matrix, if there is room for it: target tokens × source tokens, a filled cell for
each one kept, and beside each row the words of the translation itself that were kept.
"""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from rationales.render.columns import rationale_table, shown, widest
from rationales.render.endpoint import endpoint_line
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
from rationales.render.proof import facts, source_line, unit_of
from rationales.render.steps import steps_table
from rationales.result import Explanation, Rationale

_LEAST_BESIDE = 16
"""Characters that the words of the translation need beside the matrix, at least."""

_DELETED = "What is not kept was deleted: the model saw the kept tokens side by side, without gaps."


def show(explanation: Explanation, *, steps: bool = False, console: Console | None = None) -> None:
    """Print the explanation; with ``steps``, how each rationale grew."""
    console = console or Console()
    width, marks = console.width, marks_of(console)

    def put(renderable: RenderableType) -> None:
        console.print(Encodable(renderable))

    put(_header(explanation))
    if translation := [t for t in explanation.tokens if t.side == "target" and not t.pinned]:
        put(Text(f"translation: {visible(''.join(token.text for token in translation))}"))
    for index in explanation.unexplainable:
        text = visible(explanation.tokens[index].text)
        put(Text(f"token {index} {text!r} has nothing before it: unexplainable"))
    if explanation.rationales:
        matrix = _matrix(explanation, width)
        put(matrix or _table(explanation, width, marks))
        put(_legend(explanation, width, None if matrix else marks))
        if explanation.evaluation == "deleted":
            put(Text(_DELETED, FAINT))
        if explanation.endpoint is not None:
            put(Text(endpoint_line(explanation, explanation.endpoint), FAINT))
    for rationale in explanation:
        if told := _told(explanation, rationale):
            put(told)
    if steps:
        for rationale in explanation:
            put("")
            put(steps_table(rationale, width))


def _told(explanation: Explanation, rationale: Rationale) -> RenderableType | None:
    """Which documents a rationale is from, below it what was proven; None if nothing is known."""
    source = source_line(explanation, rationale)
    proven = [*facts(rationale, unit_of(explanation))]
    if source is None and not proven:
        return None
    target = label(rationale.target_text or str(rationale.target))
    title = Text.assemble((target, "bold"), f" — {source}" if source else "")
    if not proven:
        return title
    lines = Table.grid(padding=(0, 1))
    for fact in proven:
        lines.add_row(" ·", Text(fact))
    return Group(Text(), title, lines)


def _header(explanation: Explanation) -> Text:
    """The line that says what was run: ``fast``, ``unit word`` are options."""
    parts = [explanation.model]
    if explanation.adapter:
        parts.append("compatible")
    parts.append(explanation.method)
    for name, value in explanation.options.items():
        if name == "evaluation":
            continue  # said below
        name = name.replace("_", "-")
        parts.append(name if value is True else f"{name} {label(str(value))}")
    parts += [f"{explanation.evaluation} evaluation", f"{explanation.seconds:.1f} s"]
    if explanation.cost is not None and explanation.cost.model_tokens is not None:
        parts.append(f"{explanation.cost.model_tokens:,} model tokens")
    if not explanation.complete:
        parts.append("interrupted: only the finished targets")
    return Text(" · ".join(parts), style=FAINT)


def _table(explanation: Explanation, width: int, marks: Marks) -> Table:
    """One row a target: verdict, target, size, probabilities, and the text before the target."""

    def context(rationale: Rationale) -> Text:
        return highlighted(rationale, marks, room=min(40, max(12, width // 2)))

    longest = max(context(rationale).cell_len for rationale in shown(explanation))
    rest = min(longest, max(18, width // 3))
    grid, _ = rationale_table(
        explanation, width, ["context"], lambda each: [context(each)], rest=rest, padding=2
    )
    return grid


def _matrix(explanation: Explanation, width: int) -> Table | None:
    """Rows are targets, columns source tokens; None if there is no source, or no room for it."""
    source = [t for t in explanation.tokens if t.side == "source" and not t.pinned]
    if not source:
        return None

    def cells(rationale: Rationale) -> list[Text]:
        kept = {*rationale.indices}
        marks = (Text("■", CELL) if t.index in kept else Text("·", DROPPED) for t in source)
        return [*marks, Text(rationale.texts[-1])]

    beside = max(cell_len(rationale.texts[-1]) for rationale in shown(explanation))
    labels = [label(token.text) for token in source]
    for names in (labels, ["\n".join(text) for text in labels]):  # side by side, or downwards
        rest = sum(widest([text]) + 1 for text in names) + max(5, min(_LEAST_BESIDE, beside))
        grid, room = rationale_table(
            explanation, width, [*names, "after"], cells, rest=rest, padding=1
        )
        if room >= 0:
            return grid
    return None


def _legend(explanation: Explanation, width: int, marks: Marks | None) -> Text:
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
