"""The paper's table on long-range agreement: do rationales hold the antecedent, and no distractor?

filled templates ─► those that the model completes, with and without the distractor
                 ─► rationales by every method, with the adapter and without
                 ─► for 50 of them the smallest rationale, by exhaustive search
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from rationales.context import Context
from rationales.errors import RationalesError
from rationales.experiments import tables
from rationales.experiments.finding import KEY, Task, find_rationales, predictions
from rationales.experiments.language.smallest import find_smallest
from rationales.experiments.language.templates import PAIRS, TEMPLATES, Example, examples
from rationales.experiments.methods import Compared, check_limit, compared_methods
from rationales.experiments.run import Run, open_run, subject_of, without_adapter
from rationales.explainer import Explainer
from rationales.render import figures
from rationales.result import Explanation
from rationales.runs import Line, Lines, Progress

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
class Settings:
    """What makes a run the run it is, but for its model and data."""

    limit: int | None = None
    methods: tuple[str, ...] | None = None
    seed: int = 0
    ig_steps: int = 100
    max_size: int | None = None
    """Where searches end; what is not sufficient by then counts as the whole context."""
    exhaustive_size: int = 4
    """How large a subset the exhaustive search tries; 0: there is none."""
    exhaustive_examples: int = 50

    def __post_init__(self) -> None:
        check_limit(self.limit)
        if self.exhaustive_size < 0 or self.exhaustive_examples < 1:
            raise RationalesError("exhaustive search needs a size of 1 or more, and an example")


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
    settings = settings or Settings()
    methods = compared_methods(
        settings.methods, settings.seed, settings.ig_steps, settings.max_size
    )
    subject = subject_of(explainer, DATA, adapter)
    with open_run("agreement", out, settings, subject, overwrite=overwrite) as folder:
        opened = folder
        explainers = [explainer]
        if explainer.adapter is not None:
            explainers.append(without_adapter(explainer))
        filled = shuffled(examples(explainer.tokenizer), settings.seed)
        chosen = completed(explainer, filled, settings.limit, folder, progress)
        lines = opened.lines(KEY)
        tasks = [Task(judge, method) for judge in explainers for method in methods]
        find_rationales(tasks, {each.id: each.context for each in chosen}, lines, progress)
        sampled = _sampled(chosen, settings)
        optima = find_smallest(explainer, sampled, lines, settings.exhaustive_size, progress)
        found = opened.known | {
            "filled": len(filled),
            "examples": [_about(each) for each in chosen],
            "optima": optima,
        }
        results = found | {"tables": tabulate(found, lines, methods)}
        opened.finish(results, report(results))
        _draw(explainer, results, folder, progress)
    return results


def shuffled(filled: Sequence[Example], seed: int) -> list[Example]:
    """The examples in a random order, so that a limit takes some of every section."""
    return random.Random(seed).sample(list(filled), len(filled))


def completed(
    explainer: Explainer,
    filled: Sequence[Example],
    limit: int | None,
    folder: Run,
    progress: Progress,
) -> list[Example]:
    """The first examples, up to the limit, whose last word the model predicts both times."""
    lines = Lines(folder.parts / "examples.jsonl", ("example",))
    kept: list[Example] = []
    for number, each in enumerate(filled):
        if limit is not None and len(kept) == limit:
            break
        if (each.id,) not in lines:
            progress("predicting last words", number, len(filled), f"{len(kept)} predicted")
            said = predictions(explainer, {"with": each.context, "without": each.short_context})
            lines.add({"example": each.id, **said})
        line = lines[(each.id,)]
        if line["with"] and line["without"]:
            kept.append(each)
    if not kept:
        raise RationalesError(
            f"the model completes none of the {len(filled)} templates with and without their "
            "distractor: take a larger model"
        )
    return kept


def _sampled(chosen: Sequence[Example], settings: Settings) -> dict[str, Context]:
    """The examples whose smallest rationale is looked for."""
    if settings.exhaustive_size == 0:
        return {}
    size = min(settings.exhaustive_examples, len(chosen))
    found = random.Random(settings.seed).sample(list(chosen), size)
    return {each.id: each.context for each in found}


def _about(example: Example) -> dict[str, Any]:
    """What a table needs to know of an example; its text stays where the data are."""
    return {
        "example": example.id,
        "size": len(example.context.everything),
        "antecedent": example.antecedent,
        "distractor": sorted(example.distractor),
    }


def measure(line: Line, about: Mapping[str, Any], optimum: Line | None) -> dict[str, float]:
    """One rationale in numbers; one that is not sufficient counts as the whole context."""
    enough = line["sufficient"]
    size = len(line["indices"]) if enough else about["size"]
    values = {
        "length": float(size),
        "ante": float(not enough or about["antecedent"] in line["indices"]),
        "no_d": float(enough and not {*about["distractor"]} & {*line["indices"]}),
        "sufficient": float(enough),
    }
    if optimum is not None:
        values["ratio_bound"] = size / optimum["at_least"]
        if optimum["optimum"] is not None:
            values["ratio"] = size / optimum["optimum"]
    return values


def tabulate(
    found: Mapping[str, Any], lines: Lines, methods: Sequence[Compared]
) -> list[dict[str, Any]]:
    """The tables: with the adapter, if there is one, and without it."""
    adapter, made = found["settings"]["adapter"], []
    for adapted in (True, False) if adapter is not None else (False,):
        is_main = adapted == (adapter is not None)
        optima = found["optima"] if is_main else {}
        measured: dict[str, list[dict[str, float]]] = {}
        # In the order of the examples, whatever that of the lines: intervals depend on it.
        for about, method in product(found["examples"], methods):
            name = about["example"]
            if (key := (name, adapted, method.name, None)) in lines:
                values = measure(lines[key], about, optima.get(name))
                measured.setdefault(method.name, []).append(values)
        made.append(
            tables.table(
                "With the compatibility adapter" if adapted else "Without an adapter",
                [c for c in COLUMNS if optima or not c.key.startswith("ratio")],
                measured,
                methods,
                PAPER if adapted else PAPER_BARE,
                found["settings"]["seed"],
            )
        )
    return made


def report(results: Mapping[str, Any]) -> str:
    """The tables in Markdown, with what they mean."""
    settings, optima = results["settings"], results["optima"].values()
    converged = sum(line["optimum"] is not None for line in optima)
    body = "\n\n".join(tables.markdown(table) for table in results["tables"])
    ratio = (
        f"""- Ratio: to the size of the smallest rationale, known for {converged} of {len(optima)}
  sampled examples (exhaustive search to size {settings["exhaustive_size"]}, and not beyond the
  shortest that any method found). For the others one more than the size that was searched is a
  bound below it: so the ratio over all sampled is at most what is shown."""
        if optima
        else "- Ratio: left out, as no exhaustive search was asked for."
    )
    return f"""# Long-range agreement

