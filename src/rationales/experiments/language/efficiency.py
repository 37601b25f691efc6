"""The paper's table on efficiency: what a rationale costs, in seconds and in tokens computed.

    templates that the model completes ─► one rationale at a time, each way to search on its own
    WikiText contexts of 16 … 128 tokens ─► the same, to a fixed size: how the cost grows

Every search starts with a new scorer: nothing that another one has computed is there to be used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, linear_regression
from typing import Any

from rationales.context import Context
from rationales.errors import RationalesError
from rationales.experiments import tables
from rationales.experiments.language.agreement import completed, shuffled
from rationales.experiments.language.templates import PAIRS, TEMPLATES, examples
from rationales.experiments.language.timing import (
    KEY,
    TEXT,
    WAYS,
    Timed,
    Way,
    contexts_of,
    time_all,
)
from rationales.experiments.methods import Compared, check_limit
from rationales.experiments.run import open_run, subject_of
from rationales.experiments.tables import markdown_table
from rationales.explainer import Explainer
from rationales.render import figures
from rationales.runs import Line, Lines, Progress

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
    """What makes a run the run it is, but for its model and data."""

    limit: int | None = 20
    methods: tuple[str, ...] | None = None
    """Names of the ways to search; all if None."""
    seed: int = 0
    exhaustive_size: int = 4
    """How large a subset the exhaustive search tries; 0: there is none."""
    exhaustive_examples: int = 5
    lengths: tuple[int, ...] = (16, 32, 64, 128)
    """Of the contexts over which the cost is seen to grow."""
    contexts: int = 3
    """Of each length."""
    size: int = 4
    """Up to which all searches go there, enough or not; an exhaustive one to one less."""

    def __post_init__(self) -> None:
        check_limit(self.limit)
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
    """The results of the experiment, which are then in the folder with their tables and figure.

    ``adapter`` is the folder that the explainer's adapter was loaded from, if not the packaged one.
    """
    settings = settings or Settings()
    subject = subject_of(explainer, DATA, adapter)
    with open_run("efficiency", out, settings, subject, overwrite=overwrite) as folder:
        opened = folder
        filled = shuffled(examples(explainer.tokenizer), settings.seed)
        chosen = completed(explainer, filled, settings.limit, folder, progress)
        contexts = {each.id: each.context for each in chosen}
        lines = opened.lines(KEY)
        time_all(explainer, _work(explainer, contexts, settings), lines, progress)
        results = opened.known | {"threads": _threads(), **tabulate(lines, settings)}
        opened.finish(results, report(results))
        curves = {
            growth["label"]: [(point["length"], point["tokens"]) for point in growth["points"]]
            for growth in results["growth"]
        }
        title = f"First {settings.size} tokens of a rationale"
        figure = figures.lines(curves, "tokens of the context", "tokens computed", title)
        folder.draw("efficiency-growth", figure)
        folder.draw("efficiency", figures.bars(results["tables"][0], ("seconds", "tokens")))
    return results


def _work(
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
        for name, context in contexts_of(
            explainer, length, settings.contexts, settings.seed
        ).items():
            for way in settings.ways:
                size = settings.size - (way.name == "exhaustive")
                yield Timed("growth", name, way, context, size, endless=True)


def tabulate(lines: Lines, settings: Settings) -> dict[str, Any]:
    """The table of the templates, and what each way costs as contexts grow."""
    methods = [Compared(way.name, way.name, way.label, way.options) for way in settings.ways]
    measured: dict[str, list[dict[str, float]]] = {}
    points: dict[str, dict[int, list[Line]]] = {}
    for line in sorted(lines, key=lambda line: str(line["example"])):
        if line["part"] == "templates":
            measured.setdefault(line["way"], []).append(_values(line))
        else:
            points.setdefault(line["way"], {}).setdefault(line["context"], []).append(line)
    return {
        "tables": [tables.table("Templates", COLUMNS, measured, methods, PAPER, settings.seed)],
        "growth": [
            {"way": way.name, "label": way.label, **growth(points[way.name])}
            for way in settings.ways
            if way.name in points
        ],
    }


def _values(line: Line) -> dict[str, float]:
    size = line["size"] if line["sufficient"] else line["context"]
    cost = {name: float(line[name]) for name in ("seconds", "tokens", "evaluations")}
    return cost | {"length": float(size), "sufficient": float(line["sufficient"])}


def growth(by_length: Mapping[int, Sequence[Line]]) -> dict[str, Any]:
    """Mean costs by the length of the context, and the power of it that they grow with."""
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
    """The tables in Markdown, with what they mean."""
    settings = results["settings"]
    lengths = settings["lengths"]
    rows = [
        [
            growth["label"],
            *(f"{p['seconds']:.2f} s, {p['tokens']:,.0f}" for p in growth["points"]),
            *("–" if (x := growth[k]) is None else f"{x:.2f}" for k in _POWERS),
        ]
        for growth in results["growth"]
    ]
    columns = ["method", *(f"{n} tokens" for n in lengths), "power, seconds", "power, tokens"]
    return f"""# Efficiency

`rationales experiment efficiency --seed {settings["seed"]} --out DIR` · {settings["model"]}, {
        f"with the adapter {settings['adapter']}" if settings["adapter"] else "without an adapter"
    }, {results["threads"]} thread{"s" if results["threads"] > 1 else ""} of a CPU

{tables.markdown(results["tables"][0])}

{_speedup(results["tables"][0])}
- One rationale at a time, each with a new scorer, one evaluation of the whole context included. The
  model predicts all these targets, so a table on predicted targets only is this one.
  Tokens computed: what went through the model, over all subsets. Paper: seconds of GPT-2 Large on a
  GPU. Length: a rationale that is not sufficient counts as the whole context.
{_exhaustive(results)}

### Growth with the length of the context

{markdown_table(columns, rows)}

- {settings["contexts"]} contexts of each length from WikiText-2 valid: mean seconds and tokens of a
  search to size {settings["size"]} ({settings["size"] - 1} if exhaustive), enough or not, so that
  what grows is the context and not the rationale. Power: the slope of log cost over log length.
"""


def _exhaustive(results: Mapping[str, Any]) -> str:
    """What was asked of the exhaustive search, and how often it found something."""
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


_POWERS = ("seconds_power", "tokens_power")


def _speedup(table: Mapping[str, Any]) -> str:
    """How many times cheaper sparse inputs are than masked ones, if both were timed."""
    cells = {row["method"]: row["cells"]["seconds"] for row in table["rows"]}
    masked, sparse = cells.get("masked"), cells.get("sparse")
    if not masked or not sparse:
        return "- Masked and sparse inputs were not both timed."
    ratio = masked["mean"] / sparse["mean"]
    return f"- Sparse inputs are {ratio:.1f} times faster than masked ones (paper: 4.1 times)."


def _threads() -> int:
    import torch

    return torch.get_num_threads()
