"""Texts in, explanations out: what the commands that explain have in common."""

from __future__ import annotations

import io
import json
import os
import queue
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import BinaryIO

from rationales.cli.arguments import Question, Texts
from rationales.cli.output import Output
from rationales.cli.progress import Bar
from rationales.errors import RationalesError, first_line
from rationales.explainer import Explainer
from rationales.requests import Failure, Interrupted, Progress, Request
from rationales.result import Explanation
from rationales.text import check_unicode

Batch = Iterator[tuple[int | None, Request | Failure]]
"""Requests with the numbers of their lines, from 1; a text that is no line has none."""

_AHEAD = 256
"""Lines that are read before they are needed."""

_PATIENCE = 0.05
"""How many seconds of silence from a pipe mean that what was said is to be answered first."""


def read_requests(source: Texts, question: Question, example: str) -> Iterator[Batch]:
    """The texts to explain; the first is read now, so that a missing file is known at once.

    They come in batches: a batch ends where nothing more is there yet.
    """
    given = [value for value in (source.text, source.file, source.jsonl) if value is not None]
    if len(given) > 1:
        raise RationalesError("give one of a text, --file and --jsonl, not several")
    if source.jsonl is not None:
        lines = _Lines(source.jsonl)
        first = lines.wait()
        if first is None:
            raise RationalesError("the JSON lines hold no text")
        return lines.batches(first, question)
    options = question.options()
    if source.text is not None:
        text = source.text
    elif source.file is not None:
        text = _read(source.file)
    elif sys.stdin is not None and not sys.stdin.isatty():
        text = _read("-")
    else:
        raise RationalesError(f"give a text: {example}")
    # A file ends with a line break that is not part of the text.
    text = text if source.text is not None else text.rstrip("\r\n")
    if not text.strip():
        raise RationalesError("the text is empty: give at least one word")
    return iter([iter([(None, Request(text, options))])])


def explain_all(explainer: Explainer, batches: Iterator[Batch], output: Output) -> None:
    """Answer all requests; an interrupt still puts out what is finished."""
    with Bar() as bar:
        try:
            for batch in batches:
                for line, answer in _answers(explainer, batch, _teller(bar, output)):
                    bar.stop()
                    output.write(answer, line)
        except Interrupted as interrupted:
            bar.stop()
            for explanation in interrupted.explanations:
                output.write(explanation)
            raise


def _answers(
    explainer: Explainer, batch: Batch, tell: Callable[[Progress], None]
) -> Iterator[tuple[int | None, Explanation | Failure]]:
    """The answers to a batch with the numbers of their lines; what is no line fails for all."""
    lines: deque[int | None] = deque()  # those begun and not yet answered

    def requests() -> Iterator[Request | Failure]:
        for line, request in batch:
            lines.append(line)
            yield request

    for answer in explainer.explain_all(requests(), on_progress=tell):
        line = lines.popleft()
        if isinstance(answer, Failure) and line is None:
            raise answer.error
        yield line, answer


def _open(path: str) -> BinaryIO:
    """The file, or standard input for ``-``, to be read as bytes."""
    try:
        if path != "-":
            return open(path, "rb")
        if sys.stdin is None:
            raise RationalesError("standard input is closed: give a text or a file")
        try:
            # An object of its own: a thread that still waits for a line holds no lock at the end.
            return open(sys.stdin.fileno(), "rb", closefd=False)
        except io.UnsupportedOperation:  # something that stands in for it
            return io.BytesIO(sys.stdin.buffer.read())
    except OSError as error:
        raise _cannot_read(path, error) from error


def _read(path: str) -> str:
    """All of a file as text, less a byte order mark."""
    try:
        with io.TextIOWrapper(_open(path), encoding="utf-8-sig") as file:
            return file.read()
    except OSError as error:
        raise _cannot_read(path, error) from error
    except UnicodeDecodeError as error:
        raise RationalesError(
            f"cannot read {path}: it is not UTF-8 text ({error.reason})"
        ) from error


def _cannot_read(path: str, error: OSError) -> RationalesError:
    return RationalesError(f"cannot read {path}: {error.strerror or error}")


class _Lines:
    """The lines of a file with their numbers, from 1, but for blank ones.

    A thread reads ahead: so it is known whether a pipe has more to say, or is silent.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = _open(path)
        self._ahead: queue.Queue[tuple[int, bytes] | OSError | None] = queue.Queue(_AHEAD)
        try:
            is_whole = stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)
        except io.UnsupportedOperation:
            is_whole = True
        self._patience = None if is_whole else _PATIENCE
        threading.Thread(target=self._read_ahead, daemon=True).start()

    def _read_ahead(self) -> None:
        try:
            with self._file as file:
                for number, line in enumerate(file, start=1):
                    line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                    if line.strip():
                        self._ahead.put((number, line))
            self._ahead.put(None)
        except OSError as error:
            self._ahead.put(error)

    def wait(self, patience: float | None = None) -> tuple[int, bytes] | None:
        """The next line; None if there is no other. ``queue.Empty`` if there is none yet."""
        item = self._ahead.get(timeout=patience)
        if isinstance(item, OSError):
            raise _cannot_read(self._path, item) from item
        return item

    def batches(self, first: tuple[int, bytes], question: Question) -> Iterator[Batch]:
        """The requests of this line and all after it."""
        item: tuple[int, bytes] | None = first

        def batch() -> Batch:
            nonlocal item
            while item is not None:
                number, line = item
                yield number, _request(line, question)
                item = self.wait(self._patience)

        while item is not None:
            yield _until_empty(batch())
            # Silence, unless it was the end: whatever is said next begins another batch.
            item = None if item is None else self.wait()


def _until_empty(batch: Batch) -> Batch:
    """The batch up to where nothing more is there yet."""
    with suppress(queue.Empty):
        yield from batch


def _request(line: bytes, question: Question) -> Request | Failure:
    """The request of one line, or what is wrong with it."""
    id = None
    try:
        try:
            row = json.loads(line.decode().rstrip())
        except UnicodeDecodeError as error:
            raise RationalesError(f"not UTF-8 text ({error.reason})") from error
        except json.JSONDecodeError as error:
            raise RationalesError(f"not JSON ({error.msg}, character {error.pos + 1})") from error
        if not isinstance(row, dict) or not isinstance(row.get("text"), str):
            raise RationalesError('expected an object with a "text"')
        check_unicode(json.dumps(row, ensure_ascii=False))
        if not isinstance(row.get("id"), str | int | None) or isinstance(row.get("id"), bool):
            raise RationalesError("the id must be a string or a whole number")
        id = row.get("id")
        own = {name: value for name, value in row.items() if name not in ("text", "id")}
        options = question.options(own)
    except RationalesError as error:
        return Failure(error, id)
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
        return Failure(RationalesError(first_line(error)), id)
    return Request(row["text"], options, id)


def _teller(bar: Bar, output: Output) -> Callable[[Progress], None]:
    def tell(progress: Progress) -> None:
        subsets = f"{progress.evaluations:,} subsets"
        if output.several:  # how many there will be is not known: texts are begun as others end
            note = f"{output.answers:,} texts · {progress.done:,} targets · {subsets}"
            bar.update("explaining", 0, None, note)
        else:
            note = f"{progress.done}/{progress.total} targets · {subsets}"
            bar.update("explaining", progress.done, progress.total, note)

    return tell
