"""Many searches side by side, so that each forward pass is filled from all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from rationales.context import Context, Subset
from rationales.errors import RationalesError
from rationales.rationale import Rationale
from rationales.scoring.protocol import Query, Score, SubsetScorer, fresh
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
    scorer = fresh(scorer)
    waiting = iter(searches)
    active: deque[_Running[Key]] = deque()
    pool: deque[_Running[Key]] = deque()
    try:
        while True:
            tokens = 0
            while tokens < _POOL_TOKENS:
                begun = active.popleft() if active else _start(waiting)
                if begun is None:
                    break
                pool.append(begun)
                tokens += sum(_cost(begun.context, subset) for subset in begun.wanted)
            if not pool:
                return
            queries = [(r.context, r.context.keep(s)) for r in pool for s in r.wanted]
            scores = iter(_ask(scorer, queries))
            if on_evaluations is not None:
                on_evaluations(len(queries))
            while pool:
                running = pool.popleft()
                answers = [next(scores) for _ in running.wanted]
                try:
                    running.wanted = running.search.send(answers)
                except StopIteration as finished:
                    yield running.key, finished.value
                else:
                    active.append(running)
    finally:
        # Left early, by an error or by the caller: no search stays suspended.
        for running in (*pool, *active):
            running.search.close()


def _start(waiting: Iterator[tuple[Key, Context, Search]]) -> _Running[Key] | None:
    """The next of the waiting searches, with its first questions; None if there is no other."""
    for key, context, search in waiting:
        return _Running(key, context, search, next(search))
    return None


def _cost(context: Context, subset: Subset) -> int:
    """The tokens of a question; an empty one counts too, or the pool would never be full."""
    return max(1, len(subset) + len(context.pinned))


def _ask(scorer: SubsetScorer, queries: list[Query]) -> list[Score]:
    """One score for each query: a scorer that leaves some out would shift all the others."""
    scores = scorer.score(queries)
    if len(scores) != len(queries):
        raise RationalesError(
            f"{type(scorer).__name__} was asked for {len(queries)} subsets and answered "
            f"{len(scores)}: a scorer must return one score for each"
        )
    return scores
