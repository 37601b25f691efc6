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
from uvicorn.protocols.http.h11_impl import H11Protocol

from rationales.errors import RationalesError

_MOST_CONNECTIONS = 500
_KEEP_ALIVE = 30
_PATIENCE = 10
"""Seconds that requests have to finish in, when the server is told to stop."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is any that is free."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server((str(address[0]), port), family=family)
    except (OSError, UnicodeError) as error:
        said = getattr(error, "strerror", None) or error
        raise RationalesError(f"cannot listen on {host}, port {port}: {said}") from error


def serve(app: Starlette, listening: socket.socket) -> None:
    """Answer requests until SIGTERM or Ctrl-C; what runs then may finish, or is told so."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        lifespan="on",
        server_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=_KEEP_ALIVE,
        http=_Protocol,
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
        turns = getattr(self.config.app.state, "turns", None)  # type: ignore[union-attr]
        if turns is not None and not self.should_exit:
            self._loop.call_soon_threadsafe(lambda: self._loop.create_task(turns.close()))
        super().handle_exit(sig, frame)


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Protocol(H11Protocol):
    """A connection that ends if no request arrives on it in time, or its answer is not read."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            connection = transport.get_extra_info("socket")
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * _KEEP_ALIVE)
        self.loop.call_later(_KEEP_ALIVE, self._end_if_idle)

    def _end_if_idle(self) -> None:
        if self.cycle is None and not self.transport.is_closing():  # no request has arrived
            self.transport.close()
