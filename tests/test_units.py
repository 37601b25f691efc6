"""Units: which tokens make a word or a sentence, and that every token is in exactly one of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from rationales.context import Token
from rationales.errors import RationalesError
from rationales.options import Options
from rationales.passage import Passage, encode
from rationales.units import Unit, group


def tokens(pieces: Sequence[str], pinned: Sequence[int] = ()) -> list[Token]:
    return [Token(i, 100 + i, text, i in pinned) for i, text in enumerate(pieces)]


def words(*pieces: str, pinned: Sequence[int] = ()) -> list[str]:
    return shown(tokens(pieces, pinned), "word")


def sentences(*pieces: str, pinned: Sequence[int] = (), language: str = "en") -> list[str]:
    return shown(tokens(pieces, pinned), "sentence", language)


def shown(tokens: Sequence[Token], unit: Unit, language: str = "en") -> list[str]:
    """Each unit's tokens, with bars between them."""
    units = group(tokens, unit, language)
    return ["|".join(tokens[index].text for index in indices) for indices in units]


# Words


def test_byte_level_pieces_make_words_with_their_leading_spaces() -> None:
    assert words("The", " un", "believ", "able", " fox", ",", " too", ".") == [
        "The", " un|believ|able", " fox", ",", " too", ".",
    ]  # fmt: skip


def test_sentencepiece_pieces_make_words_whether_the_space_is_apart_or_not() -> None:
    assert words("", "Hel", "lo", " ", "wor", "ld", "!") == [
        "|Hel|lo", " |wor|ld", "!",
    ]  # fmt: skip


def test_apostrophes_within_words_do_not_part_them() -> None:
    assert words("I", " don", "'t", " know") == ["I", " don|'t", " know"]
    assert words("L", "'", "eau", " d", "’", "été", " aujourd", "'", "hui") == [
        "L|'|eau", " d|’|été", " aujourd|'|hui",
    ]  # fmt: skip


@pytest.mark.parametrize("fruit", ["apple", "pear"])
def test_quotes_are_parted_from_words(fruit: str) -> None:
    assert words("an", " '", fruit, "'", " or") == ["an", " '", fruit, "'", " or"]


def test_a_token_that_holds_two_words_joins_them() -> None:
    assert words("the", " end", ". The", " start") == ["the", " end", ". The", " start"]
    assert words("the", " en", "d. Th", "e", " start") == ["the", " en|d. Th|e", " start"]
    assert words("New Yo", "rk", " is") == ["New Yo|rk", " is"]


def test_scripts_without_spaces_have_a_word_a_character() -> None:
    assert words("我", "喜欢", "猫", "。") == ["我", "喜欢", "猫", "。"]
    assert words("東京", "は", "カタ", "カナ", "です") == ["東京", "は", "カタ|カナ", "です"]
    assert words("ฉั", "น", "ชอบ", "แมว") == ["ฉั", "น", "ชอบ", "แมว"]


def test_the_bytes_of_a_character_stay_together() -> None:
    assert words("Hi", " 🙂", "", "", "!") == ["Hi", " 🙂||", "!"]
    assert words("👨", "", "\u200d", "👧", "", " x") == ["👨||\u200d|👧|", " x"]
    assert words("東", "", "京", "", "") == ["東|", "京||"]
    # A split space is a space still, and goes with what follows.
    assert words("a", "\u00a0", "", "b") == ["a", "\u00a0||b"]


def test_spaces_go_with_what_follows_or_else_with_what_precedes() -> None:
    assert words("def", " f", "(", "x", "):", "\n", "   ", " return", " x", "\n", "\n") == [
        "def", " f", "(", "x", "):", "\n|   | return", " x|\n|\n",
    ]  # fmt: skip
    assert words("\n", " ") == ["\n| "]
    assert words("a ", " b") == ["a ", " b"]


def test_punctuation_alone_is_units_of_its_own() -> None:
    assert words("?", "!", "...", " -", "--") == ["?", "!", "...", " -", "--"]


def test_pinned_tokens_are_in_no_unit_and_part_words() -> None:
    assert words("<s>", "un", "do", pinned=[0]) == ["un|do"]
    assert words("<s>", "un", "|", "do", " it", pinned=[0, 2]) == ["un", "do", " it"]
    # Spaces and later bytes do not reach over a pinned token.
    assert words("a", " ", "<x>", "", "b", "<y>", "", pinned=[2, 5]) == ["a| ", "|b", ""]
    assert words("<s>", "<t>", pinned=[0, 1]) == []


# Sentences


def test_sentences_end_where_they_do_and_not_after_abbreviations() -> None:
    assert sentences("Dr", ".", " Smith", " went", " home", ".", " He", " slept", ".") == [
        "Dr|.| Smith| went| home|.", " He| slept|.",
    ]  # fmt: skip


def test_line_breaks_between_sentences_go_with_the_next() -> None:
    assert sentences("Yes", ".", "\n", "\n", "No", "!", " ", "\n") == ["Yes|.", "\n|\n|No|!| |\n"]
    assert sentences("a title", "\n\n", "The text", " goes on") == [
        "a title", "\n\n|The text| goes on",
    ]  # fmt: skip


