"""``rationales experiment``: the paper's tables and figures, one command each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rationales.cli import experiment_translation as translation_commands
from rationales.cli.progress import Bar
from rationales.errors import RationalesError

if TYPE_CHECKING:
    from rationales.explainer import Explainer

app = typer.Typer(help="Run an experiment of the paper.", no_args_is_help=True)

app.add_typer(translation_commands.app, name="translation")

ALL = ("majority", "the", "agreement", "lambada", "efficiency")
"""What ``rationales experiment all`` runs, in this order."""

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
_Model = Annotated[
    str | None,
    typer.Option(
        "--model", help="A Hugging Face id, a folder or a .gguf file; the default model if not."
    ),
]
_Adapter = Annotated[
    str | None,
    typer.Option(
        "--adapter",
        help="The folder of a compatibility adapter; the default model's own if left out; none.",
    ),
]
_Limit = Annotated[
    int | None, typer.Option("--limit", metavar="N", help="Only N examples, at random.")
]
_Methods = Annotated[
    str | None,
    typer.Option("--methods", help="Only these, with commas between: greedy,all-attention"),
]
_Steps = Annotated[int, typer.Option("--ig-steps", help="Steps of integrated gradients.")]
_MaxSize = Annotated[
    int | None,
    typer.Option("--max-size", metavar="N", help="No search goes beyond N tokens: saves time."),
]
_Size = Annotated[
    int, typer.Option("--exhaustive-size", help="How large a subset exhaustive search tries.")
]
_Exhaustive = Annotated[
    bool,
    typer.Option("--exhaustive/--no-exhaustive", help="Search all small subsets too (hours)."),
]


@app.command("majority", epilog="Example: rationales experiment majority --out runs/majority")
def majority(out: _Out, seed: _Seed = 0, overwrite: _Overwrite = False) -> None:
    """Calibration on the majority language, with and without word dropout (fifteen minutes)."""
    from rationales.experiments import majority as experiment

    with Bar() as bar:
        results = experiment.run(
            out, experiment.Settings(seed=seed), overwrite=overwrite, progress=bar.update
        )
    _finish(experiment.report(results), out)


@app.command("the", epilog="Example: rationales experiment the --out runs/the")
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


@app.command("agreement", epilog="Example: rationales experiment agreement --limit 10 --out runs/a")
def agreement(
    out: _Out,
    model: _Model = None,
    adapter: _Adapter = None,
    limit: _Limit = None,
    methods: _Methods = None,
    ig_steps: _Steps = 100,
    max_size: _MaxSize = None,
    exhaustive_size: _Size = 4,
    exhaustive: _Exhaustive = True,
    seed: _Seed = 0,
    overwrite: _Overwrite = False,
) -> None:
    """Long-range agreement: antecedents and distractors, every method, with and without adapter."""
    from rationales.experiments import agreement as experiment

    if exhaustive and exhaustive_size < 1:
        raise RationalesError("exhaustive-size must be at least 1: or give --no-exhaustive")
    settings = experiment.Settings(
        limit,
        _names(methods),
        seed,
        ig_steps,
        max_size,
        exhaustive_size if exhaustive else 0,
    )
    _run(experiment, settings, out, model, adapter, overwrite)


@app.command("lambada", epilog="Example: rationales experiment lambada --limit 10 --out runs/l")
def lambada(
    out: _Out,
    model: _Model = None,
    adapter: _Adapter = None,
    limit: _Limit = None,
    methods: _Methods = None,
    ig_steps: _Steps = 100,
    max_size: _MaxSize = None,
    seed: _Seed = 0,
    overwrite: _Overwrite = False,
) -> None:
    """Annotated Lambada: rationales against the words that people needed, every method."""
    from rationales.experiments import lambada as experiment

    settings = experiment.Settings(limit, _names(methods), seed, ig_steps, max_size)
    _run(experiment, settings, out, model, adapter, overwrite)


@app.command(
    "efficiency", epilog="Example: rationales experiment efficiency --limit 5 --out runs/e"
)
def efficiency(
    out: _Out,
    model: _Model = None,
    adapter: _Adapter = None,
    limit: _Limit = 20,
    methods: Annotated[
        str | None,
        typer.Option("--methods", help="Of masked,sparse,shared,fast,exhaustive only these."),
    ] = None,
    exhaustive_size: _Size = 4,
    seed: _Seed = 0,
    overwrite: _Overwrite = False,
) -> None:
    """What a rationale costs in seconds and tokens, and how that grows with the context."""
    from rationales.experiments import efficiency as experiment

    settings = experiment.Settings(limit, _names(methods), seed, exhaustive_size)
    _run(experiment, settings, out, model, adapter, overwrite)


@app.command("all", epilog="Example: rationales experiment all --limit 10 --out runs")
def everything(
    out: _Out,
    model: _Model = None,
    adapter: _Adapter = None,
    limit: _Limit = None,
    methods: _Methods = None,
    exhaustive: _Exhaustive = True,
    skip: Annotated[
        list[str] | None,
        typer.Option("--skip", help=f"Leave one out ({', '.join(ALL)}); may be repeated."),
    ] = None,
    seed: _Seed = 0,
    overwrite: _Overwrite = False,
) -> None:
    """Everything there is, each in a folder of its own, and one report.html over all of it."""
    from rationales.experiments import report

    for name in skip or ():
        if name not in ALL:
            raise RationalesError(f"there is no experiment {name!r} to skip: {', '.join(ALL)}")
    names = [name for name in ALL if name not in (skip or ())]
    if not names:
        raise RationalesError("all experiments are skipped: leave one in")
    _check_data(names)
    report.check()
    steps = 100
    whole: dict[str, Callable[[Path], None]] = {
        "majority": lambda to: majority(to, seed, overwrite),
        "the": lambda to: the(to, None, seed, overwrite),
        "agreement": lambda to: agreement(
            to, model, adapter, limit, methods, steps, None, 4, exhaustive, seed, overwrite
        ),
        "lambada": lambda to: lambada(
            to, model, adapter, limit, methods, steps, None, seed, overwrite
        ),
        "efficiency": lambda to: efficiency(
            to, model, adapter, limit or 20, None, 4 if exhaustive else 0, seed, overwrite
        ),
    }
    for name in names:
        typer.echo(f"{name} ({names.index(name) + 1} of {len(names)})", err=True)
        whole[name](out / name)
    typer.echo(f"the report is {report.write(out, names)}", err=True)


def _run(
    experiment: Any, settings: Any, out: Path, model: str | None, adapter: str | None, over: bool
) -> None:
    """Load the model, run an experiment with it, and print its tables."""
    for name in getattr(experiment, "DATA", ()):
        _data_file(name)
    with Bar() as bar:
        explainer = _load(model, adapter, bar)
        results = experiment.run(
            out, explainer, settings, adapter=adapter, overwrite=over, progress=bar.update
        )
    _finish(experiment.report(results), out)


def _load(model: str | None, adapter: str | None, bar: Bar) -> Explainer:
    from rationales.explainer import load

    bar.update("loading the model", 0, None)
    return load(model, adapter=adapter, progress=bar.stage, kind="causal")


def _check_data(names: list[str]) -> None:
    """Raise if a data file is missing that one of these experiments needs: before they run."""
    from rationales.experiments import agreement, efficiency, lambada
    from rationales.experiments.the import WIKITEXT

    needed = {
        "the": (WIKITEXT,),
        "agreement": agreement.DATA,
        "lambada": lambada.DATA,
        "efficiency": efficiency.DATA,
    }
    for name in names:
        for file in needed.get(name, ()):
            _data_file(file)


def _data_file(name: str) -> None:
    from rationales.data import data_file

    data_file(name)


def _names(methods: str | None) -> tuple[str, ...] | None:
    """The names in a list with commas; None if there is no list."""
    if methods is None:
        return None
    return tuple(name.strip() for name in methods.split(",") if name.strip())


def _finish(report: str, out: Path) -> None:
    typer.echo(report.rstrip("\n"))
    typer.echo(f"table, data and figures are in {out}", err=True)
