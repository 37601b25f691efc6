"""Anything at all is asked: the answer is an explanation or one clear line, never a traceback.

A few seconds in the suite; ``--long`` tries many times as many.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import cache
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import train_tokenizer
from rationales import METHODS, Explainer, Explanation, Options, RationalesError, cli
from rationales.scoring.causal import CausalScorer

from tiny_models import build


@cache
def tiny() -> Explainer:
    tokenizer = train_tokenizer()
    model = build("gpt2", vocab_size=len(tokenizer))
    return Explainer(CausalScorer(model), tokenizer, name="tiny", model=model)


@pytest.fixture
def many(request: pytest.FixtureRequest) -> int:
    """How many examples a test tries for each one of the suite."""
    return 40 if request.config.getoption("--long") else 1


def try_many(examples: int) -> Callable[[Any], Any]:
    return settings(max_examples=examples)


ODD_TEXTS = (
    "", " ", "\n\n", "\0", "\t\r", "\ufeff", "\ud800", "a\udfffb", "🙂🙂", "é", "e\u0301", "ا ب",
    "\u202eabc", "東京は日本の首都です。", "<s> </s>", "--target", "{}", "\\", '"',
    "2024 2024", "[3, 7]", "the " * 80, "x" * 3000,
)  # fmt: skip
WORDS = "The Supreme Court on Tuesday ruled that the law of the land is the law. It is 2024."

texts = st.one_of(
    st.sampled_from([WORDS, "The dog", "a b c d e f g"]), st.sampled_from(ODD_TEXTS), st.text()
)
numbers = st.one_of(
    st.integers(-3, 12),
    st.sampled_from([0, -1, 10**6, 2**63, -(2**70), 1.5, float("nan"), float("inf"), -0.0, 1e-300]),
)
anything = st.one_of(
    st.none(), st.booleans(), numbers, texts, st.lists(st.integers(-9, 9), max_size=3), st.binary(),
    st.just({}), st.just(object),
)  # fmt: skip
names_of_criteria = st.one_of(
    st.sampled_from(["argmax", "top-k=2", "prob=0.1", "ratio=0.5", "top-k=inf", "prob=nan", "="]),
    st.builds("{}={}".format, st.sampled_from(["top-k", "prob", "ratio", "p"]), numbers),
)
targets = st.one_of(
    st.sampled_from(["all", "last", "the", "the#1", "2024#1", "3:7", ":", "::", "7:3", "3,7", "#"]),
    numbers,
    texts,
    st.lists(numbers, max_size=4),
    st.builds("{}:{}".format, st.integers(-9, 9), st.integers(-9, 9)),
)  # fmt: skip
SENSIBLE: dict[str, st.SearchStrategy[Any]] = {
    "generate": st.integers(1, 3),
    "continuation": texts,
    "target": targets,
    "chat": st.booleans(),
    "specials": st.sampled_from(["pinned", "candidate"]),
    "method": st.sampled_from([*METHODS, "gready", ""]),
    "fast": st.booleans(),
    "evaluation": st.sampled_from([None, "deleted", "sparse"]),
    "minimal": st.booleans(),
    "beam": st.integers(1, 4),
    "penalty": st.floats(0.01, 3),
    "unit": st.sampled_from(["token", "word", "sentence", "page"]),
    "coarse_to_fine": st.booleans(),
    "finest": st.sampled_from([None, None, "document", "paragraph", "sentence", "word", "line"]),
    "unit_pattern": st.sampled_from([None, None, r"[^,.]+", r"\w+", "("]),
    "units": st.sampled_from([None, None, [(0, 3), (3, 9)], ((1, 2),), [(5, 2)]]),
    "certify": st.booleans(),
    "language": st.sampled_from(["en", "de", "ja", "xx", "", "no such language", "\0"]),
    "criterion": names_of_criteria,
    "instead_of": texts,
    "disjoint": st.integers(1, 3),
    "span": st.booleans(),
    "max_size": st.integers(1, 5),
    "max_evaluations": st.integers(0, 50),
    "absolute": st.booleans(),
    "keep_candidates": st.integers(0, 3),
    "seed": st.integers(),
    "ig_steps": st.integers(1, 3),
    "src_lang": texts,
    "tgt_lang": texts,
    "prefix": texts,
    "max_length": st.integers(1, 5),
}


@st.composite
def options(draw: st.DrawFn, odd: float = 0.2) -> dict[str, Any]:
    """A few options, most of them sensible one by one."""
    names = draw(st.lists(st.sampled_from(sorted(SENSIBLE)), max_size=4, unique=True))
    rng = draw(st.randoms(use_true_random=False))
    chosen = {name: draw(anything if rng.random() < odd else SENSIBLE[name]) for name in names}
    # Bounds that keep a search of a valid question short.
    chosen.setdefault("max_size", 3)
    if chosen.get("method") == "exhaustive":
        chosen.setdefault("max_evaluations", 50)
    if chosen.get("method") == "integrated-gradients":
        chosen.setdefault("ig_steps", 2)
    return chosen


TOGETHER: tuple[tuple[str, ...], ...] = (
    ("generate", "unit", "minimal", "max_size"),
    ("target", "fast", "criterion", "keep_candidates", "max_size"),
    ("continuation", "span", "disjoint", "max_size"),
    ("target", "coarse_to_fine", "language", "max_size"),
    ("generate", "coarse_to_fine", "finest", "certify"),
    ("target", "unit_pattern", "certify", "span"),
    ("continuation", "units", "minimal"),
    ("target", "instead_of", "max_size"),
    ("generate", "beam", "max_size"),
    ("target", "evaluation", "certify", "max_size"),
    ("target", "specials", "max_size"),
)
"""Options that may well be given together."""


@st.composite
def questions(draw: st.DrawFn) -> dict[str, Any]:
    """Options that most users would give."""
    names = draw(st.sampled_from(TOGETHER))
    chosen = {name: draw(SENSIBLE[name]) for name in names}
    if "target" in chosen and draw(st.booleans()):
        chosen["target"] = draw(st.sampled_from(["last", "all", -1, [3, 7], "3:7", "2:"]))
    return chosen


def test_every_option_is_tried() -> None:
    assert SENSIBLE.keys() == set(Options.__dataclass_fields__)


def test_explain_answers_or_says_what_is_wrong(many: int) -> None:
    said: list[str] = []
    answered = 0

    likely = st.tuples(st.just(WORDS), questions())  # to be answered
    wild = st.tuples(st.one_of(texts, texts, anything), st.one_of(questions(), options()))

    @try_many(150 * many)
    @given(st.one_of(likely, wild))
    def ask(asked: tuple[Any, dict[str, Any]]) -> None:
        nonlocal answered
        text, chosen = asked
        try:
            explanation = tiny().explain(text, **chosen)
        except RationalesError as error:
            said.append(str(error))
            return
        explanations = [explanation] if isinstance(explanation, Explanation) else explanation
        for each in explanations:
            assert isinstance(each, Explanation)
            assert Explanation.from_json(each.to_json()) == each
            assert "\n" not in repr(each)
        answered += 1

    ask()
    assert all(message.strip() and "\n" not in message for message in said)
    assert min(answered, len(said)) >= 10  # both are really tried


# --- the command line


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


INPUTS = ("text.txt", "lines.jsonl", "missing.txt", ".")
OUTPUTS = ("out.json", "text.txt", "lines.jsonl", ".", "sub/out.json", "/dev/full", "-")


@st.composite
def lines_of_json(draw: st.DrawFn) -> bytes:
    """Lines for ``--jsonl``, some of them broken."""
    lines: list[bytes] = []
    for _ in range(draw(st.integers(0, 3))):
        row = {"text": draw(texts), **draw(st.one_of(questions(), options()))}
        plain = {k: v for k, v in row.items() if isinstance(v, str | int | float | bool | list)}
        good = json.dumps(plain).encode("ascii")
        broken = st.sampled_from(
            [b"", b"{", b"[]", b'{"text": 3}', b"\xff", b'{"id": [], "text": "a"}', b"1" * 5000]
        )  # fmt: skip
        lines.append(draw(st.one_of(st.just(good), broken)))
    return b"\n".join(lines)


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """The arguments of ``explain``: a text or a file, and a few options with values."""
    arguments = ["explain"]
    asked = draw(st.one_of(questions(), options(odd=0.1)))
    for name, value in asked.items():
        if name == "keep_candidates":
            arguments += draw(st.sampled_from([["--steps"], ["--steps", str(value)]]))
            continue
        flag = "--" + draw(st.sampled_from(["lambda", "penalty"])) if name == "penalty" else ""
        flag = flag or "--" + name.replace("_", "-")
        arguments += [flag] if isinstance(value, bool) else [flag, str(value)]
    source = draw(st.sampled_from(["text", "text", "file", "jsonl", "stdin", "both"]))
    if source in ("text", "both"):
        arguments.insert(draw(st.integers(1, len(arguments))), draw(texts))
    if source in ("file", "both"):
        arguments += ["--file", draw(st.sampled_from([*INPUTS, "-"]))]
    if source == "jsonl":
        arguments += [
            "--jsonl",
            draw(st.sampled_from(["lines.jsonl", "lines.jsonl", "-", *INPUTS])),
        ]
    if draw(st.booleans()):
        arguments += ["--json", draw(st.sampled_from(OUTPUTS))]
    if draw(st.booleans()):
        arguments += ["--format", draw(st.sampled_from(["table", "tsv", "json", "xml"]))]
    odd = [
        "--no-such-option",
        "--",
        "-",
        "--batch-tokens",
        "0",
        "--dtype",
        "int3",
        "--version",
        "-h",
    ]
    return arguments + draw(st.lists(st.sampled_from(odd), max_size=1))


def test_the_command_line_ends_with_a_code_and_no_traceback(
    many: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rationales.loading.load", lambda *_, **__: tiny())
    codes: dict[int, int] = {}

    @try_many(60 * many)
    @given(command_lines(), lines_of_json(), st.one_of(texts.map(as_bytes), st.binary()))
    def ask(arguments: list[str], lines: bytes, stdin: bytes) -> None:
        (tmp_path / "text.txt").write_bytes(stdin)
        (tmp_path / "lines.jsonl").write_bytes(lines)
        err = StringIO()
        with monkeypatch.context() as patch, (tmp_path / "text.txt").open() as given:
            patch.setattr(sys, "stdin", given)
            patch.setattr(sys, "stdout", TextIOWrapper(BytesIO(), encoding="utf-8"))
            patch.setattr(sys, "stderr", err)
            code = cli.call(arguments)
        assert code in (0, 2, 3), (code, err.getvalue())
        assert "Traceback" not in err.getvalue()
        assert code == 0 or err.getvalue().strip(), "a failure without a word"
        codes[code] = codes.get(code, 0) + 1

    ask()
    assert codes.keys() >= {0, 2}, codes
