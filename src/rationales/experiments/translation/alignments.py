"""The paper's table on alignments: are the source words of a rationale those that people align?

words with gold links ─► text as people write it ─► sub-words, gold translations forced
                      ─► rationales of all sub-words, by every method
                      ─► source words of each target word: the union over its sub-words
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rationales import metrics
from rationales.data import data_file
from rationales.errors import RationalesError
from rationales.experiments import tables
from rationales.experiments.finding import KEY, SOURCE, Task, find_rationales
from rationales.experiments.language.templates import encode
from rationales.experiments.methods import Compared
from rationales.experiments.run import open_run, subject_of
from rationales.experiments.translation import sentences as sharing
from rationales.experiments.translation.alignments_data import (
    FORMATS,
    HANSARDS,
    HANSARDS_GOLD,
    AlignedPair,
    read_folder,
)
from rationales.experiments.translation.detokenization import Detokenized, Language, detokenize
from rationales.experiments.translation.sentences import Sentence
from rationales.explainer import Explainer
from rationales.metrics import Total, alignment_errors, tokens_in_span
from rationales.render import figures
from rationales.runs import Lines, Progress
from rationales.translator import Translator

DATA = (HANSARDS, HANSARDS_GOLD)

_NUMBERS = ("length", "aer", "iou", "f1", "top1")
PAPER: dict[str, dict[str, float | str]] = {
    method: {**dict(zip(_NUMBERS, row, strict=True)), "aer_paper": row[1]}
    for method, row in {
        "gradient-norm": (10.2, 0.82, 0.30, 0.16, 0.63),
        "gradient-x-embedding": (13.2, 0.90, 0.16, 0.12, 0.40),
        "integrated-gradients": (11.3, 0.85, 0.24, 0.14, 0.42),
        "last-attention": (10.8, 0.84, 0.27, 0.15, 0.59),
        "all-attention": (10.7, 0.82, 0.32, 0.15, 0.66),
        "greedy": (4.9, 0.78, 0.40, 0.24, 0.64),
    }.items()
}
"""A transformer of 40M parameters on IWSLT14 De-En, fine-tuned for compatibility: RWTH's 500."""

COLUMNS = (
    tables.Column("length", "length", "min", 1),
    tables.Column("aer", "AER", "min"),
    tables.Column("aer_paper", "AER, sure links not possible", "min"),
    tables.Column("iou", "IOU", "max"),
    tables.Column("f1", "F1", "max"),
    tables.Column("top1", "top-1", "max"),
    tables.Column("tokens", "tokens, both sides", "min", 1),
    tables.Column("sufficient", "sufficient"),
)


@dataclass(frozen=True)
class Settings(sharing.Settings):
    """What makes a run the run it is, but for its model and data."""

    format: str = "hansards"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.format not in FORMATS:
            raise RationalesError(
                f"unknown format {self.format!r}: choose from {', '.join(FORMATS)}"
            )


@dataclass(frozen=True)
class Words:
    """A sentence, its gold links, and which tokens its words are made of.

    Two words that the text writes as one ("à le", "au") have the same tokens.
    """

    sentence: Sentence
    pair: AlignedPair
    source: tuple[tuple[int, ...], ...]
    """The tokens of each source word."""
    target: tuple[tuple[int, ...], ...]
    """Those of each target word, as indices of the whole."""

    def source_words(self, kept: Iterable[int]) -> set[int]:
        """The source words that tokens belong to."""
        tokens = set(kept)
        return {word for word, own in enumerate(self.source) if not tokens.isdisjoint(own)}

    def gold(self, word: int) -> tuple[set[int], set[int]]:
        """The source words that are surely, and that are possibly aligned with a target word."""
        sure = {source for source, target in self.pair.sure if target == word}
        return sure, set(self.pair.of_target(word))


