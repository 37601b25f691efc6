"""Rationales and explanations as values: their texts, their JSON, their table."""

from __future__ import annotations

import copy
import json
import math
import re
import sys
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import rationales
from rationales import (
    BlackBoxScorer,
    Candidate,
    Context,
    Explainer,
    Explanation,
    Interrupted,
    MissingExtraError,
    Options,
    Progress,
    Rationale,
    RationalesError,
    Request,
    Score,
    Step,
    TableScorer,
    Token,
    rationalize,
)
from rationales.schema import json_schema

WORDS = ("The", " Supreme", " Court", " on", " Tues", "day", " ruled")
TOKENS = tuple(Token(index, 500 + index, text) for index, text in enumerate(WORDS))


def rationale(*indices: int, **fields: Any) -> Rationale:
    usual = {"target": 6, "target_id": 506, "sufficient": True, "evaluations": 9}
    return Rationale(**(usual | {"indices": indices} | fields))


def explanation(*found: Rationale, **fields: Any) -> Explanation:
    usual = {"model": "tiny", "method": "greedy", "evaluation": "sparse", "seconds": 1.9}
    return Explanation(**(usual | {"tokens": TOKENS, "rationales": found} | fields))


FULL = explanation(
    rationale(
        5,
        1,
        predicted=True,
        target_text=" ruled",
        steps=(
            Step(5, -3.25, 260, -1.5, " the"),
            Step(1, -0.5, 506, -0.5, " ruled", (Candidate(1, -0.5), Candidate(0, -math.inf))),
        ),
        full_context=Step(None, -0.25, 506, -0.25, " ruled", contrast_logprob=-math.inf),
    ),
    rationale(3, sufficient=False, stopped="budget", target=4, target_id=504),
    id="text 7",
    unexplainable=(0,),
    complete=False,
)


# Behaving as a sequence, and the kept text ----------------------------------------------------


@pytest.mark.parametrize(
    ("indices", "text"),
    [
        ((), ""),
        ((5, 0, 1, 2, 3, 4), "The Supreme Court on Tuesday"),
        ((2,), "Court"),
        ((5, 1, 2), "Supreme Court … day"),  # the next token brings no space of its own
        ((4, 0), "The … Tues"),  # the next token does
        ((5, 3, 1), "Supreme … on … day"),
    ],
)
def test_the_kept_text_has_an_ellipsis_for_each_gap(indices: tuple[int, ...], text: str) -> None:
    assert explanation(rationale(*indices))[0].text == text


def test_a_rationale_on_bare_ids_has_no_text() -> None:
    context = Context(ids=(3, 4), target_id=5, required=(1,))
    found = rationalize(context, TableScorer(lambda kept: Score(-1.0, 5)))
    with pytest.raises(RationalesError, match="bare token ids"):
        _ = found.text


def test_an_explanation_is_the_sequence_of_its_rationales() -> None:
    both = explanation(rationale(1, 2), rationale(5, 4, 0))
    assert len(both) == 2
    assert [len(each) for each in both] == [2, 3]
    assert both[1].text == both[-1].text == "The … Tuesday"
    assert [each.indices for each in both] == [r.indices for r in both.rationales]
    with pytest.raises(IndexError):
        both[2]
    assert both.text == "The Supreme Court on Tuesday ruled"


def test_equality_compares_what_was_found() -> None:
    assert explanation(rationale(1)) == explanation(rationale(1))
    assert explanation(rationale(1)) != explanation(rationale(2))
    # A rationale belongs to no text until it is part of an explanation.
    assert explanation(rationale(1))[0] == rationale(1)


def test_an_explanation_is_one_line_in_a_notebook() -> None:
    assert repr(FULL) == (
        "<Explanation of 'The Supreme Court on Tuesday ruled': tiny, greedy, 2 targets, "
        "1 sufficient, mean size 1.5, interrupted>"
    )
    words = tuple(Token(index, index, " word\n") for index in range(5000))
    long = explanation(rationale(5), tokens=words)
    assert len(repr(long)) < 200
    assert "\n" not in repr(long)
    assert repr(explanation()).endswith("tiny, greedy, 0 targets>")


