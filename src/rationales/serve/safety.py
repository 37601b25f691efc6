"""What every request and answer passes: who may ask, from which page, and how long it may take.

- The host of a request must be one that the server was started for: a foreign name that was made
  to point here (DNS rebinding) is refused. So is a request that a page of another origin sends.
- Where others can reach the server, a token is needed: in the header ``Authorization: Bearer …``,
  or once as ``/?token=…``, which a browser then keeps in a cookie. An application whose every
  answer needs a token of its own (``own_tokens``) answers for any host.
- A client that does not read its answer is given up.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from urllib.parse import parse_qs, urlsplit

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "::1")
CLIENT = "rationales_client"
"""The cookie that tells clients apart, so that they can take turns."""

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Safety:
    """The application behind these checks."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str = "127.0.0.1",
        token: str | None = None,
        own_tokens: bool = False,
        patience: float,
    ) -> None:
        self.app, self.token, self.patience = app, token, patience
        self.own_tokens = own_tokens
        self.hosts = {*LOOPBACK, host}
        # Servers on other ports of this host have the same cookies.
        self._cookie = f"rationales_token_{hashlib.sha256((token or '').encode()).hexdigest()[:8]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        cookies = cookie_parser(headers.get("cookie", ""))
        # Those without a cookie, which are no browsers, wait in one line for each address.
        scope["client_id"] = cookies.get(CLIENT) or str((scope.get("client") or [""])[0])
        new = "" if CLIENT in cookies else secrets.token_urlsafe(16)

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    answer.setdefault(name, value)
                if new:
                    answer.append("Set-Cookie", _cookie(CLIENT, new))
            with anyio.fail_after(self.patience):
                await send(message)

        refused = self._refused(scope, headers, cookies)
        await (refused or self.app)(scope, receive, send_safely)

    def _refused(self, scope: Scope, headers: Headers, cookies: dict[str, str]) -> Response | None:
        """The answer to a request that is not let in."""
        origin = headers.get("origin")
        try:
            host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
            is_foreign = origin is not None and urlsplit(origin).netloc != headers.get("host")
        except ValueError:
            return _error(403, "the Host or the Origin header of the request is malformed")
        if self.token is None and not self.own_tokens and host not in self.hosts:
            return _error(403, f"this server does not answer for the host {host[:80]!r}")
        is_foreign |= headers.get("sec-fetch-site") in ("cross-site", "same-site")
        is_link = scope["method"] == "GET" and scope["path"] == "/"  # which is welcome
        if is_foreign and not is_link:
            return _error(403, "pages of other origins may not ask this server")
        if self.token is None:
            return None
        asked = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if asked and self._is_token(asked):
            answer = RedirectResponse("/", status_code=303)
            answer.headers.append("Set-Cookie", _cookie(self._cookie, self.token))
            return answer
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        if self._is_token(bearer) or self._is_token(cookies.get(self._cookie, "")):
            return None
        return _error(401, "give the token that the server printed: /?token=… or Authorization")

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), (self.token or "").encode())


def _cookie(name: str, value: str) -> str:
    # Lax: a link in a mail opens the page. Requests that compute something are checked by origin.
    return f"{name}={value}; Path=/; HttpOnly; SameSite=Lax"


def _error(status: int, sentence: str) -> JSONResponse:
    return JSONResponse({"error": sentence}, status)
