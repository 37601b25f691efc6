"""Many searches side by side, so that each forward pass is filled from all of them.

A round of questions is filled from the searches that were started first; new ones are started only
if it has room left. So answers come out one after another, in about the order of the searches, and
not all at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from rationales.context import Context, Subset
from rationales.errors import BudgetError, RationalesError
from rationales.scoring.protocol import PASS_TOKENS, Score, SubsetScorer, fresh
from rationales.scoring.span import merged, merged_known, single_tokens
from rationales.search.base import Asking, Found

Key = TypeVar("Key", bound=Hashable)

_POOL_TOKENS = 16384
"""A round of questions holds at most about this many tokens: a few forward passes."""

_FIRST_TOKENS = 512
"""What the first rounds hold, so that the first answer comes early."""

_GROWTH = 4
"""Later rounds hold more, by this fraction of what finished searches have asked: 1/4. Small rounds
keep the time between answers short, large ones share the fixed price of a forward pass."""

_LEAST_TOKENS = PASS_TOKENS
"""A search counts as at least this many tokens of a round: small questions alone do not start many
searches."""

_LOOK_AHEAD = 3
"""A round that is smaller than this many times the fixed price of a pass, in tokens, is filled up
with what searches are likely to ask for next."""

_AHEAD = 4
"""A search begins with single questions, and then asks many: it counts as if it had asked for each
token of its context in a subset of this size."""


@dataclass(eq=False)
class _Running(Generic[Key, Found]):
    key: Key
    context: Context
    search: Asking[Found]
    wanted: list[Subset]
    total: int = 0
    """The tokens of all its questions so far."""

    @property
    def tokens(self) -> int:
        """The tokens of its questions."""
        return sum(len(subset) + len(self.context.pinned) for subset in self.wanted)


def run(
    searches: Iterable[tuple[Key, Context, Asking[Found]]],
    scorer: SubsetScorer,
    *,
    on_evaluations: Callable[[int, str | None], None] | None = None,
    first_soon: bool = True,
) -> Iterator[tuple[Key, Found]]:
    """The rationale of each search, as it finishes, with the key it was given under.

    Searches are started only as a round of questions has room, so any number of them runs in
    bounded memory. ``on_evaluations`` is told how many subsets were scored each time, and at
    which level the search is that was begun first, if it goes level by level. Without
    ``first_soon``, rounds are large from the beginning: the whole is sooner done, the first later.

    An error while the questions of a search are scored is raised inside that search, and is
    the run's own only if the search does not catch it.
    """
    scorer = fresh(scorer)
    waiting = iter(searches)
    active: list[_Running[Key, Found]] = []  # in the order in which they were started
    finished = 0  # tokens that searches have asked which are finished
    try:
        while pool := _fill(active, waiting, finished if first_soon else _GROWTH * _POOL_TOKENS):
            _look_ahead(pool, getattr(scorer, "pass_tokens", 0))
            answers = _score(scorer, pool)
            if on_evaluations is not None:
                level = getattr(pool[0].wanted, "level", None)
                on_evaluations(sum(len(running.wanted) for running in pool), level)
            for running, answer in zip(pool, answers, strict=True):
                running.total += running.tokens
                try:
                    if isinstance(answer, RationalesError):
                        running.wanted = running.search.throw(answer)
                    else:
                        running.wanted = running.search.send(answer)
                except StopIteration as end:
                    active.remove(running)
                    finished += running.total
                    yield running.key, end.value
    finally:
        # Left early, by an error or by the caller: no search stays suspended.
        for running in active:
            running.search.close()


def _fill(
    active: list[_Running[Key, Found]],
    waiting: Iterator[tuple[Key, Context, Asking[Found]]],
    finished: int,
) -> list[_Running[Key, Found]]:
    """The active searches, the first ones, that fill the next round; new ones are added."""
    room = min(_POOL_TOKENS, _FIRST_TOKENS + finished // _GROWTH)
    tokens = size = 0
    before: tuple[int, ...] | None = None  # the context of the search before, if asked for whole
    while tokens < room:
        if size == len(active):
            if (new := next(waiting, None)) is None:
                break
            key, context, search = new
            active.append(_Running(key, context, search, next(search)))
        running = active[size]
        size += 1
        ids = running.context.ids
        is_single = len(running.wanted) == 1
        whole = is_single and running.wanted[0] == running.context.everything
        if whole and before is not None and before == ids[: len(before)] != ids:
            # Another target of the same text: what the two have in common is computed once, if
            # both are asked for in one round.
            tokens += len(ids) - len(before)
        else:
            tokens += max(_LEAST_TOKENS, running.tokens, is_single * _AHEAD * len(ids))
        before = ids if whole else None
    return active[:size]


def _look_ahead(pool: list[_Running[Key, Found]], pass_tokens: int) -> None:
    """Add what the searches are likely to ask for next, as far as the round is a small one.

    ``pass_tokens`` is what a forward pass costs before its first token, in tokens. A round of few
    tokens costs little less than one of a few more, and where the guess is right, the next round is
    already answered.
    """
    room = _LOOK_AHEAD * pass_tokens - sum(len(s) for running in pool for s in running.wanted)
    for running in pool:
        for block in getattr(running.wanted, "ahead", ()):
            tokens = sum(map(len, block))
            if tokens > room:
                break
            running.wanted += block
            room -= tokens


def _score(
    scorer: SubsetScorer, pool: list[_Running[Key, Found]]
) -> list[list[Score] | RationalesError]:
    """The scores that each search asked for, or the error that its questions lead to."""
    queries = [(each.context, each.context.keep(s)) for each in pool for s in each.wanted]
    try:
        single = single_tokens(queries)
        scores = scorer.score(single)
    except RationalesError as error:
        if len(pool) == 1:
            if isinstance(error, BudgetError):
                error.scores = tuple(merged_known(queries, error.scores))
            return [error]
        # One at a time, so that only those fail whose own questions do.
        return [answer for running in pool for answer in _score(scorer, [running])]
    if len(scores) != len(single):
        # Some left out would shift all the others.
        raise RationalesError(
            f"{type(scorer).__name__} was asked for {len(single)} subsets and answered "
            f"{len(scores)}: a scorer must return one score for each"
        )
    answers = iter(merged(queries, scores))
    return [[next(answers) for _ in running.wanted] for running in pool]
