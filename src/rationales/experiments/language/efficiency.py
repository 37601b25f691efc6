"""The paper's table on efficiency: the cost of a rationale, in seconds and in tokens computed.

templates that the model completes ─► one rationale at a time, by each way to search
WikiText contexts of 16 … 128 tokens ─► the same, to a fixed size: how the cost grows
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, linear_regression
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from rationales.checking import check_fields
from rationales.context import Context
from rationales.errors import RationalesError
from rationales.experiments import tables
from rationales.experiments.language.templates import PAIRS, TEMPLATES, completed
from rationales.experiments.language.timing import (
    KEY,
    TEXT,
    WAYS,
    Timed,
    Way,
    contexts_of,
    time_all,
)
from rationales.experiments.methods import Compared, split_names
from rationales.experiments.run import open_run, subject_of
from rationales.render import figures
from rationales.runs import Line, Lines, Progress

if TYPE_CHECKING:
    from rationales.explainer import Explainer

DATA = (TEMPLATES, PAIRS, TEXT)

PAPER: dict[str, dict[str, float | str]] = {
    "exhaustive": {"seconds": ">60"},
    "masked": {"seconds": 1.22},
    "sparse": {"seconds": 0.30},
}
"""GPT-2 Large on a GPU, templates that it completes; exhaustive search where it ends by size 6."""

COLUMNS = (
    tables.Column("seconds", "seconds"),
    tables.Column("tokens", "tokens computed", "", 0),
    tables.Column("evaluations", "subsets", "", 0),
    tables.Column("length", "length", "", 1),
    tables.Column("sufficient", "sufficient"),
)


@dataclass(frozen=True)
class Settings:
    """The settings of a run."""

    limit: Annotated[int, Ge(1)] | None = 20
    """Only N of the templates, drawn at random."""
    methods: tuple[str, ...] | None = None
    """Only these ways to search, separated by commas: of masked,sparse,shared,fast,exhaustive."""
    seed: int = 0
    """Seed of everything that is random."""
    exhaustive_size: Annotated[int, Ge(0)] = 4
    """Exhaustive search tries subsets of at most N tokens; 0: no exhaustive search."""
    exhaustive_examples: Annotated[int, Ge(0)] = 5
    """Exhaustive search for N of the templates."""
    lengths: tuple[Annotated[int, Ge(1)], ...] = (16, 32, 64, 128)
    """Length of a context with which the growth of the cost is measured; may be repeated."""
    contexts: Annotated[int, Ge(1)] = 3
    """Contexts of each length."""
    size: Annotated[int, Ge(2)] = 4
    """All searches in these contexts go on to N tokens; an exhaustive one to N - 1."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.methods is not None:
            object.__setattr__(self, "methods", split_names(self.methods))
        known = [way.name for way in WAYS]
        for name in self.methods or ():
            if name not in known:
                raise RationalesError(f"unknown method {name!r}: choose from {', '.join(known)}")

    @property
    def ways(self) -> list[Way]:
        """The ways to search that are compared."""
        wanted = [way for way in WAYS if self.methods is None or way.name in self.methods]
        return [way for way in wanted if self.exhaustive_size or way.name != "exhaustive"]


def run(
    out: str | Path,
    explainer: Explainer,
    settings: Settings | None = None,
    *,
    adapter: str | None = None,
    overwrite: bool,
    progress: Progress,
) -> dict[str, Any]:
    """The results of the experiment, which are then in the folder with their tables and figures.

    ``adapter`` is the folder that the explainer's adapter was loaded from, if not the packaged one.
    """
    import torch

    settings = settings or Settings()
    subject = subject_of(explainer, DATA, adapter)
    with open_run("efficiency", out, settings, subject, overwrite=overwrite) as run:
        chosen, _ = completed(explainer, run, settings.seed, settings.limit, progress)
        contexts = {each.id: each.context for each in chosen}
        lines = run.lines(KEY)
        time_all(explainer, list(_searches(explainer, contexts, settings)), lines, progress)
        threads = run.part("threads", torch.get_num_threads)
        results = run.known | {"threads": threads, **tabulate(lines, settings)}
        run.finish(results, report(results))
        curves = {
            growth["label"]: [(point["length"], point["tokens"]) for point in growth["points"]]
            for growth in results["growth"]
        }
        title = f"First {settings.size} tokens of a rationale"
        figure = figures.lines(curves, "tokens of the context", "tokens computed", title)
        run.draw("efficiency-growth", figure)
        run.draw("efficiency", figures.bars(results["tables"][0], ("seconds", "tokens")))
    return results


def _searches(
    explainer: Explainer, contexts: Mapping[str, Context], settings: Settings
) -> Iterator[Timed]:
    """All searches: those of the templates, then those of growing contexts."""
    for place, (name, context) in enumerate(contexts.items()):
        for way in settings.ways:
            if way.name != "exhaustive":
                yield Timed("templates", name, way, context)
            elif place < settings.exhaustive_examples:
                yield Timed("templates", name, way, context, settings.exhaustive_size)
    for length in settings.lengths:
        grown = contexts_of(explainer, length, settings.contexts, settings.seed)
        for name, context in grown.items():
            for way in settings.ways:
                size = settings.size - (way.name == "exhaustive")
                yield Timed("growth", name, way, context, size)


