"""``rationales run``: a corpus in, a folder of rationales out; killed, it goes on where it was."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rationales.cli.arguments import CausalModel, Question, option_group
from rationales.cli.command import command
from rationales.cli.progress import Bar
from rationales.errors import MissingExtraError, RationalesError
from rationales.runs.lines import duration

if TYPE_CHECKING:
    from rationales.runs.corpus import Outcome, State

EXAMPLES = """
[bold]Examples[/bold]\n
  rationales run texts.jsonl --out runs/texts --target last --fast\n
  rationales run reviews.csv --text-column review --group-column stars --out runs/reviews\n
  rationales run train.parquet --sample 1000 --seed 1 --out runs/sample --workers 2\n
  rationales run sources.jsonl --translate --out runs/translated\n
  rationales run texts.jsonl --out runs/texts --ray auto --gpus-per-worker 1\n
  rationales run status runs/texts\n
  rationales report runs/texts
\n
[bold]Exit codes[/bold]\n
  0 all rows are answered · 2 nothing was begun, or it could not go on · 3 some rows failed\n
  130, 143 interrupted, terminated: what is finished is kept, the same command goes on
"""
INPUTS, WHO = "Which rows", "Who answers"
OF_INPUT = typer.Option(rich_help_panel=INPUTS)
OF_WORK = typer.Option(rich_help_panel=WHO)
STATUS, PARQUET = "status", "rationales.parquet"
_A_LINE = 60.0
"""Seconds between the lines that say how far a run is where there is no terminal."""


@dataclass(frozen=True)
class Corpora:
    """Which rows of which file, and the folder of the run."""

    input: Annotated[str, typer.Argument(metavar="INPUT")]
    """A .jsonl, .csv, .tsv or .parquet file with a row for each text, a folder that datasets has
    saved, or - for JSON lines from a pipe. (status DIR: how far the run in DIR is.)"""
    folder: Annotated[str | None, typer.Argument(hidden=True)] = None
    out: Annotated[str | None, typer.Option(metavar="DIR", rich_help_panel=INPUTS)] = None
    """The folder of the run. A run that is there goes on, if it is the same."""
    text_column: Annotated[str, OF_INPUT] = "text"
    """The column of the text. Columns with the name of an option are the options of their row."""
    id_column: Annotated[str, OF_INPUT] = "id"
    """The column of the id; the number of the row if there is none."""
    group_column: Annotated[str | None, OF_INPUT] = None
    """A column by which the report compares."""
    limit: Annotated[int | None, typer.Option(min=1, rich_help_panel=INPUTS)] = None
    """Only the first rows; without it, the same run goes on with the rest."""
    sample: Annotated[int | None, typer.Option(min=1, rich_help_panel=INPUTS)] = None
    """Only this many rows, chosen at random by --seed."""
    retry_failed: Annotated[bool, OF_INPUT] = False
    """Try the rows again that have failed."""
    translate: Annotated[bool, OF_INPUT] = False
    """Translate the texts and explain the translations, by an encoder–decoder."""


@dataclass(frozen=True)
class Work:
    """Who answers, and what is written."""

    workers: Annotated[int | None, typer.Option(min=1, rich_help_panel=WHO)] = None
    """Answer by this many processes, each with a model of its own; if left out, by one."""
    ray: Annotated[str | None, typer.Option(metavar="ADDRESS", rich_help_panel=WHO)] = None
    """Answer by actors of a Ray cluster: its address, auto for the one that this machine belongs
    to, local for one that is started for the run."""
    gpus_per_worker: Annotated[float, typer.Option(min=0, rich_help_panel=WHO)] = 0
    """How many GPUs a Ray actor takes; may be a fraction."""
    dashboard: Annotated[bool, OF_WORK] = False
    """Start the dashboard of the local Ray cluster."""
    attempts: Annotated[int, typer.Option(min=1, rich_help_panel=WHO)] = 3
    """A row whose worker dies this many times has failed."""
    steps: Annotated[int, typer.Option(metavar="K", min=0, rich_help_panel="Output")] = 0
    """Record the K best candidates of each step."""
    parquet: Annotated[bool, typer.Option(rich_help_panel="Output")] = False
    """At the end, also write rationales.parquet: a row for each rationale."""


def run(corpora: Corpora, options: Any, model: CausalModel, work: Work) -> None:
    """Explain every row of a corpus."""
    if corpora.input == STATUS and corpora.folder is not None:
        _show_status(corpora.folder)
        return
    if corpora.folder is not None:
        raise RationalesError(f"give one INPUT, not {corpora.input!r} and {corpora.folder!r}")
    if corpora.out is None:
        raise RationalesError("give --out a folder: rationales run texts.jsonl --out runs/texts")
    if work.parquet and find_spec("pyarrow") is None:
        raise MissingExtraError("--parquet", "parquet")
    with _terminable() as ended:
        try:
            outcome = _run(corpora, options, model, work)
        except KeyboardInterrupt:
            typer.echo(f"stopped: the same command goes on with {corpora.out}", err=True)
            raise typer.Exit(143 if ended else 130) from None
        if work.parquet:
            _write_parquet(outcome.folder)
    state = outcome.state
    typer.echo(f"{_rows(state.done)} in {outcome.folder}")
    if state.failed:
        first = outcome.failed[0]
        typer.echo(
            f"{_rows(state.failed)} failed: see {outcome.folder / 'failed.jsonl'}; the first, line "
            f"{first['line']}: {first['error']}",
            err=True,
        )
        raise typer.Exit(3)


def _run(corpora: Corpora, options: Any, model: CausalModel, work: Work) -> Outcome:
    from rationales.runs.corpus import Execute, run_corpus, spool
    from rationales.runs.rows import Columns, Corpus, Source
    from rationales.runs.workers import Loading

    kind: Any = "seq2seq" if corpora.translate else "causal"
    seed = options.seed
    if corpora.sample is not None and options.method != "random":
        options = type(options)(**vars(options) | {"seed": None})
    question = Question.of(kind, options, work.steps)
    question.options()
    model.check()
    assert corpora.out is not None
    path = Path(corpora.input)
    is_piped = corpora.input == "-"
    if is_piped:
        path = spool(sys.stdin.buffer, corpora.out)
    try:
        columns = Columns(corpora.text_column, corpora.id_column, corpora.group_column)
        corpus = Corpus(Source(path), question.options, columns, corpora.sample, seed or 0)
        if unread := corpus.unread():
            typer.echo(f"columns that are not read: {', '.join(unread)}", err=True)
        loading = Loading(model.model, kind, model.options)
        execute = Execute(
            work.workers, work.ray, work.gpus_per_worker, work.dashboard, work.attempts
        )
        with Bar() as bar:
            telling = _Telling(bar)
            bar.update("loading the model", 0, None)
            return run_corpus(
                corpus,
                corpora.out,
                loading,
                execute,
                asked=question.given,
                limit=corpora.limit,
                retry_failed=corpora.retry_failed,
                on_progress=telling.tell,
                on_fault=lambda fault: typer.echo(fault, err=True),
            )
    finally:
        if is_piped:
            path.unlink(missing_ok=True)


def _write_parquet(folder: Path) -> None:
    """Write all rationales of a run as a table."""
    from rationales.runs.folder import RunFolder
    from rationales.runs.report import report

    table = report(folder).to_dataframe()
    table = table.astype({"id": "string", "group": "string"})  # a column has one type
    with RunFolder(folder, "run").writing(PARQUET) as path:
        table.to_parquet(path, index=False)


class _Telling:
    """How far a run is: a bar in a terminal, a line a minute elsewhere."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._said = time.monotonic()

    def tell(self, state: State) -> None:
        if self._bar.is_drawn:
            over = state.done + state.failed
            self._bar.update("explaining", over, state.total, describe(state))
        elif time.monotonic() - self._said >= _A_LINE:
            self._said = time.monotonic()
            typer.echo(describe(state), err=True)


def describe(state: State) -> str:
    """How far a run is, in a line."""
    parts = [f"{state.done:,}/{state.total:,} rows"]
    if state.failed:
        parts.append(f"{state.failed:,} failed")
    if state.rate:
        parts.append(f"{state.rate:.2g} rows/s" if state.rate < 10 else f"{state.rate:.0f} rows/s")
    if state.left:
        parts.append(f"{duration(state.left)} left")
    return " · ".join(parts)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


def _show_status(folder: str) -> None:
    from rationales.runs.corpus import read_state

    state, is_running = read_state(folder)
    over = state.done + state.failed
    if is_running:
        verdict = "running"
    else:
        verdict = "finished" if state.total and over >= state.total else "stopped"
    typer.echo(f"{verdict} · {describe(state)} · {state.updated}")


@contextmanager
def _terminable() -> Iterator[list[bool]]:
    """A context in which SIGTERM is an interrupt; the list is not empty if there was one."""
    ended: list[bool] = []

    def end(*_: Any) -> None:
        ended.append(True)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield ended
    finally:
        signal.signal(signal.SIGTERM, before)


app = typer.Typer(add_completion=False)
app.command(epilog=EXAMPLES)(command(run, options=option_group()))
