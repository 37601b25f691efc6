"""One run of an experiment: which model and data it is about, its folder, and its results.

    settings, model, data ─► RunFolder ─► results.json · table.md · figures

The identity of a run holds digests of weights and data, so a run does not go on with another model,
another adapter or other examples than it began with.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rationales import metrics
from rationales.data import data_file, sha256
from rationales.errors import RationalesError
from rationales.render import figures
from rationales.runs import OnProgress, RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rationales.explainer import Explainer

TABLE = "table.md"

Results = dict[str, Any]


class Run(RunFolder):
    """The folder of an experiment's run, and what its results begin with."""

    known: dict[str, Any]
    """The name of the experiment, and its settings: the identity of the run."""

    def draw(self, name: str, figure: Figure) -> None:
        """Write a figure as PNG and as SVG."""
        for kind in ("png", "svg"):
            with self.writing(f"{name}.{kind}") as path:
                figures.save(figure, path)

    def finish(self, results: Mapping[str, Any], report: str) -> None:
        """Write the results and the tables."""
        self.write("results.json", json.dumps(results, indent=1) + "\n")
        self.write(TABLE, report)


@contextmanager
def open_run(
    name: str,
    out: str | Path,
    settings: Any,
    subject: Mapping[str, Any] | None = None,
    *,
    overwrite: bool = False,
) -> Iterator[Run]:
    """A context with the run of these settings, a dataclass; no other process writes to its folder.

    ``subject`` is the rest of its identity, such as ``subject_of`` a model and its data.
    """
    figures.check()
    run = Run(out, f"experiment {name}")
    identity = asdict(settings) | dict(subject or {})
    run.known = {"experiment": name, "settings": identity}
    names: dict[str, str | None] = {n: identity[n] for n in ("model", "adapter") if n in identity}
    compared = {key: value for key, value in identity.items() if key not in names}
    with run.opened(compared, overwrite, names):
        yield run


def subject_of(
    explainer: Explainer, data: Sequence[str | Path] = (), adapter: str | None = None
) -> dict[str, Any]:
    """The identity of a model and of data: names of data files, or paths of a user's own.

    ``adapter`` is the folder that the explainer's adapter was loaded from, if not the packaged one.
    """
    from rationales.compat.adapter import WEIGHTS
    from rationales.loading import DEFAULT_ADAPTER, adapter_folder
    from rationales.models.identity import fingerprint

    metrics.check()
    model = explainer.without_adapter().model
    if model is None:
        raise RationalesError("the experiments look inside the model: a black box will not do")
    folder = None if explainer.adapter is None else adapter_folder(adapter or DEFAULT_ADAPTER)
    return {
        "model": Path(explainer.name).name if Path(explainer.name).exists() else explainer.name,
        "model_fingerprint": fingerprint(model),
        "adapter": explainer.adapter,
        "adapter_sha256": None if folder is None else sha256(folder / WEIGHTS),
        "data_sha256": {
            **{file.name: sha256(file) for file in data if isinstance(file, Path)},
            **{file: sha256(data_file(file)) for file in data if isinstance(file, str)},
        },
    }


def language_experiment(
    name: str, data: Sequence[str]
) -> Callable[[Callable[..., Results]], Callable[..., Results]]:
    """A decorator: a function of a run, a model, settings and progress opens its run by itself.

    ``adapter`` is the folder that the explainer's adapter was loaded from, if not the packaged one.
    A path that the function is given by name is read instead of the ``data``.
    """

    def decorated(function: Callable[..., Results]) -> Callable[..., Results]:
        @wraps(function)
        def run(
            out: str | Path,
            explainer: Explainer,
            settings: Any,
            *,
            adapter: str | None = None,
            overwrite: bool,
            progress: OnProgress,
            **paths: Path | None,
        ) -> Results:
            own = {key: path for key, path in paths.items() if path is not None}
            subject = subject_of(explainer, [*own.values()] or data, adapter)
            with open_run(name, out, settings, subject, overwrite=overwrite) as opened:
                return function(opened, explainer, settings, progress, **own)

        return run

    return decorated
