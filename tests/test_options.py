"""Options: who reads which, what is refused and under which name, and that no model is loaded."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from dataclasses import fields
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rationales import METHODS, Options, RationalesError, Score, TableScorer, rationalize, reading
from rationales.cli.arguments import Question, option_group
from rationales.context import causal_context
from rationales.errors import OptionError
from rationales.options import DEFAULTS, READ_BY, OptionKeywords, check_input

TEXT = "the dog sat on the"
GIVEN: dict[str, Any] = {
    "fast": True,
    "coarse_to_fine": True,
    "keep_candidates": 2,
    "max_evaluations": 9,
    "beam": 9,
    "penalty": 0.2,
    "absolute": True,
    "ig_steps": 7,
    "seed": 3,
}
"""A value for each option that only some methods read."""


def refused(**options: Any) -> str:
    with pytest.raises(RationalesError) as error:
        Options(**options)
    assert "\n" not in str(error.value)
    return str(error.value)


# --- methods


def test_every_option_that_some_methods_read_is_tried_here():
    assert GIVEN.keys() == READ_BY.keys()
    assert {method for methods in READ_BY.values() for method in methods} <= METHODS.keys()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", READ_BY)
def test_a_method_takes_the_options_that_it_reads_and_no_others(name, method):
    if method in READ_BY[name]:
        assert getattr(Options(method=method, **{name: GIVEN[name]}), name) == GIVEN[name]
    else:
        message = refused(method=method, **{name: GIVEN[name]})
        assert message.startswith(f"{name} goes with the method {READ_BY[name][0]}")
        assert f"not {method}" in message


def test_a_beam_alone_is_the_method_beam():
    assert Options(beam=9).method == "beam"
    assert Options().change(beam=9).method == "beam"
    assert Options(beam=9) == Options(method="beam", beam=9)
    assert Options(beam=9).change(beam=None).method == "greedy"
    assert Options(method=None).method == Options().method == "greedy"
    assert "not greedy" in refused(method="greedy", beam=9)
    with pytest.raises(RationalesError, match="not greedy"):
        Options(method="greedy").change(beam=9)
    for same in (copy.copy, lambda options: pickle.loads(pickle.dumps(options))):
        assert same(Options()).change(beam=9).method == "beam"


def test_an_unknown_method_is_refused_at_once():
    assert "unknown method 'nope'" in refused(method="nope")


def test_redundant_options_are_accepted():
    Options(fast=True, minimal=True)
    Options(method="exhaustive", minimal=True)
    Options(method="greedy", unit="token", criterion="argmax", coarse_to_fine=True)
    Options(instead_of="x", criterion="argmax")
    Options(chat=True, specials="pinned")
    Options(method="soft", disjoint=1, minimal=False)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"generate": 8, "continuation": "x"}, "leave out generate: continuation"),
        ({"max_length": 3, "continuation": "x"}, "leave out max_length: continuation"),
        ({"specials": "candidate", "chat": True}, "leave out specials or chat"),
        ({"language": "de"}, "leave out language"),
        ({"language": "de", "unit": "word"}, "leave out language"),
        ({"language": "", "unit": "sentence"}, "language is empty"),
        ({"method": "soft", "disjoint": 2}, "soft weighs size against probability"),
        ({"target": []}, "at least one"),
        ({"target": [1, True]}, "a list of whole numbers"),
        ({"target": (1, "2")}, "a list of whole numbers"),
        ({"target": {3}}, "target must be all, last, an index"),
        ({"target": True}, "target must be all, last, an index"),
        ({"max_evaluations": -1, "method": "exhaustive"}, "max_evaluations must be at least 0"),
        ({"method": 5}, "method must be the name of a method"),
        ({"continuation": ""}, "continuation is empty"),
    ],
    ids=str,
)
def test_an_input_that_does_not_read_an_option(options, says):
    assert says in refused(**options)


@pytest.mark.parametrize(
    "level", ["inf", "nan", "1e400", "-1", "-inf", "", "0", "1.5", "x", "=", "1=1"]
)
@pytest.mark.parametrize("kind", ["top-k", "argmax"])
def test_a_criterion_that_is_none_is_one_clear_error(kind, level):
    assert "criterion must be argmax, top-k=K" in refused(criterion=f"{kind}={level}")


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 12),
    st.floats(),
    st.lists(st.integers(-3, 3), max_size=3),
    st.text(max_size=4),
    st.sampled_from([*METHODS, "word", "sentence", "candidate", "top-k=inf", "prob=0.5", "last"]),
)


@given(st.dictionaries(st.sampled_from([field.name for field in fields(Options)]), VALUES))
def test_options_are_made_or_refused_in_one_line(given_options):
    try:
        options = Options(**given_options)
    except RationalesError:
        with pytest.raises(RationalesError) as error:
            Options().change(**given_options)
        assert "{" not in str(error.value) or "{" in str(given_options)
        return
    assert Options().change(**given_options) == options
    assert hash(options) == hash(options.change())
    for name, methods in READ_BY.items():
        assert options.method in methods or not options.is_given(name)
    json.dumps(options.shaping())


# --- defaults


def test_what_is_not_given_has_one_default():
    options = Options()
    for name, default in DEFAULTS.items():
        assert getattr(options, name) is None
        assert options.value(name) == default
    assert Options(method="random", seed=0).value("seed") == 0
    assert Options(beam=9).value("beam") == 9


def test_what_shapes_a_rationale_is_recorded():
    assert Options().shaping() == {}
    assert Options(method="beam").shaping() == {"beam": 3}
    assert Options(method="soft").shaping() == {"penalty": 0.5}
    given_options = {"unit": "sentence", "language": "de"}
    assert Options(**given_options).shaping() == given_options
    assert Options(method="random", seed=3).shaping() == {}


def test_a_budget_of_0_is_no_limit():
    context = causal_context(tuple(range(9)), 8, frozenset())
    scorer = TableScorer(lambda kept: Score(-float(9 - len(kept)), 8 if len(kept) > 7 else 1))
    limited = rationalize(context, scorer, method="exhaustive", max_evaluations=9)
    assert limited.stopped == "budget"
    assert rationalize(context, scorer, method="exhaustive", max_evaluations=0).sufficient
    assert rationalize(context, scorer, method="exhaustive").sufficient


# --- kinds of input


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("causal", {"src_lang": "de"}),
        ("causal", {"tgt_lang": "de"}),
        ("causal", {"prefix": "x"}),
        ("causal", {"max_length": 3}),
        ("seq2seq", {"chat": True}),
        ("seq2seq", {"generate": 8}),
        ("ids", {"generate": 8}),
        ("ids", {"target": "last"}),
        ("ids", {"continuation": "x"}),
        ("ids", {"specials": "candidate"}),
        ("ids", {"unit": "sentence", "language": "de"}),
        ("ids", {"max_length": 3}),
    ],
)
def test_an_option_that_a_kind_of_input_never_reads(kind, options):
    name = next(iter(options))
    with pytest.raises(RationalesError, match=f"leave out {name}: "):
        check_input(Options(**options), kind)


def test_rollout_is_not_for_translations():
    check_input(Options(method="attention-rollout"), "causal")
    with pytest.raises(RationalesError, match="another method, such as last-attention"):
        check_input(Options(method="attention-rollout"), "seq2seq")


def test_the_language_reaches_the_sentences(tiny_explainer, monkeypatch):
    seen = []
    plain = reading.group
    monkeypatch.setattr(
        reading,
        "group",
        lambda tokens, unit, language, **more: (
            seen.append((unit, language)) or plain(tokens, unit, language, **more)
        ),
    )
    tiny_explainer.explain(TEXT, generate=1, unit="sentence", language="de", max_size=1)
    assert set(seen) == {("sentence", "de")}
    tiny_explainer.explain(TEXT, generate=1, coarse_to_fine=True, language="fr", max_size=1)
    assert ("sentence", "fr") in seen
    tiny_explainer.explain(TEXT, generate=1, unit="sentence", max_size=1)
    assert seen[-1] == ("sentence", "en")


def test_a_span_is_of_tokens_that_follow_each_other(tiny_explainer):
    text = "the law of the land is the law"
    [rationale] = tiny_explainer.explain(text, target="2:5", span=True)
    assert (rationale.target, rationale.target_length) == (2, 3)
    with pytest.raises(RationalesError, match="span takes tokens that follow each other"):
        tiny_explainer.explain(text, target=[2, 5], span=True)


# --- names


def test_an_error_names_options_as_they_were_typed():
    with pytest.raises(OptionError) as caught:
        Options(max_size=0)
    error = caught.value
    assert str(error) == "max_size must be at least 1, not 0"
    assert error.named(str.upper) == "MAX_SIZE must be at least 1, not 0"
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    braces = OptionError("{unit} must be …, not {value!r}", value="{beam}")
    assert str(braces) == "unit must be …, not '{beam}'"


@pytest.fixture
def unloaded(run, monkeypatch):
    """Runs a command whose model must not be loaded: its one line on standard error."""

    def load(*arguments: Any, **more: Any) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("rationales.loading.load", load)

    def _run(*arguments: str, stdin: str | None = None) -> str:
        code, out, err = run(*arguments, stdin=stdin, model=False)
        assert (code, out) == (2, "")
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        return str(err)

    return _run


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--beam", "9", "--method", "greedy"], "--beam goes with the method beam, not greedy"),
        (["--lambda", "0.1"], "--penalty goes with the method soft"),
        (["--penalty", "0.1"], "--penalty goes with the method soft"),
        (["--method", "soft", "--lambda", "0"], "--penalty must be more than 0"),
        (["--ig-steps", "7"], "--ig-steps goes with the method integrated-gradients, not greedy"),
        (["--seed", "0"], "--seed goes with the method random"),
        (["--max-evaluations", "9"], "--max-evaluations goes with the method exhaustive"),
        (["--method", "random", "--steps", "3"], "the K of --steps goes with the method greedy"),
        (["--method", "random", "--absolute"], "--absolute goes with"),
        (["--max-size", "0"], "--max-size must be at least 1"),
        (["--criterion", "top-k=inf"], "--criterion must be argmax"),
        (["--language", "de"], "give --unit sentence or --coarse-to-fine"),
        (["--instead-of", "x", "--criterion", "prob=1"], "--instead-of is a criterion"),
        (["--generate", "3", "--continuation", "x"], "leave out --generate: --continuation"),
        (["--chat", "--specials", "candidate"], "leave out --specials or --chat"),
        (["--batch-tokens", "0"], "--batch-tokens must be at least 1"),
        (["--dtype", "int3"], "--dtype must be float32, bfloat16, float16 or auto, not 'int3'"),
        (["--device", "gpu"], "--device must be cpu, cuda, mps or xpu"),
        (["--model", "./no/such/model"], "there is no file or folder ./no/such/model"),
        (["--adapter", "no-such-folder"], "holds no adapter"),
    ],
    ids=" ".join,
)
def test_the_command_line_refuses_before_it_loads(unloaded, arguments, says):
    assert says in unloaded("explain", TEXT, *arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--method", "attention-rollout"], "give another --method"),
        (["--max-length", "3", "--continuation", "x"], "leave out --max-length: --continuation"),
        (["--ig-steps", "7"], "--ig-steps goes with"),
    ],
)
def test_translate_refuses_before_it_loads(unloaded, arguments, says):
    assert says in unloaded("translate", TEXT, *arguments)


@pytest.mark.parametrize(
    ("kind", "flags", "line", "says"),
    [
        ("causal", {}, {"max_length": 3}, "leave out max_length: it is for translation"),
        ("causal", {}, {"penalty": 0.2}, "penalty goes with the method soft"),
        ("causal", {"beam": 2}, {"method": "soft"}, "--beam goes with the method beam, not soft"),
        ("causal", {"method": "soft"}, {"beam": 2}, "beam goes with the method beam, not soft"),
        ("causal", {}, {"method": "nope"}, "unknown method 'nope'"),
        ("causal", {}, {"colour": 1}, "unknown option 'colour'"),
        ("seq2seq", {}, {"chat": True}, "leave out chat: an encoder"),
        ("seq2seq", {}, {"generate": 3, "max_length": 3}, "max_length bounds it"),
        ("seq2seq", {}, {"method": "attention-rollout"}, "give another method"),
    ],
)
def test_a_line_of_json_is_refused_by_its_keys_and_the_flags(kind, flags, line, says):
    with pytest.raises(RationalesError) as error:
        Question(kind, flags).options(line)
    assert says in str(error.value)
    assert Question(kind, flags).options(dict.fromkeys(flags)).method == "greedy"  # null: not given


def test_flags_that_only_the_lines_give_a_meaning(run, tmp_path):
    path = tmp_path / "in.jsonl"
    line = {"text": TEXT, "method": "random", "target": [2, -1]}
    path.write_text(json.dumps(line) + "\n", encoding="utf-8")
    code, out, err = run("explain", "--jsonl", str(path), "--seed", "3", "--max-size", "2")
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert data["method"] == "random"
    assert [found["target"] for found in data["rationales"]] == [2, len(data["tokens"]) - 1]


def test_a_beam_alone_is_the_method_beam_on_the_command_line(run, tmp_path):
    code, out, _ = run("explain", TEXT, "--beam", "2", "--generate", "1", "--json", "-")
    assert code == 0
    assert json.loads(out)["method"] == "beam"
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps({"text": TEXT, "beam": 2, "generate": 1}), encoding="utf-8")
    assert json.loads(run("explain", "--jsonl", str(path))[1])["options"] == {"beam": 2}


@pytest.mark.parametrize("name", ["--penalty", "--lambda"])
def test_the_penalty_has_two_names(run, name):
    arguments = ("--method", "soft", name, "2", "--generate", "1", "--json", "-")
    assert json.loads(run("explain", TEXT, *arguments)[1])["options"] == {"penalty": 2.0}
    assert "--lambda" in run("explain", "--help", model=False)[1]


def test_a_folder_of_trained_weights_is_no_adapter(unloaded, tmp_path):
    record = {"base": {"fingerprints": {"float32": "x"}}}
    (tmp_path / "compat.json").write_text(json.dumps(record), encoding="utf-8")
    assert "give it as --model" in unloaded("explain", TEXT, "--adapter", str(tmp_path))


def test_what_is_refused_early_needs_no_torch(tmp_path):
    code = (
        "import sys\n"
        "from rationales import cli\n"
        "for more in (['--batch-tokens', '0'], ['--adapter', 'none-such'], ['--dtype', 'x'],\n"
        "             ['--model', './none'], ['--seed', '1'], ['--device', 'cuda:x']):\n"
        "    assert cli.call(['explain', 'text', *more]) == 2, more\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_default_adapter_and_none_are_no_folders(run):
    code, _, err = run("explain", TEXT, "--adapter", "none", "--generate", "1")
    assert (code, err) == (0, "")


def test_python_has_the_names_of_the_command_line():
    """Every flag about a text or a search is a field of Options, with the same name."""
    # The first is --steps K, the second a list of pairs.
    names = {field.name for field in fields(Options)} - {"keep_candidates", "units"}
    found = set()
    for kind in ("causal", "seq2seq"):
        group = fields(option_group(kind))
        assert all(field.default == getattr(Options, field.name) for field in group)
        found |= {field.name for field in group}
    assert found == names


def test_the_keywords_of_explain_are_the_fields_of_options():
    hints, keywords = get_type_hints(Options), get_type_hints(OptionKeywords)
    assert keywords.keys() == hints.keys()
    assert {name: hint for name, hint in hints.items() if keywords[name] != hint} == {}
