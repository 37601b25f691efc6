"""A model that a text can kill: what the tests of workers load, in processes of their own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rationales.runs.workers import Loading


@dataclass(frozen=True)
class Deadly(Loading):
    """Loads a model whose explainer ends its process for some texts.

    KILL ends it each time, ONCE the first time (``marks`` remembers), SLOW takes a second.
    """

    marks: str = ""

    def load(self) -> Any:
        explainer = Loading.load(self)
        explain_all = explainer.explain_all

        def explain(requests: Any, **more: Any) -> Iterator[Any]:
            for request in requests:
                if "KILL" in request.text:
                    os._exit(7)
                if "ONCE" in request.text and not (mark := Path(self.marks, "once")).exists():
                    mark.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                if "BUG" in request.text:
                    raise ZeroDivisionError("a bug")
                if "SLOW" in request.text:
                    time.sleep(1)
            return explain_all(requests, **more)

        explainer.explain_all = explain
        return explainer
