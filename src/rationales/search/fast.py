"""Greedy search that scores a shortlist: after the first step, most units are not scored.

The first step scores S ∪ k for all k. Later steps score S ∪ k for

- the units whose last known gain is largest. The *gain* of k is what it raised the target's
  log-probability by over the subset it was last tried with; the log-probability would be stale;
- the neighbours of what was added: the rest of a word, of a name, of a phrase, which may
  help little on its own and much together;
- those that were not tried for longest, so that each has its turn every now and then.

Where units are long (sentences among thousands of tokens), the first step costs more than all the
others. There the model's own attention proposes what is tried before it: the units it attends to
most, each alone. If one of these is sufficient, nothing else is tried.

Where a coarser level has kept a few tokens only, most of them are needed: there the search starts
from all of them, and leaves out what is not.

The more units S has, the harder the target is, and the longer the shortlist. The second step also
leaps: it tries several of the best units at once. In the end, all that is not needed is dropped.

Where several units help only together, growing one by one finds none of them. So a search that has
grown large goes the other way: from the full context, best units first, it takes as few as are
sufficient, of which the last one is needed; then with that one as few as are sufficient, and so on.
If the full context is not sufficient, there is nothing to be found.

A subset is only ever called sufficient on the strength of its own score.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from rationales.context import Context, Subset
from rationales.scoring.protocol import Score
from rationales.search.base import Asking, Search, Trail, Units
from rationales.search.criterion import Criterion
from rationales.search.greedy import best_candidates
from rationales.search.prune import minimal, shrink, without_one
from rationales.ties import best_place, ranked


@dataclass(frozen=True)
class Shortlist:
    """How many units are scored in a step, and why these."""

    by_gain: int = 4
    neighbours: int = 4
    oldest: int = 2
    growth: float = 0.5
    """How many more ``by_gain`` for each unit that was added; of the ``oldest`` half as many."""
    leaps: tuple[int, ...] = (2, 3, 4, 6)
    """How many of the first step's best units the second step tries at once, besides the best."""
    patience: int = 24
    """A subset of this many units grows no further: the search starts from everything."""
    alone: int = 2
    """How many of the proposed units are tried. Several at once are not: a pair of them may be
    sufficient by chance, where a step that tries all units finds the one that belongs there."""
    few: int = 16
    """Of at most this many tokens that a coarser level has kept, all are tried at first."""
    long: int = 256
    """Units are proposed where trying each alone would take more tokens than this."""


def fast(
    context: Context,
    criterion: Criterion | None = None,
    *,
    max_size: int | None = None,
    keep_candidates: int = 0,
    shortlist: Shortlist | None = None,
    proposed: Units = (),
    with_steps: bool = True,
) -> Search:
    """A minimal rationale, found by a greedy search of far fewer evaluations.

    Unlike greedy search, a step that tries a sufficient subset takes it, even if another one raises
    the target's probability more. ``proposed`` are all units, the most promising first.
    Without steps, nothing is scored only to show how a sufficient rationale grows.
    """
    shortlist = shortlist or Shortlist()
    trail = Trail(context, criterion, max_size)
    met, value = trail.criterion.met, trail.criterion.value
    known = _Known(context, shortlist)
    alone = _proposals(trail, shortlist, proposed)
    # Candidates are those of a step that tries all of them.
    whole = [] if keep_candidates else _few_that_were_kept(trail, shortlist, proposed)
    tried: list[Units] = [(), *alone, *whole]
    next_asked = [*map(without_one, whole)] or [trail.larger(())]
    scores = yield from trail.ask(tried, [] if alone else next_asked)
    first = _smallest_sufficient(trail, tried, scores)
    trail.add((), scores[0])
    added, score = tried[first or 0], scores[first or 0]
    if added:
        trail.add(added, score)
    while not met(score) and len(added) < trail.limit:
        if len(added) >= shortlist.patience:
            added = yield from _narrow(trail, known.order(added, trail.limit), len(added))
            [score] = yield from trail.ask([added])
            break
        units = known.choose(added)
        leaps = known.leaps(added, trail.limit) if len(added) == 1 else []
        tried = [*((*added, unit) for unit in units), *leaps]
        # If the first leap is sufficient, what can be dropped of it is asked for next.
        scores = yield from trail.ask(tried, map(without_one, leaps[:1]))
        singly = scores[: len(units)]
        known.learn(units, [value(each) for each in singly], value(score))
        best = _smallest_sufficient(trail, tried, scores)
        if best is None:
            best = best_place([value(each) for each in scores])
        added, score = tried[best], scores[best]
        trail.add(added, score, best_candidates(tried[: len(units)], singly, keep_candidates))
    if met(score):
        added = yield from shrink(trail, added)
    if not trail.followed(added):
        if with_steps or not met(score):
            yield from trail.follow(added)
        else:
            trail.add(added, score)
    found = trail.at_limit()
    return minimal(found, added) if found.sufficient else found


def _proposals(trail: Trail, shortlist: Shortlist, proposed: Units) -> list[Units]:
    """What is tried before each unit is: the first of those proposed."""
    context = trail.context
    always = len(context.required) + len(context.pinned)
    if sum(len(unit) + always for unit in context.choices) <= shortlist.long:
        return []
    return [(unit,) for unit in proposed[: min(trail.limit, shortlist.alone)]]


