"""The model as the predictor of annotated Lambada: how many words until it says the last one?

    passage ─► words in an order ─► shown one by one ─► the first number of words from which the
                                                        model says the last word

The order is the annotator's, the same reversed but for its first word, random, or that of greedy
search over whole words. The first word is always the one before the target. Released lists end with
the annotator's first correct guess, so what the model would have said after more words of them is
not known: their counts are censored.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from rationales.checking import check_fields
from rationales.data import data_file
from rationales.experiments import tables
from rationales.experiments.language.annotations import PASSAGES, Worded, in_words, read_rows
from rationales.experiments.methods import Compared
from rationales.experiments.run import Run, language_experiment
from rationales.metrics import estimate
from rationales.options import Options
from rationales.render import figures
from rationales.result import Rationale
from rationales.runs import Line, Lines, OnProgress, Pace
from rationales.scoring.protocol import Query, fresh
from rationales.scoring.span import merged, single_tokens
from rationales.search.criterion import is_first_choice

if TYPE_CHECKING:
    from rationales.explainer import Explainer

DATA = (PASSAGES,)
KEY = ("example", "order")
AT_ONCE = 4
"""Passages that are searched side by side; a run that is killed loses as many."""
GREEDY = "greedy"
LISTED = {
    "person": "annotator's order",
    "reversed": "annotator's order, reversed",
    "random": "random words, as many",
}
"""The orders that are as long as the annotator's list."""
ROWS = {
    **LISTED,
    "greedy-as-many": "greedy's order, as many",
    "greedy": "greedy's order, up to {words} words",
}
COLUMNS = (
    tables.Column("ever", "ever predicted"),
    tables.Column("count", "words until predicted, if it is", digits=1),
    tables.Column("at_least", "words, at least", digits=1),
    tables.Column("sooner", "sooner than by a person"),
    tables.Column("logprob", "log p, mean over the list"),
)
POPULATIONS = {"All passages": False, "Passages that the model predicts from all words": True}


@dataclass(frozen=True)
class Settings:
    """The settings of a run."""

    limit: Annotated[int, Ge(1)] | None = None
    """Only N passages, drawn at random."""
    words: Annotated[int, Ge(1)] = 15
    """Greedy search ends with N words."""
    seed: Annotated[int, Ge(0)] = 0
    """Seed of everything that is random."""

    def __post_init__(self) -> None:
        check_fields(self)


@language_experiment("reveal", DATA)
def run(run: Run, explainer: Explainer, settings: Settings, progress: OnProgress) -> dict[str, Any]:
    """The results of the experiment, which are then in the folder with their tables and figures."""
    rows = list(read_rows(data_file(PASSAGES)))
    chosen = random.Random(settings.seed).sample(rows, len(rows))[: settings.limit]
    shown = [in_words(explainer.tokenizer, row) for row in chosen]
    lines = run.lines(KEY)
    reveal(explainer, shown, lines, settings, progress)
    found = run.known | {"examples": [each.id for each in shown]}
    results = found | tabulate(found, lines)
    run.finish(results, report(results))
    progress("drawing", 0, None, "")
    run.draw("reveal", figures.shares(results["curves"], "words shown", "share of passages"))
    return results


def reveal(
    explainer: Explainer,
    shown: Sequence[Worded],
    lines: Lines,
    settings: Settings,
    progress: OnProgress,
) -> None:
    """Show each passage's words in each order, and write the lines that are missing."""
    orders = (*LISTED, GREEDY)
    missing = [name for each in shown for name in orders if (each.id, name) not in lines]
    pace = Pace(Counter(missing), len(orders) * len(shown))

    def add(each: Worded, order: str, found: Line) -> None:
        line = {"example": each.id, "order": order, "listed": len(each.chosen)} | found
        lines.add(line | {"seconds": pace.finish(order)})
        progress(f"{order} order", pace.done, pace.total, pace.note)

    for start in range(0, len(shown), AT_ONCE):
        group = shown[start : start + AT_ONCE]
        progress("showing words", pace.done, pace.total, pace.note)
        pace.begin()
        for each in group:
            missing = [order for order in LISTED if (each.id, order) not in lines]
            places = [ordered(each, order, settings.seed) for order in missing]
            for order, found in zip(missing, show(explainer, each, places), strict=True):
                add(each, order, found)
        contexts = [(each, each.context) for each in group if (each.id, GREEDY) not in lines]
        for each, rationale in explainer.rationalize(contexts, Options(max_size=settings.words)):
            add(each, GREEDY, _grown(each, rationale))


