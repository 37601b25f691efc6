"""A small server that answers in the form of several endpoints, and fails as it is told to.

Its model needs two clues: it says " Paris" after a prompt with "France" and "capital", and " Lyon"
after any other. Then comes a full stop, and the end.
"""

from __future__ import annotations

import json
import math
import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TEXT = "I live in France. Bananas are yellow. The capital is old. The sun shines. We are in"
NEEDED = "I live in France. … The capital is old. … We are in"
_LOGITS = {0: -9.0, 1: -3.0, 2: 0.0}
_WORD = re.compile(r"\s*(?:\w+|[^\w\s])|\s+")


def next_tokens(prompt: str) -> list[tuple[str, float]]:
    """The tokens that may come next with their log-probabilities, the most likely first."""
    if prompt.rstrip().endswith("Paris"):
        logits = {".": 0.0, "!": -3.0}
    elif prompt.rstrip().endswith(("Paris.", "Lyon.", "Lyon")):
        return []
    else:
        clues = ("France" in prompt) + ("capital" in prompt)
        logits = {" Paris": _LOGITS[clues], " Lyon": -1.5, " Rome": -2.0}
        logits |= {f" w{n}": -5.0 - n / 100 for n in range(30)}
    total = math.log(sum(map(math.exp, logits.values())))
    return sorted(((t, x - total) for t, x in logits.items()), key=lambda each: -each[1])


