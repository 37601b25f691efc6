"""What people ask models with: conversations, and questions about documents.

    messages, or documents and a question ─► Prompt (text, parts) ─► tokens (text.py)

A *part* is what somebody wrote: a message, a document, the question. What the chat template or the
prompt template adds is in no part: it is pinned, always kept and never counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

from rationales.errors import OptionError, RationalesError, first_line, given

Tokenizer = Any

DOCUMENTS, QUESTION = "{documents}", "{question}"
TEMPLATE = f"{DOCUMENTS}\n\nQuestion: {QUESTION}\nAnswer:"
"""How documents and a question become a prompt, if nothing else is asked for."""

_BETWEEN = "\n\n"
"""What parts two documents."""

_MARK = "\N{SNOWMAN}rationales %d\N{SNOWMAN}"


@dataclass(frozen=True)
class Stretch:
    """What somebody wrote in a prompt, from one character to another."""

    kind: Literal["message", "document", "question"]
    name: str
    """The role of a message; the title, the id or the number of a document."""
    start: int
    end: int
    pinned: bool = False
    """Whether it is always kept."""


@dataclass(frozen=True)
class Prompt:
    """The text that a model is given, and which stretches of it somebody wrote."""

    text: str
    stretches: tuple[Stretch, ...] = ()
    is_rendered: bool = False
    """Whether it has the special tokens of a chat template: the tokenizer adds no others."""
    answer: str | None = None
    """What the last message, the assistant's, says."""


@dataclass(frozen=True)
class Conversation:
    """Messages such as ``{"role": "user", "content": "…"}``, the first one first.

    ``"pinned": True`` in a message keeps it always, as a system prompt may be. If the last one is
    the assistant's, it is the answer that is explained.
    """

    messages: tuple[Mapping[str, Any], ...]

    def __post_init__(self) -> None:
        if not self.messages:
            raise RationalesError("a conversation has at least one message")
        for number, message in enumerate(self.messages, start=1):
            if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
                raise RationalesError(
                    f'message {number} must be an object such as {{"role": "user", "content": '
                    f'"…"}}, not {given(message)}'
                )
            if not isinstance(message.get("content"), str | None):
                raise RationalesError(f"the content of message {number} must be a text")

    def __len__(self) -> int:
        return sum(len(message.get("content") or "") for message in self.messages)


@dataclass(frozen=True)
class Documents:
    """Texts and a question about them, in a prompt of the user's."""

    documents: tuple[str | Mapping[str, Any], ...]
    question: str = ""
    template: str | None = None
    """The prompt, with {documents} and {question} in it; a plain one if left out."""
    search_question: bool = False
    """Whether words of the question may be left out too; they are pinned otherwise."""

    def __post_init__(self) -> None:
        if not self.documents:
            raise RationalesError("give at least one document")
        for number, document in enumerate(self.documents, start=1):
            text = document.get("text") if isinstance(document, Mapping) else document
            if not isinstance(text, str):
                raise RationalesError(
                    f'document {number} must be a text or an object such as {{"text": "…", '
                    f'"title": "…"}}, not {given(document)}'
                )
            if not text.strip():
                raise RationalesError(f"document {number} is empty: leave it out")
        wanted = [DOCUMENTS] + [QUESTION] * bool(self.question)
        for placeholder in wanted if self.template is not None else ():
            if (self.template or "").count(placeholder) != 1:
                raise RationalesError(f"the template must have {placeholder} in one place")
        if self.template is not None and not self.question and QUESTION in self.template:
            raise RationalesError(f"the template has {QUESTION}, and there is no question")

    def __len__(self) -> int:
        return len(self.render().text)

    def render(self) -> Prompt:
        """The prompt without a chat template."""
        template = self.template or (TEMPLATE if self.question else DOCUMENTS)
        text, stretches = "", []
        for piece in re.split(f"({re.escape(DOCUMENTS)}|{re.escape(QUESTION)})", template):
            if piece == DOCUMENTS:
                for number, document in enumerate(self.documents, start=1):
                    text += _BETWEEN * (number > 1)
                    content, name = _document(document, number)
                    end = len(text) + len(content)
                    stretches.append(Stretch("document", name, len(text), end))
                    text += content
            elif piece == QUESTION and self.question:
                end = len(text) + len(self.question)
                pinned = not self.search_question
                stretches.append(Stretch("question", "question", len(text), end, pinned))
                text += self.question
            else:
                text += piece
        return Prompt(text, tuple(stretches))


Given = str | Conversation | Documents
"""What a user gives: a text, a conversation, or documents and a question."""


PROMPT = ("messages", "documents", "question", "template", "search_question")
"""The names by which a row or a call gives a prompt that is no plain text."""


