"""Figures of rationales: bars of a table, the matrix of a text, passages with their rationales.

The matrix is that of the paper's first figure, the passages those of its figure on Lambada, the
alignment that of its figure on translation.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rationales.render.plots import BLUE, GREEN, GREY, ORANGE, PURPLE, make_panels
from rationales.result import Explanation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOOKS = list(zip((BLUE, ORANGE, GREEN, PURPLE, GREY), "os^Dv", strict=True))
_HIGHLIGHT, _LIGHT = "#F9E27D", "#A9DDCB"
_COLUMNS, _LETTERS = 92, 8.0
"""Characters of a line of a passage, and their size in points."""


def bars(table: dict[str, Any], keys: Sequence[str]) -> Figure:
    """The means of a table's columns, a panel for each, with intervals and the paper's values."""
    rows = [row for row in table["rows"] if row["shown"]][::-1]
    columns = [c for c in table["columns"] if c["key"] in keys]
    columns = [c for c in columns if any(row["cells"][c["key"]] for row in rows)]
    size = (2.4 + 2.3 * max(1, len(columns)), 1.1 + 0.34 * len(rows))
    figure, panels = make_panels(max(1, len(columns)), size)
    for panel, column in zip(panels, columns, strict=False):
        for place, row in enumerate(rows):
            cell, paper = row["cells"][column["key"]], row["paper"].get(column["key"])
            if cell is not None:
                colour = ORANGE if row["method"].startswith("greedy") else BLUE
                reach = [[cell["mean"] - cell["low"]], [cell["high"] - cell["mean"]]]
                panel.barh(place, cell["mean"], color=colour, alpha=0.75, height=0.65)
                panel.errorbar(
                    cell["mean"], place, xerr=reach, color="black", linewidth=1, capsize=2
                )
            if isinstance(paper, float):
                panel.plot(paper, place, "D", color="white", markeredgecolor=GREY, markersize=5)
        panel.set_xlabel(column["title"])
        panel.grid(axis="y", visible=False)
        panel.set_axisbelow(True)
    panels[0].set_yticks(range(len(rows)), [row["label"] for row in rows])
    figure.suptitle(f"{table['title']} (bars: ours, with 95 % intervals; diamonds: the paper's)")
    return figure


def matrix(explanation: Explanation) -> Figure:
    """A row for each target, a column for each token before it; dark cells are its rationale.

    The numbers say in which order the tokens were added.
    """
    rationales, tokens = list(explanation), explanation.tokens
    width = max((r.target for r in rationales), default=1)
    figure, (panel,) = make_panels(1, (1.6 + 0.36 * width, 1.5 + 0.3 * len(rationales)))
    for place, rationale in enumerate(rationales):
        for column in range(rationale.target):
            panel.add_patch(_cell(column, place, "#f1f1f1"))
        for number, index in enumerate(rationale.indices, start=1):
            panel.add_patch(_cell(index, place, BLUE if rationale.sufficient else GREY))
            panel.text(
                index, place, str(number), color="white", ha="center", va="center", fontsize=7
            )
    panel.set_xlim(-0.5, width - 0.5)
    panel.set_ylim(len(rationales) - 0.5, -0.5)
    panel.set_xticks(range(width), [_plain(t.text) for t in tokens[:width]], rotation=60, ha="left")
    panel.set_yticks(
        range(len(rationales)), [_plain(r.target_text or tokens[r.target].text) for r in rationales]
    )
    _bare(panel)
    return figure


@dataclass(frozen=True)
class Aligned:
    """The words of a sentence and of its translation, and links between them: (source, target)."""

    source: Sequence[str]
    target: Sequence[str]
    found: Collection[tuple[int, int]]
    sure: Collection[tuple[int, int]]
    possible: Collection[tuple[int, int]]


def alignment(shown: Aligned) -> Figure:
    """Rows are target words, columns source words: rationales, and beside them the gold links.

    Possible links are lighter than sure ones.
    """
    rows, columns = len(shown.target), len(shown.source)
    figure, panels = make_panels(2, (2.4 + 0.52 * columns, 1.5 + 0.26 * rows))
    colours = (
        ("greedy source rationales", dict.fromkeys(shown.found, BLUE)),
        (
            "gold alignment",
            dict.fromkeys(shown.possible, _LIGHT) | dict.fromkeys(shown.sure, GREEN),
        ),
    )
    for panel, (title, colour) in zip(panels, colours, strict=True):
        for row in range(rows):
            for column in range(columns):
                panel.add_patch(_cell(column, row, colour.get((column, row), "#f1f1f1")))
        panel.set_xlim(-0.5, columns - 0.5)
        panel.set_ylim(rows - 0.5, -0.5)
        panel.set_xticks(range(columns), map(_plain, shown.source), rotation=60, ha="left")
        panel.set_yticks(range(rows), map(_plain, shown.target))
        panel.set_xlabel(title)
        _bare(panel)
    return figure


@dataclass(frozen=True)
class Highlighted:
    """A passage in pieces, one for each token: those kept, and those of the human annotation."""

    title: str
    pieces: Sequence[str]
    kept: Collection[int]
    human: Collection[int]
    target: int


def passages(shown: Sequence[Highlighted]) -> Figure:
    """Passages one below the other: rationales highlighted, the human annotation in bold."""
    layouts = [_laid_out(each.pieces) for each in shown]
    heights = [2.0 + max(line for line, _, _, _ in layout) + 1 for layout in layouts]
    # A column of the axes is a letter wide, so that the pieces of a line join up.
    width = _COLUMNS * 0.602 * _LETTERS / 72
    figure, (panel,) = make_panels(1, (width / 0.96, sum(heights) * 1.5 * _LETTERS / 72 / 0.96))
    figure.set_layout_engine("none")
    panel.set_position((0.02, 0.02, 0.96, 0.96))
    top = 0.0
    for each, layout, height in zip(shown, layouts, heights, strict=True):
        panel.text(0, top + 0.5, _plain(each.title), fontsize=8, color=GREY, va="center")
        for line, column, text, index in layout:
            _write(panel, each, (column, top + 1 + line), text, index)
        top += height
    panel.set_xlim(0, _COLUMNS)
    panel.set_ylim(top, 0)
    panel.set_axis_off()
    return figure


def lines(series: dict[str, list[tuple[float, float]]], x: str, y: str, title: str = "") -> Figure:
    """Curves of (x, y) points by their label, both axes logarithmic."""
    figure, (panel,) = make_panels(1, (5.6, 3.8))
    for place, (label, points) in enumerate(series.items()):
        colour, marker = _LOOKS[place % len(_LOOKS)]
        xs, ys = [point[0] for point in points], [point[1] for point in points]
        panel.plot(xs, ys, f"{marker}-", color=colour, markersize=4, label=label)
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xlabel(x)
    panel.set_ylabel(y)
    panel.set_title(title)
    panel.legend(loc="best", frameon=False)
    return figure


def _write(
    panel: Axes, each: Highlighted, place: tuple[float, float], text: str, index: int
) -> None:
    """One piece of a passage, where it belongs."""
    from matplotlib.patches import Rectangle

    column, line = place
    body = text.strip(" ")
    indent = len(text) - len(text.lstrip(" "))
    if index in each.kept and body:
        panel.add_patch(
            Rectangle((column + indent, line), len(body), 0.95, color=_HIGHLIGHT, linewidth=0)
        )
    if body:
        panel.text(
            column + indent,
            line + 0.5,
            _plain(body),
            fontfamily="monospace",
            fontsize=_LETTERS,
            fontweight="bold" if index in each.human else "normal",
            color=ORANGE if index == each.target else "black",
            va="center_baseline",
        )


def _laid_out(pieces: Sequence[str]) -> list[tuple[int, int, str, int]]:
    """Where each piece goes: line, column, its text, and its place among the pieces."""
    found: list[tuple[int, int, str, int]] = []
    line = column = 0
    for index, piece in enumerate(pieces):
        text = " ".join(piece.splitlines()) if piece.strip() else " " * bool(piece)
        if column + len(text) > _COLUMNS and column > 0:
            line, column = line + 1, 0
            text = text.lstrip(" ")
        found.append((line, column, text, index))
        column += len(text)
    return found


def _bare(panel: Axes) -> None:
    """Take lines and ticks off a matrix; its columns are named above it."""
    panel.xaxis.tick_top()
    panel.grid(visible=False)
    panel.tick_params(length=0)
    for spine in panel.spines.values():
        spine.set_visible(False)


def _cell(column: float, row: float, colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.46, row - 0.44), 0.92, 0.88, color=colour, linewidth=0)


def _plain(text: str) -> str:
    """The text as it can be drawn: no dollar signs, which mean mathematics, and no line breaks."""
    return " ".join(text.split()).replace("$", r"\$") or "␣"
