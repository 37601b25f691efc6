"""The recipes of the packaged weights, in short: trained, resumed, tuned, exported, explained."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForSeq2SeqLM

import rationales
from rationales import cli
from rationales.errors import RationalesError
from rationales.experiments.translation.pairs import Pair, held_out, split_of

from tiny_models import build, recipe

fr_en = recipe("fr_en")
NUMBERS = ["un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix"]
ENGLISH = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
THINGS = [("chats", "cats"), ("chiens", "dogs"), ("livres", "books"), ("pommes", "apples")]
TINY = {
    "d_model": 32,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "max_position_embeddings": 64,
    "dropout": 0.1,
}


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr(fr_en, "VOCABULARY", 320)
    monkeypatch.setattr(fr_en, "ARCHITECTURE", TINY)
    monkeypatch.setattr(fr_en, "CHECKPOINT_EVERY", 2)
    monkeypatch.setattr(fr_en, "VALIDATE_EVERY", 4)
    monkeypatch.setattr(fr_en, "LONGEST", 16)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    file = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    lines = [
        f"I don't see {e} {thing_e}.\tJe n'ai pas vu {f} {thing_f} !"
        for f, e in zip(NUMBERS, ENGLISH, strict=True)
        for thing_f, thing_e in THINGS
    ]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def run(command, out, pairs, **options):
    """The record of a command that was run in this process."""
    options = {"pairs": pairs, "batch": 6, "warmup": 2, **options}
    words = [w for name, value in options.items() for w in (f"--{name.replace('_', '-')}", value)]
    fr_en.app([command, "--out", str(out), *map(str, words)], standalone_mode=False)
    return json.loads((out / "training.json").read_text(encoding="utf-8"))


def train(out, pairs, **options):
    return run("train", out, pairs, **{"steps": 8, "held_out": 4, **options})


def weights(folder):
    return AutoModelForSeq2SeqLM.from_pretrained(folder).state_dict()


def same(left, right):
    return all(torch.equal(left[name], right[name]) for name in left)


def test_a_model_is_trained_tuned_exported_and_explained(tmp_path, pairs, capsys):
    trained, tuned, out = (tmp_path / name for name in ("trained", "tuned", "fr-en"))
    record = train(trained, pairs)
    assert record["steps"] == 8
    assert record["epochs"] == pytest.approx(8 / 6, abs=0.01)  # 32 pairs in batches of 6
    assert split_of(record) == (0, 4)
    assert record["command"] == (
        "python recipes/fr_en.py train --out OUT --pairs PAIRS --steps 8 --batch 6 "
        "--learning-rate 0.0015 --warmup 2 --seed 0 --held-out 4"
    )
    assert [found["beams"] for found in record["bleu"]] == [1, 5]
    assert all("tok:13a" in found["signature"] for found in record["bleu"])
    assert record["bleu"][0]["sentences"] == 4
    assert record["versions"]["sacrebleu"]
    assert "eval_bleu" in capsys.readouterr().out  # on validation pairs, on the way

    after = run("tune", tuned, pairs, steps=3, model=trained)
    assert after["settings"]["dropout"] == {"distribution": "inverse-length", "mixture": 0.5}
    assert after["bleu_before"] == record["bleu"]
    assert after["trained"] == record
    left, right = weights(trained), weights(tuned)
    assert not torch.equal(left["model.shared.weight"], right["model.shared.weight"])
    sinusoids = "model.encoder.embed_positions.weight"
    assert torch.equal(left[sinusoids], right[sinusoids])
    assert "bleu_before: " in capsys.readouterr().out

    fr_en.app(["export", "--model", str(tuned), "--out", str(out)], standalone_mode=False)
    packaged = Path(rationales.__file__).parent / "translators/fr-en"
    exported = {file.name for file in out.iterdir()}
    assert {file.name for file in packaged.iterdir()} == exported | {"README.md"}  # the model card
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        assert json.loads((out / name).read_text()).keys() == (
            json.loads((packaged / name).read_text()).keys()
        )
    for file in out.iterdir():
        assert str(tmp_path).encode() not in file.read_bytes()
    with safe_open(out / "model.safetensors", "pt") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.float16}  # noqa: SIM118
    assert same(right, weights(out))

    model = AutoModelForSeq2SeqLM.from_pretrained(out)
    assert model.dtype == torch.float32
    assert model.lm_head.weight is model.model.shared.weight
    translator = rationales.load(out, kind="seq2seq")
    explanation = translator.explain("Je n'ai pas vu deux chats !", max_size=2)
    assert len(explanation.tokens) > 0
    assert len(held_out(translator, pairs)) == 4


def test_an_interrupted_run_ends_in_the_same_weights(tmp_path, pairs, monkeypatch):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    train(whole, pairs, steps=11)
    on_step_end = fr_en.Pace.on_step_end

    def dies(self, args, state, control, **more):
        if state.global_step == 9:  # in the second epoch, after the checkpoint of step 8
            raise MemoryError
        on_step_end(self, args, state, control, **more)

    with monkeypatch.context() as patch:
        patch.setattr(fr_en.Pace, "on_step_end", dies)
        with pytest.raises(MemoryError):
            train(killed, pairs, steps=11)
    with pytest.raises(RationalesError, match="holds another run"):
        train(killed, pairs, steps=12)
    assert train(killed, pairs, steps=11)["steps"] == 11
    assert same(weights(whole), weights(killed))
    with pytest.raises(RationalesError, match="holds a finished model"):
        train(killed, pairs, steps=11)


def test_a_model_learns_what_it_is_shown(tmp_path, pairs, monkeypatch):
    monkeypatch.setattr(fr_en, "ARCHITECTURE", TINY | {"d_model": 64, "dropout": 0.0})
    monkeypatch.setattr(fr_en, "CHECKPOINT_EVERY", 1000)
    monkeypatch.setattr(fr_en, "VALIDATE_EVERY", 1000)
    options = {"steps": 250, "batch": 20, "learning_rate": 5e-3, "warmup": 40, "held_out": 1}
    record = train(tmp_path / "model", pairs, **options)
    assert record["loss"] < 3
    translator = rationales.load(tmp_path / "model", kind="seq2seq")
    explanation = translator.explain("Je n'ai pas vu deux chats !", max_size=3)
    assert "".join(each.target_text for each in explanation) == "I don't see two cats."


def test_minutes_end_a_training(tmp_path, pairs):
    out = tmp_path / "model"
    options = {"pairs": pairs, "minutes": 0.02, "held_out": 4}
    words = [w for name, value in options.items() for w in (f"--{name.replace('_', '-')}", value)]
    fr_en.app(["train", "--out", str(out), *map(str, words)], standalone_mode=False)
    record = json.loads((out / "training.json").read_text())
    assert 1.2 <= record["seconds"] < 10
    assert record["settings"]["minutes"] == 0.02


def test_the_rate_rises_falls_with_the_root_and_ends_at_zero():
    def pace(minutes=None, steps=None):
        return fr_en.Pace({"minutes": minutes, "steps": steps, "warmup": 100, "seed": 0})

    by_steps, by_minutes = pace(steps=1000), pace(minutes=10)
    assert by_steps(49) == pytest.approx(0.5)
    assert by_steps(99) == pytest.approx(1.0)
    assert by_steps(399) == pytest.approx(0.5)
    assert by_steps(1000) == 0
    assert by_minutes(399) == pytest.approx(0.5)
    by_minutes.seconds = 510
    assert by_minutes(399) == pytest.approx(0.25)


def test_errors_are_one_line(tmp_path, pairs):
    out, other = tmp_path / "out", tmp_path / "other.tsv"
    other.write_text("Go.\tVa !\n")
    for command, options, message in (
        ("train", {"steps": 1}, "hold out fewer"),
        ("train", {"steps": 1, "pairs": tmp_path / "none"}, "cannot read"),
        ("tune", {"steps": 1, "model": tmp_path}, r"has no training\.json"),
    ):
        with pytest.raises(RationalesError, match=message):
            run(command, out, **{"pairs": pairs, **options})
    with pytest.raises(RationalesError, match="the loss is nan: give a lower"):
        train(out, pairs, steps=8, learning_rate=1e30)
    train(tmp_path / "trained", pairs, steps=1)
    with pytest.raises(RationalesError, match="was trained on other pairs"):
        run("tune", out, other, model=tmp_path / "trained")
    export = ["export", "--out", str(tmp_path / "trained"), "--model"]
    for model, message in ((tmp_path, "has no training.json"), (tmp_path / "trained", "not empty")):
        with pytest.raises(RationalesError, match=message):
            fr_en.app([*export, str(model)], standalone_mode=False)


@pytest.fixture(scope="module")
def tokenizer():
    texts = ["Je n'ai pas vu l'eau.", "I don't see it."] * 3 + [" l'eau don't vas-tu ?"] * 50
    return fr_en.build_tokenizer(texts, 600, 64)


@pytest.mark.parametrize(
    "text",
    [
        "Je n'ai pas vu l'eau, vas-tu ? 12 %",
        "“Don't!” she'll say… 東京 🙂",
        "É à ç œ ’ «oui» \u00ad",
        "",
    ],
)
def test_the_tokenizer_gives_back_every_text(tokenizer, text):
    ids = tokenizer(text)["input_ids"]
    assert ids[-1] == tokenizer.eos_token_id == 1
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert tokenizer.pad_token_id == 0


def test_tokens_do_not_cross_words(tokenizer):
    tokens = [tokenizer.decode([id]) for id in tokenizer("l'eau don't vas-tu\u00a0?")["input_ids"]]
    assert [each.strip() for each in tokens[:-1]] == ["l'", "eau", "don", "'t", "vas", "-tu", "?"]


def test_pairs_that_are_too_long_are_left_out(tokenizer):
    rows = fr_en.encode(tokenizer, [Pair("l'eau", "water"), Pair("東" * 64, "a"), Pair("a", "b")])
    assert [row["input_ids"] for row in rows] == [tokenizer(t)["input_ids"] for t in ("l'eau", "a")]


SCRIPT = Path(__file__).parent.parent / "recipes/smollm2_adapter.sh"


def commands_of_the_adapter(out, **environment):
    """The arguments of the trainings that the script runs."""
    environment = {**os.environ, "RATIONALES": "echo", **environment}
    command = ["sh", str(SCRIPT), str(out)]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [shlex.split(line) for line in answer.stdout.splitlines()]


def test_the_adapter_has_the_commands_of_its_record():
    def options(words):
        """Option and value of each, with names in the place of paths."""
        pairs = {(a, b.rpartition("/")[2]) for a, b in zip(words[::2], words[1::2], strict=True)}
        numbers = {"full-weight", "minutes"}
        return {
            (name, float(value) if name.lstrip("-") in numbers else value)
            for name, value in pairs
            if name != "--out"
        }

    folder = Path(rationales.__file__).parent / "adapters/smollm2-135m-instruct-compat"
    record = json.loads((folder / "compat.json").read_text(encoding="utf-8"))
    recorded = [record, record["start"], record["start"]["start"]]
    commands = commands_of_the_adapter("OUT", RATIONALES_DATA="data")
    for words, known in zip(reversed(commands), recorded, strict=True):
        assert options(words[2:]) == options(known["command"].split()[3:])


def test_the_commands_of_the_adapter_run_on_a_tiny_model(tmp_path, tiny_tokenizer):
    model, out, text = tmp_path / "tiny", tmp_path / "out", tmp_path / "wikitext2/train.raw"
    build("llama", vocab_size=len(tiny_tokenizer), max_position_embeddings=128).save_pretrained(
        model
    )
    tiny_tokenizer.save_pretrained(model)
    text.parent.mkdir()
    text.write_text("\n".join(f" The cat number {n} sat on the mat . " * 8 for n in range(40)))
    where = {"RATIONALES_DATA": str(tmp_path), "MODEL": str(model), "STEPS": "2"}
    for words in commands_of_the_adapter(out, **where):
        assert cli.call([*words, "--self-rows", "16"]) == 0  # the last value counts
    record = json.loads((out / "adapter/compat.json").read_text(encoding="utf-8"))
    assert record["steps"] == record["start"]["steps"] == record["start"]["start"]["steps"] == 2
    assert rationales.load(model, adapter=out / "adapter").explain("The cat sat", target="last")
