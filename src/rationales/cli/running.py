"""Texts in, explanations out: what the commands that explain have in common."""

from __future__ import annotations

import io
import json
import os
import queue
import sys
import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rationales.cli.arguments import Model, Printing, Prompts, Question, Texts
from rationales.cli.output import Output, opened
from rationales.cli.progress import Bar
from rationales.errors import RationalesError, cannot, first_line
from rationales.prompt import PROMPT, Conversation, Documents, prompt_of
from rationales.requests import Failure, Interrupted, Progress, Request
from rationales.runs.rows import numbered_lines, read_line, read_prompt
from rationales.text import check_unicode

if TYPE_CHECKING:
    from rationales.explainer import Explainer
    from rationales.models.files import Kind

Batch = Iterator[tuple[int | None, Request | Failure]]
"""Requests with the numbers of their lines, from 1; a text that is no line has none."""

_AHEAD = 256
"""Lines that are read before they are needed."""

_PATIENCE = 0.05
"""How many seconds of silence from a pipe mean that what was said is to be answered first."""


EXIT_CODES = """
[bold]Exit codes[/bold]\n
  0 all is answered · 2 nothing was begun, or it could not go on · 3 some lines of --jsonl failed\n
  130 interrupted: what was finished is in FILE.partial, if --json has a FILE
"""


def answer(
    kind: Kind, example: str, texts: Texts, options: Any, model: Model, printing: Printing
) -> None:
    """Read the texts, load the model and put out an explanation of each text."""
    question = Question.of(kind, options, printing.steps)
    model.check()
    batches = read_requests(texts, question, example)
    with opened(printing, texts) as output:
        explain_all(model.load(kind), batches, output)


def read_requests(source: Texts, question: Question, example: str) -> Iterator[Batch]:
    """The texts to explain; the first is read now, so that a missing file is known at once.

    They come in batches: a batch ends where nothing more is there yet.
    """
    prompts = source if isinstance(source, Prompts) else Prompts()
    given = [source.text, source.file, source.jsonl, prompts.messages, prompts.documents or None]
    if len([value for value in given if value is not None]) > 1:
        raise RationalesError(
            "give one of a text, --file, --jsonl, --messages and --documents, not several"
        )
    if source.jsonl is not None:
        if prompts.question or prompts.template is not None or prompts.search_question:
            raise RationalesError(
                "--question, --template and --search-question go with --documents: write them into "
                "the lines of --jsonl"
            )
        batches = _batches(source.jsonl, question)
        first = next(batches, None)
        if first is None:
            raise RationalesError("the JSON lines hold no text")
        return chain([first], batches)
    options = question.options()
    if (asked := _prompt(prompts)) is not None:
        return iter([iter([(None, Request(asked, options))])])
    text = source.text
    if text is None:
        if source.file is None and (sys.stdin is None or sys.stdin.isatty()):
            raise RationalesError(f"give a text: {example}")
        text = _read(source.file or "-")
    if not text.strip():
        raise RationalesError("the text is empty: give at least one word")
    return iter([iter([(None, Request(text, options))])])


def _prompt(source: Prompts) -> Conversation | Documents | None:
    """The conversation or the documents in the files that are named; None if there are none."""
    messages, documents, template = None, None, None
    if source.messages is not None:
        try:
            messages = json.loads(_read(source.messages))
        except (ValueError, RecursionError) as error:
            raise RationalesError(f"{source.messages} is no JSON: {first_line(error)}") from error
        if not isinstance(messages, list):
            raise RationalesError(f"{source.messages} must hold a list of messages")
    if source.documents:
        names = Counter(Path(path).name for path in source.documents)
        documents = [
            each
            for path in source.documents
            for each in _read_documents(
                path, path if names[Path(path).name] > 1 else Path(path).name
            )
        ]
    if source.template is not None:
        template = _read(source.template)
    return prompt_of(None, messages, documents, source.question, template, source.search_question)


