"""The paper's table on distractors: do rationales stay with the sentence that a word comes from?

    held-out sentences ─► the model's own translations of them, S → T
                       ─► two at random put together, S₁S₂ → T₁T₂
                       ─► rationales of all tokens of T₁T₂, by every method

T₁ comes from S₁ alone and T₂ from S₂ alone: whatever of the other pair is in a rationale is a
*crossover*.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rationales.bitext import decoder_start, encode_source
from rationales.data import data_file
from rationales.errors import RationalesError
from rationales.experiments import tables
from rationales.experiments.finding import KEY, Task, find_rationales
from rationales.experiments.methods import Compared
from rationales.experiments.run import Run, open_run, subject_of
from rationales.experiments.translation import sentences as sharing
from rationales.experiments.translation.pairs import PAIRS, held_out
from rationales.experiments.translation.sentences import Sentence
from rationales.explainer import Explainer
from rationales.metrics import Seam, Total, crossovers
from rationales.options import Options
from rationales.render import figures
from rationales.runs import Lines, Progress
from rationales.translator import Translator

DATA = (PAIRS,)
CONCATENATED = 500
"""Pairs of sentences in the paper, and here, if nobody asks for fewer."""
_AT_ONCE = 64
"""Sentences that are translated side by side."""

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
class Settings(sharing.Settings):
    """What makes a run the run it is; ``limit`` is one on the pairs."""

    pairs: int = CONCATENATED


@dataclass(frozen=True)
class Concatenated:
    """Two sentences put together, and where they meet."""

    sentence: Sentence
    seam: Seam


def run(
    out: str | Path,
    explainer: Explainer,
    settings: Settings | None = None,
    *,
    overwrite: bool,
    progress: Progress,
) -> dict[str, Any]:
    """The results of the experiment, which are then in the folder with their tables and figure."""
    settings = settings or Settings()
    translator = sharing.as_translator(explainer)
    subject = subject_of(explainer, DATA)
    with open_run("distractors", out, settings, subject, overwrite=overwrite) as opened:
        pairs = concatenate(translator, settings, opened, progress)
        examples = [pair.sentence for pair in pairs]
        predicted = sharing.predicted_targets(opened, translator, examples, progress)
        lines = opened.lines(KEY)
        tasks = [Task(translator, method) for method in settings.compared]
        contexts = sharing.all_contexts(examples)
        find_rationales(tasks, contexts, lines, progress, sharing.AT_ONCE)
        results = opened.known | {
            "pairs": len(pairs),
            "targets": len(contexts),
            "predicted": sum(map(sum, predicted.values())),
            "tables": tabulate(pairs, predicted, lines, settings),
        }
        opened.finish(results, report(results))
        progress("drawing", 0, None, "")
        for name, table in zip(
            ("distractors", "distractors-predicted"), results["tables"][:2], strict=True
        ):
            opened.draw(name, figures.bars(table, _NUMBERS))
    return results


def concatenate(
    translator: Translator, settings: Settings, opened: Run, progress: Progress
) -> list[Concatenated]:
    """Held-out sentences with the model's translations, two and two at random."""
    tokenizer = translator.tokenizer
    progress("reading", 0, None, "")
    held = dict.fromkeys(pair.french for pair in held_out(translator, data_file(PAIRS)))
    order = random.Random(settings.seed).sample(list(held), len(held))
    wanted = 2 * min(settings.pairs, settings.limit or settings.pairs)
    start = decoder_start(translator.model, tokenizer, None)
    known = opened.lines(("sentence",), "translations")
    chosen: list[tuple[list[int], frozenset[int], list[int]]] = []
    for begin in range(0, len(order), _AT_ONCE):
        if len(chosen) >= wanted:
            break
        encoded = [encode_source(tokenizer, s, Options()) for s in order[begin : begin + _AT_ONCE]]
        numbers = range(begin, begin + len(encoded))
        if new := [n for n in numbers if (n,) not in known]:
            progress("translating", len(chosen), wanted, "")
            said = translator.decode([encoded[n - begin][0] for n in new], start)
            for number, ids in zip(new, said, strict=True):
                known.add({"sentence": number, "ids": ids})
        for number, (ids, pinned) in zip(numbers, encoded, strict=True):
            if translation := known[(number,)]["ids"]:  # to some, a model has nothing to say
                chosen.append((ids, pinned, translation))
    if len(chosen) < 2:
        raise RationalesError(
            f"the model has a translation for {len(chosen)} of {len(order)} held-out sentences, "
            "and two are the least: take another model"
        )
    chosen = chosen[: min(wanted, len(chosen) // 2 * 2)]
    return [
        join(translator, str(n // 2), chosen[n], chosen[n + 1]) for n in range(0, len(chosen), 2)
    ]


def join(
    translator: Translator,
    id: str,
    first: tuple[Sequence[int], frozenset[int], Sequence[int]],
    second: tuple[Sequence[int], frozenset[int], Sequence[int]],
) -> Concatenated:
    """Two sources with their translations, one after the other; ends in between are dropped."""
    (source, pinned, translation), (other, other_pinned, continuation) = first, second
    own = [id for place, id in enumerate(other) if place not in other_pinned]
    # Special tokens come before the first source and after the second, as in any source.
    meet = max(place for place in range(len(source)) if place not in pinned) + 1
    whole = [*source[:meet], *own, *source[meet:]]
    moved = frozenset(place if place < meet else place + len(own) for place in pinned)
    found = sharing.put_together(translator, id, whole, moved, [*translation, *continuation])
    return Concatenated(found, Seam(meet, found.source, found.start + len(translation)))


def tabulate(
    pairs: Sequence[Concatenated],
    predicted: Mapping[str, Sequence[bool]],
    lines: Lines,
    settings: Settings,
) -> list[dict[str, Any]]:
    """The tables: of all targets, of those that are still predicted, of those that are not."""
    seams = {pair.sentence.id: pair.seam for pair in pairs}

    def measure(sentence: Sentence, method: Compared, targets: Sequence[int]) -> dict[str, Total]:
        return measured(sentence, seams[sentence.id], method, targets, lines)

    examples = [pair.sentence for pair in pairs]
    made = sharing.Measured(examples, lines, measure)
    tables_of: list[dict[str, Any]] = []
    for title, belongs in (
        ("All targets", (True, False)),
        ("Targets that the concatenation still predicts", (True,)),
        ("Targets that it no longer predicts", (False,)),
    ):
        wanted = {
            each.id: [
                t for t, p in zip(each.targets, predicted[each.id], strict=True) if p in belongs
            ]
            for each in examples
        }
        table = made.table(title, COLUMNS, settings, PAPER, wanted)
        tables_of.append(tables.like(table, tables_of[0]) if tables_of else table)
    return tables_of


def measured(
    sentence: Sentence, seam: Seam, method: Compared, targets: Sequence[int], lines: Lines
) -> dict[str, Total]:
    """The rationales of some targets of a pair in numbers.

    What nobody chooses does not count: special tokens, and the token before the target.
    """
    found, sizes, enough = [], [], []
    for target, context, line in sharing.each_line(sentence, method, targets, lines):
        kept = sharing.kept(line, context)
        sizes.append(len(kept))
        enough.append(line["sufficient"])
        found.append(crossovers({*kept} - {*context.required}, target, seam))
    sources = [one.source for one in found]
    others = [one.target for one in found if one.target is not None]
    return {
        "mean_source": Total.of(sources),
        "mean_target": Total.of(others),
        "rate_source": Total.of(count > 0 for count in sources),
        "rate_target": Total.of(count > 0 for count in others),
        "length": Total.of(sizes),
        "sufficient": Total.of(enough),
    }


def report(results: Mapping[str, Any]) -> str:
    """The tables in Markdown, with what they mean."""
    settings = results["settings"]
    body = "\n\n".join(sharing.markdown(table) for table in results["tables"])
    return f"""# Translation with distractors

`rationales experiment distractors --seed {settings["seed"]} --out DIR` · {settings["model"]}

{body}

- {results["pairs"]} pairs of held-out sentences{
        f" (limit {settings['limit']})" if settings["limit"] else ""
    }, each with the model's own translation by raw argmax,
  are put together: S₁S₂ → T₁T₂, end tokens in between dropped. Of the {results["targets"]:,} tokens
  of T₁T₂, the model predicts {results["predicted"]:,} from the whole context; the others have a
  table of their own.
- A rationale for T₁ crosses over with every token of S₂ that it holds, one for T₂ with those of S₁
  (source) and of T₁ (target; T₁ itself can have none, so these columns are about T₂ alone). Special
  tokens do not count, nor does the token before the target, which nobody chooses.
- Length: tokens of the rationale on both sides, the one before the target included.
{sharing.notes(settings)}
- Paper: a model of 40M parameters for German–English (IWSLT14), 500 pairs.
"""