def test_a_rationale_is_one_line_in_a_notebook() -> None:
    assert repr(FULL[0]) == "<Rationale of ' ruled': 'Supreme … day', 2 tokens, sufficient>"
    assert repr(FULL[1]) == "<Rationale of 504: 'on', 1 token, not sufficient>"
    # On bare ids there are no texts.
    assert repr(rationale(3, 1)) == "<Rationale of 506: [3, 1], 2 tokens, sufficient>"


# JSON: there and back -------------------------------------------------------------------------


def test_json_round_trip() -> None:
    assert Explanation.from_dict(FULL.to_dict()) == FULL
    assert Explanation.from_json(FULL.to_json()) == FULL
    assert Explanation.from_json(FULL.to_json(indent=1)) == FULL
    assert "\n" not in FULL.to_json()
    again = Explanation.from_json(FULL.to_json())
    assert again[0].text == "Supreme … day"  # the tokens are there again, too
    assert again[0].steps[1].candidates[1].target_logprob == -math.inf


def test_optional_fields_are_left_out() -> None:
    data = explanation(rationale(5)).to_dict()
    assert not {"id", "unexplainable", "complete"} & set(data)
    assert "stopped" not in data["rationales"][0]
    assert all("pinned" not in token for token in data["tokens"])
    pinned = explanation(tokens=(Token(0, 1, "<s>", pinned=True), *TOKENS[1:]))
    assert [token.get("pinned") for token in pinned.to_dict()["tokens"][:2]] == [True, None]
    assert explanation(id=0).to_dict()["id"] == 0


def test_files_of_schema_1_are_read() -> None:
    before = {"contrast_logprob": "asked_logprob", "full_context": "whole"}
    before |= {"target_length": "span"}
    steps = (FULL[0].steps[0], replace(FULL[0].steps[1], contrast_logprob=-math.inf))
    full = replace(FULL, rationales=(replace(FULL[0], steps=steps), *FULL.rationales[1:]))

    def renamed(value: Any) -> Any:
        if isinstance(value, list):
            return [renamed(each) for each in value]
        if isinstance(value, dict):
            return {before.get(name, name): renamed(each) for name, each in value.items()}
        return value

    old = renamed(full.to_dict()) | {"schema": 1, "options": {"span": True}}
    assert old["rationales"][0]["whole"]["target_logprob"] == -0.25
    assert old["rationales"][0]["steps"][1]["asked_logprob"] is None
    # Schema 1 wrote some fields that had no value.
    old["rationales"][0] |= {"predicted": None}
    old["rationales"][0]["steps"][0] |= {"prediction_text": None, "prediction_logprob": None}
    found = Explanation.from_dict(old)
    assert found.options == {"span": True}
    assert found[0].full_context == FULL[0].full_context
    assert found[0].steps[1] == steps[1]
    assert found.to_dict()["schema"] == 2


def test_an_explanation_is_hashable_and_compares_without_its_time() -> None:
    assert replace(FULL, seconds=99.0) == FULL
    assert len({FULL, replace(FULL, seconds=99.0), explanation(rationale(2))}) == 2


def test_seconds_are_the_same_before_and_after() -> None:
    timed = explanation(seconds=1.23456789)
    assert timed.seconds == timed.to_dict()["seconds"] == 1.235
    assert Explanation.from_dict(timed.to_dict()) == timed


def test_save_and_load(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    FULL.save(path)
    assert Explanation.load(path) == FULL
    assert Explanation.load(str(path)) == FULL
    assert path.read_text(encoding="utf-8").endswith("}\n")


def test_texts_are_written_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    explanation(tokens=(Token(0, 1, "日本"), Token(1, 2, "😀"))).save(path)
    assert "日本" in path.read_text(encoding="utf-8")
    assert Explanation.load(path).text == "日本😀"


def test_saving_where_there_is_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "out.json"
    with pytest.raises(RationalesError, match=r"^cannot write .*nowhere.*No such file"):
        FULL.save(path)
    with pytest.raises(RationalesError, match=r"^cannot read .*nowhere.*No such file"):
        Explanation.load(path)


def test_loading_what_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"\xff\xfe\x00{")
    with pytest.raises(RationalesError, match="not UTF-8"):
        Explanation.load(path)


@pytest.mark.parametrize(
    "junk",
    ["", "{", "nonsense", "null", "[]", "3", '"schema"', "{}", '{"schema": 1}', '{"schema": "1"}'],
)
def test_junk_is_refused_in_one_line(junk: str) -> None:
    with pytest.raises(RationalesError, match=r"not an? .*explanation") as error:
        Explanation.from_json(junk)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("version", [0, 3, None, "1.0", True, 2.0])
