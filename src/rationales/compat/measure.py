"""How compatible a model is: what its predictions on incomplete contexts are worth.

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
from statistics import fmean, stdev
from typing import Any

from rationales.compat.text import pack
from rationales.context import Context
from rationales.errors import RationalesError
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

    def mean_over(self, sizes: Sequence[int]) -> float:
        """The mean negative log-likelihood over some subset sizes."""
        return fmean(self.by_size[size].mean for size in sizes)


@dataclass(frozen=True)
class MeasureOptions:
    """How much is measured: targets, the length of their contexts, the seed of the subsets."""

    samples: int = 200
    length: int = 64
    words: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("samples", "length", "words"):
            if getattr(self, name) < 2:
                raise RationalesError(f"{name} must be at least 2, not {getattr(self, name)}")

    @property
    def sizes(self) -> tuple[int, ...]:
        """The subset sizes that are smaller than the context: 1, 2, 4, 8, …"""
        doubled = (2**power for power in range(self.length.bit_length()))
        return tuple(size for size in doubled if size < self.length)


def measure(
    scorer: SubsetScorer,
    tokenizer: Tokenizer,
    text: str,
    options: MeasureOptions | None = None,
    on_progress: Callable[[float], None] | None = None,
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
    ask = _Asker(scorer, sum(map(len, (*queries.values(), *pairs.values()))), on_progress)
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


class _Asker:
    """Asks a scorer in parts, and tells how far it is."""

    def __init__(
        self, scorer: SubsetScorer, total: int, on_progress: Callable[[float], None] | None
    ) -> None:
        self._scorer = scorer
        self._total = total
        self._done = 0
        self._on_progress = on_progress

    def __call__(self, queries: Sequence[Query]) -> list[float]:
        logprobs: list[float] = []
        for start in range(0, len(queries), _AT_ONCE):
            part = queries[start : start + _AT_ONCE]
            logprobs += [score.target_logprob for score in self._scorer.score(part)]
            self._done += len(part)
            if self._on_progress is not None:
                self._on_progress(self._done / self._total)
        return logprobs


def _context(row: list[int]) -> Context:
    return Context(ids=tuple(row[:-1]), target_id=row[-1], required=(len(row) - 2,))


def _random_subset(context: Context, size: int, rng: random.Random) -> tuple[int, ...]:
    """The token before the target and ``size − 1`` others, each set as likely as any other."""
    others = rng.sample(context.candidates, size - 1)
    return context.keep((*context.required, *others))


def _the_queries(
    tokenizer: Tokenizer, ids: list[int], options: MeasureOptions, rng: random.Random
) -> dict[int, list[Query]]:
    """For each distance: a random word of the text, then "the" so much later, and again "the"?"""
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
    """How surprising the targets are to one who only knows how often each token occurs."""
    counts = Counter(ids)
    return _summary([-math.log(counts[c.target_id] / len(ids)) for c in contexts])


def _summary(values: Sequence[float]) -> Measured:
    return Measured(fmean(values), stdev(values) / math.sqrt(len(values)))
