"""What searches have in common: the form of a generator, and a trail of steps.

A search is written for one target. It yields a list of subsets it wants scored, receives their
scores in the same order, and returns a rationale. It knows nothing of models or batches.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from rationales.context import Context, Subset
from rationales.rationale import Candidate, Rationale, Step
from rationales.scoring.protocol import Score

Search = Generator[list[Subset], list[Score], Rationale]


class Trail:
    """The steps of one search so far, and how many evaluations they took."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._steps: list[Step] = []
        self.indices: Subset = ()
        self.evaluations = 0

    def ask(self, subsets: Sequence[Subset]) -> Generator[list[Subset], list[Score], list[Score]]:
        """The scores of these subsets, counted."""
        self.evaluations += len(subsets)
        return (yield list(subsets))

    def add(self, subset: Subset, score: Score, candidates: Sequence[Candidate] = ()) -> None:
        """Record that the search has moved on to this subset, its last index being the new one."""
        self.indices = subset
        self._steps.append(
            Step(
                index=subset[-1] if subset else None,
                target_logprob=score.target_logprob,
                prediction_id=score.prediction_id,
                prediction_logprob=score.prediction_logprob,
                candidates=tuple(candidates),
            )
        )

    @property
    def sufficient(self) -> bool:
        """Whether the last step's subset yields the target."""
        return bool(self._steps) and self._steps[-1].prediction_id == self._context.target_id

    def rationale(self, stopped: str | None = None) -> Rationale:
        """The rationale at the end of this trail."""
        return Rationale(
            target=len(self._context.ids),
            target_id=self._context.target_id,
            indices=self.indices,
            sufficient=self.sufficient,
            evaluations=self.evaluations,
            steps=tuple(self._steps),
            stopped=None if self.sufficient else stopped,
        )


def follow(context: Context, indices: Sequence[int], trail: Trail) -> Search:
    """The rationale with exactly these indices: their prefixes are scored to show the steps."""
    start = len(context.required)
    subsets = [tuple(indices[:size]) for size in range(start, len(indices) + 1)]
    scores = yield from trail.ask(subsets)
    for subset, score in zip(subsets, scores, strict=True):
        trail.add(subset, score)
    return trail.rationale()
