"""Units, contrasts, answers of several tokens and long texts, from the text on."""

from __future__ import annotations

import json
from importlib import resources

import jsonschema
import pytest
import torch

import rationales
from rationales import Explanation, Options, RationalesError
from rationales.context import causal_context
from rationales.units import group

TEXT = "The Supreme Court on Tuesday rejected the appeal. The court said on"
SCHEMA = json.loads(resources.files("rationales").joinpath("schema.json").read_text("utf-8"))


def check(explanation: Explanation) -> None:
    """The JSON is of the schema and reads back; every sufficient rationale really is."""
    data = json.loads(explanation.to_json())
    jsonschema.validate(data, SCHEMA)
    assert Explanation.from_dict(data) == explanation


@pytest.mark.parametrize("unit", ["word", "sentence"])
@pytest.mark.parametrize("method", ["greedy", "beam", "last-attention"])
def test_units_in_the_result(tiny_explainer, unit, method):
    explanation = tiny_explainer.explain(TEXT, generate=3, unit=unit, method=method)
    check(explanation)
    assert explanation.options["unit"] == unit
    groups = group(explanation.tokens, unit)
    for rationale in explanation:
        assert [i for one in rationale.units for i in one] == list(rationale.indices)
        for one in rationale.units:
            # A unit is whole, but for the one that the target cuts.
            [whole] = [g for g in groups if one[0] in g]
            assert one == tuple(i for i in whole if i < rationale.target)
        assert rationale.target - 1 in rationale.units[0]


def test_all_options_that_shape_a_rationale_are_told(tiny_explainer):
    explanation = tiny_explainer.explain(
        TEXT, generate=2, fast=True, minimal=True, criterion="top-k=3", disjoint=2, max_size=9
    )
    check(explanation)
    assert explanation.options == {
        "fast": True,
        "minimal": True,
        "criterion": "top-k=3",
        "disjoint": 2,
        "max_size": 9,
    }
    assert tiny_explainer.explain(TEXT, generate=1).options == {}


def test_a_contrast_asks_for_less_than_the_first_place(tiny_explainer, tiny_model):
    [usual] = tiny_explainer.explain(TEXT, generate=1)
    ids = torch.tensor([[token.id for token in usual.tokens[: usual.target]]])
    with torch.no_grad():
        runner_up = int(tiny_model(ids).logits[0, -1].topk(2).indices[1])
    alternative = tiny_explainer.tokenizer.decode([runner_up])
    explanation = tiny_explainer.explain(TEXT, generate=1, instead_of=alternative)
    check(explanation)
    [rationale] = explanation
    last = rationale.steps[-1]
    assert rationale.sufficient == (last.target_logprob > last.contrast_logprob)
    assert all(s.target_logprob <= s.contrast_logprob for s in rationale.steps[:-1])


def test_an_alternative_that_begins_like_the_target_is_refused(tiny_explainer):
    with pytest.raises(RationalesError, match="begins with the same token"):
        tiny_explainer.explain(TEXT, continuation=" Court", instead_of=" Court")


def test_a_span_is_one_rationale_for_the_whole_answer(tiny_explainer, tiny_model):
    explanation = tiny_explainer.explain(TEXT, generate=3, span=True)
    check(explanation)
    [rationale] = explanation
    assert rationale.target_length == 3
    assert rationale.target == len(explanation.tokens) - 3
    answer = explanation.tokens[rationale.target :]
    assert rationale.target_text == "".join(token.text for token in answer)
    assert rationale.predicted
    assert rationale.sufficient
    # Every token of the answer stays the first choice, given the rationale and what was said.
    kept = sorted(rationale.indices)
    for token in answer:
        ids = torch.tensor([[explanation.tokens[i].id for i in kept]])
        with torch.no_grad():
            logits = tiny_model(
                ids, position_ids=torch.tensor([kept]), attention_mask=torch.ones_like(ids)
            ).logits
        assert int(logits[0, -1].argmax()) == token.id
        kept.append(token.index)


