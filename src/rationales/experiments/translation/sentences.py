"""Sentences and their translations, each token of which is a target: what two experiments share.

sentence ─► a context for each target ─► predicted from the whole? ─► rationales ─► numbers

A table's example is a sentence, and its numbers are totals over targets: these depend on each
other, and are resampled together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rationales.bitext import decoder_start, encode_source, translation_ids
from rationales.context import Context, seq2seq_context
from rationales.errors import RationalesError
from rationales.experiments import methods, tables
from rationales.experiments.finding import predictions
from rationales.experiments.methods import OF_TRANSLATIONS, Compared
from rationales.experiments.run import Run
from rationales.explainer import Explainer
from rationales.metrics import Total
from rationales.options import Options
from rationales.runs import Line, Lines, Progress
from rationales.translator import Translator

AT_ONCE = 256
"""Targets that share forward passes: those of some sentences."""
IG_STEPS = 50
"""Of integrated gradients, as in the paper's translation experiments."""

Paper = Mapping[str, Mapping[str, float | str]]


@dataclass(frozen=True)
class Settings(methods.Settings):
    """The settings of a comparison on translations."""

    known = OF_TRANSLATIONS
    ig_steps: int = IG_STEPS
    """Steps of integrated gradients."""
    max_size: int | None = 20
    """Rationales of at most N tokens; 0: no limit. One that is not sufficient then counts as the
    whole context."""


@dataclass(frozen=True)
class Sentence:
    """A source and a translation of it, in one index space; all tokens of the latter are targets.

    ``ids`` are those of the source, of what the decoder starts with, and of the translation.
    """

    id: str
    ids: tuple[int, ...]
    source: int
    """How many tokens the source has."""
    start: int
    """Where the translation begins."""
    pinned: frozenset[int]

    @property
    def targets(self) -> range:
        """The indices of the translation."""
        return range(self.start, len(self.ids))

    @cached_property
    def contexts(self) -> dict[str, Context]:
        """The context of each target, by its name."""
        return {
            self.name(target): seq2seq_context(self.ids, target, self.pinned, self.source)
            for target in self.targets
        }

    def name(self, target: int) -> str:
        """What the lines of a target are found by."""
        return f"{self.id}/{target}"


def as_translator(explainer: Explainer) -> Translator:
    """The explainer, which must be one that translates."""
    if not isinstance(explainer, Translator) or explainer.model is None:
        raise RationalesError(
            f"{explainer.name} does not translate: this experiment takes an encoder–decoder"
        )
    return explainer


def encode_sentence(translator: Translator, id: str, source: str, target: str) -> Sentence:
    """The sentence of two texts."""
    ids, pinned = encode_source(translator.tokenizer, source, Options())
    return put_together(
        translator, id, ids, pinned, translation_ids(translator.tokenizer, target, Options())
    )


def put_together(
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
    begins = len(source) + len(start)
    return Sentence(
        id,
        (*source, *start, *translation),
        len(source),
        begins,
        pinned | frozenset(range(len(source), begins)),
    )


def all_contexts(sentences: Sequence[Sentence]) -> dict[str, Context]:
    """The contexts of all targets, sentence by sentence."""
    return {name: context for each in sentences for name, context in each.contexts.items()}


def predicted_targets(
    run: Run, explainer: Explainer, sentences: Sequence[Sentence], progress: Progress
) -> dict[str, list[bool]]:
    """Of each sentence, which targets the model predicts from their whole contexts."""
    known = run.lines(("example",), "examples")
    for number, each in enumerate(sentences):
        if (each.id,) not in known:
            progress("predicting targets", number, len(sentences), "")
            said = predictions(explainer, each.contexts)
            known.add({"example": each.id, "predicted": list(said.values())})
    return {each.id: known[(each.id,)]["predicted"] for each in sentences}


def kept(line: Line, context: Context) -> tuple[int, ...]:
    """What a rationale keeps; one that is not sufficient counts as the whole context."""
    return tuple(line["indices"]) if line["sufficient"] else context.everything


Measure = Callable[[Sentence, Compared, Sequence[int]], Mapping[str, Total]]
"""The numbers of a sentence by a method, over these targets of it."""


@dataclass(frozen=True)
class Measured:
    """What there is to be tabulated: sentences, the lines of their targets, how these are read."""

    sentences: Sequence[Sentence]
    lines: Lines
    measure: Measure

    def table(
        self,
        title: str,
        columns: Sequence[tables.Column],
        settings: Settings,
        paper: Paper,
        wanted: Mapping[str, Sequence[int]],
    ) -> dict[str, Any]:
        """The table over these targets of each sentence; a sentence that has none is left out."""
        compared = settings.compared
        found: dict[str, list[Mapping[str, float | Total]]] = {}
        # In the order of the sentences, whatever that of the lines: intervals depend on it.
        for each in self.sentences:
            targets = wanted[each.id]
            for method in compared:
                if targets and all(self._line(each, t, method) for t in targets):
                    of_method = found.setdefault(method.name, [])
                    of_method.append(self.measure(each, method, targets))
        table = tables.table(title, columns, found, compared, paper, settings.seed)
        return table | {"targets": sum(map(len, wanted.values()))}

    def _line(self, sentence: Sentence, target: int, method: Compared) -> bool:
        return (sentence.name(target), False, method.name, None) in self.lines


def each_line(
    sentence: Sentence, method: Compared, targets: Sequence[int], lines: Lines
) -> Iterator[tuple[int, Context, Line]]:
    """Each target with its context, and the line of its rationale by a method."""
    for target in targets:
        name = sentence.name(target)
        yield target, sentence.contexts[name], lines[name, False, method.name, None]


def markdown(table: dict[str, Any]) -> str:
    """The table in Markdown, with the number of its targets."""
    return f"{tables.markdown(table)}\n\n{table['targets']:,} targets."


def notes(settings: Mapping[str, Any]) -> str:
    """What holds for every table about translations, as lines of a list."""
    size = settings["max_size"]
    end = f" No search goes beyond {size} tokens." if size else ""
    return f"""- A rationale that is not sufficient counts as the whole context, in everything.{end}
- Means over targets with 95 % bootstrap intervals, for which whole sentences are resampled; the
  best in bold. Of signed and absolute importances the one with the shorter rationales is shown;
  both are in `results.json`."""
