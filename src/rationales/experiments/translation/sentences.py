"""Sentences and their translations: the part that both translation experiments share.

sentence ─► a context for each target ─► predicted from the whole? ─► rationales ─► table

Every token of a translation is a target. An example of a table is a sentence, and its numbers are
totals over its targets: these depend on each other, and are resampled together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, TypeVar

from annotated_types import Ge

from rationales.bitext import decoder_start, make_pair
from rationales.context import Context
from rationales.data import data_file
from rationales.errors import RationalesError
from rationales.experiments import finding, methods, tables
from rationales.experiments.methods import OF_TRANSLATIONS, Compared
from rationales.experiments.run import Run
from rationales.metrics import Total
from rationales.render import figures
from rationales.runs import Line, Lines, OnProgress
from rationales.text import Passage
from rationales.translator import Translator

AT_ONCE = 256
"""Targets that share forward passes: those of some sentences."""


@dataclass(frozen=True)
class Settings(methods.Settings):
    """The settings of a comparison on translations."""

    known: ClassVar[Sequence[str]] = OF_TRANSLATIONS
    ig_steps: Annotated[int, Ge(1)] = 50
    max_size: Annotated[int, Ge(0)] | None = 20


def data_folder(folder: str | Path | None, format: str, known: Mapping[str, str]) -> Path:
    """The folder of the data: the given one, or that of the format's file in RATIONALES_DATA."""
    if folder is not None:
        return Path(folder).expanduser()
    if format not in known:
        raise RationalesError(f"the format {format} needs the folder of its files: give --data DIR")
    return data_file(known[format]).parent


@dataclass(frozen=True, kw_only=True)
class Sentence(Passage):
    """A source and a translation of it; all tokens of the latter are targets."""

    id: str

    @property
    def targets(self) -> range:
        """The indices of the translation."""
        return range(self.start, len(self.tokens))

    @cached_property
    def contexts(self) -> dict[str, Context]:
        """The context of each target, by its name."""
        return {self.name(target): self.context(target) for target in self.targets}

    def name(self, target: int) -> str:
        """The name of a target, by which its lines are found."""
        return f"{self.id}/{target}"


def join_ids(
    translator: Translator,
    id: str,
    source: Sequence[int],
    pinned: frozenset[int],
    translation: Sequence[int],
) -> Sentence:
    """The sentence of these ids, which must fit into the model."""
    start = decoder_start(translator.model, translator.tokenizer, None)
    translator.check_length(f"source of sentence {id}", len(source))
    translator.check_length(f"translation of sentence {id}", len(start) + len(translation) - 1)
    passage = make_pair(translator.tokenizer, source, pinned, start, translation)
    return Sentence(**vars(passage), id=id)


S = TypeVar("S", bound=Sentence)


class Found(NamedTuple):
    """The rationale of one target by one method."""

    target: int
    kept: tuple[int, ...]
    """Its indices; all of the context if the rationale is not sufficient."""
    sufficient: bool
    first: int | None
    """The first source token that the method adds, if the run has asked for it; none for a method
    without an order of its own."""


