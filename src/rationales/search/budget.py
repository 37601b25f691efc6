"""What a search has found when the budget is spent: the smallest sufficient subset that was seen.

A budget is a number of subsets, or one of requests to an endpoint, whose scorer then raises a
``BudgetError``. Where no subset was sufficient yet, it is the one of the highest value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

from rationales.context import Context, Subset
from rationales.errors import BudgetError
from rationales.result import Rationale
from rationales.scoring.protocol import Score
from rationales.search.base import Search, make_step
from rationales.search.criterion import Criterion


def within_budget(
    context: Context,
    criterion: Criterion,
    full: Score | None,
    search: Search,
    most: int | None = None,
    max_size: int | None = None,
) -> Search:
    """The search; its best so far, if the budget of its scorer is spent, or after ``most`` subsets.

    The best has at most ``max_size`` units, those of the last level. ``full`` is the score of the
    full context; None if the search may not keep all of it.
    """
    best = _Best(context, criterion, max_size)
    if full is not None:
        best.look([context.everything], [full])
    seen = set() if full is None else {frozenset(context.everything)}
    count = 0
    try:
        wanted = next(search)
        while True:
            new: list[Subset] = wanted
            if most is not None:  # what was asked before costs nothing
                new = [*{key: s for s in wanted if (key := frozenset(s)) not in seen}.values()]
                seen |= {*map(frozenset, new)}
                if len(new) > (room := most - count):
                    if room > 0:
                        best.look(new[:room], (yield new[:room]))
                        count += room
                    raise BudgetError("no subset may be asked about")
            try:
                scores = yield wanted
            except BudgetError as error:
                best.look(wanted, error.scores)
                raise
            best.look(wanted, scores)
            count += len(new)
            wanted = search.send(scores)
    except StopIteration as end:
        return cast(Rationale, end.value)
    except BudgetError:
        return best.rationale(count)
    finally:
        search.close()


def nothing_known(context: Context) -> Rationale:
    """What is reported if nothing could be scored: what is required is kept."""
    return Rationale(
        target=len(context.ids),
        target_id=context.target_id,
        indices=context.required,
        sufficient=False,
        evaluations=0,
        stopped="budget",
        target_length=len(context.span_ids) + 1,
    )


@dataclass
class _Best:
    """The best subset so far."""

    context: Context
    criterion: Criterion
    max_size: int | None = None
    subset: Subset | None = None
    score: Score | None = None

    def look(self, subsets: Iterable[Subset], scores: Iterable[Score | None]) -> None:
        for subset, score in zip(subsets, scores, strict=False):
            if score is not None and self._fits(subset) and self._is_better(subset, score):
                self.subset, self.score = subset, score

    def _fits(self, subset: Subset) -> bool:
        """Whether it may be kept: it is not too large."""
        if self.max_size is None:
            return True
        units = self._finest.units
        if units is None:
            return len(subset) <= self.max_size
        kept = {*subset}
        size = sum(not kept.isdisjoint(unit) for unit in units)
        return size + bool(self.context.required) <= self.max_size

    @cached_property
    def _finest(self) -> Context:
        """The context with the units of its last level."""
        context = self.context
        return context.grouped(context.levels[-1]) if context.levels else context

    def _is_better(self, subset: Subset, score: Score) -> bool:
        met, value = self.criterion.met, self.criterion.value
        if self.score is None or self.subset is None:
            return True
        if met(score) != met(self.score):
            return met(score)
        if met(score):
            return len(subset) < len(self.subset)
        # The full context, which came first, is not sufficient either: anything is shorter.
        is_all = len(self.subset) == len(self.context.everything)
        return is_all or value(score) > value(self.score)

    def rationale(self, evaluations: int) -> Rationale:
        """The rationale of the best subset."""
        if self.subset is None or self.score is None:
            nothing = replace(nothing_known(self._finest), evaluations=evaluations)
            if self._finest.units is None:
                return nothing
            return replace(nothing, units=(nothing.indices,) if nothing.indices else ())
        context, kept, score = self._finest, self.subset, self.score
        order = {index: place for place, index in enumerate(kept)}
        units = [unit for unit in context.units or () if {*unit} <= {*kept}]
        units.sort(key=lambda unit: order[unit[0]])
        required = (tuple(i for i in context.required if i in order),) if context.required else ()
        return replace(
            nothing_known(context),
            indices=kept,
            sufficient=self.criterion.met(score),
            evaluations=evaluations,
            steps=(make_step(score, kept),) if score.known else (),
            units=(*required, *units) if context.units is not None else None,
        )