def test_another_schema_version_is_refused(version: Any) -> None:
    data = FULL.to_dict() | {"schema": version}
    with pytest.raises(RationalesError, match=f"not an explanation of schema 2: found {version!r}"):
        Explanation.from_dict(data)


def parts(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The objects inside an explanation, by the name the schema gives them."""
    step = data["rationales"][0]["steps"][1]
    return {
        "explanation": data,
        "Token": data["tokens"][0],
        "Rationale": data["rationales"][0],
        "Step": step,
        "Candidate": step["candidates"][0],
    }


MUST_BE_THERE = [
    *(("explanation", name) for name in ("model", "method", "evaluation", "tokens", "rationales")),
    ("explanation", "seconds"),
    *(("Token", name) for name in ("index", "id", "text")),
    *(("Rationale", name) for name in ("target", "target_id", "indices", "sufficient")),
    ("Rationale", "evaluations"),
    *(("Step", name) for name in ("index", "target_logprob", "prediction_id")),
    *(("Candidate", name) for name in ("index", "target_logprob")),
]


@pytest.mark.parametrize(("part", "name"), MUST_BE_THERE)
def test_a_missing_field_is_named(part: str, name: str) -> None:
    data = copy.deepcopy(FULL.to_dict())
    del parts(data)[part][name]
    with pytest.raises(RationalesError, match=f"not a whole explanation: .*{name}") as error:
        Explanation.from_dict(data)
    assert "\n" not in str(error.value)
    with pytest.raises(jsonschema.ValidationError):
        validate(data)


@pytest.mark.parametrize(
    ("proof", "said"),
    [
        ({"critical_units": [[99]]}, r"critical_units\[0\] must be before the target"),
        ({"without": {"index": None, "target_logprob": 4.0, "prediction_id": 1}}, "at most 0"),
    ],
)
def test_a_proof_is_about_the_tokens_before_its_target(proof: dict[str, Any], said: str) -> None:
    data = copy.deepcopy(FULL.to_dict())
    data["rationales"][0]["proof"] = proof
    with pytest.raises(RationalesError, match=f"not a whole explanation: .*{said}"):
        Explanation.from_dict(data)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *((name, wrong) for name in ("tokens", "rationales") for wrong in (None, "many", [3])),
        *(("seconds", wrong) for wrong in (None, "many", [3])),
        ("unexplainable", None),
    ],
)
def test_a_field_of_the_wrong_kind_is_refused(name: str, wrong: Any) -> None:
    with pytest.raises(RationalesError, match="not a whole explanation"):
        Explanation.from_dict(FULL.to_dict() | {name: wrong})


def test_fields_of_later_versions_are_ignored() -> None:
    data = copy.deepcopy(FULL.to_dict())
    for part in parts(data).values():
        part["added_later"] = {"anything": [1, 2]}
    validate(data)
    assert Explanation.from_dict(data) == FULL


# Hypothesis: any explanation ------------------------------------------------------------------

numbers = st.integers(0, 10**6)
logprobs = st.floats(max_value=0.0, allow_nan=False)  # minus infinity among them
finite = st.floats(max_value=0.0, allow_nan=False, allow_infinity=False)
texts = st.text(max_size=6)  # all of Unicode, but for lone surrogates


def units(target: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Some of the tokens before a target."""
    return st.lists(st.integers(0, target - 1), unique=True, min_size=1, max_size=3).map(tuple)


def steps(target: int) -> st.SearchStrategy[Step]:
    places = st.integers(0, target - 1)
    candidates = st.builds(Candidate, places, logprobs, st.none() | units(target))
    return st.builds(
        Step,
        index=st.none() | places,
        target_logprob=logprobs,
        prediction_id=numbers,
        prediction_logprob=st.none() | finite,
        prediction_text=st.none() | texts,
        candidates=st.lists(candidates, max_size=2).map(tuple),
        unit=st.none() | units(target),
        contrast_logprob=st.none() | logprobs,
    )


def found_rationales(target: int, alternatives: bool = True) -> st.SearchStrategy[Rationale]:
    others = st.lists(found_rationales(target, False), max_size=2) if alternatives else st.just([])
    return st.builds(
        Rationale,
        target=st.just(target),
        target_id=numbers,
        indices=st.just(()) | units(target),
        sufficient=st.booleans(),
        evaluations=numbers,
        steps=st.lists(steps(target), max_size=2).map(tuple),
        predicted=st.none() | st.booleans(),
        stopped=st.sampled_from([None, "max-size", "budget"]),
        target_text=st.none() | texts,
        units=st.none() | st.lists(units(target), max_size=2).map(tuple),
        minimal=st.none() | st.booleans(),
        alternatives=others.map(tuple),
        full_context=st.none() | steps(target),
    )


@st.composite
def explanations(draw: st.DrawFn) -> Explanation:
    """Any explanation whose rationales lie in its tokens."""
    drawn = draw(st.lists(st.tuples(numbers, texts, st.booleans()), min_size=1, max_size=4))
    tokens = tuple(Token(index, *each) for index, each in enumerate(drawn))
    targets = draw(st.sets(st.integers(1, len(tokens) - 1))) if len(tokens) > 1 else set()
    return Explanation(
        model=draw(texts),
        method=draw(texts),
        evaluation=draw(
            st.sampled_from(["sparse", "masked", "sparse+masked", "black-box", "none"])
        ),
        tokens=tokens,
        rationales=tuple(draw(found_rationales(target)) for target in sorted(targets)),
        seconds=draw(st.floats(0, 1e6)),
        unexplainable=draw(st.sampled_from([(), (0,)])),
        complete=draw(st.booleans()),
        id=draw(st.none() | texts | st.integers()),
        options=draw(st.sampled_from([{}, {"fast": True}, {"unit": "word", "max_size": 3}])),
    )


@given(explanations())
@settings(deadline=None, max_examples=100)
def test_any_explanation_comes_back_from_json(one: Explanation) -> None:
    validate(one.to_dict())
    text = one.to_json()
    assert Explanation.from_json(text) == one
    assert "\n" not in text
    assert Explanation.from_json(one.to_json(indent=1)).to_json() == text
    assert len(repr(one).splitlines()) == 1
    assert all(len(repr(rationale).splitlines()) == 1 for rationale in one)


# Damaged files ---------------------------------------------------------------------------------


def damaged(*path: str | int, to: Any) -> dict[str, Any]:
    """A valid explanation with another value at one place."""
    rich = replace(FULL[0], units=((5,), (1, 2)), alternatives=(rationale(5, 2, steps=()),))
    data = copy.deepcopy(replace(FULL, rationales=(rich, FULL[1])).to_dict())
    Explanation.from_dict(data)
    inner: Any = data
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = to
    return data


STEP = ("rationales", 0, "steps", 1)


@pytest.mark.parametrize(
    ("path", "to", "says"),
    [
        (("rationales", 0, "indices"), [5, 999], "rationales[0].indices must be before the target"),
        (("rationales", 0, "indices"), [5, 6], "rationales[0].indices must be before the target"),
        (("rationales", 0, "indices"), [5, -1], "rationales[0].indices[1] must be at least 0, not"),
        (
            ("rationales", 0, "indices"),
            [5, 5],
            "rationales[0].indices must not hold an index twice",
        ),
        (("rationales", 0, "indices"), "51", "rationales[0].indices must be a list, not '51'"),
        (("rationales", 0, "indices"), [5, 1.0], "rationales[0].indices[1] must be a whole number"),
        (("rationales", 0, "target"), 999, "rationales[0].target and its length must end within"),
        (
            ("rationales", 0, "target_length"),
            2,
            "target and its length must end within the 7 tokens",
        ),
        (
            ("rationales", 0, "target_length"),
            0,
            "rationales[0].target_length must be at least 1, not 0",
        ),
        (("rationales", 0, "units"), [[5], [999]], "rationales[0].units[1] must be before the"),
        (
            ("rationales", 0, "units"),
            [[]],
            "rationales[0].units[0] must be a list that is not empt",
        ),
        (("rationales", 0, "units"), [5], "rationales[0].units[0] must be a list, not 5"),
        (("rationales", 0, "alternatives", 0, "indices"), [999], "alternatives[0].indices must be"),
        (
            ("rationales", 0, "evaluations"),
            True,
            "rationales[0].evaluations must be a whole number",
        ),
        (("rationales", 0, "evaluations"), None, "must be a whole number, not None"),
        (("rationales", 0, "sufficient"), 1, "rationales[0].sufficient must be true or false, not"),
        (
            ("rationales", 0, "predicted"),
            "yes",
            "predicted must be true or false, not 'yes'",
        ),
        (
            ("rationales", 0, "stopped"),
            "tired",
            "rationales[0].stopped must be max-size or budget, not",
        ),
        (("rationales", 0, "steps"), {}, "rationales[0].steps must be a list, not a value of type"),
        (
            (*STEP, "index"),
            999,
            "rationales[0].steps[1].index must be before the target 6, not 999",
        ),
        ((*STEP, "unit"), [0, 999], "rationales[0].steps[1].unit must be before the target 6, not"),
        ((*STEP, "target_logprob"), 0.5, "steps[1].target_logprob must be at most 0, not 0.5"),
        ((*STEP, "target_logprob"), math.nan, "Out of range float values are not JSON compliant"),
        ((*STEP, "target_logprob"), "-1", "target_logprob must be a number, not '-1'"),
        (
            (*STEP, "target_logprob"),
            -(10**400),
            "target_logprob must be",
        ),
        ((*STEP, "prediction_logprob"), 0.5, "prediction_logprob must be at most 0, not 0.5"),
        ((*STEP, "contrast_logprob"), 0.5, "steps[1].contrast_logprob must be at most 0, not 0.5"),
        ((*STEP, "prediction_id"), -1, "steps[1].prediction_id must be at least 0, not -1"),
        ((*STEP, "candidates", 0, "index"), 999, "candidates[0].index must be before the target 6"),
        ((*STEP, "candidates", 0, "target_logprob"), 1, "target_logprob must be at most 0, not 1"),
        (
            (*STEP, "candidates", 1, "unit"),
            [6],
            "candidates[1].unit must be before the target 6, n",
        ),
        (("tokens", 2, "index"), 3, "tokens[2].index must be 2, not 3"),
        (("tokens", 2, "text"), None, "tokens[2].text must be a text, not None"),
        (("tokens", 2, "side"), "left", "tokens[2].side must be source or target, not 'left'"),
        (("tokens",), "tokens", "tokens must be a list, not 'tokens'"),
        (("tokens",), [], "unexplainable must be before the end of the 0 tokens"),
        (("unexplainable",), [7], "unexplainable must be before the end of the 7 tokens"),
        (("unexplainable",), [0, 0], "unexplainable must not hold an index twice"),
        (("seconds",), None, "seconds must be a number, not None"),
        (("seconds",), math.inf, "Out of range float values are not JSON compliant"),
        (("seconds",), True, "seconds must be a number, not True"),
        (("options",), [], "options must be an object, not a value of type list"),
        (("id",), 1.5, "id must be a text or a whole number, not 1.5"),
        (("model",), 3, "model must be a text, not 3"),
    ],
)
def test_a_damaged_file_is_refused_by_its_name_and_field(
    path: tuple[str | int, ...], to: Any, says: str, tmp_path: Path
) -> None:
    data = damaged(*path, to=to)
    with pytest.raises(RationalesError, match=re.escape(says)) as error:
        Explanation.from_dict(data)
    assert str(error.value).startswith("not a whole explanation: ")
    assert "\n" not in str(error.value)
    file = tmp_path / "damaged.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(RationalesError, match=re.escape(f"{file} is not a whole explanation: ")):
        Explanation.load(file)


@pytest.mark.parametrize("text", ["[" * 10**5, "1" * 5000, '{"schema": 1e999}', "\ufeff{}"])
def test_what_json_itself_refuses_is_one_line(text: str, tmp_path: Path) -> None:
    file = tmp_path / "odd.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(RationalesError, match=r"odd\.json is not an explanation") as error:
        Explanation.load(file)
    assert "\n" not in str(error.value)


def test_alternatives_without_end_are_refused() -> None:
    data = FULL.to_dict()
    for _ in range(1000):
        data["rationales"][0] = data["rationales"][0] | {"alternatives": [data["rationales"][0]]}
    with pytest.raises(RationalesError, match="alternatives in alternatives"):
        Explanation.from_dict(data)


def test_rounding_above_0_is_forgiven() -> None:
    data = damaged(*STEP, "target_logprob", to=5e-7)
    assert Explanation.from_dict(data)[0].steps[1].target_logprob == 5e-7


JUNK = st.sampled_from(
    [
        *(None, True, False, 0, 1, -1, 3, 999, 10**400, 0.5, -0.5, 1e300, math.nan, math.inf),
        *("", "x", "0", [], [0], [999], [[0]], [None], {}, {"index": 0}, {"schema": 1}),
    ]
)


def inside(value: Any) -> list[tuple[Any, Any]]:
    """Every place in plain values: what holds it, and its key or index there."""
    if not isinstance(value, dict | list):
        return []
    keys = list(value) if isinstance(value, dict) else range(len(value))
    return [place for key in keys for place in [(value, key), *inside(value[key])]]


@given(explanations(), st.data())
@settings(deadline=None, max_examples=100)
def test_a_file_with_one_damaged_place_is_read_or_refused(
    one: Explanation, data: st.DataObject
) -> None:
    """And what the schema refuses is never read."""
    plain = json.loads(one.to_json())
    holder, key = data.draw(st.sampled_from(inside(plain)))
    how = data.draw(st.sampled_from(["replace", "replace", "remove", "repeat"]))
    if how == "replace":
        holder[key] = data.draw(JUNK)
    elif how == "remove":
        del holder[key]
    elif isinstance(holder, list):
        holder.append(copy.deepcopy(holder[key]))
    try:
        found = Explanation.from_dict(plain)
    except RationalesError:
        return
    validate(plain)
    assert Explanation.from_json(found.to_json()) == found
    assert all(isinstance(each.text, str) for each in found)


# The schema, and what an explainer gives ------------------------------------------------------


@cache
def schema() -> dict[str, Any]:
    file = resources.files(rationales).joinpath("schema.json")
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def validate(data: dict[str, Any]) -> None:
    """Fail unless these plain values are an explanation by ``schema.json``."""
    validator().validate(data)


@cache
def validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema())


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    assert schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_the_schema_file_is_the_generated_one() -> None:
    """``python -m rationales.schema > src/rationales/schema.json`` writes it again."""
    assert schema() == json_schema()


