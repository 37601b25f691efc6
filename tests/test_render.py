"""What a terminal shows: the kept tokens marked, everything on one line each."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from rationales import Candidate, Explanation, Rationale, Step, Token
from rationales.render import tsv
from rationales.render.terminal import KEPT, highlighted, label, show, visible

WORDS = ["The", " dog", "\n", " barks", " loudly", " today"]


def make(**changes) -> Explanation:
    steps = (
        Step(4, -3.0, 9, -0.5, " the"),
        Step(1, -0.1, 7, -0.1, " today", candidates=(Candidate(1, -0.1), Candidate(0, -2.0))),
    )
    rationale = Rationale(
        target=5,
        target_id=7,
        indices=(4, 1),
        sufficient=True,
        evaluations=5,
        steps=steps,
        predicted=True,
        target_text=" today",
    )
    fields = {
        "model": "tiny",
        "method": "greedy",
        "evaluation": "sparse",
        "tokens": tuple(Token(i, i, text) for i, text in enumerate(WORDS)),
        "rationales": (rationale,),
        "seconds": 1.25,
    }
    return Explanation(**{**fields, **changes})


def drawn(explanation: Explanation, **options) -> str:
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    show(explanation, console=console, **options)
    return console.file.getvalue()


def test_kept_tokens_are_marked_without_the_space_before_them():
    text = highlighted(make()[0])
    marked = [text.plain[span.start : span.end] for span in text.spans if span.style == KEPT]
    assert marked == ["dog", "loudly"]
    assert text.plain == "The dog⏎ barks loudly"


def test_long_dropped_stretches_are_cut():
    words = ["start", *[" filler"] * 60, " kept", " target"]
    rationale = Rationale(62, 1, (61,), True, 1, (Step(61, -0.1, 1),), target_text=" target")
    explanation = make(
        tokens=tuple(Token(i, i, word) for i, word in enumerate(words)), rationales=(rationale,)
    )
    plain = highlighted(explanation[0]).plain
    assert "characters …]" in plain
    assert plain.endswith("kept")
    assert len(plain) < 120


def test_the_table_and_its_header():
    text = drawn(make())
    assert text.startswith("tiny · greedy · sparse evaluation · 1.2 s\n")
    assert "today" in text
    assert "not reached" not in text
    assert "was reached" not in text


def test_steps_show_probabilities_choices_and_candidates():
    text = drawn(make(), steps=True)
    assert "how today was reached" in text
    assert "90.5%" in text  # exp(-0.1)
    assert "dog 90.5%, The 13.5%" in text


def test_what_is_missing_is_said():
    from dataclasses import replace

    failed = replace(make()[0], sufficient=False, predicted=False, stopped="max-size")
    text = drawn(make(rationales=(failed,), unexplainable=(0,), complete=False), steps=True)
    assert "token 0 'The' has nothing before it: unexplainable" in text
    assert "interrupted" in text
    assert "not reached" in text
    assert "today*" in text
    assert "stopped: max-size" in text


def test_the_console_of_the_user_is_used_by_default(capsys):
    make().show()
    assert "greedy" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "shown"), [("a\nb", "a⏎b"), ("\t", "⇥"), ("\x07", "�"), ("", "·"), (" x", " x")]
)
def test_control_characters_are_visible(text, shown):
    assert visible(text) == shown


def test_labels_are_never_empty():
    assert label(" word") == "word"
    assert label(" ") == "␣"


def test_markup_in_a_text_is_text():
    explanation = make(tokens=tuple(Token(i, i, "[bold]x[/bold]") for i in range(6)))
    assert "[bold]x[/bold]" in drawn(explanation, steps=True)


def test_lines_for_a_pipe_keep_to_one_line_each():
    explanation = make(tokens=tuple(Token(i, i, "a\tb\n") for i in range(6)))
    [line] = tsv.lines(explanation)
    assert line.count("\t") == len(tsv.COLUMNS) - 1
    assert "\n" not in line
