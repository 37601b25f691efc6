"""Requests to an endpoint: patient with what passes by, clear about what does not.

What passes by (429, 5xx, a time-out, a connection that breaks, an answer that is no JSON or holds
NaN) is tried again, later each time. What does not (no such address, a key that is wanted, a model
that is not known) is one line. The key comes from the environment, goes into a header, and is cut
out of whatever is said or stored.
"""

from __future__ import annotations

import json
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import sleep
from typing import Any
from urllib.parse import urlsplit

from rationales.endpoints.answers import Answers, digest_of
from rationales.errors import BudgetError, MissingExtraError, RationalesError, first_line

KEY, OPENAI_KEY = "RATIONALES_ENDPOINT_KEY", "OPENAI_API_KEY"
"""The variables of the environment that hold a key; the second is sent to api.openai.com only."""

_FIRST, _ANSWER = 8.0, 120.0
"""How many seconds a server may take to be there, and to answer."""
_ATTEMPTS = 5
_PAUSE, _LONGEST = 0.5, 60.0
_PASSING = (408, 409, 425, 429, 500, 502, 503, 504, 529)


class Refused(RationalesError):
    """The endpoint does not do what it was asked (400, 404, 422): it may do something else."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Usage:
    """What was asked of an endpoint so far."""

    requests: int = 0
    prompt_tokens: int = 0
    cached: int = 0
    scores: int = 0
    below_last: int = 0
    repeats: int = 0
    agreeing: int = 0

    def __sub__(self, before: Usage) -> Usage:
        pairs = zip(vars(self).values(), vars(before).values(), strict=True)
        return Usage(*(now - then for now, then in pairs))


class Client:
    """One endpoint and one model of it. Threads may share it."""

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        budget: int | None = None,
        at_once: int = 4,
        answers: Answers | None = None,
    ) -> None:
        try:
            import httpx
        except ImportError as error:
            raise MissingExtraError("an endpoint", "endpoint") from error
        self.url, self.only_chat = _address(url)
        self.root, _, version = self.url.rpartition("/")
        self.version = f"/{version}"
        self.model = model
        self.answered_by: str | None = None
        """The name that answers bear; one with another name is by a wrong model."""
        self.budget, self.at_once = budget, at_once
        self.answers = Answers() if answers is None else answers
        self._is_reached = False
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(vars(Usage()), 0)
        self._key_name = KEY if os.environ.get(KEY) else OPENAI_KEY
        host = urlsplit(self.url).hostname or ""
        is_openai = host == "openai.com" or host.endswith(".openai.com")
        may = self._key_name == KEY or is_openai
        self._key = os.environ.get(self._key_name, "").strip() if may else ""
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        limits = httpx.Limits(max_connections=64)
        try:
            self._http = httpx.Client(headers=headers, limits=limits)
        except (ValueError, UnicodeError):
            raise RationalesError(
                f"the key in {self._key_name} has characters no header takes"
            ) from None
        weakref.finalize(self, self._http.close)
        self._errors = httpx.TransportError

    @property
    def usage(self) -> Usage:
        with self._lock:
            return Usage(**self._counts)

    def count(self, **more: int) -> None:
        """Add to what is counted."""
        with self._lock:
            for name, number in more.items():
                self._counts[name] += number

    def get(self, path: str) -> Any:
        """The JSON at a path below the root, or None where there is nothing."""
        try:
            return self._send("GET", path, None, patience=_FIRST)
        except Refused:
            return None

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The JSON that answers a request that generates nothing: a text is tokenised."""
        digest = digest_of(self.url, self.model, path, body)
        answer = self.answers.get(digest)
        if answer is None:
            answer = self._send("POST", path, body)
            self.answers.put(digest, answer)
        return answer

    def ask_all(
        self, requests: Sequence[tuple[str, dict[str, Any], int]], read: Callable[[Any], Any]
    ) -> list[Any]:
        """What ``read`` makes of the answer to each (path, body, repeat), several at once.

        Equal requests are sent once. If the budget is spent, the error holds what was read.
        """
        digests = [digest_of(self.url, self.model, *each) for each in requests]
        unique = dict(zip(digests, requests, strict=True))
        found: dict[str, Any] = {}
        failed: list[BaseException] = []

        def ask(digest: str) -> None:
            try:
                found[digest] = self._ask(digest, *unique[digest][:2], read)
            except BaseException as error:
                failed.append(error)

        if len(unique) == 1 or self.at_once == 1:
            for digest in unique:
                ask(digest)
                if failed:
                    break
        else:
            with ThreadPoolExecutor(min(self.at_once, len(unique))) as pool:
                list(pool.map(ask, unique))
        answers = [found.get(digest) for digest in digests]
        for error in sorted(failed, key=lambda each: isinstance(each, BudgetError)):
            if isinstance(error, BudgetError):
                error.scores = tuple(answers)
            raise error
        return answers

    def ask_afresh(self, path: str, body: dict[str, Any], read: Callable[[Any], Any]) -> Any:
        """What is read from an answer that is asked for in any case, and not kept."""
        full = body if self.model is None else {"model": self.model, **body}
        return self._send("POST", path, full, read, counts=True)

    def _ask(self, digest: str, path: str, body: dict[str, Any], read: Callable[[Any], Any]) -> Any:
        """What is read from the answer, which is kept if it can be read."""
        if (answer := self.answers.get(digest)) is not None:
            self.count(cached=1)
            self._check_model(answer)
            return read(answer)
        full = body if self.model is None else {"model": self.model, **body}

        def checked(answer: Any) -> Any:
            self._check_model(answer)
            return answer, read(answer)

        answer, found = self._send("POST", path, full, checked, counts=True)
        usage = answer.get("usage") or {}
        self.count(prompt_tokens=int(usage.get("prompt_tokens") or 0))
        kept = {name: answer[name] for name in ("choices", "model", "usage") if name in answer}
        self.answers.put(digest, json.loads(self._scrubbed(json.dumps(kept))))
        return found

    def _check_model(self, answer: Any) -> None:
        name = answer.get("model") if isinstance(answer, dict) else None
        if not isinstance(name, str):
            return
        if self.answered_by is None:
            self.answered_by = name
        elif name != self.answered_by:
            raise RationalesError(
                f"{self.url} answered by the model {name!r}, not by {self.answered_by!r}: no "
                f"result is made of that; if it has another model now, delete {self.answers.file}"
            )

    def _send(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None,
        read: Callable[[Any], Any] = lambda answer: answer,
        *,
        patience: float | None = None,
        counts: bool = False,
    ) -> Any:
        """What is read from the answer, after as many attempts as it takes."""
        why, pause = "", 0.0
        for attempt in range(_ATTEMPTS):
            if attempt:
                sleep(pause)
            pause = min(_LONGEST, _PAUSE * 2**attempt)
            if counts:
                self._spend()
            try:
                response = self._http.request(
                    method, self.root + path, json=body, timeout=patience or _ANSWER
                )
            except self._errors as error:
                why = f"{type(error).__name__}: {first_line(error)}"
                if self._is_reached:  # it comes back, or is started anew
                    continue
                raise RationalesError(
                    f"nothing answers at {self.url} ({why}): start the server, or see that the "
                    "address is right"
                ) from None
            self._is_reached = True
            if response.status_code in _PASSING:
                why = f"status {response.status_code}{self._said(response)}"
                pause = _retry_after(response.headers.get("retry-after"), pause)
                continue
            if response.status_code >= 400:
                raise self._refusal(response, path)
            try:
                return read(json.loads(response.content, parse_constant=_no_constant))
            except RationalesError:
                raise
            except (ValueError, RecursionError) as error:
                why = (
                    f"no answer that can be read ({first_line(error)}), as of a server that speaks"
                )
                why += " something else than the OpenAI protocol"
            except (KeyError, TypeError, IndexError, AttributeError) as error:
                why = f"an answer without {first_line(error)}"
        raise RationalesError(self._scrubbed(f"{self.url} failed {_ATTEMPTS} times: {why}"))

    def _spend(self) -> None:
        with self._lock:
            if self.budget is not None and self._counts["requests"] >= self.budget:
                raise BudgetError(
                    f"the budget of {self.budget} requests is spent before anything was found: "
                    "give a larger one; what was answered is stored, and not asked again"
                )
            self._counts["requests"] += 1

    def _refusal(self, response: Any, path: str) -> RationalesError:
        status, said = response.status_code, self._said(response)
        if status in (401, 403):
            if self._key:
                return RationalesError(
                    f"{self.url} refuses the key in {self._key_name} ({status}{said})"
                )
            return RationalesError(
                f"{self.url} wants a key ({status}): put it into the environment variable {KEY}"
            )
        return Refused(f"{self.url} refuses {path} ({status}{said})", status)

    def _said(self, response: Any) -> str:
        """What the server says of it, in a few words, without the key."""
        try:
            error = json.loads(response.content)
            error = error.get("error", error)
            text = error if isinstance(error, str) else error.get("message") or error.get("detail")
            return self._scrubbed(f": {first_line(ValueError(text))}") if text else ""
        except (ValueError, AttributeError, RecursionError):
            return ""

    def _scrubbed(self, text: str) -> str:
        return text.replace(self._key, "…") if self._key else text


def _address(url: str) -> tuple[str, bool]:
    """The address up to /v1, and whether only chats are to be asked there."""
    parts = urlsplit(url.strip())
    try:
        port_is_right = parts.port is None or parts.port > 0
    except ValueError:
        port_is_right = False
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_right:
        raise RationalesError(
            f"an endpoint is an address such as http://127.0.0.1:8080/v1, not {url!r}"
            if "@" not in url
            else "an endpoint is an address such as http://127.0.0.1:8080/v1"
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise RationalesError(
            f"an address of an endpoint has no key, question mark or fragment in it: put the key "
            f"into the environment variable {KEY}"
        )
    path = parts.path.rstrip("/")
    only_chat = path.endswith("/chat/completions")
    path = path.removesuffix("/completions").removesuffix("/chat")
    if not path.rpartition("/")[2].startswith("v"):
        path += "/v1"
    return f"{parts.scheme}://{parts.netloc}{path}", only_chat


def _retry_after(header: str | None, otherwise: float) -> float:
    try:
        return min(_LONGEST, max(0.0, float(header or "")))
    except ValueError:
        return otherwise


def _no_constant(name: str) -> Any:
    raise ValueError(f"it holds {name}")
