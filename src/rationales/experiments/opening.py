"""How a run begins and ends, whatever it measures: who is judged, on what, and in which folder.

settings, model, data ─► the folder of that run, and no other's ─► results.json · table.md
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rationales import metrics
from rationales.experiments.folder import RESULTS, TABLE, ExperimentFolder
from rationales.experiments.judges import identity
from rationales.experiments.lines import Lines
from rationales.explainer import Explainer
from rationales.render import plots


@dataclass(frozen=True)
class Experiment:
    """A run of an experiment, as it is given: its name, where it goes, the model and the rest."""

    name: str
    out: str | Path
    explainer: Explainer
    settings: Any
    """A dataclass: what makes the run the one it is, but for its model and data."""
    data: Sequence[str | Path] = ()
    """Names of data files, or paths of a user's own."""
    adapter: str | None = None
    """The folder that the explainer's adapter was loaded from, if not the packaged one."""

    @contextmanager
    def opened(self, overwrite: bool) -> Iterator[Opened]:
        """A context in which the folder is that of this run, and nobody else writes."""
        plots.check()
        metrics.check()
        given = asdict(self.settings)
        who = identity(self.explainer, self.adapter, self.data)
        folder = ExperimentFolder(self.out)
        with folder.opened({"experiment": self.name, **given, **who}, overwrite):
            yield Opened(folder, {"experiment": self.name, "settings": given | who})


@dataclass(frozen=True)
class Opened:
    """A run that has begun: its folder, and what its results begin with."""

    folder: ExperimentFolder
    known: dict[str, Any]

    def lines(self, key: tuple[str, ...], name: str = "lines") -> Lines:
        """The file of what is finished, each line found by its key."""
        return Lines(self.folder.parts / f"{name}.jsonl", key)

    def finish(self, results: dict[str, Any], report: str) -> None:
        """Write the results and the tables."""
        self.folder.write(RESULTS, json.dumps(results, indent=1) + "\n")
        self.folder.write(TABLE, report)
