"""Many searches side by side, so that each forward pass is filled from all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from rationales.context import Context, Subset
from rationales.rationale import Rationale
from rationales.scoring.protocol import SubsetScorer
from rationales.search.base import Search

Key = TypeVar("Key", bound=Hashable)

_POOL_TOKENS = 16384
"""Questions are gathered until they hold this many tokens: a few forward passes' worth."""


@dataclass
class _Running(Generic[Key]):
    key: Key
    context: Context
    search: Search
    wanted: list[Subset]


def run(
    searches: Iterable[tuple[Key, Context, Search]],
    scorer: SubsetScorer,
    *,
    on_evaluations: Callable[[int], None] | None = None,
) -> Iterator[tuple[Key, Rationale]]:
    """The rationale of each search, as it finishes, with the key it was given under.

    Searches are started only as the pool of questions has room, so any number of them runs in
    bounded memory. ``on_evaluations`` is told how many subsets were scored each time.
    """
    waiting = iter(searches)
    active: deque[_Running[Key]] = deque()
    exhausted = False
    while True:
        pool: list[_Running[Key]] = []
        tokens = 0
        while tokens < _POOL_TOKENS:
            if active:
                running = active.popleft()
            elif not exhausted:
                try:
                    key, context, search = next(waiting)
                except StopIteration:
                    exhausted = True
                    continue
                running = _Running(key, context, search, next(search))
            else:
                break
            pool.append(running)
            tokens += sum(len(s) + len(running.context.pinned) for s in running.wanted)
        if not pool:
            return
        scores = iter(
            scorer.score([(r.context, r.context.keep(s)) for r in pool for s in r.wanted])
        )
        if on_evaluations is not None:
            on_evaluations(sum(len(r.wanted) for r in pool))
        for running in pool:
            answers = [next(scores) for _ in running.wanted]
            try:
                running.wanted = running.search.send(answers)
            except StopIteration as finished:
                yield running.key, finished.value
            else:
                active.append(running)
