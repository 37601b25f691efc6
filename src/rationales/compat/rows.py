"""Which rows a step learns from: a function of the seed and the number of the step alone.

No generator runs along with the training, so a run that was killed goes on exactly where it was.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch

from rationales.errors import RationalesError


def generator(seed: int, purpose: str, number: int) -> torch.Generator:
    """A random generator of its own for each purpose and number, such as a step."""
    digest = hashlib.sha256(f"{seed}/{purpose}/{number}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))


@dataclass(frozen=True)
class Rows:
    """Rows of text files and of the model's own text, (rows, length), in an endless random order.

    Each source is gone through in a random order, and then again in another one.
    """

    files: torch.Tensor
    own: torch.Tensor
    own_share: float
    seed: int
    pinned: int = 0
    """How many tokens at the start of each row are special ones, which are always kept."""

    def __post_init__(self) -> None:
        for source, share in ((self.files, 1 - self.own_share), (self.own, self.own_share)):
            if share > 0 and not len(source):
                raise RationalesError("there is no row of text to learn from")

    def batch(self, step: int, rows: int) -> torch.Tensor:
        """The rows of a step, counted from 0: (rows, length), of int64."""
        chosen = [self._row(number) for number in range(step * rows, (step + 1) * rows)]
        return torch.stack(chosen).long()

    def _row(self, number: int) -> torch.Tensor:
        # Own rows are spread evenly: of the first n rows, ⌊n · share⌋ are.
        own_before, own_after = (int(n * self.own_share) for n in (number, number + 1))
        if own_after > own_before:
            return self._pick(self.own, "own", own_before)
        return self._pick(self.files, "files", number - own_before)

    def _pick(self, source: torch.Tensor, name: str, number: int) -> torch.Tensor:
        epoch, place = divmod(number, len(source))
        order = torch.randperm(len(source), generator=generator(self.seed, name, epoch))
        return source[order[place]]
