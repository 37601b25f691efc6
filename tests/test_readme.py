"""The README and the examples in the docs do what they say."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import rationales.scoring.table
from rationales.methods import METHODS
from rationales.models import default as default_model

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


ANSWERS = (ROOT / "docs/answers.md").read_text(encoding="utf-8")
NO_MODEL = default_model.find() is None and default_model.installed_gguf() is None
needs_model = pytest.mark.skipif(
    NO_MODEL, reason="the default model is not here: run `rationales model get`"
)


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@needs_model
@pytest.mark.real_model
def test_the_example_about_documents_names_the_document(capsys):
    [example] = blocks("python", ANSWERS)
    exec(compile(example, "answers.md", "exec"), {})
    assert re.match(r"document 1 .*42 km", capsys.readouterr().out)


@needs_model
@pytest.mark.real_model
def test_the_python_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    [example] = blocks("python")
    assert len([line for line in example.splitlines() if line.strip()]) <= 8
    names: dict[str, object] = {}
    exec(compile(example, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "because of" in printed
    assert rationales.Explanation.load("x.json") == names["explanation"]
    tokyo = names["tokyo"]
    assert isinstance(tokyo, rationales.Explanation)
    assert tokyo[0].target_text == " Tokyo"


def test_the_commands_of_the_readme_have_the_options_they_use(capsys):
    """Every option in a shell example is one that the command's help lists."""
    from rationales.cli import call

    call(["explain", "--help"])
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    shell = "\n".join(re.findall(r"^rationales explain .*$", README, re.MULTILINE))
    used = set(re.findall(r"--[a-z-]+", shell))
    assert used
    assert used <= known


def test_the_table_of_methods_is_complete():
    listed = set(re.findall(r"`([a-z-]+)`", README))
    assert set(METHODS) <= listed


def test_the_readme_is_short_and_its_links_lead_somewhere():
    assert len(README.splitlines()) <= 150
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / target).exists(), target


def test_the_black_box_example_runs(capsys):
    path = ROOT / "docs" / "examples" / "black_box.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) < 70
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    assert "greedy: 'loud … they' is enough for 'bark': True" in printed


def test_the_table_scorer_example_runs():
    done = subprocess.run(
        [sys.executable, "-m", "doctest", rationales.scoring.table.__file__],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
