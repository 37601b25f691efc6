"""The second figure at toy scale: a tiny GPT-2 trained, fine-tuned, measured, resumed."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch
import typer

from progresses import dies_when, silent
from rationales.cli import experiment as commands
from rationales.errors import RationalesError
from rationales.experiments.toys import repetition
from rationales.experiments.toys.training import Schedule

TOY = repetition.Settings(
    vocabulary=300,
    length=8,
    layers=1,
    heads=2,
    width=16,
    training=Schedule(steps=6, batch=4, learning_rate=1e-2, warmup=2, checkpoint_every=2),
    fine_tuning=repetition.FineTuning(steps=4, batch=4),
)
SENTENCE = "On the day of the race, the dog and the cat saw the sun over the hill number {}.\n"


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("".join(SENTENCE.format(number) for number in range(60)), encoding="utf-8")
    return path


def test_repeats_are_the_model_s_answers_to_a_lone_token_at_each_position():
    model = repetition._build(TOY, vocabulary=300)
    found = repetition.repeats(model, word=7, length=8)
    for place, value in enumerate(found["repeats"]):
        with torch.no_grad():
            logits = model(
                input_ids=torch.tensor([[7]]),
                position_ids=torch.tensor([[place]]),
                attention_mask=torch.ones(1, 1, dtype=torch.long),
            ).logits
        assert math.isclose(value, float(logits[0, -1].softmax(-1)[7]), rel_tol=1e-4)
    assert math.isclose(found["mean_from_2"], sum(found["repeats"][1:]) / 7)


def test_rows_follow_each_other_and_share_one_token():
    rows = repetition._rows(torch.arange(12), length=4)
    assert rows.tolist() == [[0, 1, 2, 3, 4], [4, 5, 6, 7, 8]]


def test_how_often_a_word_follows_itself():
    found = repetition._in_text(torch.tensor([5, 5, 1, 5, 2, 5]), 5)
    assert found == {"share": 4 / 6, "after_itself": 1 / 3}


def test_the_text_is_split_between_lines():
    known, heldout = repetition._split("one\ntwo\nthree\n" * 50)
    assert known + heldout == "one\ntwo\nthree\n" * 50
    assert known.endswith("\n")
    assert heldout


def test_a_toy_run_writes_everything_and_a_restart_ends_with_the_same_table(text, tmp_path):
    out = tmp_path / "whole"
    results = repetition.run(out, text, TOY, overwrite=False, progress=silent)
    files = {path.name for path in out.iterdir()}
    assert files == {".lock", "run.json", "results.json", "table.md", "the.png", "the.svg", "parts"}
    assert json.loads((out / "results.json").read_text()) == json.loads(json.dumps(results))
    assert [len(model["repeats"]) for model in results["models"].values()] == [8, 8]
    assert "rotary" in (out / "table.md").read_text(encoding="utf-8")
    assert str(tmp_path) not in (out / "results.json").read_text()

    broken = tmp_path / "broken"
    for dies in (dies_when("training before", 5), dies_when("fine-tuning", 0.5)):
        with pytest.raises(KeyboardInterrupt):
            repetition.run(broken, text, TOY, overwrite=False, progress=dies)
    again = repetition.run(broken, text, TOY, overwrite=False, progress=silent)
    for model in (*results["models"].values(), *again["models"].values()):
        model.pop("training_seconds")
    assert again == results

    with pytest.raises(RationalesError, match="its seed is 0, not 1"):
        repetition.run(broken, text, replace(TOY, seed=1), overwrite=False, progress=silent)


@pytest.mark.parametrize(
    ("content", "message"),
    [("the the the\n", "too short"), ("xyz\n" * 400, "not one token")],
)
def test_a_text_that_will_not_do_is_one_line(content, message, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(content)
    with pytest.raises(RationalesError, match=message) as error:
        repetition.run(tmp_path / "run", path, TOY, overwrite=False, progress=silent)
    assert "\n" not in str(error.value)


def test_the_command_needs_its_text(tmp_path, monkeypatch):
    monkeypatch.delenv("RATIONALES_DATA", raising=False)
    app = typer.main.get_command(commands.app)
    with pytest.raises(RationalesError, match=r"wikitext2/train\.raw"):
        app(["the", "--out", str(tmp_path / "run")], standalone_mode=False)
    with pytest.raises(RationalesError, match="cannot read"):
        app(
            ["the", "--out", str(tmp_path / "run"), "--text", str(tmp_path / "no")],
            standalone_mode=False,
        )
