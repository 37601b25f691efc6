"""The model's lists for the predictor's game: whole words in the order of a method.

All lists of a passage have the same length as a selector's, and begin with the word before the
target, so that a predictor cannot tell them apart by that:

- *greedy*: the word that helps the target most, again and again, sufficient or not;
- *minimal*: the minimal rationale first, if greedy search finds a sufficient one, then as greedy;
- *baseline*: in the order of a baseline;
- *random*: a control.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rationales.annotation.study import MADE_BY, makers
from rationales.context import Context
from rationales.errors import RationalesError
from rationales.experiments.language.annotations import Row, Worded, in_words
from rationales.options import Options
from rationales.result import Rationale
from rationales.runs import Lines, OnProgress, Pace, RunFolder

if TYPE_CHECKING:
    from rationales.explainer import Explainer

SOURCES = ("greedy", "minimal", "baseline", "random")
BASELINE = "all-attention"


def make_lists(
    explainer: Explainer,
    rows: Sequence[Row],
    lines: Lines,
    size: int,
    baseline: str,
    seed: int,
    progress: OnProgress,
) -> None:
    """Write the lists that have no line yet; a run that is killed loses one passage's."""
    todo = [row for row in rows if any((str(row.id), each) not in lines for each in SOURCES)]
    pace = Pace(Counter("" for _ in todo), len(rows))
    fixed = {"criterion": "none", "max_size": size}
    for row in todo:
        progress("the model's words", pace.done, pace.total, pace.note)
        pace.begin()
        each = in_words(explainer.tokenizer, row)
        greedy = _found(explainer, each.context, Options().change(**fixed))
        found = {
            "greedy": _places(each, greedy),
            "minimal": _minimal(explainer, each, greedy, size),
        }
        for source, own in (
            ("baseline", {"method": baseline}),
            ("random", {"method": "random", "seed": seed}),
        ):
            made = _found(explainer, each.context, Options().change(**fixed, **own))
            found[source] = _places(each, made)
        for source, places in found.items():
            if (each.id, source) not in lines:
                lines.add({"passage": each.id, "source": source, "places": places})
        pace.finish("")


def check_makers(folder: RunFolder, explainer: Explainer, baseline: str, lines: Lines) -> None:
    """Record which model and baseline make the lists; raise if others have made some of them."""
    from rationales.runs.workers import identity

    now = identity(explainer) | {"baseline": baseline}
    if not len(lines):
        folder.write(MADE_BY, json.dumps(now, indent=1) + "\n")
    before = makers(folder.path)
    for name, said in (
        ("model_fingerprint", "model"),
        ("adapter_fingerprint", "adapter"),
        ("baseline", "baseline"),
    ):
        if before.get(name) != now[name]:
            one, other = (each.get(said) or "none" for each in (before, now))
            other = other if one != other else f"other weights of {other}"
            raise RationalesError(
                f"the lists in {folder.path} are those of the {said} {one}, not {other}: "
                "give the same one, or another --out"
            )


def _found(
    explainer: Explainer, context: Context, options: Options, start: Rationale | None = None
) -> Rationale:
    """The rationale of a context; ``start`` is one that was found before."""
    begin = None if start is None else lambda _: start
    [(_, found)] = explainer.rationalize([("", context)], options, start=begin)
    return found


def _places(each: Worded, found: Rationale) -> list[int]:
    """The words of a rationale, in the order in which they were added."""
    return [each.place(unit) for unit in found.units or ()]


def _minimal(explainer: Explainer, each: Worded, greedy: Rationale, size: int) -> list[int]:
    """The words of the minimal rationale, then those that help most beside them.

    Greedy's own list, if none of its beginnings is sufficient or nothing can be dropped.
    """
    context, units = each.context, greedy.units or ()
    said = [step.prediction_id == context.target_id for step in greedy.steps]
    if not any(said):
        return _places(each, greedy)
    kept = units[: said.index(True) + 1]
    indices = tuple(index for unit in kept for index in unit)
    start = replace(greedy, indices=indices, units=kept, sufficient=True, stopped=None)
    pruned = _found(explainer, context, Options(minimal=True), start)
    if len(pruned.units or ()) == len(kept):
        return _places(each, greedy)
    required = {*pruned.indices}
    rest = tuple(unit for unit in context.choices if not {*unit} & required)
    more = replace(context, required=tuple(sorted(required)), units=rest)
    left = Options(criterion="none", max_size=size - len(pruned.units or ()) + 1)
    longer = _found(explainer, more, left)
    return _places(each, pruned) + _places(each, longer)[1:]
