"""The readers of the experiments' data, on a few inline lines and on the real files."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from rationales.errors import RationalesError
from rationales.experiments.language import annotations, templates

HERE = os.environ.get("RATIONALES_DATA", "")
real_data = pytest.mark.skipif(
    not (Path(HERE) / annotations.PASSAGES).is_file() if HERE else True,
    reason="the data are not here: set RATIONALES_DATA",
)

TEMPLATE = "The [B] sleeps. (The fox is lazy, and quick). It is the [A]"


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder of data with one template of two sections, and two passages."""
    monkeypatch.setenv("RATIONALES_DATA", str(tmp_path))
    (tmp_path / templates.TEMPLATES).write_text(json.dumps({"animals": TEMPLATE}))
    (tmp_path / templates.PAIRS).write_text(
        ": animals\ndog law dog land\ndog law land fox\n: no template\ndog law land fox\n"
    )
    lines = [
        {"lambadaIndex": 7, "text": "The fox saw the dog", "rationale": [[12, 15], [4, 7]]},
        {"lambadaIndex": 9, "text": "A naïve café owner slept", "rationale": [[13, 18]]},
    ]
    (tmp_path / annotations.PASSAGES).write_text("\n".join(map(json.dumps, lines)) + "\n")
    return tmp_path


def test_pairs_are_read_once_a_section(data):
    assert list(templates.read_pairs()) == [
        ("animals", "dog", "law"),
        ("animals", "dog", "land"),
        ("animals", "land", "fox"),
        ("no template", "dog", "law"),
        ("no template", "land", "fox"),
    ]


def test_a_filled_template_knows_its_parts(tiny_tokenizer):
    example = templates.fill(tiny_tokenizer, TEMPLATE, "law", "dog", id="x")
    pieces = [tiny_tokenizer.decode([id]) for id in example.ids]
    assert "".join(pieces) == "The dog sleeps. (The fox is lazy, and quick). It is the law"
    assert pieces[-1] == " law"
    assert pieces[example.antecedent] == " dog"
    assert "".join(pieces[i] for i in sorted(example.distractor)).strip() == (
        "(The fox is lazy, and quick)."
    )
    assert tiny_tokenizer.decode(example.without_distractor) == ("The dog sleeps. It is the law")
    assert example.context.target_id == example.short_context.target_id == example.ids[-1]
    assert example.context.required == (len(example.ids) - 2,)
    assert example.pinned == 0


def test_words_of_several_tokens_are_left_out(tiny_tokenizer):
    assert templates.fill(tiny_tokenizer, TEMPLATE, "law", "xylophone") is None
    assert templates.fill(tiny_tokenizer, TEMPLATE, "xylophone", "law") is None
    # " dog" is one token, "dog" at the beginning of a text is not: its place decides.
    begins = "[B] sleeps. (The fox is lazy). It is the [A]"
    assert len(tiny_tokenizer("dog")["input_ids"]) > 1
    assert templates.fill(tiny_tokenizer, begins, "law", "dog") is None


def test_special_tokens_in_front_are_pinned(tiny_tokenizer_with_bos, tiny_tokenizer):
    bare = templates.fill(tiny_tokenizer, TEMPLATE, "law", "dog")
    example = templates.fill(tiny_tokenizer_with_bos, TEMPLATE, "law", "dog")
    assert example.ids == (tiny_tokenizer_with_bos.bos_token_id, *bare.ids)
    assert example.antecedent == bare.antecedent + 1
    assert example.distractor == {i + 1 for i in bare.distractor}
    assert example.context.pinned == (0,)
    passage = annotations.annotate(tiny_tokenizer_with_bos, "The fox saw the dog", [(4, 7)])
    assert passage.context.pinned == (0,)
    assert 0 not in passage.human


def test_halves_are_disjoint_and_together_everything(data, tiny_tokenizer):
    whole = templates.examples(tiny_tokenizer)
    halves = [templates.examples(tiny_tokenizer, half) for half in templates.HALVES]
    assert {e.id for e in whole} == {e.id for half in halves for e in half}
    assert len(whole) == sum(map(len, halves)) == 2


@pytest.mark.parametrize("template", ["no slots (x).", "[A] and [B] (x). end", "[A] is [B]"])
def test_a_template_that_is_none_is_one_line(template, tiny_tokenizer):
    with pytest.raises(RationalesError, match="a template has"):
        templates.fill(tiny_tokenizer, template, "law", "dog")


def test_a_tokenizer_without_places_is_refused():
    class Slow:
        is_fast = False

    with pytest.raises(RationalesError, match="fast tokenizer"):
        templates.encode(Slow(), "text")


def test_passages_are_cut_at_the_last_word_s_first_token(data, tiny_tokenizer):
    first, second = annotations.passages(tiny_tokenizer)
    pieces = [tiny_tokenizer.decode([id]) for id in first.ids]
    assert "".join(pieces) == "The fox saw the dog"
    assert first.single_token
    assert [pieces[i] for i in sorted(first.human)] == [" f", "ox", " the"]
    assert [pieces[i] for i in first.before] == [" the"]
    assert not second.single_token
    text = tiny_tokenizer.decode(second.ids)
    assert text.startswith("A naïve café owner")
    assert not text.endswith("slept")
    assert tiny_tokenizer.decode([second.ids[i] for i in sorted(second.human)]) == " owner"
    assert second.before == second.human


def test_what_reaches_into_the_target_is_not_part_of_a_rationale(tiny_tokenizer):
    passage = annotations.annotate(tiny_tokenizer, "The fox saw the dog", [(12, 19)])
    assert passage.human == passage.before


@pytest.mark.parametrize("line", ["{", "{}", '{"text": "a b", "rationale": [1]}', "[1]"])
def test_a_damaged_passage_is_one_line(line, data, tiny_tokenizer):
    (data / annotations.PASSAGES).write_text(line)
    with pytest.raises(RationalesError, match="line 1 of annotated_lambada"):
        annotations.passages(tiny_tokenizer)


def test_a_passage_has_more_than_one_word(tiny_tokenizer):
    with pytest.raises(RationalesError, match="a last word"):
        annotations.annotate(tiny_tokenizer, " word ", [])


def test_missing_data_are_one_line_that_says_where_they_come_from(tmp_path, monkeypatch):
    monkeypatch.setenv("RATIONALES_DATA", str(tmp_path))
    for read in (templates.read_templates, lambda: list(templates.read_pairs())):
        with pytest.raises(RationalesError, match=r"RATIONALES_DATA.*set RATIONALES_DATA"):
            read()
    (tmp_path / templates.TEMPLATES).write_text("[]")
    with pytest.raises(RationalesError, match="is not JSON of sections"):
        templates.read_templates()


@real_data
def test_the_real_templates_and_pairs():
    found = templates.read_templates()
    pairs = list(templates.read_pairs())
    assert len(found) == 14
    assert {section for section, _, _ in pairs} == set(found)
    assert len(pairs) == len(set(pairs)) == 573
    halves = Counter(templates.half_of(*pair) for pair in pairs)
    assert set(halves) == set(templates.HALVES)
    assert min(halves.values()) > 0.4 * len(pairs)


@real_data
def test_the_real_passages_each_hold_the_word_before_the_target(tiny_tokenizer):
    found = annotations.passages(tiny_tokenizer)
    assert len(found) == len({each.id for each in found}) == 107
    for each in found:
        assert each.before <= each.human
        assert len(each.ids) - 1 not in each.human
