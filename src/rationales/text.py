"""Text → tokens, and the tokens that are to be explained.

The characters of the tokens, joined, are the text. A character that is split over several tokens
(an emoji in byte-level BPE) belongs to the first of them; the others stand for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rationales.context import Context, Token, causal_context, seq2seq_context
from rationales.errors import OptionError, RationalesError
from rationales.options import Options

Tokenizer = Any
"""A tokenizer from transformers; typed loosely, because its two backends share no narrow type."""

_SENTINEL = "\N{SNOWMAN}rationales\N{SNOWMAN}"


@dataclass(frozen=True)
class Passage:
    """Tokens with the ones that are pinned, and where a continuation or translation begins.

    In a translation, the first tokens are ``source`` source tokens.
    """

    tokens: tuple[Token, ...]
    start: int
    source: int = 0

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

    def context(self, target: int) -> Context:
        """The context of the token at index ``target``."""
        if self.source:
            return seq2seq_context(self.ids, target, self.pinned, self.source)
        return causal_context(self.ids, target, self.pinned)


def encode(tokenizer: Tokenizer, text: str, options: Options) -> Passage:
    """The passage of a text, wrapped and continued as the options say."""
    if not text.strip():
        raise RationalesError("the text is empty: give at least one word")
    check_unicode(text)
    check_unicode(options.continuation or "")
    prompt = _chat(tokenizer, text) if options.chat else text
    if options.chat:
        ids, pinned = _encode_chat(tokenizer, text, prompt)
    else:
        # Special tokens after the text (an end of sequence) are left out: the text goes on.
        before = prefix_ids(tokenizer, text)
        ids = before + token_ids(tokenizer, text, specials=False)
        pinned = frozenset(range(len(before)) if options.specials == "pinned" else ())
    start = len(ids)
    if not ids:
        raise RationalesError("the tokenizer makes no token of this text")
    if options.continuation is not None:
        ids = ids + continuation_ids(tokenizer, prompt, options.continuation)
        if len(ids) == start:
            raise RationalesError("the tokenizer makes no token of this continuation")
    return Passage(make_tokens(tokenizer, ids, pinned), start)


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


def _encode_chat(
    tokenizer: Tokenizer, text: str, rendered: str
) -> tuple[list[int], frozenset[int]]:
    """Ids of the text rendered in the chat template, everything but the text pinned."""
    prefix, _, suffix = _chat(tokenizer, _SENTINEL).partition(_SENTINEL)
    content = rendered[len(prefix) : len(rendered) - len(suffix)]
    ids = token_ids(tokenizer, rendered, specials=False)
    texts = token_texts(tokenizer, ids)
    end = len("".join(texts)) - len(suffix)
    start = end - len(content)
    if "".join(texts)[start:end] != content or content.strip() != text.strip():
        raise OptionError(
            "this model's chat template or tokenizer rewrites the text, so its own tokens cannot "
            "be told from the text's: explain it without {chat}"
        )
    pinned, position, outside = set(), 0, start > 0
    for index, piece in enumerate(texts):
        if piece:  # a later byte of a split character goes with the first
            outside = position >= end or position + len(piece) <= start
        if outside:
            pinned.add(index)
        position += len(piece)
    return ids, frozenset(pinned)


def _chat(tokenizer: Tokenizer, text: str) -> str:
    if not getattr(tokenizer, "chat_template", None):
        raise OptionError("this model has no chat template: explain the text without {chat}")
    messages = [{"role": "user", "content": text}]
    rendered: str = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True
    )
    return rendered


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
