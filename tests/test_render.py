"""What a terminal shows: the kept tokens marked, everything on one line each."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from rationales import Candidate, Explanation, Rationale, Step, Token
from rationales.context import Part
from rationales.render import tsv
from rationales.render.marks import BRACKETS, KEPT, highlighted, label, shortened, visible
from rationales.render.proof import source_line
from rationales.render.terminal import show

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
        full_context=Step(None, -0.02, 7, -0.02, " today"),
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


def forced(**changes) -> Rationale:
    """A rationale of a target that is not the model's own choice, and not reached."""
    return replace(
        make()[0],
        sufficient=False,
        predicted=False,
        steps=(Step(4, -6.0, 9, -0.5, " the"), Step(1, -4.0, 8, -0.7, " now")),
        full_context=Step(None, -5.0, 6, -0.3, " tomorrow"),
        **changes,
    )


def drawn(explanation: Explanation, width: int = 100, steps: bool = False, **options) -> str:
    console = Console(file=io.StringIO(), width=width, **{"force_terminal": False, **options})
    show(explanation, console=console, steps=steps)
    return console.file.getvalue()


def row(text: str) -> str:
    """The first line of a table below its header."""
    lines = text.splitlines()
    return lines[next(n for n, line in enumerate(lines) if "context" in line) + 1]


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


def test_documents_of_which_nothing_was_kept_are_cut_out_as_one():
    words = [
        "<user>",
        *[" filler"] * 20,
        "⏎",
        *[" other"] * 20,
        " kept",
        *[" more"] * 40,
        " target",
    ]
    pinned = {0, 21}
    tokens = tuple(Token(i, i, word, i in pinned) for i, word in enumerate(words))
    rationale = Rationale(83, 1, (42,), True, 1, (Step(42, -0.1, 1),), target_text=" target")
    plain = highlighted(make(tokens=tokens, rationales=(rationale,))[0], BRACKETS, room=12).plain
    assert plain == (
        "«<user>»[… 249 characters …]  other other"
        " ‹kept› more more m [… 176 characters …] re more more"
    )


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


# Marks that need no colour --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["a pipe", "NO_COLOR", "TERM=dumb"])
def test_kept_tokens_and_verdicts_are_marked_without_colour(kind, monkeypatch):
    options = {"force_terminal": kind != "a pipe"}
    if kind == "NO_COLOR":
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm-256color")
    if kind == "TERM=dumb":
        monkeypatch.setenv("TERM", "dumb")
    text = drawn(make(rationales=(make()[0], forced())), **options)
    assert "The ‹dog›⏎ barks ‹loudly›" in text.replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert text.count("✓") == 2  # of a row and of the legend
    assert text.count("✗") == 2


def test_with_colour_the_verdict_is_a_sign_too():
    options = {"force_terminal": True, "color_system": "truecolor", "no_color": False}
    text = drawn(make(rationales=(make()[0], forced())), **options)
    assert (text.count("✓"), text.count("✗")) == (2, 2)
    assert "‹" not in text


def test_brackets_are_around_kept_tokens_that_stand_side_by_side():
    [rationale] = make(rationales=(replace(make()[0], indices=(4, 3, 0)),))
    assert highlighted(rationale, BRACKETS).plain == "‹The› dog⏎ ‹barks loudly›"


def test_pinned_tokens_are_marked_as_pinned():
    tokens = (Token(0, 0, "<s>", pinned=True), *make().tokens[1:])
    explanation = make(tokens=tokens)
    assert row(drawn(explanation)).endswith("«<s>» ‹dog›⏎ barks ‹loudly›  ")
    assert "«pinned: always kept»" in drawn(explanation)
    assert "pinned" not in drawn(make())


def test_the_legend_names_the_marks_that_occur_and_no_others():
    def legend(*rationales: Rationale, **options) -> str:
        return drawn(make(rationales=rationales), **options).splitlines()[-1]

    [first] = make()
    assert legend(first) == "‹kept›  ✓ sufficient"
    failed = "‹kept›  ✗ not reached  * not the model's first choice given all"
    assert legend(forced()) == failed
    optimal = replace(first, optimal=True)
    assert legend(optimal) == "‹kept›  ✓ sufficient  ! no smaller subset is sufficient"
    colour = {"force_terminal": True, "color_system": "truecolor", "no_color": False}
    assert "dropped" in legend(first, **colour)
    assert "dropped" not in legend(replace(first, indices=(4, 3, 2, 1, 0)), **colour)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_a_terminal_cannot_encode_is_replaced(encoding):
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    tokens = (Token(0, 0, "日本"), *make().tokens[1:])
    explanation = make(tokens=tokens, rationales=(make()[0], forced()))
    show(explanation, console=Console(file=file, width=100), steps=True)
    text = file.buffer.getvalue().decode(encoding)
    if encoding == "ascii":
        assert "???? [dog]/ barks [loudly]" in text
        assert "+ sufficient  x not reached" in text
    if encoding == "utf-8":
        assert "日本 ‹dog›⏎" in text


