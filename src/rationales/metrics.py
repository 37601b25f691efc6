"""Measures of rationales: overlap with human annotations, and confidence intervals of means.

Overlaps compare two sets of token indices of one context, A (a method's) and B (an annotator's).
They are ERASER's token-level measures (DeYoung et al. 2020), without its threshold for spans:

    IOU = |A ∩ B| / |A ∪ B|        F1 = 2 |A ∩ B| / (|A| + |B|)

F1 is the harmonic mean of |A ∩ B| / |A| and |A ∩ B| / |B|. Both are taken for each example, and a
table shows their mean over examples (the macro average). Two empty sets agree: both measures are 1.

Alignments are compared by Och and Ney's alignment error rate (2000), from the links A that were
found, the sure ones S and the possible ones P, which include S:

    AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any, NamedTuple

from rationales.errors import MissingExtraError, RationalesError

Span = tuple[int, int]
"""Characters [start, end) of a text."""

CONFIDENCE = 0.95
RESAMPLES = 4999


class Total(NamedTuple):
    """The sum and the count of several values of one example, such as one for each word."""

    total: float
    """The sum of the values."""
    number: float
    """The count of the values."""

    @classmethod
    def of(cls, values: Iterable[float]) -> Total:
        """The total of these values."""
        known = [float(value) for value in values]
        return cls(fsum(known), len(known))


def iou(a: Collection[int], b: Collection[int]) -> float:
    """The size of the intersection over that of the union; 1 if both are empty."""
    left, right = set(a), set(b)
    return len(left & right) / len(left | right) if left | right else 1.0


def f1(a: Collection[int], b: Collection[int]) -> float:
    """The harmonic mean of precision and recall, which is symmetric; 1 if both are empty."""
    left, right = set(a), set(b)
    return 2 * len(left & right) / (len(left) + len(right)) if left or right else 1.0


def set_kappa(a: Collection[int], b: Collection[int], items: Iterable[int]) -> float:
    """Cohen's κ of two sets, each item being in a set or not: (agreement − chance) / (1 − chance).

    Chance is how often sets of the same sizes would agree. If it is 1, both hold all items or none,
    and κ, which is then 0 / 0, is taken as 1.
    """
    among = set(items)
    if not among:
        raise RationalesError("κ compares the labels of items: there are none")
    left, right, count = among.intersection(a), among.intersection(b), len(among)
    agreed = (count - len(left ^ right)) / count
    both, neither = len(left) * len(right), (count - len(left)) * (count - len(right))
    chance = (both + neither) / count**2
    return 1.0 if chance == 1 else (agreed - chance) / (1 - chance)


def alignment_errors(
    found: Collection[Hashable],
    sure: Collection[Hashable],
    possible: Collection[Hashable],
    *,
    paper: bool = False,
) -> Total:
    """The wrong part of |A| + |S|, and |A| + |S|: their quotient is the alignment error rate.

    The arguments are links, or the source words of one target word. Sure ones are possible in any
    case, whether ``possible`` has them or not. But with ``paper``, as in the paper's evaluation,
    sure ones are not possible: a perfect alignment of sure links then has an error of ½.
    """
    a, s, p = set(found), set(sure), set(possible)
    p = p - s if paper else p | s
    links = len(a) + len(s)
    return Total(links - len(a & s) - len(a & p), links)


@dataclass(frozen=True)
class Seam:
    """Where two pairs meet that are put together, S₁ S₂ | T₁ T₂, in the indices of a context."""

    source: int
    """Where S₂ begins."""
    border: int
    """Where T₁ begins: the number of source tokens."""
    target: int
    """Where T₂ begins."""


class Crossovers(NamedTuple):
    """The number of tokens of a rationale that belong to the other pair."""

    source: int
    target: int | None
    """None for a target in T₁, which can have nothing of T₂ in its context."""


def crossovers(kept: Iterable[int], target: int, seam: Seam) -> Crossovers:
    """The crossovers of a rationale for the target at this index.

    ``kept`` are the tokens that the method chose: no special tokens, and not the token before the
    target, which is required.
    """
    chosen = set(kept)
    if target < seam.target:
        return Crossovers(sum(seam.source <= i < seam.border for i in chosen), None)
    return Crossovers(
        sum(i < seam.source for i in chosen),
        sum(seam.border <= i < seam.target for i in chosen),
    )


def tokens_in_span(text: str, offsets: Sequence[Span], span: Span) -> tuple[int, ...]:
    """The tokens that share a character, not a space, with a span of the text.

    ``offsets`` are each token's characters, as a tokenizer gives them: a leading space may be part
    of a token or not, and all the tokens of a split character have that character.
    """
    start, end = span
    return tuple(
        index
        for index, (first, last) in enumerate(offsets)
        if text[max(first, start) : min(last, end)].strip()
    )


@dataclass(frozen=True)
class Estimate:
    """A mean over examples, and the interval in which it lies with 95 % confidence."""

    mean: float
    low: float
    high: float
    examples: int


def estimate(values: Sequence[float | Total], seed: int = 0) -> Estimate:
    """The mean of the values and its bootstrap interval: percentiles of resampled means.

    Of totals, it is the mean of all their values. The values of one example depend on each other,
    so examples are resampled as wholes.
    """
    totals = [each if isinstance(each, Total) else Total(each, 1) for each in values]
    count = sum(each.number for each in totals)
    if not count:
        raise RationalesError("there is no mean of no values")
    mean = fsum(each.total for each in totals) / count
    # Every resample is the same; scipy would warn.
    if len({each.total / each.number for each in totals if each.number}) == 1:
        return Estimate(mean, mean, mean, len(values))
    check()
    import numpy as np
    from scipy.stats import bootstrap

    def means(total: Any, count: Any, axis: int = -1) -> Any:
        return total.sum(axis=axis) / count.sum(axis=axis)

    found = bootstrap(
        tuple(np.asarray(column, dtype=float) for column in zip(*totals, strict=True)),
        means,
        paired=True,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Estimate(mean, float(found.low), float(found.high), len(values))


def check() -> None:
    """Raise if intervals cannot be computed; better before an experiment than after it."""
    try:
        import scipy.stats  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("confidence intervals", "experiments") from error
