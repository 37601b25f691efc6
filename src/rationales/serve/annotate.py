"""The pages of a study: a selector's, a predictor's, the organiser's, each behind a token.

    GET /        the page; the token is behind the # of the link, and no server log has it
    GET /work    what the token's owner is to see now          (Authorization: Bearer …)
    POST /work   what they do; the answer is what they see then

A predictor is sent the words that are shown, each with its place, and how many words there are: no
hidden word, no length of one, no id of the passage, not whether a guess was right, and not who
chose the words. Requests are answered one after the other, each after its event is on the disk.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rationales.annotation.assignment import give_work, next_work, open_work
from rationales.annotation.people import Annotator, Play, Selection
from rationales.annotation.study import Study
from rationales.errors import RationalesError
from rationales.serve.answers import asset, http_error, json_body
from rationales.serve.organise import ACTIONS, overview
from rationales.serve.safety import Safety
from rationales.text import check_unicode

MOST_BYTES = 2**16
LONGEST_GUESS = 60
PATIENCE = 15.0
_ASSETS = {
    "/": ("serve", "annotate.html", "text/html"),
    "/annotate.js": ("serve", "annotate.js", "text/javascript"),
    "/annotate.css": ("serve", "annotate.css", "text/css"),
    "/page.css": ("serve", "page.css", "text/css"),
    "/viewer.css": ("render", "viewer.css", "text/css"),
}
_FIELDS = {"do", "task", "words", "revealed", "guess", "roles", "annotator", "passage", "accepted"}


def create_app(study: Study, *, host: str = "127.0.0.1", is_open: bool = False) -> Starlette:
    """The application of a study; ``is_open`` if others than this machine can reach it."""
    pages = _Pages(study)
    safety = Middleware(Safety, host=host, own_tokens=is_open, patience=PATIENCE)
    return Starlette(
        routes=[
            *(Route(path, partial(asset, *named)) for path, named in _ASSETS.items()),
            Route("/healthz", _health),
            Route("/work", pages.see),
            Route("/work", pages.act, methods=["POST"]),
        ],
        middleware=[safety],
        exception_handlers={HTTPException: http_error, RationalesError: _failed},
    )


async def _health(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _failed(request: Request, error: Exception) -> Response:
    """An event that could not be written was not done."""
    return JSONResponse({"error": str(error)}, 503)


class _Pages:
    """Who asks, what they may do, and what they see."""

    def __init__(self, study: Study) -> None:
        self.study = study

    async def see(self, request: Request) -> Response:
        return JSONResponse(self._seen(self._who(request)))

    async def act(self, request: Request) -> Response:
        who = self._who(request)
        body = await json_body(request, _FIELDS, MOST_BYTES, PATIENCE)
        try:
            check_unicode(json.dumps(body, ensure_ascii=False))
        except RationalesError as error:
            raise HTTPException(422, str(error)) from error
        if who is not None and self.study.annotators.get(who.id) is not who:
            raise HTTPException(401, "this link is not valid any more")
        do, known = str(body.get("do")), ACTIONS if who is None else _ANNOTATOR
        if do not in known:
            raise HTTPException(422, f"do must be one of {', '.join(known)}")
        if who is None:
            ACTIONS[do](self.study, body)
        else:
            _ANNOTATOR[do](self.study, who, body)
        return JSONResponse(self._seen(who))

    def _who(self, request: Request) -> Annotator | None:
        """The owner of the token; None is the organiser."""
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        owners: dict[bytes, Annotator | None] = {_digest(self.study.token): None}
        owners |= {_digest(each.token): each for each in self.study.annotators.values()}
        if not given or _digest(given) not in owners:
            raise HTTPException(401, "this link is not valid: ask the organiser for yours")
        return owners[_digest(given)]

    def _seen(self, who: Annotator | None) -> dict[str, Any]:
        return overview(self.study) if who is None else _work(self.study, who)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _work(study: Study, who: Annotator) -> dict[str, Any]:
    """What an annotator sees."""
    finished = sum(each.finished is not None for each in who.selections)
    finished += sum(study.is_over(play) for play in who.plays)
    seen = {
        "name": who.name,
        "roles": who.roles,
        "finished": finished,
        "words": study.settings.words,
    }
    if who.agreed != study.consent_digest:
        return seen | {"show": "consent", "consent": study.consent}
    work = open_work(study, who)
    if isinstance(work, Selection):
        row = study.passages[work.passage]
        return seen | {
            "show": "select",
            "task": who.tasks,
            "text": row.text,
            "spans": row.words,
            "size": study.size(work.passage),
            "chosen": work.words,
            "undoable": len(work.history) > 1,
        }
    if isinstance(work, Play):
        places = (study.words(work.of) or ())[: len(work.guesses) + 1]
        row = study.passages[work.passage]
        return seen | {
            "show": "guess",
            "task": who.tasks,
            "places": len(row.words) - 1,
            "revealed": [[place, row.word(place)] for place in places],
            "size": study.size(work.passage),
            "before": work.guesses[-1].guess if work.guesses else "",
        }
    return seen | {"show": "between", "more": next_work(study, who) is not None}


def _agree(study: Study, who: Annotator, body: dict[str, Any]) -> None:
    if who.agreed != study.consent_digest:
        who.record("agreed", consent=study.consent_digest)


def _next(study: Study, who: Annotator, body: dict[str, Any]) -> None:
    _check_agreed(study, who)
    give_work(study, who)


def _rank(study: Study, who: Annotator, body: dict[str, Any]) -> None:
    work = _current(study, who, body, Selection)
    if work is None:
        return
    given = body.get("words")
    count = len(study.passages[work.passage].words) - 1
    if not isinstance(given, list) or not all(type(each) is int for each in given):
        given = [count]  # which is none
    if not {*given} <= {*range(count)} or len({*given}) != len(given):
        raise HTTPException(
            422, "words must be a list of places of words before the target, none twice"
        )
    if given[:1] != [count - 1]:
        raise HTTPException(422, "the first word must be the one before the target")
    if len(given) > study.size(work.passage):
        raise HTTPException(422, f"rank {study.size(work.passage)} words, not more")
    if tuple(given) != work.words:
        who.record("words", words=given)


def _undo(study: Study, who: Annotator, body: dict[str, Any]) -> None:
    work = _current(study, who, body, Selection)
    if work is not None and len(work.history) > 1:
        who.record("undo")


def _finish(study: Study, who: Annotator, body: dict[str, Any]) -> None:
    work = _current(study, who, body, Selection)
    if work is None:
        return
    size = study.size(work.passage)
    if len(work.words) < size:
        raise HTTPException(422, f"rank {size} words: there are {len(work.words)}")
    who.record("ranked", words=work.words)


def _guess(study: Study, who: Annotator, body: dict[str, Any]) -> None:
    work = _current(study, who, body, Play)
    if work is None:
        return
    guess, revealed = body.get("guess"), body.get("revealed")
    if not isinstance(guess, str) or len(guess) > LONGEST_GUESS or len(guess.split()) > 1:
        raise HTTPException(422, f"guess one word, of at most {LONGEST_GUESS} letters")
    if type(revealed) is not int or revealed > len(work.guesses) + 1:
        raise HTTPException(422, "revealed must be the number of words that are shown")
    if revealed == len(work.guesses) + 1:  # else it is known already: an answer got lost
        who.record("guess", revealed=revealed, guess=guess.strip())


def _current(study: Study, who: Annotator, body: dict[str, Any], kind: type) -> Any:
    """The open work that a request is about; None if it is about work that is over."""
    _check_agreed(study, who)
    task = body.get("task")
    if type(task) is not int or task > who.tasks:
        raise HTTPException(422, "task must be the number of your passage")
    work = open_work(study, who)
    return work if task == who.tasks and isinstance(work, kind) else None


def _check_agreed(study: Study, who: Annotator) -> None:
    if who.agreed != study.consent_digest:
        raise HTTPException(403, "agree to the consent text first")


_ANNOTATOR: dict[str, Callable[[Study, Annotator, dict[str, Any]], None]] = {
    "agree": _agree,
    "next": _next,
    "words": _rank,
    "undo": _undo,
    "finish": _finish,
    "guess": _guess,
}