def test_every_field_has_a_description() -> None:
    definitions = {"explanation": schema()} | schema()["$defs"]
    for where, definition in definitions.items():
        assert definition["description"], where
        for name, field in definition.get("properties", {}).items():
            assert field.get("description") or "$ref" in field, f"{where}.{name}"


def test_every_field_that_is_written_is_in_the_schema() -> None:
    data = FULL.to_dict()
    definitions = {"explanation": schema()} | schema()["$defs"]
    for where, part in parts(data).items():
        assert set(part) <= set(definitions[where]["properties"]), where


def test_the_example_of_the_format() -> None:
    example = {
        "schema": 2,
        "model": "HuggingFaceTB/SmolLM2-135M",
        "method": "greedy",
        "evaluation": "sparse",
        "tokens": [
            {"index": index, "id": 504 + index, "text": text} for index, text in enumerate(WORDS)
        ],
        "rationales": [
            {
                "target": 5,
                "target_id": 1234,
                "target_text": " ruled",
                "predicted": True,
                "indices": [4, 1],
                "sufficient": True,
                "evaluations": 9,
                "steps": [
                    {
                        "index": 4,
                        "target_logprob": -3.2,
                        "prediction_id": 260,
                        "prediction_text": " the",
                        "prediction_logprob": -1.0,
                    }
                ],
            }
        ],
        "seconds": 1.9,
    }
    validate(example)
    assert Explanation.from_dict(example).to_dict() == example