def _few_that_were_kept(trail: Trail, shortlist: Shortlist, proposed: Units) -> list[Units]:
    """All units, the most promising first, if they are the few tokens that a level has kept."""
    context = trail.context
    is_part = len(context.everything) + len(context.pinned) < len(context.ids)
    is_few = len(context.candidates) <= shortlist.few and len(context.choices) <= trail.limit
    return [proposed or context.choices] if is_part and is_few else []


def _smallest_sufficient(
    trail: Trail, tried: Sequence[Units], scores: Sequence[Score]
) -> int | None:
    """The place of the smallest sufficient one, of these the best; None if none is sufficient."""
    places = [place for place, score in enumerate(scores) if trail.criterion.met(score)]
    size = min((len(tried[place]) for place in places), default=0)
    places = [place for place in places if len(tried[place]) == size]
    values = [trail.criterion.value(scores[place]) for place in places]
    return places[best_place(values)] if places else None


def _narrow(trail: Trail, order: Units, tried: int) -> Asking[Units]:
    """Few units that are sufficient, found from all of them; all, in text order, if none are.

    ``tried`` units at the beginning of the order are not sufficient.
    """
    sizes = [tried]
    while sizes[-1] < len(order):
        sizes.append(min(2 * sizes[-1], len(order)))
    scores = yield from trail.ask([order[:size] for size in sizes])
    sufficient = [place for place, score in enumerate(scores) if trail.criterion.met(score)]
    if not sufficient:
        return tuple(sorted(order))
    kept: Units = ()
    few, size = sizes[sufficient[0] - 1], sizes[sufficient[0]]
    while size := (yield from _shortest(trail, kept, order, few, size)):
        # Without its last unit, this was not sufficient.
        kept, order, few, size = (*kept, order[size - 1]), order[: size - 1], -1, size - 1
    return kept


def _shortest(trail: Trail, kept: Units, order: Units, few: int, sufficient: int) -> Asking[int]:
    """How many units of the order are sufficient with what is kept, such that one fewer is not."""
    while sufficient - few > 1:
        # Three at once: a pass of few tokens costs little less than one of many.
        sizes = sorted({few + max(1, (sufficient - few) * part // 4) for part in (1, 2, 3)})
        scores = yield from trail.ask([(*kept, *order[:size]) for size in sizes])
        for size, score in zip(sizes, scores, strict=True):
            if trail.criterion.met(score):
                sufficient = size
                break
            few = size
    return sufficient


class _Known:
    """What is known of each unit: its gain when it was last tried, and when that was."""

    def __init__(self, context: Context, shortlist: Shortlist) -> None:
        self._context = context
        self._shortlist = shortlist
        self._gains: dict[Subset, float] = {}
        self._tried: dict[Subset, int] = {}
        self._place = {unit: place for place, unit in enumerate(context.choices)}

    def learn(self, units: Sequence[Subset], values: Sequence[float], before: float) -> None:
        """Record the values of the units in a step, over a subset of the value ``before``."""
        step = 1 + max(self._tried.values(), default=0)
        for unit, after in zip(units, values, strict=True):
            self._gains[unit] = after - before if before > -math.inf else after
            self._tried[unit] = step

    def leaps(self, added: Units, limit: int) -> list[Units]:
        """What was added with more and more of the best units, the fewest first."""
        best = self._by_gain(unit for unit in self._gains if unit not in added)
        most = min(limit - len(added), len(best))
        return [(*added, *best[:n]) for n in sorted(self._shortlist.leaps) if n <= most]

    def order(self, added: Units, limit: int) -> Units:
        """All units, at most this many: those added first, then by their value."""
        left = [unit for unit in self._context.choices if unit not in added]
        return (*added, *self._by_gain(left))[:limit]

    def choose(self, added: Units) -> list[Subset]:
        """The units to be scored, in text order: all of them at first, then a shortlist."""
        left = [unit for unit in self._context.choices if unit not in added]
        if not self._gains:
            return left
        wanted, open_to = self._shortlist, {*left}
        more = wanted.growth * len(added)
        by_gain = self._by_gain(left)
        by_age = sorted(by_gain, key=lambda unit: self._tried[unit])
        chosen: set[Subset] = set()
        for source, places in (
            (by_gain, wanted.by_gain + int(more)),
            (self._neighbours(added), wanted.neighbours),
            (by_age, wanted.oldest + int(more / 2)),
        ):
            new = dict.fromkeys(u for u in source if u in open_to and u not in chosen)
            chosen.update(islice(new, places))
        return [unit for unit in left if unit in chosen]

    def _by_gain(self, units: Iterable[Subset]) -> list[Subset]:
        """These units from the largest known gain to the smallest."""
        units = list(units)
        return [units[place] for place in ranked([self._gains[unit] for unit in units])]

    def _neighbours(self, added: Units) -> list[Subset]:
        """The units before and after those that were added, the last added first."""
        choices = self._context.choices
        places = [self._place[unit] + side for unit in reversed(added) for side in (-1, 1)]
        return [choices[place] for place in places if 0 <= place < len(choices)]
