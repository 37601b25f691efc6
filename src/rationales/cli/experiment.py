"""``rationales experiment``: the paper's tables and figures, one command each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rationales.cli.progress import Bar

app = typer.Typer(help="Run an experiment of the paper.", no_args_is_help=True)

_Out = Annotated[
    Path,
    typer.Option(
        "--out", metavar="DIR", help="The folder of the run: what is finished stays there."
    ),
]
_Seed = Annotated[int, typer.Option("--seed", help="Seed of everything that is random.")]
_Overwrite = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace a run of other settings that the folder holds."),
]


@app.command("majority")
def majority(out: _Out, seed: _Seed = 0, overwrite: _Overwrite = False) -> None:
    """Calibration on the majority language, with and without word dropout (fifteen minutes)."""
    from rationales.experiments import majority as experiment

    with Bar() as bar:
        results = experiment.run(
            out, experiment.Settings(seed=seed), overwrite=overwrite, progress=bar.update
        )
    _finish(experiment.report(results), out)


@app.command("the")
def the(
    out: _Out,
    text: Annotated[
        Path | None,
        typer.Option(help="An English text to learn from; WikiText-2 in RATIONALES_DATA if not."),
    ] = None,
    seed: _Seed = 0,
    overwrite: _Overwrite = False,
) -> None:
    """How probable "the" is after "the" alone, before and after fine-tuning (fifteen minutes)."""
    from rationales.experiments import the as experiment

    with Bar() as bar:
        results = experiment.run(
            out, text, experiment.Settings(seed=seed), overwrite=overwrite, progress=bar.update
        )
    _finish(experiment.report(results), out)


def _finish(report: str, out: Path) -> None:
    typer.echo(report.rstrip("\n"))
    typer.echo(f"table, data and figures are in {out}", err=True)
