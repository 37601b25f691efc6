"""Answers of the protocols in one form: a text, and for each token its alternatives.

completions, OpenAI and vLLM    logprobs: {tokens, token_logprobs, top_logprobs: [{text: p}]}
chat, and all of llama.cpp      logprobs: {content: [{token, logprob, top_logprobs: [{…}]}]}
vLLM, of the prompt             prompt_logprobs: [null, {id: {logprob, rank, decoded_token}}]
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rationales.ties import ROUNDING


@dataclass(frozen=True)
class Choice:
    """A token that may come next, and its log-probability; its id, if the server tells it."""

    text: str
    logprob: float
    id: int | None = None
    rank: int | None = None


@dataclass(frozen=True)
class Position:
    """A token of an answer, and the most likely ones in its place, the most likely first."""

    said: Choice
    best: tuple[Choice, ...]


@dataclass(frozen=True)
class Reply:
    """What an endpoint has answered."""

    text: str
    positions: tuple[Position, ...] = ()
    of_prompt: Position | None = None
    """The last token of the prompt, in the place of which others might have come."""
    is_cut: bool = False
    """Whether it ended at the number of tokens that were asked for, not by itself."""


def read_reply(answer: Any) -> Reply:
    """The reply in an answer of any protocol; ``ValueError`` or ``KeyError`` if it is none."""
    choice = answer["choices"][0]
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    of_prompt = choice.get("prompt_logprobs") or answer.get("prompt_logprobs")
    return Reply(
        text=text or "",
        positions=_positions(choice.get("logprobs"), choice.get("token_ids") or ()),
        of_prompt=_prompt_position(of_prompt[-1]) if of_prompt else None,
        is_cut=choice.get("finish_reason") == "length",
    )


def _positions(logprobs: Any, ids: Any) -> tuple[Position, ...]:
    if not logprobs:
        return ()
    if logprobs.get("content") is not None:
        return tuple(
            Position(_choice(each), _sorted([_choice(c) for c in each.get("top_logprobs") or ()]))
            for each in logprobs["content"]
        )
    tokens, own = logprobs.get("tokens") or (), logprobs.get("token_logprobs") or ()
    best = logprobs.get("top_logprobs") or [None] * len(tokens)
    places = zip(tokens, own, best, strict=True)
    return tuple(
        Position(
            Choice(token, _logprob(logprob), ids[n] if n < len(ids) else None),
            _sorted([Choice(text, _logprob(value)) for text, value in (tops or {}).items()]),
        )
        for n, (token, logprob, tops) in enumerate(places)
    )


def _prompt_position(tops: Mapping[str, Any]) -> Position:
    """The last token of a prompt: vLLM lists it first, then the most likely ones."""
    found = [
        Choice(str(c.get("decoded_token") or ""), _logprob(c["logprob"]), int(id), c.get("rank"))
        for id, c in tops.items()
    ]
    return Position(found[0], _sorted(found))


def _choice(entry: Mapping[str, Any]) -> Choice:
    text, id = entry["token"], entry.get("id")
    if (spelt := entry.get("bytes")) is not None:
        text = bytes(spelt).decode(errors="replace")
    return Choice(text, _logprob(entry["logprob"]), id if isinstance(id, int) else None)


def _sorted(choices: list[Choice]) -> tuple[Choice, ...]:
    return tuple(sorted(choices, key=lambda choice: -choice.logprob))


def _logprob(value: Any) -> float:
    number = float(value)
    if math.isnan(number) or number > ROUNDING:
        raise ValueError(f"{number} is no log-probability")
    return min(0.0, number)
