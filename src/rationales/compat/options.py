"""What can be asked of a training run and of a measurement; nothing here needs torch.

The docstring under a field is also the help of its option on the command line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from annotated_types import Ge, Gt, Le, MinLen

from rationales.checking import Expected, check_fields
from rationales.errors import OptionError

SELF = "self"
"""In place of a text file: the model samples its own text."""
DEFAULT_STEPS = 1000
DistributionName = Literal["uniform", "uniform-length", "inverse-length", "log-uniform-length"]
Positive = Annotated[float, Gt(0)]
Count = Annotated[int, Ge(1)]
Share = Annotated[float, Ge(0), Le(1)]

_LEARNING_RATES = {"lora": 1e-3, "full": 5e-5}
_TEXT = typer.Option(rich_help_panel="Text")
_WHAT = typer.Option(rich_help_panel="What is learned")
_PACE = typer.Option(rich_help_panel="How long, how fast")
_OUT = typer.Option(rich_help_panel="Output")


@dataclass(frozen=True)
class TrainOptions:
    """One training run: its model, texts and objective, how long and how fast it learns."""

    texts: Annotated[
        tuple[str, ...],
        MinLen(1),
        Expected("a list of text files, or self for the model's own text"),
        typer.Option("--text", metavar="FILE|self", rich_help_panel="Text"),
    ]
    """A UTF-8 text file (again for more), or self: text that the model samples."""
    out: Annotated[str | Path, _OUT]
    """The folder of the run and of its result. The same command again resumes the run."""
    model: Annotated[str | None, _WHAT] = None
    """A Hugging Face id, a local folder or a .gguf file; the default model if left out."""
    start: Annotated[
        str | Path | None, typer.Option(metavar="DIR", rich_help_panel="What is learned")
    ] = None
    """Continue from an adapter of the same model, with other options or texts."""
    distribution: Annotated[DistributionName, _WHAT] = "log-uniform-length"
    """The distribution of the subsets that are kept."""
    mixture: Annotated[Share, _WHAT] = 0.5
    """With this probability the context is incomplete, otherwise full."""
    full_weight: Annotated[Positive, _WHAT] = 1.0
    """The weight of a full context relative to an incomplete one: more keeps the model's own
    predictions."""
    loss: Annotated[Literal["distill", "data"], _WHAT] = "distill"
    """The target: the model's own prediction from the full context, or the true next token."""
    method: Annotated[Literal["lora", "full"], _WHAT] = "lora"
    """What is trained: a small adapter, or all weights."""
    lora_rank: Annotated[Count, _WHAT] = 16
    """Rank of the adapter."""
    lora_alpha: Annotated[Count, _WHAT] = 32
    """The adapter is scaled by alpha / rank."""
    length: Annotated[int, Ge(2), _TEXT] = 128
    """Tokens of a row."""
    self_share: Annotated[Share, _TEXT] = 0.3
    """Share of the model's own rows, if there are text files as well."""
    self_rows: Annotated[Count, _TEXT] = 512
    """Rows that the model samples; then they repeat, under other subsets."""
    steps: Annotated[Count | None, _PACE] = None
    """Steps to train for; 1000 without --minutes."""
    minutes: Annotated[Positive | None, _PACE] = None
    """Minutes to train for, instead of steps; reading and sampling text is not counted."""
    learning_rate: Annotated[Positive | None, _PACE] = None
    """The highest of the run; 1e-3 for an adapter and 5e-5 for all weights if left out."""
    warmup: Annotated[Share, _PACE] = 0.05
    """Share of the run in which the learning rate rises; then it falls to zero."""
    batch: Annotated[Count, _PACE] = 8
    """Rows of a step."""
    micro_batch: Annotated[Count, _PACE] = 8
    """At most this many rows in a forward pass on one device: bounds the memory."""
    seed: Annotated[int, Ge(0), _PACE] = 0
    """Seed of everything that is random."""
    dtype: Annotated[Literal["float32", "bfloat16"], _PACE] = "float32"
    """The type of the multiplications; weights stay float32."""
    cpu: Annotated[bool, _PACE] = False
    """Stay on the CPU even if there is a GPU."""
    checkpoint_every: Annotated[Count, _OUT] = 50
    """Steps between checkpoints."""
    overwrite: Annotated[bool, _OUT] = False
    """Begin again in a folder that holds another run; its files are removed."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.steps is not None and self.minutes is not None:
            raise OptionError("give {steps} or {minutes}, not both")
        if self.start is not None and self.method != "lora":
            raise OptionError("{start} is an adapter: it goes with {method} lora")

    @property
    def files(self) -> tuple[str, ...]:
        """The texts that are files."""
        return tuple(text for text in self.texts if text != SELF)

    @property
    def own_share(self) -> float:
        """The share of rows that the model samples itself."""
        return (SELF in self.texts) * (self.self_share if self.files else 1.0)

    @property
    def total_steps(self) -> int | None:
        """How many steps the run has; None if its time is bounded instead."""
        return (self.steps or DEFAULT_STEPS) if self.minutes is None else None

    @property
    def highest_rate(self) -> float:
        """The learning rate at the end of the warmup."""
        return self.learning_rate or _LEARNING_RATES[self.method]

    def fraction(self, step: float, seconds: float) -> float:
        """The part of the run that is done after these steps and seconds; 1 at its end."""
        if self.minutes is not None:
            return min(1.0, seconds / (60 * self.minutes))
        return step / (self.steps or DEFAULT_STEPS)

    def rate(self, step: int, seconds: float) -> float:
        """The share of the highest learning rate that a step, counted from 0, learns at.

        It rises over the warmup and then falls in a line to zero. What counts is the middle of the
        step; its time is estimated by the mean of the steps before.
        """
        done = self.fraction(step + 0.5, seconds + 0.5 * seconds / max(1, step))
        if done < self.warmup:
            return done / self.warmup
        return (1 - done) / (1 - self.warmup) if self.warmup < 1 else 1.0

    def recorded(self) -> dict[str, Any]:
        """What makes a run the run it is, for its record: no paths, and nothing without effect."""
        left_out = {"texts", "out", "model", "cpu", "checkpoint_every", "overwrite"}
        left_out |= {"lora_rank", "lora_alpha"} if self.method == "full" else set()
        left_out |= {"self_rows"} if not self.own_share else set()
        left_out |= {"start"} if self.start is None else set()
        values = vars(self) | {
            "learning_rate": self.highest_rate,
            "steps": self.total_steps,
            "self_share": self.own_share,
            "start": Path(self.start or "").name,
        }
        return {name: value for name, value in values.items() if name not in left_out}

    def command(self, model: str, files: Sequence[str]) -> str:
        """The command line of this run, with names in the place of paths."""
        texts = [*files, *([SELF] if self.own_share else [])]
        words = ["rationales compat train", f"--model {model}", *(f"--text {t}" for t in texts)]
        for name, value in self.recorded().items():
            if value is not None and (name != "self_share" or (files and value)):
                words.append(f"--{name.replace('_', '-')} {value}")
        return " ".join([*words, "--out OUT"])


@dataclass(frozen=True, kw_only=True)
class MeasureOptions:
    """How much is measured."""

    samples: Annotated[int, Ge(2)] = 200
    """Targets, each with its own context."""
    length: Annotated[int, Ge(2)] = 64
    """Tokens of a context."""
    seed: int = 0
    """Seed of targets and subsets."""
    words: Annotated[int, Ge(2), typer.Option(hidden=True)] = 64
    """Words before "the"."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The subset sizes that are smaller than the context: 1, 2, 4, 8, …"""
        return tuple(2**power for power in range((self.length - 1).bit_length()))