def run(
    out: str | Path,
    explainer: Explainer,
    settings: Settings | None = None,
    *,
    folder: str | Path | None = None,
    paper_aer: bool = False,
    overwrite: bool,
    progress: Progress,
) -> dict[str, Any]:
    """The results of the experiment, which are then in the folder with their tables and figures.

    The sentences are those of ``folder``, in the format that the settings name; the Hansards of
    RATIONALES_DATA if there is none. ``paper_aer`` adds the error rate as the paper has it.
    """
    settings = settings or Settings()
    translator, methods = sharing.as_translator(explainer), settings.compared
    home = Path(folder).expanduser() if folder is not None else _home(settings.format)
    files = [home / name for name in FORMATS[settings.format].files]
    subject = subject_of(explainer, files)
    with open_run("alignments", out, settings, subject, overwrite=overwrite) as opened:
        progress("reading", 0, None, "")
        everything = read_folder(home, settings.format)
        order = random.Random(settings.seed).sample(range(len(everything)), len(everything))
        made = FORMATS[settings.format]
        chosen = [
            in_words(translator, str(n + 1), everything[n], (made.source, made.target))
            for n in order[: settings.limit]
        ]
        examples = [each.sentence for each in chosen]
        predicted = sharing.predicted_targets(opened, translator, examples, progress)
        lines = opened.lines(KEY)
        # A method that starts from another's rationales has no order of its own.
        tasks = [Task(translator, method) for method in methods]
        tasks += [Task(translator, m, added=SOURCE) for m in methods if m.after is None]
        contexts = sharing.all_contexts(examples)
        find_rationales(tasks, contexts, lines, progress, sharing.AT_ONCE)
        results = opened.known | {
            "sentences": len(chosen),
            "targets": len(contexts),
            "predicted": sum(map(sum, predicted.values())),
            "words": sum(len(each.pair.target) for each in chosen),
            "unaligned": sum(
                not each.pair.of_target(word)
                for each in chosen
                for word in range(len(each.pair.target))
            ),
            "paper_aer": paper_aer,
            "tables": tabulate(chosen, predicted, lines, settings, paper_aer),
        }
        opened.finish(results, report(results))
        progress("drawing", 0, None, "")
        for name, table in zip(
            ("alignments", "alignments-predicted"), results["tables"], strict=True
        ):
            opened.draw(name, figures.bars(table, _NUMBERS))
        if "greedy" in (method.name for method in methods):
            shown = _shown(chosen, predicted)
            opened.draw("alignment", figures.alignment(_aligned(shown, lines)))
    return results


def _home(name: str) -> Path:
    """The folder of the Hansards, which is the only one that has a usual place."""
    if name != "hansards":
        raise RationalesError(f"the format {name} needs the folder of its files: give --data DIR")
    return data_file(HANSARDS).parent


def in_words(
    translator: Translator, id: str, pair: AlignedPair, languages: tuple[Language, Language]
) -> Words:
    """The pair as text in sub-words, whose words are known again."""
    texts = [
        detokenize(words, language)
        for words, language in zip((pair.source, pair.target), languages, strict=True)
    ]
    sentence = sharing.encode_sentence(translator, id, texts[0].text, texts[1].text)
    free = [place for place in range(sentence.source) if place not in sentence.pinned]
    return Words(
        sentence,
        pair,
        _tokens(translator, texts[0], sentence, free),
        _tokens(translator, texts[1], sentence, sentence.targets),
    )


