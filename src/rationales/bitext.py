"""A source text and its translation → the ids that an encoder–decoder is given.

Special tokens that a tokenizer adds to a source (its end, the code of its language), the prefix
that tells a model what to do, and what a decoder starts with (its start token, the code of the
target's language) are there in every subset, and belong to no rationale.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any

from rationales.context import Token
from rationales.errors import OptionError, RationalesError
from rationales.options import Options
from rationales.scoring.guard import LOCK
from rationales.text import Passage, Tokenizer, check_unicode, token_ids, token_texts


def encode_source(
    tokenizer: Tokenizer, text: str, options: Options
) -> tuple[list[int], frozenset[int]]:
    """The ids of a source with its special tokens and prefix, and which of them are pinned."""
    prefix = options.prefix or ""
    if not text.strip():
        raise RationalesError("the source is empty: give at least one word")
    check_unicode(text)
    check_unicode(prefix)
    if options.src_lang is not None:
        language_id(tokenizer, options.src_lang)  # an unknown one would be read as something else
    with _set(tokenizer, "src_lang", options.src_lang):
        plain = token_ids(tokenizer, prefix + text, specials=False)
        whole = token_ids(tokenizer, prefix + text, specials=True)
        before = token_ids(tokenizer, prefix.rstrip(), specials=False)
    starts = [n for n in range(len(whole)) if whole[n : n + len(plain)] == plain]
    if not plain or not starts:
        raise RationalesError("the tokenizer makes no token of this source")
    start, end = starts[0], starts[0] + len(plain)
    pinned = set[int]()
    if options.specials == "pinned":
        pinned = {*range(start), *range(end, len(whole))}
    if prefix.strip():  # its tokens, as far as the text after it leaves them as they are
        same = takewhile(lambda pair: pair[0] == pair[1], zip(before, plain, strict=False))
        pinned |= {start + place for place, _ in enumerate(same)}
    return whole, frozenset(pinned)


def translation_ids(tokenizer: Tokenizer, text: str, options: Options) -> list[int]:
    """The ids of a given translation, without special tokens."""
    check_unicode(text)
    language = None
    if _knows_languages(tokenizer):  # some fail without one, which matters to special tokens only
        own = getattr(tokenizer, "tgt_lang", None)
        language = options.tgt_lang or own or tokenizer.src_lang
    with _set(tokenizer, "tgt_lang", language):
        given = tokenizer(text_target=text, add_special_tokens=False, verbose=False)
    ids = list(given["input_ids"])
    if not ids:
        raise RationalesError("the tokenizer makes no token of this translation")
    return ids


def decoder_start(model: Any, tokenizer: Tokenizer, tgt_lang: str | None) -> list[int]:
    """What the decoder is given before the first token of a translation."""
    code = None if tgt_lang is None else language_id(tokenizer, tgt_lang)
    start = _setting(model, "decoder_start_token_id")
    if type(tokenizer).__name__.startswith("MBartTokenizer"):
        # The first mBART starts with the language itself, and so do models made from it.
        start, code = (start if code is None else code), None
    elif code is None:
        code = _setting(model, "forced_bos_token_id")
        if code is None and _knows_languages(tokenizer):
            raise OptionError("this model translates into several languages: give {tgt_lang}")
    if start is None:
        raise OptionError(
            "the model's configuration does not say what its decoder starts with: set "
            "decoder_start_token_id in it, or give {tgt_lang}"
        )
    return [start] if code is None else [start, code]


def language_id(tokenizer: Tokenizer, code: str) -> int:
    """The id of the token that stands for a language."""
    if not _knows_languages(tokenizer):
        raise OptionError(
            "this model's tokenizer has no languages to choose from: leave out {value!r}, or give "
            "what the model expects as {prefix}",
            value=code,
        )
    known = getattr(tokenizer, "lang_code_to_id", None)
    if isinstance(known, Mapping) and known:
        found = known.get(code)
    else:
        found = tokenizer.get_added_vocab().get(code)
        if found is None and (id := tokenizer.convert_tokens_to_ids(code)) is not None:
            found = id if id in tokenizer.all_special_ids and id != tokenizer.unk_token_id else None
    if found is None:
        raise RationalesError(
            f"the model does not know the language {code!r}: its codes are like "
            f"{getattr(tokenizer, 'src_lang', None)!r}"
        )
    return int(found)


def make_pair(
    tokenizer: Tokenizer,
    source: Sequence[int],
    pinned: frozenset[int],
    start: Sequence[int],
    translation: Sequence[int],
) -> Passage:
    """The passage of a source and a translation: source tokens, decoder start, target tokens."""
    # Each part on its own: a translation begins like any text, without a space.
    texts = [text for ids in (source, start, translation) for text in token_texts(tokenizer, ids)]
    begins = len(source) + len(start)
    always = pinned | {*range(len(source), begins)}
    tokens = tuple(
        Token(index, int(id), text, index in always, "source" if index < len(source) else "target")
        for index, (id, text) in enumerate(zip((*source, *start, *translation), texts, strict=True))
    )
    return Passage(tokens, begins, len(source))


@contextmanager
def _set(tokenizer: Tokenizer, name: str, language: str | None) -> Iterator[None]:
    """The tokenizer to this thread alone, with this language; the former one is put back.

    Also without a language: while one thread makes tokens of a translation, the tokenizer would
    make them of another thread's source in the same way.
    """
    with LOCK:
        before = getattr(tokenizer, name, None)
        try:
            if language is not None:
                setattr(tokenizer, name, language)
            yield
        finally:
            if language is not None:
                setattr(tokenizer, name, before)


def _knows_languages(tokenizer: Tokenizer) -> bool:
    return hasattr(type(tokenizer), "src_lang") or hasattr(tokenizer, "lang_code_to_id")


def _setting(model: Any, name: str) -> int | None:
    """What the model is to generate with, as far as its configuration says."""
    for config in (getattr(model, "generation_config", None), model.config):
        value = getattr(config, name, None)
        if isinstance(value, int):
            return value
    return None
