"""What a prediction from a subset is held to: the true next token, or the model's own prediction.

- ``data``: -log f(y_t | y_S), the paper's objective. Its optimum is p(y_t | y_S) of the corpus.
- ``distill``: KL( f(· | y_<t) ‖ f(· | y_S) ), the model's prediction from the full context as a
  soft target. Averaged over the tokens that are missing, the best answer is the mixture of the
  full-context predictions, Σ p(y_missing | y_S) f(· | y_<t): the marginal of the very model that
  is explained. A distribution for each target says far more than one token drawn from it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

_AT_ONCE = 2**22
"""Logits that are worked on at a time: what is computed from them stays small."""


def data_loss(student: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The sum of -log f(y_t | y_S) over all targets; rows count by their weights.

    ``student`` is (rows, length, vocabulary), ``targets`` (rows, length).
    """
    losses = torch.nn.functional.cross_entropy(
        student.flatten(0, 1).float(), targets.flatten(), reduction="none"
    )
    return torch.dot(losses.view(len(targets), -1).sum(-1), weights)


def distill_loss(
    student: torch.Tensor, teacher: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """The sum of KL(teacher ‖ student) over all positions, from logits (rows, length, vocabulary).

    Each row counts by its weight. The teacher's logits are used up: the gradient takes their place
    in memory.
    """
    loss: torch.Tensor = _Distill.apply(student, teacher, weights)  # type: ignore[no-untyped-call]  # torch
    return loss


class _Distill(torch.autograd.Function):
    """KL(p ‖ q) = Σ p (log p - log q); its gradient for the logits of q is q - p.

    Logits over a whole vocabulary are the largest tensors of a step, so there are only two: the
    student's, and one that holds the teacher's and then the gradient.
    """

    @staticmethod
    def forward(
        ctx: Any, student: torch.Tensor, teacher: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        flat_student, flat_teacher = student.flatten(0, -2), teacher.flatten(0, -2)
        assert flat_teacher.data_ptr() == teacher.data_ptr(), "contiguous, as a model returns it"
        each = weights.float().repeat_interleave(student.shape[1])[:, None]
        total = torch.zeros((), device=student.device)
        rows = max(1, _AT_ONCE // student.shape[-1])
        for start in range(0, len(flat_student), rows):
            log_q = flat_student[start : start + rows].float().log_softmax(-1)
            buffer = flat_teacher[start : start + rows]
            log_p = buffer.float().log_softmax(-1)
            p, weight = log_p.exp(), each[start : start + rows]
            total += torch.dot((p * weight).flatten(), log_p.sub_(log_q).flatten())
            buffer.copy_(log_q.exp_().sub_(p).mul_(weight))
        ctx.gradient = teacher
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return ctx.gradient.mul_(scale), None, None


def row_weights(keep: torch.Tensor, mixture: float, full_weight: float) -> torch.Tensor:
    """The weight of each row: ``full_weight`` times as much for full ones, and 1 on average."""
    is_full = keep.flatten(1).all(-1)
    average = mixture + (1 - mixture) * full_weight
    return torch.where(is_full, full_weight, 1.0) / average
