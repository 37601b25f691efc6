"""The methods by name: which search finds the rationale.

Light on purpose: the command line lists these without loading a model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rationales.context import Context
from rationales.errors import RationalesError
from rationales.options import Options
from rationales.search.base import Search
from rationales.search.exhaustive import exhaustive
from rationales.search.greedy import greedy
from rationales.search.ordered import ordered

if TYPE_CHECKING:
    from rationales.ranking import Ranker

SEARCHES = {
    "greedy": "add the token that helps most, until the target is the model's first choice",
    "exhaustive": "try every subset, small ones first: a smallest rationale, at a price",
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


def make_search(context: Context, options: Options, ranker: Ranker | None = None) -> Search:
    """The search of ``options.method`` for this context; the ranker gives baselines their order."""
    if options.method == "greedy":
        return greedy(context, max_size=options.max_size, keep_candidates=options.keep_candidates)
    if options.method == "exhaustive":
        return exhaustive(
            context, max_size=options.max_size, max_evaluations=options.max_evaluations
        )
    if ranker is None:
        raise RationalesError(f"the method {options.method} needs a ranker")
    return _baseline(context, ranker, options.max_size)


def _baseline(context: Context, ranker: Ranker, max_size: int | None) -> Search:
    from rationales.ranking import order

    # Ranked here, in the generator's body: only when the driver starts this search.
    return (yield from ordered(context, order(context, ranker.rank(context)), max_size=max_size))
