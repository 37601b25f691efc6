"""``rationales annotate``: a study with people, on this machine, and what comes out of it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rationales.annotation.model_lists import BASELINE
from rationales.annotation.study import LIST_KEY, Settings, Study, read_study, set_up
from rationales.cli.arguments import CausalModel
from rationales.cli.command import command, flag
from rationales.cli.progress import Bar
from rationales.errors import MissingExtraError, RationalesError

if TYPE_CHECKING:
    from rationales.runs import RunFolder

EXAMPLES = """
[bold]Examples[/bold]\n
  rationales annotate passages.jsonl --out study --consent consent.txt\n
  rationales annotate passages.jsonl --out study --play     guess from the model's words too\n
  rationales annotate export study                          writes study/export\n
  rationales annotate agreement study                       κ, IOU and F1 of two selectors\n
  rationales annotate results study                         words until people guess, by source
"""
ANY_ADDRESS = ("0.0.0.0", "::")
SERVER, GAME = "Server", "Play against the model"
OF_GAME = typer.Option(rich_help_panel=GAME)


@dataclass(frozen=True)
class Studies:
    """Which passages, and the folder of the study."""

    passages: Annotated[str, typer.Argument(metavar="PASSAGES")]
    """A .jsonl file of {"id": 1, "text": "…"}: the last word of a text is the target. (export DIR,
    agreement DIR, results DIR: what comes out of the study in DIR.)"""
    folder: Annotated[str | None, typer.Argument(hidden=True)] = None
    out: Annotated[Path | None, typer.Option(metavar="DIR")] = None
    """The folder of the study. The same command again goes on with it. With export: where the
    files go, DIR/export if left out."""
    consent: Annotated[Path | None, typer.Option(metavar="FILE")] = None
    """A text that annotators agree to before they begin."""


@dataclass(frozen=True)
class Serving:
    """Where the study is served."""

    host: Annotated[str, typer.Option(rich_help_panel=SERVER)] = "127.0.0.1"
    """The address to listen on. Only by another one than this can annotators elsewhere take
    part."""
    port: Annotated[int, typer.Option(min=0, max=65535, rich_help_panel=SERVER)] = 8000
    """The port to listen on; 0: any that is free."""


@dataclass(frozen=True)
class Playing:
    """Whether the model's words are guessed from, too."""

    play: Annotated[bool, OF_GAME] = False
    """Before the study begins, list the model's words for each passage: greedy, minimal, those of a
    baseline, and random ones. Predictors are then given these lists too, and not told."""
    baseline: Annotated[str, OF_GAME] = BASELINE
    """The baseline: a method of rationales explain."""


def annotate(
    studies: Studies, settings: Settings, playing: Playing, model: CausalModel, serving: Serving
) -> None:
    """Serve a study."""
    if studies.folder is not None:
        if studies.passages not in _OUTCOMES:
            raise RationalesError(
                f"give one file of passages, or {', '.join(_OUTCOMES)} and the folder of a study, "
                f"not {studies.passages!r} and {studies.folder!r}"
            )
        unread = _given(studies, settings, playing, model, serving) - {"passages", "folder"}
        unread -= {"out"} if studies.passages == "export" else set()
        _refuse(unread, f"is not for annotate {studies.passages}: leave it out")
        _OUTCOMES[studies.passages](Path(studies.folder).expanduser(), studies.out)
        return
    if studies.passages in _OUTCOMES and not Path(studies.passages).exists():
        raise RationalesError(f"give the folder too: rationales annotate {studies.passages} study")
    if not playing.play:
        _refuse(_given(playing, model), "is for --play: give --play too, or leave it out")
    if studies.out is None:
        raise RationalesError(
            "give --out a folder: rationales annotate passages.jsonl --out studies/first"
        )
    try:
        from rationales.serve.annotate import create_app
        from rationales.serve.safety import LOOPBACK
        from rationales.serve.server import listen
        from rationales.serve.server import serve as run
    except ImportError as error:
        raise MissingExtraError("rationales annotate", "serve") from error
    passages = Path(studies.passages).expanduser()
    with set_up(passages, studies.out, settings, studies.consent) as folder:
        if playing.play:
            _make_lists(folder, settings, playing, model)
        study = Study(folder.path, repair=True)
        study.open()
        with listen(serving.host, serving.port) as listening:
            name = socket.gethostname() if serving.host in ANY_ADDRESS else serving.host
            host = f"[{name}]" if ":" in name else name
            address = f"http://{host}:{listening.getsockname()[1]}"
            typer.echo(
                f"passages: {len(study.passages)} · annotators: {len(study.annotators)}", err=True
            )
            typer.echo("the organiser's page, which makes links for annotators:", err=True)
            typer.echo(f"{address}/#{study.token}")
            is_open = serving.host not in LOOPBACK
            if is_open:
                typer.echo(
                    "links begin with the address by which this page is opened: open it by a name "
                    "or an address of this machine that annotators can open too",
                    err=True,
                )
            run(create_app(study, host=serving.host, is_open=is_open), listening)


def _given(*groups: Any) -> set[str]:
    """The options of these groups that were given: those that differ from their defaults."""
    return {
        each.name
        for group in groups
        for each in fields(group)
        if getattr(group, each.name) != each.default
    }


def _refuse(options: Collection[str], why: str) -> None:
    """Raise if there are options, which nothing would read."""
    if options:
        raise RationalesError(f"{flag(min(options))} {why}")


def _make_lists(
    folder: RunFolder, settings: Settings, playing: Playing, model: CausalModel
) -> None:
    """List the model's words, as far as they are not listed yet."""
    from rationales.annotation.model_lists import check_makers, make_lists

    rows = [*Study(folder.path).passages.values()]
    lines = folder.lines(LIST_KEY, "lists")
    model.check()
    explainer = model.load("causal")
    check_makers(folder, explainer, playing.baseline, lines)
    with Bar() as bar:
        make_lists(
            explainer, rows, lines, settings.words, playing.baseline, settings.seed, bar.update
        )


def _export(folder: Path, out: Path | None) -> None:
    from rationales.annotation.export import export

    out = out or folder / "export"
    for name, count in export(read_study(folder), out).items():
        typer.echo(f"{count:,} lines in {out / name}")


def _agreement(folder: Path, out: Path | None) -> None:
    from rationales.annotation.results import agreement
    from rationales.experiments.tables import markdown

    typer.echo(markdown(agreement(read_study(folder))))
    typer.echo(
        "\nWords before the target are compared; means over passages, 95 % bootstrap intervals."
    )


def _results(folder: Path, out: Path | None) -> None:
    from rationales.annotation.results import game
    from rationales.experiments.tables import markdown

    typer.echo(markdown(game(read_study(folder))))
    typer.echo(
        "\nThe first finished play of each list. At least: a word that was not found counts as one "
        "word more than was shown.\nMeans over lists, 95 % bootstrap intervals."
    )


_OUTCOMES: dict[str, Callable[[Path, Path | None], None]] = {
    "export": _export,
    "agreement": _agreement,
    "results": _results,
}

app = typer.Typer(add_completion=False)
app.command(epilog=EXAMPLES)(command(annotate))
