"""How a translation model learns: batches of pairs, Adam, label smoothing, BLEU on the way.

    rate(s) = highest · min(s / warmup, √(warmup / s)), and in a line to zero over the last part

The end of the schedule does what an average over checkpoints would: the rate falls to zero, and
with it the noise of single batches.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from rationales.compat.options import DTYPES
from rationales.compat.rows import generator
from rationales.compat.run import RunFolder
from rationales.compat.seq2seq import Seq2SeqPass, WordDropout
from rationales.errors import RationalesError
from rationales.experiments import bleu
from rationales.experiments.batches import NO_TARGET, Batches, PairBatch
from rationales.experiments.toys.training import Progress, inverse_square_root, learn
from rationales.experiments.translation.pairs import Pair, Split

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

_RECENT = 100


@dataclass(frozen=True)
class Learning:
    """How long and how fast a model learns."""

    minutes: float | None = None
    """Of steps: reading, and measuring BLEU, come on top."""
    steps: int | None = None
    """Instead of minutes; one of the two is given."""
    batch_tokens: int = 4_000
    """Of both sides, with pads."""
    learning_rate: float = 1.5e-3
    """The highest of the run, at the end of the warmup."""
    warmup: int = 1_000
    cooldown: float = 0.3
    """The share of the run over which the rate falls to zero in the end."""
    label_smoothing: float = 0.1
    dtype: str = "float32"
    """What is multiplied in: ``bfloat16`` where the processor has it. Weights stay float32."""
    checkpoint_every: int = 200
    validate_every: int = 1_000
    """Steps between measurements of BLEU on some validation pairs."""
    validation_pairs: int = 200

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.minutes is None):
            raise RationalesError("give --steps or --minutes, one of them")
        for name in ("steps", "minutes", "batch_tokens", "learning_rate", "warmup"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise RationalesError(f"{name.replace('_', '-')} must be more than 0, not {value}")
        if self.dtype not in DTYPES:
            raise RationalesError(f"dtype is one of {', '.join(DTYPES)}, not {self.dtype!r}")

    def fraction(self, step: int, seconds: float) -> float:
        """How much of the training is done."""
        if self.steps is not None:
            return step / self.steps
        assert self.minutes is not None
        return min(1.0, seconds / 60 / self.minutes)

    def rate(self, step: int, seconds: float) -> float:
        """The learning rate of a step, counted from 0, that begins after so many seconds."""
        left = (1 - self.fraction(step, seconds)) / max(self.cooldown, 1e-9)
        return self.learning_rate * inverse_square_root(step, self.warmup) * min(1.0, left)

    def flags(self) -> str:
        """The options of the command line that say the same."""
        length = f"--minutes {self.minutes:g}" if self.steps is None else f"--steps {self.steps}"
        return (
            f"{length} --batch-tokens {self.batch_tokens} --learning-rate {self.learning_rate:g} "
            f"--warmup {self.warmup} --dtype {self.dtype}"
        )


@dataclass(frozen=True)
class Course:
    """All of how a model learns: pace, seed, and the subsets of word dropout if there are any."""

    learning: Learning
    seed: int
    dropout: WordDropout | None = None


@dataclass(frozen=True)
class Listener:
    """Who hears of a run: ``progress`` of every step, ``say`` a line now and then."""

    progress: Progress
    say: Callable[[str], None]


def learn_pairs(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    parts: Split,
    course: Course,
    run: RunFolder,
    listener: Listener,
) -> dict[str, Any]:
    """How long the training was and what it came to; the model has then learned."""
    learning = course.learning
    listener.progress("splitting into pieces", 0, None, "")
    sources, targets = encode(tokenizer, parts.train, model.config.max_position_embeddings)
    batches = Batches(sources, targets, learning.batch_tokens, tokenizer.pad_token_id, course.seed)
    objective = Objective(model, batches, learning, course.dropout)
    told = _Teller(model, tokenizer, parts.validation, learning, objective, listener)
    learned = learn(model, objective.loss, learning, run, told.step)
    return {
        "steps": learned.steps,
        "epochs": round(learned.steps / batches.per_epoch, 2),
        "seconds": round(learned.seconds, 1),
        "loss": learned.loss if told.loss is None else told.loss,
    }


def encode(
    tokenizer: PreTrainedTokenizerFast, pairs: Sequence[Pair], positions: int
) -> tuple[list[list[int]], list[list[int]]]:
    """The token ids of both sides, each with an end token; pairs that are too long are left out."""
    sides = [
        tokenizer([getattr(pair, side) for pair in pairs], return_attention_mask=False)["input_ids"]
        for side in ("french", "english")
    ]
    fit = [(s, t) for s, t in zip(*sides, strict=True) if max(len(s), len(t)) <= positions]
    return [source for source, _ in fit], [target for _, target in fit]


class Objective:
    """The loss of a step: the mean of -log f(y_t | x_S, y_S) over its targets, smoothed."""

    def __init__(
        self,
        model: PreTrainedModel,
        batches: Batches,
        learning: Learning,
        dropout: WordDropout | None,
    ) -> None:
        self._model, self._batches, self._learning = model, batches, learning
        self._pass = Seq2SeqPass(model)
        self._dropout = dropout
        self.tokens = 0
        """Of the targets of the last step."""

    def loss(self, step: int) -> torch.Tensor:
        """The loss of a step, counted from 0; a function of the seed and of its number alone."""
        batch, seed = self._batches.batch(step), self._batches.seed
        self.tokens = batch.tokens
        keep = None
        if self._dropout is not None:
            keep = self._dropout.draw(
                (batch.sources != self._batches.pad).sum(-1),
                (batch.targets != NO_TARGET).sum(-1),
                self._pass.heads,
                generator(seed, "subsets", step),
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(generator(seed, "dropped weights", step).initial_seed())
            with self._autocast():
                logits = self._logits(batch, keep)
        return torch.nn.functional.cross_entropy(
            logits.flatten(0, 1).float(),
            batch.targets.flatten(),
            ignore_index=NO_TARGET,
            label_smoothing=self._learning.label_smoothing,
        )

    def _logits(self, batch: PairBatch, keep: Any) -> torch.Tensor:
        config = self._model.config
        inputs = batch.inputs(config.decoder_start_token_id, config.pad_token_id)
        return self._pass(self._model, batch.sources, inputs, keep)

    def _autocast(self) -> Any:
        if self._learning.dtype == "bfloat16":
            return torch.autocast("cpu", torch.bfloat16)
        return nullcontext()


class _Teller:
    """Tells of steps: loss and tokens a second, and now and then BLEU on some validation pairs."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        validation: Sequence[Pair],
        learning: Learning,
        objective: Objective,
        listener: Listener,
    ) -> None:
        self._model, self._tokenizer, self._learning = model, tokenizer, learning
        self._pairs = validation[:: max(1, len(validation) // max(1, learning.validation_pairs))]
        self._objective, self._listener = objective, listener
        self._losses: deque[float] = deque(maxlen=_RECENT)
        self._tokens: deque[tuple[float, int]] = deque(maxlen=_RECENT)

    @property
    def loss(self) -> float | None:
        """The mean of the last hundred steps; None before the first."""
        return sum(self._losses) / len(self._losses) if self._losses else None

    def step(self, done: int, seconds: float, loss: float) -> None:
        """Tell of a step that is done."""
        self._losses.append(loss)
        self._tokens.append((seconds, self._objective.tokens))
        (first, _), (last, _) = self._tokens[0], self._tokens[-1]
        pace = sum(tokens for _, tokens in list(self._tokens)[1:]) / max(last - first, 1e-9)
        note = f"step {done:,} · loss {self.loss:.3f} · {pace:,.0f} target tok/s"
        fraction = self._learning.fraction(done, seconds)
        self._listener.progress("training", fraction, 1.0, note)
        note = f"{note} · {seconds / 60:.1f} min"
        if done % self._learning.validate_every:
            if done % self._learning.checkpoint_every == 0:
                self._listener.say(note)
        elif fraction < 1:
            began = time.monotonic()
            measured = bleu.measure(
                self._model,
                self._tokenizer,
                [pair.french for pair in self._pairs],
                [pair.english for pair in self._pairs],
            )
            self._listener.say(
                f"{note} · validation: BLEU {measured.score:.1f} "
                f"(greedy, {measured.sentences} sentences, {time.monotonic() - began:.0f} s)"
            )
