"""The paper's table on efficiency: the cost of a rationale, in seconds and in tokens computed.

templates that the model completes ─► one rationale at a time, by each way to search
WikiText contexts of 16 … 128 tokens ─► the same, to a fixed size: how the cost grows

Each search has a new scorer: nothing that another one computed is used.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from statistics import fmean, linear_regression
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from annotated_types import Ge

from rationales.context import Context, causal_context
from rationales.data import data_file
from rationales.errors import RationalesError
from rationales.experiments import methods, tables
from rationales.experiments.language.templates import PAIRS, TEMPLATES, completed
from rationales.experiments.methods import Compared
from rationales.experiments.run import Run, language_experiment
from rationales.explainer import Explainer
from rationales.options import Options
from rationales.render import figures
from rationales.runs import Line, Lines, OnProgress, Pace
from rationales.text import prefix_ids, token_ids

if TYPE_CHECKING:
    from rationales.scoring.adapted import AdaptedScorer
    from rationales.scoring.causal import CausalScorer

TEXT = "wikitext2/valid.raw"
DATA = (TEMPLATES, PAIRS, TEXT)
KEY = ("part", "example", "way")
COSTS = ("seconds", "tokens")
_TRIES = 1000

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
class Way(Compared):
    """A way to search: the options, and how the model sees a subset."""

    evaluation: Literal["masked", "sparse"] = "sparse"
    share_prefixes: bool = False


_EXHAUSTIVE = Options(method="exhaustive", max_evaluations=0)
WAYS = (
    Way("masked", "greedy, full inputs with masks", Options(), evaluation="masked"),
    Way("sparse", "greedy, sparse inputs", Options()),
    Way("shared", "greedy, sparse inputs, prefixes shared", Options(), share_prefixes=True),
    Way("fast", "greedy, fast", Options(fast=True), share_prefixes=True),
    Way("exhaustive", "exhaustive", _EXHAUSTIVE, share_prefixes=True),
)


@dataclass(frozen=True)
class Settings(methods.Choice):
    """The settings of a run."""

    known: ClassVar[Sequence[str]] = tuple(way.name for way in WAYS)

    limit: Annotated[int, Ge(1)] | None = 20
    """Only N of the templates, drawn at random."""
    methods: tuple[str, ...] | None = None
    """Only these ways to search, separated by commas: of masked,sparse,shared,fast,exhaustive."""
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

    @property
    def ways(self) -> list[Way]:
        """The ways to search that are compared."""
        wanted = [way for way in WAYS if self.methods is None or way.name in self.methods]
        return [way for way in wanted if self.exhaustive_size or way.name != "exhaustive"]


class Timed(NamedTuple):
    """One search to be timed; ``key`` finds its line."""

    key: tuple[str, str, str]
    way: Way
    context: Context
    options: Options


@language_experiment("efficiency", DATA)
def run(run: Run, explainer: Explainer, settings: Settings, progress: OnProgress) -> dict[str, Any]:
    """The results of the experiment, which are then in the folder with their tables and figures."""
    import torch

    chosen, _ = completed(explainer, run, settings.seed, settings.limit, progress)
    contexts = {each.id: each.context for each in chosen}
    lines = run.lines(KEY)
    _time_all(explainer, list(_searches(explainer, contexts, settings)), lines, progress)
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
            options = way.options
            if way.name == "exhaustive":
                if place >= settings.exhaustive_examples:
                    continue
                options = options.change(max_size=settings.exhaustive_size)
            yield Timed(("templates", name, way.name), way, context, options)
    for length in settings.lengths:
        for name, context in _contexts_of(explainer, length, settings):
            for way in settings.ways:
                size = settings.size - (way.name == "exhaustive")
                options = way.options.change(max_size=size, criterion="none")
                yield Timed(("growth", name, way.name), way, context, options)


def _contexts_of(
    explainer: Explainer, length: int, settings: Settings
) -> Iterator[tuple[str, Context]]:
    """Contexts of this many tokens with their names, from random places of a text."""
    text = data_file(TEXT).read_text(encoding="utf-8")
    prefix = prefix_ids(explainer.tokenizer)
    limit = getattr(explainer.scorer, "max_positions", None)
    if limit is not None and len(prefix) + length > limit:
        raise RationalesError(f"the model has positions for {limit} tokens, not for {length}")
    places, starts = random.Random(f"{settings.seed} {length}"), set[int]()
    for _ in range(_TRIES):
        start = places.randrange(max(1, len(text) - 12 * length))
        piece = text[start : start + 12 * length].partition(" ")[2]
        ids = token_ids(explainer.tokenizer, piece, specials=False)
        if len(ids) > length and start not in starts:
            starts.add(start)
            whole = (*prefix, *ids[: length + 1])
            pinned = frozenset(range(len(prefix)))
            yield f"{length}/{start}", causal_context(whole, len(whole) - 1, pinned)
        if len(starts) == settings.contexts:
            return
    raise RationalesError(
        f"{TEXT} is too short for {settings.contexts} contexts of {length} tokens"
    )


def _time_all(
    explainer: Explainer, searches: Sequence[Timed], lines: Lines, progress: OnProgress
) -> None:
    """Time the searches that have no line yet, one after the other."""
    missing = [each for each in searches if each.key not in lines]
    pace = Pace(Counter(f"{each.key[0]} {each.way.name}" for each in missing), len(searches))
    if missing:
        # The first passes of a process are slow: a short search that is not timed.
        short = Options(max_size=2, criterion="none")
        _cost(explainer, missing[0]._replace(way=WAYS[0], options=short))
    for each in missing:
        progress(each.way.label, pace.done, pace.total, pace.note)
        pace.begin()
        lines.add(dict(zip(KEY, each.key, strict=True)) | _cost(explainer, each))
        pace.finish(f"{each.key[0]} {each.way.name}")


def _cost(explainer: Explainer, search: Timed) -> Line:
    """The cost of one search, as a line."""
    scorer = _new_scorer(explainer, search)
    alone = Explainer(scorer, explainer.tokenizer)
    began = time.perf_counter()
    [(_, rationale)] = alone.rationalize([("", search.context)], search.options)
    return {
        "seconds": round(time.perf_counter() - began, 4),
        "tokens": scorer.tokens,
        "evaluations": rationale.evaluations,
        "context": len(search.context.everything),
        "size": len(rationale),
        "sufficient": rationale.sufficient,
    }


def _new_scorer(explainer: Explainer, search: Timed) -> CausalScorer | AdaptedScorer:
    """A scorer that has computed nothing yet, with the explainer's weights."""
    from rationales.scoring.adapted import AdaptedScorer
    from rationales.scoring.causal import CausalScorer

    def new(old: CausalScorer) -> CausalScorer:
        evaluation = search.way.evaluation
        if evaluation == "sparse":
            evaluation = old.evaluation(search.context)  # where sparse is not exact, it is not used
        return CausalScorer(
            old.model,
            batch_tokens=old.batch_tokens,
            evaluation=evaluation,
            share_prefixes=search.way.share_prefixes,
        )

    scorer = explainer.scorer
    if isinstance(scorer, AdaptedScorer):
        return AdaptedScorer(new(scorer.base), new(scorer.adapted))
    if isinstance(scorer, CausalScorer):
        return new(scorer)
    raise RationalesError("efficiency is measured on a model: a black box will not do")


