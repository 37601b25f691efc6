"""Studies for tests: passages of distinct words, and annotators that act by a script."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from rationales.annotation.study import Settings, Study, set_up


def passage(number: int, words: int = 8) -> str:
    """A text of which no word is in another text, or twice in it."""
    return " ".join(f"w{number}q{place}z" for place in range(words)) + f" target{number}x"


def write_passages(path: Path, texts: list[str]) -> Path:
    rows = [json.dumps({"id": f"p{n}", "text": text}) for n, text in enumerate(texts)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


@contextmanager
def opened(folder: Path, texts: list[str], consent: str = "", **settings: Any) -> Iterator[Study]:
    """The study of these texts, for this process alone."""
    folder.mkdir(exist_ok=True)
    given = write_passages(folder / "passages.jsonl", texts)
    paper = None
    if consent:
        paper = folder / "said.txt"
        paper.write_text(consent, encoding="utf-8")
    with set_up(given, folder / "study", Settings(**settings), paper) as made:
        study = Study(made.path, repair=True)
        study.open()
        yield study


class Client:
    """An annotator or the organiser, by the JSON interface; keeps all that was received."""

    def __init__(self, http: Any, token: str) -> None:
        self.http, self.token = http, token
        self.received: list[bytes] = []

    def send(self, do: str | None = None, **what: Any) -> Any:
        answer = self.answer(None if do is None else {"do": do, **what})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def answer(self, body: Any, path: str = "/work") -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        method = "GET" if body is None else "POST"
        answer = self.http.request(method, path, headers=headers, json=body)
        self.received += [answer.content, repr(answer.headers).encode()]
        return answer

    def rank(self, words: list[int]) -> Any:
        """Rank these words, in the passage that is open."""
        task = self.send()["task"]
        self.send("words", task=task, words=words)
        return self.send("finish", task=task)

    def guess(self, *guesses: str) -> Any:
        """Guess these words one after the other, in the passage that is open."""
        seen = self.send()
        for guess in guesses:
            revealed = len(seen["revealed"])
            seen = self.send("guess", task=seen["task"], revealed=revealed, guess=guess)
        return seen
