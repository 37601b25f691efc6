"""What a run learns from: rows of text files and of the model's own text, each with a subset.

Row *i* of a run and its subset are functions of the seed and *i* alone. No random generator runs
along with the training, so a run that was killed continues exactly where it was.

The model's own text is sampled at temperature 1, so that no corpus is needed. A row begins with
what the tokenizer puts before a text; where it puts nothing, with a token that a given text begins
with, or else any token. Special tokens are never drawn after that: a text that is explained has
none inside.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch.utils.data import Dataset

from rationales.errors import RationalesError
from rationales.scoring import positions
from rationales.text import Tokenizer, prefix_ids

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_ROWS_AT_ONCE = 64


def generator(seed: int, purpose: str, number: int) -> torch.Generator:
    """A random generator of its own for each purpose and number, such as a row."""
    digest = hashlib.sha256(f"{seed}/{purpose}/{number}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))


@dataclass(frozen=True)
class Rows(Dataset[dict[str, torch.Tensor]]):
    """The rows of a whole run, in the order in which it takes them: ``ids`` and ``keep`` of each.

    Each source, (rows, length), is gone through in a random order, then again in another one.
    """

    files: torch.Tensor
    seed: int
    own: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    """The model's own text."""
    own_share: float = 0.0
    draw: Callable[[torch.Generator], torch.Tensor] | None = None
    """Draws the subset of a row, (heads or 1, length); None: every context is complete."""

    def __post_init__(self) -> None:
        for source, share in ((self.files, 1 - self.own_share), (self.own, self.own_share)):
            if share > 0 and not len(source):
                raise RationalesError("there is no row of text to learn from")

    def __len__(self) -> int:
        return 10**12  # the run ends before

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        item = {"ids": self._row(number).long()}
        if self.draw is not None:
            item["keep"] = self.draw(generator(self.seed, "subsets", number))
        return item

    def _row(self, number: int) -> torch.Tensor:
        # Own rows are spread evenly: of the first n rows, ⌊n · share⌋ are.
        own_before, own_after = (int(n * self.own_share) for n in (number, number + 1))
        if own_after > own_before:
            return self._pick(self.own, "own", own_before)
        return self._pick(self.files, "files", number - own_before)

    def _pick(self, source: torch.Tensor, name: str, number: int) -> torch.Tensor:
        epoch, place = divmod(number, len(source))
        return source[_order(self.seed, name, epoch, len(source))[place]]


@lru_cache(maxsize=4)
def _order(seed: int, name: str, epoch: int, rows: int) -> torch.Tensor:
    """The order in which the rows of a source are taken for the n-th time."""
    return torch.randperm(rows, generator=generator(seed, name, epoch))


@torch.no_grad()
def sample_rows(
    model: PreTrainedModel,
    tokenizer: Tokenizer,
    shape: tuple[int, int],
    *,
    seed: int,
    starts: torch.Tensor | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> torch.Tensor:
    """The model's own text, (rows, length) of int32 for this shape; the same for the same seed.

    ``starts`` are ids that texts begin with, to draw the first token from.
    """
    rows, length = shape
    vocabulary = int(positions.text_config(model).vocab_size)
    forbidden = torch.zeros(vocabulary, dtype=torch.bool)
    forbidden[[id for id in tokenizer.all_special_ids if 0 <= id < vocabulary]] = True
    forbidden[len(tokenizer) :] = True  # rows of the embedding that stand for nothing
    first = starts if starts is not None else (~forbidden).nonzero()[:, 0]
    prefix = prefix_ids(tokenizer)
    sampled = []
    for start in range(0, rows, _ROWS_AT_ONCE):
        count = min(_ROWS_AT_ONCE, rows - start)
        draw = generator(seed, "sample", start)
        if prefix:
            ids = torch.tensor(prefix).expand(count, -1)
        else:
            ids = first[torch.randint(len(first), (count, 1), generator=draw)].long()
        new, cache = ids, None
        while ids.shape[1] < length:
            progress((start + count * ids.shape[1] / length) / rows)
            output = model(input_ids=new.to(model.device), past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            # Drawn on the CPU: the same tokens, whichever device computes the logits.
            logits = output.logits[:, -1].float().cpu().masked_fill_(forbidden, -math.inf)
            new = torch.multinomial(logits.softmax(-1), 1, generator=draw)
            ids = torch.cat([ids, new], dim=1)
        sampled.append(ids[:, :length])
    return torch.cat(sampled).int()
