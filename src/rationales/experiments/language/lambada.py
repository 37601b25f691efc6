"""The paper's table on annotated Lambada: how close are rationales to human annotations?

passages ─► rationales of the last word's first token, by every method
         ─► and the five tokens that each method adds first, sufficient or not
         ─► overlap with the words that the annotators chose
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rationales import metrics
from rationales.experiments import tables
from rationales.experiments.finding import KEY, Task, example_lines, find_rationales, predictions
from rationales.experiments.language.annotations import PASSAGES, Annotated, passages
from rationales.experiments.methods import Compared, Settings
from rationales.experiments.run import Run, language_experiment
from rationales.render import figures
from rationales.runs import Line, Lines, OnProgress
from rationales.text import token_texts

if TYPE_CHECKING:
    from rationales.explainer import Explainer

DATA = (PASSAGES,)
ADDED = 5
"""After five tokens, the paper says, a baseline may be closer to the annotation than greedy is."""

PAPER: dict[str, dict[str, float | str]] = {
    "gradient-norm": {"length": 60.2, "iou": 0.14, "f1": 0.22},
    "gradient-x-embedding": {"length": 68.3, "iou": 0.12, "f1": 0.21},
    "integrated-gradients": {"length": 62.8, "iou": 0.12, "f1": 0.21},
    "attention-rollout": {"length": 73.9, "iou": 0.11, "f1": 0.19},
    "last-attention": {"length": 54.6, "iou": 0.15, "f1": 0.25},
    "all-attention": {"length": 48.7, "iou": 0.20, "f1": 0.28},
    "greedy": {"length": 17.9, "iou": 0.25, "f1": 0.35},
}
"""GPT-2 Large, fine-tuned for compatibility, on all 107 passages."""
PAPER_KAPPA, PAPER_HUMAN_LENGTH = 0.63, 6.0

COLUMNS = (
    tables.Column("length", "length", "min", 1),
    tables.Column("iou", "IOU", "max"),
    tables.Column("f1", "F1", "max"),
    tables.Column("iou_without", "IOU, word before left out", "max"),
    tables.Column("f1_without", "F1, word before left out", "max"),
    tables.Column("kappa", "κ", "max"),
    tables.Column("sufficient", "sufficient"),
)

POPULATIONS = {
    "All passages": (),
    "Passages that the model predicts": ("predicted",),
    "Last words of a single token": ("single_token",),
    "Last words of a single token that the model predicts": ("single_token", "predicted"),
}
"""The title of each table, and what holds for its passages."""


@language_experiment("lambada", DATA)
def run(
    run: Run,
    explainer: Explainer,
    settings: Settings,
    progress: OnProgress,
    annotations: Path | None = None,
) -> dict[str, Any]:
    """The results of the experiment, which are then in the folder with their tables and figures.

    ``annotations`` is a file of annotated passages; the released one if left out.
    """
    compared = settings.compared
    everything = passages(explainer.tokenizer, annotations)
    chosen = random.Random(settings.seed).sample(everything, len(everything))[: settings.limit]

    def about(each: Annotated) -> Line:
        """The line of a passage: what the tables need of it, but not its text."""
        return {
            "items": list(each.context.everything),
            "human": sorted(each.human),
            "before": sorted(each.before),
            "single_token": each.single_token,
            "predicted": predictions(explainer, {each.id: each.context})[each.id],
        }

    examples = list(example_lines(run, chosen, about, "predicting last words", progress))
    lines = run.lines(KEY)
    tasks = [Task(explainer, method) for method in compared]
    # A method that starts from another's rationales has no order of its own.
    tasks += [Task(explainer, m, added=ADDED) for m in compared if m.after is None]
    find_rationales(tasks, {each.id: each.context for each in chosen}, lines, progress)
    found = run.known | {"examples": examples}
    results = found | tabulate(found, lines, compared)
    run.finish(results, report(results))
    progress("drawing", 0, None, "")
    run.draw("lambada", figures.bars(results["tables"][0], ("length", "iou", "f1")))
    run.draw("lambada-first-five", figures.bars(results["first"][0], ("iou", "f1")))
    if any(method.name == "greedy" for method in compared):
        said = {line["example"]: line["predicted"] for line in examples}
        predicted_first = sorted(chosen, key=lambda each: not said[each.id])
        shown = [_highlighted(explainer, each, lines) for each in predicted_first[:4]]
        run.draw("passages", figures.passages(shown))
    return results


def measure(line: Line, example: Line) -> dict[str, float]:
    """The values of one rationale, by column.

    One that is not sufficient counts as the whole context. The tokens that were added first are
    compared as they are.
    """
    is_first = line["added"] is not None
    kept = set(line["indices"] if line["sufficient"] or is_first else example["items"])
    human, before = set(example["human"]), set(example["before"])
    return {
        "length": float(len(kept)),
        "iou": metrics.iou(kept, human),
        "f1": metrics.f1(kept, human),
        "iou_without": metrics.iou(kept - before, human - before),
        "f1_without": metrics.f1(kept - before, human - before),
        "kappa": metrics.set_kappa(kept, human, example["items"]),
        "sufficient": float(line["sufficient"]),
    }


def tabulate(
    found: Mapping[str, Any], lines: Lines, compared: Sequence[Compared]
) -> dict[str, list[dict[str, Any]]]:
    """The tables by population: of whole rationales, and of the tokens that were added first."""
    adapter, seed = found["settings"]["adapter"] is not None, found["settings"]["seed"]
    ordered = [method for method in compared if method.after is None]
    columns = [c for c in COLUMNS if c.key not in ("length", "sufficient")]
    made: dict[str, list[dict[str, Any]]] = {"tables": [], "first": []}
    for title, needed in POPULATIONS.items():
        examples = [each for each in found["examples"] if all(each[what] for what in needed)]
        values, first = (
            tables.measure_lines(lines, examples, compared, measure, adapter=adapter, added=added)
            for added in (None, ADDED)
        )
        whole = tables.table(title, COLUMNS, values, compared, PAPER, seed)
        started = tables.table(title, columns, first, ordered, {}, seed)
        made["tables"].append(whole)
        made["first"].append(tables.like(started, whole))
    return made


def report(results: Mapping[str, Any]) -> str:
    """The tables in Markdown, with notes."""
    settings, examples = results["settings"], results["examples"]
    predicted = sum(each["predicted"] for each in examples)
    single = sum(each["single_token"] for each in examples)
    mean_human = sum(len(each["human"]) for each in examples) / len(examples)
    alone = sum({*each["human"]} <= {*each["before"]} for each in examples)
    limit = f" (limit {settings['limit']})" if settings["limit"] else ""
    body = "\n\n".join(tables.markdown(table) for table in results["tables"])
    first = "\n\n".join(tables.markdown(table) for table in results["first"])
    return f"""{tables.heading("Annotated Lambada", results, tables.adapter_words(settings))}

