"""How the threads of torch wait and how many there are: set before torch is imported."""

from __future__ import annotations

import os

SPIN = "2000"
"""How often a thread of libgomp looks for work before it sleeps.

Threads that spin for long slow down the cores that others use; threads that sleep at once slow
down every pass. A short spin is right on busy cores and on quiet ones.
"""


def spin_briefly() -> None:
    """Let idle threads spin for a short time only, unless the user has said how they wait.

    libgomp reads the variable when it is loaded, which is when torch is imported.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN)


def share(threads: int) -> None:
    """Let this process, a worker beside others, compute with so many threads."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    spin_briefly()
    import torch

    torch.set_num_threads(threads)
