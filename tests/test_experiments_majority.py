"""The majority language against enumeration, its marginals against brute force, and a toy run."""

from __future__ import annotations

import itertools
import json
import sys
from dataclasses import replace
from math import comb, exp, isclose, log

import pytest
import torch
import typer

from progresses import dies_when, silent
from rationales.cli import experiment as commands
from rationales.compat.rows import generator
from rationales.compat.subsets import mixture, uniform
from rationales.data import data_file
from rationales.errors import MissingExtraError, RationalesError
from rationales.experiments.toys import majority
from rationales.experiments.toys.majority_language import (
    BEGIN,
    END,
    EQUALS,
    ONE,
    ZERO,
    MajorityLanguage,
    Seen,
    WholeLanguage,
    line_logprobs,
    perplexity,
)
from rationales.experiments.toys.training import Schedule, Task, trained
from rationales.runs import RunFolder
from rationales.scoring.causal import CausalScorer

SCHEDULE = Schedule(steps=6, batch=8, learning_rate=1e-2, warmup=2, checkpoint_every=2)
TOY = majority.Settings(
    bits=5,
    train_lines=40,
    heldout_lines=20,
    layers=2,
    width=16,
    feed_forward=32,
    subsets=3,
    standard=SCHEDULE,
    word_dropout=SCHEDULE,
)


def tiny_model(bits: int = 5):
    return majority._build(replace(TOY, bits=bits))


def test_lines_hold_begin_bits_equals_majority_and_end():
    language = MajorityLanguage()
    lines = language.sample(500, torch.Generator().manual_seed(3))
    assert lines.shape == (500, 21)
    assert language.predicted == 20
    assert isclose(language.optimum, 1.8025, abs_tol=1e-4)
    for line in lines.tolist():
        begin, *bits, equals, answer, end = line
        assert (begin, equals, end) == (BEGIN, EQUALS, END)
        assert set(bits) <= {ZERO, ONE}
        assert answer == (ONE if bits.count(ONE) > bits.count(ZERO) else ZERO)
    share = lines[:, 1:18].double().mean()
    assert abs(float(share) - 0.5) < 0.03
    again = language.sample(500, torch.Generator().manual_seed(3))
    assert torch.equal(lines, again)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"layers": 0}, "layers must be at least 1, not 0"),
        ({"mixture": 1.5}, "mixture must be at most 1, not 1.5"),
        ({"heads": 3}, "width must be a multiple of heads, not 64 with 3 heads"),
    ],
)
def test_bad_settings_are_one_line(given, message):
    with pytest.raises(RationalesError, match=message):
        majority.Settings(**given)


def test_all_lines_are_every_line_once():
    lines = MajorityLanguage(5).all_lines()
    assert [tuple(row) for row in lines[:, 1:6].tolist()] == list(
        itertools.product((0, 1), repeat=5)
    )


def test_an_even_number_of_bits_has_no_majority():
    with pytest.raises(RationalesError, match="odd"):
        MajorityLanguage(4)


@pytest.mark.parametrize("bits", [5, 7])
def test_the_exact_probability_is_the_share_of_all_completions(bits):
    language = MajorityLanguage(bits)
    for size in range(bits + 1):
        assert isclose(sum(language.weight(size, ones) for ones in range(size + 1)), 1)
        for ones in range(size + 1):
            rests = list(itertools.product((0, 1), repeat=bits - size))
            share = sum(2 * (ones + sum(rest)) > bits for rest in rests) / len(rests)
            assert isclose(language.probability(size, ones), share)


def test_the_exact_probability_of_the_paper_s_language():
    language = MajorityLanguage()
    assert language.probability(0, 0) == 0.5
    assert language.probability(17, 9) == 1
    assert language.probability(17, 8) == 0
    # One more of the last bit decides: nine of ten ones need none, eight need at least one.
    assert language.probability(16, 8) == 0.5
    assert isclose(language.probability(1, 1), sum(comb(16, j) for j in range(8, 17)) / 2**16)


