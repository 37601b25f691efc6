"""``rationales experiment``: the paper's tables and figures, one command each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from rationales.cli.experiment_options import (
    Limit,
    MaxSize,
    Methods,
    Out,
    Overwrite,
    Seed,
    Steps,
    check_data,
    finish,
    method_names,
    run_experiment,
)
from rationales.cli.experiment_sentences import alignments, distractors
from rationales.cli.progress import Bar
from rationales.errors import RationalesError

app = typer.Typer(help="Run an experiment of the paper.", no_args_is_help=True)

ALL = ("majority", "the", "agreement", "lambada", "efficiency", "distractors", "alignments")
"""What ``rationales experiment all`` runs, in this order."""

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
_Size = Annotated[
    int, typer.Option("--exhaustive-size", help="How large a subset exhaustive search tries.")
]
_Exhaustive = Annotated[
    bool,
    typer.Option("--exhaustive/--no-exhaustive", help="Search all small subsets too (hours)."),
]


@app.command("majority", epilog="Example: rationales experiment majority --out runs/majority")
def majority(out: Out, seed: Seed = 0, overwrite: Overwrite = False) -> None:
    """Calibration on the majority language, with and without word dropout (fifteen minutes)."""
    from rationales.experiments.toys import majority as experiment

    with Bar() as bar:
        results = experiment.run(
            out, experiment.Settings(seed=seed), overwrite=overwrite, progress=bar.update
        )
    finish(experiment.report(results), out)


@app.command("the", epilog="Example: rationales experiment the --out runs/the")
def the(
    out: Out,
    text: Annotated[
        Path | None,
        typer.Option(help="An English text to learn from; WikiText-2 in RATIONALES_DATA if not."),
    ] = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
) -> None:
    """How probable "the" is after "the" alone, before and after fine-tuning (fifteen minutes)."""
    from rationales.experiments.toys import repetition as experiment

    with Bar() as bar:
        results = experiment.run(
            out, text, experiment.Settings(seed=seed), overwrite=overwrite, progress=bar.update
        )
    finish(experiment.report(results), out)


@app.command("agreement", epilog="Example: rationales experiment agreement --limit 10 --out runs/a")
def agreement(
    out: Out,
    model: _Model = None,
    adapter: _Adapter = None,
    limit: Limit = None,
    methods: Methods = None,
    ig_steps: Steps = 100,
    max_size: MaxSize = 0,
    exhaustive_size: _Size = 4,
    exhaustive: _Exhaustive = True,
    seed: Seed = 0,
    overwrite: Overwrite = False,
) -> None:
    """Long-range agreement: antecedents and distractors, every method, with and without adapter."""
    from rationales.experiments.language import agreement as experiment

    if exhaustive and exhaustive_size < 1:
        raise RationalesError("exhaustive-size must be at least 1: or give --no-exhaustive")
    settings = experiment.Settings(
        limit,
        method_names(methods),
        seed,
        ig_steps,
        max_size or None,
        exhaustive_size if exhaustive else 0,
    )
    run_experiment(experiment, out, settings, model, overwrite, adapter=adapter)


@app.command("lambada", epilog="Example: rationales experiment lambada --limit 10 --out runs/l")
def lambada(
    out: Out,
    model: _Model = None,
    adapter: _Adapter = None,
    limit: Limit = None,
    methods: Methods = None,
    ig_steps: Steps = 100,
    max_size: MaxSize = 0,
    seed: Seed = 0,
    overwrite: Overwrite = False,
) -> None:
    """Annotated Lambada: rationales against the words that people needed, every method."""
    from rationales.experiments.language import lambada as experiment

    settings = experiment.Settings(limit, method_names(methods), seed, ig_steps, max_size or None)
    run_experiment(experiment, out, settings, model, overwrite, adapter=adapter)


@app.command(
    "efficiency", epilog="Example: rationales experiment efficiency --limit 5 --out runs/e"
)
def efficiency(
    out: Out,
    model: _Model = None,
    adapter: _Adapter = None,
    limit: Limit = 20,
    methods: Annotated[
        str | None,
        typer.Option("--methods", help="Of masked,sparse,shared,fast,exhaustive only these."),
    ] = None,
    exhaustive_size: _Size = 4,
    seed: Seed = 0,
    overwrite: Overwrite = False,
) -> None:
    """What a rationale costs in seconds and tokens, and how that grows with the context."""
    from rationales.experiments.language import efficiency as experiment

    settings = experiment.Settings(limit, method_names(methods), seed, exhaustive_size)
    run_experiment(experiment, out, settings, model, overwrite, adapter=adapter)


for _command in (distractors, alignments):
    _example = f"Example: rationales experiment {_command.__name__} --limit 10 --out runs/x"
    app.command(_command.__name__, epilog=_example)(_command)


@app.command("all", epilog="Example: rationales experiment all --limit 10 --out runs")
def everything(
    out: Out,
    model: _Model = None,
    adapter: _Adapter = None,
    limit: Limit = None,
    methods: Methods = None,
    exhaustive: _Exhaustive = True,
    translator: Annotated[
        str | None,
        typer.Option(
            "--translator",
            help="The translation model of distractors and alignments; the packaged one if not.",
        ),
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option("--skip", help=f"Leave one out ({', '.join(ALL)}); may be repeated."),
    ] = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
) -> None:
    """Everything there is, each in a folder of its own, and one report.html over all of it."""
    from rationales.experiments import report

    for name in skip or ():
        if name not in ALL:
            raise RationalesError(f"there is no experiment {name!r} to skip: {', '.join(ALL)}")
    names = [name for name in ALL if name not in (skip or ())]
    whys = {
        name: why
        for name in ("distractors", "alignments")
        if name in names and (why := _lacking(name, translator, methods))
    }
    names = [name for name in names if name not in whys]
    _check_data(names)
    for name, why in whys.items():
        typer.echo(f"{name} is skipped: {why}", err=True)
    if not names:
        raise RationalesError("all experiments are skipped: leave one in")
    report.check()
    steps = 100
    whole: dict[str, Callable[[Path], None]] = {
        "majority": lambda to: majority(to, seed, overwrite),
        "the": lambda to: the(to, None, seed, overwrite),
        "agreement": lambda to: agreement(
            to, model, adapter, limit, methods, steps, 0, 4, exhaustive, seed, overwrite
        ),
        "lambada": lambda to: lambada(
            to, model, adapter, limit, methods, steps, seed=seed, overwrite=overwrite
        ),
        "efficiency": lambda to: efficiency(
            to, model, adapter, limit or 20, None, 4 if exhaustive else 0, seed, overwrite
        ),
        "distractors": lambda to: distractors(
            to,
            translator,
            limit=limit,
            methods=_of_translations(methods),
            seed=seed,
            overwrite=overwrite,
        ),
        "alignments": lambda to: alignments(
            to,
            translator,
            limit=limit,
            methods=_of_translations(methods),
            seed=seed,
            overwrite=overwrite,
        ),
    }
    for name in names:
        typer.echo(f"{name} ({names.index(name) + 1} of {len(names)})", err=True)
        whole[name](out / name)
    typer.echo(f"the report is {report.write(out, names)}", err=True)


def _check_data(names: list[str]) -> None:
    """Raise if a data file is missing that one of these experiments needs: before they run."""
    from rationales.experiments.language import agreement, efficiency, lambada
    from rationales.experiments.toys.repetition import WIKITEXT

    needed = {
        "the": (WIKITEXT,),
        "agreement": agreement.DATA,
        "lambada": lambada.DATA,
        "efficiency": efficiency.DATA,
    }
    for name in names:
        check_data(needed.get(name, ()))


def _lacking(name: str, translator: str | None, methods: str | None) -> str:
    """What an experiment on translation lacks, data or a model; nothing if it has all."""
    from rationales.experiments.translation import alignments, distractors
    from rationales.models import packaged_translator

    try:
        check_data({"distractors": distractors, "alignments": alignments}[name].DATA)
        if translator is None:
            packaged_translator()
    except RationalesError as error:
        return str(error)
    return "none of the methods is for translations" if _of_translations(methods) == "" else ""


def _of_translations(methods: str | None) -> str | None:
    """The methods without the one that encoder–decoders do not have."""
    from rationales.experiments.methods import LABELS, OF_TRANSLATIONS

    others = {*LABELS} - {*OF_TRANSLATIONS}
    names = method_names(methods)
    return None if names is None else ",".join(name for name in names if name not in others)
