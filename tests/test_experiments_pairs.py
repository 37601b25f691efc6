"""The sentence pairs and their split: on a few lines, on random graphs, and on the real file."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rationales.errors import RationalesError
from rationales.experiments.translation import pairs as reading
from rationales.experiments.translation.pairs import Pair

HERE = os.environ.get("RATIONALES_DATA", "")
real_data = pytest.mark.skipif(
    not (Path(HERE) / reading.PAIRS).is_file() if HERE else True,
    reason="the data are not here: set RATIONALES_DATA",
)


def key(sentence):
    return reading._letters(sentence)


def assert_nothing_leaks(split):
    parts = (split.train, split.validation, split.test)
    for side in ("french", "english"):
        keys = [{key(getattr(pair, side)) for pair in part} for part in parts]
        assert not keys[0] & keys[1]
        assert not keys[0] & keys[2]
        assert not keys[1] & keys[2]


def test_pairs_are_read_as_people_type_them(tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text(
        "\ufeffGo.\tVa\u202f!\nHow are you?\t Ça va\u00a0?  \tCC-BY\n\nA\u200b cat.\tUn  chat.\n",
        encoding="utf-8",
    )
    assert reading.read_pairs(file) == (
        Pair("Va !", "Go."),
        Pair("Ça va ?", "How are you?"),
        Pair("Un chat.", "A cat."),
    )


@pytest.mark.parametrize("line", ["no tab", "Go.\t", "\tVa !"])
def test_a_line_that_is_no_pair_is_named(tmp_path, line):
    file = tmp_path / "pairs.tsv"
    file.write_text(f"Go.\tVa !\n{line}\n", encoding="utf-8")
    with pytest.raises(RationalesError, match=r"line 2 of .* is not English TAB French"):
        reading.read_pairs(file)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path):
    file = tmp_path / "pairs.tsv"
    with pytest.raises(RationalesError, match="cannot read"):
        reading.read_pairs(file)
    file.write_bytes(b"Go.\tVa\xff\n")
    with pytest.raises(RationalesError, match="cannot read"):
        reading.read_pairs(file)


def test_pairs_are_together_if_a_chain_of_shared_sentences_joins_them():
    pairs = [
        Pair("Va !", "Go."),
        Pair("Salut !", "Hi."),
        Pair("Partez !", "Go!"),  # the same English as the first, but for the punctuation
        Pair("partez.", "Leave."),  # the same French as the third, but for the case
        Pair("Hi.", "Hello."),  # a sentence of the other language is another sentence
        Pair("?", "What?"),
        Pair("!", "Stop!"),  # no letters: told apart by the punctuation
    ]
    assert reading.components(pairs) == [(0, 2, 3), (1,), (4,), (5,), (6,)]


small = st.lists(
    st.builds(Pair, st.sampled_from("abcdefghij"), st.sampled_from("ABCDEFGHIJ")), max_size=14
)


@given(small)
def test_components_are_those_of_a_plain_closure(pairs):
    found = {index: each for each in reading.components(pairs) for index in each}
    for index in range(len(pairs)):
        reached, grew = {index}, True
        while grew:
            more = {
                i
                for i, pair in enumerate(pairs)
                for j in reached
                if pair.french == pairs[j].french or pair.english == pairs[j].english
            }
            grew, reached = more > reached, reached | more
        assert found[index] == tuple(sorted(reached))


@given(small, st.integers(1, 3), st.integers(0, 3))
def test_a_split_has_every_pair_once_and_leaks_nothing(pairs, held_out, seed):
    try:
        split = reading.split(pairs, seed, held_out)
    except RationalesError:
        return  # there is no such split, or none was found
    assert len(split.validation) == len(split.test) == held_out
    assert sorted(split.train + split.validation + split.test, key=repr) == sorted(pairs, key=repr)
    assert_nothing_leaks(split)
    assert split == reading.split(pairs, seed, held_out)


def test_a_split_that_there_is_not_is_one_line():
    with pytest.raises(RationalesError, match="of 2 pairs"):
        reading.split([Pair("a", "b"), Pair("a", "c")], 0, 1)


def test_another_seed_holds_out_others():
    pairs = [Pair(f"phrase {n}", f"sentence {n}") for n in range(50)]
    assert reading.split(pairs, 0, 5) != reading.split(pairs, 1, 5)


@real_data
def test_the_real_file_is_split_without_a_leak():
    pairs = reading.read_pairs(Path(HERE) / reading.PAIRS)
    assert len(pairs) == 178_009
    assert pairs[0] == Pair("Va !", "Go.")
    split = reading.split(pairs)
    assert len(split.validation) == len(split.test) == reading.HELD_OUT == 2_000
    assert len(split.train) == 174_009
    assert_nothing_leaks(split)
    # The packaged model was trained with this split: another one would leak its training pairs.
    digest = hashlib.sha256(repr((split.validation, split.test)).encode()).hexdigest()
    assert digest == "c54a4dcb3563d42fa50d4f82978021232fa06cde745dba56402c58c1aa8bd5e2"
    # The pairs that are held out are as long as the others.
    words = [
        sum(len(p.english.split()) for p in part) / len(part) for part in (split.train, split.test)
    ]
    assert words[1] == pytest.approx(words[0], rel=0.05)
