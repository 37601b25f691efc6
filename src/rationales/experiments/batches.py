"""Batches of sentence pairs: about as many tokens in each, of sentences that are about as long.

In each epoch the pairs are shuffled, sorted by their lengths (pairs of the same lengths stay
shuffled), cut into batches, and the batches are shuffled. As the sorted lengths are the same in
every epoch, so are the cuts: a batch is a function of the seed and the number of the step alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch.nn.utils.rnn import pad_sequence

from rationales.compat.rows import generator
from rationales.errors import RationalesError

NO_TARGET = -100
"""In the place of a target where a row is shorter than others; cross entropy leaves it out."""


@dataclass(frozen=True)
class PairBatch:
    """Rows of a step, padded on the right."""

    sources: torch.Tensor
    """(rows, longest source), with pad tokens."""
    targets: torch.Tensor
    """(rows, longest target): what is predicted, with ``NO_TARGET`` after the end."""

    @property
    def tokens(self) -> int:
        """How many tokens there are on the target side, which are the ones that are learned."""
        return int((self.targets != NO_TARGET).sum())

    def inputs(self, start: int, pad: int) -> torch.Tensor:
        """What the decoder reads: the targets one place later, after the token it starts with."""
        moved = self.targets.roll(1, dims=1)
        moved[:, 0] = start
        return moved.masked_fill(moved == NO_TARGET, pad)


@dataclass(frozen=True, eq=False)
class Batches:
    """Pairs of token ids in an endless sequence of batches."""

    sources: Sequence[Sequence[int]]
    targets: Sequence[Sequence[int]]
    tokens: int
    """At most so many in a batch, of both sides, with pads; a pair that has more is on its own."""
    pad: int
    seed: int

    def __post_init__(self) -> None:
        if not self.sources:
            raise RationalesError("there is no pair to learn from")
        if self.tokens < 1:
            raise RationalesError(f"batch-tokens must be at least 1, not {self.tokens}")

    def batch(self, step: int) -> PairBatch:
        """The batch of a step, counted from 0."""
        epoch, place = divmod(step, self.per_epoch)
        order, shuffled = self._epoch(epoch)
        start, end = self._cuts[int(shuffled[place])]
        rows = order[start:end].tolist()
        return PairBatch(
            self._padded([self.sources[row] for row in rows], self.pad),
            self._padded([self.targets[row] for row in rows], NO_TARGET),
        )

    @property
    def per_epoch(self) -> int:
        """Batches until every pair was seen once."""
        return len(self._cuts)

    @staticmethod
    def _padded(rows: list[Sequence[int]], pad: int) -> torch.Tensor:
        tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
        return pad_sequence(tensors, batch_first=True, padding_value=pad)

    @cached_property
    def _lengths(self) -> torch.Tensor:
        """(pairs, 2): of the targets, of the sources."""
        pairs = zip(self.targets, self.sources, strict=True)
        return torch.tensor([[len(target), len(source)] for target, source in pairs])

    @cached_property
    def _keys(self) -> torch.Tensor:
        """What pairs are sorted by: the length of the target, then that of the source."""
        return self._lengths[:, 0] * (int(self._lengths[:, 1].max()) + 1) + self._lengths[:, 1]

    @cached_property
    def _cuts(self) -> list[tuple[int, int]]:
        """Where the batches begin and end among the sorted pairs."""
        cuts, start, longest = [], 0, 0
        lengths = self._lengths[self._keys.argsort()].tolist()
        for index, (target, source) in enumerate(lengths):
            longest = max(longest, source)
            if index > start and (index + 1 - start) * (target + longest) > self.tokens:
                cuts.append((start, index))
                start, longest = index, source
        return [*cuts, (start, len(lengths))]

    @lru_cache(maxsize=2)  # noqa: B019 — there are one or two of these in a run
    def _epoch(self, epoch: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The pairs of an epoch in their order, and its batches in theirs."""
        order = torch.randperm(len(self.sources), generator=generator(self.seed, "pairs", epoch))
        order = order[self._keys[order].argsort(stable=True)]
        shuffled = torch.randperm(self.per_epoch, generator=generator(self.seed, "batches", epoch))
        return order, shuffled
