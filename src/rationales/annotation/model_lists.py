"""The model's lists for the predictor's game: whole words in the order of a method.

All lists of a passage have the same length as a selector's, and begin with the word before the
target, so that a predictor cannot tell them apart by that:

- *greedy*: the word that helps the target most, again and again, sufficient or not;
- *minimal*: the minimal rationale first, if greedy search finds a sufficient one, then as greedy;
- *baseline*: in the order of a baseline;
- *random*: a control.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rationales.experiments.language.annotations import Row, Worded, in_words
from rationales.options import Options
from rationales.runs import Lines, OnProgress, Pace

if TYPE_CHECKING:
    from rationales.explainer import Explainer

SOURCES = ("greedy", "minimal", "baseline", "random")
BASELINE = "all-attention"
AT_ONCE = 4


def make_lists(
    explainer: Explainer,
    rows: Sequence[Row],
    lines: Lines,
    size: int,
    baseline: str,
    seed: int,
    progress: OnProgress,
) -> None:
    """Write the lists that have no line yet."""
    todo = [row for row in rows if any((str(row.id), each) not in lines for each in SOURCES)]
    pace = Pace(Counter("" for _ in todo), len(rows))
    for start in range(0, len(todo), AT_ONCE):
        progress("the model's words", pace.done, pace.total, pace.note)
        pace.begin()
        group = [in_words(explainer.tokenizer, row) for row in todo[start : start + AT_ONCE]]
        lists = {
            "greedy": _lists(explainer, group, Options(criterion="none", max_size=size)),
            "minimal": _minimal(explainer, group, size),
            "baseline": _lists(
                explainer, group, Options(method=baseline, criterion="none", max_size=size)
            ),
            "random": _lists(
                explainer,
                group,
                Options(method="random", seed=seed, criterion="none", max_size=size),
            ),
        }
        for each in group:
            for source, made in lists.items():
                if (each.id, source) not in lines:
                    line = {"passage": each.id, "source": source, "places": made[each.id]}
                    lines.add(line)
            pace.finish("")


def _lists(explainer: Explainer, group: Sequence[Worded], options: Options) -> dict[str, list[int]]:
    """The words of each passage in the order in which a search adds them."""
    found = explainer.rationalize(((each, each.context) for each in group), options)
    return {each.id: [each.place(unit) for unit in made.units or ()] for each, made in found}


def _minimal(explainer: Explainer, group: Sequence[Worded], size: int) -> dict[str, list[int]]:
    """The words of each passage's minimal rationale, then those that help most beside them."""
    contexts = [(each, each.context) for each in group]
    options = Options(minimal=True, max_size=size)
    made: dict[str, list[int]] = {}
    for each, found in [*explainer.rationalize(contexts, options)]:
        kept = [each.place(unit) for unit in found.units or ()] if found.sufficient else []
        kept = kept or [len(each.words) - 1]
        required = {*each.context.required, *(i for place in kept for i in each.words[place])}
        units = tuple(unit for unit in each.context.choices if not {*unit} & required)
        more = replace(each.context, required=tuple(sorted(required)), units=units)
        left = Options(criterion="none", max_size=size - len(kept) + 1)
        [(_, longer)] = explainer.rationalize([(each, more)], left)
        made[each.id] = kept + [each.place(unit) for unit in (longer.units or ())[1:]]
    return made
