"""The paper's table on annotated Lambada: how like people's rationales are the model's?

passages ─► rationales of the last word's first token, by every method
         ─► and the five tokens that each method adds first, enough or not
         ─► overlap with the words that people needed
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from rationales import metrics
from rationales.experiments import tables
from rationales.experiments.finding import KEY, Task, find_rationales, predictions
from rationales.experiments.language.annotations import PASSAGES, Annotated, passages
from rationales.experiments.methods import Compared, check_limit, compared_methods
from rationales.experiments.run import Run, open_run, subject_of
from rationales.explainer import Explainer
from rationales.render import figures
from rationales.runs import Line, Lines, Progress
from rationales.text import token_texts

DATA = (PASSAGES,)
ADDED = 5
"""The paper's remark: after five tokens, a baseline may be closer to people than greedy is."""

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

POPULATIONS: dict[str, tuple[str, Callable[[Mapping[str, Any]], bool]]] = {
    "all": ("All passages", lambda about: True),
    "predicted": ("Passages that the model predicts", lambda about: bool(about["predicted"])),
    "single": ("Last words of a single token", lambda about: bool(about["single_token"])),
    "single-predicted": (
        "Last words of a single token that the model predicts",
        lambda about: bool(about["single_token"] and about["predicted"]),
    ),
}


@dataclass(frozen=True)
class Settings:
    """What makes a run the run it is, but for its model and data."""

    limit: int | None = None
    methods: tuple[str, ...] | None = None
    seed: int = 0
    ig_steps: int = 100
    max_size: int | None = None
    """Where searches end; what is not sufficient by then counts as the whole context."""

    def __post_init__(self) -> None:
        check_limit(self.limit)


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
    with open_run("lambada", out, settings, subject, overwrite=overwrite) as folder:
        opened = folder
        everything = passages(explainer.tokenizer)
        order = random.Random(settings.seed).sample(everything, len(everything))
        chosen = order[: settings.limit]
        abouts = _abouts(explainer, chosen, folder, progress)
        lines = opened.lines(KEY)
        # A method that starts from another's rationales has no order of its own.
        tasks = [Task(explainer, method) for method in methods]
        tasks += [Task(explainer, m, added=ADDED) for m in methods if m.after is None]
        find_rationales(tasks, {each.id: each.context for each in chosen}, lines, progress)
        found = opened.known | {"examples": abouts}
        results = found | tabulate(found, lines, methods)
        opened.finish(results, report(results))
        progress("drawing", 0, None, "")
        folder.draw("lambada", figures.bars(results["tables"][0], ("length", "iou", "f1")))
        folder.draw("lambada-first-five", figures.bars(results["first"][0], ("iou", "f1")))
        if shown := _highlighted(explainer, chosen, abouts, lines):
            folder.draw("passages", figures.passages(shown))
    return results


def _abouts(
    explainer: Explainer,
    chosen: Sequence[Annotated],
    folder: Run,
    progress: Progress,
) -> list[dict[str, Any]]:
    """What the tables need to know of each passage; its text stays where the data are."""
    known = Lines(folder.parts / "examples.jsonl", ("example",))
    for number, each in enumerate(chosen):
        if (each.id,) in known:
            continue
        progress("predicting last words", number, len(chosen), "")
        context = each.context
        known.add(
            {
                "example": each.id,
                "items": list(context.everything),
                "human": sorted(each.human),
                "before": sorted(each.before),
                "single_token": each.single_token,
                "predicted": predictions(explainer, {each.id: context})[each.id],
            }
        )
    return [known[(each.id,)] for each in chosen]


def measure(line: Line, about: Mapping[str, Any]) -> dict[str, float]:
    """One rationale in numbers; one that is not sufficient counts as the whole context.

    The tokens that were added first are compared as they are, enough or not.
    """
    is_first = line["added"] is not None
    kept = set(line["indices"] if line["sufficient"] or is_first else about["items"])
    human, before = set(about["human"]), set(about["before"])
    values = {
        "length": float(len(kept)),
        "iou": metrics.iou(kept, human),
        "f1": metrics.f1(kept, human),
        "iou_without": metrics.iou(kept - before, human - before),
        "f1_without": metrics.f1(kept - before, human - before),
        "kappa": metrics.set_kappa(kept, human, about["items"]),
    }
    return values if is_first else values | {"sufficient": float(line["sufficient"])}


