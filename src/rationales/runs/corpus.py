"""A run over a corpus, in a folder from which it goes on if it is killed.

    Corpus ─► batches ─► Execution over a Pool ─► Parts (part-*.jsonl, failed.jsonl) ─► Outcome

Batches are the same whenever a run is begun: the rows that are answered together are chosen by the
input alone. So a run that was killed and went on has the same answers as one that was not.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from rationales.errors import RationalesError, first_line
from rationales.explainer import Explainer
from rationales.options import Input, OptionKeywords, Options, check_input
from rationales.requests import Failure, Request
from rationales.result import Explanation
from rationales.runs.folder import RunFolder
from rationales.runs.parts import FAILED, KIND, Failed, Parts, part_files, read_lines
from rationales.runs.rows import Columns, Corpus, Row, Source
from rationales.runs.workers import Answers, Batch, Execution, Loading, Local, Pool, Processes

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rationales.models.files import Kind

STATUS, LOG, INPUT = "status.json", "run.log", "input.jsonl"

_SPOOLED = ".piped-"
"""How the file begins that holds what a pipe says, until it is known to belong here."""

_BATCH_ROWS = 64
_BATCH_CHARACTERS = 65_536
"""Rows that are answered together: enough to fill forward passes, few enough to be lost at once."""


@dataclass(frozen=True)
class State:
    """How far a run is."""

    total: int = 0
    done: int = 0
    failed: int = 0
    seconds: float = 0.0
    """How long this process has been at it."""
    new: int = 0
    """Rows that it has answered in this time."""
    updated: str = ""

    @property
    def rate(self) -> float:
        """Rows in a second."""
        return self.new / self.seconds if self.seconds else 0.0

    @property
    def left(self) -> float | None:
        """Seconds until all rows are done; None if that is not known yet."""
        rows = self.total - self.done - self.failed
        return rows / self.rate if self.rate else None


@dataclass(frozen=True)
class Outcome:
    """A run folder and how far it is; iterating gives its explanations."""

    folder: Path
    state: State

    def __iter__(self) -> Iterator[Explanation]:
        for path in part_files(self.folder):
            for _, line in read_lines(path, set()):
                yield Explanation.from_dict(line)

    @property
    def failed(self) -> list[dict[str, Any]]:
        """The rows that have failed: id, line, error, attempts."""
        path = self.folder / FAILED
        return [row for _, row in read_lines(path, set())] if path.exists() else []


@dataclass(frozen=True)
class Execute:
    """Who answers the rows; the answers are the same."""

    workers: Annotated[int | None, Ge(1)] = None
    """Answer by this many processes, each with a model of its own; if left out, by this process.
    With Ray: by this many actors, as many as the cluster has room for if left out."""
    ray: str | None = None
    """Answer by actors of a Ray cluster: its address, or local for this machine alone."""
    gpus_per_worker: Annotated[float, Ge(0)] = 0
    """How many GPUs a Ray actor takes; may be a fraction."""
    dashboard: bool = False
    """Start the dashboard of a local Ray cluster."""
    attempts: Annotated[int, Ge(1)] = 3
    """A row whose worker dies this many times has failed."""

    def pool(self, loading: Loading | Explainer) -> Pool:
        """The pool that answers with this model."""
        if self.workers is None and self.ray is None:
            return Local(loading.load if isinstance(loading, Loading) else lambda: loading)
        if not isinstance(loading, Loading):
            raise RationalesError("workers load the model themselves: give its name, not an object")
        if self.ray is None:
            return Processes(loading, self.workers or 1)
        from rationales.runs.on_ray import Actors

        return Actors(loading, self.ray, self.workers, self.gpus_per_worker, self.dashboard)


def run(
    input: str | Path,
    out: str | Path,
    model: str | Path | Explainer | None = None,
    *,
    kind: Kind = "causal",
    load_options: Mapping[str, Any] | None = None,
    columns: Columns | None = None,
    sample: int | None = None,
    limit: int | None = None,
    retry_failed: bool = False,
    execute: Execute | None = None,
    on_progress: Callable[[State], None] | None = None,
    **options: Unpack[OptionKeywords],
) -> Outcome:
    """Explain every row of a file, and write the explanations to the folder ``out``.

    The file has a row for each text: JSONL, CSV, Parquet, or a folder that ``datasets`` has saved.
    A run that was stopped goes on where it was, if it is started again with the same arguments.
    ``options`` are those of ``Explainer.explain``; a column with the name of an option is the
    option of its row. ``model`` is what ``load`` takes, with ``load_options``, or an explainer.
    ``sample`` rows are chosen at random, by the ``seed``.
    """
    seed = options.get("seed") or 0
    if sample is not None and options.get("method") != "random":
        options.pop("seed", None)
    if isinstance(model, Explainer):
        loading: Loading | Explainer = model
        known: Input = model.kind
    else:
        name, known = None if model is None else str(model), kind
        loading = Loading(name, kind, dict(load_options or {}))
    asked = Options().change(**options)

    def ask(own: Mapping[str, Any]) -> Options:
        each = asked.change(**own)
        check_input(each, known)
        return each

    ask({})
    corpus = Corpus(Source(input), ask, columns or Columns(), sample, seed)
    return run_corpus(
        corpus,
        out,
        loading,
        execute or Execute(),
        asked=options,
        limit=limit,
        retry_failed=retry_failed,
        on_progress=on_progress,
    )


def run_corpus(
    corpus: Corpus,
    out: str | Path,
    loading: Loading | Explainer,
    execute: Execute,
    *,
    asked: Mapping[str, Any],
    limit: int | None = None,
    retry_failed: bool = False,
    on_progress: Callable[[State], None] | None = None,
    on_fault: Callable[[str], None] | None = None,
) -> Outcome:
    """Answer the rows of a corpus that have no answer yet, and write the answers to a folder.

    ``asked`` is asked of all rows: with the model and the input, it is the identity of the run.
    """
    folder = RunFolder(out, KIND)
    if not corpus.chosen:  # read before a model is loaded
        raise RationalesError(f"{corpus.source.path} holds no rows")
    with folder.locked():
        run = _Run(folder, corpus, dict(asked), limit, retry_failed, on_progress, on_fault)
        pool = execute.pool(loading)
        try:
            run.execute(pool, execute.attempts)
        finally:
            pool.close()
            run.tell(at_end=True)
    return Outcome(folder.path, run.state)


@dataclass
class _Run:
    """One process at a run: what is done, what it does."""

    folder: RunFolder
    corpus: Corpus
    asked: dict[str, Any]
    limit: int | None
    retry_failed: bool
    on_progress: Callable[[State], None] | None
    on_fault: Callable[[str], None] | None
    _parts: Parts | None = None
    _identity: dict[str, Any] | None = None
    _lines: dict[str | int, int] = field(default_factory=dict)
    """The row numbers of what is under way."""
    _new: int = 0
    _began: float = field(default_factory=time.monotonic)
    _told: float = 0.0

    def execute(self, pool: Pool, attempts: int) -> None:
        execution = Execution(pool, attempts, self._ready, self._fault)
        for answered in execution.run(self._batches()):
            if answered is not None:
                self._write(*answered)
            self.tell()

    @property
    def parts(self) -> Parts:
        assert self._parts is not None  # since the first worker was ready
        return self._parts

    def _ready(self, model: dict[str, Any]) -> None:
        """The first worker says which model it is; the others must have the same."""
        names = {name: model.pop(name) for name in ("model", "adapter")}
        identity = {"options": self.asked} | model | {"input_sha256": self.corpus.source.sha256}
        identity |= {"columns": asdict(self.corpus.columns)}
        identity |= {"sample": self.corpus.sample, "sample_seed": self.corpus.seed}
        if self._identity is None:
            self._identity = identity
            self.folder.claim(identity, names | {"input": self.corpus.source.path.name})
            if self.corpus.source.path.name.startswith(_SPOOLED):
                self.corpus.source.move(self.folder.path / INPUT)
            self._parts = Parts(self.folder)
            self._clean()
            self._began = time.monotonic()
        elif self._identity != identity:
            raise RationalesError("the workers have loaded different models: give each the same")

    def _clean(self) -> None:
        """Take back what is to be done again: batches that were cut off, failures if asked for."""
        parts = self.parts
        if self.retry_failed:
            parts.forget_failed([*parts.failed])
        cut: dict[str | int, int] = {}  # rows of batches that are there in part
        for batch in _grouped(self.corpus.rows()):
            over = [row.id in parts.done or row.number in parts.failed for row in batch]
            if any(over) and not all(over):
                cut |= {row.id: row.number for row in batch}
        parts.drop_last(cut)
        parts.forget_failed(cut.values())

    def _batches(self) -> Iterator[Batch]:
        parts, left = self.parts, self.limit
        for rows in _grouped(self.corpus.rows()):
            if left is not None:
                rows, left = rows[:left], left - len(rows[:left])
            open_rows = [
                row
                for row in rows
                if row.number not in parts.failed
                and (row.id not in parts.done or isinstance(row.request, Failure))
            ]
            bad = [row for row in open_rows if isinstance(row.request, Failure)]
            parts.write([], [_failed(row, row.request, 1) for row in bad])  # type: ignore[arg-type]
            good = [row for row in open_rows if isinstance(row.request, Request)]
            self._lines |= {row.id: row.number for row in good}
            if good:
                yield Batch(tuple(row.request for row in good))  # type: ignore[misc]
            if left == 0:
                return

    def _write(self, batch: Batch, answers: Answers) -> None:
        lines: list[tuple[str | int, str]] = []
        failed: list[Failed] = []
        for request, answer in zip(batch.requests, answers, strict=True):
            id = request.id if request.id is not None else ""
            number = self._lines.pop(id)
            if isinstance(answer, Failure):
                row = Row(number, answer)
                failed.append(_failed(row, answer, batch.deaths or 1))
            else:
                lines.append((id, answer))
        self.parts.write(lines, failed)
        self._new += len(batch.requests)

    def _fault(self, message: str) -> None:
        with self.folder.explained(LOG), (self.folder.path / LOG).open("a") as log:
            log.write(f"{_now()} {message}\n")
        if self.on_fault is not None:
            self.on_fault(message)

    @property
    def state(self) -> State:
        total = len(self.corpus.chosen)
        if self._parts is None:
            return State(total, updated=_now())
        seconds = time.monotonic() - self._began
        done, failed = len(self.parts.done), len(self.parts.failed)
        if self.limit is not None:
            total = max(min(total, self.limit), done + failed)
        return State(total, done, failed, round(seconds, 1), self._new, _now())

    def tell(self, at_end: bool = False) -> None:
        """Say how far the run is, once a second at most; ``run status`` reads it."""
        if self._parts is None or (not at_end and time.monotonic() - self._told < 1):
            return
        self._told = time.monotonic()
        state = self.state
        try:
            self.folder.write(STATUS, json.dumps(asdict(state)) + "\n")
        except RationalesError:
            if not at_end:
                raise
        if self.on_progress is not None:
            self.on_progress(state)


def _grouped(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows that are answered together: so many, or fewer long ones."""
    batch: list[Row] = []
    size = 0
    for row in rows:
        length = len(row.request.text) if isinstance(row.request, Request) else 0
        if batch and (len(batch) >= _BATCH_ROWS or size + length > _BATCH_CHARACTERS):
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += length
    if batch:
        yield batch


def _failed(row: Row, failure: Failure, attempts: int) -> Failed:
    return Failed(row.id, row.number, " ".join(str(failure.error).split()), attempts)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def spool(pipe: IO[bytes], out: str | Path) -> Path:
    """The file of all that a pipe says, in the folder of a run: its input, when it begins."""
    folder = Path(out).expanduser()
    with RunFolder(folder, KIND).explained(INPUT):
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=_SPOOLED, suffix=INPUT, dir=folder)
        with os.fdopen(handle, "wb") as file:
            shutil.copyfileobj(pipe, file)
    return Path(name)


def read_state(out: str | Path) -> tuple[State, bool]:
    """How far the run in a folder is, and whether a process is at it now."""
    folder = RunFolder(out, KIND)
    folder.check("rationales run")
    try:
        known = State(**json.loads((folder.path / STATUS).read_text(encoding="utf-8")))
    except FileNotFoundError:
        known = State()
    except (OSError, ValueError, TypeError) as error:
        raise RationalesError(f"cannot read {folder.path / STATUS}: {first_line(error)}") from error
    return known, folder.is_locked
