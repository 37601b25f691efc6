"""What an endpoint can do, found out by asking it.

The cheap questions come first (which models, which server), then one or two that generate a token.
From what is found follows the way of asking:

    forced   the target's log-probability and the argmax, by a bias that forces the target
    prompt   the same, from the log-probabilities of a prompt that ends with the target (vLLM)
    top-k    the best alternatives only: a target outside them counts as just below the last
    text     no log-probabilities: only whether the answer is the same
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from rationales.endpoints.answers import digest_of
from rationales.endpoints.client import Client, Refused
from rationales.endpoints.replies import Reply, read_reply
from rationales.errors import RationalesError

Way = Literal["forced", "prompt", "top-k", "text"]

ALTERNATIVES = 20
"""How many alternatives are asked for: no protocol promises more."""

_PROMPT = "The capital of France is"
_MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]
_FORCING = 1000
"""A bias that no logit outweighs."""


@dataclass(frozen=True)
class Capabilities:
    """What an endpoint can do."""

    server: str
    model: str
    completions: bool = False
    """Whether it continues a text."""
    chat: bool = False
    """Whether it answers messages."""
    alternatives: int = 0
    """How many alternatives it tells with their log-probabilities; 0: it tells none."""
    forces: bool = False
    """Whether it tells the raw log-probability of a token that a bias forces."""
    scores_prompt: bool = False
    """Whether it tells the log-probabilities of a prompt's tokens by their ids."""
    echoes: bool = False
    """Whether it repeats the prompt with log-probabilities."""
    takes_ids: bool = False
    """Whether it tokenises texts and takes token ids."""
    applies_template: bool = False
    """Whether it shows what its chat template makes of messages."""
    continues_answers: bool = False
    """Whether the last message may be an answer that is not finished."""
    at_once: int = 4
    """How many requests it answers at once, if it says so."""
    positions: int | None = None
    """How many tokens a prompt and its answer may have."""
    deterministic: bool | None = None
    """Whether it answers the same to the same question; None: not asked."""

    @property
    def way(self) -> Way:
        """How it is asked about a target."""
        if self.forces:
            return "forced"
        if self.scores_prompt and self.takes_ids:
            return "prompt"
        return "top-k" if self.alternatives else "text"


def probe(client: Client, *, thorough: bool = False) -> Capabilities:
    """What an endpoint can do; ``thorough``: whether it is deterministic, and echoes, too."""
    names, listed = _models(client)
    if client.model is None:
        if len(names) > 1:
            raise RationalesError(
                f"{client.url} has several models: name one of {', '.join(names[:12])} as "
                "endpoint_model (--endpoint-model)"
            )
        client.model = names[0] if names else None
    elif names and client.model not in names:
        raise RationalesError(
            f"{client.url} does not know the model {client.model!r}: it has {', '.join(names[:12])}"
        )
    able = replace(_server(client, listed), model=client.model or "")
    able = _generating(client, able)
    if thorough:
        able = replace(able, echoes=_echoes(client, able), deterministic=_same_twice(client, able))
    return able


def _models(client: Client) -> tuple[list[str], dict[str, Any]]:
    """The names of the models, and what is said of the one that is meant."""
    answer = client.get(f"{client.version}/models")
    if answer is None:
        return [], {}
    try:
        listed = {str(each["id"]): each for each in answer["data"]}
    except (KeyError, TypeError):
        raise RationalesError(
            f"{client.url} speaks something else than the OpenAI protocol: {client.version}/models "
            "should list its models"
        ) from None
    aliases = {name: each for each in listed.values() for name in each.get("aliases") or ()}
    chosen = {**aliases, **listed}.get(client.model or next(iter(listed), ""), {})
    return [*listed, *(name for name in aliases if name not in listed)], chosen


def _server(client: Client, listed: dict[str, Any]) -> Capabilities:
    """Which server it is, and what follows from that."""
    owner = listed.get("owned_by")
    if owner == "llamacpp" or (isinstance(client.get("/props"), dict) and owner is None):
        props = client.get("/props") or {}
        settings = props.get("default_generation_settings") or {}
        return Capabilities(
            "llama.cpp",
            "",
            takes_ids=not client.only_chat and _tokenizes(client, {"content": _PROMPT}),
            applies_template=not client.only_chat,
            continues_answers=True,
            at_once=int(props.get("total_slots") or 1),
            positions=settings.get("n_ctx"),
        )
    if owner == "vllm":
        return Capabilities(
            "vLLM",
            "",
            takes_ids=not client.only_chat and _tokenizes(client, {"prompt": _PROMPT}),
            applies_template=not client.only_chat,
            continues_answers=True,
            at_once=8,
            positions=listed.get("max_model_len"),
        )
    is_ollama = isinstance(client.get("/api/version"), dict)
    return Capabilities("Ollama" if is_ollama else "OpenAI-compatible", "")


