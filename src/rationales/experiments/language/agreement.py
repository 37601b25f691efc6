"""The paper's table on long-range agreement: do rationales hold the antecedent and no distractor?

filled templates ─► those that the model completes, with and without the distractor
                 ─► rationales by every method, with the adapter and without
                 ─► for 50 of them the smallest rationale, by exhaustive search
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from rationales.context import Context
from rationales.experiments import methods, tables
from rationales.experiments.finding import KEY, Task, find_rationales
from rationales.experiments.language.templates import PAIRS, TEMPLATES, completed
from rationales.experiments.methods import Compared
from rationales.experiments.run import Run, language_experiment
from rationales.options import Options
from rationales.render import figures, viewer
from rationales.render.matrix import matrix
from rationales.result import Explanation
from rationales.runs import Line, Lines, OnProgress, Pace

if TYPE_CHECKING:
    from rationales.explainer import Explainer

DATA = (TEMPLATES, PAIRS)
PROMPT = "The Supreme Court on Tuesday"
"""The beginning of the sentence in the paper's first figure."""

PAPER: dict[str, dict[str, float | str]] = {
    "gradient-norm": {"length": 22.5, "ratio": 4.1, "ante": 1.0, "no_d": 0.06},
    "gradient-x-embedding": {"length": 38.0, "ratio": 7.4, "ante": 0.99, "no_d": 0.01},
    "integrated-gradients": {"length": 28.1, "ratio": 5.2, "ante": 0.99, "no_d": 0.00},
    "attention-rollout": {"length": 36.9, "ratio": 7.1, "ante": 1.0, "no_d": 0.12},
    "last-attention": {"length": 16.7, "ratio": 2.9, "ante": 0.99, "no_d": 0.13},
    "all-attention": {"length": 14.5, "ratio": 2.6, "ante": 1.0, "no_d": 0.02},
    "greedy": {"length": 7.1, "ratio": 1.2, "ante": 1.0, "no_d": 0.43},
}
"""GPT-2 Large, fine-tuned for compatibility: 175 examples, the ratio on 40."""
PAPER_BARE: dict[str, dict[str, float | str]] = {
    "gradient-norm": {"length": 24.8, "ante": 1.0, "no_d": 0.08},
    "gradient-x-embedding": {"length": 41.1, "ante": 0.99, "no_d": 0.00},
    "integrated-gradients": {"length": 34.9, "ante": 1.0, "no_d": 0.00},
    "attention-rollout": {"length": 38.4, "ante": 1.0, "no_d": 0.05},
    "last-attention": {"length": 20.1, "ante": 0.99, "no_d": 0.03},
    "all-attention": {"length": 19.5, "ante": 1.0, "no_d": 0.02},
    "greedy": {"length": 13.1, "ante": 1.0, "no_d": 0.30},
}
"""GPT-2 Large as it is."""

COLUMNS = (
    tables.Column("length", "length", "min", 1),
    tables.Column("ratio", "ratio", "min"),
    tables.Column("ratio_bound", "ratio, all sampled, ≤", "min"),
    tables.Column("ante", "ante", "max"),
    tables.Column("no_d", "no D", "max"),
    tables.Column("sufficient", "sufficient"),
)


@dataclass(frozen=True)
class Settings(methods.Settings):
    """The settings of a run."""

    exhaustive_size: Annotated[int, Ge(0)] = 4
    """Exhaustive search tries subsets of at most N tokens; 0: no exhaustive search."""
    exhaustive_examples: Annotated[int, Ge(1)] = 50
    """Exhaustive search for N of the examples."""


@language_experiment("agreement", DATA)
def run(run: Run, explainer: Explainer, settings: Settings, progress: OnProgress) -> dict[str, Any]:
    """The results of the experiment, which are then in the folder with their tables and figures."""
    compared = settings.compared
    chosen, filled = completed(explainer, run, settings.seed, settings.limit, progress)
    contexts = {each.id: each.context for each in chosen}
    models = [explainer] + [explainer.without_adapter()] * (explainer.adapter is not None)
    lines = run.lines(KEY)
    tasks = [Task(model, method) for model in models for method in compared]
    find_rationales(tasks, contexts, lines, progress)
    size = settings.exhaustive_size
    sample = min(settings.exhaustive_examples, len(chosen)) if size else 0
    few = dict(random.Random(settings.seed).sample(list(contexts.items()), sample))
    found = run.known | {
        "filled": filled,
        "examples": [
            {
                "example": each.id,
                "size": len(each.context.everything),
                "antecedent": each.antecedent,
                "distractor": sorted(each.distractor),
            }
            for each in chosen
        ],
        "optima": find_smallest(explainer, few, run, lines, size, progress),
    }
    results = found | {"tables": tabulate(found, lines, compared)}
    run.finish(results, report(results))
    progress("drawing", 0, None, "")
    for table, name in zip(results["tables"], ("agreement", "agreement-bare"), strict=False):
        run.draw(name, figures.bars(table, ("length", "ratio", "ante", "no_d")))
    data = run.part("matrix", lambda: explainer.explain(PROMPT, generate=12).to_dict())
    explanation = Explanation.from_dict(data)
    run.draw("matrix", matrix(explanation))
    run.write("matrix.html", viewer.page([explanation]))
    return results