def test_drawn_subsets_have_their_size_and_their_ones():
    language = MajorityLanguage()
    drawn = language.draw(6, 2, 400, torch.Generator().manual_seed(0))
    assert all(len(seen.places) == 6 and sum(seen.bits) == 2 for seen in drawn)
    assert all(list(seen.places) == sorted(set(seen.places)) for seen in drawn)
    # Each place is seen in 6/17 of them, and a bit that is seen is 1 in a third.
    for place in range(17):
        count = sum(place in seen.places for seen in drawn)
        assert abs(count / 400 - 6 / 17) < 0.1
    firsts = sum(seen.bits[0] for seen in drawn)
    assert abs(firsts / 400 - 1 / 3) < 0.1


def test_a_query_shows_begin_the_kept_bits_and_equals():
    context, kept = MajorityLanguage(5).query(Seen(places=(1, 3), bits=(1, 0)))
    assert kept == (0, 2, 4, 6)
    assert [context.ids[i] for i in kept] == [BEGIN, ONE, ZERO, EQUALS]
    assert context.target_id == ONE
    assert context.required == (6,)
    assert context.pinned == (0,)


def test_the_marginal_is_the_sum_over_what_is_missing():
    """Against a loop over completions in which each token is predicted on its own."""
    model, language = tiny_model(bits=3), MajorityLanguage(3)
    torch.manual_seed(0)
    for weight in model.parameters():  # predictions that differ from line to line
        weight.data.add_(0.3 * torch.randn_like(weight))

    def f(prefix: list[int], token: int) -> float:
        with torch.no_grad():
            return float(model(torch.tensor([prefix])).logits[0, -1].softmax(-1)[token])

    whole = WholeLanguage(model, language)
    for seen in (Seen((), ()), Seen((2,), (1,)), Seen((0, 2), (1, 0)), Seen((1,), (0,))):
        above = below = 0.0
        for bits in itertools.product((0, 1), repeat=3):
            if any(bits[p] != b for p, b in zip(seen.places, seen.bits, strict=True)):
                continue
            line = [BEGIN, *bits, EQUALS]
            joint = 1.0
            for place in range(1, len(line)):
                joint *= f(line[:place], line[place])
            below += joint
            above += joint * f(line, ONE)
        assert isclose(whole.marginal(seen), above / below, rel_tol=1e-5)
    everything = Seen((0, 1, 2), (1, 0, 1))
    (score,) = CausalScorer(model).score([language.query(everything)])
    assert isclose(whole.marginal(everything), exp(score.target_logprob), rel_tol=1e-5)


def test_perplexity_counts_all_predicted_tokens():
    model, language = tiny_model(), MajorityLanguage(5)
    lines = language.sample(7, torch.Generator().manual_seed(0))
    tokens, one = line_logprobs(model, lines)
    assert tokens.shape == (7, 8)
    with torch.no_grad():
        logits = model(lines[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), lines[:, 1:].flatten())
    assert isclose(log(perplexity(tokens)), float(loss), rel_tol=1e-5)
    where_one = lines[:, -2] == ONE
    torch.testing.assert_close(tokens[where_one, -2], one[where_one])


def test_the_rate_rises_falls_with_the_root_and_ends_at_zero():
    schedule = Schedule(steps=1000, batch=1, learning_rate=0.1, warmup=100, cooldown=0.2)
    assert isclose(schedule.rate(49), 0.5)
    assert isclose(schedule.rate(99), 1)
    assert isclose(schedule.rate(399), 0.5)
    assert schedule.rate(999) < 0.01
    assert max(schedule.rate(step) for step in range(1000)) == schedule.rate(99)


def test_training_learns_and_goes_on_exactly_after_a_kill(tmp_path):
    rows = MajorityLanguage(5).sample(40, torch.Generator().manual_seed(0))
    task = Task("x", rows, seed=0, draw=mixture(uniform, 0.5, pinned=1))
    schedule = replace(SCHEDULE, steps=30)

    unbroken, broken = tiny_model(), tiny_model()
    trained(unbroken, task, schedule, RunFolder(tmp_path / "a", "x"), silent)
    folder = RunFolder(tmp_path / "b", "x")
    for step in (5, 8):
        with pytest.raises(KeyboardInterrupt):
            trained(tiny_model(), task, schedule, folder, dies_when("training", step))
    trained(broken, task, schedule, folder, silent)
    for weight, same in zip(unbroken.parameters(), broken.parameters(), strict=True):
        assert torch.equal(weight, same)
    untrained, learned = (
        perplexity(line_logprobs(model, rows)[0]) for model in (tiny_model(), unbroken)
    )
    assert learned < untrained - 0.5
    # A finished training is loaded, not repeated.
    loaded = tiny_model()
    trained(loaded, task, schedule, folder, dies_when("training"))
    torch.testing.assert_close(list(loaded.parameters()), list(unbroken.parameters()))
    assert [path.name for path in folder.parts.iterdir()] == ["x.safetensors"]


