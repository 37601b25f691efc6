"""Units: which tokens make a word or a sentence, and that every token is in exactly one of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, get_args

import pytest
import sentencex
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from rationales.context import Part, Token
from rationales.errors import RationalesError
from rationales.options import Options
from rationales.text import Passage, encode
from rationales.units import HELD_TOGETHER, LEVELS, LONGEST, Unit, group, make_levels


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


def split(text: str, language: str = "en") -> list[str]:
    """The sentences of a text in tokens as most tokenizers cut it; no spaces at the ends."""
    cut = tokens(re.findall(r"\s?\w+|\s?[^\w\s]|\s", text))
    assert "".join(token.text for token in cut) == text
    return ["".join(cut[i].text for i in unit).strip() for unit in group(cut, "sentence", language)]


STORY = (
    "She measured 5{} of cloth.", "The tailor nodded.", "He cut it with care.",
    "Nobody spoke for a while.", "The clock struck nine.", "Rain fell on the roof.",
    "A dog barked outside.", "The candle went out.", "They sat in the dark.",
    "Then the door opened.", "A man came in.", "{}Good evening{}, he said.",
    "He sat down by the fire.", "Dr. Brown poured some tea.", "It was 3.5 p.m. in London.",
)  # fmt: skip


@pytest.mark.parametrize(
    "marks", ['"' * 3, "'" * 3, "““”", "„„“", "««»", "‹‹›", "‘‘’", "(()", "「「」"]
)
def test_a_stray_mark_holds_nothing_together(marks: str) -> None:
    """An opening mark that is never closed, and a whole quotation later on."""
    found = "\n".join(STORY).format(*marks).split("\n")
    assert split(" ".join(found)) == found


def test_a_stray_mark_does_not_reach_over_a_blank_line() -> None:
    assert split('A 5" nail. It bent.\n\nNext. "Yes," he said.') == [
        'A 5" nail.', "It bent.", "Next.", '"Yes," he said.',
    ]  # fmt: skip
    assert split("One. Two.\r\n \r\nThree. Four.") == ["One.", "Two.", "Three.", "Four."]


@pytest.mark.parametrize("marks", ['""', "“”", "„“", "«»", "「」", "()", "[]"])
def test_a_short_quotation_is_one_unit_and_a_long_one_is_not(marks: str) -> None:
    opening, closing = marks
    short = f"{opening}We are old. We saw it.{closing}"
    assert short in " | ".join(split(f"{short} That was all."))
    said = [f"We saw the {n} of them." for n in ("first", "second", "third", "fourth")] * 3
    long = [opening + said[0], *said[1:-1], said[-1] + closing]
    assert len(" ".join(long)) > HELD_TOGETHER
    assert split("They came. " + " ".join(long) + " That was all.") == [
        "They came.", *long, "That was all.",
    ]  # fmt: skip


def test_a_long_quotation_in_chinese_or_japanese_keeps_its_marks() -> None:
    said = ["今天下雨了。"] * 30
    text = "他说：“" + "".join(said) + "”「" + "".join(said) + "」他走了。"
    assert split(text, "zh") == [
        "他说：“今天下雨了。", *said[2:], "今天下雨了。”",
        "「今天下雨了。", *said[2:], "今天下雨了。」", "他走了。",
    ]  # fmt: skip


def test_apostrophes_part_and_join_nothing() -> None:
    text = "The dogs' bowls weren't full. I can't. 'Tis late. Don’t go. The cats’ too. Y’all come."
    assert split(text) == [
        "The dogs' bowls weren't full.", "I can't.", "'Tis late.", "Don’t go.", "The cats’ too.",
        "Y’all come.",
    ]  # fmt: skip


def test_lists_and_headings() -> None:
    text = (
        "# What to buy. And why\nWe need these things\n- milk. It is white. Not cream\n- 2 eggs\n"
        "1. flour\n2) the U.S. one. Or not\n(a) salt\n • tea\n### The end\nNothing more is\nneeded."
    )
    assert split(text) == [
        "# What to buy.", "And why", "We need these things", "- milk.", "It is white.",
        "Not cream", "- 2 eggs", "1. flour", "2) the U.S. one.", "Or not", "(a) salt", "• tea",
        "### The end", "Nothing more is\nneeded.",
    ]  # fmt: skip


def test_lines_that_are_wrapped_are_one_sentence() -> None:
    text = (
        "The court – or so it\nseemed – held that, of\n3 laws,\nnone was\n— by any\nmeans — good."
    )
    assert split(text) == [text]
    assert split("Слова эти\n— как и другие —\nзабыты.", "ru") == [
        "Слова эти\n— как и другие —\nзабыты."
    ]


def test_dialogue() -> None:
    assert split('"Who is it?" she asked.\n"Me."\n"You! Come in. Sit down," she said. He sat.') == [
        '"Who is it?" she asked.', '"Me."', '"You! Come in. Sit down," she said.', "He sat.",
    ]  # fmt: skip
    assert split("— Привет. Как дела?\n— Хорошо\n— «Да. Нет», — сказал он.", "ru") == [
        "— Привет.", "Как дела?", "— Хорошо", "— «Да. Нет», — сказал он.",
    ]  # fmt: skip


def test_abbreviations_and_numbers() -> None:
    text = "Dr. Li met Mrs. Ng at 9.30 a.m. in the U.S. Senate, e.g. twice. Pi is 3.14. See Fig. 2."
    assert split(text) == [
        "Dr. Li met Mrs. Ng at 9.30 a.m. in the U.S. Senate, e.g. twice.",
        "Pi is 3.14.", "See Fig. 2.",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("language", "found"),
    [
        ("ru", ["Привет, мир.", "Как дела?", "«Хорошо. Да», — сказал он."]),
        ("el", ["Ο κ. Παπάς ήρθε.", "Τι κάνεις;", "Είπε «Ναι. Όχι.»", "Έφυγε."]),
        ("zh", ["我说：“你好。再见。”", "他走了！", "你呢？"]),
        ("ja", ["彼は去った。", "「はい。いいえ。」", "そう言った。"]),
        ("ar", ["مرحبا بك.", "كيف حالك؟", "أنا بخير."]),
        ("hi", ["मैं ठीक हूँ।", "तुम कैसे हो?", "अच्छा।"]),
    ],
)
def test_other_scripts(language: str, found: list[str]) -> None:
    between = "" if language in ("zh", "ja") else " "
    assert split(between.join(found), language) == found
    assert split('"' + between.join(found), language) == ['"' + found[0], *found[1:]]


@pytest.mark.parametrize(
    ("language", "text", "found"),
    [
        ("en", "Am 3. Mai kam sie bzw. Er. Gut.", ["Am 3.", "Mai kam sie bzw.", "Er.", "Gut."]),
        ("de", "Am 3. Mai kam sie bzw. Er. Gut.", ["Am 3. Mai kam sie bzw. Er.", "Gut."]),
        ("de", "Das ist z. B. Wasser. Gut.", ["Das ist z. B. Wasser.", "Gut."]),
        ("en", "Voir p. ex. Rome. Bien.", ["Voir p. ex.", "Rome.", "Bien."]),
        ("fr", "Voir p. ex. Rome. Bien.", ["Voir p. ex. Rome.", "Bien."]),
    ],
)
def test_the_language_matters(language: str, text: str, found: list[str]) -> None:
    assert split(text, language) == found


@pytest.mark.parametrize("language", ["de-AT", "de_CH", "DE", "De-ch-1996", "gsw"])
def test_a_variety_is_read_as_its_language(language: str) -> None:
    assert split("Am 3. Mai kam sie. Gut.", language) == ["Am 3. Mai kam sie.", "Gut."]


@pytest.mark.parametrize(
    "language", ["", "e", "English", "日本", "en de", "en\n", None, 42, ["en"]]
)
@pytest.mark.parametrize("unit", ["token", "sentence"])
def test_what_is_no_code_of_a_language_is_refused(language: Any, unit: Unit) -> None:
    with pytest.raises(RationalesError, match=r"^language must be a code such as") as error:
        group(tokens(["a"]), unit, language)
    assert repr(language) in str(error.value)


def test_a_sentence_that_is_too_long_is_cut_where_it_pauses() -> None:
    clause = "and the court held that the statute, as amended, did not apply"
    text = "; ".join([clause] * 20) + "."
    found = split(text)
    assert len(found) > 2
    assert " ".join(found) == text
    assert all(LONGEST // 4 < len(each) <= LONGEST for each in found[:-1])
    assert all(each.endswith((";", ".")) for each in found)
    assert all(each.endswith("apply") for each in split(text.replace(";", ""))[:-1]) is False
    assert [len(each) for each in split("x" * 1200)] == [1200]  # one token
    assert [len(each) for each in split("、" * 1200)] == [500, 500, 200]


@pytest.mark.parametrize(
    "text", ["我喜欢猫。", "«a. ", '"', '"a." ', "- a\n", "\n", "# a\n", "(a. ", "word ", "x"]
)
def test_the_time_grows_with_the_text_and_not_faster(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What sentencex is given at a time is bounded, and so is how much of it is read again."""
    read: list[int] = []
    segment = sentencex.get_sentence_boundaries

    def counted(language: str, text: str) -> Any:
        read.append(len(text))
        return segment(language, text)

    monkeypatch.setattr(sentencex, "get_sentence_boundaries", counted)
    whole = text * (20_000 // len(text))
    group(tokens(re.findall(r"(?s).{1,5}", whole)), "sentence")
    assert max(read) <= 5_000
    assert sum(read) <= 2.5 * len(whole)


# Tokens of real tokenizers, and any tokens at all


def test_tokens_are_units_of_one() -> None:
    assert group(tokens(["<s>", "a", "🙂", ""], pinned=[0]), "token") == ((1,), (2,), (3,))


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
    [
        *" \n\t.!?'’\"()-_,aeioBMé1東すก🙂\u00a0\u200d\u0301\u3000",
        ". ",
        "\n\n",
        "Dr. ",
        "👍🏽",
        "\r\n",
    ]
)
_TEXTS = st.lists(_MARKS | st.characters(exclude_categories=["Cs"]), max_size=30).map("".join)