def test_a_token_over_a_boundary_goes_with_its_first_character() -> None:
    assert sentences("It", " end", "s. Th", "en", " more", ".") == ["It| end|s. Th", "en| more|."]
    assert sentences("One. Two. Three", ". ", "Four.") == ["One. Two. Three", ". ", "Four."]


@pytest.mark.parametrize("language", ["en", "zh", "xx"])
def test_chinese_sentences_are_found_whatever_the_language(language: str) -> None:
    assert sentences("我", "喜欢", "猫", "。", "你", "呢", "？", language=language) == [
        "我|喜欢|猫|。", "你|呢|？",
    ]  # fmt: skip


def test_the_language_decides_what_an_abbreviation_is() -> None:
    german = ["Das", " ist", " z.B.", " Wasser", ".", " Gut", "."]
    assert sentences(*german, language="de") == ["Das| ist| z.B.| Wasser|.", " Gut|."]


def test_emoji_do_not_shift_the_boundaries() -> None:
    assert sentences("🙂", "", " 👍🏽", ".", " Yes", ".") == ["🙂|| 👍🏽|.", " Yes|."]


@pytest.mark.parametrize("space", ["\u00a0", "\u2028", "\u3000", "\u202f"])
def test_spaces_beyond_ascii_before_a_full_stop_are_no_trouble(space: str) -> None:
    assert sentences("Vitamin", " B", space, ".", " Yes") == [f"Vitamin| B|{space}|.", " Yes"]


def test_sentences_are_read_on_either_side_of_pinned_tokens() -> None:
    chat = ["<user>", "Who", "?", " You", ".", "</user>", "\n", "Me", "."]
    assert sentences(*chat, pinned=[0, 5]) == ["Who|?", " You|.", "\n|Me|."]


# Tokens of real tokenizers, and any tokens at all


def test_tokens_are_units_of_one() -> None:
    assert group(tokens(["<s>", "a", "🙂", ""], pinned=[0]), "token") == ((1,), (2,), (3,))


def test_another_unit_is_refused() -> None:
    with pytest.raises(RationalesError, match="one of token, word, sentence, not 'letter'"):
        group([], "letter")  # type: ignore[arg-type]


def passage_of(tokenizer: PreTrainedTokenizerFast, text: str) -> Passage:
    return encode(tokenizer, text, Options())


def test_byte_level_tokens_of_a_text(tiny_tokenizer_with_bos: PreTrainedTokenizerFast) -> None:
    text = "Dr. Łukasz doesn't sleep 🦜. 大阪 is\n far."
    passage = passage_of(tiny_tokenizer_with_bos, text)

    def joined(unit: Unit) -> list[str]:
        return [bars.replace("|", "") for bars in shown(passage.tokens, unit)]

    assert 0 in passage.pinned
    assert joined("word") == [
        "Dr", ".", " Łukasz", " doesn't", " sleep", " 🦜", ".", " 大", "阪", " is", "\n far", ".",
    ]  # fmt: skip
    assert joined("sentence") == ["Dr. Łukasz doesn't sleep 🦜.", " 大阪 is\n far."]


_MARKS = st.sampled_from(
    [*" \n\t.!?'’\"()-_,aeioBMé1東すก🙂\u00a0\u200d\u0301\u3000", ". ", "\n\n", "Dr. ", "👍🏽"]
)
_TEXTS = st.lists(_MARKS | st.characters(exclude_categories=["Cs"]), max_size=30).map("".join)


@st.composite
def cut_texts(draw: st.DrawFn) -> list[Token]:
    """Any text, cut into tokens at any places (some of them empty), any of them pinned."""
    text = draw(_TEXTS)
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=20)))
    pieces = [text[a:b] for a, b in pairwise([0, *places, len(text)])]
    return tokens(pieces, draw(st.sets(st.integers(0, len(pieces) - 1), max_size=3)))


@given(cut_texts(), st.sampled_from(["token", "word", "sentence"]))
def test_units_are_a_partition_into_runs_in_text_order(cut: list[Token], unit: Unit) -> None:
    units = group(cut, unit)
    in_order = [index for indices in units for index in indices]
    assert in_order == [token.index for token in cut if not token.pinned]
    assert all(b == a + 1 for indices in units for a, b in pairwise(indices))
    assert () not in units


@given(cut_texts())
def test_units_of_coarse_tokens_are_unions_of_those_of_their_characters(cut: list[Token]) -> None:
    """However a text is cut into tokens, no word is parted."""
    coarse = tokens([token.text for token in cut])
    fine = tokens([character for token in coarse for character in token.text])
    assert _ends(coarse) <= _ends(fine)


def _ends(cut: Sequence[Token]) -> set[int]:
    """Where words end, in characters; the spaces that a token may end with do not count."""
    text = "".join(token.text for token in cut)
    sizes = (sum(len(cut[index].text) for index in unit) for unit in group(cut, "word"))
    return {0, *(len(text[:end].rstrip()) for end in accumulate(sizes))}
