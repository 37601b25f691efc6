"""The search that the options ask for: a method, within a criterion, for one context."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from rationales.context import Context
from rationales.errors import BudgetError, RationalesError
from rationales.methods import BASELINES
from rationales.ranking import Importances, order
from rationales.result import Rationale
from rationales.search.base import Search, make_step, remembering
from rationales.search.beam import beam
from rationales.search.budget import nothing_known, within_budget
from rationales.search.certify import budget_of, certify
from rationales.search.combined import coarse_to_fine, disjoint, left_over
from rationales.search.criterion import Criterion, is_first_choice, make_criterion
from rationales.search.deletion import deletion
from rationales.search.exhaustive import exhaustive
from rationales.search.fast import fast
from rationales.search.greedy import greedy
from rationales.search.ordered import ordered
from rationales.search.prune import prune
from rationales.search.soft import soft

if TYPE_CHECKING:
    from rationales.options import Options

K = TypeVar("K")
Rank = Callable[[], Sequence[float]]
"""Gives a baseline the importance of each index; called when the search starts, not before."""
Attention = Callable[[Context], Sequence[float] | None]
"""The attention that a prediction pays to each index of the full context, where that is known."""

_MOST_TOGETHER = 256
"""Contexts that are attributed together at most."""


def make_searches(
    contexts: Iterable[tuple[K, Context]],
    options: Options | Callable[[K], Options],
    importances: Importances,
    start: Callable[[K], Rationale] | None = None,
    attention: Attention | None = None,
) -> Iterator[tuple[K, Context, Search]]:
    """The search of each context with its key; options and ``start`` may go by the key."""
    given = options if callable(options) else lambda key: options
    for together in _together((key, context, given(key)) for key, context in contexts):
        texts = [context for _, context, _ in together]
        for key, context, own in together:
            seed, steps = own.value("seed"), own.ig_steps
            rank = partial(importances.of, context, own.method, seed, steps, texts)
            search = make_search(context, own, rank, start and start(key), attention)
            yield key, context, remembering(search)


def make_search(
    context: Context,
    options: Options,
    rank: Rank,
    start: Rationale | None = None,
    attention: Attention | None = None,
) -> Search:
    """The search that the options ask for, after a prediction from the full context.

    That one evaluation is not counted: it is not the search's own. ``start`` is a rationale found
    before, which ``minimal`` prunes: nothing is searched again. ``attention`` proposes to a fast
    search for units what it tries first.
    """
    try:
        [full] = yield [context.everything]
    except BudgetError:
        return nothing_known(context)
    criterion = make_criterion(options.criterion, context, full)
    by_units = bool(context.levels or context.units)
    paid = attention(context) if attention and options.fast and by_units else None

    def find(within: Context, options: Options = options, with_steps: bool = True) -> Search:
        rationale = start if within is context else None
        if rationale is None:
            rationale = yield from _search(within, criterion, options, rank, paid, with_steps)
        return (yield from prune(within, rationale, criterion)) if options.minimal else rationale

    def level_by_level(context: Context) -> Search:
        # The largest size is one of tokens: it does not bound sentences and words. The steps of a
        # rationale are those of the last level.
        any_size = partial(find, options=options.change(max_size=None), with_steps=False)
        return coarse_to_fine(context, any_size, find)

    if options.coarse_to_fine and not context.levels:
        raise RationalesError("coarse-to-fine search needs levels of units: give Context(levels=…)")
    most = (options.max_evaluations or None) if options.method == "deletion" else None
    asked, is_spent = 0, False

    def search(within: Context) -> Search:
        nonlocal asked, is_spent
        left = None if most is None else most - asked
        own = level_by_level(within) if options.coarse_to_fine else find(within)
        score = full if within is context and not context.excluded else None
        rationale = yield from within_budget(within, criterion, score, own, left, options.max_size)
        asked += rationale.evaluations
        is_spent = is_spent or rationale.stopped == "budget"
        return rationale

    rationale = yield from disjoint(context, options.disjoint, search)
    if options.certify:
        left = left_over(context, rationale)
        if len(rationale.alternatives) < options.disjoint - 1 and not is_spent:
            left = None  # one more was searched for in vain
        whole = context.grouped(context.levels[-1]) if options.coarse_to_fine else context
        another = None if left is None else search(left)
        limit = budget_of(options)
        rationale = yield from certify(whole, rationale, criterion, full, limit, another)
    if context.units is None and options.finest in (None, "token"):
        # Those of disjoint and coarse-to-fine search are tokens.
        others = tuple(replace(other, units=None) for other in rationale.alternatives)
        rationale = replace(rationale, units=None, alternatives=others)
    if context.excluded:  # among all tokens, a smaller one may be sufficient
        others = tuple(replace(other, optimal=None) for other in rationale.alternatives)
        rationale = replace(rationale, optimal=None, alternatives=others)
    predicted = is_first_choice(full, context)
    step = make_step(full) if full.known else None
    return replace(rationale, predicted=predicted, full_context=step)


def _search(
    context: Context,
    criterion: Criterion,
    options: Options,
    rank: Rank,
    paid: Sequence[float] | None = None,
    with_steps: bool = True,
) -> Search:
    """The search of ``options.method``, on its own.

    ``paid`` is the attention that is paid to each index. Without steps, a fast search tells only
    what it has kept.
    """
    size, kept = options.max_size, options.keep_candidates
    match options.method:
        case "greedy" if options.fast:
            # Candidates are those of a step that tries all of them.
            proposed = () if paid is None or kept else order(context, paid)
            return fast(
                context,
                criterion,
                max_size=size,
                keep_candidates=kept,
                proposed=proposed,
                with_steps=with_steps,
            )
        case "greedy":
            return greedy(context, criterion, max_size=size, keep_candidates=kept)
        case "exhaustive":
            budget = options.value("max_evaluations") or None  # 0: there is none
            return exhaustive(context, criterion, max_size=size, max_evaluations=budget)
        case "deletion":
            return deletion(context, criterion, max_size=size)
        case "beam":
            return beam(context, criterion, width=options.value("beam"), max_size=size)
        case "soft":
            return soft(context, criterion, penalty=options.value("penalty"), max_size=size)
    units = order(context, rank(), options.absolute)
    return ordered(context, units, criterion, max_size=size)


def _together(
    asked: Iterable[tuple[K, Context, Options]],
) -> Iterator[list[tuple[K, Context, Options]]]:
    """Contexts of a baseline that extend each other, as one list; every other one by itself."""
    run: list[tuple[K, Context, Options]] = []
    for key, context, options in asked:
        if run:
            _, before, same = run[-1]
            is_longer = len(context.ids) > len(before.ids)
            extends = is_longer and context.ids[: len(before.ids)] == before.ids
            if options != same or not extends or len(run) == _MOST_TOGETHER:
                yield run
                run = []
        run.append((key, context, options))
        if options.method not in BASELINES:  # nothing to gain: the search may start at once
            yield run
            run = []
    if run:
        yield run