@st.composite
def cut_texts(draw: st.DrawFn) -> list[Token]:
    """Any text, cut into tokens at any places (some of them empty), any of them pinned."""
    text = draw(_TEXTS)
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=20)))
    pieces = [text[a:b] for a, b in pairwise([0, *places, len(text)])]
    return tokens(pieces, draw(st.sets(st.integers(0, len(pieces) - 1), max_size=3)))


@st.composite
def parts_of(draw: st.DrawFn, count: int) -> list[Part]:
    """Documents that follow each other, with tokens between some of them that are in none."""
    borders = sorted(draw(st.sets(st.integers(0, count), max_size=6)))
    spans = [pair for pair in pairwise(borders) if draw(st.booleans())]
    return [Part("document", str(n), *span) for n, span in enumerate(spans)]


@given(cut_texts(), st.sampled_from(get_args(Unit)), st.data())
def test_units_are_a_partition_into_runs_in_text_order(
    cut: list[Token], unit: Unit, data: st.DataObject
) -> None:
    parts = data.draw(parts_of(len(cut)))
    units = group(cut, unit, parts=parts)
    in_order = [index for indices in units for index in indices]
    own = [token.index for token in cut if not token.pinned]
    assert () not in units
    assert sorted(in_order) == own
    if unit in ("document", "message"):
        assert all([*indices] == sorted(indices) for indices in units)
    else:  # what is between two tokens of a unit is in the unit
        assert in_order == own
        assert all(b == a + 1 for indices in units for a, b in pairwise(indices))
    for indices in units:  # no unit reaches from one part into another, or out of it
        holding = {n for n, p in enumerate(parts) for i in indices if p.start <= i < p.end}
        outside = any(not any(p.start <= i < p.end for p in parts) for i in indices)
        assert len(holding) + outside == 1


