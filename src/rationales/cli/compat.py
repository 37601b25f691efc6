"""``rationales compat``: train a model for incomplete contexts, and measure it on them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

import typer

from rationales.cli.arguments import NO_ADAPTER
from rationales.cli.command import command
from rationales.cli.progress import Bar
from rationales.compat.options import MeasureOptions, TrainOptions
from rationales.errors import RationalesError

if TYPE_CHECKING:
    from rationales.compat.measure import Measured, Measurement

MEAN_SIZES = (1, 4, 8, 16, 32)
"""The sizes over which a single figure is taken, if the context is long enough for all."""

app = typer.Typer(add_completion=False, no_args_is_help=True)

TRAIN_EXAMPLES = """
[bold]Examples[/bold]\n
  rationales compat train --text self --out adapter --minutes 30\n
  rationales compat train --model gpt2 --text wiki.train.raw --text self --out gpt2-adapter\n
  rationales compat train --model gpt2 --text corpus.txt --loss data --method full --out gpt2-own\n
  accelerate launch -m rationales compat train --model gpt2 --text corpus.txt --out adapter
"""
MEASURE_EXAMPLES = """
[bold]Examples[/bold]\n
  rationales compat measure --text wiki.test.raw\n
  rationales compat measure --model gpt2 --adapter gpt2-adapter --text notes.txt --plot gpt2.png
"""


def train(options: TrainOptions) -> None:
    """Fine-tune a model on incomplete contexts: word dropout, with an adapter or in full."""
    with Bar() as bar:
        bar.update("loading", 0, None)
        from rationales.compat import train as training

        try:
            result = training.train(options, progress=bar.update)
        except training.TrainingInterrupted as interrupted:
            bar.stop()
            saved = f"the checkpoint of step {interrupted.step} is saved: the same command resumes"
            nothing = "no step was finished yet: the same command begins again"
            typer.echo(saved if interrupted.step else nothing, err=True)
            raise
    typer.echo(
        f"{result.steps:,} steps · {result.tokens:,} tokens · {result.seconds / 60:.1f} minutes · "
        f"loss {result.loss:.3f}",
        err=True,
    )
    typer.echo(result.folder)


@dataclass(frozen=True, kw_only=True)
class MeasureCommand(MeasureOptions):
    """What is measured, and where the result goes."""

    text: Annotated[Path, typer.Option(metavar="FILE")]
    """UTF-8 text that the model was not trained on."""
    model: str | None = None
    """A Hugging Face id, a folder or a .gguf file; the default model if left out."""
    adapter: str | None = None
    """The folder of an adapter: measured with and without it. The default model's own if left out;
    none: only without."""
    json_path: Annotated[str | None, typer.Option("--json", metavar="FILE")] = None
    """Write JSON (- is standard output)."""
    plot: Annotated[Path | None, typer.Option(metavar="FILE")] = None
    """Draw a figure: a .png or .svg file."""


def measure(options: MeasureCommand) -> None:
    """Measure predictions from random subsets of 1, 2, 4 … tokens of held-out text."""
    with Bar() as bar:
        bar.update("loading the model", 0, None)
        from rationales.compat.measure import measure_model
        from rationales.render import figures

        if options.plot is not None:
            figures.check()
        measurements = measure_model(
            options.text,
            options.model,
            False if options.adapter == NO_ADAPTER else options.adapter,
            options,
            progress=bar.update,
        )
    data = json.dumps([asdict(m) for m in measurements], indent=1, ensure_ascii=False) + "\n"
    try:
        if options.plot is not None:
            figures.save(figures.compatibility(measurements), options.plot)
        if options.json_path not in (None, "-"):
            Path(str(options.json_path)).write_text(data, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise RationalesError(f"cannot write the result: {error}") from error
    if options.json_path == "-":
        sys.stdout.write(data)
    else:
        _print_table(measurements)


def _print_table(measurements: Sequence[Measurement]) -> None:
    """Print a row for each size and figure; tab-separated lines in a pipe."""
    first, *_ = measurements

    def row(label: str, values: Iterable[Measured]) -> list[str]:
        return [label, *(f"{value.mean:.3f} ± {value.error:.3f}" for value in values)]

    names = ["context", *("with adapter" if m.adapter else "model" for m in measurements)]
    rows = [
        row(f"{size} of {first.length} tokens", [m.by_size[size] for m in measurements])
        for size in first.by_size
    ]
    if set(MEAN_SIZES) <= set(first.by_size):
        means = (fmean(m.by_size[size].mean for size in MEAN_SIZES) for m in measurements)
        rows.append([f"mean of {', '.join(map(str, MEAN_SIZES))}", *(f"{m:.3f}" for m in means)])
    rows.append(row(f"all {first.length} tokens", [m.full for m in measurements]))
    rows.append(row("none (unigram)", [m.unigram for m in measurements]))
    rows += [
        [f'p("the") {d} after a word, and "the"', *(f"{m.the[d].mean:.4f}" for m in measurements)]
        for d in first.the
    ]
    if not sys.stdout.isatty():
        typer.echo("\n".join("\t".join(cells) for cells in [names, *rows]))
        return
    from rich.console import Console
    from rich.table import Table

    title = f"{first.model}, {first.text}: nats a token, {first.samples} targets"
    grid = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for place, name in enumerate(names):
        grid.add_column(name, justify="right" if place else "left")
    for cells in rows:
        grid.add_row(*cells)
    Console().print(grid)


app.command(epilog=TRAIN_EXAMPLES)(command(train))
app.command(epilog=MEASURE_EXAMPLES)(command(measure))
