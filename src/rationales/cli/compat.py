"""``rationales compat``: make a model's predictions on incomplete contexts mean something."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rationales.cli.progress import Bar
from rationales.compat.options import (
    DEFAULT_STEPS,
    DISTRIBUTION_NAMES,
    DTYPES,
    LOSSES,
    METHODS,
    TrainOptions,
)

if TYPE_CHECKING:
    from rationales.compat.train import StepReport

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

TRAIN_EXAMPLES = """
[bold]Examples[/bold]\n
  rationales compat train --text self --out adapter --minutes 30\n
  rationales compat train --model gpt2 --text wiki.train.raw --text self --out gpt2-adapter\n
  rationales compat train --model gpt2 --text corpus.txt --loss data --method full --out gpt2-own\n
  accelerate launch -m rationales compat train --model gpt2 --text corpus.txt --out adapter
"""

_TEXT, _WHAT, _PACE, _OUT = "Text", "What is learned", "How long, how fast", "Output"


@app.callback()
def _compat() -> None:
    """Make a model's predictions on incomplete contexts mean something."""


@app.command("train", epilog=TRAIN_EXAMPLES)
def train(  # a command's parameters are its options: they become a dataclass at once
    text: Annotated[
        list[str],
        typer.Option(
            help="A UTF-8 text file (again for more), or self: text that the model samples.",
            metavar="FILE|self",
            rich_help_panel=_TEXT,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            help="The folder of the run and of its result. The same command again goes on "
            "where it stopped.",
            rich_help_panel=_OUT,
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            help="A Hugging Face id, a local folder or a .gguf file; the default model if "
            "left out.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Go on from an adapter of the same model, with other options or texts.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    distribution: Annotated[
        str,
        typer.Option(
            help=f"Which subsets are kept: one of {', '.join(DISTRIBUTION_NAMES)}.",
            rich_help_panel=_WHAT,
        ),
    ] = TrainOptions.distribution,
    mixture: Annotated[
        float,
        typer.Option(
            help="With this probability the context is incomplete, otherwise full.",
            rich_help_panel=_WHAT,
        ),
    ] = TrainOptions.mixture,
    full_weight: Annotated[
        float,
        typer.Option(
            help="How much more a full context counts: more keeps the model's own predictions.",
            rich_help_panel=_WHAT,
        ),
    ] = TrainOptions.full_weight,
    loss: Annotated[
        str,
        typer.Option(
            help=f"One of {', '.join(LOSSES)}: the model's own prediction from the full context, "
            "or the true next token.",
            rich_help_panel=_WHAT,
        ),
    ] = TrainOptions.loss,
    method: Annotated[
        str,
        typer.Option(
            help=f"One of {', '.join(METHODS)}: a small adapter, or all weights.",
            rich_help_panel=_WHAT,
        ),
    ] = TrainOptions.method,
    lora_rank: Annotated[
        int, typer.Option(help="Rank of the adapter.", rich_help_panel=_WHAT)
    ] = TrainOptions.lora_rank,
    lora_alpha: Annotated[
        int,
        typer.Option(help="The adapter is scaled by alpha / rank.", rich_help_panel=_WHAT),
    ] = TrainOptions.lora_alpha,
    length: Annotated[
        int, typer.Option(help="Tokens of a row.", rich_help_panel=_TEXT)
    ] = TrainOptions.length,
    self_share: Annotated[
        float,
        typer.Option(
            help="Share of the model's own rows, with text files besides.", rich_help_panel=_TEXT
        ),
    ] = TrainOptions.self_share,
    self_rows: Annotated[
        int,
        typer.Option(
            help="Rows that the model samples; then they repeat, under other subsets.",
            rich_help_panel=_TEXT,
        ),
    ] = TrainOptions.self_rows,
    steps: Annotated[
        int | None,
        typer.Option(
            help=f"Steps to train for; {DEFAULT_STEPS} without --minutes.", rich_help_panel=_PACE
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Minutes to train for, instead of steps; reading and sampling text not counted.",
            rich_help_panel=_PACE,
        ),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help="The highest of the run; 1e-3 for an adapter, 5e-5 for all weights if left out.",
            rich_help_panel=_PACE,
        ),
    ] = None,
    warmup: Annotated[
        float,
        typer.Option(
            help="Share of the run in which the rate rises; then it falls to zero.",
            rich_help_panel=_PACE,
        ),
    ] = TrainOptions.warmup,
    batch: Annotated[
        int, typer.Option(help="Rows of a step.", rich_help_panel=_PACE)
    ] = TrainOptions.batch,
    micro_batch: Annotated[
        int,
        typer.Option(
            help="Rows of a forward pass on one device: bounds the memory.", rich_help_panel=_PACE
        ),
    ] = TrainOptions.micro_batch,
    seed: Annotated[
        int, typer.Option(help="Seed of everything that is random.", rich_help_panel=_PACE)
    ] = TrainOptions.seed,
    dtype: Annotated[
        str,
        typer.Option(
            help=f"What is multiplied in, one of {', '.join(DTYPES)}; weights stay float32.",
            rich_help_panel=_PACE,
        ),
    ] = TrainOptions.dtype,
    cpu: Annotated[
        bool,
        typer.Option(
            "--cpu", help="Stay on the CPU even if there is a GPU.", rich_help_panel=_PACE
        ),
    ] = False,
    checkpoint_every: Annotated[
        int, typer.Option(help="Steps between checkpoints.", rich_help_panel=_OUT)
    ] = TrainOptions.checkpoint_every,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Begin anew in a folder that holds another run.",
            rich_help_panel=_OUT,
        ),
    ] = False,
) -> None:
    """Fine-tune a model on contexts with holes: word dropout, with an adapter or in full."""
    options = TrainOptions(
        texts=tuple(text),
        out=out,
        model=model,
        start=start,
        distribution=distribution,
        mixture=mixture,
        full_weight=full_weight,
        loss=loss,
        method=method,
        lora_rank=lora_rank,
        lora_alpha=lora_alpha,
        learning_rate=learning_rate,
        length=length,
        batch=batch,
        micro_batch=micro_batch,
        steps=steps,
        minutes=minutes,
        warmup=warmup,
        self_share=self_share,
        self_rows=self_rows,
        seed=seed,
        dtype=dtype,
        checkpoint_every=checkpoint_every,
        cpu=cpu,
        overwrite=overwrite,
    )
    with Bar() as bar:
        bar.update("loading", 0, None)
        from rationales.compat import train as training

        try:
            result = training.train(options, on_step=_teller(bar), progress=bar.stage)
        except training.TrainingInterrupted as interrupted:
            bar.stop()
            typer.echo(_how_to_resume(interrupted.step), err=True)
            raise
    typer.echo(
        f"{result.steps:,} steps · {result.tokens:,} tokens · {result.seconds / 60:.1f} minutes · "
        f"loss {result.loss:.3f}",
        err=True,
    )
    typer.echo(result.folder)


def _teller(bar: Bar) -> Callable[[StepReport], None]:
    def tell(report: StepReport) -> None:
        note = (
            f"step {report.step:,} · loss {report.loss:.3f} · {report.tokens_per_second:,.0f} tok/s"
        )
        bar.update("training", report.fraction, 1.0, note)

    return tell


def _how_to_resume(step: int) -> str:
    if step == 0:
        return "no step was finished yet: the same command begins again"
    return f"the checkpoint of step {step} is saved: the same command goes on from there"
