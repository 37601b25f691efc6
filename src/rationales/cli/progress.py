"""A spinner and a progress bar on standard error: there at once, and gone without a trace."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TextIO, cast

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column
from rich.text import Text


class Bar:
    """Progress of one task after another, drawn from the first update on.

    Where standard error is not a terminal, or a dumb one, nothing is written. Whoever else writes
    to it (a download with a bar of its own, a warning) has the line: the bar is back with the next
    update.
    """

    def __init__(self) -> None:
        console = Console(stderr=True)
        # Not the console's own idea of a terminal, which FORCE_COLOR changes.
        self.is_drawn = sys.stderr.isatty() and not console.is_dumb_terminal
        self._progress = Progress(
            SpinnerColumn("line" if console.options.ascii_only else "dots"),
            _LineColumn("{task.description}", markup=False, table_column=Column()),
            BarColumn(bar_width=20 if console.width >= 70 else 5),
            _LineColumn("{task.fields[note]}", markup=False, table_column=Column()),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._progress.add_task("", total=None, note="")
        self._stderr: TextIO | None = None

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Take the bar off the screen."""
        if self._stderr is not None:
            sys.stderr, self._stderr = self._stderr, None
            self._progress.stop()

    def update(self, what: str, done: float, total: float | None, note: str = "") -> None:
        """Say what is being done and how far it is; ``total`` None: not known."""
        task = self._progress.tasks[0]
        task.total, task.finished_time = total, None  # to update(), no total is the one before
        self._progress.update(task.id, description=what, completed=done, note=note)
        if self.is_drawn and self._stderr is None:
            self._stderr = sys.stderr
            sys.stderr = cast(TextIO, _Stderr(sys.stderr, self.stop))
            self._progress.start()

    def stage(self, what: str, fraction: float) -> None:
        """Progress of a task with named stages, as the model code reports it."""
        self.update(what, fraction, 1.0, f"{fraction:.0%}")

    def loading(self, stage: str, fraction: float) -> None:
        """Progress of loading a model: stages while the default model is converted, then none."""
        if fraction < 1:
            self.stage(f"converting the model: {stage}", fraction)
        else:
            self.update("loading the model", 0, None)


class _LineColumn(TextColumn):
    """A text that is shortened on a narrow screen, so that spinner and time stay on it."""

    def render(self, task: Task) -> Text:
        text = super().render(task)
        text.no_wrap, text.overflow = True, "ellipsis"
        return text


class _Stderr:
    """Standard error while a bar is drawn there: what others write takes the bar away first."""

    def __init__(self, stream: TextIO, give_way: Callable[[], None]) -> None:
        self.rich_proxied_file = stream  # what the bar's own console writes to
        self._give_way = give_way

    def write(self, text: str) -> int:
        self._give_way()
        return self.rich_proxied_file.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)
