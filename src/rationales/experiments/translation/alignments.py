"""The paper's table on alignments: are the source words of a rationale those of the gold alignment?

words with gold links ─► ordinary text ─► sub-words, gold translations forced
                      ─► rationales of all sub-words, by every method
                      ─► source words of each target word: the union over its sub-words
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from rationales import metrics
from rationales.bitext import encode_source, translation_ids
from rationales.errors import RationalesError
from rationales.experiments import tables
from rationales.experiments.language.templates import encode
from rationales.experiments.methods import Compared
from rationales.experiments.run import open_run, subject_of
from rationales.experiments.translation import sentences
from rationales.experiments.translation.alignments_data import FORMATS, AlignedPair, read_folder
from rationales.experiments.translation.detokenization import Detokenized, Language, detokenize
from rationales.experiments.translation.sentences import Found, Rationales, Sentence
from rationales.metrics import Total, alignment_errors, tokens_in_span
from rationales.options import Options
from rationales.render import figures
from rationales.runs import OnProgress
from rationales.translator import Translator

DATA = tuple(f"alignments/en-fr-hansards/{file}" for file in FORMATS["hansards"].files)

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
class Settings(sentences.Settings):
    """The settings of a run, but for its model and data."""

    format: Literal["hansards", "europarl", "rwth"] = "hansards"
    """The format of the aligned sentences: hansards (French–English), or europarl or rwth
    (German–English, in the folder of --data)."""


@dataclass(frozen=True, kw_only=True)
class Words(Sentence):
    """A sentence, its gold links, and the tokens of each of its words.

    Two words that the text writes as one ("à le", "au") have the same tokens.
    """

    pair: AlignedPair
    source_tokens: tuple[tuple[int, ...], ...]
    """The tokens of each source word."""
    target_tokens: tuple[tuple[int, ...], ...]
    """The tokens of each target word, in the same index space."""

    def source_words(self, tokens: Mapping[int, Iterable[int]]) -> dict[int, set[int]]:
        """The source words of each target word, from the tokens of each target.

        Those of all its sub-words together. A word of which a sub-word is no target has none.
        """
        found = {}
        for word, own in enumerate(self.target_tokens):
            if all(target in tokens for target in own):
                kept = {index for target in own for index in tokens[target]}
                sources = enumerate(self.source_tokens)
                found[word] = {source for source, parts in sources if not kept.isdisjoint(parts)}
        return found


def run(
    out: str | Path,
    explainer: Translator,
    settings: Settings,
    *,
    folder: str | Path | None = None,
    paper_aer: bool = False,
    overwrite: bool,
    progress: OnProgress,
) -> dict[str, Any]:
    """The results of the experiment, which are then in the folder with their tables and figures.

    The sentences are those of ``folder``, or the Hansards of RATIONALES_DATA, in the format of the
    settings. ``paper_aer`` adds the error rate as the paper defines it.
    """
    home = sentences.data_folder(folder, settings.format, {"hansards": DATA[0]})
    compared, form = settings.compared, FORMATS[settings.format]
    subject = subject_of(explainer, [home / name for name in form.files])
    with open_run("alignments", out, settings, subject, overwrite=overwrite) as opened:
        progress("reading", 0, None, "")
        pairs = read_folder(home, settings.format)
        order = random.Random(settings.seed).sample(range(len(pairs)), len(pairs))
        examples = [
            in_words(explainer, str(n + 1), pairs[n], form.languages)
            for n in order[: settings.limit]
        ]
        found = sentences.find_all(
            opened, explainer, examples, compared, progress, first_source=True
        )
        words = sum(len(each.pair.target) for each in examples)
        aligned = sum(len({word for _, word in each.pair.possible}) for each in examples)
        more = {
            "sentences": len(examples),
            "words": words,
            "unaligned": words - aligned,
            "paper_aer": paper_aer,
            "tables": tabulate(found, settings, paper_aer),
        }
        results = sentences.finish(opened, found, more, report, _NUMBERS, progress)
        for greedy in (method for method in compared if method.name == "greedy"):
            opened.draw("alignment", figures.alignment(_aligned(found, greedy)))
    return results


def in_words(
    translator: Translator, id: str, pair: AlignedPair, languages: tuple[Language, Language]
) -> Words:
    """The pair as text in sub-words, with the sub-words of each word."""
    source, target = map(detokenize, (pair.source, pair.target), languages)
    ids, pinned = encode_source(translator.tokenizer, source.text, Options())
    translation = translation_ids(translator.tokenizer, target.text, Options())
    sentence = sentences.join_ids(translator, id, ids, pinned, translation)
    free = [place for place in range(sentence.source) if place not in sentence.pinned]
    return Words(
        **vars(sentence),
        pair=pair,
        source_tokens=_tokens(translator, source, sentence, free),
        target_tokens=_tokens(translator, target, sentence, sentence.targets),
    )


def _tokens(
    translator: Translator, text: Detokenized, sentence: Sentence, places: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    """The tokens of each word of a text; ``places`` are the indices of the text's tokens."""
    encoded = encode(translator.tokenizer, text.text)
    if list(encoded.ids) != [sentence.tokens[place].id for place in places]:
        raise RationalesError(
            f"the tokenizer reads a side of sentence {sentence.id} in two ways: take another model"
        )
    words = [{*tokens_in_span(text.text, encoded.offsets, span)} for span in text.spans]
    for token in reversed(range(len(places))):
        # A space that is a token of its own belongs to the word after it.
        if not any(token in own for own in words):
            for own in words:
                own |= {token} if token + 1 in own else set()
    return tuple(tuple(places[token] for token in sorted(own)) for own in words)


