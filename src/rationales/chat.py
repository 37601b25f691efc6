"""Chat templates: a conversation as the model reads it, and where in it each message is.

A template is rendered twice: with the messages, and with a mark in the place of each. What is
around the marks is the template's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from rationales.errors import OptionError, RationalesError, first_line
from rationales.prompt import Conversation, Documents, Given, Prompt, Stretch

Tokenizer = Any

_MARK = "\N{SNOWMAN}rationales %d\N{SNOWMAN}"

_END_OF_THOUGHT = "</think>"
_THOUGHTS = ("reasoning_content", "thinking")
"""Where a message has what the assistant has thought, if that is not in its content."""


def render(tokenizer: Tokenizer, what: Given, chat: bool = False) -> Prompt:
    """The prompt of what a user gives; with ``chat``, as the user's message of a conversation."""
    if isinstance(what, Conversation):
        if not getattr(tokenizer, "chat_template", None):
            raise RationalesError("this model has no chat template: give a text, not messages")
        return _render_chat(tokenizer, what.messages)
    prompt = what.render() if isinstance(what, Documents) else Prompt(what)
    if not chat:
        return prompt
    wrapped = _render_chat(tokenizer, [{"role": "user", "content": prompt.text}])
    if not prompt.stretches:
        return wrapped
    if len(wrapped.stretches) != 1:
        raise OptionError("this model's chat template takes the text apart: leave out {chat}")
    [message] = wrapped.stretches
    # A template may strip a message, on one side or on both.
    shift = message.start - prompt.text.index(wrapped.text[message.start : message.end])
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
    if len(messages) > 1 and messages[-1]["role"] == "assistant":
        *messages, last = messages
        answer = last.get("content") or ""
        if not answer.strip():
            hint = "add what the tool says" if last.get("tool_calls") else "leave it out"
            raise RationalesError(f"the last message, the assistant's, says nothing: {hint}")
        for name in _THOUGHTS:
            if last.get(name):
                raise RationalesError(
                    f"the last message has {name}, which would be left out: write it into the "
                    "content, as <think>…</think>"
                )
    plain = [{k: v for k, v in message.items() if k != "pinned"} for message in messages]
    text = _apply(tokenizer, plain)
    try:
        stretches = _find_pieces(tokenizer, text, plain, apart=False)
    except RationalesError:
        if not any(_END_OF_THOUGHT in (message.get("content") or "") for message in plain):
            raise
        stretches = _find_pieces(tokenizer, text, plain, apart=True)
    kept = [bool(message.get("pinned")) for message in messages]
    found = tuple(replace(stretch, pinned=kept[n]) for n, stretch in stretches)
    if answer is not None:
        text, answer = _answered(tokenizer, plain, text, answer, found[-1].end if found else 0)
    return Prompt(text, found, is_rendered=True, answer=answer)


def _answered(
    tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]], text: str, answer: str, said: int
) -> tuple[str, str]:
    """The prompt and the answer, as the template writes an answer that is given.

    A template may put a space before it, or begin it otherwise than one that is still to come: with
    no thought, where it asks for one. ``text`` is the prompt of one that is still to come; the
    messages end at its character ``said``. An answer that has a thought is left as it is.
    """
    if _END_OF_THOUGHT in answer:
        opening = "<think>" if text.rstrip().endswith("<think>") else ""
        return text, answer.lstrip().removeprefix(opening).lstrip("\n") if opening else answer
    spaces = answer[: len(answer) - len(answer.lstrip())]  # which a template may strip
    given = [*messages, {"role": "assistant", "content": spaces + _MARK % 0}]
    try:
        before, mark, _ = _apply(tokenizer, given, begins_answer=False).partition(_MARK % 0)
    except RationalesError:  # a template that wants an answer to be asked for
        return text, answer
    if not mark or before in (text, text + spaces) or before[:said] != text[:said]:
        return text, answer
    bare = before.rstrip(" ")  # a space is in a token with the word after it
    return bare, before[len(bare) :] + answer.lstrip()


@dataclass(frozen=True)
class _Piece:
    """What a message says, or what it has thought: a template may leave out the latter."""

    message: int
    name: str
    text: str
    is_thought: bool = False


