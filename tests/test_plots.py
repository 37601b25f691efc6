"""Figures of explanations: what is in them, what they are written to, and hostile texts."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from itertools import pairwise
from math import log
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from rationales import (
    Candidate,
    Explanation,
    MissingExtraError,
    Rationale,
    RationalesError,
    Step,
    Token,
)
from rationales.errors import RationalesWarning
from rationales.render.matrix import ALL_COLUMNS, MOST, PAGE

HOSTILE = (
    *("$x^2$", r"\frac{$", "</text><script>alert(1)</script>", "\u202eevil\u202c", "a\nb\r\tc"),
    *(
        "x" * 10_000,
        "e" + "\u0301" * 10_000,
        "&amp;",
        "\x00\x1b[31m",
        "\ud800",
        "",
        " ",
        "_x",
        "%s",
    ),
)
UNDRAWABLE = ("中文", "🙂", "👩\u200d👩")


def made(
    texts: Any, *found: Rationale, pinned: tuple[int, ...] = (), source: int = 0
) -> Explanation:
    sides = ["source" if i < source else "target" for i in range(len(texts))]
    tokens = tuple(
        Token(i, i, text, pinned=i in pinned, side=sides[i] if source else None)  # type: ignore[arg-type]
        for i, text in enumerate(texts)
    )
    return Explanation("tiny", "greedy", "sparse", tokens, found, 1.0)


def rationale(target: int, *indices: int, sufficient: bool = True, **more: Any) -> Rationale:
    return Rationale(target, target, indices, sufficient, 9, **more)


def words(length: int) -> list[str]:
    return [f" word{i}" for i in range(length)]


def cells(figure: Figure) -> list[Rectangle]:
    return [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]


def empty_cells(figure: Figure) -> int:
    return len(figure.axes[0].collections[0].get_paths())


def columns(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].get_xticklabels()]


def rows(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].get_yticklabels()]


def written(figure: Figure) -> str:
    """The texts in the axes and around them, each on a line."""
    texts = [*figure.axes[0].texts, *figure.texts, *figure.legends[0].get_texts()]
    return "\n".join(text.get_text().replace("\n", " ") for text in texts)


COURT = made(
    ["<s>", "The", " Supreme", " Court", " over", "rul", "ed", " it"],
    rationale(4, 3, 2),
    rationale(5, 4, sufficient=False),
    rationale(6, 5, 4, 3, predicted=False),
    rationale(7, 6, 1, alternatives=(rationale(7, 6, 3),)),
    pinned=(0,),
)
STEPS = tuple(
    Step(index, log(p), token, log(q), text, candidates)
    for index, p, token, q, text, candidates in (
        (6, 0.1, 90, 0.3, " them", ()),
        (1, 0.2, 90, 0.25, " them", (Candidate(1, log(0.2)), Candidate(2, log(0.15)))),
        (3, 0.4, 7, 0.4, " it", (Candidate(3, log(0.4)), Candidate(4, log(0.1)))),
    )
)
GROWN = replace(
    COURT,
    rationales=(
        rationale(6, 5),
        rationale(7, 6, 1, 3, steps=STEPS, full_context=Step(None, log(0.8), 7)),
    ),
)
PAIR = made(
    ["Je", " pense", "</s>", "I", " think", " so"],
    rationale(3, 0),
    rationale(4, 3, 1),
    rationale(5, 4),
    pinned=(2,),
    source=3,
)


# --- the matrix


def test_a_matrix_has_a_row_per_target_and_a_column_per_token_that_is_not_pinned() -> None:
    figure = COURT.plot()
    assert columns(figure) == ["The", "Supreme", "Court", "over", "rul", "ed"]
    assert rows(figure) == ["over", "rul", "ed*", "it", "or"]
    assert len(cells(figure)) == 2 + 1 + 3 + 2 + 2
    assert empty_cells(figure) + len(cells(figure)) == 3 + 4 + 5 + 6 + 6
    assert rows(COURT.plot(target=7)) == ["it", "or"]


def test_numbers_are_the_order_and_verdicts_differ_by_their_hatch() -> None:
    figure = COURT.plot()
    hatched = [cell for cell in cells(figure) if cell.get_hatch()]
    assert len(hatched) == 1
    numbers = re.findall(r"^\d$", written(figure), re.MULTILINE)
    assert "".join(numbers) == "1211231212"
    assert "kept, sufficient\nkept, not sufficient" in written(figure)
    assert "*: not the model's first choice" in written(figure)
    assert "not sufficient" not in written(PAIR.plot())


def test_tokens_of_one_unit_have_one_number() -> None:
    whole = rationale(7, 6, 5, 4, 3, units=((6, 5, 4), (3,)))
    figure = replace(COURT, rationales=(whole,)).plot()
    assert re.findall(r"^\d$", written(figure), re.MULTILINE) == ["1", "1", "1", "2"]


def test_brackets_join_the_tokens_of_a_word() -> None:
    figure = COURT.plot()
    above, beside = figure.axes[0].lines
    assert above.get_xdata()[0] == pytest.approx(2.5, abs=0.1)  # over-rul-ed
    assert above.get_xdata()[1] == pytest.approx(5.5, abs=0.1)
    assert beside.get_ydata() == pytest.approx([-0.5, 2.5], abs=0.1)
    assert not made(words(4), rationale(3, 2)).plot().axes[0].lines


def test_a_translation_has_two_blocks() -> None:
    figure = PAIR.plot()
    assert columns(figure) == ["Je", "pense", "I", "think"]
    places = figure.axes[0].get_xticks()
    assert places[2] - places[1] > 1.5
    assert "source\ntarget prefix" in written(figure)
    assert empty_cells(figure) + len(cells(figure)) == 2 + 3 + 4


@pytest.mark.parametrize("length", [10, 30, ALL_COLUMNS])
@pytest.mark.parametrize("targets", [1, 40])
def test_a_matrix_fits_a_page_and_can_be_read(length: int, targets: int) -> None:
    first = max(1, length - targets + 1)
    found = [rationale(t, t - 1, 0) if t > 1 else rationale(1, 0) for t in range(first, length + 1)]
    figure = made(words(length + 1), *found).plot()
    width, height = figure.get_size_inches()
    assert width <= PAGE + 0.01
    assert height <= 9
    assert len(columns(figure)) == length
    sizes = [t.get_fontsize() for t in (*figure.axes[0].get_xticklabels(), *figure.texts)]
    assert min(sizes) >= 4.5
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].get_xticklabels()]
    if figure.axes[0].get_xticklabels()[0].get_rotation() == 90:  # names touch at most
        assert all(b.x0 - a.x0 > 0.75 * a.width for a, b in pairwise(boxes))
    assert all(box.x0 >= 0 and box.y1 <= figure.bbox.y1 for box in boxes)


def test_of_a_long_context_only_kept_tokens_have_columns_and_the_figure_says_so() -> None:
    figure = made(words(501), rationale(499, 498, 3), rationale(500, 499, 4, 200)).plot()
    assert columns(figure) == [f"word{i}" for i in (3, 4, 200, 498, 499)]
    assert len(figure.axes[0].lines) == 3  # gaps: at the beginning, and around 200
    assert "5 of 500 context tokens are shown, those that are kept" in written(figure)


def test_there_is_a_limit_to_rows_and_columns_and_the_figure_says_so() -> None:
    found = [rationale(t, t - 1, sufficient=False) for t in range(1, 2 * MOST)]
    figure = made(words(2 * MOST), *found).plot()
    assert len(rows(figure)) == len(columns(figure)) == MOST
    assert f"The first {MOST} of {2 * MOST - 1} rows" in written(figure)
    whole = made(words(MOST + 51), rationale(MOST + 50, *range(MOST + 50))).plot()
    assert len(columns(whole)) == MOST
    assert f"the first of {MOST + 50} that are kept" in written(whole)


# --- steps and candidates


def test_steps_show_the_probability_the_first_choice_and_the_token_added() -> None:
    figure = GROWN.plot(kind="steps")
    panel = figure.axes[0]
    assert columns(figure) == ["ed", "The", "Court"]
    [above] = panel.child_axes
    assert [t.get_text() for t in above.get_xticklabels()] == ["them", "them", "it"]
    lines = {line.get_label(): list(line.get_ydata()) for line in panel.lines}
    assert lines["“it”"] == pytest.approx([0.1, 0.2, 0.4])
    assert lines["model's first choice"] == pytest.approx([0.3, 0.25, 0.4])
    assert lines["sufficient"] == pytest.approx([0.4])
    assert lines["given the full context"] == pytest.approx([0.8, 0.8])


def test_steps_of_a_failed_search_have_no_point_of_sufficiency() -> None:
    bare = tuple(Step(None, -float("inf"), 3) for _ in range(200))
    failed = rationale(7, sufficient=False, steps=bare)
    figure = replace(COURT, rationales=(failed,)).plot(kind="steps")
    assert [line.get_label() for line in figure.axes[0].lines] == ["“it”"]
    assert len(columns(figure)) <= 80
    assert columns(figure)[0] == "(pinned only)"


def test_candidates_are_bars_and_the_chosen_one_is_marked() -> None:
    figure = GROWN.plot(kind="candidates")
    assert rows(figure) == ["Court", "over"]
    assert [bar.get_width() for bar in cells(figure)] == pytest.approx([0.4, 0.1])
    told = [text.get_text() for text in figure.axes[0].texts]
    assert told == ["40.0%  ← added", "10.0%"]
    assert figure.get_suptitle() == "Step 3 of 3; kept before: The … ed"
    assert figure.axes[0].lines[0].get_xdata()[0] == pytest.approx(0.2)


def test_candidates_with_one_text_are_told_apart_and_the_chosen_one_is_always_there() -> None:
    step = replace(STEPS[2], candidates=(Candidate(1, -1.0), Candidate(2, -2.0)))
    found = rationale(7, 6, 3, steps=(STEPS[0], step))
    figure = made([" a"] * 8, found).plot(kind="candidates")
    assert rows(figure) == ["a (3)", "a (1)", "a (2)"]
    assert figure.axes[0].texts[0].get_text().endswith("added")
    certain = replace(step, target_logprob=0.0)
    figure = made([" a"] * 8, rationale(7, 6, 3, steps=(STEPS[0], certain))).plot(kind="candidates")
    assert max(figure.axes[0].get_xticks()) == 1  # there is no probability of 1.2
    assert figure.axes[0].get_xlim()[1] > 1.2  # but room for the numbers


# --- files


@pytest.mark.parametrize("kind", ["matrix", "steps", "candidates"])
def test_figures_are_written(kind: str, tmp_path: Path) -> None:
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".PDF", b"%PDF")):
        path = tmp_path / f"figure{suffix}"
        figure = GROWN.plot(path, kind=kind)
        assert isinstance(figure, Figure)
        first = path.read_bytes()
        assert first.startswith(start)
        GROWN.plot(str(path), kind=kind)
        assert path.read_bytes() == first


def test_a_notebook_shows_a_figure() -> None:
    png, size = COURT.plot()._repr_png_()  # type: ignore[attr-defined]
    assert png.startswith(b"\x89PNG")
    assert size["width"] > size["height"] / 2


@pytest.mark.parametrize("kind", ["matrix", "steps", "candidates"])
@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_hostile_texts_are_shown_and_nothing_else(kind: str, suffix: str, tmp_path: Path) -> None:
    number = len(HOSTILE)
    steps = [Step(i, -1.0, i, -0.5, text) for i, text in enumerate(HOSTILE)]
    steps[-1] = replace(steps[-1], candidates=tuple(Candidate(i, -1.0) for i in range(number)))
    found = rationale(
        number, *range(number), target_text="$x^2$ </text>\u202e" * 999, steps=tuple(steps)
    )
    path = tmp_path / f"figure.{suffix}"
    figure = made([*HOSTILE, "$x^2$"], found).plot(path, kind=kind)
    names = columns(figure) if kind != "candidates" else rows(figure)
    assert "$x^2$" in names
    assert all(len(each) < 60 and each.isprintable() for each in (*names, *rows(figure)))
    assert max(figure.get_size_inches()) < 9
    assert not any("\u0301" * 4 in each for each in names)
    if suffix == "svg":
        tree = ElementTree.parse(path)
        tags = {element.tag.split("}")[-1] for element in tree.iter()}
        assert "script" not in tags
        texts = [element.text for element in tree.iter() if element.tag.endswith("}text")]
        assert "$x^2$" in texts
        assert "\u202e" not in path.read_text(encoding="utf-8")


def test_characters_that_no_font_has_are_named_where_boxes_are_drawn(tmp_path: Path) -> None:
    explanation = made([*UNDRAWABLE, " so"], rationale(3, 2, 1))
    explanation.plot(tmp_path / "x.svg")
    assert "中文" in (tmp_path / "x.svg").read_text(encoding="utf-8")
    unknown = made(["\U00012345", " so"], rationale(1, 0))  # a cuneiform sign
    with pytest.warns(RationalesWarning, match="no font here has '\U00012345'") as caught:
        unknown.plot(tmp_path / "x.png")
    assert len(caught) == 1


# --- errors


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"path": "x.jpg"}, "cannot draw x.jpg: its name must end in .png, .svg, .pdf"),
        ({"path": "x"}, "must end in .png"),
        ({"kind": "pie"}, "there is no plot 'pie': choose from matrix, steps, candidates"),
        ({"target": 3}, "3 is not the index of a target: choose from 4, 5, 6, 7"),
        ({"path": "nowhere/x.png"}, "cannot write nowhere/x.png: No such file"),
        ({"kind": "steps"}, "there are no steps to plot"),
        (
            {"kind": "candidates"},
            "no candidates were recorded for “it”: search with method greedy and keep_candidates",
        ),
    ],
)
def test_errors_are_one_clear_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(RationalesError, match=re.escape(message)) as error:
        COURT.plot(**given)
    assert "\n" not in str(error.value)


def test_an_explanation_without_rationales_cannot_be_drawn() -> None:
    with pytest.raises(RationalesError, match="no rationales"):
        replace(COURT, rationales=()).plot()


def test_matplotlib_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"rationales\[plots\]"):
        COURT.plot()
