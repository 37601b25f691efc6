"""A real server in a thread of this process, and the events that it sends."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette

from rationales import Explainer
from rationales.serve.app import Limits, create_app


def served(explainers: Mapping[str, Explainer], **how: Any) -> AbstractContextManager[str]:
    """The address of a server with these explainers; ``how`` is as in ``create_app``."""
    return running(create_app(explainers, **how))


@contextmanager
def running(app: Starlette) -> Iterator[str]:
    """The address of a server with this application."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
    thread = threading.Thread(
        target=lambda: asyncio.run(server.serve(sockets=[listening])), daemon=True
    )
    thread.start()
    try:
        address = f"http://127.0.0.1:{port}"
        for _ in range(200):
            try:
                httpx.get(f"{address}/healthz", timeout=1)
                break
            except httpx.TransportError:
                threading.Event().wait(0.05)
        yield address
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()
        assert not thread.is_alive()


def events(client: httpx.Client, body: Any, path: str = "/explain") -> list[tuple[str, Any]]:
    """All events of a request."""
    with client.stream("POST", path, json=body) as answer:
        answer.read() if answer.status_code != 200 else None
        assert answer.status_code == 200, answer.text
        return list(parsed(answer.iter_text()))


def parsed(chunks: Iterator[str]) -> Iterator[tuple[str, Any]]:
    """The events in a stream of text."""
    rest = ""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split("\n\n")
        for part in whole:
            name, _, data = part.partition("\n")
            yield name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


SMALL = Limits(
    body=20_000, characters=2_000, tokens=60, targets=20, waiting=3, waiting_of_one=2, patience=2.0
)
"""Limits that a test can reach."""
