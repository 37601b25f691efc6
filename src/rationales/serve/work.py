"""The queue: clients take turns, and work that nobody waits for any more stops.

Requests wait in one line for each client. Clients take turns, and one request of a client runs at a
time: a client with many requests does not hold up the others. A few requests run at a time, each in
a thread; they share the model pass by pass.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rationales.errors import RationalesError, first_line
from rationales.scoring.guard import stoppable

Event = tuple[str, Any]
"""What happened, and what is known of it: ``("progress", {"done": 3, …})``."""

Work = Callable[[Callable[[Event], None]], None]
"""Computes in a thread, and says what happens to the function that it is given."""

_STOPPING = "the server is stopping: ask again later"


class TooMany(Exception):
    """No more requests are taken: too many of this client wait, or too many of all."""

    def __init__(self, message: str, is_own: bool) -> None:
        super().__init__(message)
        self.is_own = is_own


class _Stopped(BaseException):
    """Raised in a thread whose work is not wanted any more."""


class Turns:
    """All requests that wait or run. Its methods are called in one event loop only."""

    def __init__(self, at_once: int, most_waiting: int, most_of_one: int) -> None:
        self.at_once, self.most_waiting, self.most_of_one = at_once, most_waiting, most_of_one
        self.running: set[Turn] = set()
        self._lines: dict[str, deque[Turn]] = {}  # the client whose turn is next comes first
        self._threads = ThreadPoolExecutor(at_once, "explain")
        self._is_closing = False

    @property
    def waiting(self) -> list[Turn]:
        """The requests that wait, in the order in which they will start."""
        lines = [list(line) for line in self._lines.values()]
        longest = max(map(len, lines), default=0)
        return [line[place] for place in range(longest) for line in lines if place < len(line)]

    def join(self, client: str, work: Work) -> Turn:
        """A place in the line of a client."""
        if self._is_closing:
            raise TooMany(_STOPPING, is_own=False)
        if len(self.waiting) >= self.most_waiting:
            raise TooMany(f"{self.most_waiting} requests wait: ask again later", is_own=False)
        line = self._lines.get(client, deque())
        if len(line) >= self.most_of_one:
            raise TooMany(f"{len(line)} of your requests wait: let one finish", is_own=True)
        turn = Turn(self, client, work)
        line.append(turn)
        self._lines[client] = line
        self._start_next()
        return turn

    def leave(self, turn: Turn) -> None:
        """Take a request out, wherever it is."""
        self.running.discard(turn)
        line = self._lines.get(turn.client, deque())
        if turn in line:
            line.remove(turn)
            if not line:
                del self._lines[turn.client]
        self._start_next()

    async def close(self, patience: float = 5.0) -> None:
        """Tell those that wait, give those that run some seconds to finish, and end all threads."""
        self._is_closing = True
        for turn in self.waiting:
            turn.fail(_STOPPING)
        for _ in range(int(patience * 20)):
            if not self.running:
                break
            await asyncio.sleep(0.05)
        for turn in [*self.running]:
            turn.fail(_STOPPING)
        await asyncio.to_thread(self._threads.shutdown)

    def _start_next(self) -> None:
        while len(self.running) < self.at_once:
            busy = {turn.client for turn in self.running}
            client = next((each for each in self._lines if each not in busy), None)
            if client is None:
                break
            line = self._lines.pop(client)
            turn = line.popleft()
            if line:
                self._lines[client] = line  # behind all others
            self.running.add(turn)
            self._threads.submit(turn.run)
        for position, turn in enumerate(self.waiting, start=1):
            if position != turn.position:
                turn.position = position
                turn.put(("queued", {"position": position}))


class Turn:
    """One request: its events come out in the event loop, its work is done in a thread."""

    def __init__(self, turns: Turns, client: str, work: Work) -> None:
        self.client = client
        self.position = 0
        self._turns = turns
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._stop = threading.Event()

    async def events(self) -> AsyncIterator[Event]:
        """What happens, up to the end of the work."""
        while (event := await self._events.get()) is not None:
            yield event

    def put(self, event: Event | None) -> None:
        """Say what happened; None: nothing more will."""
        self._events.put_nowait(event)

    def fail(self, sentence: str) -> None:
        """End the request with this sentence."""
        self.put(("failed", {"error": sentence}))
        self.stop()

    def stop(self) -> None:
        """Give up the request: if its work has begun, it ends before its next forward pass."""
        self._stop.set()
        self.put(None)
        if self not in self._turns.running:
            self._turns.leave(self)

    def run(self) -> None:
        """Do the work, in a thread; whatever goes wrong is an event, in one sentence."""
        try:
            with stoppable(self._check):
                self._say(("started", {}))
                self._work(self._say)
        except _Stopped:
            pass
        except RationalesError as error:
            self._say(("failed", {"error": str(error)}))
        except BaseException as error:  # whatever the model's code raises: the next request works
            self._say(("failed", {"error": f"the model failed: {first_line(error)}"}))
        finally:
            self._say(None)
            self._loop.call_soon_threadsafe(self._turns.leave, self)

    def _check(self) -> None:
        if self._stop.is_set():
            raise _Stopped

    def _say(self, event: Event | None) -> None:
        self._loop.call_soon_threadsafe(self.put, event)