def tabulate(lines: Lines, settings: Settings) -> dict[str, Any]:
    """The table of the templates, and the cost of each way as contexts grow."""
    measured: dict[str, list[Line]] = {}
    points: dict[str, dict[int, list[Line]]] = {}
    for line in sorted(lines, key=lambda line: str(line["example"])):
        if line["part"] == "templates":
            size = line["size"] if line["sufficient"] else line["context"]
            measured.setdefault(line["way"], []).append(line | {"length": size})
        else:
            points.setdefault(line["way"], {}).setdefault(line["context"], []).append(line)
    ways = settings.ways
    return {
        "tables": [tables.table("Templates", COLUMNS, measured, ways, PAPER, settings.seed)],
        "growth": [
            {"way": way.name, "label": way.label, **growth(points[way.name])}
            for way in ways
            if way.name in points
        ],
    }


def growth(by_length: Mapping[int, Sequence[Line]]) -> dict[str, Any]:
    """Mean costs by the length of the context, and the exponent with which they grow."""
    points = [
        {"length": length, **{cost: fmean(line[cost] for line in found) for cost in COSTS}}
        for length, found in sorted(by_length.items())
    ]
    results: dict[str, Any] = {"points": points}
    for cost in COSTS:
        logs = [[log(point[each]) for point in points] for each in ("length", cost)]
        results[f"{cost}_power"] = linear_regression(*logs).slope if len(points) > 1 else None
    return results


def report(results: Mapping[str, Any]) -> str:
    """The tables in Markdown, with notes."""
    settings, threads, [table] = results["settings"], results["threads"], results["tables"]
    more = f"{tables.adapter_words(settings)}, {threads} {'threads' if threads > 1 else 'thread'}"
    rows = [
        [
            growth["label"],
            *(f"{p['seconds']:.2f} s, {p['tokens']:,.0f}" for p in growth["points"]),
            *("–" if (x := growth[f"{k}_power"]) is None else f"{x:.2f}" for k in COSTS),
        ]
        for growth in results["growth"]
    ]
    lengths = [f"{length} tokens" for length in settings["lengths"]]
    columns = ["method", *lengths, *(f"power, {cost}" for cost in COSTS)]
    cells = {row["method"]: row["cells"] for row in table["rows"]}
    masked, sparse = (cells.get(way, {}).get("seconds") for way in ("masked", "sparse"))
    speedup = "- Masked and sparse inputs were not both timed."
    if masked and sparse:
        ratio = masked["mean"] / sparse["mean"]
        speedup = (
            f"- Sparse inputs are {ratio:.1f} times faster than masked ones (paper: 4.1 times)."
        )
    exhaustive = "- There was no exhaustive search."
    if found := cells.get("exhaustive", {}).get("sufficient"):
        size, number = settings["exhaustive_size"], found["examples"]
        exhaustive = f"""\
- Exhaustive search goes to size {size}, on {number} of the examples; it finds a
  rationale in {round(found["mean"] * number)}, and for the others its cost is a lower bound."""
    return f"""{tables.heading("Efficiency", results, more)} of a CPU

{tables.markdown(table)}

{speedup}
- One rationale at a time, each with a new scorer, one evaluation of the whole context included. The
  model predicts all these targets, so a table on predicted targets only is this one.
  Tokens computed: what went through the model, over all subsets. Paper: seconds of GPT-2 Large on a
  GPU. Length: a rationale that is not sufficient counts as the whole context.
{exhaustive}

### Growth with the length of the context

{tables.markdown_table(columns, rows)}

- {settings["contexts"]} contexts of each length from WikiText-2 valid: mean seconds and tokens of a
  search to size {settings["size"]} ({settings["size"] - 1} if exhaustive), sufficient or not, so
  that the context grows and the rationale does not. Power: the slope of log cost over log length.
"""
