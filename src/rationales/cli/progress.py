"""A progress bar on standard error, drawn only when something takes longer than a second."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

_PATIENCE = 1.0


class Bar:
    """Progress of one task after another; silent where standard error is not a terminal."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._started = time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        self._task = self._progress.add_task("", total=None, note="")
        self._is_shown = False

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Take the bar off the screen."""
        if self._is_shown:
            self._progress.stop()
        self._is_shown = False

    def update(self, what: str, done: float, total: float | None, note: str = "") -> None:
        """Say what is being done and how far it is; ``total`` None: nobody knows."""
        self._progress.update(self._task, description=what, completed=done, total=total, note=note)
        late = time.monotonic() - self._started > _PATIENCE
        if late and not self._is_shown and self._console.is_terminal:
            self._progress.start()
            self._is_shown = True

    def stage(self, what: str, fraction: float) -> None:
        """Progress of a task with named stages, as the model code reports it."""
        self.update(what, fraction, 1.0, f"{fraction:.0%}")