def test_a_toy_run_writes_everything_and_a_restart_ends_with_the_same_table(tmp_path):
    out = tmp_path / "whole"
    results = majority.run(out, TOY, overwrite=False, progress=silent)
    files = {path.name for path in out.iterdir()}
    assert files == {
        ".lock", "run.json", "results.json", "table.md", "majority.png", "majority.svg", "parts",
    }  # fmt: skip
    assert (out / "majority.png").read_bytes().startswith(b"\x89PNG")
    svg = (out / "majority.svg").read_text(encoding="utf-8")
    assert "ones seen" in svg
    for model in results["models"].values():
        assert len(model["cells"]) == 6 * 7 // 2
        weights = {(c["size"], c["ones"]): comb(c["size"], c["ones"]) / 2 ** c["size"]
                   for c in model["cells"]}  # fmt: skip
        error = sum(
            weights[c["size"], c["ones"]] * abs(c["mean"] - c["exact"]) for c in model["cells"]
        )
        assert isclose(model["calibration_error"], error / 6)
    assert json.loads((out / "results.json").read_text()) == json.loads(json.dumps(results))
    assert "| word dropout 0.5 |" in (out / "table.md").read_text(encoding="utf-8")

    broken = tmp_path / "broken"
    with pytest.raises(KeyboardInterrupt):
        majority.run(broken, TOY, overwrite=False, progress=dies_when("measuring subsets", 3))
    again = majority.run(broken, TOY, overwrite=False, progress=silent)
    for model in (*results["models"].values(), *again["models"].values()):
        model.pop("training_seconds")
    assert again == results


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RationalesError, match="cannot write") as error:
        majority.run(tmp_path / "file" / "run", TOY, overwrite=False, progress=silent)
    assert "\n" not in str(error.value)


def test_without_matplotlib_the_extra_is_named_before_anything_is_trained(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"rationales\[plots\]"):
        majority.run(tmp_path / "run", TOY, overwrite=False, progress=silent)
    assert not (tmp_path / "run").exists()


def test_the_command_prints_the_table(tmp_path, monkeypatch, capsys):
    run = majority.run

    def toy(settings, **rest):
        return run(settings=replace(TOY, seed=settings.seed), **rest)

    monkeypatch.setattr(majority, "run", toy)
    app = typer.main.get_command(commands.app)
    app(["majority", "--out", str(tmp_path / "run"), "--seed", "4"], standalone_mode=False)
    captured = capsys.readouterr()
    assert captured.out.startswith("# Majority language")
    assert "--seed 4" in captured.out
    assert "run" in captured.err


def test_missing_data_is_one_line_that_names_the_file_and_its_source(tmp_path, monkeypatch):
    monkeypatch.delenv("RATIONALES_DATA", raising=False)
    with pytest.raises(RationalesError, match=r"wikitext2/train\.raw.*Merity.*RATIONALES_DATA"):
        data_file("wikitext2/train.raw")
    monkeypatch.setenv("RATIONALES_DATA", str(tmp_path))
    with pytest.raises(RationalesError, match=r"wikitext2/train\.raw is not in"):
        data_file("wikitext2/train.raw")
    path = tmp_path / "wikitext2" / "train.raw"
    path.parent.mkdir()
    path.write_text("text")
    assert data_file("wikitext2/train.raw") == path


def test_the_lines_of_train_validation_and_test_differ():
    language = MajorityLanguage()
    first, second = (language.sample(50, generator(0, "lines", number)) for number in (0, 1))
    assert not torch.equal(first, second)
