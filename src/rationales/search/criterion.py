"""When a subset is sufficient, and which of two subsets is the better one.

    argmax      the target is the model's most likely next token (the paper's criterion)
    top-k=K     the target is among the K most likely tokens
    prob=P      p(target | subset) ≥ P
    ratio=R     p(target | subset) ≥ R · p(target | full context)
    none        never: a search goes on to its largest size
    contrast    p(target | subset) > p(alternative | subset)

A search grows a subset by what raises the *value*: log p(target), or for a contrast the difference
log p(target) − log p(alternative). What is within ``TIE`` of a level has reached it; an alternative
within ``TIE`` of the target is as likely.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from rationales.context import Context
from rationales.errors import OptionError, RationalesError
from rationales.scoring.protocol import Score
from rationales.ties import TIE

KINDS = "argmax, top-k=K, prob=P, ratio=R or none"


@dataclass(frozen=True)
class Criterion:
    """Whether a score is sufficient, and the value that a search raises."""

    met: Callable[[Score], bool]
    value: Callable[[Score], float] = lambda score: score.target_logprob


def argmax(context: Context) -> Criterion:
    """The criterion of the paper: the target is the most likely next token."""
    return Criterion(lambda score: is_first_choice(score, context))


def is_first_choice(score: Score, context: Context) -> bool:
    """Whether the target is the model's most likely token, and so each token of its span."""
    if context.span_ids and score.rank is not None:
        return score.rank == 1
    return score.prediction_id == context.target_id


def parse(text: str) -> tuple[str, float]:
    """The kind and the level that ``"prob=0.5"`` stands for, NaN if the kind has no level."""
    kind, _, level = text.partition("=")
    if text in ("argmax", "none"):
        return kind, math.nan
    try:
        number = float(level)
    except ValueError:
        number = math.nan  # which is no less and no more than anything
    if kind == "top-k" and number >= 1 and number.is_integer():
        return kind, number
    if (kind == "prob" and 0 < number <= 1) or (kind == "ratio" and 0 < number < math.inf):
        return kind, number
    raise OptionError(
        "{criterion} must be {kinds} (K a whole number, P a probability, R a share), not {value!r}",
        kinds=KINDS,
        value=text,
    )


def make_criterion(text: str, context: Context, full: Score) -> Criterion:
    """The criterion of this name for a context; ``full`` is the score of the full context.

    If the context asks for an alternative's probability, the target has to beat the alternative.
    """
    kind, level = parse(text)
    if context.extra_ids:
        return _contrast(full)
    if kind == "none":
        return Criterion(lambda score: False)
    if kind == "top-k":
        if full.rank is None:
            raise RationalesError("top-k needs the target's rank, which this scorer does not tell")
        return Criterion(lambda score: score.rank is not None and score.rank <= level)
    if kind in ("prob", "ratio"):
        least = math.log(level) + (full.target_logprob if kind == "ratio" else 0.0)
        return Criterion(lambda score: score.target_logprob >= least - TIE)
    return argmax(context)


def _contrast(full: Score) -> Criterion:
    if not full.extra_logprobs:
        raise RationalesError(
            "a contrast needs the alternative's log-probability, which this scorer does not tell"
        )

    def margin(score: Score) -> float:
        if score.target_logprob == -math.inf:  # nothing is worse, and ∞ − ∞ is no number
            return -math.inf
        return score.target_logprob - score.extra_logprobs[0]

    return Criterion(met=lambda score: margin(score) > TIE, value=margin)
