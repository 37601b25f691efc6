"""What people ask models with: conversations, and questions about documents.

    messages, or documents and a question ─► Prompt (chat.py) ─► tokens (text.py)

A *part* is what somebody wrote: a message, a document, the question. What the chat template or the
prompt template adds is in no part: it is pinned, always kept and never counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rationales.errors import RationalesError, given

DOCUMENTS, QUESTION = "{documents}", "{question}"
TEMPLATE = f"{DOCUMENTS}\n\nQuestion: {QUESTION}\nAnswer:"
"""How documents and a question become a prompt, if nothing else is asked for."""

_BETWEEN = "\n\n"
"""What separates two documents."""


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
            if not isinstance(message.get("pinned"), bool | None):
                raise RationalesError(f'"pinned" of message {number} must be true or false')

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
                _, name = _document(document, number)
                named = "" if name == str(number) else f" ({name!r})"
                raise RationalesError(f"document {number}{named} is empty: leave it out")
            if isinstance(document, Mapping) and not isinstance(
                document.get("title"), str | int | None
            ):
                raise RationalesError(f"the title of document {number} must be a text")
        template = "" if self.template is None else self.template
        for what, value in (("question", self.question), ("template", template)):
            if not isinstance(value, str):
                raise RationalesError(f"the {what} must be a text, not {given(value)}")
        if self.template is not None:
            self._check_template(self.template)

    def _check_template(self, template: str) -> None:
        """Raise unless each placeholder is in one place, and something is there to replace it."""
        wanted = {DOCUMENTS: "documents", QUESTION: "question"}
        if not self.question:
            if QUESTION in template:
                raise RationalesError(
                    f"the template has {QUESTION}, and there is no question: give one"
                )
            del wanted[QUESTION]
        for placeholder, what in wanted.items():
            if (count := template.count(placeholder)) != 1:
                raise RationalesError(
                    f"the template has {placeholder} in {count or 'no'} place{'s' * (count > 1)}: "
                    f"write it once, where the {what} should be"
                )

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
    if search_question and not question:
        raise RationalesError("there is no question to search: give one")
    for name, value in (("messages", messages), ("documents", documents)):
        if isinstance(value, str | Mapping) or not isinstance(value, Iterable | None):
            raise RationalesError(f"give a list of {name}, not {given(value)}")
    if messages is not None:
        return Conversation(tuple(messages))
    if documents is None:
        return None
    return Documents(tuple(documents), question, template, search_question)


def _document(document: str | Mapping[str, Any], number: int) -> tuple[str, str]:
    """The text of a document, with its title, and its name."""
    if isinstance(document, str):
        return document, str(number)
    title = document.get("title")
    name = str(next(n for n in (title, document.get("id"), number) if n not in (None, "")))
    return (f"{title}\n{document['text']}" if title else document["text"]), name