class Server(ThreadingHTTPServer):
    """``kind``: llama.cpp, vllm, completions (OpenAI's old ones), openai (chats), ollama (its
    completions ignore ``logprobs``) or text (chats without log-probabilities). ``faults`` are
    what goes wrong with the next requests."""

    daemon_threads = True

    def __init__(self, kind: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.kind = kind
        self.faults: list[str] = []
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.key: str | None = None
        self.models = ["fake"]
        self.hold_after: int | None = None
        """From this request on, none is answered until ``release`` is set."""
        self.release = threading.Event()
        self.is_moody = False
        """Whether it answers otherwise if it is asked the same for the second time."""
        self._ids: dict[str, int] = {}
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def id_of(self, token: str) -> int:
        with self.lock:
            return self._ids.setdefault(token, len(self._ids) + 10)

    def text_of(self, ids: list[int]) -> str:
        texts = {id: token for token, id in self._ids.items()}
        return "".join(texts[id] for id in ids)

    def handle_error(self, *_: Any) -> None:
        """Nothing: a client that has gone is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and content in one packet: two would wait for each other

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        kind = self.server.kind
        if self._is_locked():
            return
        if self.path == "/v1/models":
            owner = {"llama.cpp": "llamacpp", "vllm": "vllm"}.get(kind, "somebody")
            models = [
                {"id": m, "owned_by": owner, "max_model_len": 500} for m in self.server.models
            ]
            self._say({"object": "list", "data": models})
        elif self.path == "/props" and kind == "llama.cpp":
            self._say({"total_slots": 2, "default_generation_settings": {"n_ctx": 512}})
        elif self.path == "/api/version" and kind == "ollama":
            self._say({"version": "0.40.12"})
        else:
            self._say({"error": {"message": "no such path"}}, 404)

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(length))
        self.server.headers.append(dict(self.headers.items()))
        if self._is_locked():
            return
        answer = self._without_generating(body)
        if answer is not None:
            self._say(answer)
            return
        is_chat = self.path == "/v1/chat/completions"
        paths = {"openai": ["/v1/chat/completions"], "completions": ["/v1/completions"]}
        paths["text"] = paths["openai"]
        both = [*paths["openai"], *paths["completions"]]
        if self.path not in paths.get(self.server.kind, both):
            self._say({"error": {"message": "no such path"}}, 404)
            return
        with self.server.lock:
            self.server.asked.append({"path": self.path, **body})
            number = len(self.server.asked)
            fault = self.server.faults.pop(0) if self.server.faults else ""
        if self.server.hold_after is not None and number > self.server.hold_after:
            self.server.release.wait(60)
        if not self._fail(fault):
            answer = self._chat(body) if is_chat else self._completion(body)
            if answer is not None:
                self._say(answer | ({"model": "impostor"} if fault == "model" else {}))

    def _is_locked(self) -> bool:
        key = self.server.key
        if key is None or self.headers.get("authorization") == f"Bearer {key}":
            return False
        said = self.headers.get("authorization", "nothing")
        self._say({"error": {"message": f"wrong key: {said}"}}, 401)
        return True

    def _without_generating(self, body: dict[str, Any]) -> Any:
        server, kind = self.server, self.server.kind
        if kind not in ("llama.cpp", "vllm"):
            return None
        if self.path == "/tokenize":
            text = body.get("content", body.get("prompt"))
            if text is None:
                text = _templated(body["messages"])
            tokens = [(server.id_of(t), t) for t in _WORD.findall(text)]
            if kind == "vllm":
                return {"tokens": [id for id, _ in tokens], "count": len(tokens)}
            return {"tokens": [{"id": id, "piece": t} for id, t in tokens]}
        if self.path == "/detokenize":
            text = server.text_of(body["tokens"])
            return {"prompt" if kind == "vllm" else "content": text}
        if self.path == "/apply-template" and kind == "llama.cpp":
            return {"prompt": _templated(body["messages"])}
        return None

    def _fail(self, fault: str) -> bool:
        """Whether the request has failed, as it was to."""
        if fault.startswith("429"):
            self._say({"error": "slow down"}, 429, {"Retry-After": fault[4:] or "0"})
        elif fault == "500":
            self._say({"error": {"message": "oh"}}, 500)
        elif fault == "timeout":
            self.server.release.wait(60)
        elif fault == "truncated":
            self._say({}, text='{"choices": [{"te')
        elif fault == "nan":
            self._say(
                {},
                text='{"choices": [{"text": "", "logprobs": {"content": [{"token": "x", '
                '"id": 1, "logprob": NaN, "top_logprobs": []}]}}]}',
            )
        elif fault == "html":
            self._say({}, text="<html>hello</html>")
        elif fault == "reset":
            linger = struct.pack("ii", 1, 0)  # closed without a farewell
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
            self.close_connection = True
        else:
            return False
        return True

    def _completion(self, body: dict[str, Any]) -> Any:
        server, prompt = self.server, body["prompt"]
        if isinstance(prompt, list):
            if server.kind == "completions":
                self._say({"error": {"message": "prompt must be a text"}}, 400)
                return None
            ids, prompt = prompt, server.text_of(prompt)
        most = 0 if server.kind == "ollama" else body.get("logprobs") or 0
        if server.kind == "completions" and most > 5:
            self._say({"error": {"message": "logprobs must be at most 5"}}, 400)
            return None
        tokens, places = self._generate(prompt, body)
        choice: dict[str, Any] = {"text": "".join(tokens), "finish_reason": "length"}
        if server.kind == "llama.cpp":
            choice["logprobs"] = {"content": self._content(tokens, places, most)} if most else None
        elif most:
            choice["logprobs"] = {
                "tokens": tokens,
                "token_logprobs": [dict(p)[t] for t, p in zip(tokens, places, strict=True)],
                "top_logprobs": [dict(p[:most]) for p in places],
            }
        if server.kind == "vllm":
            if body.get("return_token_ids"):
                choice["token_ids"] = [server.id_of(token) for token in tokens]
            if body.get("prompt_logprobs"):
                last, known = server.text_of(ids[-1:]), next_tokens(server.text_of(ids[:-1]))
                shown = [(last, dict(known).get(last, -30.0)), *known[: body["prompt_logprobs"]]]
                names = [token for token, _ in known]
                choice["prompt_logprobs"] = [None] * (len(ids) - 1) + [
                    {
                        str(server.id_of(token)): {
                            "logprob": logprob,
                            "rank": names.index(token) + 1 if token in names else 99,
                            "decoded_token": token,
                        }
                        for token, logprob in shown
                    }
                ]
        return self._answer(choice, prompt)

    def _chat(self, body: dict[str, Any]) -> Any:
        prompt = _templated(body["messages"])
        if self.server.kind == "text" and body.get("logprobs"):
            self._say({"error": {"message": "logprobs are not supported"}}, 400)
            return None
        tokens, places = self._generate(prompt, body)
        text = "".join(tokens)
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        if body.get("logprobs"):
            content = self._content(tokens, places, body["top_logprobs"])
            choice["logprobs"] = {"content": content}  # type: ignore[assignment]
        return self._answer(choice, prompt)

    def _generate(self, prompt: str, body: dict[str, Any]) -> tuple[list[str], list[Any]]:
        forced = dict(body.get("logit_bias") or [])
        tokens: list[str] = []
        places = []
        while len(tokens) < body["max_tokens"] and (known := next_tokens(prompt)):
            said = known[0][0]
            if forced:
                said = next(t for t, id in self.server._ids.items() if id in forced)
                if said not in dict(known):
                    known = [*known, (said, -30.0)]
            elif self.server.is_moody and self._times(body) == 2:
                (said, second), (first, best) = known[1], known[0]
                known = [(said, best), (first, second), *known[2:]]
            tokens.append(said)
            places.append(known)
            prompt += said
        return tokens, places

    def _times(self, body: dict[str, Any]) -> int:
        """How often this was asked until now."""
        return sum(each == {"path": self.path, **body} for each in self.server.asked)

    def _content(self, tokens: list[str], places: list[Any], most: int) -> list[dict[str, Any]]:
        def entry(token: str, logprob: float) -> dict[str, Any]:
            found = {"token": token, "logprob": logprob, "bytes": [*token.encode()]}
            if self.server.kind == "llama.cpp":
                found["id"] = self.server.id_of(token)
            return found

        return [
            entry(token, dict(known)[token]) | {"top_logprobs": [entry(*k) for k in known[:most]]}
            for token, known in zip(tokens, places, strict=True)
        ]

    def _answer(self, choice: dict[str, Any], prompt: str) -> dict[str, Any]:
        usage = {"prompt_tokens": len(_WORD.findall(prompt)), "completion_tokens": 1}
        return {"choices": [choice], "model": self.server.models[0] + "-1", "usage": usage}

    def _say(
        self,
        answer: Any,
        status: int = 200,
        headers: dict[str, str] | None = None,
        text: str | None = None,
    ) -> None:
        content = (json.dumps(answer) if text is None else text).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _templated(messages: list[dict[str, str]]) -> str:
    last = messages[-1]
    said = "".join(f"<{m['role']}>{m['content']}</{m['role']}>" for m in messages[:-1])
    if last["role"] == "assistant":
        return f"{said}<assistant>{last['content']}"
    return f"{said}<{last['role']}>{last['content']}</{last['role']}><assistant>"


@contextmanager
def serving(kind: str) -> Iterator[Server]:
    """A server of that kind."""
    with Server(kind) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.release.set()
            server.shutdown()
            thread.join(10)
