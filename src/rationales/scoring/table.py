"""Exact answers from a dictionary: the fake scorer that tests and tutorials use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rationales.errors import RationalesError
from rationales.scoring.protocol import Query, Score

Table = Mapping[frozenset[int], Score] | Callable[[frozenset[int]], Score]


class TableScorer:
    """Scores each kept set by looking it up.

    The table maps a frozen set of kept indices (pinned ones included) to a ``Score``; a function
    from such a set serves as well. ``scored`` records every set in the order of the queries.

    >>> from rationales import Context, Score, TableScorer, rationalize
    >>> table = {frozenset({1}): Score(-2.0, 7), frozenset({0, 1}): Score(-0.1, 5)}
    >>> rationalize(Context(ids=(3, 4), target_id=5, required=(1,)), TableScorer(table)).indices
    (1, 0)
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self.scored: list[frozenset[int]] = []

    def score(self, queries: Sequence[Query]) -> list[Score]:
        """The table's entry for each query's kept set."""
        kept = [frozenset(indices) for _, indices in queries]
        self.scored += kept
        return [self._look_up(key) for key in kept]

    def _look_up(self, key: frozenset[int]) -> Score:
        if callable(self._table):
            return self._table(key)
        try:
            return self._table[key]
        except KeyError:
            raise RationalesError(f"the table has no entry for the set {sorted(key)}") from None
