"""Figures of experiments, without a screen; and what all figures share: style, fonts, files.

Of rationales: bars of a table, passages with their rationales (the paper's figure on Lambada), the
alignment of a translation. Of models: the toys, and what a compatibility adapter changes. Figures
of one explanation are in ``plots.py`` and ``matrix.py``.

Colours are those of Okabe and Ito, which people who confuse red and green can tell apart.
matplotlib is imported when a figure is drawn: it is an extra.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rationales.errors import MissingExtraError, RationalesError, RationalesWarning, cannot
from rationales.render import marks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rationales.compat.measure import Measurement

BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#666666"
_LOOKS = list(zip((BLUE, ORANGE, GREEN, PURPLE, GREY), "os^Dv", strict=True))
_HIGHLIGHT, _LIGHT, _EMPTY = "#F9E27D", "#A9DDCB", "#f1f1f1"
_COLUMNS, _LETTERS = 92, 8.0
"""Characters of a line of a passage, and their size in points."""
_STYLE: dict[Any, Any] = {
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "svg.fonttype": "none",  # letters stay letters
    "svg.hashsalt": "rationales",  # the same figure is the same file
    "pdf.fonttype": 42,  # letters stay letters, as publishers ask
    "hatch.linewidth": 0.7,
}
SUFFIXES = (".png", ".svg", ".pdf")


_FALLBACKS = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "WenQuanYi Zen Hei"),
    *("Microsoft YaHei", "PingFang SC", "Hiragino Sans", "Arial Unicode MS", "Noto Sans"),
    *("Noto Sans Arabic", "Noto Sans Devanagari", "Noto Emoji", "Segoe UI Symbol"),
)
"""Fonts for what the first one lacks, where they are installed."""
_ON_TOP = r"[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
_PILES = re.compile(f"({_ON_TOP}{{3}}){_ON_TOP}+")
"""More marks on one letter than are drawn: they would reach into other lines."""
_MISSING = re.compile(r"Glyph (\d+) .* missing from")


def check(path: Path | None = None) -> None:
    """Raise if no figure can be drawn, or none to this file: better before the work than after."""
    if path is not None and path.suffix.lower() not in SUFFIXES:
        raise RationalesError(f"cannot draw {path}: its name must end in {', '.join(SUFFIXES)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("drawing figures", "plots") from error


def save(figure: Figure, path: Path, dpi: int = 160) -> None:
    """Write a figure as what the name of the file says: ``.png``, ``.svg`` or ``.pdf``."""
    suffix = path.suffix.lower()
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(suffix)
    with drawing() as missing:
        try:
            figure.savefig(path, dpi=dpi, metadata=undated)
        except OSError as error:
            raise cannot("write", path, error) from error
    if missing and suffix != ".svg":  # there, letters are drawn by whatever shows the file
        some = "".join(sorted(missing)[:10])
        warnings.warn(
            f"no font here has {some!r}: boxes are drawn instead; install one, or write an .svg",
            RationalesWarning,
            stacklevel=2,
        )


@contextmanager
def drawing(math: bool = True) -> Iterator[set[str]]:
    """The style in which figures are drawn; the characters that no font has are in the answer.

    Without ``math``, a dollar sign in a text that is added is a dollar sign.
    """
    import matplotlib as mpl
    from matplotlib.font_manager import fontManager

    there = set(fontManager.get_font_names())
    fonts = ["DejaVu Sans", *(name for name in _FALLBACKS if name in there)]
    missing: set[str] = set()
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", message=_MISSING.pattern)
        more = {"font.family": fonts, "text.usetex": False, "text.parse_math": math}
        with mpl.rc_context(_STYLE | more):
            yield missing
    for each in caught:
        if found := _MISSING.match(str(each.message)):
            missing.add(chr(int(found[1])))
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


def blank(size: tuple[float, float], **options: Any) -> Figure:
    """An empty figure of this size in inches, which a notebook shows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = _figure_class()(figsize=size, **options)
    FigureCanvasAgg(figure)  # draws to files only, whatever the display
    return figure


