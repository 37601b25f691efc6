"""What a prediction from a subset is held to: the true next token, or the model's own prediction.

- ``data``: -log f(y_t | y_S), the paper's objective. Its optimum is p(y_t | y_S) of the corpus.
- ``distill``: KL( f(· | y_<t) ‖ f(· | y_S) ), the model's prediction from the full context as a
  soft target. Averaged over the tokens that are missing, the best answer is the mixture of the
  full-context predictions, Σ p(y_missing | y_S) f(· | y_<t): the marginal of the very model that
  is explained. A distribution for each target says far more than one token drawn from it.

Logits are (rows, length, vocabulary). A loss is the mean over the targets of each row: (rows,).
"""

from __future__ import annotations

import torch
from torch.nn import functional


def data_loss(student: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean of -log f(y_t | y_S) for each row; ``targets`` is (rows, length)."""
    logits = student.flatten(0, 1).float()
    losses = functional.cross_entropy(logits, targets.flatten(), reduction="none")
    return losses.view_as(targets).mean(-1)


def distill_loss(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """The mean of KL(teacher ‖ student) for each row."""
    log_q, log_p = (logits.float().log_softmax(-1) for logits in (student, teacher))
    divergences = functional.kl_div(log_q, log_p, log_target=True, reduction="none")
    return divergences.sum(-1).mean(-1)


def row_weights(keep: torch.Tensor, mixture: float, full_weight: float) -> torch.Tensor:
    """The weight of each row: ``full_weight`` times as much for full ones, and 1 on average."""
    is_full = keep.flatten(1).all(-1)
    average = mixture + (1 - mixture) * full_weight
    return torch.where(is_full, full_weight, 1.0) / average
