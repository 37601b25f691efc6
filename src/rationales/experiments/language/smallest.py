"""The smallest rationale: exhaustive search below the shortest one that any method found.

A rationale of size n that some method found leaves only sizes below n to be searched. If these hold
none, n is the smallest, even if the search itself could not have gone on to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rationales.context import Context
from rationales.experiments.run import Run
from rationales.options import Options
from rationales.runs import Line, Lines, Pace, Progress

if TYPE_CHECKING:
    from rationales.explainer import Explainer


def find_smallest(
    explainer: Explainer,
    contexts: Mapping[str, Context],
    run: Run,
    lines: Lines,
    largest: int,
    progress: Progress,
) -> dict[str, Line]:
    """For each example the size of its smallest rationale (``optimum``) and a lower bound of it.

    The bound is ``at_least``; the optimum is None if subsets of up to ``largest`` tokens do not
    decide it. ``lines`` are the rationales that the methods found.
    """
    known = run.lines(("example",), "exhaustive")
    shortest = _shortest(lines, adapter=explainer.adapter is not None)
    pace = Pace(Counter("" for name in contexts if (name,) not in known), len(contexts))
    for name, context in contexts.items():
        if (name,) in known:
            continue
        progress("exhaustive search", pace.done, pace.total, pace.note)
        pace.begin()
        best = shortest.get(name, len(context.everything))
        line = {"example": name, "best_known": best} | _search(explainer, context, best, largest)
        known.add(line | {"seconds": pace.finish("")})
    found = {name: known[(name,)] | smallest(known[(name,)]) for name in contexts}
    return {name: {k: line[k] for k in line if k != "seconds"} for name, line in found.items()}


def smallest(line: Line) -> Line:
    """The smallest size, if it is known, and a size that no rationale is below."""
    if line["found"] is not None:
        return {"optimum": line["found"], "at_least": line["found"]}
    is_known = line["best_known"] <= line["searched"] + 1
    return {"optimum": line["best_known"] if is_known else None, "at_least": line["searched"] + 1}


def _search(explainer: Explainer, context: Context, best: int, largest: int) -> Line:
    """The result of exhaustive search among subsets smaller than the best that is known."""
    size = min(largest, best - 1)
    if size < max(1, len(context.required)):
        return {"searched": size, "found": None, "evaluations": 0}
    options = Options(method="exhaustive", max_size=size, max_evaluations=0)
    [(_, rationale)] = explainer.rationalize([("", context)], options)
    return {
        "searched": size,
        "found": len(rationale) if rationale.sufficient else None,
        "evaluations": rationale.evaluations,
    }


def _shortest(lines: Lines, adapter: bool) -> dict[str, int]:
    """The size of the shortest sufficient rationale that any method found for each example."""
    found: dict[str, int] = {}
    for line in lines:
        if line["adapter"] == adapter and line["sufficient"]:
            size = len(line["indices"])
            found[line["example"]] = min(size, found.get(line["example"], size))
    return found