def tabulate(
    found: Rationales[Words], settings: Settings, paper_aer: bool = False
) -> list[dict[str, Any]]:
    """The tables: of all target words, and of those of which all sub-words are predicted."""

    def predicted(each: Words) -> list[int]:
        said = found.is_predicted(each)
        return sorted({t for own in each.target_tokens if all(said[t] for t in own) for t in own})

    parts = {
        "All target words": lambda each: each.targets,
        "Target words that the model predicts": predicted,
    }
    columns = [column for column in COLUMNS if paper_aer or column.key != "aer_paper"]
    return found.tables(columns, settings, PAPER, measured, parts)


def measured(each: Words, rationales: Sequence[Found]) -> dict[str, Total]:
    """The numbers of a sentence by a method, over the words that have these sub-words.

    The error rate is that of all links. Overlaps and top-1 are of words with gold links.
    """
    chosen = each.source_words({found.target: found.kept for found in rationales})
    first = each.source_words({f.target: [f.first] for f in rationales if f.first is not None})
    links = _links(chosen)
    sure, possible = (
        {(source, word) for source, word in gold if word in chosen}
        for gold in (each.pair.sure, each.pair.possible)
    )
    aligned = {word: gold for word in chosen if (gold := each.pair.of_target(word))}
    return {
        "length": Total.of(map(len, chosen.values())),
        "aer": alignment_errors(links, sure, possible),
        "aer_paper": alignment_errors(links, sure, possible, paper=True),
        "iou": Total.of(metrics.iou(chosen[word], gold) for word, gold in aligned.items()),
        "f1": Total.of(metrics.f1(chosen[word], gold) for word, gold in aligned.items()),
        "top1": Total.of(
            not gold.isdisjoint(first[word]) for word, gold in aligned.items() if word in first
        ),
        "tokens": Total.of(len(found.kept) for found in rationales),
        "sufficient": Total.of(found.sufficient for found in rationales),
    }


def _links(words: Mapping[int, set[int]]) -> set[tuple[int, int]]:
    """The links of target words with their source words."""
    return {(source, word) for word, sources in words.items() for source in sources}


def report(results: Mapping[str, Any]) -> str:
    """The tables in Markdown, with notes on what they mean."""
    settings = results["settings"]
    limit = f", limit {settings['limit']}" if settings["limit"] else ""
    aer = (
        "In the other column, as in the paper, they are not: a perfect alignment has ½."
        if results["paper_aer"]
        else "The paper's evaluation leaves them out (`--paper-aer` adds that)."
    )
    notes = f"""\
- {results["sentences"]} sentences ({settings["format"]}{limit}) with their gold translations: \
{results["targets"]:,} sub-words, of which
  the model predicts {results["predicted"]:,}, in {results["words"]:,} words. A word is predicted if
  all its sub-words are.
- A target word's rationale has the source words of the rationales of all its sub-words. Length:
  how many these are; the tokens of each sub-word's rationale on both sides are the next to last
  column.
- AER: Och and Ney's, of all links found, sure and possible, where the sure ones are possible
  too. {aer}
- IOU, F1 and top-1 are means over the words that are aligned, surely or possibly
  ({results["unaligned"]:,} are aligned with nothing). Top-1: whether the first source token that a
  method adds is of such a word, for any of the sub-words; if a rationale has none, the next source
  token that would be added."""
    paper = """\
a model of 40M parameters for German–English (IWSLT14), 500 sentences of RWTH's. No sets
  have an F1 below their IOU, as the paper's columns do: its F1 is another one."""
    return sentences.markdown(results, "Translation against gold alignments", notes, paper)


def _aligned(found: Rationales[Words], greedy: Compared) -> figures.Aligned:
    """The greedy rationales of a sentence beside its gold links.

    Of the sentences of a fair length and with clear links, the one with most targets predicted.
    """
    fair = [each for each in found.sentences if 6 <= len(each.pair.target) <= 14] or found.sentences
    clear = [each for each in fair if 2 * len(each.pair.sure) > len(each.pair.possible)] or fair
    shown = max(clear, key=lambda each: fmean(found.predicted[each.id] or [0]))
    rationales = found.each(shown, greedy, shown.targets)
    links, pair = _links(shown.source_words({e.target: e.kept for e in rationales})), shown.pair
    return figures.Aligned(pair.source, pair.target, links, pair.sure, pair.possible)