def tabulate(
    found: Mapping[str, Any], lines: Lines, methods: Sequence[Compared]
) -> dict[str, list[dict[str, Any]]]:
    """The tables by population: of whole rationales, and of the tokens that were added first."""
    adapted, seed = found["settings"]["adapter"] is not None, found["settings"]["seed"]
    made: dict[str, list[dict[str, Any]]] = {"tables": [], "first": []}
    for title, belongs in POPULATIONS.values():
        measured: dict[int | None, dict[str, list[dict[str, float]]]] = {None: {}, ADDED: {}}
        # In the order of the examples, whatever that of the lines: intervals depend on it.
        for about, method, added in product(found["examples"], methods, measured):
            key = (about["example"], adapted, method.name, added)
            if belongs(about) and key in lines:
                of_method = measured[added].setdefault(method.name, [])
                of_method.append(measure(lines[key], about))
        whole = tables.table(title, COLUMNS, measured[None], methods, PAPER, seed)
        with_order = [method for method in methods if method.after is None]
        columns = [c for c in COLUMNS if c.key not in ("length", "sufficient")]
        first = tables.table(title, columns, measured[ADDED], with_order, {}, seed)
        made["tables"].append(whole)
        made["first"].append(tables.like(first, whole))
    return made


def report(results: Mapping[str, Any]) -> str:
    """The tables in Markdown, with what they mean."""
    settings, abouts = results["settings"], results["examples"]
    predicted = sum(about["predicted"] for about in abouts)
    single = sum(about["single_token"] for about in abouts)
    mean_human = sum(len(about["human"]) for about in abouts) / len(abouts)
    alone = sum({*about["human"]} <= {*about["before"]} for about in abouts)
    body = "\n\n".join(tables.markdown(table) for table in results["tables"])
    first = "\n\n".join(tables.markdown(table) for table in results["first"])
    return f"""# Annotated Lambada

`rationales experiment lambada --seed {settings["seed"]} --out DIR` · {settings["model"]}, {
        f"with the adapter {settings['adapter']}" if settings["adapter"] else "without an adapter"
    }

## Rationales against people's

{body}

- {len(abouts)} passages{f" (limit {settings['limit']})" if settings["limit"] else ""}, of which the
  model predicts {predicted}; the last word is a single token in {single}. The target is the last
  word's first token. People's rationales have {mean_human:.1f} tokens on average (paper:
  {PAPER_HUMAN_LENGTH:.1f} words).
- Length: tokens of the rationale, the token before the target included{
        f" (no search goes beyond {size})" if (size := settings["max_size"]) else ""
    }; a rationale that is not
  sufficient counts as the whole context, in its length and in its overlap.
- IOU and F1 are ERASER's, of sets of tokens, for each passage; means over passages with 95 %
  bootstrap intervals, the best in bold. A token is people's if it shares a character, not a space,
  with a span of theirs. The word before the target is part of every annotation and its last token
  of every rationale: left out of both sets, it says nothing ({alone} annotations are then empty).
- κ: Cohen's, of the rationale and the annotation over the tokens of the context. People's own
  agreement (paper: {PAPER_KAPPA:.2f}) cannot be computed: the file holds one annotation a passage.
- Of signed and absolute importances the one with the shorter rationales is shown; both are in
  `results.json`. Paper: GPT-2 Large with word dropout, all 107 passages.

## The first five tokens

{first}

- The token before the target and the {ADDED} tokens that a method adds first; a search that would
  have ended earlier is made to go on. The paper says that all attention layers are then better than
  greedy, without figures.
"""


def _highlighted(
    explainer: Explainer,
    chosen: Sequence[Annotated],
    abouts: Sequence[Mapping[str, Any]],
    lines: Lines,
) -> list[figures.Highlighted]:
    """The first few passages with their greedy rationales; those that are predicted go first."""
    order = sorted(range(len(chosen)), key=lambda place: not abouts[place]["predicted"])
    found: list[figures.Highlighted] = []
    for place in order:
        each, key = chosen[place], (chosen[place].id, explainer.adapter is not None, "greedy", None)
        if key not in lines or len(found) == 4:
            continue
        line = lines[key]
        said = "sufficient" if line["sufficient"] else "not sufficient"
        found.append(
            figures.Highlighted(
                f"passage {each.id}, {len(line['indices'])} tokens, {said}",
                token_texts(explainer.tokenizer, each.ids),
                line["indices"],
                each.human,
                len(each.ids) - 1,
            )
        )
    return found
