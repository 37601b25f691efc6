"""Options of a command from the fields of dataclasses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer
from annotated_types import Ge
from typer.testing import CliRunner

from rationales.cli.command import command, field_docs

_PANEL = typer.Option(rich_help_panel="A panel")


@dataclass(frozen=True)
class Base:
    out: Path
    """Where the result goes."""
    seed: Annotated[int, Ge(0)] = 0
    """The seed
    of ``everything``."""


@dataclass(frozen=True)
class Settings(Base):
    """All that can be asked."""

    texts: Annotated[tuple[str, ...], typer.Option("--text", metavar="FILE")] = ()
    """Text files."""
    shape: Literal["round", "square"] = "round"
    """One of two."""
    rank: Annotated[Annotated[int, Ge(1)] | None, _PANEL] = None
    """The rank."""
    rate: Annotated[float, typer.Option(help="Given here.")] = 0.5
    """Not shown."""
    quiet: bool = False
    """Say nothing."""
    extra: tuple[int, ...] = (1, 2)
    undescribed: str = "x"


@pytest.fixture
def run():
    """Runs a command of these settings: what it printed, and the settings it was given."""
    taken = []

    def take(settings: Settings) -> None:
        """The command."""
        taken.append(settings)

    take.__annotations__["settings"] = Settings
    app = typer.Typer()
    app.command()(command(take))

    def invoke(*words: str):
        taken.clear()
        result = CliRunner().invoke(app, words)
        return result, taken[0] if taken else None

    return invoke


def test_a_field_is_described_by_the_docstring_under_it():
    docs = field_docs(Settings)
    assert docs["seed"] == "The seed of everything."
    assert docs["texts"] == "Text files."
    assert set(docs) == {"out", "seed", "texts", "shape", "rank", "rate", "quiet"}
    assert field_docs(dataclass(type("Bare", (), {"__annotations__": {"x": int}}))) == {}


def test_fields_become_options_of_their_types_and_defaults(run):
    _, settings = run("--out", "here")
    assert settings == Settings(Path("here"))
    words = "--out o --seed 3 --text a --text b --shape square --rank 2 --rate 1 --quiet --extra 5"
    _, settings = run(*words.split())
    assert settings == Settings(Path("o"), 3, ("a", "b"), "square", 2, 1.0, True, (5,))


def test_what_is_missing_or_no_choice_is_refused(run):
    assert run()[0].exit_code == 2
    assert run("--out", "x", "--shape", "oval")[0].exit_code == 2
    assert run("--out", "x", "--no-quiet")[0].exit_code == 2


def test_the_help_is_that_of_the_fields(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", run("--help")[0].output)
    for text in ("The seed of everything.", "Given here.", "The rank.", "A panel", "--text"):
        assert text in shown
    assert "Not shown." not in shown