`rationales experiment agreement --seed {settings["seed"]} --out DIR` · {settings["model"]}

{body}

- {results["filled"]} templates are filled with pairs of single tokens; these are the
  {len(results["examples"])} whose last word the model itself predicts, with the distractor and
  without it{f" (limit {settings['limit']})" if settings["limit"] else ""}. All targets are
  predicted, so a table on predicted targets only is this one.
- Length: tokens of the rationale, the token before the target included{
        f" (no search goes beyond {size})" if (size := settings["max_size"]) else ""
    }; a rationale that is not
  sufficient counts as the whole context. Ante: it holds the antecedent. No D: it holds no token of
  the distractor. Means over examples, with 95 % bootstrap intervals; the best in bold.
{ratio}
- Of signed and absolute importances the one with the shorter rationales is shown; both are in
  `results.json`. Paper: GPT-2 Large, with word dropout and without.
"""


def _draw(explainer: Explainer, results: dict[str, Any], folder: Run, progress: Progress) -> None:
    """The figures: bars for each table, and the matrix of the paper's first figure."""
    progress("drawing", 0, None, "")
    for table, name in zip(results["tables"], ("agreement", "agreement-bare"), strict=False):
        folder.draw(name, figures.bars(table, ("length", "ratio", "ante", "no_d")))
    data = folder.part("matrix", lambda: explainer.explain(PROMPT, generate=12).to_dict())
    folder.draw("matrix", figures.matrix(Explanation.from_dict(data)))