def _find_pieces(
    tokenizer: Tokenizer, text: str, messages: Sequence[Mapping[str, Any]], apart: bool
) -> list[tuple[int, Stretch]]:
    """Where each message is in the rendered text, and which one it is.

    ``apart``: the template cuts thoughts out of what the assistant says, and writes them itself.
    """
    marked, pieces = _marked(messages, apart)
    skeleton = _apply(tokenizer, marked)
    places = {n: skeleton.find(_MARK % n) for n in range(len(pieces))}
    for n, piece in enumerate(pieces):
        if (places[n] < 0 and not piece.is_thought) or skeleton.count(_MARK % n) > 1:
            raise _rewritten(piece)
    shown = sorted((place, n) for n, place in places.items() if place >= 0)
    frames = _frames(skeleton, [n for _, n in shown])
    found, position = [], 0
    for (_, n), (before, after) in zip(shown, pairwise(frames), strict=True):
        start = position + len(before)
        content = _content(text, start, pieces[n].text, after)
        if text[position:start] != before or content is None:
            raise _rewritten(pieces[n])
        position = start + len(content)
        found.append((pieces[n].message, Stretch("message", pieces[n].name, start, position)))
    if shown and text[position:] != frames[-1]:
        raise RationalesError(
            "this model's chat template ends differently depending on what the messages say, so "
            "their words cannot be told from the template's: give the prompt as a text"
        )
    return found


def _marked(
    messages: Sequence[Mapping[str, Any]], apart: bool
) -> tuple[list[dict[str, Any]], list[_Piece]]:
    """The messages with a mark for each text in them, and these texts."""
    pieces: list[_Piece] = []

    def mark(piece: _Piece) -> str:
        if not piece.text.strip():
            return piece.text
        pieces.append(piece)
        return _MARK % (len(pieces) - 1)

    marked = []
    for n, message in enumerate(messages):
        role, new = message["role"], dict(message)
        for name in _THOUGHTS:
            if isinstance(message.get(name), str):
                new[name] = mark(_Piece(n, f"{role} (thinking)", message[name], True))
        content = message.get("content")
        thought, end, said = (content or "").rpartition(_END_OF_THOUGHT)
        if apart and end:
            before, begin, thought = thought.rpartition("<think>")
            thought = mark(_Piece(n, f"{role} (thinking)", thought, True))
            new["content"] = before + begin + thought + end + mark(_Piece(n, role, said))
        elif content is not None:
            new["content"] = mark(_Piece(n, role, content))
        marked.append(new)
    return marked, pieces


def _apply(
    tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]], begins_answer: bool = True
) -> str:
    """The messages as the template writes them, and how it begins the answer after them."""
    try:
        rendered: str = tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=begins_answer
        )
    except Exception as error:  # whatever a template raises: jinja2's errors, KeyError, TypeError
        raise RationalesError(
            f"this model's chat template refuses the conversation: {first_line(error)}"
        ) from error
    return rendered


def _frames(skeleton: str, marks: Sequence[int]) -> list[str]:
    """What the template writes before the first message, between each two, and after the last."""
    frames, rest = [], skeleton
    for n in marks:
        before, _, rest = rest.partition(_MARK % n)
        frames.append(before)
    return [*frames, rest]


def _rewritten(piece: _Piece) -> RationalesError:
    return RationalesError(
        f"this model's chat template leaves out, repeats or rewrites message {piece.message + 1}, "
        f"of the role {piece.name!r}, so its words cannot be told from the template's: leave out "
        "the message, or the chat template"
    )


def _content(text: str, start: int, content: str, after: str) -> str | None:
    """How a message's content stands in the text from there; None if it does not.

    Templates strip messages, and leave out what the assistant has thought.
    """
    after_thought = content.rpartition(_END_OF_THOUGHT)[2]
    for said in dict.fromkeys((content, after_thought)):
        for form in (
            said,
            said.strip(),
            said.lstrip(),
            said.rstrip(),
            said.lstrip("\n"),
            said.strip("\n"),
        ):
            if text.startswith(form + after[:8], start):
                return form
    return None
