"""Texts in, explanations out: what the commands that explain have in common."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from rationales.cli.arguments import Asked, Texts
from rationales.cli.output import Output
from rationales.cli.progress import Bar
from rationales.errors import RationalesError
from rationales.explainer import Explainer
from rationales.jobs import Interrupted, Progress, Request


def read_requests(source: Texts, question: Asked, example: str) -> Iterator[Request]:
    """The texts to explain; the first is read now, so that a missing file is known at once."""
    given = [value for value in (source.text, source.file, source.jsonl) if value is not None]
    if len(given) > 1:
        raise RationalesError("give one of a text, --file and --jsonl, not several")
    if source.jsonl is not None:
        return _from_lines(_read(source.jsonl), question)
    options = question.options()
    if source.text is not None:
        text = source.text
    elif source.file is not None:
        text = _read(source.file)
    elif not sys.stdin.isatty():
        text = _read("-")
    else:
        raise RationalesError(f"give a text: {example}")
    # A file ends with a line break that is not part of the text.
    text = text if source.text is not None else text.rstrip("\r\n")
    if not text.strip():
        raise RationalesError("the text is empty: give at least one word")
    return iter([Request(text, options)])


def explain_all(explainer: Explainer, requests: Iterator[Request], output: Output) -> None:
    """Explain all requests; an interrupt still puts out what is finished."""
    with Bar() as bar:
        try:
            for explanation in explainer.explain_all(requests, on_progress=_teller(bar)):
                bar.stop()
                output.write(explanation)
        except Interrupted as interrupted:
            bar.stop()
            for explanation in interrupted.explanations:
                output.write(explanation)
            raise


def _read(path: str) -> str:
    try:
        if path == "-":
            return sys.stdin.read()
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise RationalesError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise RationalesError(
            f"cannot read {path}: it is not UTF-8 text ({error.reason})"
        ) from error


def _from_lines(text: str, question: Asked) -> Iterator[Request]:
    """One request a line; every line is checked before the first is run."""
    requests = []
    # Not splitlines: a text may hold other line separators, which JSON leaves as they are.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict) or not isinstance(row.get("text"), str):
                raise RationalesError('expected an object with a "text"')
            if not isinstance(row.get("id"), str | int | None):
                raise RationalesError("the id must be a string or a whole number")
            own = {name: value for name, value in row.items() if name not in ("text", "id")}
            requests.append(Request(row["text"], question.options(own), row.get("id")))
        except (json.JSONDecodeError, TypeError, RationalesError) as error:
            raise RationalesError(f"line {number} of the JSON lines: {error}") from error
    if not requests:
        raise RationalesError("the JSON lines hold no text")
    return iter(requests)


def _teller(bar: Bar) -> Callable[[Progress], None]:
    def tell(progress: Progress) -> None:
        note = f"{progress.done}/{progress.total} targets · {progress.evaluations:,} subsets"
        bar.update("explaining", progress.done, progress.total, note)

    return tell
