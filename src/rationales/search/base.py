"""What searches have in common: the form of a generator, and a trail of steps.

A search is written for one target. It yields a list of subsets it wants scored, receives their
scores in the same order, and returns a rationale. It knows nothing of models or batches. With the
list it may tell what it is likely to ask for next: a forward pass has its price, and what is
answered ahead saves one. What a search finds does not depend on what was answered ahead.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TypeVar, cast

from rationales.context import Context, Subset
from rationales.errors import BudgetError
from rationales.result import Candidate, Rationale, Step, Stopped
from rationales.scoring.protocol import Score
from rationales.search.criterion import Criterion, argmax

Found = TypeVar("Found")
Asking = Generator[list[Subset], list[Score], Found]
"""Yields subsets, is sent their scores, and returns what it has found."""
Search = Asking[Rationale]

Units = tuple[Subset, ...]
"""Units in the order in which they were added, after what is required."""

_REMEMBERED = 20_000
"""Subsets of one target that are remembered at most; only exhaustive search has more."""


class Asked(list[Subset]):
    """The subsets that a search asks for; whoever answers may extend it by blocks from ``ahead``.

    A block is likely to be asked for next, the first one most; a part of one would save nothing.
    """

    level: str | None = None
    """What the units are called that the search adds now, in a search level by level."""

    def __init__(self, subsets: Iterable[Subset], ahead: Iterator[list[Subset]]) -> None:
        super().__init__(subsets)
        self.ahead = ahead


def remembering(search: Asking[Found]) -> Asking[Found]:
    """The search, asked nothing twice: levels, pruning and proofs ask about the same subsets."""
    known: dict[frozenset[int], Score] = {}

    def unknown(subsets: Iterable[Subset]) -> list[Subset]:
        return [*{key: s for s in subsets if (key := frozenset(s)) not in known}.values()]

    try:
        wanted = next(search)
        while True:
            found: dict[frozenset[int], Score] = {}
            if new := unknown(wanted):
                asked = Asked(new, map(unknown, getattr(wanted, "ahead", ())))
                asked.level = getattr(wanted, "level", None)
                try:
                    scores = yield asked
                except BudgetError as error:
                    for subset, score in zip(asked, error.scores, strict=False):
                        if score is not None:
                            known[frozenset(subset)] = score
                    told = [known.get(frozenset(s)) for s in wanted]
                    wanted = search.throw(BudgetError(str(error), told))
                    continue
                found = {frozenset(s): score for s, score in zip(asked, scores, strict=True)}
                wanted += asked[len(new) :]
            keys = [*map(frozenset, wanted)]
            answers = [found[key] if key in found else known[key] for key in keys]
            if len(known) < _REMEMBERED:
                known |= found
            wanted = search.send(answers)
    except StopIteration as end:
        return cast(Found, end.value)
    finally:
        search.close()


def at_level(level: str, search: Search) -> Search:
    """The search, which tells the level with all that it asks for."""
    try:
        wanted = next(search)
        while True:
            if isinstance(wanted, Asked):
                wanted.level = level
            wanted = search.send((yield wanted))
    except StopIteration as end:
        return cast(Rationale, end.value)
    finally:
        search.close()


class Trail:
    """The steps of one search so far, what it has asked, and how many evaluations that took."""

    def __init__(
        self, context: Context, criterion: Criterion | None = None, max_size: int | None = None
    ) -> None:
        self.context = context
        self.criterion = criterion or argmax(context)
        self.limit = len(context.choices)
        """How many units may be added, if at most ``max_size`` are kept."""
        if max_size is not None:
            self.limit = max(0, min(self.limit, max_size - required_size(context)))
        self.added: Units = ()
        self.sufficient = False
        self.evaluations = 0
        self._steps: list[Step] = []
        self._is_scored = True
        self._known: dict[frozenset[int], Score] = {}
        self._ahead: dict[frozenset[int], Score] = {}
        """What was answered and not asked for yet."""

    def ask(
        self, many: Sequence[Units], ahead: Iterable[Sequence[Units]] = ()
    ) -> Asking[list[Score]]:
        """The scores of what is required with each of these; what is known is not asked again.

        ``ahead`` are blocks that are likely to be asked for next.
        """
        keys = [frozenset(self.subset(units)) for units in many]
        new = {key: units for key, units in zip(keys, many, strict=True) if key not in self._known}
        self.evaluations += len(new)
        found = {key: self._ahead.pop(key) for key in new if key in self._ahead}
        if wanted := [self.subset(units) for key, units in new.items() if key not in found]:
            asked = Asked(wanted, self._blocks(wanted, ahead))
            answers = yield asked
            for subset, score in zip(asked, answers, strict=True):
                key = frozenset(subset)
                (found if key in new else self._ahead)[key] = score
        scores = [found[key] if key in found else self._known[key] for key in keys]
        if len(self._known) < _REMEMBERED:
            self._known |= found
        return scores

    def _blocks(
        self, wanted: Sequence[Subset], ahead: Iterable[Sequence[Units]]
    ) -> Iterator[list[Subset]]:
        """What is new in each block, as subsets."""
        seen = {*map(frozenset, wanted)}
        for block in ahead:
            subsets = {frozenset(subset): subset for subset in map(self.subset, block)}
            new = subsets.keys() - seen - self._known.keys() - self._ahead.keys()
            seen |= new
            yield [subset for key, subset in subsets.items() if key in new]

    def subset(self, units: Units) -> Subset:
        """The indices of what is required and these units, in the order in which they come."""
        return (*self.context.required, *(index for unit in units for index in unit))

    def larger(self, units: Units) -> list[Units]:
        """These units with each of the others added, in text order."""
        return [(*units, unit) for unit in self.context.choices if unit not in units]

    def add(self, units: Units, score: Score, candidates: Sequence[Candidate] = ()) -> None:
        """Record that the search has moved on to these units, the last of which is new."""
        self.added = units
        self.sufficient = self.criterion.met(score)
        self._is_scored = self._is_scored and score.known
        new = units[-1] if units else self.context.required
        self._steps.append(make_step(score, new, candidates))

    def rationale(self, stopped: Stopped | None = None) -> Rationale:
        """The rationale at the end of this trail."""
        context = self.context
        required = (context.required,) if context.required else ()
        return Rationale(
            target=len(context.ids),
            target_id=context.target_id,
            indices=self.subset(self.added),
            sufficient=self.sufficient,
            evaluations=self.evaluations,
            steps=tuple(self._steps) if self._is_scored else (),
            stopped=None if self.sufficient else stopped,
            units=(*required, *self.added) if context.units is not None else None,
            target_length=len(context.span_ids) + 1,
        )

    def at_limit(self) -> Rationale:
        """The rationale where no more units may be added."""
        return self.rationale("max-size" if self.limit < len(self.context.choices) else None)

    def followed(self, units: Units) -> bool:
        """Whether the steps so far are the ones that lead to these units, one by one."""
        return self.added == units and len(self._steps) == len(units) + 1

    def follow(self, units: Units) -> Search:
        """The rationale with exactly these units: their prefixes are scored to show the steps."""
        prefixes = [units[:size] for size in range(len(units) + 1)]
        scores = yield from self.ask(prefixes)
        self._steps.clear()
        for prefix, score in zip(prefixes, scores, strict=True):
            self.add(prefix, score)
        return self.rationale()


def make_step(score: Score, new: Subset = (), candidates: Sequence[Candidate] = ()) -> Step:
    """The step that adds this unit and has this score."""
    return Step(
        index=new[-1] if new else None,
        target_logprob=score.target_logprob,
        prediction_id=score.prediction_id,
        prediction_logprob=score.prediction_logprob,
        candidates=tuple(candidates),
        unit=new if len(new) > 1 else None,
        contrast_logprob=score.extra_logprobs[0] if score.extra_logprobs else None,
    )


def required_size(context: Context) -> int:
    """How many units are required: as many as tokens, or one, if units are larger."""
    return len(context.required) if context.units is None else bool(context.required)
