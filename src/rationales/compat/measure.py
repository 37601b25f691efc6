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
from collections.abc import Callable, Sequence
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
from rationales.runs import OnProgress
from rationales.scoring.adapted import AdaptedScorer
from rationales.scoring.protocol import Query, SubsetScorer
from rationales.text import Tokenizer

DISTANCES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
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


def measure_model(
    text: str | Path,
    model: str | None = None,
    adapter: str | Literal[False] | None = None,
    options: MeasureOptions | None = None,
    *,
    progress: OnProgress = lambda *_: None,
) -> list[Measurement]:
    """The measurement of a model, and a second one of it with its adapter, if it has one.

    ``text`` is a file; ``model`` and ``adapter`` are as ``rationales.load`` takes them.
    """
    options = options or MeasureOptions()
    source = read_text(text)
    progress("loading the model", 0, None, "")
    explainer = load(
        model,
        adapter=adapter,
        progress=lambda stage, share: progress(f"loading the model: {stage}", share, 1.0, ""),
        kind="causal",
    )
    scorers: dict[str | None, SubsetScorer] = {None: explainer.scorer}
    if isinstance(explainer.scorer, AdaptedScorer):
        scorers = {None: explainer.scorer.base, explainer.adapter: explainer.scorer}
    measurements = []
    for name, scorer in scorers.items():
        tell = partial(progress, "measuring" if name is None else "measuring with the adapter")
        found = measure(scorer, explainer.tokenizer, source.text, options, tell)
        measurements.append(
            Measurement(model=explainer.name, text=source.name, adapter=name, **found)
        )
    return measurements


def measure(
    scorer: SubsetScorer,
    tokenizer: Tokenizer,
    text: str,
    options: MeasureOptions | None = None,
    progress: Callable[[float, float, str], None] = lambda *_: None,
) -> dict[str, Any]:
    """The fields of a ``Measurement``, but for the names of model, text and adapter."""
    options = options or MeasureOptions()
    rows = pack(text, tokenizer, options.length + 1)
    if len(rows) < 2:
        raise RationalesError(
            f"the text is too short: it fills {len(rows)} contexts of {options.length} tokens, "
            "and at least 2 are needed"
        )
    rng, ids = random.Random(options.seed), rows.flatten().tolist()
    last = options.length - 1
    contexts = [
        Context(ids=tuple(row[:-1]), target_id=row[-1], required=(last,))
        for row in rng.sample(rows.tolist(), min(options.samples, len(rows)))
    ]
    subsets: dict[int, list[Query]] = {
        size: [(c, (*sorted(rng.sample(range(last), size - 1)), last)) for c in contexts]
        for size in (*options.sizes, options.length)
    }
    the = tokenizer(" the", add_special_tokens=False)["input_ids"][-1]
    words = [rng.choice(ids) for _ in range(options.words)]
    pairs: dict[int, list[Query]] = {
        # What lies between is never seen: any token will do.
        d: [(Context((w, *[the] * d), the, required=(d,)), (0, d)) for w in words]
        for d in DISTANCES
        if d <= options.length
    }
    total = sum(map(len, (*subsets.values(), *pairs.values())))
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

    by_size = {size: _summary([-p for p in ask(queries)]) for size, queries in subsets.items()}
    counts = Counter(ids)
    return {
        "length": options.length,
        "samples": len(contexts),
        "seed": options.seed,
        "full": by_size.pop(options.length),
        "by_size": by_size,
        "unigram": _summary([-math.log(counts[c.target_id] / len(ids)) for c in contexts]),
        "the": {d: _summary([math.exp(p) for p in ask(queries)]) for d, queries in pairs.items()},
    }


def _summary(values: Sequence[float]) -> Measured:
    return Measured(fmean(values), stdev(values) / math.sqrt(len(values)))
