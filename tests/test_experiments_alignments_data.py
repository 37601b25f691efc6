"""The readers of word alignments and the way from their words to a text and back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rationales.errors import RationalesError
from rationales.experiments.translation import alignments_data as alignments
from rationales.experiments.translation.detokenization import CONTRACTED, ELIDED, detokenize

HERE, HANSARDS = os.environ.get("RATIONALES_DATA", ""), "alignments/en-fr-hansards"
real_data = pytest.mark.skipif(
    not (Path(HERE) / HANSARDS).is_dir() if HERE else True,
    reason="the data are not here: set RATIONALES_DATA",
)


def write(folder, **files):
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def hansards(folder, text, gold):
    return write(folder, **{"en-fr.txt": text, "gold.txt": gold})


def europarl(folder, de, en, gold):
    return write(folder, **{"test.de": de, "test.en": en, "de-en.ref.wa": gold})


def test_hansards_are_french_first_and_counted_from_0(tmp_path):
    hansards(
        tmp_path,
        "the house .   ||| la maison .  \ni see   ||| je le vois  \n",
        "1-1 2-2 3p3\n2-3 1-1 2p2\n",
    )
    first, second = alignments.read_folder(tmp_path, "hansards")
    assert first.source == ("la", "maison", ".")
    assert first.target == ("the", "house", ".")
    assert first.sure == {(0, 0), (1, 1)}
    assert first.possible == {(0, 0), (1, 1), (2, 2)}
    assert second.sure == {(2, 1), (0, 0)}
    assert second.of_target(1) == {1, 2}
    assert second.of_target(0) == {0}


@pytest.mark.parametrize(
    ("text", "gold", "message"),
    [
        ("a ||| b\n", "1-1\n1-1\n", r"gold.txt has links of 2 sentences, but .*en-fr.txt has 1"),
        ("a ||| b\nc ||| d\n", "1-1\n", r"gold.txt has links of 1 sentences, but .* has 2"),
        ("a b\n", "1-1\n", "the source of sentence 1 in .* is empty"),
        ("||| b\n", "1-1\n", "the target of sentence 1 in .* is empty"),
        ("a ||| b\n", "1x1\n", "line 1 of .*gold.txt has '1x1'"),
        ("a ||| b\n", "1-2\n", r"sentence 1 of .*gold.txt links the words \(1, 0\), .* has 1"),
        ("a ||| b\n", "0-1\n", "links the words"),
    ],
)
def test_bad_hansards_are_one_line(tmp_path, text, gold, message):
    hansards(tmp_path, text, gold)
    with pytest.raises(RationalesError, match=message) as error:
        alignments.read_folder(tmp_path, "hansards")
    assert "\n" not in str(error.value)


def test_europarl_is_counted_from_0_and_may_leave_out_sentences_and_words(tmp_path):
    gold = "1 0 0 S \n1 1 1 P \n3 0 0\n3 5 0\n"
    europarl(tmp_path, "\ufeffdas haus\nso\nja\nso\n", "the house\nso\nyes\nso\n", gold)
    first, second, third, fourth = alignments.read_folder(tmp_path, "europarl")
    assert first.source == ("das", "haus")
    assert (first.sure, first.possible) == ({(0, 0)}, {(0, 0), (1, 1)})
    assert second.possible == fourth.possible == frozenset()
    assert third.sure == third.possible == {(0, 0)}


@pytest.mark.parametrize(
    ("de", "en", "gold", "message"),
    [
        ("a\n", "b\nc\n", "", "test.en has 2 sentences, but .*test.de has 1"),
        ("a\n", "b\n", "1 x 1\n", "line 1 of .*de-en.ref.wa has '1 x 1': expected `sentence"),
        ("a\n", "b\n", "3 1 1 S\n", "links of 3 sentences, but .* has 1"),
        ("a\n\n", "b\nc\n", "1 0 0\n", "the source of sentence 2 in .* is empty"),
    ],
)
def test_bad_europarl_is_one_line(tmp_path, de, en, gold, message):
    with pytest.raises(RationalesError, match="cannot read"):
        alignments.read_folder(tmp_path, "europarl")
    europarl(tmp_path, de, en, gold)
    with pytest.raises(RationalesError, match=message):
        alignments.read_folder(tmp_path, "europarl")


def test_rwth_has_three_files(tmp_path):
    (tmp_path / "de").write_bytes("das schöne Haus\n\nja\n".encode("latin-1"))
    (tmp_path / "en").write_bytes(b"the house\nyes\n")
    write(tmp_path, alignmentDeEn="SENT: 0\nS 0 0\nS 2 1\nP 1 1\n\nSENT: 1\nS 0 0\n\n")
    first, second = alignments.read_folder(tmp_path, "rwth")
    assert first.source == ("das", "schöne", "Haus")
    assert first.sure == {(0, 0), (2, 1)}
    assert first.possible == {(0, 0), (2, 1), (1, 1)}
    assert second.sure == {(0, 0)}
    for gold, message in (
        ("SENT: 0\nS 0 0\n", r"alignmentDeEn has links of 1 sentences, but .*de has 2"),
        ("S 0 0\n", r"line 1 of .*alignmentDeEn has 'S 0 0': expected `SENT"),
    ):
        write(tmp_path, alignmentDeEn=gold)
        with pytest.raises(RationalesError, match=message):
            alignments.read_folder(tmp_path, "rwth")


def test_iwslt14_has_its_words_back(tmp_path):
    with pytest.raises(RationalesError, match=r"cannot read .*test\.de"):
        alignments.read_iwslt14(tmp_path / "test.de")
    write(tmp_path, **{"test.de": "das sch@@ ön@@ e haus &amp; hof .\n\nja@@\n"})
    assert alignments.read_iwslt14(tmp_path / "test.de") == [
        ["das", "schöne", "haus", "&", "hof", "."],
        ["ja"],
    ]


def expanded(found, words):
    """The words that a French text was made of, from the text and its spans."""
    text = found.text
    if words[0][:1].islower():
        text = text[:1].lower() + text[1:]
    pairs = {short: pair for pair, short in CONTRACTED.items()}
    whole = {short: word for word, short in ELIDED.items()}
    back = []
    for index, (start, end) in enumerate(found.spans):
        piece = text[start:end]
        if index and found.spans[index - 1] == (start, end):
            back[-1], second = pairs[piece.lower()]
            back[-1] = back[-1].capitalize() if piece[0].isupper() else back[-1]
            back.append(second)
        else:
            long = whole.get(piece.lower(), piece)
            back.append(long.capitalize() if long != piece and piece[0].isupper() else long)
    return tuple(back)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("je ne ai pas parlé à le ministre .", "Je n'ai pas parlé au ministre."),
        ("de les impôts , de le opposition", "Des impôts, de l'opposition"),
        ("À le nom de les gens", "Au nom des gens"),
        ("à le faire , de les traiter", "À le faire, de les traiter"),
        ("ce est quelque un que on aime !", "C'est quelqu'un qu'on aime !"),
        ("est - ce à dire ? puis - je y aller", "Est-ce à dire ? Puis-je y aller"),
        ("se il se y oppose", "S'il s'y oppose"),
        ("jusque à le heure", "Jusqu'à l'heure"),
        ("le héros , la hausse , le onze , le hôtel", "Le héros, la hausse, le onze, l'hôtel"),
        ("aujourd' hui « oui » : 15 %", "Aujourd'hui « oui » : 15 %"),
        ("( la motion est adoptée . )", "(la motion est adoptée.)"),
        ("Essex - Windsor", "Essex-Windsor"),
        ("- non", "- non"),
    ],
)
def test_french_is_ordinary_text(words, text):
    found = detokenize(words.split(), "fr")
    # A sentence in the middle begins with a small letter, as the words do.
    assert found.text.lower() == text.lower()
    assert found.text[0] == text[0]
    assert expanded(found, words.split()) == tuple(words.split())


def test_english_is_ordinary_text():
    line = 'i say the Minister \'s " co - op " ( a ) costs $ 5.23 , -- no ?'
    found = detokenize(line.split(), "en")
    assert found.text == 'I say the Minister\'s "co-op" (a) costs $5.23, -- no?'


def test_words_know_their_characters():
    found = detokenize(["le", "ami", "de", "les", "deux"], "fr")
    assert found.text == "L'ami des deux"
    assert [found.text[a:b] for a, b in found.spans] == ["L'", "ami", "des", "des", "deux"]


PIECES = "à À de De le Le les la ne se que ami heure dix est - , . ( ) « » ? \" $ 's aujourd' 12"
pieces = st.sampled_from(PIECES.split())


@given(st.lists(pieces, min_size=1, max_size=12), st.sampled_from(["en", "fr"]))
def test_spans_follow_each_other_and_leave_only_spaces(words, language):
    found = detokenize(words, language)
    end = 0
    for before, span in zip([(-1, -1), *found.spans], found.spans, strict=False):
        if span != before:
            assert found.text[end : span[0]] in ("", " ")
            end = span[1]
    assert end == len(found.text)
    if language == "fr":
        assert expanded(found, words) == tuple(words)


@real_data
def test_all_hansards_sentences_come_back():
    pairs = alignments.read_folder(Path(HERE) / HANSARDS, "hansards")
    assert len(pairs) == 447
    assert sum(len(pair.sure) for pair in pairs) == 4038
    for pair in pairs:
        assert pair.sure <= pair.possible
        for words, language in ((pair.source, "fr"), (pair.target, "en")):
            found = detokenize(words, language)
            assert language == "en" or expanded(found, words) == words
            assert len(found.spans) == len(words)
            assert " ," not in found.text
            assert " de le " not in found.text or language == "en"
    assert detokenize(pairs[8].source, "fr").text == (
        "Monsieur l'Orateur, ma question s'adresse au ministre chargé des transports."
    )


@real_data
def test_the_german_sentences_are_counted_from_0():
    home = Path(HERE) / "alignments" / "de-en-europarl"
    if not home.is_dir():
        pytest.skip("de-en-europarl is not here")
    pairs = alignments.read_folder(home, "europarl")
    assert len(pairs) == 100
    assert pairs[0].source[0] == "herr"  # not a byte-order mark
    assert (4, 3) in pairs[0].sure  # kommissar, commissioner
    assert sum(len(pair.sure) for pair in pairs) == 1232  # 1 of them is not there