def _read_documents(path: str, name: str) -> list[str | dict[str, Any]]:
    """The document in a text file, with this name, or those in a file of JSON lines."""
    if not path.endswith(".jsonl"):
        return [{"text": _read(path), "id": os.fsencode(name).decode(errors="replace")}]
    found: list[str | dict[str, Any]] = []
    for number, line in enumerate(_read(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            raise RationalesError(f"line {number} of {path} is not JSON") from error
    return found


def _read(path: str) -> str:
    """The text of a file, without the line break that it ends with."""
    try:
        with _open(path, "r", encoding="utf-8-sig") as file:
            text: str = file.read().rstrip("\r\n")
            return text
    except (OSError, UnicodeDecodeError) as error:
        raise cannot("read", path, error) from error


def explain_all(explainer: Explainer, batches: Iterator[Batch], output: Output) -> None:
    """Answer all requests; an interrupt still puts out what is finished."""
    lines: deque[int | None] = deque()  # those begun and not yet answered

    def requests(batch: Batch) -> Iterator[Request | Failure]:
        for line, request in batch:
            lines.append(line)
            yield request

    def tell(progress: Progress) -> None:
        subsets = f"{progress.evaluations:,} subsets"
        what = f"searching {progress.level}s" if progress.level else "explaining"
        if output.several:  # how many there will be is not known: texts are begun as others end
            note = f"{output.answers:,} texts · {progress.done:,} targets · {subsets}"
            bar.update(what, 0, None, note)
        else:
            note = f"{progress.done}/{progress.total} targets · {subsets}"
            bar.update(what, progress.done, progress.total, note)

    with Bar() as bar:
        try:
            for batch in batches:
                for answer in explainer.explain_all(requests(batch), on_progress=tell):
                    line = lines.popleft()
                    if line is None and isinstance(answer, Failure):
                        raise answer.error
                    bar.stop()
                    output.write(answer, line)
        except Interrupted as interrupted:
            bar.stop()
            for explanation in interrupted.explanations:
                output.write(explanation)
            raise


def _open(path: str, mode: str, **how: Any) -> IO[Any]:
    """The file, or standard input for ``-``."""
    if path != "-":
        return open(path, mode, **how)
    if sys.stdin is None:
        raise RationalesError("standard input is closed: give a text or a file")
    try:
        # An object of its own: a thread that still waits for a line holds no lock at the end.
        return open(sys.stdin.fileno(), mode, closefd=False, **how)
    except io.UnsupportedOperation:  # something that stands in for it, in a notebook
        return io.BytesIO(sys.stdin.buffer.read()) if "b" in mode else sys.stdin


def _batches(path: str, question: Question) -> Iterator[Batch]:
    """The requests of a file of JSON lines, but for blank ones.

    A thread reads ahead: so it is known whether a pipe has more to say, or is silent.
    """
    is_whole = os.path.isfile(0 if path == "-" else path)
    ahead: queue.Queue[tuple[int, bytes] | RationalesError | None] = queue.Queue(_AHEAD)
    item: tuple[int, bytes] | None

    def read_ahead() -> None:
        try:
            with _open(path, "rb") as file:
                for each in numbered_lines(file):
                    ahead.put(each)
            ahead.put(None)
        except OSError as error:
            ahead.put(cannot("read", path, error))
        except RationalesError as error:
            ahead.put(error)

    def wait(patience: float | None = None) -> tuple[int, bytes] | None:
        """The next line; None if there is no other. ``queue.Empty`` if there is none yet."""
        item = ahead.get(timeout=patience)
        if isinstance(item, RationalesError):
            raise item
        return item

    def batch() -> Batch:
        nonlocal item
        with suppress(queue.Empty):
            while item is not None:
                number, line = item
                yield number, _request(line, question)
                item = wait(None if is_whole else _PATIENCE)

    threading.Thread(target=read_ahead, daemon=True).start()
    item = wait()
    while item is not None:
        yield batch()
        # Silence, unless it was the end: whatever is said next begins another batch.
        item = None if item is None else wait()


def _request(line: bytes, question: Question) -> Request | Failure:
    """The request of one line, or what is wrong with it."""
    id = None
    try:
        row = read_line(line)
        check_unicode(json.dumps(row, ensure_ascii=False))
        if not isinstance(row.get("id"), str | int | None) or isinstance(row.get("id"), bool):
            raise RationalesError("the id must be a string or a whole number")
        id = row.pop("id", None)
        asked = read_prompt(row, row.get("text"))
        if asked is None and not isinstance(row.get("text"), str):
            raise RationalesError('expected an object with a "text"')
        text = row.pop("text", None)
        own = {name: value for name, value in row.items() if name not in PROMPT}
        return Request(text if asked is None else asked, question.options(own), id)
    except RationalesError as error:
        return Failure(error, id)
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
        return Failure(RationalesError(first_line(error)), id)
