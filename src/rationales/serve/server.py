"""The server process: it listens, and ends in order when it is told to."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from rationales.errors import RationalesError

_MOST_CONNECTIONS = 500
_PATIENCE = 10
"""Seconds that requests have to finish in, when the server is told to stop."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is any that is free."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server((str(address[0]), port), family=family)
    except OSError as error:
        said = error.strerror or error
        raise RationalesError(f"cannot listen on {host}, port {port}: {said}") from error


def serve(app: Starlette, listening: socket.socket) -> None:
    """Answer requests until SIGTERM or Ctrl-C; what runs then may finish, or is told so."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        lifespan="on",
        server_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_PATIENCE,
    )
    asyncio.run(_Server(config).serve(sockets=[listening]))


class _Server(uvicorn.Server):
    """One that ends with exit code 0, after those who wait were told."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at a signal, and not raise it again at the end."""
        self._loop = asyncio.get_running_loop()
        before = {each: signal.signal(each, self.handle_exit) for each in _SIGNALS}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        turns = self.config.app.state.turns  # type: ignore[union-attr]  # it is a Starlette
        if not self.should_exit:
            self._loop.call_soon_threadsafe(lambda: self._loop.create_task(turns.close()))
        super().handle_exit(sig, frame)


_SIGNALS = (signal.SIGINT, signal.SIGTERM)