def show(explainer: Explainer, each: Worded, orders: Sequence[Sequence[int]]) -> list[Line]:
    """What the model says as words are shown, for each order of them.

    ``found`` is the number of words from which it first says the target; None if it does not.
    """
    if not orders:
        return []
    context = each.context

    def subset(places: Sequence[int]) -> Query:
        shown = {index for place in places for index in each.words[place]}
        return context, context.keep({*context.required, *shown})

    prefixes = [subset(places[:size]) for places in orders for size in range(1, len(places) + 1)]
    queries = [(context, context.keep(context.everything)), *prefixes]
    full, *scores = merged(queries, fresh(explainer.scorer).score(single_tokens(queries)))
    left, lines = iter(scores), []
    for places in orders:
        own = [next(left) for _ in places]
        said = [is_first_choice(score, context) for score in own]
        lines.append(
            {
                "places": list(places),
                "found": said.index(True) + 1 if any(said) else None,
                "predicted": is_first_choice(full, context),
                "logprobs": [round(score.target_logprob, 4) for score in own],
            }
        )
    return lines


def ordered(each: Worded, order: str, seed: int) -> tuple[int, ...]:
    """The places of words in this order, as many as the annotator's list has."""
    first, *others = each.chosen
    if order == "reversed":
        others.reverse()
    elif order == "random":
        every = [place for place in range(len(each.words)) if place != first]
        others = random.Random(f"{seed} {each.id}").sample(every, len(others))
    return first, *others


def _grown(each: Worded, rationale: Rationale) -> Line:
    """What greedy search has found, as ``show`` tells it."""
    places = [each.place(unit) for unit in rationale.units or ()]
    return {
        "places": places,
        "found": len(places) if rationale.sufficient else None,
        "predicted": rationale.predicted,
        "logprobs": [round(step.target_logprob, 4) for step in rationale.steps],
    }


def measure(line: Line, most: int) -> dict[str, float]:
    """The values of one passage in one order, of which at most this many words are shown."""
    count, listed = line["found"], line["listed"]
    if count is not None and count > most:
        count = None
    values = {
        "ever": float(count is not None),
        "at_least": float(count or min(most, len(line["places"])) + 1),
        "sooner": float(count is not None and count < listed),
    }
    if line["order"] in LISTED:
        values["logprob"] = fmean(line["logprobs"])
    return values if count is None else values | {"count": float(count)}


def tabulate(found: Mapping[str, Any], lines: Lines) -> dict[str, Any]:
    """The tables by population, and the share of passages that is predicted by number of words."""
    settings = found["settings"]
    words, seed = settings["words"], settings["seed"]
    orders = [Compared(n, label.format(words=words), Options()) for n, label in ROWS.items()]
    made = []
    for title, only in POPULATIONS.items():
        names = [n for n in found["examples"] if not only or lines[n, "person"]["predicted"]]
        measured = {
            order.name: [
                measure(line, words if order.name == "greedy" else line["listed"])
                for name in names
                for line in [lines[name, order.name.removesuffix("-as-many")]]
            ]
            for order in orders
        }
        made.append(tables.table(title, COLUMNS, measured, orders, {}, seed))

    def curve(counts: Sequence[int | None]) -> list[dict[str, float]]:
        return [
            asdict(estimate([float(c is not None and c <= size) for c in counts], seed))
            for size in range(1, words + 1)
        ]

    curves = {
        label.format(words=words): curve([lines[n, order]["found"] for n in found["examples"]])
        for order, label in ROWS.items()
        if order != "greedy-as-many"
    }
    human = curve([lines[name, "person"]["listed"] for name in found["examples"]])
    return {"tables": made, "curves": {"a person, in the annotator's order": human, **curves}}


def report(results: Mapping[str, Any]) -> str:
    """The tables in Markdown, with notes."""
    settings, examples = results["settings"], results["examples"]
    limit = f" (limit {settings['limit']})" if settings["limit"] else ""
    body = "\n\n".join(tables.markdown(table) for table in results["tables"])
    title = "The model guesses from an annotator's words"
    return f"""{tables.heading(title, results, tables.adapter_words(settings))}

{body}

- {len(examples)} passages{limit}. Whole words are shown one by one, each at its place, and the
  model predicts the last word, all of its tokens. The word before the last is always shown first.
  Punctuation is not shown, but for a mark right before the last word, from which a decoder
  predicts.
- **Censored**: a released list ends with a person's first correct guess. What the model would say
  after more of that annotator's words is not known. "Ever predicted" is a lower bound for the
  annotator's orders; "words until predicted" is about the predicted passages only; in "words, at
  least", a passage that is not predicted counts as one word more than was shown.
- Reversed: the same words, all but the first in reverse order; with all of them shown, the two
  orders are the same. Random: any words of the passage, as many, after the same first one. Greedy:
  the paper's search over whole words, which knows the target and asks this model; with as many
  words as the annotator's list has, and with up to {settings["words"]}.
- Sooner: from fewer words than the person needed who guessed in the annotator's order. Log p: of
  the last word, in nats, the mean over the numbers of words shown; greedy search ends early, and
  has none. Means over passages, with 95 % bootstrap intervals.
"""