@given(cut_texts(), st.data())
def test_units_of_a_pattern_or_of_characters_are_a_partition(
    cut: list[Token], data: st.DataObject
) -> None:
    own = [token.index for token in cut if not token.pinned]
    assume(own)
    pattern = data.draw(st.sampled_from([r"[^.]+\.", r"\w+", r"\r?\n", "東", "."]))
    length = sum(len(cut[index].text) for index in own)
    borders = sorted(data.draw(st.sets(st.integers(0, length), max_size=8)))
    for units in (
        group(cut, "token", pattern=pattern),
        group(cut, "token", spans=[*pairwise(borders)][::2]),
    ):
        assert () not in units
        assert [index for indices in units for index in indices] == own


def test_a_word_over_which_a_sentence_was_cut_is_cut_there_too() -> None:
    pieces = ["See ", *["abcdefgh"] * 100, " now", ".", " It", " ended", "."]
    cut = [Token(index, index, text) for index, text in enumerate(pieces)]
    levels = make_levels(partial(group, cut))
    assert max(map(len, levels["word"])) < 100  # the word has 100 tokens
    for coarse, fine in pairwise(levels.values()):
        assert all(any({*unit} <= {*whole} for whole in coarse) for unit in fine)


def test_own_units_end_where_a_document_does_and_lie_in_the_text() -> None:
    pieces = ["One", " two", ".", "\n\n", "Three", " four", ".", " Five"]
    cut = [Token(index, index, text, index == 3) for index, text in enumerate(pieces)]
    parts = [Part("document", "1", 0, 3), Part("document", "2", 4, 7)]
    assert group(cut, "token", parts=parts, spans=[(0, 3), (3, 20)]) == (
        (0,),
        (1, 2),
        (4, 5, 6),
        (7,),
    )
    assert group(cut, "token", spans=[(0, 24)]) == ((0, 1, 2), (4, 5, 6, 7))  # one is pinned
    with pytest.raises(RationalesError, match="units end at character 99, and the text has 24"):
        group(cut, "token", spans=[(0, 99)])


