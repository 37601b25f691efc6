"""The paper's table on distractors: do rationales stay with the sentence that a word comes from?

    held-out sentences ─► the model's own translations of them, S → T
                       ─► two at random put together, S₁S₂ → T₁T₂
                       ─► rationales of all tokens of T₁T₂, by every method

T₁ comes from S₁ alone and T₂ from S₂ alone. Each token of the other pair in a rationale is a
*crossover*.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge

from rationales.bitext import decoder_start, encode_source
from rationales.errors import RationalesError
from rationales.experiments import tables
from rationales.experiments.run import Run, open_run, subject_of
from rationales.experiments.translation import sentences
from rationales.experiments.translation.alignments_data import IWSLT14, read_iwslt14
from rationales.experiments.translation.detokenization import detokenize
from rationales.experiments.translation.pairs import PAIRS, held_out
from rationales.experiments.translation.sentences import Found, Rationales
from rationales.metrics import Seam, Total, crossovers
from rationales.options import Options
from rationales.runs import OnProgress
from rationales.translator import Translator

DATA = (PAIRS,)
_AT_ONCE = 64
"""Sentences that are translated side by side."""

Translated = tuple[list[int], frozenset[int], list[int]]
"""The ids of a source, which of them are pinned, and the ids of its translation."""

_NUMBERS = ("mean_source", "mean_target", "rate_source", "rate_target")
PAPER: dict[str, dict[str, float | str]] = {
    method: dict(zip(_NUMBERS, row, strict=True))
    for method, row in {
        "gradient-norm": (0.40, 0.44, 0.06, 0.06),
        "gradient-x-embedding": (6.25, 5.57, 0.42, 0.41),
        "integrated-gradients": (2.08, 1.68, 0.23, 0.14),
        "last-attention": (0.63, 2.41, 0.09, 0.24),
        "all-attention": (0.58, 0.80, 0.08, 0.12),
        "greedy": (0.12, 0.12, 0.09, 0.02),
    }.items()
}
"""A transformer of 40M parameters on IWSLT14 De-En, fine-tuned for compatibility: 500 pairs."""

COLUMNS = (
    tables.Column("mean_source", "mean crossovers, source", "min"),
    tables.Column("mean_target", "mean crossovers, target", "min"),
    tables.Column("rate_source", "crossover rate, source", "min"),
    tables.Column("rate_target", "crossover rate, target", "min"),
    tables.Column("length", "length", "min", 1),
    tables.Column("sufficient", "sufficient"),
)


@dataclass(frozen=True)
class Settings(sentences.Settings):
    """The settings of a run; ``limit`` is one on the pairs."""

    format: Literal["tatoeba", "iwslt14"] = "tatoeba"
    """Where the sentences come from: tatoeba (French, held out from training), or iwslt14 (German,
    the test.de that fairseq's script prepares, in the folder of --data)."""
    pairs: Annotated[int, Ge(1)] = 500
    """Pairs of sentences that are put together."""


@dataclass(frozen=True, kw_only=True)
class Concatenated(sentences.Sentence):
    """Two sentences put together, and where they meet."""

    seam: Seam


def run(
    out: str | Path,
    explainer: Translator,
    settings: Settings,
    *,
    folder: str | Path | None = None,
    overwrite: bool,
    progress: OnProgress,
) -> dict[str, Any]:
    """The results of the experiment, which are then in the folder with their tables and figures.

    The sentences are those of ``folder``, or of RATIONALES_DATA, in the format of the settings.
    """
    home = sentences.data_folder(folder, settings.format, {"tatoeba": PAIRS})
    file = home / (IWSLT14 if settings.format == "iwslt14" else Path(PAIRS).name)
    subject = subject_of(explainer, DATA if folder is None else [file])
    with open_run("distractors", out, settings, subject, overwrite=overwrite) as opened:
        progress("reading", 0, None, "")
        if settings.format == "iwslt14":
            texts = [detokenize(words, "de").text for words in read_iwslt14(file)]
        else:
            texts = [pair.french for pair in held_out(explainer, file)]
        pairs = concatenate(explainer, texts, settings, opened, progress)
        found = sentences.find_all(opened, explainer, pairs, settings.compared, progress)
        more = {"pairs": len(pairs), "tables": tabulate(found, settings)}
        return sentences.finish(opened, found, more, report, _NUMBERS, progress)


def concatenate(
    translator: Translator, texts: Sequence[str], settings: Settings, run: Run, progress: OnProgress
) -> list[Concatenated]:
    """Sentences with the model's translations, two and two at random."""
    distinct = list(dict.fromkeys(texts))
    order = random.Random(settings.seed).sample(distinct, len(distinct))
    wanted = 2 * min(settings.pairs, settings.limit or settings.pairs)
    start = decoder_start(translator.model, translator.tokenizer, None)
    known = run.lines(("sentence",), "translations")
    chosen: list[Translated] = []
    for begin in range(0, len(order), _AT_ONCE):
        if len(chosen) >= wanted:
            break
        encoded = {
            number: encode_source(translator.tokenizer, text, Options())
            for number, text in enumerate(order[begin : begin + _AT_ONCE], start=begin)
        }
        if new := [number for number in encoded if (number,) not in known]:
            progress("translating", len(chosen), wanted, "")
            said = translator.decode([encoded[number][0] for number in new], start)
            for number, ids in zip(new, said, strict=True):
                known.add({"sentence": number, "ids": ids})
        for number, (ids, pinned) in encoded.items():
            if translation := known[(number,)]["ids"]:  # a model may end at once
                chosen.append((ids, pinned, translation))
    if len(chosen) < 2:
        raise RationalesError(
            f"the model translates {len(chosen)} of {len(order)} sentences, but the experiment "
            "needs at least 2: take another model"
        )
    couples = zip(chosen[:wanted:2], chosen[1:wanted:2], strict=False)
    return [join(translator, str(n), *couple) for n, couple in enumerate(couples)]


def join(translator: Translator, id: str, first: Translated, second: Translated) -> Concatenated:
    """Two sources with their translations, one after the other; ends in between are dropped."""
    (source, pinned, translation), (other, other_pinned, continuation) = first, second
    own = [id for place, id in enumerate(other) if place not in other_pinned]
    # Special tokens come before the first source and after the second, as in any source.
    meet = max(place for place in range(len(source)) if place not in pinned) + 1
    whole = [*source[:meet], *own, *source[meet:]]
    moved = frozenset(place if place < meet else place + len(own) for place in pinned)
    found = sentences.join_ids(translator, id, whole, moved, [*translation, *continuation])
    seam = Seam(meet, found.source, found.start + len(translation))
    return Concatenated(**vars(found), seam=seam)


def tabulate(found: Rationales[Concatenated], settings: Settings) -> list[dict[str, Any]]:
    """The tables: of all targets, of those that are still predicted, of those that are not."""

    def those(predicted: bool, pair: Concatenated) -> list[int]:
        return [t for t, said in found.is_predicted(pair).items() if said == predicted]

    parts = {
        "All targets": lambda pair: pair.targets,
        "Targets that the concatenation still predicts": lambda pair: those(True, pair),
        "Targets that it no longer predicts": lambda pair: those(False, pair),
    }
    return found.tables(COLUMNS, settings, PAPER, measured, parts)


def measured(pair: Concatenated, rationales: Sequence[Found]) -> dict[str, Total]:
    """The numbers of a pair by a method, over some of its targets.

    Tokens that every rationale has do not count: special tokens, and the one before the target.
    """
    crossed = [crossovers({*e.kept} - {e.target - 1}, e.target, pair.seam) for e in rationales]
    sources = [one.source for one in crossed]
    others = [one.target for one in crossed if one.target is not None]
    return {
        "mean_source": Total.of(sources),
        "mean_target": Total.of(others),
        "rate_source": Total.of(count > 0 for count in sources),
        "rate_target": Total.of(count > 0 for count in others),
        "length": Total.of(len(e.kept) for e in rationales),
        "sufficient": Total.of(e.sufficient for e in rationales),
    }


def report(results: Mapping[str, Any]) -> str:
    """The tables in Markdown, with notes on what they mean."""
    settings = results["settings"]
    drawn = "held-out sentences" if settings["format"] == "tatoeba" else "test sentences (IWSLT14)"
    limit = f" (limit {settings['limit']})" if settings["limit"] else ""
    notes = f"""\
- {results["pairs"]} pairs of {drawn}{limit}, each with the model's own translation by raw argmax,
  are put together: S₁S₂ → T₁T₂, end tokens in between dropped. Of the {results["targets"]:,} tokens
  of T₁T₂, the model predicts {results["predicted"]:,} from the whole context; the others have a
  table of their own.
- A rationale for T₁ crosses over with every token of S₂ that it holds, one for T₂ with those of S₁
  (source) and of T₁ (target; T₁ itself can have none, so these columns are about T₂ alone). Special
  tokens do not count, nor does the token before the target, which every rationale has.
- Length: tokens of the rationale on both sides, the one before the target included."""
    paper = "a model of 40M parameters for German–English (IWSLT14), 500 pairs."
    return sentences.markdown(results, "Translation with distractors", notes, paper)