def test_coarse_to_fine_ends_sufficient_with_tokens(tiny_explainer):
    for fast in (False, True):
        explanation = tiny_explainer.explain(TEXT, generate=2, coarse_to_fine=True, fast=fast)
        check(explanation)
        for rationale in explanation:
            assert rationale.sufficient
            assert rationale.units is None
            assert rationale.indices[0] == rationale.target - 1


def test_the_size_of_coarse_to_fine_is_one_of_tokens(tiny_explainer):
    usual = tiny_explainer.explain(TEXT, generate=4, coarse_to_fine=True)
    limited = tiny_explainer.explain(TEXT, generate=4, coarse_to_fine=True, max_size=2)
    assert max(len(rationale) for rationale in usual) > 2
    for free, held in zip(usual, limited, strict=True):
        assert held.indices == free.indices[:2]
        assert held.sufficient == (len(free) <= 2)


def test_disjoint_rationales_come_as_alternatives(tiny_explainer):
    explanation = tiny_explainer.explain(TEXT, generate=4, disjoint=3)
    check(explanation)
    for rationale in explanation:
        for other in rationale.alternatives:
            assert {*other.indices} & {*rationale.indices} == {rationale.target - 1}
            assert other.target_text == rationale.target_text
            assert other.text
            assert other.steps[-1].prediction_text is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fast": True, "method": "beam"}, "fast goes with the method greedy"),
        ({"coarse_to_fine": True, "method": "soft"}, "coarse_to_fine goes with"),
        ({"coarse_to_fine": True, "unit": "word"}, "units of its own"),
        ({"instead_of": "x", "criterion": "prob=0.5"}, "leave out criterion"),
        ({"instead_of": "x", "span": True}, "leave out span"),
        ({"method": "soft", "minimal": True}, "soft weighs"),
        (
            {"unit": "letter"},
            "unit must be token, word, sentence, line, paragraph, document or message",
        ),
        ({"criterion": "top-k=0"}, "criterion must be argmax"),
        ({"disjoint": 0}, "disjoint must be at least 1"),
        ({"beam": 0}, "beam must be at least 1"),
        ({"method": "soft", "penalty": 0.0}, "penalty must be more than 0"),
        ({"instead_of": ""}, "instead_of is empty"),
        ({"fast": 1}, "fast must be true or false"),
    ],
)
def test_options_that_contradict_each_other_are_one_line(options, message):
    with pytest.raises(RationalesError, match=message) as error:
        Options(**options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["unit", "instead_of", "span"])
def test_bare_ids_have_no_texts(name):
    value = {"unit": "word", "instead_of": "x"}.get(name, True)
    context = causal_context((1, 2, 3), 2, frozenset())
    scorer = rationales.TableScorer(lambda kept: rationales.Score(-1.0, 3))
    with pytest.raises(RationalesError, match=f"leave out {name}: it is for texts"):
        rationales.rationalize(context, scorer, **{name: value})


@pytest.mark.parametrize(
    "arguments",
    [
        ["--fast", "--minimal"],
        ["--beam", "2"],
        ["--method", "soft", "--lambda", "0.2"],
        ["--unit", "word", "--disjoint", "2"],
        ["--coarse-to-fine", "--fast"],
        ["--criterion", "top-k=2", "--span"],
        ["--criterion", "ratio=0.5", "--unit", "sentence"],
    ],
    ids=" ".join,
)
def test_the_command_line_takes_them_all(run, arguments):
    code, out, err = run("explain", TEXT, "--generate", "2", "--json", "-", *arguments)
    assert (code, err) == (0, "")
    jsonschema.validate(json.loads(out), SCHEMA)


def test_a_terminal_shows_units_and_alternatives(tiny_explainer, capsys):
    tiny_explainer.explain(TEXT, generate=2, unit="word", disjoint=2, keep_candidates=2).show(
        steps=True
    )
    shown = capsys.readouterr().out
    assert "unit word" in shown
    assert "disjoint 2" in shown


def test_a_beam_is_a_method_of_its_own(run):
    code, _, err = run("explain", TEXT, "--beam", "2", "--method", "exhaustive")
    assert code == 2
    assert err.count("\n") == 1
    assert "--beam goes with the method beam, not exhaustive" in err
