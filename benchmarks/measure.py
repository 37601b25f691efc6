"""Time, tokens, passes, memory and the machine: what the benchmark measures."""

import platform
import re
import resource
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from checks import Models


@dataclass
class Work:
    """What a piece of work took: seconds, processor seconds of all threads, and the model's part.

    A pass is one call of a model, a token one that a pass computes, padding included.
    """

    seconds: float = 0.0
    tokens: float = 0
    passes: float = 0
    model_seconds: float = 0.0
    cpu_seconds: float = 0.0
    model_cpu_seconds: float = 0.0

    def shared(self, targets: int) -> "Work":
        """The part of each of so many targets that were explained together."""
        return Work(**{name: value / targets for name, value in vars(self).items()})


@contextmanager
def measured(models: Models) -> Iterator[Work]:
    """The work of what runs within it on a CPU, complete when it ends.

    Hooks on the models see it, not the scorer: the published algorithm has none.
    """
    work, begun = Work(), []

    def before(_model: Any, _inputs: Any, _named: Any) -> None:
        begun.append(_clocks())

    def after(_model: Any, inputs: tuple, named: dict, _output: Any) -> None:
        seconds, cpu_seconds = _since(begun.pop())
        if begun:  # one model calls the other: one pass
            return
        work.passes += 1
        work.tokens += (named["input_ids"] if "input_ids" in named else inputs[0]).numel()
        work.model_seconds += seconds
        work.model_cpu_seconds += cpu_seconds

    with ExitStack() as hooks:
        for model in {id(model): model for model in (models.subsets, models.whole)}.values():
            hooks.enter_context(model.register_forward_pre_hook(before, with_kwargs=True))
            hooks.enter_context(
                model.register_forward_hook(after, with_kwargs=True, always_call=True)
            )
        started = _clocks()
        yield work
        work.seconds, work.cpu_seconds = _since(started)


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _since(started: tuple[float, float]) -> tuple[float, float]:
    return time.perf_counter() - started[0], time.process_time() - started[1]


def peak_gigabytes() -> float:
    """The most memory that this process has had.

    Not ``ru_maxrss`` where Linux tells better: that one begins with what the parent process had.
    """
    status = Path("/proc/self/status")
    if status.exists() and (found := re.search(r"VmHWM:\s+(\d+) kB", status.read_text())):
        return int(found.group(1)) * 1024 / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def machine() -> dict[str, str]:
    """What the times depend on."""
    cpuinfo = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*: (.*)", cpuinfo.read_text()) if cpuinfo.exists() else None
    return {
        "processor": named.group(1) if named else platform.processor(),
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
