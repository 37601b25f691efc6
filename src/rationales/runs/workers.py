"""What answers batches of rows: this process, processes beside it, or actors of a Ray cluster.

    Execution ─► Pool.submit(slot, batch) … Pool.wait() ─► Ready · Answered · Died

A pool has slots, each of which holds one model and answers one batch at a time. All that is decided
about a batch whose worker died is decided here, once for all pools. The same batch has the same
answers from each of them.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from rationales.errors import RationalesError, first_line
from rationales.requests import Failure, Request
from rationales.threads import share

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from rationales.explainer import Explainer
    from rationales.models.files import Kind

Answers = list[str | Failure]
"""The answer to each request: an explanation as JSON, or what is wrong with the request."""


@dataclass(frozen=True)
class Loading:
    """How a worker loads its model: what ``rationales.load`` is given."""

    model: str | None
    kind: Kind | None
    options: dict[str, Any]

    def load(self) -> Explainer:
        """The explainer of the model."""
        from rationales.loading import load

        return load(self.model, kind=self.kind, **self.options)


@dataclass(frozen=True)
class Batch:
    """Requests that are answered together, and how often a worker has died of them."""

    requests: tuple[Request, ...]
    deaths: int = 0


@dataclass(frozen=True)
class Ready:
    """A worker has its model: what the model is."""

    identity: dict[str, Any]


@dataclass(frozen=True)
class Answered:
    """A worker has answered its batch."""

    answers: Answers


@dataclass(frozen=True)
class Died:
    """A worker is gone, and with it what it was about."""

    why: str


Event = Ready | Answered | Died


class Pool(Protocol):
    """Slots that answer batches. An error that would meet every worker is raised by ``wait``."""

    size: int

    def start(self, slot: int) -> None:
        """Start a worker in a slot, in place of one that died."""

    def submit(self, slot: int, batch: Batch) -> None:
        """Give a batch to the worker of a slot, which is ready and idle."""

    def wait(self, seconds: float) -> list[tuple[int, Event]]:
        """What has happened, after this time at most."""

    def close(self) -> None:
        """End all workers, at once."""


def answer(explainer: Explainer, requests: Sequence[Request]) -> Answers:
    """The answers to these requests, whose targets share forward passes.

    What is no error of the user's, and would end the run, is the failure of a single request.
    """
    try:
        return [_as_text(each) for each in explainer.explain_all(requests, first_soon=False)]
    except Exception as error:
        if len(requests) == 1:
            message = f"{type(error).__name__}: {first_line(error)}"
            return [Failure(RationalesError(message), requests[0].id)]
        return [each for request in requests for each in answer(explainer, [request])]


def _as_text(answer: Any) -> str | Failure:
    if isinstance(answer, Failure):
        # A plain error: one of a library may not be sent to another process.
        return Failure(RationalesError(" ".join(str(answer.error).split())), answer.id)
    text: str = answer.to_json()
    return text


@dataclass
class Execution:
    """Batches on their way through a pool."""

    pool: Pool
    attempts: int
    on_ready: Callable[[dict[str, Any]], None]
    on_fault: Callable[[str], None]
    _again: deque[Batch] = field(default_factory=deque)
    _running: dict[int, Batch] = field(default_factory=dict)
    _idle: list[int] = field(default_factory=list)
    _starting: dict[int, int] = field(default_factory=dict)
    """Slots whose worker loads its model, and how many died there in a row while they did."""

    def run(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Answers] | None]:
        """Each batch with its answers as they come; None now and then, while nothing comes."""
        waiting = iter(batches)
        for slot in range(self.pool.size):
            self._start(slot)
        while True:
            while self._idle and (batch := self._next(waiting)) is not None:
                slot = self._idle.pop()
                self._running[slot] = batch
                self.pool.submit(slot, batch)
            if not self._running and (self._idle or not self._starting):
                return
            events = self.pool.wait(1.0)
            for slot, event in events:
                if isinstance(event, Ready):
                    self.on_ready(event.identity)
                    del self._starting[slot]
                    self._idle.append(slot)
                elif isinstance(event, Answered):
                    self._idle.append(slot)
                    yield self._running.pop(slot), event.answers
                else:
                    yield from self._bury(slot, event.why)
            if not events:
                yield None

    def _next(self, waiting: Iterator[Batch]) -> Batch | None:
        return self._again.popleft() if self._again else next(waiting, None)

    def _start(self, slot: int, deaths: int = 0) -> None:
        self._starting[slot] = deaths
        self.pool.start(slot)

    def _bury(self, slot: int, why: str) -> Iterator[tuple[Batch, Answers]]:
        """Deal with a worker that died: its batch is tried again, in the end row by row."""
        batch = self._running.pop(slot, None)
        if batch is None:
            deaths = self._starting.get(slot, 0) + 1
            if deaths >= 3:
                raise RationalesError(f"workers die while they load the model: {why}")
            if slot in self._idle:  # it had nothing to do: until it is ready again, it is not idle
                self._idle.remove(slot)
            self.on_fault(f"worker {slot + 1} died ({why}) without a row, and is started again")
            self._start(slot, deaths)
            return
        deaths, rows = batch.deaths + 1, len(batch.requests)
        ids = f"row {batch.requests[0].id!r}" if rows == 1 else f"{rows} rows"
        self.on_fault(f"worker {slot + 1} died ({why}) on {ids}, attempt {deaths}")
        if rows == 1 and deaths >= self.attempts:
            error = RationalesError(f"its worker died {deaths} times ({why})")
            yield Batch(batch.requests, deaths), [Failure(error, batch.requests[0].id)]
        elif rows > 1 and deaths >= self.attempts - 1:
            self._again += [Batch((request,), deaths) for request in batch.requests]
        else:
            self._again.append(Batch(batch.requests, deaths))
        self._start(slot)


class Local:
    """A pool of one slot: this process."""

    size = 1

    def __init__(self, load: Callable[[], Explainer]) -> None:
        self._load = load
        self._explainer: Explainer | None = None
        self._batch: Batch | None = None

    def start(self, slot: int) -> None:  # there is one
        self._explainer = None

    def submit(self, slot: int, batch: Batch) -> None:
        self._batch = batch

    def wait(self, seconds: float) -> list[tuple[int, Event]]:  # it does the work
        if self._explainer is None:
            self._explainer = self._load()
            return [(0, Ready(identity(self._explainer)))]
        if self._batch is None:
            return []
        batch, self._batch = self._batch, None
        return [(0, Answered(answer(self._explainer, batch.requests)))]

    def close(self) -> None:
        self._explainer = None


class Processes:
    """Processes of this machine, each with a model and a share of the threads."""

    def __init__(self, loading: Loading, size: int) -> None:
        from multiprocessing import get_context

        self.size = size
        self._loading = loading
        self._threads = max(1, (os.cpu_count() or 1) // size)
        # Forking a process that has threads, as torch has, may hang it.
        self._context = get_context("spawn")
        self._workers: dict[int, tuple[BaseProcess, Connection]] = {}

    def start(self, slot: int) -> None:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=_work, args=(theirs, self._loading, self._threads), daemon=True
        )
        process.start()
        theirs.close()
        self._workers[slot] = process, ours

    def submit(self, slot: int, batch: Batch) -> None:
        with suppress(OSError):  # it has died meanwhile, as ``wait`` will tell
            self._workers[slot][1].send(batch.requests)

    def wait(self, seconds: float) -> list[tuple[int, Event]]:
        from multiprocessing.connection import wait

        slots = {connection: slot for slot, (_, connection) in self._workers.items()}
        return [(slots[each], self._event(slots[each])) for each in wait([*slots], seconds)]  # type: ignore[index]

    def _event(self, slot: int) -> Event:
        process, connection = self._workers[slot]
        try:
            event = connection.recv()
        except (EOFError, OSError):
            connection.close()
            process.join()
            del self._workers[slot]
            return Died(_ending(process.exitcode))
        if isinstance(event, RationalesError):
            raise event
        received: Event = event
        return received

    def close(self) -> None:
        for process, connection in self._workers.values():
            connection.close()
            process.kill()
        for process, _ in self._workers.values():
            process.join()
        self._workers.clear()


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


def _work(connection: Connection, loading: Loading, threads: int) -> None:
    """A process that answers batches until its driver has gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all: the driver ends us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _leave_with_driver()
    share(threads)
    try:
        explainer = loading.load()
    except RationalesError as error:
        connection.send(RationalesError(str(error)))
        return
    connection.send(Ready(identity(explainer)))
    while True:
        try:
            requests = connection.recv()
        except (EOFError, OSError):
            return
        connection.send(Answered(answer(explainer, requests)))


def _leave_with_driver() -> None:
    """End this process when the one that started it ends, killed or not."""
    from multiprocessing import parent_process
    from multiprocessing.connection import wait

    parent = parent_process()

    def watch() -> None:
        if parent is not None:
            wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def identity(explainer: Explainer) -> dict[str, Any]:
    """What the model and the adapter of an explainer are, by their weights."""
    from rationales.models.identity import fingerprint

    network = explainer.without_adapter().model
    adapted = getattr(getattr(explainer.scorer, "adapted", None), "model", None)
    return {
        "model": explainer.name,
        "adapter": explainer.adapter,
        "model_fingerprint": None if network is None else fingerprint(network),
        "adapter_fingerprint": None if adapted is None else fingerprint(adapted),
    }