## Rationales against human annotations

{body}

- {len(examples)} passages{limit}, of which the
  model predicts {predicted}; the last word is a single token in {single}. The target is the last
  word's first token. Human annotations have {mean_human:.1f} tokens on average (paper:
  {PAPER_HUMAN_LENGTH:.1f} words).
{tables.length_note(settings)}, in its length and in its overlap.
- IOU and F1 are ERASER's, of sets of tokens, for each passage; means over passages with 95 %
  bootstrap intervals, the best in bold. A token is annotated if it shares a character, not a
  space, with an annotated span. The word before the target is part of every annotation, and its
  last token of every rationale: in two columns it is left out of both ({alone} annotations are then
  empty).
- κ: Cohen's, of the rationale and the annotation over the tokens of the context. The
  agreement of two annotators (paper: {PAPER_KAPPA:.2f}) cannot be computed: the file holds one
  annotation a passage.
{tables.FORMS_NOTE} Paper: GPT-2 Large with word dropout, all 107 passages.

## The first five tokens

{first}

- The token before the target and the {ADDED} tokens that a method adds first; a search that would
  have ended earlier is made to go on. The paper says that all attention layers are then better than
  greedy, without figures.
"""


def _highlighted(explainer: Explainer, each: Annotated, lines: Lines) -> figures.Highlighted:
    """A passage with its greedy rationale."""
    line = lines[each.id, explainer.adapter is not None, "greedy", None]
    said = "sufficient" if line["sufficient"] else "not sufficient"
    title = f"passage {each.id}, {len(line['indices'])} tokens, {said}"
    pieces, target = token_texts(explainer.tokenizer, each.ids), len(each.ids) - 1
    return figures.Highlighted(title, pieces, line["indices"], each.human, target)
