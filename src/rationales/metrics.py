"""How good rationales are: their size, overlap with what people chose, and how sure one can be.

Overlaps compare two sets of token indices of one context, A (a method's) and B (a person's). They
are ERASER's token-level measures (DeYoung et al. 2020), without its threshold for spans:

    IOU = |A ∩ B| / |A ∪ B|        F1 = 2 |A ∩ B| / (|A| + |B|)

F1 is the harmonic mean of |A ∩ B| / |A| and |A ∩ B| / |B|. Both are taken for each example, and a
table shows their mean over examples (the macro average). Two empty sets agree: both measures are 1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from rationales.errors import MissingExtraError, RationalesError

Span = tuple[int, int]
"""Characters [start, end) of a text."""

CONFIDENCE = 0.95
RESAMPLES = 4999


def iou(a: Collection[int], b: Collection[int]) -> float:
    """The size of the intersection over that of the union; 1 if both are empty."""
    left, right = set(a), set(b)
    return len(left & right) / len(left | right) if left | right else 1.0


def f1(a: Collection[int], b: Collection[int]) -> float:
    """The harmonic mean of precision and recall, which is symmetric; 1 if both are empty."""
    left, right = set(a), set(b)
    return 2 * len(left & right) / (len(left) + len(right)) if left or right else 1.0


def cohen_kappa(a: Sequence[object], b: Sequence[object]) -> float:
    """Cohen's κ of two annotators' labels for the same items: (agreement − chance) / (1 − chance).

    Chance is how often labels with each annotator's own frequencies would agree. If it is 1, both
    gave one and the same label everywhere, and κ, which is then 0 / 0, is taken as 1.
    """
    if len(a) != len(b) or not a:
        raise RationalesError(
            f"κ compares labels of the same items: got {len(a)} and {len(b)} labels"
        )
    items = len(a)
    agreed = sum(x == y for x, y in zip(a, b, strict=True)) / items
    left, right = list(a), list(b)
    chance = sum(left.count(label) * right.count(label) for label in set(left)) / items**2
    return 1.0 if chance == 1 else (agreed - chance) / (1 - chance)


def set_kappa(a: Collection[int], b: Collection[int], items: Iterable[int]) -> float:
    """Cohen's κ of two sets of indices, each item of the context being in a set or not."""
    left, right = set(a), set(b)
    among = list(items)
    return cohen_kappa([i in left for i in among], [i in right for i in among])


def share(flags: Iterable[bool]) -> float:
    """How many of the flags are set, as a share of them; 0 if there are none."""
    known = list(flags)
    return sum(known) / len(known) if known else 0.0


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


def estimate(values: Sequence[float], seed: int = 0) -> Estimate:
    """The mean of the values and its bootstrap interval: percentiles of resampled means."""
    if not values:
        raise RationalesError("there is no mean of no values")
    mean = fmean(values)
    if min(values) == max(values):  # every resample is the same; scipy would warn
        return Estimate(mean, mean, mean, len(values))
    check()
    import numpy as np
    from scipy.stats import bootstrap

    found = bootstrap(
        (np.asarray(values, dtype=float),),
        np.mean,
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
