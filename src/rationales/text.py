"""Text → tokens, and the tokens that are to be explained.

The characters of the tokens, joined, are the text. A character that is split over several tokens
(an emoji in byte-level BPE) belongs to the first of them; the others stand for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from rationales.chat import render
from rationales.context import Context, Part, Token, causal_context, seq2seq_context
from rationales.errors import OptionError, RationalesError
from rationales.options import Options
from rationales.prompt import Given, Prompt

Tokenizer = Any
"""A tokenizer from transformers; typed loosely, because its two backends share no narrow type."""


@dataclass(frozen=True)
class Passage:
    """Tokens with the ones that are pinned, and where a continuation or translation begins.

    In a translation, the first tokens are ``source`` source tokens.
    """

    tokens: tuple[Token, ...]
    start: int
    source: int = 0
    parts: tuple[Part, ...] = ()
    """The messages and documents of a prompt, in order; none of a text."""
    added: tuple[tuple[int, int], ...] = ()
    """How many more characters the tokens that are not pinned have than somebody wrote: after how
    many of these, how many. A token may have characters of the template, a normalizer may change
    how many there are."""

    @classmethod
    def of(cls, tokens: Sequence[Token]) -> Passage:
        """The passage of tokens that another one had; nothing is said to continue it."""
        for place, token in enumerate(tokens):
            if token.index != place:
                raise RationalesError(f"token {place} has the index {token.index}: give all tokens")
        source = sum(token.side == "source" for token in tokens)
        if any(token.side != "source" for token in tokens[:source]):
            raise RationalesError("the source tokens of a translation come first")
        return cls(tuple(tokens), len(tokens), source)

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(token.id for token in self.tokens)

    @property
    def pinned(self) -> frozenset[int]:
        return frozenset(token.index for token in self.tokens if token.pinned)

    def place(self, character: int) -> int:
        """Where a character of what somebody wrote is among all characters that are not pinned."""
        return character + sum(n for before, n in self.added if before <= character > 0)

    def context(self, target: int) -> Context:
        """The context of the token at index ``target``."""
        if self.source:
            return seq2seq_context(self.ids, target, self.pinned, self.source)
        return causal_context(self.ids, target, self.pinned)


def encode(tokenizer: Tokenizer, what: Given, options: Options) -> Passage:
    """The passage of a text, of a conversation or of documents, continued as the options say."""
    if isinstance(what, str) and not what.strip():
        raise RationalesError("the text is empty: give at least one word")
    prompt = render(tokenizer, what, options.chat)
    for said in (prompt.text, *(stretch.name for stretch in prompt.stretches)):
        check_unicode(said)
    if prompt.answer is not None and options.continuation is not None:
        raise OptionError("the conversation ends with an answer: leave out {continuation}")
    if prompt.answer is not None and options.generate is not None:
        raise OptionError("the conversation ends with an answer: leave out {generate}")
    if prompt.is_rendered and options.specials == "candidate":
        raise OptionError(
            "leave out {specials}: the special tokens of a chat template are always pinned"
        )
    answer = options.continuation if prompt.answer is None else prompt.answer
    check_unicode(answer or "")
    # Special tokens after the text (an end of sequence) are left out: the text goes on.
    before = [] if prompt.is_rendered else prefix_ids(tokenizer, prompt.text)
    ids = before + token_ids(tokenizer, prompt.text, specials=False)
    if not ids:
        raise RationalesError("the tokenizer makes no token of this text")
    pinned = frozenset(range(len(before)) if options.specials == "pinned" else ())
    parts: tuple[Part, ...] = ()
    added: tuple[tuple[int, int], ...] = ()
    if prompt.stretches:
        texts = token_texts(tokenizer, ids)
        reach = _reach(tokenizer, ids, texts, len(before), prompt.text)
        if reach is None:
            raise OptionError(
                "this model's chat template or tokenizer rewrites the text, so its own tokens "
                "cannot be told from the text's: "
                + ("explain it without {chat}" if options.chat else "give the prompt as a text")
            )
        parts, owners = _locate(reach, prompt)
        added = _added(reach, texts, owners, prompt)
        searched = {n for n, stretch in enumerate(prompt.stretches) if not stretch.pinned}
        outside = {index for index, owner in enumerate(owners) if owner not in searched}
        pinned |= outside - {*range(len(before))}
    elif prompt.is_rendered:
        raise RationalesError("the conversation says nothing: give a message with a text")
    start = len(ids)
    if answer is not None:
        ids = ids + continuation_ids(tokenizer, prompt.text, answer)
        if len(ids) == start:
            raise RationalesError("the tokenizer makes no token of this continuation")
    return Passage(make_tokens(tokenizer, ids, pinned), start, parts=parts, added=added)


def _reach(
    tokenizer: Tokenizer, ids: Sequence[int], texts: Sequence[str], specials: int, text: str
) -> list[tuple[int, int]] | None:
    """From where to where in the text each token reaches; None if that cannot be told.

    ``texts`` are those of the tokens. The first ones, ``specials``, were put before the text by the
    tokenizer.
    """
    if "".join(texts).endswith(text):
        ends = [*accumulate(map(len, texts), initial=len(text) - sum(map(len, texts)))]
        return [*pairwise(ends)]
    # Decoded, it is another text: a normalizer has changed it, or a special token takes the spaces
    # beside it.
    if not getattr(tokenizer, "is_fast", False):
        return None
    found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    if list(found["input_ids"]) != list(ids[specials:]):
        return None
    reach, position = [(0, 0)] * specials, 0
    special = {*tokenizer.get_added_vocab().values()}
    for id, (start, end) in zip(found["input_ids"], found["offset_mapping"], strict=True):
        if id in special:  # the spaces that it takes are not its own
            end = start + len(text[start:end].rstrip())
        if not text[position:start].strip():  # spaces that no token has are the next one's
            start = position
        reach.append((start, max(position, end)))
        position = max(position, end)
    return reach


def _locate(
    reach: Sequence[tuple[int, int]], prompt: Prompt
) -> tuple[tuple[Part, ...], list[int | None]]:
    """The tokens of each stretch of a prompt, and which stretch each token is of, if it is of one.

    A token that a stretch shares with what the template has around it, or with the next stretch,
    belongs to the stretch.
    """
    owner: int | None = None
    owners: list[int | None] = []
    for start, end in reach:
        if start < end:  # a later byte of a split character goes with the first
            overlaps = (
                n for n, s in enumerate(prompt.stretches) if s.start < end and start < s.end
            )
            owner = next(overlaps, None)
        owners.append(owner)
    parts = tuple(
        Part(stretch.kind, stretch.name, mine[0], mine[-1] + 1)
        for n, stretch in enumerate(prompt.stretches)
        if (mine := [index for index, owner in enumerate(owners) if owner == n])
    )
    return parts, owners


def _added(
    reach: Sequence[tuple[int, int]],
    texts: Sequence[str],
    owners: Sequence[int | None],
    prompt: Prompt,
) -> tuple[tuple[int, int], ...]:
    """How many more characters tokens have than was written in the prompt (``Passage.added``)."""
    lengths = [0 if s.pinned else s.end - s.start for s in prompt.stretches]
    written_before = [*accumulate(lengths, initial=0)]
    found: list[tuple[int, int]] = []
    counted = shift = 0  # characters of the tokens so far, and how many more they are
    for (start, end), text, owner in zip(reach, texts, owners, strict=True):
        if owner is None or (stretch := prompt.stretches[owner]).pinned:
            continue
        first, last = max(start, stretch.start), min(end, stretch.end)
        around = max(0, min(first - start, len(text) - (last - first)))
        for place, there in ((first, counted + around), (last, counted + len(text))):
            written = written_before[owner] + place - stretch.start
            if more := there - written - shift:
                found.append((written, more))
                shift += more
        counted += len(text)
    return tuple(found)


def make_tokens(
    tokenizer: Tokenizer, ids: Sequence[int], pinned: frozenset[int]
) -> tuple[Token, ...]:
    """The tokens of these ids with their characters."""
    texts = token_texts(tokenizer, ids)
    return tuple(
        Token(index, int(id), text, index in pinned)
        for index, (id, text) in enumerate(zip(ids, texts, strict=True))
    )


def token_texts(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """The characters of each token; joined, they are the decoded text."""
    texts: list[str] = []
    # Decoded with the token before it, because a first token may lose its leading space.
    before, known, pending = 0, 0, 0
    for end in range(1, len(ids) + 1):
        texts.append("")
        already = _decode(tokenizer, ids[before:known])
        now = _decode(tokenizer, ids[before:end])
        if now.endswith("\N{REPLACEMENT CHARACTER}") and end < len(ids):
            continue  # an unfinished character: wait for its last byte
        texts[pending] = now[len(already) :]
        before, known, pending = known, end, end
    return texts


def token_text(tokenizer: Tokenizer, id: int) -> str:
    """The characters of one token on its own, with its leading space."""
    text = _decode(tokenizer, [id])
    piece = tokenizer.convert_ids_to_tokens(id)
    lost_space = isinstance(piece, str) and piece.startswith("▁") and not text.startswith(" ")
    return " " + text if lost_space else text


def continuation_ids(tokenizer: Tokenizer, prompt: str, continuation: str) -> list[int]:
    """The ids of the continuation, cut where the prompt ends.

    The two are tokenised together where that leaves the prompt's tokens as they are: some
    tokenizers put a space of their own before a text that stands alone. Where the two would merge
    into one token, a line break, which merges with next to nothing, stands in for the prompt.
    """
    for before in (prompt, "\n"):
        together = token_ids(tokenizer, before + continuation, specials=False)
        alone = token_ids(tokenizer, before, specials=False)
        if together[: len(alone)] == alone and len(together) > len(alone):
            return together[len(alone) :]
    return token_ids(tokenizer, continuation, specials=False)


def prefix_ids(tokenizer: Tokenizer, text: str = "a") -> list[int]:
    """The special tokens that the tokenizer puts before a text (a beginning of sequence)."""
    plain = token_ids(tokenizer, text, specials=False)
    whole = token_ids(tokenizer, text, specials=True)
    for before in range(len(whole) - len(plain) + 1):
        if whole[before : before + len(plain)] == plain:
            return whole[:before]
    return []


def check_unicode(text: str) -> None:
    """Refuse what is no text: bytes of a command line that are not UTF-8 arrive as surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RationalesError(
            f"the text is not valid Unicode at character {error.start}: give it in UTF-8"
        ) from error


def token_ids(tokenizer: Tokenizer, text: str, specials: bool) -> list[int]:
    return list(tokenizer(text, add_special_tokens=specials, verbose=False)["input_ids"])


def _decode(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    text: str = tokenizer.decode(
        list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    return text
