"""``rationales endpoint probe``: what a model behind an endpoint can be asked."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

app = typer.Typer(add_completion=False, no_args_is_help=True)

_ROWS = {
    "server": "server",
    "model": "model",
    "completions": "continues texts",
    "chat": "answers chats",
    "alternatives": "alternatives with log-probabilities",
    "forces": "log-probability of a forced token",
    "scores_prompt": "log-probabilities of prompt tokens",
    "echoes": "echoes the prompt",
    "takes_ids": "takes token ids",
    "applies_template": "shows its chat template",
    "continues_answers": "continues an answer in a chat",
    "deterministic": "deterministic (two answers of 8 tokens)",
    "at_once": "requests at once",
    "positions": "tokens of a prompt at most",
    "way": "way of asking",
}
_WAYS = {
    "forced": "forced: target and argmax in one request",
    "prompt": "prompt: target and argmax in one request",
    "top-k": "top-k: a target outside the alternatives counts as just below the last",
    "text": "text: search by deletion, which needs no scores",
}


@app.callback()
def _root() -> None:
    """Models behind an endpoint."""


@app.command("probe")
def probe(
    url: Annotated[str, typer.Argument(help="An address such as http://127.0.0.1:8080/v1.")],
    endpoint_model: Annotated[
        str | None, typer.Option(help="Which of its models, if it has several.")
    ] = None,
) -> None:
    """Show what an endpoint can do. It takes about six requests of a few tokens."""
    from rationales.endpoints.client import Client
    from rationales.endpoints.probe import probe as ask

    client = Client(url, endpoint_model)
    able = ask(client, thorough=True)
    found = {name: getattr(able, name) for name in _ROWS}
    if not sys.stdout.isatty():
        typer.echo(json.dumps(found))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    words: dict[Any, str] = {True: "yes", False: "no", None: "not known", **_WAYS}
    for name, label in _ROWS.items():
        value = found[name]
        is_word = isinstance(value, bool) or value is None or name == "way"
        table.add_row(label, words[value] if is_word else str(value), style=None)
    table.add_row("requests that this took", str(client.usage.requests))
    Console().print(table)
