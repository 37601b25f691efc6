"""Figures of the experiments, from their results: PNG and SVG, without a screen.

Colours are those of Okabe and Ito, which people who confuse red and green can tell apart.
matplotlib is imported when a figure is drawn: it is an extra.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rationales.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rationales.compat.measure import Measurement

BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#666666"
STYLE: dict[Any, Any] = {
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "svg.fonttype": "none",  # letters stay letters
    "svg.hashsalt": "rationales",  # the same figure is the same file
}


def check() -> None:
    """Raise if figures cannot be drawn; better before an experiment than after it."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("drawing figures", "plots") from error


def save(figure: Figure, path: Path) -> None:
    """Write a figure as what the name of the file says: ``.png`` or ``.svg``."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        figure.savefig(path, dpi=160, metadata={"Date": None} if path.suffix == ".svg" else None)


def majority(results: dict[str, Any]) -> Figure:
    """The probability of 1 against the number of ones seen, a panel for each model."""
    models = list(results["models"].values())
    bits = results["settings"]["bits"]
    sizes = sorted({round(bits * share) for share in (3 / 17, 7 / 17, 11 / 17, 15 / 17)})
    looks = list(zip(sizes, (BLUE, GREEN, ORANGE, PURPLE), "os^D", strict=False))
    figure, panels = make_panels(len(models), (4.1 * len(models), 3.9))
    for panel, model in zip(panels, models, strict=True):
        for size, colour, marker in looks:
            cells = [cell for cell in model["cells"] if cell["size"] == size]
            ones = [cell["ones"] for cell in cells]
            panel.plot(ones, [cell["exact"] for cell in cells], "--", color=colour, linewidth=1.3)
            low, high = ([cell[end] for cell in cells] for end in ("low", "high"))
            panel.vlines(ones, low, high, color=colour, linewidth=1.2, alpha=0.6)
            means = [cell["mean"] for cell in cells]
            panel.plot(ones, means, marker, color=colour, markersize=4, label=f"{size} bits seen")
        error = model["calibration_error"]
        panel.set_title(f"{model['label']} (error {error:.3f})")
        panel.set_xlabel("ones seen")
        panel.set_ylim(-0.05, 1.05)
        panel.locator_params(axis="x", integer=True)
    panels[0].set_ylabel("model's probability of a majority of 1")
    panels[0].plot([], [], "-", color=GREY, alpha=0.6, label="80 % of subsets")
    panels[0].plot([], [], "--", color=GREY, label="exact")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=len(labels),
        columnspacing=1.2,
        handletextpad=0.4,
        frameon=False,
    )
    return figure


def repetition(results: dict[str, Any]) -> Figure:
    """The probability that a lone word is followed by itself, by its position."""
    figure, (panel,) = make_panels(1, (5.6, 3.6))
    word = results["word"].strip()
    for name, colour, marker in (("before", ORANGE, "o"), ("after", BLUE, "s")):
        model = results["models"][name]
        values = model["repeats"]
        places = range(1, len(values) + 1)
        panel.plot(
            places, values, color=colour, marker=marker, markersize=2.6, label=model["label"]
        )
    panel.set_yscale("log")
    panel.set_xlabel(f"position t of a lone “{word}”")
    panel.set_ylabel(f"f( “{word}” | “{word}” at t )")
    panel.set_title(f"How probable is another “{word}” after “{word}” alone?")
    panel.legend(loc="best", frameon=False)
    return figure


def compatibility(measurements: list[Measurement]) -> Figure:
    """Surprise over the size of the subset, and p("the" | word, "the") over their distance."""
    figure, panels = make_panels(2, (8.4, 3.7), share=False)
    nll, the = panels
    first = measurements[0]
    for measured, colour in zip(measurements, (ORANGE, BLUE), strict=False):
        label = "with adapter" if measured.adapter else "model"
        points = {**measured.by_size, measured.length: measured.full}
        nll.errorbar(
            list(points),
            [point.mean for point in points.values()],
            [point.error for point in points.values()],
            fmt="o-",
            color=colour,
            markersize=4,
            label=label,
        )
        the.plot(
            list(measured.the),
            [point.mean for point in measured.the.values()],
            "o-",
            color=colour,
            markersize=4,
        )
    nll.axhline(first.unigram.mean, linestyle="--", color=GREY, linewidth=1.2, label="unigram")
    nll.set_title("Next token, random subsets")
    nll.set_xlabel(f"tokens kept of {first.length}")
    nll.set_ylabel("negative log-likelihood, nats")
    the.set_title('"the" after a lone word and "the"')
    the.set_xlabel("distance of the two, tokens")
    the.set_ylabel('probability of another "the"')
    for panel in panels:
        panel.set_xscale("log", base=2)
    nll.legend()
    return figure


def make_panels(
    count: int, size: tuple[float, float], share: bool = True
) -> tuple[Figure, list[Axes]]:
    """A figure with panels side by side that share their vertical axis, unless told otherwise."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)  # draws to files only, whatever the display
        panels = figure.subplots(1, count, sharey=share, squeeze=False)
    return figure, list(panels[0])