def measure(line: Line) -> dict[str, float]:
    """The values of one search, by column."""
    size = line["size"] if line["sufficient"] else line["context"]
    cost = {name: float(line[name]) for name in ("seconds", "tokens", "evaluations")}
    return cost | {"length": float(size), "sufficient": float(line["sufficient"])}


def tabulate(lines: Lines, settings: Settings) -> dict[str, Any]:
    """The table of the templates, and the cost of each way as contexts grow."""
    compared = [Compared(way.name, way.name, way.label, way.options) for way in settings.ways]
    measured: dict[str, list[dict[str, float]]] = {}
    points: dict[str, dict[int, list[Line]]] = {}
    for line in sorted(lines, key=lambda line: str(line["example"])):
        if line["part"] == "templates":
            measured.setdefault(line["way"], []).append(measure(line))
        else:
            points.setdefault(line["way"], {}).setdefault(line["context"], []).append(line)
    return {
        "tables": [tables.table("Templates", COLUMNS, measured, compared, PAPER, settings.seed)],
        "growth": [
            {"way": way.name, "label": way.label, **growth(points[way.name])}
            for way in settings.ways
            if way.name in points
        ],
    }


def growth(by_length: Mapping[int, Sequence[Line]]) -> dict[str, Any]:
    """Mean costs by the length of the context, and the exponent with which they grow."""
    points = [
        {
            "length": length,
            "seconds": fmean(line["seconds"] for line in found),
            "tokens": fmean(line["tokens"] for line in found),
        }
        for length, found in sorted(by_length.items())
    ]
    return {"points": points} | {
        f"{what}_power": _power([(p["length"], p[what]) for p in points])
        for what in ("seconds", "tokens")
    }


def _power(points: Sequence[tuple[float, float]]) -> float | None:
    """The slope of log y over log x; None if there are not two points."""
    logs = [(math.log(x), math.log(y)) for x, y in points if x > 0 and y > 0]
    if len({x for x, _ in logs}) < 2:
        return None
    return linear_regression([x for x, _ in logs], [y for _, y in logs]).slope


def report(results: Mapping[str, Any]) -> str:
    """The tables in Markdown, with notes."""
    settings, threads = results["settings"], results["threads"]
    model = (
        f"{tables.adapter_words(settings)}, {threads} thread{'s' if threads > 1 else ''} of a CPU"
    )
    rows = [
        [
            growth["label"],
            *(f"{p['seconds']:.2f} s, {p['tokens']:,.0f}" for p in growth["points"]),
            *(
                "–" if (x := growth[k]) is None else f"{x:.2f}"
                for k in ("seconds_power", "tokens_power")
            ),
        ]
        for growth in results["growth"]
    ]
    columns = [
        "method",
        *(f"{n} tokens" for n in settings["lengths"]),
        "power, seconds",
        "power, tokens",
    ]
    return f"""{tables.heading("Efficiency", results, model)}

{tables.markdown(results["tables"][0])}

{_speedup(results["tables"][0])}
- One rationale at a time, each with a new scorer, one evaluation of the whole context included. The
  model predicts all these targets, so a table on predicted targets only is this one.
  Tokens computed: what went through the model, over all subsets. Paper: seconds of GPT-2 Large on a
  GPU. Length: a rationale that is not sufficient counts as the whole context.
{_exhaustive(results)}

### Growth with the length of the context

{tables.markdown_table(columns, rows)}

- {settings["contexts"]} contexts of each length from WikiText-2 valid: mean seconds and tokens of a
  search to size {settings["size"]} ({settings["size"] - 1} if exhaustive), sufficient or not, so
  that the context grows and the rationale does not. Power: the slope of log cost over log length.
"""


def _exhaustive(results: Mapping[str, Any]) -> str:
    """A note on the exhaustive search: how far it went, and how often it found a rationale."""
    rows = [row for row in results["tables"][0]["rows"] if row["method"] == "exhaustive"]
    if not rows or not rows[0]["examples"]:
        return "- There was no exhaustive search."
    examples = rows[0]["examples"]
    converged = round(rows[0]["cells"]["sufficient"]["mean"] * examples)
    return (
        f"- Exhaustive search goes to size {results['settings']['exhaustive_size']}, on {examples} "
        f"of the examples; it finds a\n  rationale in {converged}, and for the others its cost is "
        "a lower bound."
    )


def _speedup(table: Mapping[str, Any]) -> str:
    """A note on how many times faster sparse inputs are than masked ones."""
    cells = {row["method"]: row["cells"]["seconds"] for row in table["rows"]}
    masked, sparse = cells.get("masked"), cells.get("sparse")
    if not masked or not sparse:
        return "- Masked and sparse inputs were not both timed."
    ratio = masked["mean"] / sparse["mean"]
    return f"- Sparse inputs are {ratio:.1f} times faster than masked ones (paper: 4.1 times)."