@dataclass(frozen=True)
class Rationales(Generic[S]):
    """The rationales of a run's sentences, and which targets the model predicts."""

    sentences: Sequence[S]
    predicted: Mapping[str, Sequence[bool]]
    """For each sentence, whether each target is predicted from its whole context."""
    lines: Lines

    def is_predicted(self, sentence: S) -> dict[int, bool]:
        """Whether the model predicts each target of a sentence."""
        return dict(zip(sentence.targets, self.predicted[sentence.id], strict=True))

    def each(self, sentence: S, method: Compared, targets: Sequence[int]) -> list[Found]:
        """The rationales of these targets by a method."""
        found = []
        for target in targets:
            name = sentence.name(target)
            line = self.lines[name, False, method.name, None]
            kept = line["indices"] if line["sufficient"] else sentence.contexts[name].everything
            key = (name, False, method.name, finding.SOURCE)
            added = self.lines[key]["indices"] if key in self.lines else ()
            first = next((index for index in added if index < sentence.source), None)
            found.append(Found(target, tuple(kept), line["sufficient"], first))
        return found

    def tables(
        self,
        columns: Sequence[tables.Column],
        settings: Settings,
        paper: Mapping[str, Mapping[str, float | str]],
        measure: Callable[[S, Sequence[Found]], Mapping[str, Total]],
        parts: Mapping[str, Callable[[S], Sequence[int]]],
    ) -> list[dict[str, Any]]:
        """A table for each title of ``parts``, over the targets that its function chooses.

        A sentence without such targets is left out. All tables show the same form of each method.
        """
        made: list[dict[str, Any]] = []
        for title, choose in parts.items():
            chosen = [(each, targets) for each in self.sentences if (targets := choose(each))]
            measured = {
                method.name: [
                    measure(each, self.each(each, method, targets)) for each, targets in chosen
                ]
                for method in settings.compared
            }
            table = tables.table(title, columns, measured, settings.compared, paper, settings.seed)
            table["targets"] = sum(len(targets) for _, targets in chosen)
            made.append(tables.like(table, made[0]) if made else table)
        return made


def find_all(
    run: Run,
    translator: Translator,
    sentences: Sequence[S],
    methods: Sequence[Compared],
    progress: OnProgress,
    *,
    first_source: bool = False,
) -> Rationales[S]:
    """The rationales of all targets by all methods, from the folder or found now.

    With ``first_source``, also the source token that each method would add first.
    """

    def about(each: Sentence) -> Line:
        return {"predicted": list(finding.predictions(translator, each.contexts).values())}

    known = list(finding.example_lines(run, sentences, about, "predicting targets", progress))
    tasks = [finding.Task(translator, method) for method in methods]
    if first_source:  # a method that starts from another one's rationales has no order of its own
        tasks += [
            finding.Task(translator, m, added=finding.SOURCE) for m in methods if m.after is None
        ]
    contexts = {name: context for each in sentences for name, context in each.contexts.items()}
    lines = run.lines(finding.KEY)
    finding.find_rationales(tasks, contexts, lines, progress, AT_ONCE)
    predicted = {line["example"]: line["predicted"] for line in known}
    return Rationales(sentences, predicted, lines)


def finish(
    run: Run,
    found: Rationales[S],
    more: Mapping[str, Any],
    report: Callable[[Mapping[str, Any]], str],
    columns: Sequence[str],
    progress: OnProgress,
) -> dict[str, Any]:
    """The results, now in the folder with their report and a figure of each of the first tables.

    ``more`` are the experiment's own results, its tables among them.
    """
    results = run.known | {
        "targets": sum(len(each.targets) for each in found.sentences),
        "predicted": sum(map(sum, found.predicted.values())),
        **more,
    }
    run.finish(results, report(results))
    progress("drawing", 0, None, "")
    name = results["experiment"]
    for figure, table in zip((name, f"{name}-predicted"), results["tables"], strict=False):
        run.draw(figure, figures.bars(table, columns))
    return results


def markdown(results: Mapping[str, Any], title: str, notes: str, paper: str) -> str:
    """The tables of a run in Markdown, with notes on them and on the paper's numbers."""
    body = "\n\n".join(
        f"{tables.markdown(table)}\n\n{table['targets']:,} targets." for table in results["tables"]
    )
    size = results["settings"]["max_size"]
    end = f" No search goes beyond {size} tokens." if size else ""
    return f"""{tables.heading(title, results)}

{body}

{notes}
- A rationale that is not sufficient counts as the whole context, in everything.{end}
- Means over targets with 95 % bootstrap intervals, for which whole sentences are resampled; the
  best in bold. Of signed and absolute importances the one with the shorter rationales is shown;
  both are in `results.json`.
- Paper: {paper}
"""
