"""Texts and the model's own samples become rows, each with its subset."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from rationales.compat.rows import Rows, sample_rows
from rationales.compat.subsets import mixture, uniform
from rationales.compat.text import detokenise, pack, read_text
from rationales.errors import RationalesError
from rationales.text import prefix_ids

from tiny_models import build

# Text


def test_the_spacing_of_wikitext_is_undone():
    tokenised = """
 = Valkyria Chronicles III =

 A tactical role @-@ playing game ( Japanese : 戦場 , lit . Field ) sold 1 @,@ 250 @.@ 5 copies .
 It follows the " Nameless " , and " Calamaty Raven " ; the players ' choice , isn 't it ?
 = = Gameplay = =
 Pat O 'Connor 's film didn 't cost $ 5 : " I ' ve ' had ' it " , he said at 10 : 30 !
"""
    assert detokenise(tokenised).split("\n") == [
        "A tactical role-playing game (Japanese: 戦場, lit. Field) sold 1,250.5 copies.",
        'It follows the "Nameless", and "Calamaty Raven"; the players\' choice, isn\'t it?',
        "Pat O'Connor's film didn't cost $5: \"I 've' had 'it\", he said at 10:30!",
        "",
    ]


def test_a_file_is_left_as_it_is_unless_it_looks_like_wikitext(tmp_path):
    odd = tmp_path / "odd.txt"
    odd.write_bytes("\ufeffA , strange ( way ) .\r\nto write = x =".encode())
    text = read_text(odd)
    assert text.text == "A , strange ( way ) .\nto write = x ="
    assert text.name == "odd.txt"
    assert len(text.sha256) == 64
    odd.write_text("one @-@ two , three .", encoding="utf-8")
    assert read_text(odd).text == "one-two, three.\n"


def test_files_that_cannot_be_read_are_one_line(tmp_path):
    with pytest.raises(RationalesError, match="cannot read"):
        read_text(tmp_path / "none.txt")
    (tmp_path / "latin.txt").write_bytes("Größe".encode("latin-1"))
    with pytest.raises(RationalesError, match="not UTF-8"):
        read_text(tmp_path / "latin.txt")


def test_rows_begin_where_paragraphs_or_sentences_begin(tiny_tokenizer_with_bos):
    tokenizer = tiny_tokenizer_with_bos
    sentences = [f"Number {n} is the law of the land." for n in range(60)]
    paragraphs = [" ".join(sentences[n : n + 10]) for n in range(0, 60, 10)]
    text = "\n\n".join(paragraphs)
    rows = pack(text, tokenizer, 40)
    assert len(rows) > 10
    assert rows.shape[1] == 40
    assert rows.dtype == torch.int32
    starts = []
    for row in rows.tolist():
        assert row[0] == tokenizer.bos_token_id
        part = tokenizer.decode(row[1:])
        assert part in text
        starts.append(int(part.removeprefix("Number ").split()[0]))
    assert {0, 10, 20, 30, 40, 50} <= set(starts)
    assert starts == sorted(set(starts))  # none twice, in order


def test_text_without_sentences_is_cut_between_words_or_anywhere(tiny_tokenizer):
    words = "law " * 300
    rows = pack(words, tiny_tokenizer, 20)
    assert rows.numel() > 0.8 * len(tiny_tokenizer(words)["input_ids"])
    assert all(tiny_tokenizer.decode(row).startswith("law") for row in rows)
    assert len(pack("東" * 300, tiny_tokenizer, 20)) > 10


def test_hard_wrapped_paragraphs_are_told_by_blank_lines(tiny_tokenizer):
    text = "\n\n".join(f"Chapter {n} of the law\nwent on and on\nand on." for n in range(30))
    rows = pack(text, tiny_tokenizer, 40)
    assert all(tiny_tokenizer.decode(row).startswith("Chapter") for row in rows)


@pytest.mark.parametrize("text", ["", "Too short.", "\n \n"])
def test_a_text_that_does_not_fill_a_row_has_none(tiny_tokenizer, text):
    assert pack(text, tiny_tokenizer, 16).shape == (0, 16)


# The model's own text


def test_own_text_is_drawn_from_the_model(tiny_tokenizer_with_bos):
    tokenizer = tiny_tokenizer_with_bos
    model = build("gpt2", vocab_size=len(tokenizer))
    rows = sample_rows(model, tokenizer, (3000, 3), seed=1)
    assert rows.shape == (3000, 3)
    assert (rows[:, 0] == tokenizer.bos_token_id).all()
    assert not set(tokenizer.all_special_ids) & set(rows[:, 1:].flatten().tolist())

    def expected(prefix: list[int]) -> torch.Tensor:
        logits = model(input_ids=torch.tensor([prefix])).logits[0, -1].detach().double()
        logits[tokenizer.all_special_ids] = -math.inf
        return logits.softmax(-1)

    def assert_drawn_from(ids: torch.Tensor, chances: torch.Tensor) -> None:
        seen, likely = torch.bincount(ids, minlength=len(chances)), chances * len(ids) > 5
        counts = [*seen[likely].tolist(), int(seen[~likely].sum())]
        wanted = [*(chances[likely] * len(ids)).tolist(), float(chances[~likely].sum() * len(ids))]
        assert stats.chisquare(counts, wanted).pvalue > 1e-4

    assert_drawn_from(rows[:, 1], expected([tokenizer.bos_token_id]))
    # The third token comes through the cache of keys and values.
    common = int(rows[:, 1].mode().values)
    after = rows[rows[:, 1] == common][:, 2]
    assert_drawn_from(after, expected([tokenizer.bos_token_id, common]))


def test_own_text_repeats_with_its_seed_and_begins_as_told(tiny_tokenizer):
    model = build("gpt2", vocab_size=len(tiny_tokenizer))
    assert prefix_ids(tiny_tokenizer) == []
    heard = []
    one = sample_rows(model, tiny_tokenizer, (70, 5), seed=1, progress=heard.append)
    assert torch.equal(one, sample_rows(model, tiny_tokenizer, (70, 5), seed=1))
    assert not torch.equal(one, sample_rows(model, tiny_tokenizer, (70, 5), seed=2))
    assert len(set(one[:, 0].tolist())) > 30
    assert heard == sorted(heard)
    starts = torch.tensor([9, 11], dtype=torch.int32)
    begun = sample_rows(model, tiny_tokenizer, (20, 5), seed=1, starts=starts)
    assert set(begun[:, 0].tolist()) == {9, 11}


# The rows of a run


def ids(rows: Rows) -> list[int]:
    return [int(rows[number]["ids"]) for number in range(80)]


def test_rows_are_a_function_of_seed_and_number():
    files, own = torch.arange(10)[:, None], 100 + torch.arange(3)[:, None]
    rows = Rows(files, seed=5, own=own, own_share=0.25)
    taken = ids(rows)
    assert taken == ids(rows)
    assert [int(rows[number]["ids"]) for number in (79, 3, 41)] == [taken[n] for n in (79, 3, 41)]
    assert all(sum(n >= 100 for n in taken[at : at + 4]) == 1 for at in range(0, 80, 4))
    texts = [n for n in taken if n < 100]
    assert [sorted(texts[n : n + 10]) for n in range(0, 60, 10)] == [list(range(10))] * 6
    assert texts[:10] != texts[10:20]
    assert taken != ids(Rows(files, seed=6, own=own, own_share=0.25))
    with pytest.raises(RationalesError, match="no row of text"):
        Rows(files[:0], 5, own, 0.25)


def test_every_visit_of_a_row_has_a_subset_of_its_own():
    draw = mixture(uniform, 1.0)
    rows = Rows(torch.zeros(1, 40), 5, draw=lambda generator: draw(1, 40, 1, generator)[0])
    kept = [rows[number]["keep"] for number in range(3)]
    assert kept[0].shape == (1, 40)
    assert torch.equal(kept[1], rows[1]["keep"])
    assert not torch.equal(kept[0], kept[1])
    assert "keep" not in Rows(torch.zeros(1, 4), 5)[0]
