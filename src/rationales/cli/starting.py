"""What the command line does so that a command starts and ends quickly, and not the library."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
