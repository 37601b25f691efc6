"""Figures of one explanation: its matrix, how a rationale grew, one step of greedy search."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import exp, nan
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from rationales.errors import RationalesError, given
from rationales.render import figures
from rationales.render.figures import BLUE, GREY, ORANGE, PURPLE, drawing, name
from rationales.render.marks import percent
from rationales.render.matrix import PAGE, matrix
from rationales.result import Candidate, Explanation, Rationale, Step

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = ("matrix", "steps", "candidates")
_COLUMN = 3.4
"""The width of one of two columns of a page, in inches."""
_MOST_BARS = 40
_MOST_NAMES = 80
_DPI = 300
_SMALL = 7.0
_OTHER = "#c9ddea"


def plot(
    explanation: Explanation,
    path: str | Path | None = None,
    kind: str = "matrix",
    target: int | None = None,
) -> Figure:
    """A figure of this kind, written to the file if one is given."""
    if kind not in KINDS:
        raise RationalesError(f"there is no plot {given(kind)}: choose from {', '.join(KINDS)}")
    file = None if path is None else Path(path)
    figures.check(file)
    chosen = _rationale(explanation, target)
    if kind == "matrix":
        figure = matrix(explanation, target)
    else:
        figure = steps(chosen) if kind == "steps" else candidates(chosen)
    if file is not None:
        figures.save(figure, file, dpi=_DPI)
    return figure


def _rationale(explanation: Explanation, target: int | None) -> Rationale:
    """The rationale of this target; of the last if none is given."""
    if not explanation.rationales:
        raise RationalesError("there is nothing to plot: the explanation has no rationales")
    if target is None:
        return explanation.rationales[-1]
    for rationale in explanation:
        if rationale.target == target:
            return rationale
    targets = [rationale.target for rationale in explanation]
    some = ", ".join(map(str, targets[:10])) + ", …" * (len(targets) > 10)
    raise RationalesError(f"{given(target)} is not the index of a target: choose from {some}")


def steps(rationale: Rationale) -> Figure:
    """The target's probability after each step, the token added, the model's first choice."""
    taken = rationale.steps
    if not taken:
        raise RationalesError("there are no steps to plot: the rationale has none")
    width = min(PAGE, max(_COLUMN, 0.9 + 0.36 * len(taken)))
    target = [exp(step.target_logprob) for step in taken]
    curves = [("o-", BLUE, _target(rationale), target)]
    if any(step.prediction_logprob is not None for step in taken):
        first = [_probability(step.prediction_logprob) for step in taken]
        curves.append(("s:", GREY, "model's first choice", first))
    if any(step.contrast_logprob is not None for step in taken):
        instead = [_probability(step.contrast_logprob) for step in taken]
        curves.append(("^--", PURPLE, "alternative", instead))
    with drawing(math=False):
        figure = figures.blank((width, 2), layout="constrained")
        panel = figure.add_subplot()
        for place, (look, colour, told, ys) in enumerate(curves):
            [line] = panel.plot(range(1, len(taken) + 1), ys, look, color=colour, label=told)
            line.set(linewidth=1.2, markersize=4, zorder=4 - place)
            line.set_markerfacecolor("white" if place else colour)
        if rationale.sufficient:
            [star] = panel.plot(len(taken), target[-1], "*", color=ORANGE, label="sufficient")
            star.set(markersize=12, markeredgecolor="white", zorder=5)
        if rationale.full_context is not None:
            full = exp(rationale.full_context.target_logprob)
            line = panel.axhline(full, color=BLUE, label="given the full context")
            line.set(linewidth=0.9, linestyle=(0, (5, 4)), zorder=1)
        panel.set(xlim=(0.5, len(taken) + 0.5), axisbelow=True)
        panel.set_ylabel("probability", fontsize=8)
        top = max(panel.dataLim.y1, 1e-12)
        panel.set_ylim(-0.03 * top, 1.1 * top)
        panel.grid(axis="x", visible=False)
        panel.tick_params(axis="y", labelsize=8)
        names = _name_steps(panel, rationale, (width - 0.7) / len(taken))
        figure.legend(loc="outside lower center", ncols=2, fontsize=_SMALL, frameon=False)
        figure.set_size_inches(width, 2.25 + 0.11 * (len(curves) > 2) + names)
    return figure


def _name_steps(panel: Axes, rationale: Rationale, pitch: float) -> float:
    """Name the added tokens below the curve, and the model's first choices above it: the height."""
    taken = rationale.steps
    every = range(0, len(taken), -(-len(taken) // _MOST_NAMES))
    places = [step + 1 for step in every]
    added = [_added(rationale, taken[step]) for step in every]
    said = [_said(taken[step]) for step in every]
    above = panel.secondary_xaxis("top")
    above.tick_params(length=0, pad=2)
    above.spines[:].set_visible(False)
    panel.set_xlabel("token added", fontsize=8)
    above.set_xlabel("model's first choice then", fontsize=8)
    height = 0.0
    for axis, names, ha in ((panel, added, "right"), (above, said, "left")):
        longest = max(map(cell_len, names)) * 0.075  # inches
        looks: dict[str, Any] = {"fontsize": min(8.0, 61 * pitch * len(taken) / len(every))}
        if longest > pitch:
            looks |= {"rotation": 55, "ha": ha, "rotation_mode": "anchor"}
            if pitch < 0.19:
                looks |= {"rotation": 90, "ha": "center", "rotation_mode": "default"}
        axis.set_xticks(places, names, **looks)
        height += 0.85 * longest * looks["fontsize"] / 8 if longest > pitch else 0.12
    for step, text in zip(every, above.get_xticklabels(), strict=True):
        reached = taken[step].prediction_id == rationale.target_id
        text.set(color=BLUE if reached else GREY, fontweight="bold" if reached else "normal")
    return height


def candidates(rationale: Rationale) -> Figure:
    """The last step with recorded candidates: the target's probability with each of them added.

    The paper's figure 2.
    """
    recorded = [number for number, step in enumerate(rationale.steps) if step.candidates]
    if not recorded:
        raise RationalesError(
            f"no candidates were recorded for {_target(rationale)}: search with method greedy and "
            "keep_candidates=10 (--steps 10); a rationale of one token has none"
        )
    number = recorded[-1]
    step = rationale.steps[number]
    tried = list(step.candidates[:_MOST_BARS])  # the best come first
    if step.index is not None and step.index not in {each.index for each in tried}:
        tried.append(Candidate(step.index, step.target_logprob, step.unit))
    tried.sort(key=lambda each: -each.target_logprob)
    names = _told_apart(rationale, tried)
    probabilities = [exp(each.target_logprob) for each in tried]
    with drawing(math=False):
        figure = figures.blank((_COLUMN, 1.25 + 0.2 * len(tried)), layout="constrained")
        panel = figure.add_subplot()
        for place, (each, probability) in enumerate(zip(tried, probabilities, strict=True)):
            added = each.index == step.index
            panel.barh(place, probability, height=0.72, color=BLUE if added else _OTHER)
            told = panel.annotate(
                percent(each.target_logprob) + "  ← added" * added,
                (probability, place),
                (3, 0),
                textcoords="offset points",
            )
            told.set(va="center", fontsize=_SMALL, fontweight="bold" if added else "normal")
            told.set_bbox({"facecolor": "white", "linewidth": 0, "pad": 0.8})
        before = exp(rationale.steps[number - 1].target_logprob) if number else 0.0
        if number:
            line = panel.axvline(before, color=ORANGE, label="before this step")
            line.set(linewidth=1.1, linestyle=(0, (4, 2)))
            figure.legend(loc="outside lower right", fontsize=_SMALL, frameon=False)
        panel.set_yticks(range(len(tried)), names, fontsize=8)
        panel.set(ylim=(len(tried) - 0.4, -0.6), axisbelow=True)
        most = 1.6 * max(*probabilities, before, 1e-12)
        panel.set_xlim(0, most)
        panel.set_xticks([tick for tick in panel.get_xticks() if tick <= min(1, most)])
        panel.set_xlabel(f"probability of {_target(rationale)}", fontsize=8)
        panel.set_ylabel("candidate", fontsize=8)
        panel.grid(axis="y", visible=False)
        panel.tick_params(axis="y", length=0)
        panel.tick_params(axis="x", labelsize=8)
        figure.suptitle(_title(rationale, number), fontsize=8)
    return figure


def _title(rationale: Rationale, number: int) -> str:
    """What was kept before this step."""
    before = rationale.steps[:number]
    kept = [i for step in before if step.index is not None for i in step.unit or (step.index,)]
    text = name(replace(rationale, indices=tuple(kept)).text, 90) if kept else "nothing"
    return fill(f"Step {number + 1} of {len(rationale.steps)}; kept before: {text}", 52)


def _told_apart(rationale: Rationale, tried: list[Candidate]) -> list[str]:
    """The texts of these candidates, those of equal ones with their indices."""
    names = [_added(rationale, each) for each in tried]
    often = Counter(names)
    return [
        f"{text} ({each.index})" if often[text] > 1 else text
        for text, each in zip(names, tried, strict=True)
    ]


def _added(rationale: Rationale, added: Step | Candidate) -> str:
    """What was added, or could have been: a token, or all those of a unit."""
    if added.index is None:
        return "(pinned only)"
    indices = added.unit or (added.index,)
    return name("".join(rationale.tokens[index].text for index in indices))


def _said(step: Step) -> str:
    return name(str(step.prediction_id) if step.prediction_text is None else step.prediction_text)


def _target(rationale: Rationale) -> str:
    text = rationale.target_text
    return f"“{name(rationale.tokens[rationale.target].text if text is None else text)}”"


def _probability(logprob: float | None) -> float:
    return nan if logprob is None else exp(logprob)
