"""The matrix of an explanation (the paper's first figure): targets × context tokens.

Dark cells are a target's rationale; the numbers in them are the order in which tokens were added.
Brackets join the tokens of one word. A translation has two blocks of columns: the source and the
target prefix. Pinned tokens have no column: they are in every subset.

Cells have a size in inches, which shrinks until 80 columns fit the width of a page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from rationales.context import Token
from rationales.errors import RationalesError
from rationales.render.columns import shown
from rationales.render.figures import BLUE, GREY, blank, drawing, name
from rationales.result import Explanation, Rationale
from rationales.units import group

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

PAGE = 7.0
"""The width of a page, in inches."""
ALL_COLUMNS = 80
"""Of a longer context, only the tokens that a rationale keeps have a column."""
MOST = 200
"""No matrix has more rows or columns."""

_EMPTY, _PALE, _HATCH = "#ececec", "#F6C9A8", "#B5622A"
_WIDTHS, _HEIGHTS = (0.074, 0.24), (0.11, 0.22)
"""The smallest and the largest cell, in inches."""
_ROWS = 6.4
"""The height, in inches, that rows share before they are as small as they get."""
_APART = 1.6
"""How far apart, in columns, are two columns between which there is a gap."""
_SLANTED = 0.19
"""Columns that are at least as wide have slanted names."""
_NOTE = 6.5
"""The size of the notes below the matrix, in points."""
_MARGIN = 0.06
_NARROWEST = 2.4
"""The width, in inches, that the notes need."""
_BRACKET: dict[str, Any] = {
    "color": GREY,
    "linewidth": 0.8,
    "clip_on": False,
    "solid_capstyle": "butt",
}


def matrix(explanation: Explanation, target: int | None = None) -> Figure:
    """A row for each target, or for this one, and a column for each token before the last."""
    found = [r for r in shown(explanation) if target in (None, r.target)]
    if not found:
        raise RationalesError("there is no matrix to draw: the explanation has no rationales")
    rows = found[:MOST]
    columns = _columns(explanation.tokens, rows)
    notes = [columns.note] * bool(columns.note)
    notes += [f"The first {MOST} of {len(found)} rows are shown."] * (len(found) > MOST)
    with drawing(math=False):
        figure = blank((PAGE, PAGE))
        _Drawer(figure, explanation.tokens, rows, columns).draw(notes)
    return figure


@dataclass(frozen=True)
class _Columns:
    """Which tokens have a column, and where."""

    places: Mapping[int, float]
    """Where each token's column is, in columns, by the token's index."""
    gaps: Sequence[float]
    """Where columns are left out."""
    note: str
    """What is left out, in words."""


def _columns(tokens: Sequence[Token], rows: Sequence[Rationale]) -> _Columns:
    """A column for each token before the last target; of many, for those that are kept."""
    end = max(rationale.target for rationale in rows)
    every = [token.index for token in tokens[:end] if not token.pinned]
    chosen, note = every, ""
    if len(every) > ALL_COLUMNS:
        kept = {index for rationale in rows for index in rationale.indices}
        used = [index for index in every if index in kept]
        chosen = used[:MOST]
        which = "those" if len(used) <= MOST else f"the first of {len(used)}"
        note = f"{len(chosen)} of {len(every)} context tokens are shown, {which} that are kept"
        note += "; dotted lines are gaps."
    ranks = {index: rank for rank, index in enumerate(every)}
    places: dict[int, float] = {}
    gaps = []
    place = 0.0
    for before, index in zip([None, *chosen], chosen, strict=False):
        if ranks[index] > (-1 if before is None else ranks[before]) + 1:
            gaps.append(place + (_APART / 2 if places else 0))
            place += _APART if places else _APART / 2
        elif before is not None:
            place += 1 if tokens[before].side == tokens[index].side else _APART
        places[index] = place
    return _Columns(places, gaps, note)


class _Drawer:
    """Draws a matrix: one unit of the axes is one cell."""

    def __init__(
        self, figure: Figure, tokens: Sequence[Token], rows: Sequence[Rationale], columns: _Columns
    ) -> None:
        self.figure, self.panel = figure, figure.add_axes((0, 0, 1, 1))
        self.tokens, self.rows, self.columns = tokens, rows, columns
        self.places = columns.places
        self.words = {i: n for n, unit in enumerate(group(tokens, "word")) for i in unit}
        self.across = 1 + max(self.places.values(), default=0)
        self.height = _between(_HEIGHTS, _ROWS / len(rows))
        self.width = _WIDTHS[1]
        self.fits = True  # whether all numbers fit into their cells

    def draw(self, notes: Sequence[str]) -> None:
        """Draw everything, and give the figure the size that it needs."""
        self.panel.set(xlim=(-0.5, self.across - 0.5), ylim=(len(self.rows) - 0.5, -0.5))
        self.panel.spines[:].set_visible(False)
        self.panel.grid(visible=False)
        left = self._name_rows()
        top, right = self._name_columns(PAGE - left - _MARGIN)
        self._draw_cells()
        self._draw_brackets()
        self._name_blocks()
        self._arrange(left, top, right, notes)

    def _name_rows(self) -> float:
        """Name the targets, with a star where the model's first choice is another; the width."""
        names = [
            name(r.target_text or self.tokens[r.target].text) + "*" * (r.predicted is False)
            for r in self.rows
        ]
        for row, (before, rationale) in enumerate(pairwise(self.rows), start=1):
            if before.target == rationale.target:  # an alternative
                names[row] = "or"
        size = min(8.0, 72 * 0.72 * self.height)
        self.panel.set_yticks(range(len(names)), names, fontsize=size)
        self.panel.tick_params(axis="y", length=0, pad=5)
        texts = self.panel.get_yticklabels()
        return max(text.get_window_extent().width for text in texts) / self.figure.dpi + 0.13

    def _name_columns(self, room: float) -> tuple[float, float]:
        """Name the tokens and choose the width of cells: the height, and the width of all.

        Names are slanted, if cells are then wide enough in this room, and upright if not.
        """
        places = list(self.places.values())
        names = [name(self.tokens[index].text) for index in self.places]
        looks: dict[str, Any] = {"rotation": 55, "ha": "left", "rotation_mode": "anchor"}
        self.panel.xaxis.tick_top()
        self.panel.tick_params(axis="x", length=0, pad=4)
        self.panel.set_xticks(places, names, fontsize=8, **looks)
        reach = [(place + 0.5, box[0]) for place, box in zip(places, self._boxes(), strict=True)]
        widest = min([(room - wide) / place for place, wide in reach] + [room / self.across])
        self.width = _between(_WIDTHS, widest)
        if widest < _SLANTED:
            self.width = _between((_WIDTHS[0], _SLANTED), room / self.across)
            looks = {"rotation": 90, "ha": "center", "rotation_mode": "default"}
            self.panel.set_xticks(places, names, fontsize=min(8, 63 * self.width), **looks)
            reach = []
        top = max((box[1] for box in self._boxes()), default=0) + 0.12
        ends = [place * self.width + wide for place, wide in reach]
        return top, max([self.across * self.width, *ends])

    def _boxes(self) -> list[tuple[float, float]]:
        """The width and height of the names of columns, in inches."""
        boxes = [text.get_window_extent() for text in self.panel.get_xticklabels()]
        return [(box.width / self.figure.dpi, box.height / self.figure.dpi) for box in boxes]

    def _draw_cells(self) -> None:
        """A pale cell for each token before a target; a dark or hatched one for each kept token."""
        from matplotlib.collections import PatchCollection

        empty = [
            self._rectangle(index, row)
            for row, rationale in enumerate(self.rows)
            for index in self.places
            if index < rationale.target and index not in rationale.indices
        ]
        self.panel.add_collection(PatchCollection(empty, facecolor=_EMPTY, linewidth=0))
        for row, rationale in enumerate(self.rows):
            for index, number in _order(rationale):
                if index in self.places:
                    cell = self.panel.add_patch(self._rectangle(index, row))
                    cell.set(**_looks(rationale.sufficient))
                    self._write_number(index, row, str(number), rationale.sufficient)
        for gap in self.columns.gaps:
            self.panel.axvline(gap, color="#999999", linewidth=0.7, linestyle=(0, (1, 2)))

    def _rectangle(self, index: int, row: int) -> Rectangle:
        """The cell of a token: cells of one word touch but for a hairline."""
        from matplotlib.patches import Rectangle

        apart, hairline, down = 0.013 / self.width, 0.004 / self.width, 0.013 / self.height
        left = hairline if self._same_word(index - 1, index) else apart
        right = hairline if self._same_word(index, index + 1) else apart
        corner = (self.places[index] - 0.5 + left, row - 0.5 + down)
        return Rectangle(corner, 1 - left - right, 1 - 2 * down)

    def _same_word(self, *indices: int) -> bool:
        """Whether these have columns and belong to one word."""
        return len({self.words.get(i, -1 - i) if i in self.places else -1 - i for i in indices}) < 2

    def _write_number(self, index: int, row: int, digits: str, sufficient: bool) -> None:
        """The number of a kept token, if it can be read in its cell."""
        from matplotlib.patheffects import withStroke

        size = 72 * min(0.8 * self.width / (0.64 * len(digits)), 0.6 * self.height, 0.097)
        if size < 4:
            self.fits = False
            return
        number = self.panel.text(self.places[index], row, digits, fontsize=size)
        number.set(ha="center", va="center_baseline", color="white" if sufficient else "black")
        if not sufficient:  # the lines of the hatch do not touch it
            number.set_path_effects([withStroke(linewidth=1.6, foreground=_PALE)])

    def _draw_brackets(self) -> None:
        """Join what belongs to one word: tokens above the matrix, targets beside it."""
        reach = 0.5 - 0.02 / self.width
        for first, last in self._brackets(self.places):
            ends = (self.places[first] - reach, self.places[last] + reach)
            self.panel.plot(ends, [-0.5 - 0.03 / self.height] * 2, **_BRACKET)
        targets = {r.target: row for row, r in enumerate(self.rows) if r.target_length == 1}
        reach = 0.5 - 0.02 / self.height
        for first, last in self._brackets(targets):
            ends = (targets[first] - reach, targets[last] + reach)
            self.panel.plot([-0.5 - 0.035 / self.width] * 2, ends, **_BRACKET)

    def _brackets(self, indices: Iterable[int]) -> Iterator[tuple[int, int]]:
        """The first and the last token of each word that has several among these."""
        there = sorted(indices)
        for _, members in groupby(there, lambda index: self.words.get(index, -1 - index)):
            word = list(members)
            if len(word) > 1:
                yield word[0], word[-1]

    def _name_blocks(self) -> None:
        """Say below the columns what they are: the context, or the sides of a translation."""
        names = {None: "context", "source": "source", "target": "target prefix"}
        looks: dict[str, Any] = {"ha": "center", "va": "top", "fontsize": _NOTE, "color": GREY}
        below = len(self.rows) - 0.5 + 0.03 / self.height
        for side, members in groupby(self.places, lambda index: self.tokens[index].side):
            block = [self.places[index] for index in members]
            self.panel.text((block[0] + block[-1]) / 2, below, names[side], **looks)

    def _arrange(self, left: float, top: float, right: float, notes: Sequence[str]) -> None:
        """Give the figure the size of the cells, the names around them and the notes below."""
        width = max(left + right + _MARGIN, _NARROWEST)
        text = wrap(" ".join([*self._told(), *notes]), int((width - 0.1) * 72 / (0.53 * _NOTE)))
        line = 1.35 * _NOTE / 72
        inner, down = self.across * self.width, len(self.rows) * self.height
        bottom = _MARGIN + (len(text) + 2.6) * line
        height = top + down + bottom
        self.figure.set_size_inches(width, height)
        self.panel.set_position((left / width, bottom / height, inner / width, down / height))
        x, y = _MARGIN / width, _MARGIN / height
        looks: dict[str, Any] = {"fontsize": _NOTE, "color": GREY, "va": "bottom"}
        self.figure.text(x, y, "\n".join(text), **looks, linespacing=1.1)
        self._draw_legend(x, y + (len(text) + 0.1) * line / height)

    def _told(self) -> Iterator[str]:
        """What the signs of this matrix mean."""
        where = "" if self.fits else ", where they fit"
        yield f"Numbers: the order in which tokens were added{where}."
        if any(rationale.predicted is False for rationale in self.rows):
            yield "*: not the model's first choice given the full context."

    def _draw_legend(self, x: float, y: float) -> None:
        """What the two kinds of kept cells mean, as far as they are there."""
        from matplotlib.patches import Patch

        kinds = sorted({rationale.sufficient for rationale in self.rows}, reverse=True)
        self.figure.legend(
            [Patch(**_looks(sufficient)) for sufficient in kinds],
            ["kept, sufficient" if each else "kept, not sufficient" for each in kinds],
            loc="lower left",
            bbox_to_anchor=(x, y),
            ncols=2,
            fontsize=_NOTE,
            frameon=False,
            borderpad=0,
            borderaxespad=0,
            handlelength=1.4,
            handletextpad=0.5,
            columnspacing=1.2,
        )


def _looks(sufficient: bool) -> dict[str, Any]:
    """How kept cells are drawn: told apart by lightness and by hatching, not by hue alone."""
    if sufficient:
        return {"facecolor": BLUE, "linewidth": 0}
    return {"facecolor": _PALE, "edgecolor": _HATCH, "hatch": "//////", "linewidth": 0}


def _order(rationale: Rationale) -> Iterator[tuple[int, int]]:
    """The kept tokens with their numbers, in the order added; those of one unit share a number."""
    units = rationale.units or [(index,) for index in rationale.indices]
    for number, unit in enumerate(units, start=1):
        yield from ((index, number) for index in unit)


def _between(limits: tuple[float, float], size: float) -> float:
    return max(limits[0], min(limits[1], size))