def _tokenizes(client: Client, body: dict[str, Any]) -> bool:
    """Whether it tokenises a text: a gateway may hide that address."""
    try:
        return bool(client.post("/tokenize", {"model": client.model, **body})["tokens"])
    except (Refused, KeyError, TypeError):
        return False


def _generating(client: Client, able: Capabilities) -> Capabilities:
    """What it can do, with what its first answers show."""
    refusal: Refused | None = None
    found: Reply | None = None
    if not client.only_chat:
        try:
            found = _ask(client, False, {"prompt": _PROMPT}, able)
            able = replace(able, completions=True)
        except Refused as error:
            refusal = error
    chat: Reply | None = None
    if not able.takes_ids:
        try:
            chat = _ask(client, True, {"messages": _MESSAGES}, able)
            able = replace(able, chat=True)
        except Refused as error:
            refusal = error
    else:
        able = replace(able, chat=True)
    if found is None and chat is None:
        raise RationalesError(
            f"{client.url} answers neither completions nor chats of the model "
            f"{client.model or 'that it has'!r}: {refusal}"
        )
    shown = [len(r.positions[0].best) for r in (found, chat) if r is not None and r.positions]
    if shown and found is not None and not found.positions:
        found, able = None, replace(able, completions=False)  # the chats tell more
    elif shown and chat is not None and not chat.positions:
        chat, able = None, replace(able, chat=False)
    able = replace(able, alternatives=min(shown, default=0))
    if able.server == "vLLM":
        return replace(able, scores_prompt=able.alternatives > 0)
    reply = found or chat
    if able.server == "llama.cpp" and reply is not None and reply.positions:
        # The last of the alternatives, forced: is its log-probability still what it was?
        last = reply.positions[0].best[-1]
        body = {"prompt": _PROMPT} if reply is found else {"messages": _MESSAGES}
        bias = {"logit_bias": [[last.id, _FORCING]]}
        [said] = _ask(client, reply is chat, body | bias, able).positions[:1]
        forced = said.said.id == last.id and abs(said.said.logprob - last.logprob) < 0.5
        able = replace(able, forces=forced and said.best[:1] != (said.said,))
    return able


def generation(is_chat: bool, tokens: int, alternatives: int) -> dict[str, Any]:
    """The part of a request that all have in common: the most likely tokens, with alternatives."""
    body: dict[str, Any] = {"max_tokens": tokens, "temperature": 0}
    if alternatives and is_chat:
        body |= {"logprobs": True, "top_logprobs": alternatives}
    elif alternatives:
        body |= {"logprobs": alternatives}
    return body


def _ask(client: Client, is_chat: bool, body: dict[str, Any], able: Capabilities) -> Reply:
    """The reply to a request for one token; with fewer alternatives, or none, if those are refused.

    OpenAI's completions tell five alternatives at most.
    """
    path = f"{client.version}/chat/completions" if is_chat else f"{client.version}/completions"
    taken = digest_of(client.url, client.model, path, "alternatives")
    known = client.answers.get(taken)
    for alternatives in (ALTERNATIVES, 5, 0) if known is None else (known,):
        request = body | generation(is_chat, 1, alternatives)
        try:
            [reply] = client.ask_all([(path, request, 0)], read_reply)
            assert isinstance(reply, Reply)
            client.answers.put(taken, alternatives)
            return reply
        except Refused as error:
            if not alternatives or error.status == 404:
                raise
    raise AssertionError


def _echoes(client: Client, able: Capabilities) -> bool:
    if not able.completions:
        return False
    body = {"prompt": _PROMPT, "echo": True} | generation(False, 1, 1)
    try:
        [reply] = client.ask_all([(f"{client.version}/completions", body, 0)], read_reply)
    except RationalesError:
        return False
    return bool(reply.text.startswith(_PROMPT) and len(reply.positions) > 1)


def _same_twice(client: Client, able: Capabilities) -> bool:
    """Whether it says the same twice, of eight tokens; answers that are stored do not count."""
    is_chat = not able.completions
    path = f"{client.version}/chat/completions" if is_chat else f"{client.version}/completions"
    body: dict[str, Any] = {"messages": _MESSAGES} if is_chat else {"prompt": _PROMPT}
    body |= generation(is_chat, 8, 0)
    first, second = (client.ask_afresh(path, body, read_reply) for _ in range(2))
    return bool(first.text == second.text)
