"""What scorers of Hugging Face models have in common: logits → scores, and memory that runs out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from rationales.context import Context
from rationales.errors import RationalesError
from rationales.scoring.protocol import Score

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LOGITS_AT_ONCE = 2**25
"""Rows × vocabulary of one pass: with a token or two a row, the logits are most of the memory."""


def read_scores(logits: torch.Tensor, contexts: Sequence[Context]) -> list[Score]:
    """What the logits, (rows, vocabulary), say about the target of each row's context.

    The logits are used up: what they hold afterwards is something else.
    """
    targets = torch.tensor([context.target_id for context in contexts], device=logits.device)
    best, predictions = logits.max(dim=-1)
    wanted = logits.gather(1, targets[:, None])
    # A rank of 1 is the argmax and no other, also among equals.
    ranks = ((logits > wanted).sum(dim=-1) + 1).clamp(min=2)
    ranks = torch.where(predictions == targets, 1, ranks)
    asked = [
        logits[row, list(context.asked)] if context.asked else wanted[row]
        for row, context in enumerate(contexts)
    ]
    # log p = logit − log Σ exp(logit), in place: the logits are the largest tensor there is.
    normalizer = logits.sub_(best[:, None]).exp_().sum(dim=-1).log_().add_(best)
    if normalizer.isnan().any():  # a logit is NaN, or infinite: it overflowed
        raise RationalesError(
            "the model's probabilities are NaN: its weights may be damaged, "
            "or the dtype too narrow (try --dtype float32)"
        )
    columns = (
        (wanted[:, 0] - normalizer).tolist(),
        predictions.tolist(),
        (best - normalizer).tolist(),
        ranks.tolist(),
        [
            tuple((values - normalizer[row]).tolist()) if context.asked else ()
            for row, (context, values) in enumerate(zip(contexts, asked, strict=True))
        ],
    )
    return [Score(*row) for row in zip(*columns, strict=True)]


def smaller_batches(error: Exception, subsets: int, tokens: int) -> int:
    """How many tokens the next pass may have if one of these subsets ran out of memory.

    Any other error is raised again; so is this one, if there was only one subset.
    """
    if not is_out_of_memory(error):
        raise error
    if subsets == 1:
        raise RationalesError(
            f"out of memory on a single subset of {tokens} tokens: "
            "take a smaller model, a shorter text or --dtype bfloat16"
        ) from error
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return max(1, tokens // 2)


def is_out_of_memory(error: Exception) -> bool:
    """Whether the error says so; on a CPU or an Apple GPU, torch raises a plain RuntimeError."""
    said = ("can't allocate memory", "not enough memory", "out of memory")
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(
        words in str(error) for words in said
    )


def weights_version(model: PreTrainedModel) -> int:
    """A number that changes with the model's weights, if they are changed as torch would know."""
    return hash(tuple((p.data_ptr(), p._version) for p in model.parameters()))


def refused(model: PreTrainedModel, why: str) -> RationalesError:
    return RationalesError(
        f"{model.config.model_type} models are not supported: the model {why}, so its predictions "
        "on a subset are not defined by an attention mask; wrap it in rationales.BlackBoxScorer"
    )