@given(cut_texts(), st.data())
def test_levels_are_partitions_from_coarse_to_fine(cut: list[Token], data: st.DataObject) -> None:
    parts = data.draw(parts_of(len(cut)))
    finest = data.draw(st.sampled_from([None, *LEVELS]))
    levels = make_levels(partial(group, cut, parts=parts), finest)
    assert [*levels] == [name for name in LEVELS if name in levels]
    assert [*levels][-1] == (finest or "token")
    own = [token.index for token in cut if not token.pinned]
    for units in levels.values():
        assert sorted(index for unit in units for index in unit) == own
    assert all(len(units) > 1 for units in [*levels.values()][:-1])


@pytest.mark.parametrize(
    ("unit", "pieces", "expected"),
    [
        ("line", ["One", "\r\n", "Two\n", "Three"], ["One", "\r\n|Two\n", "Three"]),
        ("line", ["a", ".\nb", "c", "\n"], ["a|.\nb", "c|\n"]),
        ("paragraph", ["One.\r", "\n\r", "\nTwo"], ["One.\r", "\n\r|\nTwo"]),
        ("paragraph", ["One.\n\nT", "wo", ".", "\n\n\n", "3"], ["One.\n\nT", "wo|.", "\n\n\n|3"]),
        ("paragraph", ["▁One".replace("▁", " "), ".", "\n", " ", "\n", "Two"],
         [" One|.", "\n| |\n|Two"]),
        ("line", ["東京", "。\n大", "阪", "。"], ["東京|。\n大", "阪|。"]),
        ("line", ["🙂", "", "\n", "👍", "", "🏽"], ["🙂|", "\n|👍||🏽"]),
        ("paragraph", ["猫", "", "\n\n", "🙂", ""], ["猫|", "\n\n|🙂|"]),
    ],
)  # fmt: skip
def test_tokens_over_the_borders_of_lines_and_paragraphs(
    unit: Unit, pieces: list[str], expected: list[str]
) -> None:
    assert shown(tokens(pieces), unit) == expected


_LANGUAGES = st.sampled_from(["en", "de", "fr", "ru", "el", "zh", "ja", "ar", "hi", "my", "xx"])


@given(cut_texts(), st.integers(1, 60), _LANGUAGES)
@settings(deadline=None)
def test_no_sentence_is_longer_than_the_bound_and_a_token(
    cut: list[Token], times: int, language: str
) -> None:
    repeated = tokens([token.text for token in cut] * times)
    units = group(repeated, "sentence", language)
    assert [index for unit in units for index in unit] == list(range(len(repeated)))
    for unit in units:
        texts = [repeated[index].text for index in unit]
        if any(text.strip() for text in texts):
            *_, last = (text for text in texts if text.strip())
            assert len("".join(texts).strip()) <= LONGEST + len(last)


@given(st.text(max_size=8), _TEXTS)
def test_a_language_is_read_or_refused(language: str, text: str) -> None:
    try:
        units = group(tokens([text]), "sentence", language)
    except RationalesError:
        assert not re.fullmatch(r"[a-zA-Z]{2,3}", language)
    else:
        assert units == ((0,),)


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