def find_smallest(
    explainer: Explainer,
    contexts: Mapping[str, Context],
    run: Run,
    lines: Lines,
    largest: int,
    progress: OnProgress,
) -> dict[str, Line]:
    """For each example the size of its smallest rationale (``optimum``) and a lower bound of it.

    The bound is ``at_least``; the optimum is None if subsets of up to ``largest`` tokens do not
    decide it. A rationale of size n that a method found (``lines``) leaves only sizes below n to be
    searched. If these hold none, n is the smallest, even if the search could not go on to it.
    """
    known = run.lines(("example",), "exhaustive")
    shortest: dict[str, int] = {}
    for line in lines:
        if line["adapter"] == (explainer.adapter is not None) and line["sufficient"]:
            size = len(line["indices"])
            shortest[line["example"]] = min(size, shortest.get(line["example"], size))
    pace = Pace(Counter("" for name in contexts if (name,) not in known), len(contexts))
    for name, context in contexts.items():
        if (name,) in known:
            continue
        progress("exhaustive search", pace.done, pace.total, pace.note)
        pace.begin()
        best = shortest.get(name, len(context.everything))
        size, found, evaluations = min(largest, best - 1), None, 0
        if size >= max(1, len(context.required)):
            options = Options(method="exhaustive", max_size=size, max_evaluations=0)
            [(_, rationale)] = explainer.rationalize([("", context)], options)
            found = len(rationale) if rationale.sufficient else None
            evaluations = rationale.evaluations
        line = {"example": name, "best_known": best, "searched": size, "found": found}
        known.add(line | {"evaluations": evaluations, "seconds": pace.finish("")})
    lines_of = {name: known[(name,)] for name in contexts}
    return {
        name: {key: line[key] for key in line if key != "seconds"} | smallest(line)
        for name, line in lines_of.items()
    }


def smallest(line: Line) -> Line:
    """The smallest size, if it is known, and a size that no rationale is below."""
    if line["found"] is not None:
        return {"optimum": line["found"], "at_least": line["found"]}
    is_known = line["best_known"] <= line["searched"] + 1
    return {"optimum": line["best_known"] if is_known else None, "at_least": line["searched"] + 1}


def measure(line: Line, example: Line, optima: Mapping[str, Line]) -> dict[str, float]:
    """The values of one rationale; one that is not sufficient counts as the whole context."""
    sufficient = line["sufficient"]
    size = len(line["indices"]) if sufficient else example["size"]
    values = {
        "length": float(size),
        "ante": float(not sufficient or example["antecedent"] in line["indices"]),
        "no_d": float(sufficient and not {*example["distractor"]} & {*line["indices"]}),
        "sufficient": float(sufficient),
    }
    if (optimum := optima.get(example["example"])) is not None:
        values["ratio_bound"] = size / optimum["at_least"]
        if optimum["optimum"] is not None:
            values["ratio"] = size / optimum["optimum"]
    return values


def tabulate(
    found: Mapping[str, Any], lines: Lines, compared: Sequence[Compared]
) -> list[dict[str, Any]]:
    """The tables: with the adapter, if there is one, and without it."""
    settings, made = found["settings"], []
    has_adapter = settings["adapter"] is not None
    for adapter in (True, False) if has_adapter else (False,):
        optima = found["optima"] if adapter == has_adapter else {}
        of_table = partial(measure, optima=optima)
        made.append(
            tables.table(
                "With the compatibility adapter" if adapter else "Without an adapter",
                [c for c in COLUMNS if optima or not c.key.startswith("ratio")],
                tables.measure_lines(lines, found["examples"], compared, of_table, adapter=adapter),
                compared,
                PAPER if adapter else PAPER_BARE,
                settings["seed"],
            )
        )
    return made


def report(results: Mapping[str, Any]) -> str:
    """The tables in Markdown, with notes."""
    settings, optima = results["settings"], results["optima"].values()
    converged = sum(line["optimum"] is not None for line in optima)
    body = "\n\n".join(tables.markdown(table) for table in results["tables"])
    ratio = (
        f"""- Ratio: to the size of the smallest rationale, known for {converged} of {len(optima)}
  sampled examples (exhaustive search to size {settings["exhaustive_size"]}, and not beyond the
  shortest that any method found). For the others, one more than the size that was searched is a
  lower bound of it: the ratio over all sampled examples is at most the value shown."""
        if optima
        else "- Ratio: left out, as there was no exhaustive search."
    )
    return f"""{tables.heading("Long-range agreement", results)}

{body}

- {results["filled"]} templates are filled with pairs of single tokens; these are the
  {len(results["examples"])} whose last word the model itself predicts, with the distractor and
  without it{f" (limit {settings['limit']})" if settings["limit"] else ""}. All targets are
  predicted, so a table on predicted targets only is this one.
{tables.length_note(settings)}. Ante: it holds the antecedent. No D: it holds no token of
  the distractor. Means over examples, with 95 % bootstrap intervals; the best in bold.
{ratio}
{tables.FORMS_NOTE} Paper: GPT-2 Large, with word dropout and without.
"""
