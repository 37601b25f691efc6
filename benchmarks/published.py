"""Greedy rationalization as published, written from the paper: what the benchmark compares with.

    S ← {t−1};  while argmax p(· | y_S) ≠ y_t:  S ← S ∪ argmax_k p(y_t | y_{S ∪ k})

What lies within ``TIE`` of a maximum is equal to it: the lowest index is added, and the target is
the argmax. Otherwise rounding would decide between equals.

Algorithm 1 of Vafa et al. (2021), with the initial set of their appendix "Algorithm Details" and
the sparse inputs of their appendix "Efficiency": only the tokens of a candidate rationale are fed
to the model, at their original positions. One target at a time, at most 4,096 tokens a batch, the
logits of every position, float32. It shares nothing with the package.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

BATCH_TOKENS = 4096
TIE = 1e-4


@dataclass(frozen=True)
class Published:
    """A rationale in the order of adding, and the tokens that went through the model.

    ``candidates`` holds, for each step, the target's log-probability with each candidate added.
    """

    indices: tuple[int, ...]
    sufficient: bool
    tokens: int
    candidates: tuple[dict[int, float], ...] = ()


def greedy(
    model: Any,
    ids: Sequence[int],
    target: int,
    *,
    whole: Any = None,
    pinned: Collection[int] = (),
    max_steps: int | None = None,
    keep_candidates: bool = False,
) -> Published:
    """The rationale of the token at index ``target``, after at most ``max_steps`` additions.

    ``model`` answers for proper subsets of the context and ``whole`` (the same, if left out) for
    the complete one: a compatibility adapter changes the first, not the second. ``pinned`` tokens,
    a beginning-of-sequence token for example, are in every subset and in no rationale.
    """
    y, always = ids[target], [i for i in pinned if i < target]
    tokens = 0

    def p(subsets: list[list[int]]) -> list[tuple[float, bool]]:
        """log p(y | subset) and whether y is the argmax, for subsets of the same size."""
        nonlocal tokens
        kept = torch.tensor([sorted({*subset, *always}) for subset in subsets])
        network = whole if whole is not None and kept.shape[1] == target else model
        found: list[tuple[float, bool]] = []
        for places in kept.split(max(1, BATCH_TOKENS // kept.shape[1])):
            tokens += places.numel()
            with torch.no_grad():
                logits = network(
                    input_ids=torch.tensor(ids)[places],
                    position_ids=places,
                    # Given, and of ones: without it gaps are taken for packed sequences.
                    attention_mask=torch.ones_like(places),
                    use_cache=False,
                ).logits
            last = logits.float().log_softmax(dim=-1)[:, -1]
            is_first = last[:, y] >= last.max(dim=-1).values - TIE
            found += zip(last[:, y].tolist(), is_first.tolist(), strict=True)
        return found

    S = [] if target - 1 in always else [target - 1]
    others = [k for k in range(target) if k not in always and k not in S]
    [(_, is_first)] = p([S])
    candidates: list[dict[int, float]] = []
    while not is_first and others and (max_steps is None or len(candidates) < max_steps):
        scores = p([[*S, k] for k in others])
        highest = max(score for score, _ in scores)
        best = next(i for i, (score, _) in enumerate(scores) if score >= highest - TIE)
        candidates.append({k: score for k, (score, _) in zip(others, scores, strict=True)})
        is_first = scores[best][1]
        S.append(others.pop(best))
    return Published(tuple(S), is_first, tokens, tuple(candidates) if keep_candidates else ())


def tokens_of(context: int, steps: int, kept: int = 1) -> int:
    """The model tokens of that many steps in a context of that many tokens, by arithmetic.

    It begins with ``kept`` tokens; step n tries all that are not kept, each with those that are.
    """
    return kept + sum((context - kept - n) * (kept + n + 1) for n in range(steps))
