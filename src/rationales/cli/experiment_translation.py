"""``rationales experiment translation``: a French–English model, trained and made compatible."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rationales.cli.progress import Bar

Seed = Annotated[int, typer.Option("--seed", help="Seed of everything that is random.")]
Overwrite = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace a run of other settings that the folder holds."),
]

if TYPE_CHECKING:
    from rationales.experiments.translation_training import Learning, Listener

app = typer.Typer(
    help="Train a French–English model from scratch, and make it compatible.",
    no_args_is_help=True,
)

_Out = Annotated[
    Path,
    typer.Option(
        "--out",
        metavar="DIR",
        help="The folder of the run and of its model. The same command again goes on where it "
        "stopped.",
    ),
]
_Pairs = Annotated[
    Path | None,
    typer.Option("--pairs", metavar="FILE", help="Lines of English TAB French; Tatoeba's if not."),
]
_Minutes = Annotated[
    float | None, typer.Option("--minutes", help="Minutes to train for; BLEU comes on top.")
]
_Steps = Annotated[
    int | None, typer.Option("--steps", help="Steps to train for, instead of minutes.")
]
_BatchTokens = Annotated[
    int, typer.Option("--batch-tokens", help="Tokens of a step, of both languages.")
]
_Rate = Annotated[float, typer.Option("--learning-rate", help="The highest of the run.")]
_Warmup = Annotated[int, typer.Option("--warmup", help="Steps over which the rate rises.")]
_Dtype = Annotated[
    str,
    typer.Option("--dtype", help="float32, or bfloat16 to multiply in where the processor has it."),
]


@app.command("train", epilog="Example: rationales experiment translation train --out runs/fr-en")
def train(
    out: _Out,
    pairs: _Pairs = None,
    minutes: _Minutes = None,
    steps: _Steps = None,
    batch_tokens: _BatchTokens = 4000,
    learning_rate: _Rate = 1.5e-3,
    warmup: _Warmup = 1000,
    dtype: _Dtype = "float32",
    seed: Seed = 0,
    overwrite: Overwrite = False,
) -> None:
    """Train a French–English model from scratch (90 minutes), and measure its BLEU."""
    from rationales.experiments import translation_model as translation

    learning = _learning(90, minutes, steps, batch_tokens, learning_rate, warmup, dtype)
    settings = translation.TrainSettings(seed=seed, learning=learning)
    _run(
        lambda listener: translation.train(
            out, settings, listener, pairs=pairs, overwrite=overwrite
        ),
        out,
    )


@app.command(
    "tune",
    epilog="Example: rationales experiment translation tune --model runs/fr-en --out runs/compat",
)
def tune(
    out: _Out,
    model: Annotated[
        Path, typer.Option("--model", metavar="DIR", help="The folder of a trained model.")
    ],
    pairs: _Pairs = None,
    minutes: _Minutes = None,
    steps: _Steps = None,
    batch_tokens: _BatchTokens = 4000,
    learning_rate: _Rate = 5e-4,
    warmup: _Warmup = 200,
    dtype: _Dtype = "float32",
    seed: Seed = 0,
    overwrite: Overwrite = False,
) -> None:
    """Fine-tune it for compatibility with word dropout (30 minutes); BLEU before and after."""
    from rationales.experiments import translation_model as translation

    learning = _learning(30, minutes, steps, batch_tokens, learning_rate, warmup, dtype)
    settings = translation.TuneSettings(seed=seed, learning=learning)
    _run(
        lambda listener: translation.tune(
            out, model, settings, listener, pairs=pairs, overwrite=overwrite
        ),
        out,
    )


@app.command(
    "export",
    epilog="Example: rationales experiment translation export --model runs/compat --out fr-en",
)
def export(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder that the model is to be in.")
    ],
    model: Annotated[
        Path, typer.Option("--model", metavar="DIR", help="The folder of a finished model.")
    ],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what the folder holds of a model.")
    ] = False,
) -> None:
    """Copy a finished model as it can be part of the package: half precision, 20 MB at most."""
    from rationales.experiments.translation_record import export as exported

    typer.echo(f"the model is in {exported(model, out, overwrite)}", err=True)


def _learning(
    usual: float,
    minutes: float | None,
    steps: int | None,
    batch_tokens: int,
    learning_rate: float,
    warmup: int,
    dtype: str,
) -> Learning:
    """How long and how fast: the usual minutes, if neither these nor steps are given."""
    from rationales.experiments.translation_training import Learning

    return Learning(
        minutes=usual if minutes is None and steps is None else minutes,
        steps=steps,
        batch_tokens=batch_tokens,
        learning_rate=learning_rate,
        warmup=warmup,
        dtype=dtype,
    )


def _run(run: Callable[[Listener], dict[str, Any]], out: Path) -> None:
    """Run a training and print what came of it; say how to go on if it is interrupted."""
    from rationales.experiments.translation_model import report
    from rationales.experiments.translation_training import Listener

    with Bar() as bar:
        try:
            record = run(Listener(bar.update, lambda line: typer.echo(line, err=True)))
        except KeyboardInterrupt:
            bar.stop()
            typer.echo("the same command goes on from the last checkpoint", err=True)
            raise
    typer.echo(report(record))
    typer.echo(f"the model is in {out}", err=True)
