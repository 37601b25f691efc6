"""What stands in for a tokenizer: an endpoint's own tokens, or pieces of text.

Both have as much of the form of a tokenizer of transformers as texts, prompts and units need. The
pieces of a text, joined, are the text. In a conversation, a mark stands for whatever the server's
chat template writes before a message: it is pinned, and never sent.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from rationales.endpoints.client import Client
from rationales.endpoints.replies import Choice
from rationales.errors import RationalesError
from rationales.units import word_starts

_MARK = re.compile(r"\n?⟦([\w .()-]+)⟧\n")


class Pieces:
    """Words as tokens. An id is a digest of the text, so it is the same in every process."""

    chat_template = "the server's"
    eos_token_id = None

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._server_ids: dict[int, int] = {}

    def __call__(
        self, text: str, add_special_tokens: bool = False, verbose: bool = False
    ) -> dict[str, list[int]]:
        ids: list[int] = []
        position = 0
        for mark in _MARK.finditer(text):
            ids += map(self.add, _words(text[position : mark.start()]))
            ids.append(self.add(mark[0]))
            position = mark.end()
        return {"input_ids": ids + [self.add(word) for word in _words(text[position:])]}

    def add(self, text: str, server_id: int | None = None) -> int:
        """The id of a piece, which is known from now on; the server's own, if it is a token."""
        id = int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")
        self._texts[id] = text
        if server_id is not None:
            self._server_ids[id] = server_id
        return id

    def add_choice(self, choice: Choice) -> int:
        """The id of a token of the server."""
        return self.add(choice.text, choice.id)

    def server_id(self, id: int) -> int | None:
        """The server's own id of a piece, if it is known."""
        return self._server_ids.get(id)

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        try:
            return "".join(self._texts[id] for id in ids)
        except KeyError as error:
            raise RationalesError(f"there is no piece of text with the id {error}") from None

    def convert_ids_to_tokens(self, id: int) -> str:
        return self.decode([id])

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], **_: Any) -> str:
        """The messages with marks between them."""
        for number, message in enumerate(messages, start=1):
            if _MARK.search(f"\n{message.get('content') or ''}\n"):
                raise RationalesError(f"message {number} has a line such as ⟦user⟧: rewrite it")
        said = [f"⟦{each['role']}⟧\n{each.get('content') or ''}" for each in messages]
        return "\n".join([*said, "⟦assistant⟧\n"])

    def split(self, ids: Sequence[int]) -> tuple[list[dict[str, str]] | None, list[int]]:
        """The messages before the answer, and the ids of the answer so far; None: no conversation.

        A message of which nothing is kept is empty: the template writes its frame all the same.
        """
        messages: list[dict[str, str]] = []
        answer: list[int] = []
        for id in ids:
            text = self.decode([id])
            if mark := _MARK.fullmatch(text):
                messages.append({"role": mark[1], "content": ""})
                answer = []
            else:
                answer.append(id)
                if messages:
                    messages[-1]["content"] += text
        return (messages[:-1], answer) if messages else (None, [])

    def answer_start(self, ids: Sequence[int]) -> int | None:
        """Where the answer in a conversation begins; None if it is no conversation."""
        marks = [place for place, id in enumerate(ids) if _MARK.fullmatch(self.decode([id]))]
        return marks[-1] + 1 if marks else None


class ServerTokens:
    """The server's own tokens, by its addresses /tokenize and /detokenize."""

    eos_token_id = None

    def __init__(self, client: Client, is_vllm: bool) -> None:
        self._client, self._is_vllm = client, is_vllm
        self._pieces: dict[int, bytes] = {}
        self._decoded: dict[tuple[int, ...], str] = {}
        self.chat_template = "the server's"

    def __call__(
        self, text: str, add_special_tokens: bool = False, verbose: bool = False
    ) -> dict[str, list[int]]:
        if not text:
            return {"input_ids": []}
        if self._is_vllm:
            body = {"prompt": text, "add_special_tokens": add_special_tokens}
            return {"input_ids": [int(id) for id in self._tokenize(body)]}
        body = {"content": text, "add_special": add_special_tokens, "with_pieces": True}
        ids: list[int] = []
        for token in self._tokenize(body):
            piece = token["piece"]
            self._pieces[token["id"]] = piece.encode() if isinstance(piece, str) else bytes(piece)
            ids.append(token["id"])
        return {"input_ids": ids}

    def add_choice(self, choice: Choice) -> int:
        """The id of a token that the server has told."""
        assert choice.id is not None
        if "\N{REPLACEMENT CHARACTER}" not in choice.text:
            self._pieces.setdefault(choice.id, choice.text.encode())
        return choice.id

    def server_id(self, id: int) -> int | None:
        return id

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        if not self._is_vllm and all(id in self._pieces for id in ids):
            return b"".join(self._pieces[id] for id in ids).decode(errors="replace")
        key = tuple(ids)
        if key and key not in self._decoded:
            answer = self._client.post("/detokenize", self._with_model({"tokens": list(ids)}))
            self._decoded[key] = str(answer["prompt" if self._is_vllm else "content"])
        return self._decoded.get(key, "")

    def convert_ids_to_tokens(self, id: int) -> str:
        return self.decode([id])

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], **_: Any) -> str:
        """The prompt that the server's chat template makes of the messages."""
        if not self._is_vllm:
            answer = self._client.post("/apply-template", {"messages": list(messages)})
            return str(answer["prompt"])
        body = {"messages": list(messages), "add_generation_prompt": True}
        return self.decode([int(id) for id in self._tokenize(body)])

    def answer_start(self, ids: Sequence[int]) -> None:
        """Nothing: in a prompt of tokens, the answer is a text like any other."""

    def _tokenize(self, body: dict[str, Any]) -> list[Any]:
        tokens: list[Any] = self._client.post("/tokenize", self._with_model(body))["tokens"]
        return tokens

    def _with_model(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"model": self._client.model, **body} if self._is_vllm else body


def _words(text: str) -> list[str]:
    """The words of a text and what is between them; spaces go with what follows."""
    words: list[str] = []
    waiting = ""
    for start, end in pairwise([*word_starts(text), len(text)] if text else [0]):
        waiting += text[start:end]
        if waiting.strip():
            words.append(waiting)
            waiting = ""
    return [*words, waiting] if waiting else words
