"""Rationales of many examples by many methods, each written to its line as it is found.

a group of examples ─► all methods side by side ─► what starts from other lines ─► a line for each
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from rationales.context import Context
from rationales.errors import RationalesError
from rationales.experiments.methods import Compared
from rationales.options import Options
from rationales.result import Rationale
from rationales.runs import Line, Lines, OnProgress, Pace, RunFolder
from rationales.search.base import required_size

if TYPE_CHECKING:
    from rationales.explainer import Explainer

AT_ONCE = 8
"""Examples that share forward passes: sufficient to fill them, few enough to finish soon."""

KEY = ("example", "adapter", "method", "added")
"""The fields by which a rationale's line is found."""

KEPT = ("indices", "sufficient", "predicted", "evaluations")
"""The fields of a rationale that its line keeps."""

SOURCE: Literal["source"] = "source"


@dataclass(frozen=True)
class Task:
    """A method and the model that it searches with, for all examples of a run."""

    explainer: Explainer
    method: Compared
    added: int | Literal["source"] | None = None
    """A number: the search goes on to this many tokens beside the required one, sufficient or not.

    ``SOURCE``: it goes on from the rationale that was found until this has a source token.
    """

    @property
    def adapter(self) -> bool:
        """Whether the model has an adapter."""
        return self.explainer.adapter is not None

    @property
    def label(self) -> str:
        """The name of the method, for the progress."""
        return f"{self.method.label}{'' if self.adapter else ', no adapter'}"

    @property
    def wave(self) -> int:
        """0 for a search of its own; later for one that reads the lines of another."""
        return 2 if self.added is not None else int(self.method.after is not None)

    def key(self, example: str) -> tuple[Any, ...]:
        """The key of an example's line."""
        return (example, self.adapter, self.method.name, self.added)

    def options(self, context: Context) -> Options:
        """The options of the search in a context."""
        if self.added is None:
            return self.method.options
        size = required_size(context) + (1 if self.added == SOURCE else self.added)
        return self.method.options.change(fast=False, criterion="none", max_size=size)


def find_rationales(
    tasks: Sequence[Task],
    contexts: Mapping[str, Context],
    lines: Lines,
    progress: OnProgress,
    at_once: int = AT_ONCE,
) -> None:
    """Find the rationales that have no line yet, and write their lines."""
    names = list(contexts)
    missing = [str(task.wave) for task in tasks for name in names if task.key(name) not in lines]
    pace = Pace(Counter(missing), len(tasks) * len(names))
    waves: dict[tuple[int, int], list[Task]] = {}  # of one model each, what depends on others last
    for task in sorted(tasks, key=lambda task: task.wave):
        waves.setdefault((task.wave, id(task.explainer)), []).append(task)
    for start in range(0, len(names), at_once):
        group = {name: contexts[name] for name in names[start : start + at_once]}
        for wave in waves.values():
            progress(wave[0].label, pace.done, pace.total, pace.note)
            pace.begin()
            for (task, name), rationale in _find(wave, group, lines):
                line = dict(zip(KEY, task.key(name), strict=True))
                line |= {kept: getattr(rationale, kept) for kept in KEPT}
                lines.add(line | {"seconds": pace.finish(str(task.wave))})
                progress(task.label, pace.done, pace.total, pace.note)


def predictions(explainer: Explainer, contexts: Mapping[str, Context]) -> dict[str, bool]:
    """Whether the model predicts each target from its whole context."""
    limit = getattr(explainer.scorer, "max_positions", None)
    for name, context in contexts.items():
        tokens = max(context.source, len(context.ids) - context.source)  # each side has its own
        if limit is not None and tokens > limit:
            raise RationalesError(
                f"the context of {name} has {tokens} tokens, and the model has positions "
                f"for {limit}: take another model"
            )
    scores = explainer.scorer.score([(c, c.keep(c.everything)) for c in contexts.values()])
    return {
        name: score.prediction_id == context.target_id
        for (name, context), score in zip(contexts.items(), scores, strict=True)
    }


def example_lines(
    run: RunFolder,
    examples: Sequence[Any],
    compute: Callable[[Any], Line],
    what: str,
    progress: OnProgress,
) -> Iterator[Line]:
    """The line of each example, which has an ``id``, in ``parts/examples.jsonl``, computed once."""
    known = run.lines(("example",), "examples")
    for number, each in enumerate(examples):
        if (each.id,) not in known:
            progress(what, number, len(examples), "")
            known.add({"example": each.id, **compute(each)})
        yield known[(each.id,)]


def _find(
    tasks: Sequence[Task], contexts: Mapping[str, Context], lines: Lines
) -> Iterator[tuple[tuple[Task, str], Rationale]]:
    """The rationales of one wave that have no line yet, as they are found."""
    searched: dict[tuple[Task, str], Context] = {}
    started: dict[tuple[Task, str], Rationale] = {}
    for task in tasks:
        for name, context in contexts.items():
            if task.key(name) in lines:
                continue
            # What this one starts from: another method's rationale, or its own up to its end.
            known = (name, task.adapter, task.method.after or task.method.name, None)
            if task.wave == 0 or (isinstance(task.added, int) and known not in lines):
                searched[task, name] = context
                continue
            kept = {field: lines[known][field] for field in KEPT}
            kept["indices"] = tuple(kept["indices"])
            found = Rationale(target=len(context.ids), target_id=context.target_id, **kept)
            if task.added is None:
                searched[task, name], started[task, name] = context, found
            elif isinstance(longer := _longer(task, context, found), Rationale):
                yield (task, name), longer
            else:
                searched[task, name] = longer
    yield from tasks[0].explainer.rationalize(
        searched.items(),
        lambda key: key[0].options(searched[key]),
        start=started.__getitem__ if started else None,
    )


def _longer(task: Task, context: Context, found: Rationale) -> Rationale | Context:
    """What a longer search would find, if the rationale found says so; or the search's context."""
    if task.added == SOURCE:
        if any(index < context.source for index in found.indices):
            return found
        source = tuple((i,) for i in range(context.source) if i not in context.pinned)
        return replace(context, required=found.indices, units=source)
    size = min(required_size(context) + (task.added or 0), len(context.everything))
    if task.method.options.fast or len(found.indices) < size:
        return context
    return replace(found, indices=found.indices[:size], sufficient=False, evaluations=0)
