"""What can be asked of a training run; nothing here needs torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rationales.errors import RationalesError

SELF = "self"
"""In place of a text file: the model samples its own text."""
DISTRIBUTION_NAMES = ("uniform", "uniform-length", "inverse-length", "log-uniform-length")
LOSSES = ("distill", "data")
METHODS = ("lora", "full")
DTYPES = ("float32", "bfloat16")

DEFAULT_STEPS = 1000
_LEARNING_RATES = {"lora": 1e-3, "full": 5e-5}


@dataclass(frozen=True)
class TrainOptions:
    """One training run: its model, texts and objective, how long and how fast it learns."""

    texts: tuple[str, ...]
    """Text files; ``"self"`` stands for text that the model samples."""
    out: str | Path
    """The folder of the run: its checkpoints, then its result."""
    model: str | None = None
    """A name as ``load_model`` takes it; the default model if left out."""
    start: str | Path | None = None
    """The folder of an adapter to go on from; from nothing if left out."""
    distribution: str = "log-uniform-length"
    mixture: float = 0.5
    """With this probability a context is incomplete, otherwise full."""
    full_weight: float = 1.0
    """How much more a full context counts than an incomplete one."""
    loss: str = "distill"
    method: str = "lora"
    lora_rank: int = 16
    lora_alpha: int = 32
    learning_rate: float | None = None
    """The highest of the run; 1e-3 for an adapter and 5e-5 for all weights if left out."""
    length: int = 128
    """Tokens of a row."""
    batch: int = 8
    """Rows of a step."""
    micro_batch: int = 8
    """Rows of a forward pass on one device: bounds the memory."""
    steps: int | None = None
    minutes: float | None = None
    """Time to train for; loading, and sampling the model's own text, come on top."""
    warmup: float = 0.05
    """The share of the run in which the learning rate rises; then it falls to zero."""
    self_share: float = 0.3
    """The share of rows that are the model's own, if there are text files as well."""
    self_rows: int = 512
    """How many rows the model samples; later ones repeat them, under other subsets."""
    seed: int = 0
    dtype: str = "float32"
    """What is multiplied in: ``bfloat16`` where the processor has it. Weights stay float32."""
    checkpoint_every: int = 50
    """Steps between checkpoints."""
    cpu: bool = False
    """Stay on the CPU even if there is a GPU."""
    overwrite: bool = False
    """Begin anew in a folder that holds another run."""

    def __post_init__(self) -> None:
        if isinstance(self.texts, str) or not self.texts:
            raise RationalesError("give at least one text file, or self for the model's own text")
        if self.steps is not None and self.minutes is not None:
            raise RationalesError("give --steps or --minutes, not both")
        _one_of("distribution", self.distribution, DISTRIBUTION_NAMES)
        _one_of("loss", self.loss, LOSSES)
        _one_of("method", self.method, METHODS)
        _one_of("dtype", self.dtype, DTYPES)
        for name in ("lora_rank", "batch", "micro_batch", "steps", "self_rows", "checkpoint_every"):
            _at_least(name, getattr(self, name), 1)
        _at_least("length", self.length, 2)
        if self.start is not None and self.method != "lora":
            raise RationalesError("start is an adapter: it goes with the method lora")
        for name in ("mixture", "self_share", "warmup"):
            if not 0 <= getattr(self, name) <= 1:
                raise RationalesError(f"{name} is a share from 0 to 1, not {getattr(self, name)}")
        for name in ("full_weight", "learning_rate", "lora_alpha", "minutes"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise RationalesError(f"{name} must be more than 0, not {value}")

    @property
    def files(self) -> tuple[str, ...]:
        """The texts that are files."""
        return tuple(str(text) for text in self.texts if str(text) != SELF)

    @property
    def own_share(self) -> float:
        """The share of rows that the model samples itself."""
        if len(self.files) == len(self.texts):
            return 0.0
        return self.self_share if self.files else 1.0

    @property
    def total_steps(self) -> int | None:
        """How many steps the run has; None if its time is bounded instead."""
        return (self.steps or DEFAULT_STEPS) if self.minutes is None else None

    @property
    def highest_rate(self) -> float:
        """The learning rate at the end of the warmup."""
        return self.learning_rate or _LEARNING_RATES[self.method]

    def recorded(self) -> dict[str, Any]:
        """What makes a run the run it is, for its record: no paths, and nothing without effect."""
        record: dict[str, Any] = {
            "distribution": self.distribution,
            "mixture": self.mixture,
            "full_weight": self.full_weight,
            "loss": self.loss,
            "method": self.method,
        }
        if self.method == "lora":
            record |= {"lora_rank": self.lora_rank, "lora_alpha": self.lora_alpha}
        record |= {
            "learning_rate": self.highest_rate,
            "warmup": self.warmup,
            "length": self.length,
            "batch": self.batch,
            "micro_batch": self.micro_batch,
            "minutes": self.minutes,
            "steps": self.total_steps,
            "self_share": self.own_share,
        }
        if self.own_share:
            record["self_rows"] = self.self_rows
        if self.start is not None:
            record["start"] = Path(self.start).name
        return record | {"seed": self.seed, "dtype": self.dtype}

    def command(self, model: str, files: Sequence[str]) -> str:
        """The command line of this run, with names in the place of paths."""
        texts = [*files, *([SELF] if self.own_share else [])]
        words = ["rationales compat train", f"--model {model}", *(f"--text {t}" for t in texts)]
        for name, value in self.recorded().items():
            if value is not None and not (name == "self_share" and not (files and value)):
                words.append(f"--{name.replace('_', '-')} {value}")
        return " ".join([*words, "--out OUT"])


def _one_of(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise RationalesError(f"{name} is one of {', '.join(choices)}, not {value!r}")


def _at_least(name: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise RationalesError(f"{name} must be at least {least}, not {value}")
