"""How compatible a model is: how good its predictions on incomplete contexts are.

Two questions, on text that it was not trained on:

- the negative log-likelihood of the next token given a random subset of k tokens of its context,
  −log f(y_t | y_S) with |S| = k and t−1 ∈ S, beside that given the whole context and that of the
  unigram distribution, which needs no context at all;
- f("the" | w, "the"): a random word w, then "the", nothing between or around them. A model that has
  never seen a gap says "the the".
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

from rationales.compat.options import MeasureOptions
from rationales.compat.text import pack, read_text
from rationales.context import Context
from rationales.errors import RationalesError
from rationales.loading import load
from rationales.runs import Progress
from rationales.scoring.adapted import AdaptedScorer
from rationales.scoring.protocol import Query, SubsetScorer
from rationales.text import Tokenizer

DISTANCES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
MEAN_SIZES = (1, 4, 8, 16, 32)
"""The sizes over which a single figure is taken, if the context is long enough for all."""
_AT_ONCE = 256


@dataclass(frozen=True)
class Measured:
    """A mean over samples, and the standard error of that mean."""

    mean: float
    error: float


@dataclass(frozen=True)
class Measurement:
    """What was measured of one model: negative log-likelihoods in nats, and probabilities."""

    model: str
    text: str
    length: int
    samples: int
    seed: int
    by_size: dict[int, Measured]
    full: Measured
    unigram: Measured
    the: dict[int, Measured]
    adapter: str | None = None

    def mean_over(self, sizes: Sequence[int]) -> float:
        """The mean negative log-likelihood over some subset sizes."""
        return fmean(self.by_size[size].mean for size in sizes)


def measure_model(
    text: str | Path,
    model: str | None = None,
    adapter: str | Literal[False] | None = None,
    options: MeasureOptions | None = None,
    *,
    progress: Progress = lambda *_: None,
) -> list[Measurement]:
    """The measurement of a model, and a second one of it with its adapter, if it has one.

    ``text`` is a file; ``model`` and ``adapter`` are as ``rationales.load`` takes them.
    """
    options = options or MeasureOptions()
    source = read_text(text)

    def loading(stage: str, share: float) -> None:
        progress(f"loading the model: {stage}", share, 1.0, "")

    progress("loading the model", 0, None, "")
    explainer = load(model, adapter=adapter, progress=loading, kind="causal")
    scorers: dict[str | None, SubsetScorer] = {None: explainer.scorer}
    if isinstance(explainer.scorer, AdaptedScorer):
        scorers = {None: explainer.scorer.base, explainer.adapter: explainer.scorer}
    return [
        Measurement(
            model=explainer.name,
            text=source.name,
            length=options.length,
            seed=options.seed,
            adapter=name,
            **measure(
                scorer,
                explainer.tokenizer,
                source.text,
                options,
                partial(progress, "measuring" if name is None else "measuring with the adapter"),
            ),
        )
        for name, scorer in scorers.items()
    ]


def table(measurements: Sequence[Measurement]) -> list[list[str]]:
    """The measurements as cells: the names of the columns, then a row for each size and figure."""
    first = measurements[0]

    def row(label: str, values: Iterable[Measured]) -> list[str]:
        return [label, *(f"{value.mean:.3f} ± {value.error:.3f}" for value in values)]

    cells = [["context", *("with adapter" if m.adapter else "model" for m in measurements)]]
    for size in first.by_size:
        cells.append(
            row(f"{size} of {first.length} tokens", (m.by_size[size] for m in measurements))
        )
    if set(MEAN_SIZES) <= set(first.by_size):
        label = f"mean of {', '.join(map(str, MEAN_SIZES))}"
        cells.append([label, *(f"{m.mean_over(MEAN_SIZES):.3f}" for m in measurements)])
    cells.append(row(f"all {first.length} tokens", (m.full for m in measurements)))
    cells.append(row("none (unigram)", (m.unigram for m in measurements)))
    for distance in first.the:
        label = f'p("the") {distance} after a word, and "the"'
        cells.append([label, *(f"{m.the[distance].mean:.4f}" for m in measurements)])
    return cells


def measure(
    scorer: SubsetScorer,
    tokenizer: Tokenizer,
    text: str,
    options: MeasureOptions | None = None,
    progress: Callable[[float, float, str], None] = lambda *_: None,
) -> dict[str, Any]:
    """The fields of a ``Measurement`` that come from the model: by_size, full, unigram, the."""
    options = options or MeasureOptions()
    rows = pack(text, tokenizer, options.length + 1)
    if len(rows) < 2:
        raise RationalesError(
            f"the text is too short: it fills {len(rows)} contexts of {options.length} tokens, "
            "and at least 2 are needed"
        )
    rng = random.Random(options.seed)
    chosen = rng.sample(range(len(rows)), min(options.samples, len(rows)))
    contexts = [_context(rows[place].tolist()) for place in chosen]
    queries: dict[int, list[Query]] = {
        size: [(context, _random_subset(context, size, rng)) for context in contexts]
        for size in (*options.sizes, options.length)
    }
    pairs = _the_queries(tokenizer, [int(id) for id in rows.flatten()], options, rng)
    total = sum(map(len, (*queries.values(), *pairs.values())))
    done = 0

    def ask(queries: Sequence[Query]) -> list[float]:
        nonlocal done
        logprobs: list[float] = []
        for start in range(0, len(queries), _AT_ONCE):
            part = queries[start : start + _AT_ONCE]
            logprobs += [score.target_logprob for score in scorer.score(part)]
            done += len(part)
            progress(done, total, f"{done / total:.0%}")
        return logprobs

    by_size = {
        size: _summary([-logprob for logprob in ask(of_size)]) for size, of_size in queries.items()
    }
    full = by_size.pop(options.length)
    return {
        "samples": len(contexts),
        "by_size": by_size,
        "full": full,
        "unigram": _unigram(rows.flatten().tolist(), contexts),
        "the": {
            distance: _summary([math.exp(logprob) for logprob in ask(of_distance)])
            for distance, of_distance in pairs.items()
        },
    }


def _context(row: list[int]) -> Context:
    return Context(ids=tuple(row[:-1]), target_id=row[-1], required=(len(row) - 2,))


def _random_subset(context: Context, size: int, rng: random.Random) -> tuple[int, ...]:
    """The token before the target and ``size − 1`` others, each set as likely as any other."""
    others = rng.sample(context.candidates, size - 1)
    return context.keep((*context.required, *others))


def _the_queries(
    tokenizer: Tokenizer, ids: list[int], options: MeasureOptions, rng: random.Random
) -> dict[int, list[Query]]:
    """For each distance: a random word of the text, "the" at that distance, and "the" as target."""
    the = tokenizer(" the", add_special_tokens=False)["input_ids"][-1]
    words = [rng.choice(ids) for _ in range(options.words)]
    queries: dict[int, list[Query]] = {}
    for distance in (d for d in DISTANCES if d <= options.length):
        queries[distance] = [
            # What lies between is never seen: any token will do.
            (Context((word, *[the] * distance), the, required=(distance,)), (0, distance))
            for word in words
        ]
    return queries


def _unigram(ids: list[int], contexts: Sequence[Context]) -> Measured:
    """The negative log-likelihood of the targets under the frequencies of the text's tokens."""
    counts = Counter(ids)
    return _summary([-math.log(counts[c.target_id] / len(ids)) for c in contexts])


def _summary(values: Sequence[float]) -> Measured:
    return Measured(fmean(values), stdev(values) / math.sqrt(len(values)))