# Columns, and which of them yield -------------------------------------------------------------


def test_both_probabilities_stand_in_the_table():
    text = drawn(make())
    assert "98.0%    90.5%" in row(text)  # exp(-0.02) given all, exp(-0.1) given the rationale
    # A rationale can be sufficient at a low probability, and that is seen.
    low = Step(4, math.log(0.015), 7, math.log(0.015), " today")
    assert "1.5%" in row(drawn(make(rationales=(replace(make()[0], steps=(low,)),))))


def test_an_explanation_from_an_older_file_has_no_such_column():
    text = drawn(make(rationales=(replace(make()[0], full_context=None),)))
    assert "90.5%" in row(text)
    assert "all" not in text


def test_the_choice_of_the_model_is_named_where_it_is_another_one():
    text = drawn(make(rationales=(forced(),)))
    assert '"tomorrow" 74.1% given all' in text
    assert '"now" 49.7% given kept' in text
    same = replace(forced(), steps=(forced().full_context,))
    assert '"tomorrow" 74.1%  The' in row(drawn(make(rationales=(same,))))
    assert "the model" not in drawn(make())
    narrow = " ".join(drawn(make(rationales=(same,)), width=40).split())
    assert 'the model says "tomorrow" 74.1%' in narrow


def test_columns_yield_in_order():
    explanation = make(rationales=(make()[0], forced()))
    for width in (30, 40, 60, 80, 120):
        text = drawn(explanation, width=width)
        assert max(map(cell_len, text.splitlines())) <= width
        assert row(text).split()[:3] == ["✓", "today", "2"]
        assert "‹dog›" in text
        flat = " ".join(text.split())
        assert '"tomorrow"' in flat
        assert ("p given" in flat) >= ("the model says" not in flat)
        assert ("98.0%" in text) <= ("90.5%" in text)
    assert "90.5%" in drawn(explanation, width=60)
    assert "98.0%" in drawn(explanation, width=80)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_long_target_leaves_room_for_the_rationale(width):
    answer = " The capital of Japan is Tokyo, where more than thirteen million people live" * 3
    long = replace(make()[0], target_text=answer, target_length=48)
    text = drawn(make(rationales=(long,)), width=width, steps=True)
    assert max(map(cell_len, text.splitlines())) <= width
    first = row(text)
    assert "…" in first
    assert " 2 " in first
    assert "‹dog›" in text


@pytest.mark.parametrize("width", [40, 80, 120])
def test_steps_of_long_units_show_their_probabilities(width):
    sentence = "In the second year the chair resigned, and nobody wanted to take over. " * 3
    tokens = (*(Token(i, i, sentence) for i in range(5)), Token(5, 5, " today"))
    unit = (make()[0].steps[0], replace(make()[0].steps[1], unit=(0, 1)))
    explanation = make(tokens=tokens, rationales=(replace(make()[0], steps=unit),))
    text = drawn(explanation, width=width, steps=True)
    steps = text[text.index("how today was reached") :]
    assert max(map(cell_len, steps.splitlines())) <= width
    assert "…" in steps
    assert "4.98%" in steps  # exp(-3)
    assert "90.5%" in steps
    assert "today 90.5%" in " ".join(steps.split())  # what the model then says


def test_shortened_texts_fit_whatever_their_letters():
    assert shortened("short", 5) == "short"
    assert shortened("abcdefghij", 5) == "ab…ij"
    for text in ("日本語の文章を短くする", "a日b本c語d文e", "🙂" * 20):
        for width in range(3, 12):
            assert cell_len(shortened(text, width)) <= width


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


def test_messages_of_the_same_role_are_told_apart():
    words = ["The law", "The dog", "So", " it"]
    parts = tuple(Part("message", "user", i, i + 1) for i in (0, 1))
    parts += (Part("message", "system", 2, 3),)
    rationale = Rationale(3, 1, (2, 1), True, 1, target_text=" it")
    tokens = tuple(Token(i, i, word) for i, word in enumerate(words))
    found = make(tokens=tokens, parts=parts, rationales=(rationale,))
    said = "message 'user' (2 of 2): The dog · message 'system': So"
    assert source_line(found, found[0]) == said
    long = replace(found, tokens=(tokens[0], Token(1, 1, "The dog " * 40), *tokens[2:]))
    assert len(source_line(long, long[0]) or "") < 120
