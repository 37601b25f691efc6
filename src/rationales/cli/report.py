"""``rationales report``: one page about a whole run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rationales.errors import RationalesError

EXAMPLES = """
[bold]Examples[/bold]\n
  rationales run texts.jsonl --out court\n
  rationales report court                        writes court/report.html\n
  rationales report court --csv rationales.csv   and all rationales as a table
"""

app = typer.Typer(add_completion=False)


@app.command(epilog=EXAMPLES)
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The --out of rationales run.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="The page; DIR/report.html if left out."),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a table of all rationales here.")
    ] = None,
) -> None:
    """Make one page of a whole run."""
    from rationales.cli.output import told
    from rationales.runs.report import REPORT
    from rationales.runs.report import report as read

    for path in filter(None, (out, csv)):  # better before the work than after
        if path.is_dir() or not path.absolute().parent.is_dir():
            raise RationalesError(f"cannot write {path}: give a file in a folder that exists")
    made = read(folder)
    out = made.folder / REPORT if out is None else out
    made.save(out)
    if csv is not None:
        with told(f"write {csv}"):
            made.to_dataframe().to_csv(csv, index=False)
    for line in made.summary:
        typer.echo(line, err=True)
    typer.echo(out)
