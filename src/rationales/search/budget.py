"""What a search has found when the budget is spent: the smallest sufficient subset that was seen.

A budget is a number of subsets, or one of requests to an endpoint, whose scorer then raises a
``BudgetError``. Where no subset was sufficient yet, it is the one of the highest value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from rationales.context import Context, Subset
from rationales.errors import BudgetError
from rationales.result import Rationale
from rationales.scoring.protocol import Score
from rationales.search.base import Search, make_step
from rationales.search.criterion import Criterion, is_first_choice, make_criterion


def within_budget(
    context: Context, criterion: str, search: Search, most: int | None = None
) -> Search:
    """The search; its best so far, if the budget of its scorer is spent, or after ``most`` subsets.

    The full context, with which every search begins, is not counted. If not even that is known,
    nothing is: only what is required is kept.
    """
    best: _Best | None = None
    count = -1
    try:
        wanted = next(search)
        while True:
            room = None if most is None else most - count
            if room is not None and len(wanted) > room:
                if best is not None and room > 0:
                    best.look(wanted[:room], (yield wanted[:room]))
                    count += room
                raise BudgetError("no subset may be asked about")
            try:
                scores = yield wanted
            except BudgetError as error:
                if best is not None:
                    best.look(wanted, error.scores)
                raise
            if best is None:
                best = _Best(context, make_criterion(criterion, context, scores[0]), scores[0])
            best.look(wanted, scores)
            count += len(wanted)
            wanted = search.send(scores)
    except StopIteration as end:
        return cast(Rationale, end.value)
    except BudgetError:
        if best is None:
            return Rationale(
                target=len(context.ids),
                target_id=context.target_id,
                indices=context.required,
                sufficient=False,
                evaluations=0,
                stopped="budget",
                target_length=len(context.span_ids) + 1,
            )
        return best.rationale(max(0, count))
    finally:
        search.close()


@dataclass
class _Best:
    """The best subset so far."""

    context: Context
    criterion: Criterion
    full: Score
    subset: Subset | None = None
    score: Score | None = None

    def look(self, subsets: Iterable[Subset], scores: Iterable[Score | None]) -> None:
        for subset, score in zip(subsets, scores, strict=False):
            if score is not None and self._is_better(subset, score):
                self.subset, self.score = subset, score

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
        context, kept, score = self.context, self.subset or (), self.score or self.full
        order = {index: place for place, index in enumerate(kept)}
        units = [unit for unit in context.units or () if {*unit} <= {*kept}]
        units.sort(key=lambda unit: order[unit[0]])
        required = (context.required,) if context.required else ()
        return Rationale(
            target=len(context.ids),
            target_id=context.target_id,
            indices=kept,
            sufficient=self.criterion.met(score),
            evaluations=evaluations,
            steps=(make_step(score, kept),) if score.known else (),
            predicted=is_first_choice(self.full, context),
            stopped="budget",
            units=(*required, *units) if context.units is not None else None,
            target_length=len(context.span_ids) + 1,
            full_context=make_step(self.full) if self.full.known else None,
        )
