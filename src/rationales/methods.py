"""The methods by name: which search finds the rationale.

Light on purpose: the command line lists these without loading a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rationales.context import Context, Subset
from rationales.errors import RationalesError
from rationales.result import Step
from rationales.search.base import Search
from rationales.search.beam import beam
from rationales.search.combined import coarse_to_fine, disjoint
from rationales.search.criterion import Criterion, is_first_choice, make_criterion
from rationales.search.exhaustive import exhaustive
from rationales.search.fast import fast
from rationales.search.greedy import greedy
from rationales.search.ordered import ordered
from rationales.search.prune import prune
from rationales.search.soft import soft

if TYPE_CHECKING:
    from rationales.options import Options
    from rationales.ranking import Ranker
    from rationales.result import Rationale

SEARCHES = {
    "greedy": "add the token that helps most, until the target is the model's first choice",
    "exhaustive": "try every subset, small ones first: a smallest rationale, at a price",
    "beam": "keep the best few subsets of each size: never longer than greedy",
    "soft": "weigh size against probability, sufficient or not",
}
BASELINES = {
    "gradient-norm": "add by the norm of the embedding's gradient",
    "gradient-x-embedding": "add by gradient times embedding",
    "integrated-gradients": "add by gradients integrated from zero embeddings",
    "attention-rollout": "add by attention rolled out through the layers",
    "last-attention": "add by the last layer's attention",
    "all-attention": "add by the attention of all layers",
    "random": "add in random order (a control)",
    "nearest-first": "add from the target backwards (a control)",
}
METHODS = SEARCHES | BASELINES


def check_method(name: str) -> str:
    """The name, if there is such a method."""
    if name not in METHODS:
        raise RationalesError(f"unknown method {name!r}: choose one of {', '.join(METHODS)}")
    return name


@dataclass(frozen=True)
class Means:
    """What some searches need besides scores; each is there if the options call for it."""

    ranker: Ranker | None = None
    """Gives a baseline its order."""
    levels: Sequence[Iterable[Subset]] = ()
    """Units of the text, from sentences down to tokens, for ``coarse_to_fine``."""


def make_search(
    context: Context,
    options: Options,
    means: Means | None = None,
    start: Rationale | None = None,
) -> Search:
    """The search that the options ask for, from the whole context's prediction on.

    That one evaluation is not counted: it is not the search's own. ``start`` is a rationale found
    before, which ``minimal`` prunes: nothing is searched again.
    """
    means = means or Means()
    [full] = yield [context.everything]
    criterion = make_criterion(options.criterion, context, full)

    def find(context: Context) -> Search:
        if options.coarse_to_fine:
            # A size is one of tokens: sentences and words are not held to it.
            return coarse_to_fine(context, means.levels, find_any_size, find_once)
        return find_once(context)

    def find_any_size(context: Context) -> Search:
        return find_once(context, options.change(max_size=None))

    def find_once(context: Context, options: Options = options) -> Search:
        if start is None:
            rationale = yield from _search(context, criterion, options, means)
        else:
            rationale = start
        return (yield from prune(context, rationale, criterion)) if options.minimal else rationale

    rationale = yield from disjoint(context, options.disjoint, find)
    rationale = _marked(rationale, options, len(context.span) + 1)
    asked = full.asked[0] if full.asked else None
    whole = Step(
        None, full.target_logprob, full.prediction_id, full.prediction_logprob, asked_logprob=asked
    )
    return replace(rationale, predicted=is_first_choice(full, context), whole=whole)


def _search(context: Context, criterion: Criterion, options: Options, means: Means) -> Search:
    """The search of ``options.method``, on its own."""
    size = options.max_size
    if options.method == "greedy" and options.fast:
        return fast(context, criterion, max_size=size, keep_candidates=options.keep_candidates)
    if options.method == "greedy":
        return greedy(context, criterion, max_size=size, keep_candidates=options.keep_candidates)
    if options.method == "exhaustive":
        budget = options.value("max_evaluations") or None  # 0: there is none
        return exhaustive(context, criterion, max_size=size, max_evaluations=budget)
    if options.method == "beam":
        return beam(context, criterion, width=options.value("beam"), max_size=size)
    if options.method == "soft":
        return soft(context, criterion, penalty=options.value("penalty"), max_size=size)
    if means.ranker is None:
        raise RationalesError(f"the method {options.method} needs a ranker")
    return _baseline(context, criterion, means.ranker, size)


def _baseline(
    context: Context, criterion: Criterion, ranker: Ranker, max_size: int | None
) -> Search:
    from rationales.ranking import order

    # Ranked here, in the generator's body: only when the driver starts this search.
    ranked = order(context, ranker.rank(context))
    return (yield from ordered(context, ranked, criterion, max_size=max_size))


def _marked(rationale: Rationale, options: Options, span: int) -> Rationale:
    """The rationale with the length of its answer, and without units if these are tokens."""
    others = tuple(_marked(other, options, span) for other in rationale.alternatives)
    units = rationale.units if options.unit != "token" else None
    return replace(rationale, units=units, span=span, alternatives=others)