@cache
def _figure_class() -> type[Figure]:
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        def _repr_png_(self) -> tuple[bytes, dict[str, float]]:
            """What a notebook shows: sharp, at the size that the figure has on paper."""
            file = BytesIO()
            with drawing():
                self.savefig(file, format="png", dpi=200)
            width, height = self.get_size_inches()
            return file.getvalue(), {"width": round(96 * width), "height": round(96 * height)}

    return ShownFigure


def bars(table: dict[str, Any], keys: Sequence[str]) -> Figure:
    """The means of a table's columns, a panel for each, with intervals and the paper's values."""
    rows = [row for row in table["rows"] if row["shown"]][::-1]
    columns = [c for c in table["columns"] if c["key"] in keys]
    columns = [c for c in columns if any(row["cells"][c["key"]] for row in rows)]
    size = (2.4 + 2.3 * max(1, len(columns)), 1.1 + 0.34 * len(rows))
    figure, panels = _panels(max(1, len(columns)), size)
    for panel, column in zip(panels, columns, strict=False):
        for place, row in enumerate(rows):
            cell, paper = row["cells"][column["key"]], row["paper"].get(column["key"])
            if cell is not None:
                colour = ORANGE if row["method"].startswith("greedy") else BLUE
                mean = cell["mean"]
                reach = [[mean - cell["low"]], [cell["high"] - mean]]
                panel.barh(place, mean, color=colour, alpha=0.75, height=0.65)
                panel.errorbar(mean, place, xerr=reach, color="black", linewidth=1, capsize=2)
            if isinstance(paper, float):
                panel.plot(paper, place, "D", color="white", markeredgecolor=GREY, markersize=5)
        panel.set(xlabel=column["title"], axisbelow=True)
        panel.grid(axis="y", visible=False)
    panels[0].set_yticks(range(len(rows)), [row["label"] for row in rows])
    figure.suptitle(f"{table['title']} (bars: ours, with 95 % intervals; diamonds: the paper's)")
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
    figure, (left, right) = _panels(2, (2.4 + 0.52 * columns, 1.5 + 0.26 * rows))
    empty = {(column, row): _EMPTY for row in range(rows) for column in range(columns)}
    gold = dict.fromkeys(shown.possible, _LIGHT) | dict.fromkeys(shown.sure, GREEN)
    found = dict.fromkeys(shown.found, BLUE)
    _draw_cells(left, shown.source, shown.target, empty | found)
    _draw_cells(right, shown.source, shown.target, empty | gold)
    left.set_xlabel("greedy source rationales")
    right.set_xlabel("gold alignment")
    return figure


def _draw_cells(
    panel: Axes, columns: Sequence[str], rows: Sequence[str], colours: Mapping[tuple[int, int], str]
) -> None:
    """Draw a matrix, its cells coloured by (column, row); columns are named above it."""
    from matplotlib.patches import Rectangle

    for (column, row), colour in colours.items():
        corner = (column - 0.46, row - 0.44)
        panel.add_patch(Rectangle(corner, 0.92, 0.88, color=colour, linewidth=0))
    panel.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
    panel.set_xticks(range(len(columns)), map(_plain, columns), rotation=60, ha="left")
    panel.set_yticks(range(len(rows)), map(_plain, rows))
    panel.xaxis.tick_top()
    panel.grid(visible=False)
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)


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
    from matplotlib.patches import Rectangle

    layouts = [list(_laid_out(each.pieces)) for each in shown]
    heights = [3.0 + max(line for line, _, _, _ in layout) for layout in layouts]
    # A column of the axes is a letter wide, so that the pieces of a line join up.
    width = _COLUMNS * 0.602 * _LETTERS / 72
    figure, (panel,) = _panels(1, (width / 0.96, sum(heights) * 1.5 * _LETTERS / 72 / 0.96))
    figure.set_layout_engine("none")
    panel.set_position((0.02, 0.02, 0.96, 0.96))
    top = 0.0
    for each, layout, height in zip(shown, layouts, heights, strict=True):
        panel.text(0, top + 0.5, _plain(each.title), fontsize=8, color=GREY, va="center")
        for line, column, text, index in layout:
            corner = (column, top + 1 + line)
            if index in each.kept:
                panel.add_patch(Rectangle(corner, len(text), 0.95, color=_HIGHLIGHT, linewidth=0))
            panel.text(
                column,
                top + 1.5 + line,
                _plain(text),
                fontfamily="monospace",
                fontsize=_LETTERS,
                fontweight="bold" if index in each.human else "normal",
                color=ORANGE if index == each.target else "black",
                va="center_baseline",
            )
        top += height
    panel.set(xlim=(0, _COLUMNS), ylim=(top, 0))
    panel.set_axis_off()
    return figure


