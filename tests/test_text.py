"""Text to tokens and targets, on tokenizers of the two common kinds.

Byte-level BPE splits characters over tokens; a SentencePiece-like tokenizer writes spaces as "▁",
puts one before the text, and begins (and sometimes ends) it with a special token.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from itertools import accumulate, pairwise
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from rationales import Options, RationalesError
from rationales.prompt import Conversation
from rationales.targets import find_targets
from rationales.text import Passage, encode, token_text, token_texts
from rationales.units import group

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TRIMMING = CHATML.replace("['content']", "['content'] | trim")
BEFORE, AFTER = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"


@cache
def byte_level() -> PreTrainedTokenizerFast:
    """A trained byte-level BPE that knows a few English words, and other scripts by bytes only."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    text = "The cat sat on the mat. Concatenate user assistant"
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        min_frequency=1,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|im_start|>", "<|im_end|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator([text, " cat sat on mat user"] * 5, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def with_template(template: str | None) -> PreTrainedTokenizerFast:
    """The byte-level tokenizer with a chat template of its own."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_level()._tokenizer)
    tokenizer.chat_template = template
    return tokenizer


Style = Literal["metaspace", "byte-fallback"]


@cache
def sentence_piece(style: Style, bos: bool = True, eos: bool = False) -> PreTrainedTokenizerFast:
    """A tokenizer with "▁" for spaces.

    ``byte-fallback`` spells unknown characters in bytes and strips the first space when decoding,
    as Llama's tokenizer does; ``metaspace`` leaves both to the Metaspace decoder.
    """
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += sorted(set("\n▁ThecatsonmPrilw.#日本語"))
    spelled = ["▁ T", "▁T h", "▁Th e", "▁ c", "▁c a", "▁ca t", "▁ s", "▁s a", "▁sa t"]
    spelled += ["▁ P", "▁P a", "▁Pa r", "▁Par i", "▁Pari s", "i s"]
    merges = [("\n", "\n"), *((first, second) for first, second in map(str.split, spelled))]
    pieces += [first + second for first, second in merges]
    tokenizer = Tokenizer(
        models.BPE(
            {piece: id for id, piece in enumerate(pieces)},
            merges,
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    if style == "metaspace":
        # The bytes have to be put together before Metaspace sees the pieces one by one.
        tokenizer.decoder = decoders.Sequence(
            [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first", split=False)]
        )
    else:
        strip = decoders.Strip(" ", 1, 0)
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), strip]
        )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    if bos or eos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=("<s> " if bos else "") + "$A" + (" </s>" if eos else ""),
            special_tokens=[("<s>", 1), ("</s>", 2)],
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


both_styles = pytest.mark.parametrize("style", ["metaspace", "byte-fallback"])


def plain(text: str) -> Passage:
    return encode(byte_level(), text, Options())


def texts_of(passage: Passage, indices: list[int] | range | None = None) -> list[str]:
    chosen = range(len(passage.tokens)) if indices is None else indices
    return [passage.tokens[index].text for index in chosen]


def own_text(passage: Passage) -> str:
    return "".join(token.text for token in passage.tokens if not token.pinned)


# The characters of the tokens -----------------------------------------------------------------


@given(st.text())
@example("a\N{REPLACEMENT CHARACTER} b\N{REPLACEMENT CHARACTER}")
@example("e\N{COMBINING ACUTE ACCENT}👩‍👩‍👧 \r\n\t  x  ")
@settings(deadline=None, max_examples=300)
def test_joined_characters_are_the_text(text: str) -> None:
    tokenizer = byte_level()
    ids = tokenizer(text).input_ids
    texts = token_texts(tokenizer, ids)
    assert len(texts) == len(ids)
    assert "".join(texts) == text


@given(st.lists(st.integers(0, 329), max_size=12))
@settings(deadline=None, max_examples=300)
def test_joined_characters_are_what_any_ids_decode_to(ids: list[int]) -> None:
    """A model may generate bytes that are no character at all."""
    tokenizer = byte_level()
    assert "".join(token_texts(tokenizer, ids)) == tokenizer.decode(ids)


@both_styles
@given(text=st.text(alphabet="The cat sPari. 日本語é😀\n", max_size=12))
@settings(deadline=None, max_examples=150)
def test_joined_characters_are_the_text_with_spaces_as_pieces(style: Style, text: str) -> None:
    tokenizer = sentence_piece(style, bos=False)
    ids = tokenizer(text).input_ids
    joined = "".join(token_texts(tokenizer, ids))
    assert joined == tokenizer.decode(ids)
    # A space at the very beginning is lost to the tokenizer itself: it has the piece already.
    assert joined == text.removeprefix(" ")


def test_a_split_character_belongs_to_its_first_token() -> None:
    passage = plain("on 😀 日")
    assert texts_of(passage) == ["on", " ", "😀", "", "", "", " ", "日", "", ""]
    assert [token.index for token in passage.tokens] == list(range(10))
    assert passage.ids == tuple(byte_level()("on 😀 日").input_ids)


@both_styles
def test_a_character_spelled_in_bytes_belongs_to_its_first_token(style: Style) -> None:
    passage = encode(sentence_piece(style, bos=False), "cat 😀 日", Options())
    assert texts_of(passage) == ["cat", " ", "😀", "", "", "", " ", "日"]


@both_styles
def test_the_space_before_a_word_belongs_to_the_word(style: Style) -> None:
    passage = encode(sentence_piece(style, bos=False), "The cat sat", Options())
    assert texts_of(passage) == ["The", " cat", " sat"]
    passage = encode(sentence_piece(style), "The cat sat", Options())
    assert texts_of(passage)[0] == "<s>"
    assert own_text(passage).removeprefix(" ") == "The cat sat"


def test_one_token_on_its_own_keeps_its_space() -> None:
    tokenizer = sentence_piece("byte-fallback")
    assert tokenizer.decode(tokenizer.convert_tokens_to_ids("▁cat")) == "cat"
    assert token_text(tokenizer, tokenizer.convert_tokens_to_ids("▁cat")) == " cat"
    assert token_text(tokenizer, tokenizer.convert_tokens_to_ids("is")) == "is"
    assert token_text(tokenizer, tokenizer.bos_token_id) == "<s>"
    assert token_text(byte_level(), byte_level().convert_tokens_to_ids("Ġcat")) == " cat"


# Special tokens -------------------------------------------------------------------------------


@both_styles
@pytest.mark.parametrize("eos", [False, True])
def test_a_beginning_of_sequence_is_pinned_and_an_end_dropped(style: Style, eos: bool) -> None:
    tokenizer = sentence_piece(style, eos=eos)
    assert (tokenizer("The cat").input_ids[-1] == tokenizer.eos_token_id) == eos
    passage = encode(tokenizer, "The cat", Options())
    assert tokenizer.convert_ids_to_tokens(list(passage.ids)) == ["<s>", "▁The", "▁cat"]
    assert passage.pinned == {0}
    assert passage.start == 3


def test_a_beginning_of_sequence_can_be_a_candidate() -> None:
    passage = encode(sentence_piece("byte-fallback"), "The cat", Options(specials="candidate"))
    assert passage.tokens[0].text == "<s>"
    assert passage.pinned == frozenset()


def test_an_end_of_sequence_alone_pins_nothing() -> None:
    tokenizer = sentence_piece("byte-fallback", bos=False, eos=True)
    passage = encode(tokenizer, "The cat", Options())
    assert texts_of(passage) == ["The", " cat"]
    assert passage.pinned == frozenset()


def test_special_tokens_in_the_users_text_stay_the_users() -> None:
    passage = encode(sentence_piece("byte-fallback", eos=True), "<s>cat</s>", Options())
    assert [(token.text, token.pinned) for token in passage.tokens][:2] == [
        ("<s>", True),
        ("<s>", False),
    ]
    assert passage.tokens[-1].text == "</s>"


@pytest.mark.parametrize("text", ["", " ", "\n\t "])
def test_an_empty_text_is_refused(text: str) -> None:
    with pytest.raises(RationalesError, match="the text is empty"):
        plain(text)


def test_a_text_without_tokens_is_refused() -> None:
    # A tokenizer that has no token for what it does not know leaves it out.
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE({"a": 0}, merges=[])))
    assert encode(tokenizer, "abba", Options()).ids == (0, 0)
    with pytest.raises(RationalesError, match="no token of this text"):
        encode(tokenizer, "b", Options())
    with pytest.raises(RationalesError, match="no token of this continuation"):
        encode(tokenizer, "a", Options(continuation="b"))


@pytest.mark.parametrize("options", [Options(), Options(continuation="\udcff")])
def test_half_a_character_is_refused(options: Options) -> None:
    """Bytes of a command line that are not UTF-8 arrive so."""
    text = "cat" if options.continuation else "cat \udcff"
    with pytest.raises(RationalesError, match="not valid Unicode at character"):
        encode(byte_level(), text, options)


# Targets --------------------------------------------------------------------------------------


def found(text: str, target: str | int | list[int]) -> list[str]:
    """The texts of the tokens that a target stands for."""
    passage = plain(text)
    return texts_of(passage, find_targets(passage, target))


def places(text: str, target: str | int | list[int]) -> list[int]:
    return find_targets(plain(text), target)


def test_a_word_is_its_last_occurrence() -> None:
    assert texts_of(plain("The cat sat on the cat")) == [
        "The",
        " cat",
        " sat",
        " on",
        " the",
        " cat",
    ]
    assert places("The cat sat on the cat", "cat") == [5]
    assert places("The cat sat on the cat", " cat ") == [5]
    assert places("The cat sat on the cat", "The") == [0]  # case counts


@pytest.mark.parametrize(("target", "place"), [("cat#1", 1), ("cat#2", 5), ("the#1", 4)])
def test_a_numbered_word(target: str, place: int) -> None:
    assert places("The cat sat on the cat", target) == [place]


@pytest.mark.parametrize("number", [0, 3, 10**30])
def test_a_number_that_the_word_does_not_reach(number: int) -> None:
    with pytest.raises(
        RationalesError, match=rf"2 occurrence\(s\) of 'cat', not a number {number}"
    ):
        places("The cat sat on the cat", f"cat#{number}")


def test_whole_words_come_before_parts_of_words() -> None:
    text = "The cat on Concatenate"
    assert places(text, "cat") == [1]
    with pytest.raises(RationalesError, match="1 occurrence"):
        places(text, "cat#2")  # parts do not count where whole words are
    # Where there is no whole word, a part will do: every token that it touches.
    passage = plain("The Concatenate")
    assert "cat" in "".join(texts_of(passage, find_targets(passage, "cat")))
    assert 0 not in find_targets(passage, "cat")


def test_a_word_of_several_tokens_gives_all_of_them() -> None:
    assert found("The qxz sat", "qxz") == ["q", "x", "z"]
    assert found("The mat qx on", "mat qx") == [" mat", " ", "q", "x"]


def test_a_word_with_an_emoji() -> None:
    assert found("on 😀 sat", "😀") == ["😀", "", "", ""]
    assert places("on 😀 sat", "😀") == [2, 3, 4, 5]
    assert found("on q😀x sat", "q😀x") == ["q", "😀", "", "", "", "x"]
    assert found("on q😀x sat", "q") == ["q"]  # and not the bytes after it
    assert found("on 😀😀", "😀#1") == ["😀", "", "", ""]
    assert places("on 😀😀", "😀#1") == [2, 3, 4, 5]
    assert places("on 😀😀", "😀#2") == [6, 7, 8, 9]


def test_japanese_has_no_spaces() -> None:
    text = "日本語の本"  # three bytes, and here three tokens, a character
    assert len(plain(text).tokens) == 15
    assert places(text, "本語") == [3, 4, 5, 6, 7, 8]
    assert places(text, "本") == [12, 13, 14]
    assert places(text, "本#1") == [3, 4, 5]
    assert places(text, "日本語の本") == list(range(15))


@both_styles
def test_words_where_spaces_are_pieces(style: Style) -> None:
    passage = encode(sentence_piece(style), "The cat sat 日本 cat", Options())
    assert texts_of(passage, find_targets(passage, "cat")) == [" cat"]
    assert find_targets(passage, "cat#1") == [2]
    assert texts_of(passage, find_targets(passage, "本")) == ["本"]
    assert texts_of(passage, find_targets(passage, "The")) == [passage.tokens[1].text]


def test_a_word_with_a_hash() -> None:
    text = "C# on C, C# sat #2"
    assert found(text, "C#") == ["C", "#"]
    assert places(text, "C#") == places(text, "C##2")
    assert places(text, "C##1") == [0, 1]
    assert places(text, "C#1") == [0]  # a number after the hash counts occurrences
    assert found(text, "#2") == ["#", "2"]
    assert found("x² C#²", "C#²") == ["C", "#", "²", ""]  # a digit, but no number


@pytest.mark.parametrize("target", ["2", 2, "+2", -4, "-4"])
def test_a_number_is_an_index(target: str | int) -> None:
    assert places("The cat sat on the cat", target) == [2]


def test_a_hash_and_a_number_that_are_in_the_text_are_no_occurrence() -> None:
    assert found("The PR #1 sat on PR #2", "PR #1") == ["P", "R", " ", "#", "1"]
    assert places("The cat#1 sat", "cat#1") == [1, 2, 3]
    with pytest.raises(RationalesError, match="'mat #1' is not in the text"):
        places("The cat sat", "mat #1")


@pytest.mark.parametrize("space", [" ", "\n", "\u00a0", "  "])
def test_spaces_between_the_words_of_a_target_are_alike(space: str) -> None:
    text = f"The cat{space}sat on"
    assert "".join(found(text, "cat sat")).strip() == f"cat{space}sat"


def test_a_number_in_the_text_can_be_a_word() -> None:
    assert found("The 7 sat", "7#1") == ["7"]


@pytest.mark.parametrize("target", [6, "6", -7, "-7", "99999999999999999999"])
def test_an_index_outside_the_text(target: str | int) -> None:
    with pytest.raises(RationalesError, match=rf"no token {target}: the text has 6 tokens, 0 … 5"):
        places("The cat sat on the cat", target)


def test_an_index_outside_the_text_may_be_a_word() -> None:
    text = "The 42 sat"
    with pytest.raises(RationalesError, match=r"no token 42: .*; 42#1 names the word"):
        places(text, "42")
    assert "".join(found(text, "42#1")).strip() == "42"
    with pytest.raises(RationalesError) as error:
        places("The 942 sat", "94")  # a part of a word is none
    assert "names the word" not in str(error.value)


@pytest.mark.parametrize("target", [[5, 2], (2, -1), [2, 5, 2, -4], "2,5", "-1, 2"])
def test_several_indices(target: str | list[int]) -> None:
    assert places("The cat sat on the cat", target) == [2, 5]


@given(
    st.one_of(st.none(), st.integers(-9, 9)),
    st.one_of(st.none(), st.integers(-9, 9)),
)
def test_a_range_is_a_slice_of_python(first: int | None, end: int | None) -> None:
    text, expected = "The cat sat on the cat", list(range(6))[first:end]
    target = f"{'' if first is None else first}:{'' if end is None else end}"
    if expected and target != ":":
        assert places(text, target) == expected
    else:
        with pytest.raises(RationalesError):
            places(text, target)


def test_a_range_leaves_out_what_is_pinned() -> None:
    passage = encode(sentence_piece("byte-fallback"), "The cat sat", Options())
    assert find_targets(passage, "0:3") == [1, 2]
    assert find_targets(passage, "-3:") == [1, 2, 3]
    assert find_targets(passage, [0, 2]) == [0, 2]  # as a single index does
    with pytest.raises(RationalesError, match=r"no token can be explained in :1: there are 1 … 3"):
        find_targets(passage, ":1")


@pytest.mark.parametrize("target", [[2, 6], "2,6", "-7,2"])
def test_a_list_with_an_index_outside_the_text(target: str | list[int]) -> None:
    with pytest.raises(RationalesError, match=r"there is no token -?[67]"):
        places("The cat sat on the cat", target)


@pytest.mark.parametrize("word", ["1:3", "1,3"])
def test_indices_that_are_a_word_too_are_refused(word: str) -> None:
    text = f"The cat {word} sat"
    with pytest.raises(RationalesError, match=f"{word}#1 for the word") as error:
        places(text, word)
    assert "\n" not in str(error.value)
    assert "".join(found(text, f"{word}#1")).strip() == word
    assert places(text, f"+{word}") == ([1, 2] if ":" in word else [1, 3])
    assert places(f"The cat 2{word}4", word)  # a part of a longer word


@pytest.mark.parametrize("word", ["1,000", "10:05", ":"])
def test_numbers_that_no_index_is_written_like_are_words(word: str) -> None:
    assert "".join(found(f"The {word} sat", word)).strip() == word


@pytest.mark.parametrize("target", ["9" * 5000, "cat#" + "9" * 5000, "1:" + "9" * 5000])
def test_numbers_without_end_are_one_error(target: str) -> None:
    with pytest.raises(RationalesError):
        places("The cat sat", target)


@pytest.mark.parametrize("target", ["dog", "cat#dog", "CAT", "ca.", "dog#2"])
def test_a_word_that_is_not_in_the_text(target: str) -> None:
    with pytest.raises(RationalesError, match="is not in the text") as error:
        places("The cat sat on the cat", target)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("target", ["", " ", "\t\n", " #1"])
def test_an_empty_target(target: str) -> None:
    with pytest.raises(RationalesError, match="the target is empty"):
        places("The cat", target)


def test_all_and_last_leave_out_what_is_pinned() -> None:
    passage = encode(sentence_piece("byte-fallback"), "The cat sat", Options())
    assert find_targets(passage, "all") == [1, 2, 3]
    assert find_targets(passage, "last") == [3]
    candidate = encode(
        sentence_piece("byte-fallback"), "The cat sat", Options(specials="candidate")
    )
    assert find_targets(candidate, "all") == [0, 1, 2, 3]
    chat = encode(with_template(CHATML), "The cat", Options(chat=True))
    assert texts_of(chat, find_targets(chat, "all")) == ["The", " cat"]
    assert texts_of(chat, find_targets(chat, "last")) == [" cat"]


def test_a_pinned_token_is_not_searched_for_words() -> None:
    passage = encode(sentence_piece("byte-fallback"), "The cat", Options())
    with pytest.raises(RationalesError, match="not in the text"):
        find_targets(passage, "s")  # as in <s>


# A continuation -------------------------------------------------------------------------------


@pytest.mark.parametrize("continuation", [" sat", "sat", ".", " 😀", "日本", "\n\nThe"])
def test_a_continuation_begins_where_the_text_ends(continuation: str) -> None:
    passage = encode(byte_level(), "The cat", Options(continuation=continuation))
    assert "".join(texts_of(passage)[: passage.start]) == "The cat"
    assert "".join(texts_of(passage)[passage.start :]) == continuation
    assert passage.start == len(plain("The cat").tokens)


@both_styles
@pytest.mark.parametrize("continuation", [" sat", "sat", ".", "日本", "is", " 😀", "\nis"])
def test_a_continuation_brings_no_space_of_its_own(style: Style, continuation: str) -> None:
    tokenizer = sentence_piece(style, bos=False, eos=True)
    passage = encode(tokenizer, "The cat", Options(continuation=continuation))
    assert "".join(texts_of(passage)) == "The cat" + continuation
    assert "".join(texts_of(passage)[passage.start :]) == continuation


def test_a_continuation_that_would_merge_with_the_text() -> None:
    tokenizer = sentence_piece("byte-fallback")
    # "▁Paris" is one token, so the two tokenised together would not keep "▁Par".
    assert tokenizer.convert_ids_to_tokens(tokenizer("Paris").input_ids) == ["<s>", "▁Paris"]
    passage = encode(tokenizer, "The Par", Options(continuation="is"))
    assert tokenizer.convert_ids_to_tokens(list(passage.ids)) == ["<s>", "▁The", "▁Par", "is"]
    assert passage.start == 3
    passage = encode(byte_level(), "The c", Options(continuation="at"))
    assert "".join(texts_of(passage)) == "The cat"
    assert "".join(texts_of(passage)[passage.start :]) == "at"


def test_the_ids_of_a_continuation_are_those_of_the_whole() -> None:
    tokenizer = sentence_piece("metaspace")
    passage = encode(tokenizer, "The cat", Options(continuation=" sat Paris"))
    assert list(passage.ids) == tokenizer("The cat sat Paris").input_ids
    assert passage.start == 3


# A chat template ------------------------------------------------------------------------------


@pytest.mark.parametrize("template", [CHATML, TRIMMING], ids=["chatml", "trimming"])
@pytest.mark.parametrize(
    "text",
    ["The cat sat", "user", "assistant", "user\nassistant", "日本 😀", "😀", "<|im_end|>", "é"],
)
def test_just_the_tokens_of_the_template_are_pinned(template: str, text: str) -> None:
    passage = encode(with_template(template), text, Options(chat=True))
    assert "".join(texts_of(passage)) == BEFORE + text + AFTER
    own = [token.index for token in passage.tokens if not token.pinned]
    assert own == list(range(own[0], own[-1] + 1))
    # All tokens of the text are its own, later bytes of its characters included.
    assert [passage.tokens[i].id for i in own] == byte_level()(text).input_ids
    assert "".join(texts_of(passage)[: own[0]]) == BEFORE
    assert "".join(texts_of(passage)[own[-1] + 1 :]) == AFTER


def test_white_space_around_the_text_is_the_texts_unless_it_is_trimmed() -> None:
    padded = " The cat \n"
    passage = encode(with_template(CHATML), padded, Options(chat=True))
    assert "".join(texts_of(passage)) == BEFORE + padded + AFTER
    assert own_text(passage).strip() == "The cat"
    trimmed = encode(with_template(TRIMMING), padded, Options(chat=True))
    assert "".join(texts_of(trimmed)) == BEFORE + "The cat" + AFTER
    assert own_text(trimmed) == "The cat"


def test_characters_of_the_template_itself_may_be_split() -> None:
    template = "😀{{ messages[0]['content'] }}日"
    passage = encode(with_template(template), "é", Options(chat=True))
    assert texts_of(passage) == ["😀", "", "", "", "é", "", "日", "", ""]
    assert passage.pinned == {0, 1, 2, 3, 6, 7, 8}


def test_a_piece_before_the_template_is_the_templates() -> None:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=sentence_piece("byte-fallback")._tokenizer,
        chat_template="日{{ messages[0]['content'] }}語",
    )
    passage = encode(tokenizer, "本", Options(chat=True))
    # The space that the tokenizer puts before everything stands for no character.
    assert texts_of(passage) == ["", "日", "本", "語"]
    assert passage.pinned == {0, 1, 3}


@pytest.mark.parametrize("word", ["user", "assistant"])
def test_a_word_of_the_template_is_found_in_the_text_only(word: str) -> None:
    passage = encode(with_template(CHATML), f"The {word} sat", Options(chat=True))
    places = find_targets(passage, word)
    assert "".join(texts_of(passage, places)).strip() == word
    before = "".join(texts_of(passage, range(places[0]))) + passage.tokens[places[0]].text
    assert before.startswith(f"{BEFORE}The ")
    assert find_targets(passage, f"{word}#1") == places
    with pytest.raises(RationalesError, match="1 occurrence"):
        find_targets(passage, f"{word}#2")


def test_a_continuation_follows_the_template() -> None:
    passage = encode(with_template(CHATML), "The cat", Options(chat=True, continuation="The mat"))
    assert "".join(texts_of(passage)[: passage.start]) == BEFORE + "The cat" + AFTER
    assert "".join(texts_of(passage)[passage.start :]) == "The mat"
    assert max(passage.pinned) == passage.start - 1


def test_a_template_that_rewrites_the_text_is_refused() -> None:
    shouting = with_template(CHATML.replace("['content']", "['content'] | upper"))
    with pytest.raises(RationalesError, match="leaves out, repeats or rewrites message 1"):
        encode(shouting, "The cat", Options(chat=True))


def prepending() -> PreTrainedTokenizerFast:
    """A tokenizer that puts a space before the text and, decoded, after a special token."""
    tokenizer = copy.deepcopy(sentence_piece("byte-fallback"))._tokenizer
    tokenizer.pre_tokenizer = None
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


def taking_spaces() -> PreTrainedTokenizerFast:
    """A tokenizer whose special tokens take the spaces after them, as Phi-3's do."""
    tokenizer = copy.deepcopy(byte_level())
    special = [AddedToken(f"<{name}>", rstrip=True, special=True) for name in ("user", "end")]
    tokenizer.add_tokens(special, special_tokens=True)
    return tokenizer


def composing() -> PreTrainedTokenizerFast:
    """A tokenizer that composes characters before it splits a text, as Qwen's does."""
    tokenizer = copy.deepcopy(byte_level())
    tokenizer._tokenizer.normalizer = normalizers.NFC()
    return tokenizer


@pytest.mark.parametrize(
    ("make", "before", "text"),
    [
        (prepending, "<s>", "The cat"),
        (taking_spaces, "<user>\n", "The cat"),
        (taking_spaces, "<user>", "  The cat"),
        (composing, "日", "o\u0308 The cat e\u0301"),
        (composing, "o\u0308:", "😀 cat"),
    ],
)
def test_a_tokenizer_that_changes_the_text_leaves_it_its_tokens(
    make: Callable[[], PreTrainedTokenizerFast], before: str, text: str
) -> None:
    tokenizer = make()
    tokenizer.chat_template = before + "{{ messages[0]['content'] }}<end>\n日"
    passage = encode(tokenizer, text, Options(chat=True))
    own = [token.index for token in passage.tokens if not token.pinned]
    whole = tokenizer(
        before + text + "<end>\n日", add_special_tokens=False, return_offsets_mapping=True
    )
    assert own
    assert [passage.tokens[i].id for i in own] == [
        id
        for id, (start, end) in zip(whole["input_ids"], whole["offset_mapping"], strict=True)
        if start < len(before + text)
        and end > len(before)
        and id not in tokenizer.get_added_vocab().values()  # which may have taken spaces
    ]
    [part] = passage.parts
    assert [*range(part.start, part.end)] == own


@pytest.mark.parametrize(
    ("make", "written", "units"),
    [
        (composing, ["e\u0301" * 4 + " The", " cat", " sat on"], ["éééé The", " cat", " sat on"]),
        (composing, ["The", " o\u0308", " cat"], ["The", " ö", " cat"]),
        (prepending, ["The cat", " sat", " the cat"], None),
    ],
)
def test_units_in_characters_are_those_that_were_written(
    make: Callable[[], PreTrainedTokenizerFast], written: list[str], units: list[str] | None
) -> None:
    tokenizer = make()
    tokenizer.chat_template = (
        "{% for m in messages %}<s>{{ m['content'] }}</s>{% endfor %}"
        if units is None
        else "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"
    )
    messages = [{"role": "user", "content": "".join(written)}] * 2
    passage = encode(tokenizer, Conversation(tuple(messages)), Options())
    borders = [*accumulate(map(len, written * 2), initial=0)]
    spans = [(passage.place(start), passage.place(end)) for start, end in pairwise(borders)]
    found = group(passage.tokens, "token", parts=passage.parts, spans=spans)
    shown = ["".join(passage.tokens[i].text for i in unit) for unit in found]
    assert [each.strip() for each in shown] == [each.strip() for each in (units or written) * 2]


def test_a_model_without_a_chat_template() -> None:
    with pytest.raises(RationalesError, match="no chat template"):
        encode(with_template(None), "The cat", Options(chat=True))
