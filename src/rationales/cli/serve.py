"""``rationales serve``: the live page, on this machine."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from rationales.cli.arguments import NO_ADAPTER
from rationales.cli.command import command
from rationales.cli.progress import Bar
from rationales.cli.starting import uncollected
from rationales.errors import MissingExtraError, RationalesError

EXAMPLES = """
[bold]Examples[/bold]\n
  rationales serve\n
  rationales serve --model gpt2 --model Helsinki-NLP/opus-mt-de-en --port 8080\n
  rationales serve --host 0.0.0.0      others can reach it: a token is needed, and printed
"""


@dataclass(frozen=True)
class Serving:
    """Which models are served, and where."""

    model: tuple[str, ...] = ()
    """A Hugging Face id, a local folder or a .gguf file; may be repeated. If left out: the default
    model and the packaged French–English one."""
    adapter: str | None = None
    """The folder of a compatibility adapter for the first model; none leaves out the one that the
    default model comes with."""
    endpoint: tuple[str, ...] = ()
    """The address of a server that speaks the OpenAI protocol, such as http://127.0.0.1:8080/v1;
    may be repeated. Without --model, only these are served."""
    endpoint_model: str | None = None
    """Which of the first endpoint's models, if it has several."""
    budget: Annotated[int | None, typer.Option(metavar="N", min=1)] = None
    """Send at most this many requests to each endpoint."""
    host: str = "127.0.0.1"
    """The address to listen on. If it is not a loopback address, a token is needed."""
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000
    """The port to listen on; 0: any that is free."""
    token: str | None = None
    """The token that clients must give; a random one, if one is needed and this is left out."""


def serve(serving: Serving) -> None:
    """Serve the live page and its JSON API."""
    try:
        from rationales.serve.app import create_app
        from rationales.serve.safety import LOOPBACK
        from rationales.serve.server import listen
        from rationales.serve.server import serve as run
    except ImportError as error:
        raise MissingExtraError("rationales serve", "serve") from error
    with listen(serving.host, serving.port) as listening, Bar() as bar:
        is_open = serving.host not in LOOPBACK
        token = serving.token or (secrets.token_urlsafe(24) if is_open else None)
        if token is not None and not re.fullmatch(r"[\w.~-]{8,}", token, re.ASCII):
            raise RationalesError("--token takes letters, digits and . _ ~ -, at least eight")
        from rationales.serve.models import load_models

        adapter: Any = False if serving.adapter == NO_ADAPTER else serving.adapter
        bar.update("loading the models", 0, None)
        with uncollected():
            explainers = load_models(
                serving.model,
                adapter,
                progress=bar.loading,
                endpoints=serving.endpoint,
                endpoint_model=serving.endpoint_model,
                budget=serving.budget,
            )
        app = create_app(explainers, host=serving.host, token=token)
        bar.stop()
        host = f"[{serving.host}]" if ":" in serving.host else serving.host
        address = f"http://{host}:{listening.getsockname()[1]}"
        typer.echo(address if token is None else f"{address}/?token={token}")
        run(app, listening)


app = typer.Typer(add_completion=False)
app.command(epilog=EXAMPLES)(command(serve))