def _laid_out(pieces: Sequence[str]) -> Iterator[tuple[int, int, str, int]]:
    """Where each piece goes that is not a space: line, column, its text, its place among them."""
    line = column = 0
    for index, piece in enumerate(pieces):
        text = " ".join(piece.splitlines()) if piece.strip() else " " * bool(piece)
        if column + len(text) > _COLUMNS and column > 0:
            line, column = line + 1, 0
            text = text.lstrip(" ")
        if body := text.strip(" "):
            yield line, column + len(text) - len(text.lstrip(" ")), body, index
        column += len(text)


def lines(series: dict[str, list[tuple[float, float]]], x: str, y: str, title: str = "") -> Figure:
    """Curves of (x, y) points by their label, both axes logarithmic."""
    figure, (panel,) = _panels(1, (5.6, 3.8))
    for place, (label, points) in enumerate(series.items()):
        colour, marker = _LOOKS[place % len(_LOOKS)]
        xs, ys = ([point[axis] for point in points] for axis in (0, 1))
        panel.plot(xs, ys, f"{marker}-", color=colour, markersize=4, label=label)
    panel.set_xscale("log", base=2)
    panel.set(yscale="log", xlabel=x, ylabel=y, title=title)
    panel.legend(loc="best", frameon=False)
    return figure


def shares(curves: Mapping[str, Sequence[Mapping[str, float]]], x: str, y: str) -> Figure:
    """Shares that grow with a number from 1 on, by their label, with their intervals as bands."""
    figure, (panel,) = _panels(1, (6.4, 4.2))
    for place, (label, points) in enumerate(curves.items()):
        colour, marker = _LOOKS[place % len(_LOOKS)]
        counts = range(1, len(points) + 1)
        low, mean, high = ([point[key] for point in points] for key in ("low", "mean", "high"))
        panel.fill_between(counts, low, high, color=colour, alpha=0.12, linewidth=0)
        panel.plot(counts, mean, f"{marker}-", color=colour, markersize=4, label=label)
    panel.set(xlabel=x, ylabel=y, ylim=(0, 1.02))
    panel.locator_params(axis="x", integer=True)
    panel.legend(loc="best", frameon=False)
    return figure


