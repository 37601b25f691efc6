"""The readers of word alignments and the way from their words to a text and back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rationales.errors import RationalesError
from rationales.experiments.translation import alignments_data as alignments
from rationales.experiments.translation.detokenization import detokenize

HERE = os.environ.get("RATIONALES_DATA", "")
real_data = pytest.mark.skipif(
    not (Path(HERE) / alignments.HANSARDS).is_file() if HERE else True,
    reason="the data are not here: set RATIONALES_DATA",
)


def write(folder, **files):
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_hansards_are_turned_around_and_counted_from_0(tmp_path):
    write(
        tmp_path,
        text="the house .   ||| la maison .  \ni see   ||| je le vois  \n",
        gold="1-1 2-2 3p3\n2-3 1-1 2p2\n",
    )
    first, second = alignments.read_hansards(tmp_path / "text", tmp_path / "gold")
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
        ("a ||| b\n", "1-1\n1-1\n", "gold has 2 sentences, but .*text has 1"),
        ("a b\n", "1-1\n", "line 1 of .*text is not `english"),
        ("a |||\n", "1-1\n", "line 1 of .*text is not `english"),
        ("a ||| b\n", "1x1\n", "line 1 of .*gold has '1x1'"),
        ("a ||| b\n", "1-2\n", "line 1 of .*gold links the words 2 and 1, counted from 1, of 1"),
        ("a ||| b\n", "0-1\n", "links the words"),
    ],
)
def test_bad_hansards_are_one_line(tmp_path, text, gold, message):
    write(tmp_path, text=text, gold=gold)
    with pytest.raises(RationalesError, match=message) as error:
        alignments.read_hansards(tmp_path / "text", tmp_path / "gold")
    assert "\n" not in str(error.value)


def test_naacl_begins_where_it_says(tmp_path):
    write(
        tmp_path,
        de="\ufeffdas haus\nja\n",
        en="the house\nyes\n",
        gold="1 0 0 S \n1 1 1 P \n2 0 0\n",
    )
    first, second = alignments.read_naacl(*(tmp_path / n for n in ("de", "en", "gold")), base=0)
    assert first.source == ("das", "haus")
    assert (first.sure, first.possible) == ({(0, 0)}, {(0, 0), (1, 1)})
    assert second.sure == second.possible == {(0, 0)}
    with pytest.raises(RationalesError, match="counted from 1, of 2 and 2"):
        alignments.read_naacl(*(tmp_path / n for n in ("de", "en", "gold")))


def test_bad_naacl_is_one_line(tmp_path):
    write(tmp_path, de="a\n", en="b\n", two="b\nc\n", bad="1 x 1\n", far="3 1 1 S\n")
    for names, message in (
        (("de", "two", "bad"), "two has 2 sentences, but .*de has 1"),
        (("de", "en", "bad"), "line 1 of .*bad is not `sentence source target"),
        (("de", "en", "far"), "links of sentence 3, but the text has 1"),
        (("de", "en", "none"), "cannot read"),
    ):
        with pytest.raises(RationalesError, match=message):
            alignments.read_naacl(*(tmp_path / name for name in names))


def test_rwth_has_three_files(tmp_path):
    (tmp_path / "de").write_bytes("das schöne Haus\n\nja\n".encode("latin-1"))
    (tmp_path / "en").write_bytes(b"the house\nyes\n")
    gold = "SENT: 0\nS 0 0\nS 2 1\nP 1 1\n\nSENT: 1\nS 0 0\n\n"
    write(tmp_path, alignmentDeEn=gold)
    first, second = alignments.read_rwth(tmp_path)
    assert first.source == ("das", "schöne", "Haus")
    assert first.sure == {(0, 0), (2, 1)}
    assert first.possible == {(0, 0), (2, 1), (1, 1)}
    assert second.sure == {(0, 0)}
    write(tmp_path, alignmentDeEn="SENT: 0\nS 0 0\n")
    with pytest.raises(RationalesError, match=r"alignmentDeEn has 1 sentences, but .*de has 2"):
        alignments.read_rwth(tmp_path)
    write(tmp_path, alignmentDeEn="S 0 0\n")
    with pytest.raises(RationalesError, match=r"line 1 of .*alignmentDeEn is not"):
        alignments.read_rwth(tmp_path)


def test_iwslt14_has_its_words_back(tmp_path):
    write(tmp_path, **{"test.de": "das sch@@ ön@@ e haus .\n", "test.en": "the hou@@ se .\n"})
    (pair,) = alignments.read_iwslt14(tmp_path)
    assert pair.source == ("das", "schöne", "haus", ".")
    assert pair.target == ("the", "house", ".")
    assert pair.possible == frozenset()
    with pytest.raises(RationalesError, match=r"cannot read .*valid\.de"):
        alignments.read_iwslt14(tmp_path, "valid")


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
def test_french_is_written_as_people_do(words, text):
    found = detokenize(words.split(), "fr")
    # A sentence in the middle begins with a small letter, as the words do.
    assert found.text.lower() == text.lower()
    assert found.text[0] == text[0]
    assert found.words == tuple(words.split())


def test_english_is_written_as_people_do():
    line = 'i say the Minister \'s " co - op " ( a ) costs $ 5.23 , -- no ?'
    words = line.split()
    found = detokenize(words, "en")
    assert found.text == 'I say the Minister\'s "co-op" (a) costs $5.23, -- no?'
    assert found.words == tuple(words)


def test_words_know_their_characters():
    found = detokenize(["le", "ami", "de", "les", "deux"], "fr")
    assert found.text == "L'ami des deux"
    assert [found.text[a:b] for a, b in found.spans] == ["L'", "ami", "des", "des", "deux"]


def test_no_words_are_refused():
    for words in ([], ["a", ""]):
        with pytest.raises(RationalesError, match="no text of no words"):
            detokenize(words, "fr")


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
    assert found.words == tuple(words)


@real_data
def test_all_hansards_sentences_come_back():
    pairs = alignments.read_hansards()
    assert len(pairs) == 447
    assert sum(len(pair.sure) for pair in pairs) == 4038
    for pair in pairs:
        assert pair.sure <= pair.possible
        for words, language in ((pair.source, "fr"), (pair.target, "en")):
            found = detokenize(words, language)
            assert found.words == words
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
    pairs = alignments.read_naacl(
        home / "test.de", home / "test.en", home / "de-en.ref.wa", base=0, lenient=True
    )
    assert len(pairs) == 100
    assert pairs[0].source[0] == "herr"  # not a byte-order mark
    assert (4, 3) in pairs[0].sure  # kommissar, commissioner
    assert sum(len(pair.sure) for pair in pairs) == 1232  # 1 of them is not there
