"""The majority language of the paper, and the exact probabilities to compare a model with.

    begin  1 0 0 1 1 0 1 1 0 0 1 0 1 1 0 1 0  =  1  end

Seventeen random bits, ``=``, the more frequent bit. A begin token, which is given and never
predicted, lets a model predict all twenty tokens of a line, the end included. Only the bits are
random, so the lowest possible perplexity is 2^(17/20) = 1.80.

Given *m* ones among *k* visible bits, the majority is 1 with probability

    p(1 | m, k) = P(m + Bin(17 - k, ½) ≥ 9)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING, Any

import torch

from rationales.context import Context
from rationales.errors import RationalesError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ZERO, ONE, EQUALS, BEGIN, END = range(5)
VOCABULARY = 5
_LINES_AT_ONCE = 2048


@dataclass(frozen=True)
class Seen:
    """Some of the bits of a line, by their places (from 0, rising)."""

    places: tuple[int, ...]
    bits: tuple[int, ...]


@dataclass(frozen=True)
class MajorityLanguage:
    """The language; the paper's has 17 bits."""

    bits: int = 17

    def __post_init__(self) -> None:
        if self.bits < 1 or self.bits % 2 == 0:
            raise RationalesError(f"a majority needs an odd number of bits, not {self.bits}")

    @property
    def predicted(self) -> int:
        """The number of predicted tokens of a line: the bits, ``=``, the majority, the end."""
        return self.bits + 3

    @property
    def optimum(self) -> float:
        """The lowest perplexity over the predicted tokens."""
        return float(2 ** (self.bits / self.predicted))

    def lines(self, bits: torch.Tensor) -> torch.Tensor:
        """The lines of these bits, (lines, bits): begin, bits, ``=``, majority, end."""
        majority = (2 * bits.sum(dim=1, keepdim=True) > self.bits).long()
        begin, equals, end = (torch.full_like(majority, token) for token in (BEGIN, EQUALS, END))
        return torch.cat([begin, bits, equals, majority, end], dim=1)

    def sample(self, count: int, generator: torch.Generator) -> torch.Tensor:
        """Random lines: (count, predicted + 1)."""
        return self.lines(torch.randint(0, 2, (count, self.bits), generator=generator))

    def all_lines(self) -> torch.Tensor:
        """All 2^bits lines; the first bit changes slowest."""
        numbers = torch.arange(2**self.bits)[:, None]
        return self.lines(numbers >> torch.arange(self.bits - 1, -1, -1) & 1)

    def probability(self, seen: int, ones: int) -> float:
        """The exact probability that the majority is 1, of ``ones`` ones among ``seen`` bits."""
        rest = self.bits - seen
        more = sum(comb(rest, extra) for extra in range(rest + 1) if 2 * (ones + extra) > self.bits)
        return float(more / 2**rest)

    def weight(self, seen: int, ones: int) -> float:
        """The probability of ``ones`` ones among ``seen`` bits."""
        return float(comb(seen, ones) / 2**seen)

    def draw(self, size: int, ones: int, count: int, generator: torch.Generator) -> list[Seen]:
        """Random subsets of ``size`` bits, ``ones`` of which are 1."""
        order = torch.rand(count, self.bits, generator=generator).argsort(dim=1)
        places = order[:, :size].sort(dim=1).values
        bits = torch.rand(count, size, generator=generator).argsort(dim=1) < ones
        rows = zip(places.tolist(), bits.long().tolist(), strict=True)
        return [Seen(tuple(row), tuple(of_row)) for row, of_row in rows]

    def query(self, seen: Seen) -> tuple[Context, tuple[int, ...]]:
        """The query for a scorer: how probable is a majority of 1, given these bits?

        As in rationales, begin is pinned and ``=``, the token before the target, required.
        """
        ids = [BEGIN, *[ZERO] * self.bits, EQUALS]
        for place, bit in zip(seen.places, seen.bits, strict=True):
            ids[place + 1] = bit
        last = len(ids) - 1
        context = Context(ids=tuple(ids), target_id=ONE, required=(last,), pinned=(0,))
        return context, context.keep((*(place + 1 for place in seen.places), last))


class WholeLanguage:
    """A model's perplexity over every line of the language, and its own exact marginals.

    With x for all bits and x_S for the visible ones, the model's own marginal is

        p(1 | x_S, =) = Σ_x f(x) f(= | x) f(1 | x, =)  /  Σ_x f(x) f(= | x)

    summed over all x that agree with x_S, where f(x) = Π f(x_i | x_<i). Tokens that are not bits
    are left out of the sum: a trained model expects next to none in the place of a bit.
    """

    def __init__(self, model: PreTrainedModel, language: MajorityLanguage) -> None:
        tokens, one = line_logprobs(model, language.all_lines())
        self.perplexity = perplexity(tokens)
        joint = tokens[:, : language.bits + 1].sum(dim=1).exp()  # of the bits and of =
        shape = [2] * language.bits
        self._joint = joint.numpy().reshape(shape)
        self._with_one = (joint * one.exp()).numpy().reshape(shape)

    def marginal(self, seen: Seen) -> float:
        """The model's own exact probability of a majority of 1, given these bits and ``=``."""
        where: list[Any] = [slice(None)] * self._joint.ndim
        for place, bit in zip(seen.places, seen.bits, strict=True):
            where[place] = bit
        return float(self._with_one[tuple(where)].sum() / self._joint[tuple(where)].sum())


@torch.no_grad()
def line_logprobs(model: PreTrainedModel, lines: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities of the predicted tokens, (lines, predicted), and of a majority of 1.

    Every token is predicted from all before it, in float64 from here on: sums have many terms.
    """
    tokens, one = [], []
    for some in torch.split(lines, _LINES_AT_ONCE):
        logits = model(some[:, :-1], attention_mask=torch.ones_like(some[:, :-1])).logits
        logprobs = logits.double().log_softmax(dim=-1)
        tokens.append(logprobs.gather(2, some[:, 1:, None])[:, :, 0])
        one.append(logprobs[:, -2, ONE])  # the answer comes before the end
    return torch.cat(tokens), torch.cat(one)


def perplexity(logprobs: torch.Tensor) -> float:
    """exp of the mean negative log-probability of the tokens."""
    return float((-logprobs.mean()).exp())
