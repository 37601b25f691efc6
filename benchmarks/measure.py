"""Tokens, memory and the machine: what the benchmark measures beside seconds."""

import platform
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from checks import Models


@contextmanager
def counted_tokens(models: Models) -> Iterator[list[int]]:
    """The tokens of each forward pass of the models, counted where they are embedded.

    Not the scorer's own count: the published algorithm has no scorer.
    """
    tokens: list[int] = []
    hooks = [
        model.get_input_embeddings().register_forward_pre_hook(
            lambda _, inputs: tokens.append(inputs[0].numel())
        )
        for model in {id(model): model for model in (models.subsets, models.whole)}.values()
    ]
    try:
        yield tokens
    finally:
        for hook in hooks:
            hook.remove()


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
