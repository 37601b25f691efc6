"""Which tokens of a sequence are kept: the distributions of subsets that word dropout draws from.

The objective of the paper is E_S [ Σ_t log f(y_t | y_{S<t}) ], with S uniform over all subsets.
For long sequences nearly all of these hold half of the tokens, while rationales are short; so the
other distributions draw a size first, or few tokens at all.

A distribution is a function from (rows, length, heads, generator) to a mask that is True where a
token is kept: (rows, 1, length), or (rows, heads, length) if every head has a subset of its own.
Below, T is the length and |S| the size of the subset.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

Distribution = Callable[[int, int, int, torch.Generator], torch.Tensor]


def uniform(rows: int, length: int, heads: int, generator: torch.Generator) -> torch.Tensor:
    """Subsets with P(S) = 2^-T: each token is kept with probability ½."""
    return torch.rand(rows, 1, length, generator=generator) < 0.5


def uniform_length(rows: int, length: int, heads: int, generator: torch.Generator) -> torch.Tensor:
    """Subsets with P(S) = 1 / (T · C(T, |S|)): a size uniform in 1 … T, then any of that size."""
    sizes = torch.randint(1, length + 1, (rows,), generator=generator)
    return _of_size(sizes, length, generator)


def inverse_length(rows: int, length: int, heads: int, generator: torch.Generator) -> torch.Tensor:
    """Subsets with P(S) = (1/T)^|S| · (1 - 1/T)^(T - |S|), drawn for each attention head.

    Each token is kept with probability 1/T: one token on average, and none in a third of the draws.
    """
    return torch.rand(rows, heads, length, generator=generator) < 1 / length


def log_uniform_length(
    rows: int, length: int, heads: int, generator: torch.Generator
) -> torch.Tensor:
    """Subsets with P(S) = log(1 + 1/|S|) / log(T + 1) / C(T, |S|): small ones more often.

    The size is ⌊(T + 1)^u⌋ for u uniform in [0, 1): as often 1 as 2 or 3, as 4 … 7, as 8 … 15.
    """
    chance = torch.rand(rows, generator=generator, dtype=torch.float64)
    sizes = (chance * math.log(length + 1)).exp().floor().long().clamp(1, length)
    return _of_size(sizes, length, generator)


DISTRIBUTIONS: dict[str, Distribution] = {
    "uniform": uniform,
    "uniform-length": uniform_length,
    "inverse-length": inverse_length,
    "log-uniform-length": log_uniform_length,
}


def mixture(distribution: Distribution, probability: float, pinned: int = 0) -> Distribution:
    """A distribution that is incomplete with this probability, and otherwise the full context.

    The first ``pinned`` tokens (a beginning of sequence) are no part of the draw: always kept.
    """

    def draw(rows: int, length: int, heads: int, generator: torch.Generator) -> torch.Tensor:
        is_full = torch.rand(rows, 1, 1, generator=generator) >= probability
        kept = distribution(rows, length - pinned, heads, generator) | is_full
        return torch.cat([kept.new_ones(rows, kept.shape[1], pinned), kept], dim=-1)

    return draw


def _of_size(sizes: torch.Tensor, length: int, generator: torch.Generator) -> torch.Tensor:
    """A uniformly random subset of each of these sizes: (rows, 1, length)."""
    chance = torch.rand(len(sizes), length, generator=generator, dtype=torch.float64)
    ranks = chance.argsort(dim=-1).argsort(dim=-1)  # a random permutation of 0 … length - 1
    return (ranks < sizes[:, None])[:, None]
