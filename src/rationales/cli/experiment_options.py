"""Options that experiments have in common, and how one of them is run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rationales.cli.progress import Bar

if TYPE_CHECKING:
    from rationales.explainer import Explainer
    from rationales.models.files import Kind

Out = Annotated[
    Path,
    typer.Option(
        "--out", metavar="DIR", help="The folder of the run: what is finished stays there."
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of everything that is random.")]
Overwrite = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace a run of other settings that the folder holds."),
]
Limit = Annotated[
    int | None, typer.Option("--limit", metavar="N", help="Only N examples, at random.")
]
Methods = Annotated[
    str | None,
    typer.Option("--methods", help="Only these, with commas between: greedy,all-attention"),
]
Steps = Annotated[int, typer.Option("--ig-steps", help="Steps of integrated gradients.")]
MaxSize = Annotated[
    int,
    typer.Option(
        "--max-size", metavar="N", help="No search goes beyond N tokens; 0: there is no such limit."
    ),
]


def run_experiment(
    experiment: Any,
    out: Path,
    settings: Any,
    model: str | None,
    overwrite: bool,
    *,
    kind: Kind = "causal",
    adapter: str | None = None,
    **more: Any,
) -> None:
    """Load the model, run an experiment with it, and print its tables."""
    check_data(() if more.get("folder") is not None else getattr(experiment, "DATA", ()))
    if kind == "causal":
        more["adapter"] = adapter
    with Bar() as bar:
        explainer = load_explainer(model, adapter, bar, kind)
        results = experiment.run(
            out, explainer, settings, overwrite=overwrite, progress=bar.update, **more
        )
    finish(experiment.report(results), out)


def load_explainer(model: str | None, adapter: str | None, bar: Bar, kind: Kind) -> Explainer:
    """The explainer of a model, which must be of that kind."""
    from rationales.explainer import load

    bar.update("loading the model", 0, None)
    return load(model, adapter=adapter, progress=bar.loading, kind=kind)


def check_data(names: tuple[str, ...]) -> None:
    """Raise if one of these data files is missing."""
    from rationales.data import data_file

    for name in names:
        data_file(name)


def method_names(methods: str | None) -> tuple[str, ...] | None:
    """The names in a list with commas; None if there is no list."""
    if methods is None:
        return None
    return tuple(name.strip() for name in methods.split(",") if name.strip())


def finish(report: str, out: Path) -> None:
    """Print the tables of a run, and say where the rest is."""
    from rationales.runs import PARTS, seconds_in

    typer.echo(report.rstrip("\n"))
    for name, what in (("lines", "rationales"), ("exhaustive", "exhaustive search")):
        if seconds := seconds_in(out / PARTS / f"{name}.jsonl"):
            typer.echo(f"{what}: {seconds / 60:.1f} minutes, over all runs", err=True)
    typer.echo(f"table, data and figures are in {out}", err=True)
