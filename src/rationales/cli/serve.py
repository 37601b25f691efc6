"""``rationales serve``: the live page, on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

SERVE_EXAMPLES = """
[bold]Examples[/bold]\n
  rationales serve\n
  rationales serve --model gpt2 --model Helsinki-NLP/opus-mt-de-en --port 8080\n
  rationales serve --host 0.0.0.0   # others can reach it: a token is needed, and printed
"""


@dataclass(frozen=True)
class Serving:
    """Which models are served, and where."""

    model: Annotated[tuple[str, ...], typer.Option("--model")] = ()
    """A Hugging Face id, a local folder or a .gguf file; may be repeated. If left out: the default
    model and the packaged French–English one."""
    adapter: str | None = None
    """The folder of a compatibility adapter for the first model, or none."""
    host: str = "127.0.0.1"
    """The address to listen on; with any but a loopback one, a token is needed."""
    port: int = 8000
    """The port to listen on; 0: any that is free."""
    token: str | None = None
    """The token that clients have to give; a random one if left out and needed."""
