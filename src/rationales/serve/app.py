"""The routes: the page, and a JSON API in the schema that is used everywhere.

Explanations come as server-sent events, target by target. See docs/api.md.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from rationales import requests
from rationales.chat import render
from rationales.context import Part, Token
from rationales.errors import RationalesError, first_line
from rationales.explainer import Explainer
from rationales.methods import METHODS
from rationales.options import Options, check_input
from rationales.prompt import PROMPT, Given
from rationales.render import viewer
from rationales.render.proof import unit_of
from rationales.result import Explanation
from rationales.runs.rows import read_prompt
from rationales.schema import read_parts, read_tokens, to_plain
from rationales.scoring.guard import LOCK
from rationales.serve.answers import asset, http_error, json_body
from rationales.serve.safety import Safety
from rationales.serve.work import Event, TooMany, Turn, Turns
from rationales.text import check_unicode, token_ids


@dataclass(frozen=True)
class Limits:
    """How much one request may ask for, and how many may wait."""

    body: int = 2**20
    """Bytes of a request."""
    characters: int = 40_000
    """Characters of a text, or of all messages or documents."""
    tokens: int = 2_048
    """Tokens of a text, or of all messages or documents."""
    targets: int = 256
    """Targets of a request."""
    at_once: int = 2
    """Explanations that are computed at a time."""
    waiting: int = 64
    """Explanations that wait, of all clients."""
    waiting_of_one: int = 8
    """Explanations that wait, of one client."""
    scores: int = 64
    """Scores that wait."""
    patience: float = 15.0
    """Seconds that a client may take to send its request, or to take a part of its answer."""


MOST = {
    "generate": 64,
    "max_length": 256,
    "beam": 8,
    "disjoint": 10,
    "keep_candidates": 50,
    "max_evaluations": 100_000,
    "ig_steps": 300,
}
"""The largest values of options."""

_FIELDS = {"model", "text", *PROMPT, "tokens", "parts", "target", "length", "within", "options"}
"""What a request for an explanation may hold."""

_ASSETS = {
    "/": ("serve", "page.html", "text/html"),
    "/page.js": ("serve", "page.js", "text/javascript"),
    "/page.css": ("serve", "page.css", "text/css"),
    "/viewer.js": ("render", "viewer.js", "text/javascript"),
    "/viewer.css": ("render", "viewer.css", "text/css"),
}


def create_app(
    explainers: Mapping[str, Explainer],
    *,
    host: str = "127.0.0.1",
    token: str | None = None,
    limits: Limits | None = None,
) -> Starlette:
    """The application that answers with these explainers, by their names; the first by default."""
    server = _Server(explainers, limits or Limits())
    safety = Middleware(Safety, host=host, token=token, patience=server.limits.patience)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        limits = server.limits
        server.turns = Turns(limits.at_once, limits.waiting, limits.waiting_of_one)
        app.state.turns = server.turns
        yield
        await server.turns.close()

    return Starlette(
        routes=[
            *(Route(path, partial(asset, *named)) for path, named in _ASSETS.items()),
            Route("/healthz", server.health),
            Route("/models", server.models),
            Route("/explain", server.explain, methods=["POST"]),
            Route("/score", server.score, methods=["POST"]),
            Route("/html", server.html, methods=["POST"]),
        ],
        middleware=[safety],
        exception_handlers={HTTPException: http_error, RationalesError: http_error},
        lifespan=lifespan,
    )


class _Server:
    """The routes that compute something."""

    turns: Turns

    def __init__(self, explainers: Mapping[str, Explainer], limits: Limits) -> None:
        self.explainers = dict(explainers)
        self.limits = limits
        self._scoring = Counter[str]()  # by client

    async def health(self, request: Request) -> Response:
        running, waiting = len(self.turns.running), len(self.turns.waiting)
        return JSONResponse({"status": "ok", "running": running, "waiting": waiting})

    async def models(self, request: Request) -> Response:
        return JSONResponse([_about(name, each) for name, each in self.explainers.items()])

    async def explain(self, request: Request) -> Response:
        body = await self._body(request, _FIELDS)
        name, explainer = self._explainer(body)
        asked = await _computed(partial(self._request, explainer, body))
        try:
            turn = self.turns.join(request.scope["client_id"], partial(self._work, name, asked))
        except TooMany as error:
            raise HTTPException(429 if error.is_own else 503, str(error)) from error
        return _Events(turn)  # type: ignore[return-value]  # any ASGI application will do

    async def score(self, request: Request) -> Response:
        options = {"criterion", "instead_of", "evaluation"}
        body = await self._body(request, {"model", "tokens", "target", "length", "keep", *options})
        _, explainer = self._explainer(body)
        tokens, target = self._tokens(body)
        keep = _indices(body, "keep", target)
        how: dict[str, Any] = {name: body[name] for name in options if name in body}
        how["length"] = _length(body)
        self._check_length(how["length"], "tokens in its target", self.limits.targets)
        own = request.scope["client_id"]
        if self._scoring[own] >= self.limits.waiting_of_one:
            raise HTTPException(429, f"{self._scoring[own]} of your scores wait: let one finish")
        if sum(self._scoring.values()) >= self.limits.scores:
            raise HTTPException(503, f"{self.limits.scores} scores wait: ask again later")
        self._scoring[own] += 1
        try:
            found = await _computed(partial(explainer.predict, tokens, target, keep, **how))
        finally:
            self._scoring -= Counter({own: 1})  # which drops those that have none left
        return JSONResponse(to_plain(found))

    async def html(self, request: Request) -> Response:
        body = await self._body(request, {"explanations"}, most=16 * self.limits.body)
        given = body.get("explanations")
        if not isinstance(given, list) or not given:
            raise HTTPException(422, "explanations must be a list of explanations, not empty")

        def page() -> str:
            return viewer.page([Explanation.from_dict(each) for each in given])

        return Response(await _computed(page), media_type="text/html")

    async def _body(
        self, request: Request, known: set[str], most: int | None = None
    ) -> dict[str, Any]:
        """The JSON object of a request, with no other keys than the known ones."""
        return await json_body(request, known, most or self.limits.body, self.limits.patience)

    def _explainer(self, body: Mapping[str, Any]) -> tuple[str, Explainer]:
        name = body.get("model")
        if name is None:
            name = next(iter(self.explainers))
        if not isinstance(name, str) or name not in self.explainers:
            raise HTTPException(
                404,
                f"there is no model {str(name)[:80]!r}: choose from {', '.join(self.explainers)}",
            )
        return name, self.explainers[name]

    def _request(self, explainer: Explainer, body: Mapping[str, Any]) -> requests.Request:
        """What is asked of an explainer; an error if it is too much, or means nothing."""
        given = body.get("options", {})
        if not isinstance(given, dict):
            raise HTTPException(422, "options must be a JSON object")
        for name, most in MOST.items():
            value = given.get(name)
            is_unbounded = value == 0 and name == "max_evaluations"
            if isinstance(value, int | float) and (value > most or is_unbounded):
                said = f"{name} must be at most {most:,} on this server, not {value}"
                raise HTTPException(422, said)
        text: Given | tuple[Token, ...]
        within, parts = None, tuple[Part, ...]()
        if "tokens" in body:
            if "target" in given or not {"text", *PROMPT}.isdisjoint(body):
                raise HTTPException(422, "give a text, or tokens with their target, not both")
            text, target = self._tokens(body)
            end = target + _length(body)
            given = {**given, "target": f"{target}:{end}" if end > target + 1 else target}
            if body.get("within") is not None:
                within = _indices(body, "within", target)
            parts = read_parts(body.get("parts", []), len(text))
        else:
            text = _given(body)
            if explainer.kind == "seq2seq" and not isinstance(text, str):
                raise HTTPException(422, "this model translates a text, not messages or documents")
        options = Options().change(**given)
        check_input(options, explainer.kind)
        if isinstance(text, tuple):
            count, spanned = len(text), _length(body)
        else:
            count, spanned = self._counts(text, explainer, options)
        self._check_length(count, "tokens", self.limits.tokens)
        if options.span:
            self._check_length(spanned, "tokens with the option span", self.limits.targets)
        return requests.Request(text, options, within=within, parts=parts)

    def _counts(self, what: Given, explainer: Explainer, options: Options) -> tuple[int, int]:
        """How many tokens a text or a prompt has, and how many of them may be one span."""
        prompt = render(explainer.tokenizer, what, options.chat and not isinstance(what, str))
        more = " ".join(filter(None, (options.continuation, options.prefix, prompt.answer)))
        answer = self._count(more, explainer) if more else 0
        count = answer + self._count(prompt.text, explainer)
        # Of a prompt, only the answer is explained.
        return count, count if isinstance(what, str) else answer

    def _count(self, text: str, explainer: Explainer) -> int:
        """How many tokens a text has."""
        check_unicode(text)
        self._check_length(len(text), "characters", self.limits.characters)
        with LOCK:  # tokenizers of translation models have a mode
            return len(token_ids(explainer.tokenizer, text, specials=True))

    def _check_length(self, count: int, what: str, most: int) -> None:
        if count > most:
            raise HTTPException(
                413, f"the text has {count:,} {what}, and this server takes {most:,}: shorten it"
            )

    def _tokens(self, body: Mapping[str, Any]) -> tuple[tuple[Token, ...], int]:
        """The tokens of a request, and which of them is the target."""
        tokens, target = body.get("tokens"), body.get("target")
        if not isinstance(tokens, list) or not tokens:
            raise HTTPException(422, "tokens must be a list of tokens, not empty")
        self._check_length(len(tokens), "tokens", self.limits.tokens)
        if not isinstance(target, int) or isinstance(target, bool) or not 0 < target < len(tokens):
            raise HTTPException(
                422, f"target must be the index of a token, from 1 to {len(tokens) - 1}"
            )
        return read_tokens(tokens), target

    def _work(self, name: str, asked: requests.Request, say: Callable[[Event], None]) -> None:
        """Explain a request in a thread, and say what happens."""

        def tell(progress: requests.Progress) -> None:
            if progress.total > self.limits.targets:
                raise RationalesError(
                    f"there are {progress.total:,} targets, and this server explains "
                    f"{self.limits.targets:,} at most: name some with the option target"
                )
            say(("progress", vars(progress)))

        known: set[int] = set()
        item: dict[str, Any] = {}
        proofs: dict[str, list[list[str]]] = {}
        for explanation in self.explainers[name].grow(asked, on_progress=tell):
            if not item:
                [item] = viewer.page_data([explanation])["items"]
                item["model"] = name
                say(("text", item))
            new = tuple(each for each in explanation if each.target not in known)
            known.update(each.target for each in new)
            for each in new:
                if facts := viewer.proofs(each, unit_of(explanation)):
                    proofs[str(each.target)] = facts
                    say(("proof", {"target": each.target, "facts": facts}))
            only = replace(explanation, tokens=(), rationales=new).to_dict()
            for rationale in only["rationales"]:
                say(("rationale", rationale))
        say(("done", {**item, "explanation": explanation.to_dict(), "proofs": proofs}))


class _Events:
    """A response of server-sent events; a client that has gone ends the work."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(watch)
                with suppress(TimeoutError):  # a client that does not read is given up
                    await self._send_all(send)
                group.cancel_scope.cancel()
        finally:
            self.turn.stop()

    async def _send_all(self, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for name, data in self.turn.events():
            text = json.dumps(data, ensure_ascii=False, allow_nan=False)
            body = f"event: {name}\ndata: {text}\n\n".encode()
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _computed(work: Callable[[], Any]) -> Any:
    """What is computed in a thread; whatever goes wrong is an error of one sentence."""
    try:
        return await run_in_threadpool(work)
    except (HTTPException, RationalesError):
        raise
    except Exception as error:
        raise HTTPException(500, f"the model failed: {first_line(error)}") from error


def _about(name: str, explainer: Explainer) -> dict[str, Any]:
    """What a page needs to know of a model."""
    causal = explainer.kind == "causal"
    return {
        "name": name,
        "kind": explainer.kind,
        "adapter": explainer.adapter,
        "chat": causal and bool(getattr(explainer.tokenizer, "chat_template", None)),
        "methods": [m for m, each in METHODS.items() if causal or not each.causal_only],
    }


def _given(body: Mapping[str, Any]) -> Given:
    """The text, the conversation or the documents of a request."""
    text = body.get("text")
    check_unicode(json.dumps([body.get(name) for name in PROMPT], ensure_ascii=False))
    asked: Given | None = read_prompt(body, text)
    if asked is None and isinstance(text, str):
        asked = text
    if asked is None:
        raise HTTPException(422, "text must be a string; or give messages, or documents")
    if not {"target", "length", "within", "parts"}.isdisjoint(body):
        raise HTTPException(
            422, "target, length, within and parts go with tokens; a text has the option target"
        )
    return asked


def _length(body: Mapping[str, Any]) -> int:
    """How many tokens the target of a request has."""
    length = body.get("length", 1)
    if not isinstance(length, int) or isinstance(length, bool) or length < 1:
        raise HTTPException(422, "length must be a number of tokens, at least 1")
    return length


def _indices(body: Mapping[str, Any], name: str, target: int) -> tuple[int, ...]:
    """The token indices in a field, all of them before the target."""
    given = body.get(name)
    for index in given if isinstance(given, list) else [None]:
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < target:
            raise HTTPException(422, f"{name} must be a list of token indices below {target}")
    return tuple(sorted({*(given or ())}))
