"""What the command line does so that a command starts and ends quickly, and not the library."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

SPIN = "2000"
"""How often a thread of libgomp looks for work before it sleeps.

Threads that spin for long slow down the cores that others use; threads that sleep at once slow
down every pass. A short spin is right on busy cores and on quiet ones.
"""


def set_threads() -> None:
    """Let idle threads spin for a short time only, unless the user has said how they wait.

    libgomp reads the variable when it is loaded, which is when torch is imported.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN)


@contextmanager
def uncollected() -> Iterator[None]:
    """Within it, no garbage is collected; what is there at its end never is.

    Importing torch and transformers makes a million objects that stay. The collector would look at
    all of them, again and again: a sixth of the time of the imports, and a second when Python ends.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
