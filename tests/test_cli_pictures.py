"""``--html`` and ``--plot``: what they write, and what is said before the work begins."""

from __future__ import annotations

import pytest

TEXT = "The Supreme Court on"


def test_a_page_and_a_figure_are_written(run, tmp_path):
    page, figure = tmp_path / "x.html", tmp_path / "x.svg"
    code, out, _ = run(
        "explain", TEXT, "--generate", "2", "--html", str(page), "--plot", str(figure)
    )
    assert code == 0
    assert out  # what is printed otherwise is printed too
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "<svg" in figure.read_text(encoding="utf-8")


def test_many_texts_are_one_page(run, tmp_path):
    page = tmp_path / "x.html"
    lines = "\n".join(f'{{"text": "{text}", "generate": 1}}' for text in (TEXT, "The quick brown"))
    code, _, _ = run("explain", "--jsonl", "-", "--html", str(page), stdin=lines)
    assert code == 0
    assert page.read_text(encoding="utf-8").count('"explanation"') == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--html", "no/such/folder/x.html"], "cannot write no/such/folder/x.html"),
        (["--plot", "x.gif"], "must end in .png"),
        (["--plot-kind", "steps"], "give --plot a file"),
        (["--plot", "x.png", "--plot-kind", "candidates"], "give --steps a number"),
        (["--json", "x.json", "--html", "x.json"], "read or written already"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(run, arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, error = run("explain", TEXT, *arguments)
    assert (code, out) == (2, "")
    assert said in error
    assert len(error.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
