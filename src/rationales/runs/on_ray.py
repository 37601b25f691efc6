"""Actors of a Ray cluster that answer batches: on this machine, or on any number of nodes.

Ray only computes: what is done and what is not is in the files that the driver writes.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
from typing import Any

from rationales.errors import MissingExtraError, RationalesError, first_line
from rationales.runs.workers import (
    Answered,
    Answers,
    Batch,
    Died,
    Event,
    Loading,
    Ready,
    answer,
    identity,
)
from rationales.threads import share

LOCAL = "local"
"""The address of a cluster of this machine alone, which begins and ends with the run."""

_STORE_BYTES = 2**28
"""Batches and answers are small; containers often have little shared memory."""


class Actors:
    """A pool of Ray actors, each with a model."""

    def __init__(
        self,
        loading: Loading,
        address: str = LOCAL,
        size: int | None = None,
        gpus: float = 0,
        dashboard: bool = False,
    ) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anybody
        # Without GPUs, devices stay as the user has set them; Ray would print that this changes.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            import ray
        except ImportError as error:
            raise MissingExtraError("--ray", "ray") from error
        self._ray: Any = ray
        self._begin(address, dashboard)
        resources = self._ray.cluster_resources()
        if gpus > resources.get("GPU", 0):
            found = f"{resources.get('GPU', 0):g}"
            self.close()
            raise RationalesError(f"a worker asks for {gpus:g} GPUs, and the cluster has {found}")
        cpus = int(resources.get("CPU", 1))
        self.size = size or (int(resources["GPU"] / gpus) if gpus else cpus)
        threads = max(1, cpus // self.size)
        self._make: Any = self._ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=0)(_Actor)
        self._arguments = (loading, threads)
        self._actors: dict[int, Any] = {}
        self._pending: dict[Any, int] = {}

    def _begin(self, address: str, dashboard: bool) -> None:
        import logging

        how: dict[str, Any] = {"address": address}
        if address == LOCAL:
            room = shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else _STORE_BYTES
            # Ray's least is 75 MB; what does not fit in shared memory it puts on the disk.
            how["object_store_memory"] = max(80 * 2**20, min(_STORE_BYTES, room // 2))
            how["include_dashboard"] = dashboard
            how["num_cpus"] = os.cpu_count()
        ending = signal.getsignal(signal.SIGTERM)
        try:
            self._ray.init(**how, log_to_driver=False, logging_level=logging.ERROR)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, ending)  # Ray has put its own there
        except (ConnectionError, RuntimeError, ValueError, TimeoutError, OSError) as error:
            raise RationalesError(
                f"cannot reach a Ray cluster at {address} ({first_line(error)}): "
                "is it started, as by ray start --head?"
            ) from error

    def start(self, slot: int) -> None:
        """Start an actor in a slot."""
        actor = self._make.remote(*self._arguments)
        self._actors[slot] = actor
        self._pending[actor.ready.remote()] = slot

    def submit(self, slot: int, batch: Batch) -> None:
        """Give a batch to an actor."""
        self._pending[self._actors[slot].answer.remote(batch.requests)] = slot

    def wait(self, seconds: float) -> list[tuple[int, Event]]:
        """What has happened, after this time at most."""
        if not self._pending:
            return []
        done, _ = self._ray.wait([*self._pending], timeout=seconds)
        return [(self._pending.pop(each), self._event(each)) for each in done]

    def _event(self, reference: Any) -> Event:
        try:
            event: Event = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:  # what the actor has raised
            cause = error.cause
            if isinstance(cause, RationalesError):
                raise RationalesError(str(cause)) from error
            return Died(f"{type(cause).__name__}: {first_line(cause)}")
        except self._ray.exceptions.RayError as error:  # the actor, or its node, is gone
            return Died(type(error).__name__)
        return event

    def close(self) -> None:
        """End all actors; a cluster of this machine ends with them."""
        for actor in getattr(self, "_actors", {}).values():
            self._ray.kill(actor)
        self._ray.shutdown()


class _Actor:
    """A model, in a process of a cluster."""

    def __init__(self, loading: Loading, threads: int) -> None:
        share(threads)
        self._loading = loading

    def ready(self) -> Ready:
        self._explainer = self._loading.load()
        return Ready(identity(self._explainer))

    def answer(self, requests: Any) -> Answered:
        answers: Answers = answer(self._explainer, requests)
        return Answered(answers)