def _tokens(
    translator: Translator, text: Detokenized, sentence: Sentence, places: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    """The tokens of each word of a text, which are in these places of the sentence."""
    encoded = encode(translator.tokenizer, text.text)
    if list(encoded.ids) != [sentence.ids[place] for place in places]:
        raise RationalesError(
            f"the tokenizer reads a side of sentence {sentence.id} in two ways: take another model"
        )
    words = [{*tokens_in_span(text.text, encoded.offsets, span)} for span in text.spans]
    for token in reversed(range(len(places))):
        # A space that is a token of its own belongs to what follows it.
        if not any(token in own for own in words):
            for own in words:
                own |= {token} if token + 1 in own else set()
    return tuple(tuple(places[token] for token in sorted(own)) for own in words)


def tabulate(
    chosen: Sequence[Words],
    predicted: Mapping[str, Sequence[bool]],
    lines: Lines,
    settings: Settings,
    paper_aer: bool = False,
) -> list[dict[str, Any]]:
    """The tables: of all target words, and of those whose sub-words are all predicted."""
    by_id = {each.sentence.id: each for each in chosen}

    def measure(sentence: Sentence, method: Compared, targets: Sequence[int]) -> dict[str, Total]:
        return measured(by_id[sentence.id], method, targets, lines)

    made = sharing.Measured([each.sentence for each in chosen], lines, measure)
    columns = [column for column in COLUMNS if paper_aer or column.key != "aer_paper"]
    everything = {each.sentence.id: list(each.sentence.targets) for each in chosen}
    known = {each.sentence.id: _predicted(each, predicted[each.sentence.id]) for each in chosen}
    first = made.table("All target words", columns, settings, PAPER, everything)
    title = "Target words that the model predicts"
    return [first, tables.like(made.table(title, columns, settings, PAPER, known), first)]


def _predicted(each: Words, said: Sequence[bool]) -> list[int]:
    """The targets of the words of which the model predicts every sub-word."""
    is_said = dict(zip(each.sentence.targets, said, strict=True))
    return sorted({t for own in each.target if all(is_said[t] for t in own) for t in own})


def measured(
    each: Words, method: Compared, targets: Sequence[int], lines: Lines
) -> dict[str, Total]:
    """The words of which these are the sub-words in numbers.

    The error rate is that of all links. Overlaps and top-1 are of words that people aligned.
    """
    values: dict[str, list[float]] = {name: [] for name in ("length", "tokens", "sufficient")}
    overlaps: dict[str, list[float]] = {name: [] for name in ("iou", "f1", "top1")}
    errors = {"aer": [Total(0, 0)], "aer_paper": [Total(0, 0)]}
    found, first = rationale_words(each, method, targets, lines)
    for _, context, line in sharing.each_line(each.sentence, method, targets, lines):
        values["tokens"].append(len(sharing.kept(line, context)))
        values["sufficient"].append(line["sufficient"])
    for word, words in found.items():
        sure, possible = each.gold(word)
        values["length"].append(len(words))
        for name, is_paper in (("aer", False), ("aer_paper", True)):
            errors[name].append(alignment_errors(words, sure, possible, paper=is_paper))
        if possible:
            overlaps["iou"].append(metrics.iou(words, possible))
            overlaps["f1"].append(metrics.f1(words, possible))
            if word in first:
                overlaps["top1"].append(metrics.top1(first[word], possible))
    return {name: Total.of(numbers) for name, numbers in (values | overlaps).items()} | {
        name: Total(*map(sum, zip(*parts, strict=True))) for name, parts in errors.items()
    }


def rationale_words(
    each: Words, method: Compared, targets: Sequence[int], lines: Lines
) -> tuple[dict[int, set[int]], dict[int, set[int]]]:
    """For each target word, its source words, and those that came first, one for each sub-word.

    Only words all of whose sub-words are among the targets; methods without an order of their own
    have no first words.
    """
    kept: dict[int, set[int]] = {}
    first: dict[int, set[int]] = {}
    for target, context, line in sharing.each_line(each.sentence, method, targets, lines):
        kept[target] = each.source_words(sharing.kept(line, context))
        if (key := (each.sentence.name(target), False, method.name, SOURCE)) in lines:
            added = (i for i in lines[key]["indices"] if i < each.sentence.source)
            first[target] = each.source_words([next(added)])
    whole = {word: own for word, own in enumerate(each.target) if all(t in kept for t in own)}
    return (
        {word: {s for t in own for s in kept[t]} for word, own in whole.items()},
        {
            word: {s for t in own for s in first[t]}
            for word, own in whole.items()
            if all(t in first for t in own)
        },
    )


def report(results: Mapping[str, Any]) -> str:
    """The tables in Markdown, with what they mean."""
    settings = results["settings"]
    body = "\n\n".join(sharing.markdown(table) for table in results["tables"])
    return f"""# Translation against gold alignments

`rationales experiment alignments --seed {settings["seed"]} --out DIR` · {settings["model"]}

{body}

- {results["sentences"]} sentences ({settings["format"]}{
        f", limit {settings['limit']}" if settings["limit"] else ""
    }) with their gold translations: {results["targets"]:,} sub-words, of which
  the model predicts {results["predicted"]:,}, in {results["words"]:,} words. A word is predicted if
  all its sub-words are.
- A target word's rationale has the source words of the rationales of all its sub-words. Length:
  how many these are; the tokens of each sub-word's rationale on both sides are the next to last
  column.
- AER: Och and Ney's, of all links found, sure and possible, where the sure ones are possible
  too.{
        " In the other column, as in the paper, they are not: a perfect alignment has ½."
        if results["paper_aer"]
        else " The paper's evaluation leaves them out (`--paper-aer` adds that)."
    }
- IOU, F1 and top-1 are means over the words that people aligned, surely or possibly
  ({results["unaligned"]:,} are aligned with nothing). Top-1: whether the first source token that a
  method adds is of such a word, for any of the sub-words; if a rationale has none, the next source
  token that would be added.
{sharing.notes(settings)}
- Paper: a model of 40M parameters for German–English (IWSLT14), 500 sentences of RWTH's. No sets
  have an F1 below their IOU, as the paper's columns do: its F1 is another one.
"""


def _shown(chosen: Sequence[Words], predicted: Mapping[str, Sequence[bool]]) -> Words:
    """The sentence to draw: of those of a fair length and clear links the most predicted one."""
    fair = [each for each in chosen if 6 <= len(each.pair.target) <= 14] or chosen
    clear = [each for each in fair if 2 * len(each.pair.sure) > len(each.pair.possible)] or fair
    return max(clear, key=lambda each: metrics.share(predicted[each.sentence.id]))


def _aligned(each: Words, lines: Lines) -> figures.Aligned:
    """The greedy rationales of a sentence beside its gold links."""
    greedy = sharing.Settings(methods=("greedy",)).compared[0]
    found, _ = rationale_words(each, greedy, each.sentence.targets, lines)
    return figures.Aligned(
        each.pair.source,
        each.pair.target,
        {(source, word) for word, words in found.items() for source in words},
        each.pair.sure,
        each.pair.possible,
    )