@pytest.mark.parametrize(
    ("part", "name", "wrong"),
    [
        ("explanation", "schema", 1),
        ("explanation", "id", [7]),
        ("explanation", "seconds", -1),
        ("explanation", "complete", "no"),
        ("explanation", "unexplainable", [-1]),
        ("Token", "text", None),
        ("Token", "pinned", 1),
        ("Rationale", "indices", ["1"]),
        ("Rationale", "sufficient", None),
        ("Rationale", "stopped", "tired"),
        ("Rationale", "evaluations", 1.5),
        ("Step", "target_logprob", "-1"),
        ("Step", "index", -1),
        ("Candidate", "index", None),
    ],
)
def test_the_schema_refuses(part: str, name: str, wrong: Any) -> None:
    data = copy.deepcopy(FULL.to_dict())
    validate(data)
    parts(data)[part][name] = wrong
    with pytest.raises(jsonschema.ValidationError):
        validate(data)


@cache
def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A token for each byte, and one that begins each text."""
    characters = ["<s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE({c: id for id, c in enumerate(characters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>")


@cache
def tiny_explainer() -> Explainer:
    config = GPT2Config(
        vocab_size=257,
        n_positions=32,
        n_embd=8,
        n_layer=1,
        n_head=1,
        bos_token_id=0,
        eos_token_id=0,
    )
    torch.manual_seed(0)
    return rationales.load(GPT2LMHeadModel(config), byte_tokenizer())


@pytest.mark.parametrize(
    "options",
    [
        Options(generate=2, keep_candidates=3),
        Options(target="all"),
        Options(target="all", specials="candidate"),
        Options(target="last", max_size=2),
        Options(target="last", method="exhaustive", max_evaluations=3),
        Options(continuation="é", method="nearest-first"),
    ],
    ids=lambda options: str(options.method),
)
def test_what_a_model_explains_is_of_the_schema(options: Options) -> None:
    [found] = tiny_explainer().explain_all([Request("é 😀", options, id=3)])
    data = json.loads(found.to_json())
    validate(data)
    assert Explanation.from_dict(data) == found
    assert data["id"] == 3
    assert data["evaluation"] == "sparse"
    assert len(found) > 0
    assert found.text.startswith("<s>é 😀")
    for each in found:
        assert each.full_context is not None
        assert each.full_context.index is None
        assert each.full_context.prediction_text is not None
        assert (each.full_context.prediction_id == each.target_id) == each.predicted


def predict_nothing(subsets: list[Any], target_id: int) -> list[tuple[float, int]]:
    """A black box that holds the target to be impossible."""
    return [(-math.inf, target_id - 1) for _ in subsets]


def test_what_a_black_box_explains_is_of_the_schema() -> None:
    explainer = Explainer(BlackBoxScorer(predict_nothing), byte_tokenizer())
    found = explainer.explain("abc", target="all", specials="candidate", keep_candidates=2)
    data = json.loads(found.to_json())
    validate(data)
    assert data["unexplainable"] == [0]
    assert data["evaluation"] == "black-box"
    # JSON has no infinity.
    assert data["rationales"][-1]["steps"][-1]["target_logprob"] is None
    assert Explanation.from_dict(data) == found
    assert found[-1].steps[-1].target_logprob == -math.inf


def test_nothing_to_explain_is_of_the_schema() -> None:
    explainer = Explainer(BlackBoxScorer(predict_nothing), byte_tokenizer())
    found = explainer.explain("abc", target=0)
    validate(found.to_dict())
    assert (found.evaluation, found.unexplainable, len(found)) == ("none", (0,), 0)


def test_an_interrupted_explanation_is_of_the_schema() -> None:
    explainer = Explainer(BlackBoxScorer(predict_nothing), byte_tokenizer())

    def interrupt(progress: Progress) -> None:
        if progress.done == 2:
            raise KeyboardInterrupt

    request = Request("abcdef", Options(target="all"))
    with pytest.raises(Interrupted) as interrupted:
        list(explainer.explain_all([request], on_progress=interrupt))
    [found] = interrupted.value.explanations
    assert len(found) == 2
    assert found.to_dict()["complete"] is False
    validate(found.to_dict())


# A table --------------------------------------------------------------------------------------


def test_a_row_for_each_target() -> None:
    pytest.importorskip("pandas")
    table = FULL.to_dataframe()
    assert list(table.columns) == [
        "target",
        "target_text",
        "size",
        "sufficient",
        "predicted",
        "indices",
        "rationale",
        "target_logprob",
        "full_context_logprob",
        "evaluations",
    ]
    assert table.iloc[0].to_dict() == {
        "target": 6,
        "target_text": " ruled",
        "size": 2,
        "sufficient": True,
        "predicted": True,
        "indices": [5, 1],
        "rationale": "Supreme … day",
        "target_logprob": -0.5,
        "full_context_logprob": -0.25,
        "evaluations": 9,
    }
    assert len(table) == len(FULL)


def test_a_table_of_nothing_has_its_columns() -> None:
    pytest.importorskip("pandas")
    empty = replace(FULL, rationales=())
    assert list(empty.to_dataframe().columns) == list(FULL.to_dataframe().columns)
    assert len(empty.to_dataframe()) == 0


def test_a_table_without_pandas_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'rationales\[dataframe\]'"):
        FULL.to_dataframe()
