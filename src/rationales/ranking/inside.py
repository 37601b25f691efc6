"""Looking inside a model without leaving a trace, at one target or at many.

A ranker may be given a model in the middle of a training. Dropout has to be off and the parameters
need no gradient while the ranker looks; afterwards every flag is what it was.

A decoder looks back only: a forward pass over a text contains the passes of all its targets.
Contexts that extend each other therefore share their passes, in *runs*.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from rationales.context import Context
from rationales.scoring.guard import at_rest
from rationales.scoring.positions import (
    dynamic_rope,
    forget_long_sequences,
    input_device,
    rope_switch,
)

_LONGEST_RUN = 12
"""Targets of a run: the logits of all of them are in memory at once."""


def rank_in_runs(
    model: Any, contexts: Sequence[Context], rank_run: Callable[[Sequence[Context]], torch.Tensor]
) -> list[list[float]]:
    """The importances of each context, from those of runs: (contexts, length of the longest)."""
    found: list[list[float]] = []
    for run in _runs(contexts, rope_switch(model)):
        rows = list(rank_run(run))
        if any(row[len(c.ids) :].any() for row, c in zip(rows, run, strict=True)):
            # The model looks ahead, as a bidirectional one does: a prefix needs its own pass.
            rows = [rank_run([context])[0] for context in run]
        found += [row[: len(c.ids)].tolist() for row, c in zip(rows, run, strict=True)]
    return found


def _runs(contexts: Sequence[Context], alone_beyond: int | None) -> list[list[Context]]:
    """The contexts in runs, in each of which a context begins with the one before it.

    Contexts of more than ``alone_beyond`` tokens share nothing: RoPE depends on their length.
    """
    runs: list[list[Context]] = []
    for context in contexts:
        run = runs[-1] if runs else []
        if (
            0 < len(run) < _LONGEST_RUN
            and run[-1].source == context.source
            and run[-1].ids == context.ids[: len(run[-1].ids)]
            and (alone_beyond is None or len(context.ids) <= alone_beyond)
            # Each target has a backward pass over the whole run: a much longer context would make
            # those of the others cost more than its own forward pass.
            and len(context.ids) * len(run) <= len(run[-1].ids) * (len(run) + 1)
        ):
            run.append(context)
        else:
            runs.append([context])
    return runs


def places(run: Sequence[Context]) -> list[int]:
    """Where each target of a run is predicted, counted back from the end of the longest context."""
    return [len(context.ids) - len(run[-1].ids) - 1 for context in run]


def inputs(model: Any, context: Context, rows: int = 1) -> dict[str, Any]:
    """The arguments of the ordinary forward pass over a whole context, repeated in rows.

    The mask is explicit, and so are the positions where the model takes them: nothing is left to
    the model's guess.
    """
    device = input_device(model)
    ids = torch.tensor([context.ids], device=device).expand(rows, -1)
    ordinary = {"use_cache": False, "return_dict": True}
    if is_encoder_decoder(model):
        source, target = ids[:, : context.source], ids[:, context.source :]
        return {
            "input_ids": source,
            "attention_mask": torch.ones_like(source),
            "decoder_input_ids": target,
            "decoder_attention_mask": torch.ones_like(target),
            **ordinary,
        }
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids), **ordinary}
    if "position_ids" in inspect.signature(model.forward).parameters:
        given["position_ids"] = torch.arange(ids.shape[1], device=device).expand_as(ids)
    return given


def is_encoder_decoder(model: Any) -> bool:
    """Whether the model has an encoder for the source beside its decoder."""
    return bool(getattr(model.config, "is_encoder_decoder", False))


@contextmanager
def frozen(model: Any) -> Iterator[None]:
    """The model for one pass, at rest (``scoring.guard``), its parameters frozen meanwhile."""
    with torch.inference_mode(False), at_rest(model):
        forget_long_sequences(dynamic_rope(model))
        learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
        try:
            for parameter in learning:
                parameter.requires_grad_(False)
            yield
        finally:
            for parameter in learning:
                parameter.requires_grad_(True)