def majority(results: dict[str, Any]) -> Figure:
    """The probability of 1 against the number of ones seen, a panel for each model."""
    models = list(results["models"].values())
    bits = results["settings"]["bits"]
    sizes = sorted({round(bits * share) for share in (3 / 17, 7 / 17, 11 / 17, 15 / 17)})
    looks = list(zip(sizes, (BLUE, GREEN, ORANGE, PURPLE), "os^D", strict=False))
    figure, panels = _panels(len(models), (4.1 * len(models), 3.9))
    for panel, model in zip(panels, models, strict=True):
        for size, colour, marker in looks:
            cells = [cell for cell in model["cells"] if cell["size"] == size]
            ones, exact, low, high, means = (
                [cell[key] for cell in cells] for key in ("ones", "exact", "low", "high", "mean")
            )
            panel.plot(ones, exact, "--", color=colour, linewidth=1.3)
            panel.vlines(ones, low, high, color=colour, linewidth=1.2, alpha=0.6)
            panel.plot(ones, means, marker, color=colour, markersize=4, label=f"{size} bits seen")
        title = f"{model['label']} (error {model['calibration_error']:.3f})"
        panel.set(title=title, xlabel="ones seen", ylim=(-0.05, 1.05))
        panel.locator_params(axis="x", integer=True)
    panels[0].set_ylabel("model's probability of a majority of 1")
    panels[0].plot([], [], "-", color=GREY, alpha=0.6, label="80 % of subsets")
    panels[0].plot([], [], "--", color=GREY, label="exact")
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=len(looks) + 2,
        columnspacing=1.2,
        handletextpad=0.4,
        frameon=False,
    )
    return figure


def repetition(results: dict[str, Any]) -> Figure:
    """The probability that a lone word is followed by itself, by its position."""
    figure, (panel,) = _panels(1, (5.6, 3.6))
    word = results["word"].strip()
    for name, (colour, marker) in (("before", (ORANGE, "o")), ("after", (BLUE, "s"))):
        model = results["models"][name]
        places = range(1, len(model["repeats"]) + 1)
        looks: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 2.6}
        panel.plot(places, model["repeats"], **looks, label=model["label"])
    panel.set(
        yscale="log",
        xlabel=f"position t of a lone “{word}”",
        ylabel=f"f( “{word}” | “{word}” at t )",
        title=f"How probable is another “{word}” after “{word}” alone?",
    )
    panel.legend(loc="best", frameon=False)
    return figure


def compatibility(measurements: list[Measurement]) -> Figure:
    """Surprise over the size of the subset, and p("the" | word, "the") over their distance."""
    figure, (nll, the) = _panels(2, (8.4, 3.7), share=False)
    first = measurements[0]
    for measured, colour in zip(measurements, (ORANGE, BLUE), strict=False):
        looks: dict[str, Any] = {"fmt": "o-", "color": colour, "markersize": 4}
        looks["label"] = "with adapter" if measured.adapter else "model"
        points = {**measured.by_size, measured.length: measured.full}
        means = [point.mean for point in points.values()]
        nll.errorbar(list(points), means, [point.error for point in points.values()], **looks)
        the.errorbar(list(measured.the), [point.mean for point in measured.the.values()], **looks)
    nll.axhline(first.unigram.mean, linestyle="--", color=GREY, linewidth=1.2, label="unigram")
    for panel in (nll, the):
        panel.set_xscale("log", base=2)
    nll.set(title="Next token, random subsets", xlabel=f"tokens kept of {first.length}")
    nll.set_ylabel("negative log-likelihood, nats")
    the.set(title='"the" after a lone word and "the"', xlabel="distance of the two, tokens")
    the.set_ylabel('probability of another "the"')
    nll.legend()
    return figure


def _panels(count: int, size: tuple[float, float], share: bool = True) -> tuple[Figure, list[Axes]]:
    """A figure with panels side by side that share their vertical axis, unless told otherwise."""
    with drawing():
        figure = blank(size, layout="constrained")
        panels = figure.subplots(1, count, sharey=share, squeeze=False)
    return figure, list(panels[0])


def name(text: str, width: int = 18) -> str:
    """A token's text on its own, on one line of at most this many cells; draw without ``math``."""
    if len(text) > 4 * width:
        text = f"{text[: 2 * width]}…{text[-2 * width :]}"
    text = _PILES.sub(r"\1", marks.label(text).replace("␍", "↵"))  # the font has no ␍
    return marks.shortened(text, width)


def _plain(text: str) -> str:
    """The text as it can be drawn: no dollar signs, which mean mathematics, and no line breaks."""
    return " ".join(text.split()).replace("$", r"\$") or "␣"
