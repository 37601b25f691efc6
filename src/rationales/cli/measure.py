"""``rationales compat measure``: what a model's predictions on incomplete contexts are worth."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rationales.cli.progress import Bar
from rationales.errors import RationalesError

if TYPE_CHECKING:
    from rationales.compat.measure import Measured, Measurement
    from rationales.scoring.protocol import SubsetScorer

EXAMPLES = """
[bold]Examples[/bold]\n
  rationales compat measure --text wiki.test.raw\n
  rationales compat measure --model gpt2 --adapter gpt2-adapter --text notes.txt --plot gpt2.png
"""

BAR_SIZES = (1, 4, 8, 16, 32)
"""The sizes over which a single figure is taken, where the context is long enough for all."""


def measure(
    text: Annotated[
        Path, typer.Option(help="UTF-8 text that the model was not trained on.", metavar="FILE")
    ],
    model: Annotated[
        str | None,
        typer.Option(
            help="A Hugging Face id, a folder or a .gguf file; the default model if left out."
        ),
    ] = None,
    adapter: Annotated[
        str | None,
        typer.Option(
            help="The folder of an adapter: measured with and without it. The default "
            "model's own if left out; none: only without."
        ),
    ] = None,
    samples: Annotated[int, typer.Option(help="Targets, each with its own context.")] = 200,
    length: Annotated[int, typer.Option(help="Tokens of a context.")] = 64,
    seed: Annotated[int, typer.Option(help="Seed of targets and subsets.")] = 0,
    json_path: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Write JSON (- is standard output)."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw a figure: a .png or .svg file.", metavar="FILE")
    ] = None,
) -> None:
    """Measure predictions from random subsets of 1, 2, 4 … tokens of held-out text."""
    from rationales.compat.measure import Measurement, MeasureOptions
    from rationales.compat.measure import measure as run
    from rationales.compat.text import read_text
    from rationales.explainer import load
    from rationales.scoring.adapted import AdaptedScorer

    options = MeasureOptions(samples=samples, length=length, seed=seed)
    if plot is not None:
        from rationales.render import plots

        plots.check()
    source = read_text(text)
    measurements = []
    with Bar() as bar:
        bar.update("loading the model", 0, None)
        explainer = load(model, adapter=adapter, progress=bar.loading, kind="causal")
        scorers: dict[str | None, SubsetScorer] = {None: explainer.scorer}
        if isinstance(explainer.scorer, AdaptedScorer):
            scorers = {None: explainer.scorer.base, explainer.adapter: explainer.scorer}
        for name, scorer in scorers.items():
            what = "measuring" if name is None else "measuring with the adapter"
            found = run(
                scorer,
                explainer.tokenizer,
                source.text,
                options,
                on_progress=partial(bar.stage, what),
            )
            measurements.append(
                Measurement(
                    model=explainer.name,
                    text=source.name,
                    length=length,
                    seed=seed,
                    adapter=name,
                    **found,
                )
            )
    _put_out(measurements, json_path, plot)


def _put_out(measurements: list[Measurement], json_path: str | None, plot: Path | None) -> None:
    data = json.dumps([asdict(m) for m in measurements], indent=1, ensure_ascii=False) + "\n"
    try:
        if plot is not None:
            from rationales.render import plots

            plots.save(plots.compatibility(measurements), plot)
        if json_path not in (None, "-"):
            Path(str(json_path)).write_text(data, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise RationalesError(f"cannot write the result: {error}") from error
    if json_path == "-":
        sys.stdout.write(data)
    else:
        _show(measurements)


def _show(measurements: list[Measurement]) -> None:
    """The table: a row a size, a column a model; tab-separated in a pipe."""
    columns = ["context", *("with adapter" if m.adapter else "model" for m in measurements)]
    first = measurements[0]
    rows = [
        [f"{size} of {first.length} tokens", *(_cell(m.by_size[size]) for m in measurements)]
        for size in first.by_size
    ]
    if set(BAR_SIZES) <= set(first.by_size):
        sizes = ", ".join(map(str, BAR_SIZES))
        rows.append([f"mean of {sizes}", *(f"{m.mean_over(BAR_SIZES):.3f}" for m in measurements)])
    rows.append([f"all {first.length} tokens", *(_cell(m.full) for m in measurements)])
    rows.append(["none (unigram)", *(_cell(m.unigram) for m in measurements)])
    rows += [
        [
            f'p("the") {distance} after a word, and "the"',
            *(f"{m.the[distance].mean:.4f}" for m in measurements),
        ]
        for distance in first.the
    ]
    if not sys.stdout.isatty():
        for row in [columns, *rows]:
            typer.echo("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"{first.model}, {first.text}: nats a token, {first.samples} targets",
        title_justify="left",
        box=None,
        padding=(0, 2, 0, 0),
    )
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place else "left")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _cell(measured: Measured) -> str:
    return f"{measured.mean:.3f} ± {measured.error:.3f}"
