"""Rationales of many examples by many methods, each written down as it is finished.

examples, some at a time ─► each method, all of them side by side ─► a line as each one finishes
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rationales.context import Context
from rationales.experiments.contestants import Method, Rankings
from rationales.experiments.lines import Line, Lines, Pace, Progress
from rationales.explainer import Explainer
from rationales.methods import Means, make_search
from rationales.result import Rationale
from rationales.scoring.protocol import Query, Score, SubsetScorer, fresh
from rationales.search.base import Search, required_size
from rationales.search.driver import run
from rationales.search.prune import prune

AT_ONCE = 8
"""Examples that share forward passes: enough to fill them, few enough to finish soon."""

KEY = ("example", "adapter", "method", "added")
"""What a rationale's line is found by; ``added``: after so many tokens, enough or not, or null."""

SOURCE: Literal["source"] = "source"
"""Instead of a number: what was found, and if it has no token of the source, the next such one."""


@dataclass(frozen=True)
class Task:
    """A method, and the model that it is judged by, for all examples of a run."""

    explainer: Explainer
    method: Method
    added: int | Literal["source"] | None = None
    """If given, the search goes on to this many tokens beside the one before the target.

    ``SOURCE``: until there is a token of the source, from where it had ended.
    """

    @property
    def adapter(self) -> bool:
        """Whether an adapter answers for incomplete contexts."""
        return self.explainer.adapter is not None

    def key(self, example: str) -> tuple[Any, ...]:
        """What the line of an example is found by."""
        return (example, self.adapter, self.method.name, self.added)


def find_rationales(
    tasks: Sequence[Task],
    contexts: Mapping[str, Context],
    lines: Lines,
    progress: Progress,
    at_once: int = AT_ONCE,
) -> None:
    """Find the rationales that have no line yet, and write their lines."""
    names = list(contexts)
    missing = [(task, name) for task in tasks for name in names if task.key(name) not in lines]
    pace = Pace(Counter(_kind(task) for task, _ in missing), len(tasks) * len(names))
    rankings = {id(task.explainer): Rankings(task.explainer) for task in tasks}
    for start in range(0, len(names), at_once):
        for task in tasks:
            wanted = {
                name: contexts[name]
                for name in names[start : start + at_once]
                if task.key(name) not in lines
            }
            what = f"{task.method.label}{'' if task.adapter else ', no adapter'}"
            progress(what, pace.done, pace.total, pace.note)
            if not wanted:
                continue
            pace.begin()
            for name, rationale in _of_task(task, wanted, lines, rankings[id(task.explainer)]):
                line = dict(zip(KEY, task.key(name), strict=True)) | _found(rationale)
                lines.add(line | {"seconds": pace.finish(_kind(task))})
                progress(what, pace.done, pace.total, pace.note)
        for each in rankings.values():
            each.clear()


def rationalize_all(
    contexts: Mapping[str, Context],
    scorer: SubsetScorer,
    search: Callable[[Context], Search],
) -> Iterator[tuple[str, Rationale]]:
    """The rationale of each context by its name, as it is finished; all run side by side."""
    return run(((name, context, search(context)) for name, context in contexts.items()), scorer)


class Endless:
    """A scorer under which nothing is ever enough, so that a search goes on to its largest size."""

    def __init__(self, scorer: SubsetScorer) -> None:
        self._scorer = scorer

    def fresh(self) -> Endless:
        """This scorer for one run."""
        return Endless(fresh(self._scorer))

    def score(self, queries: Sequence[Query]) -> list[Score]:
        """The scores, with a prediction that is no token."""
        return [replace(score, prediction_id=-1) for score in self._scorer.score(queries)]


def _of_task(
    task: Task, contexts: Mapping[str, Context], lines: Lines, rankings: Rankings
) -> Iterator[tuple[str, Rationale]]:
    """The rationales of a task for these contexts."""
    options, scorer = task.method.options, task.explainer.scorer
    if task.method.after is not None:
        yield from _pruned(task, contexts, lines)
        return
    added = task.added
    if isinstance(added, int) and not options.fast:
        begun = _begun(task, added, contexts, lines)
        yield from begun.items()
        contexts = {name: context for name, context in contexts.items() if name not in begun}
    ranker = rankings.ranker(options, contexts.values())
    if added is not None:
        scorer = Endless(scorer)
        options = options.change(fast=False)
    if added == SOURCE:
        before = replace(task, added=None)
        found = {name: _read(contexts[name], lines[before.key(name)]) for name in contexts}
        going_on = {
            name: _source_next(contexts[name], rationale)
            for name, rationale in found.items()
            if not any(index < contexts[name].source for index in rationale.indices)
        }
        yield from ((name, found[name]) for name in found if name not in going_on)
        contexts, added = going_on, 1

    def search(context: Context) -> Search:
        size = options.max_size if added is None else required_size(context) + added
        return make_search(context, options.change(max_size=size), Means(ranker))

    yield from rationalize_all(contexts, scorer, search)


def _begun(
    task: Task, added: int, contexts: Mapping[str, Context], lines: Lines
) -> dict[str, Rationale]:
    """How searches began that went on for long enough: what they added first is in their lines."""
    found: dict[str, Rationale] = {}
    for name, context in contexts.items():
        key = replace(task, added=None).key(name)
        size = min(required_size(context) + added, len(context.everything))
        if context.units is None and key in lines and len(lines[key]["indices"]) >= size:
            whole = _read(context, lines[key])
            indices = whole.indices[:size]
            found[name] = replace(whole, indices=indices, sufficient=False, evaluations=0)
    return found


def _source_next(context: Context, rationale: Rationale) -> Context:
    """The context of a search that has come so far, and can add nothing but source tokens."""
    pinned = {*context.pinned}
    source = tuple((index,) for index in range(context.source) if index not in pinned)
    return replace(context, required=rationale.indices, units=source)


def _pruned(
    task: Task, contexts: Mapping[str, Context], lines: Lines
) -> Iterator[tuple[str, Rationale]]:
    """The rationales of the method before, less what is superfluous: nothing is searched twice."""
    before = replace(task.method, name=str(task.method.after))
    found: dict[str, Rationale] = {}
    for name, context in contexts.items():
        found[name] = _read(context, lines[replace(task, method=before).key(name)])
    # A search that has nothing to ask is none: what cannot shrink is passed on.
    shrinkable = {
        name: contexts[name]
        for name, rationale in found.items()
        if rationale.sufficient and len(rationale) > len(contexts[name].required)
    }
    for name in found:
        if name not in shrinkable:
            yield name, found[name]
    by_context = {contexts[name]: found[name] for name in shrinkable}
    for name, rationale in rationalize_all(
        shrinkable, task.explainer.scorer, lambda context: prune(context, by_context[context])
    ):
        yield name, replace(rationale, predicted=found[name].predicted)


def _found(rationale: Rationale) -> Line:
    """What a line keeps of a rationale."""
    return {
        "indices": list(rationale.indices),
        "sufficient": rationale.sufficient,
        "predicted": rationale.predicted,
        "evaluations": rationale.evaluations,
    }


def _read(context: Context, line: Line) -> Rationale:
    """The rationale that a line tells of."""
    return Rationale(
        target=len(context.ids),
        target_id=context.target_id,
        indices=tuple(line["indices"]),
        sufficient=line["sufficient"],
        evaluations=line["evaluations"],
        predicted=line["predicted"],
    )


def _kind(task: Task) -> str:
    return f"{task.method.name} {task.adapter} {task.added}"
