"""Beam search: the B best subsets of each size, and greedy search's own, are grown further.

    beam_{n+1} = the B best of { S ∪ k : S ∈ beam_n, k ∉ S },  and the best of { G_n ∪ k }

Greedy's path G is always among them, so the first size at which any subset is sufficient is never
larger than greedy's.
"""

from __future__ import annotations

from rationales.context import Context, Subset
from rationales.search.base import Search, Trail, Units
from rationales.search.criterion import Criterion
from rationales.ties import best_place, ranked


def beam(
    context: Context,
    criterion: Criterion | None = None,
    *,
    width: int = 3,
    max_size: int | None = None,
) -> Search:
    """The best of the smallest sufficient subsets in the beam; ties go to the one found first."""
    trail = Trail(context, criterion, max_size)
    met, value = trail.criterion.met, trail.criterion.value
    [score] = yield from trail.ask([()])
    if met(score):
        return (yield from trail.follow(()))
    states: list[Units] = [()]
    greedy: Units = ()
    for _ in range(trail.limit):
        grown: dict[frozenset[Subset], Units] = {}
        for state in (greedy, *states):
            for larger in trail.larger(state):
                grown.setdefault(frozenset(larger), larger)
        tried = list(grown.values())
        scores = yield from trail.ask(tried)
        values = [value(score) for score in scores]
        sufficient = [place for place, score in enumerate(scores) if met(score)]
        if sufficient:
            best = sufficient[best_place([values[place] for place in sufficient])]
            return (yield from trail.follow(tried[best]))
        states = [tried[place] for place in ranked(values)[:width]]
        # Greedy's own children come first, so that their order of being added is greedy's.
        greedy = tried[best_place(values[: len(context.choices) - len(greedy)])]
    yield from trail.follow(greedy)
    return trail.at_limit()
