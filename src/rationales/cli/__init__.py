"""The command line: thin commands over the Python interface.

Nothing here imports torch until a model is needed, so that ``--help`` answers at once.

Exit codes: 0; 2 if something has to be put right first (one line on standard error says what); 3 if
some lines of ``--jsonl`` failed, all others are answered; 130 after Ctrl-C; 141 if the reader of
the answers has gone.
"""

from __future__ import annotations

import gc
import io
import os
import sys
import warnings
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Annotated, Any

import typer

from rationales import __version__
from rationales.cli.command import add_late, flag
from rationales.errors import OptionError, RationalesError, RationalesWarning
from rationales.threads import spin_briefly

app = typer.Typer(
    name="rationales",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

COMMANDS = {
    "explain": "Show which words of the context a language model needed for what it says.",
    "translate": "Translate a text, and show which words each word of the translation needed.",
    "run": "Explain every row of a corpus, into a folder from which the run goes on if it stops.",
    "report": "Make one page of a whole run: sizes, reach, verdicts, words, rows to look at.",
    "serve": "Serve a page on which you type a text, click a word and see its rationale.",
    "annotate": "Let people choose words and guess from them: annotations, a game with the model.",
    "endpoint": "Show what a model behind an endpoint can be asked.",
    "model": "Get the default model; list the models that are here.",
    "compat": "Compatibility: train a model for incomplete contexts, and measure it on them.",
    "experiment": "Run an experiment of the paper.",
}
"""The commands, each the ``app`` of the module of its name, and their help."""


def _app(name: str) -> typer.Typer:
    made: typer.Typer = import_module(f"rationales.cli.{name}").app
    return made


for _name, _about in COMMANDS.items():
    add_late(app, _name, _about, partial(_app, _name))


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rationales {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", is_eager=True, callback=_say_version
        ),
    ] = False,
) -> None:
    """The smallest part of the context that is sufficient for a language model to say the same."""


def main() -> None:
    """The ``rationales`` command: runs the arguments given to the process and exits."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A character that a terminal cannot show is no reason to fail.
            stream.reconfigure(errors="backslashreplace")
    spin_briefly()
    show = warnings.showwarning

    def show_warning(message: Warning | str, category: type[Warning], *where: Any) -> None:
        if issubclass(category, RationalesWarning):
            _say(f"warning: {message}")  # without the line of code that a programmer would see
        else:
            show(message, category, *where)

    warnings.showwarning = show_warning  # type: ignore[assignment]  # *where is the rest
    code = call(sys.argv[1:])
    gc.freeze()  # or the end of Python would look once more at each object, for up to a second
    sys.exit(code)


def call(arguments: list[str]) -> int:
    """The exit code of a command line; see above."""
    code, said = _run(_expand(arguments))
    try:
        if sys.stdout is not None:
            sys.stdout.flush()  # now, while an error can still be told
    except OSError as error:
        # What is still to be printed goes nowhere: Python would try again when it shuts down.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            code, said = 141, ""
        elif code == 0:
            code, said = 2, f"error: cannot write to standard output: {error.strerror or error}"
    _say(said)
    return code


def _run(arguments: list[str]) -> tuple[int, str]:
    """The exit code, and in one line why, if that has to be said."""
    try:
        code = app(arguments, standalone_mode=False) or 0
        return code, "interrupted" if code == 130 else ""
    except OptionError as error:
        return 2, f"error: {error.named(flag)}"
    except RationalesError as error:
        return 2, f"error: {error}"
    except typer.TyperException as error:
        message = getattr(error, "format_message", error.__str__)()
        # No arguments at all: what is raised then is the help text itself.
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(message)
            return 2, ""
        return 2, f"error: {message} (see rationales --help)"
    except KeyboardInterrupt:
        return 130, "interrupted"
    except BrokenPipeError:
        return 141, ""
    except OSError as error:
        return 2, f"error: cannot write to standard output: {error.strerror or error}"
    except SystemExit:
        # How typer and rich end when the reader has gone (a pager was quit): say nothing.
        return 141, ""


def _say(message: str) -> None:
    with suppress(OSError):  # there is no reader
        if message:
            typer.echo(" ".join(message.split()), err=True)


def _expand(arguments: list[str]) -> list[str]:
    """The arguments, each option with one value.

    ``--steps`` without a number is ``--steps=0``; ``--documents a.txt b.txt``, as a shell makes it
    of ``*.txt``, is ``--documents=a.txt --documents=b.txt``.
    """
    expanded: list[str] = []
    names_documents = False
    for place, argument in enumerate(arguments):
        if argument == "--":
            return [*expanded, *arguments[place:]]
        following = arguments[place + 1] if place + 1 < len(arguments) else "--"
        if _is_value(argument):
            expanded.append(f"--documents={argument}" if names_documents else argument)
            continue
        names_documents = argument == "--documents" and _is_value(following)
        if argument == "--steps" and not following.isdigit():
            expanded.append("--steps=0")
        elif not names_documents:
            expanded.append(argument)
    return expanded


def _is_value(argument: str) -> bool:
    """Whether this is no option; "-" stands for standard input."""
    return argument == "-" or not argument.startswith("-")
