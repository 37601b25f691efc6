"""Translations by a model, and how good they are: BLEU, as sacrebleu computes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from rationales.errors import MissingExtraError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

_TOKENS_AT_ONCE = 2_000
"""Source tokens of a pass, times the beams: bounds the memory."""


@dataclass(frozen=True)
class Bleu:
    """BLEU of detokenised text, with what makes it comparable: sacrebleu's signature."""

    score: float
    signature: str
    beams: int
    sentences: int

    def __str__(self) -> str:
        how = "greedy" if self.beams == 1 else f"beam {self.beams}"
        return f"BLEU {self.score:.1f} ({how}, {self.sentences:,} sentences, {self.signature})"


def check() -> None:
    """Raise if BLEU cannot be computed; better before a training than after it."""
    try:
        import sacrebleu  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("BLEU", "translation") from error


def measure(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    sources: Sequence[str],
    references: Sequence[str],
    beams: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Bleu:
    """BLEU of a model's translations; ``progress`` hears how many are done."""
    return bleu(translate(model, tokenizer, sources, beams, progress), references, beams)


def bleu(translations: Sequence[str], references: Sequence[str], beams: int) -> Bleu:
    """BLEU of translations that were searched for with so many beams, 1 being greedy."""
    check()
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU()
    score = metric.corpus_score(list(translations), [list(references)]).score
    return Bleu(score, str(metric.get_signature()), beams, len(references))


def translate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    sources: Sequence[str],
    beams: int = 1,
    progress: Callable[[int], None] | None = None,
) -> list[str]:
    """The model's translations, in the order of the sources; long ones share no pass with short."""
    ids = [tokenizer(source)["input_ids"] for source in sources]
    order = sorted(range(len(ids)), key=lambda index: len(ids[index]))
    found = [""] * len(ids)
    network: Any = model
    was_training = model.training
    model.train(False)
    start = 0
    while start < len(order):
        longest = len(ids[order[min(len(order), start + _TOKENS_AT_ONCE // 8) - 1]])
        some = order[start : start + max(1, _TOKENS_AT_ONCE // (longest * beams))]
        batch = tokenizer.pad({"input_ids": [ids[index] for index in some]}, return_tensors="pt")
        with torch.no_grad():
            output = network.generate(
                **batch.to(model.device),
                num_beams=beams,
                do_sample=False,
                early_stopping=beams > 1,
                max_new_tokens=_most_tokens(model, batch["input_ids"].shape[1]),
            )
        for index, translation in zip(
            some, tokenizer.batch_decode(output, skip_special_tokens=True), strict=True
        ):
            found[index] = translation.strip()
        start += len(some)
        if progress is not None:
            progress(start)
    model.train(was_training)
    return found


def _most_tokens(model: PreTrainedModel, source: int) -> int:
    """How long a translation may get: longer than any good one, within the model's positions."""
    return min(2 * source + 10, int(model.config.max_position_embeddings) - 2)
