"""The search that the options ask for: a method, within a criterion, for one context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rationales.context import Context
from rationales.errors import RationalesError
from rationales.ranking import order
from rationales.result import Rationale, Step
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

Importances = Callable[[], Sequence[float]]
"""Gives a baseline the importance of each index; called when the search starts, not before."""


def make_search(
    context: Context,
    options: Options,
    importances: Importances | None = None,
    start: Rationale | None = None,
) -> Search:
    """The search that the options ask for, after a prediction from the full context.

    That one evaluation is not counted: it is not the search's own. ``start`` is a rationale found
    before, which ``minimal`` prunes: nothing is searched again.
    """
    [full] = yield [context.everything]
    criterion = make_criterion(options.criterion, context, full)

    def find(context: Context) -> Search:
        if options.coarse_to_fine:
            # The largest size is one of tokens: it does not bound sentences and words.
            return coarse_to_fine(context, context.levels, find_any_size, find_once)
        return find_once(context)

    def find_any_size(context: Context) -> Search:
        return find_once(context, options.change(max_size=None))

    def find_once(context: Context, options: Options = options) -> Search:
        if start is None:
            rationale = yield from _search(context, criterion, options, importances)
        else:
            rationale = start
        return (yield from prune(context, rationale, criterion)) if options.minimal else rationale

    if options.coarse_to_fine and not context.levels:
        raise RationalesError("coarse-to-fine search needs levels of units: give Context(levels=…)")
    rationale = yield from disjoint(context, options.disjoint, find)
    rationale = _finished(rationale, options, len(context.span_ids) + 1)
    given_all = Step(
        None,
        full.target_logprob,
        full.prediction_id,
        full.prediction_logprob,
        contrast_logprob=full.extra_logprobs[0] if full.extra_logprobs else None,
    )
    return replace(rationale, predicted=is_first_choice(full, context), full_context=given_all)


def _search(
    context: Context, criterion: Criterion, options: Options, importances: Importances | None
) -> Search:
    """The search of ``options.method``, on its own."""
    size = options.max_size
    match options.method:
        case "greedy":
            search = fast if options.fast else greedy
            kept = options.keep_candidates
            return search(context, criterion, max_size=size, keep_candidates=kept)
        case "exhaustive":
            budget = options.value("max_evaluations") or None  # 0: there is none
            return exhaustive(context, criterion, max_size=size, max_evaluations=budget)
        case "beam":
            return beam(context, criterion, width=options.value("beam"), max_size=size)
        case "soft":
            return soft(context, criterion, penalty=options.value("penalty"), max_size=size)
    if importances is None:
        raise RationalesError(f"the method {options.method} needs importances")
    return ordered(
        context, order(context, importances(), options.absolute), criterion, max_size=size
    )


def _finished(rationale: Rationale, options: Options, target_length: int) -> Rationale:
    """The rationale with the length of its target, and without units if these are tokens."""
    others = tuple(_finished(other, options, target_length) for other in rationale.alternatives)
    units = rationale.units if options.unit != "token" else None
    return replace(rationale, units=units, target_length=target_length, alternatives=others)