def prompt_of(
    text: object,
    messages: Iterable[Mapping[str, Any]] | None,
    documents: Iterable[str | Mapping[str, Any]] | None,
    question: str = "",
    template: str | None = None,
    search_question: bool = False,
) -> Conversation | Documents | None:
    """The conversation or the documents that are given; None if it is a text, or nothing."""
    several = [each for each in (text, messages, documents) if each is not None]
    if len(several) > 1:
        raise RationalesError("give one of a text, messages and documents, not several")
    if documents is None and (question or template is not None or search_question):
        raise RationalesError("a question and a template are about documents: give them too")
    if messages is not None:
        return Conversation(tuple(messages))
    if documents is None:
        return None
    if isinstance(documents, str | Mapping):
        raise RationalesError("give a list of documents")
    return Documents(tuple(documents), question, template, search_question)


def render(tokenizer: Tokenizer, what: Given, chat: bool = False) -> Prompt:
    """The prompt of what a user gives; with ``chat``, as the user's message of a conversation."""
    if isinstance(what, Conversation):
        return _render_chat(tokenizer, what.messages)
    prompt = what.render() if isinstance(what, Documents) else Prompt(what)
    if not chat:
        return prompt
    wrapped = _render_chat(tokenizer, [{"role": "user", "content": prompt.text}])
    if not prompt.stretches:
        return wrapped
    [message] = wrapped.stretches
    # A template may strip a message: what is left of it begins and ends with a letter.
    lost = len(prompt.text) - len(prompt.text.lstrip())
    shift = message.start - (lost if message.end - message.start < len(prompt.text) else 0)
    moved = (
        replace(s, start=max(message.start, s.start + shift), end=min(message.end, s.end + shift))
        for s in prompt.stretches
    )
    return replace(wrapped, stretches=tuple(moved))


def _render_chat(tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]]) -> Prompt:
    """The conversation as the model's template writes it, with where each message is."""
    if not getattr(tokenizer, "chat_template", None):
        raise OptionError("this model has no chat template: explain the text without {chat}")
    answer = None
    if len(messages) > 1 and messages[-1]["role"] == "assistant" and messages[-1].get("content"):
        *messages, last = messages
        answer = last["content"]
    plain = [{k: v for k, v in message.items() if k != "pinned"} for message in messages]
    said = [n for n, message in enumerate(messages) if (message.get("content") or "").strip()]
    text = _apply(tokenizer, plain)
    marked = [
        {**message, "content": _MARK % n} if n in said else message
        for n, message in enumerate(plain)
    ]
    skeleton = _apply(tokenizer, marked)
    stretches, position = [], 0
    frames = _frames(skeleton, said)
    for n, (before, after) in zip(said, pairwise(frames), strict=True):
        start = position + len(before)
        content = _content(text, start, messages[n]["content"], after)
        if text[position:start] != before or content is None:
            raise _rewritten(n)
        end = start + len(content)
        pinned = bool(messages[n].get("pinned"))
        stretches.append(Stretch("message", messages[n]["role"], start, end, pinned))
        position = end
    return Prompt(text, tuple(stretches), is_rendered=True, answer=answer)


def _apply(tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]]) -> str:
    try:
        rendered: str = tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True
        )
    except Exception as error:  # whatever a template raises: jinja2's errors, KeyError, TypeError
        raise RationalesError(
            f"this model's chat template refuses the conversation: {first_line(error)}"
        ) from error
    return rendered


def _frames(skeleton: str, said: Sequence[int]) -> list[str]:
    """What the template writes before the first message, between each two, and after the last."""
    frames, rest = [], skeleton
    for n in said:
        before, mark, rest = rest.partition(_MARK % n)
        if not mark:
            raise _rewritten(n)
        frames.append(before)
    return [*frames, rest]


def _rewritten(place: int) -> RationalesError:
    return RationalesError(
        f"this model's chat template rewrites the text of message {place + 1}, so its own words "
        "cannot be told from the message's: leave out the message, or the chat template"
    )


def _content(text: str, start: int, content: str, after: str) -> str | None:
    """How a message's content stands in the text from there; None if it does not.

    Templates strip messages, and leave out what the assistant has thought.
    """
    thought = content.rpartition("</think>")[2]
    for said in dict.fromkeys((content, thought)):
        for form in (said, said.strip(), said.lstrip(), said.rstrip(), said.lstrip("\n")):
            if text.startswith(form + after[:8], start):
                return form
    return None


def _document(document: str | Mapping[str, Any], number: int) -> tuple[str, str]:
    """The text of a document, with its title, and its name."""
    if isinstance(document, str):
        return document, str(number)
    title = document.get("title")
    name = str(title or document.get("id") or number)
    return (f"{title}\n{document['text']}" if title else document["text"]), name
