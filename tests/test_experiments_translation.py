"""A tiny translation model: trained, killed and gone on with, saved, loaded, made compatible."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from rationales import cli, models
from rationales.compat import run as run_module
from rationales.errors import MissingExtraError, RationalesError
from rationales.experiments import bleu, translation_record
from rationales.experiments import translation_model as translation
from rationales.experiments.batches import NO_TARGET, Batches
from rationales.experiments.pieces import load_pieces, train_pieces
from rationales.experiments.translation import pairs as parallel
from rationales.experiments.translation_model import Shape, TrainSettings, TuneSettings
from rationales.experiments.translation_training import Learning, Listener

NUMBERS = ["un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix"]
ENGLISH = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
THINGS = [("chats", "cats"), ("chiens", "dogs"), ("livres", "books"), ("pommes", "apples")]
SHAPE = Shape(320, 32, 64, 4, 1, 1, 64, 0.1)
LEARNING = Learning(
    steps=6, batch_tokens=120, learning_rate=5e-3, warmup=2, checkpoint_every=2, validate_every=4
)
SETTINGS = TrainSettings(held_out=4, shape=SHAPE, learning=LEARNING)


@pytest.fixture
def pairs(tmp_path):
    file = tmp_path / "pairs.tsv"
    lines = [
        f"I don't see {e} {thing_e}.\tJe n'ai pas vu {f} {thing_f} !"
        for f, e in zip(NUMBERS, ENGLISH, strict=True)
        for thing_f, thing_e in THINGS
    ]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


class Heard:
    """A listener that remembers, and may be killed at a step."""

    def __init__(self, killed_at=None):
        self.lines, self.notes, self.killed_at = [], [], killed_at
        self.listener = Listener(self.progress, self.lines.append)

    def progress(self, what, done, total, note):
        self.notes.append((what, note))
        if self.killed_at and note.startswith(f"step {self.killed_at} "):
            raise MemoryError("killed")


def weights(folder):
    return AutoModelForSeq2SeqLM.from_pretrained(folder).state_dict()


@pytest.fixture
def trained(tmp_path, pairs):
    heard = Heard()
    record = translation.train(tmp_path / "model", SETTINGS, heard.listener, pairs=pairs)
    return tmp_path / "model", record, heard


def test_a_trained_model_is_what_transformers_loads(trained, pairs):
    folder, record, heard = trained
    assert json.loads((folder / translation.RECORD).read_text()) == record
    assert record["steps"] == 6
    assert [found["beams"] for found in record["bleu"]] == [1, 5]
    assert all("version:" in found["signature"] for found in record["bleu"])
    assert record["bleu"][0]["sentences"] == 4
    assert record["versions"]["sacrebleu"]
    assert "train --seed 0 --steps 6 --batch-tokens 120" in record["command"]
    assert any("validation: BLEU" in line for line in heard.lines)
    assert any("target tok/s" in note for _, note in heard.notes)
    assert not (folder / run_module.CHECKPOINTS).exists()
    text = translation.report(record)
    assert "greedy, 4 sentences" in text
    assert "beam 5" in text

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    assert type(model).__name__ == "MarianMTModel"
    assert model.dtype == torch.float32  # though half of the bytes are on the disk
    size = (folder / "model.safetensors").stat().st_size
    assert size == pytest.approx(2 * record["parameters"], rel=0.2)
    assert model.config.decoder_start_token_id == tokenizer.pad_token_id
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    sentence = "Je n'ai pas vu deux chats !"
    ids = tokenizer(sentence)["input_ids"]
    assert ids[-1] == tokenizer.eos_token_id
    assert tokenizer.decode(ids, skip_special_tokens=True) == sentence
    own, own_tokenizer = translation.load(folder)
    assert own_tokenizer(sentence)["input_ids"] == ids
    for name, weight in own.state_dict().items():
        assert torch.equal(weight, model.state_dict()[name])
    assert not own.model.encoder.embed_positions.weight.requires_grad
    # The embeddings are one matrix, and the model does not ignore its source.
    assert own.lm_head.weight is own.model.shared.weight
    one, two = (
        own(
            input_ids=torch.tensor([tokenizer(text)["input_ids"]]),
            decoder_input_ids=torch.tensor([[0]]),
        ).logits
        for text in ("Je n'ai pas vu deux chats !", "chiens")
    )
    assert not torch.allclose(one, two)


def test_a_finished_run_is_found_and_another_is_refused(trained, pairs):
    folder, record, _ = trained
    heard = Heard()
    assert translation.train(folder, SETTINGS, heard.listener, pairs=pairs) == record
    assert heard.notes == []
    other = replace(SETTINGS, seed=1)
    with pytest.raises(RationalesError, match="does not hold this run"):
        translation.train(folder, other, heard.listener, pairs=pairs)
    again = translation.train(folder, other, heard.listener, pairs=pairs, overwrite=True)
    assert again["settings"]["seed"] == 1


def test_a_killed_run_ends_in_the_same_weights(trained, tmp_path, pairs):
    folder, _, _ = trained
    out = tmp_path / "killed"
    with pytest.raises(MemoryError):
        translation.train(out, SETTINGS, Heard(killed_at=5).listener, pairs=pairs)
    heard = Heard()
    translation.train(out, SETTINGS, heard.listener, pairs=pairs)
    steps = [note.split()[1] for what, note in heard.notes if what == "training"]
    assert steps == ["5", "6"]
    left, right = weights(folder), weights(out)
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_a_model_is_made_compatible(trained, tmp_path, pairs):
    folder, record, _ = trained
    settings = TuneSettings(learning=replace(LEARNING, steps=3))
    heard = Heard()
    tuned = translation.tune(tmp_path / "tuned", folder, settings, heard.listener, pairs=pairs)
    assert tuned["bleu_before"] == record["bleu"]
    assert tuned["settings"]["dropout"] == {"distribution": "inverse-length", "mixture": 0.5}
    assert tuned["trained"] == record
    left, right = weights(folder), weights(tmp_path / "tuned")
    assert not torch.equal(left["model.shared.weight"], right["model.shared.weight"])
    positions = "model.encoder.embed_positions.weight"
    assert torch.equal(left[positions], right[positions])
    assert "before: BLEU" in translation.report(tuned)


def test_tuning_asks_for_the_model_and_the_pairs_of_its_training(trained, tmp_path, pairs):
    folder, _, _ = trained
    heard = Heard()
    with pytest.raises(RationalesError, match=r"has no training\.json"):
        translation.tune(tmp_path / "x", tmp_path, TuneSettings(), heard.listener, pairs=pairs)
    other = tmp_path / "other.tsv"
    other.write_text("Go.\tVa !\n")
    with pytest.raises(RationalesError, match="was trained on other pairs"):
        translation.tune(tmp_path / "x", folder, TuneSettings(), heard.listener, pairs=other)


def test_a_finished_model_is_exported_and_is_then_the_default(
    trained, tmp_path, capsys, monkeypatch
):
    folder, record, _ = trained
    out = tmp_path / "translators/fr-en"
    command = ["experiment", "translation", "export", "--out", str(out), "--model"]
    assert cli.run([*command, str(folder)]) == 0
    assert {file.name for file in out.iterdir()} == {*record["files"], translation.RECORD}
    with safe_open(out / "model.safetensors", "pt") as file:
        kinds = {file.get_tensor(name).dtype for name in file.keys()}  # noqa: SIM118
    assert kinds == {torch.float16}
    for file in out.iterdir():
        assert str(tmp_path).encode() not in file.read_bytes()
    left, right = weights(folder), weights(out)
    assert all(torch.equal(left[name], right[name]) for name in left)

    monkeypatch.setattr("rationales.models.loading.TRANSLATORS", tmp_path / "translators")
    loaded = models.load_model(kind="seq2seq")
    assert loaded.name == "fr-en"
    assert loaded.model.dtype == torch.float32
    capsys.readouterr()
    assert cli.run(["translate", "Je n'ai pas vu", "--continuation", "I", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["model"] == "fr-en"

    for arguments, message in (
        ([str(folder)], "is not empty: give another --out"),
        ([str(tmp_path)], "has no training.json"),
        ([str(out), "--overwrite"], "is the model itself"),
    ):
        assert cli.run([*command, *arguments]) == 2
        assert message in capsys.readouterr().err
    monkeypatch.setattr(translation_record, "MOST_BYTES", 1000)
    assert cli.run([*command, str(folder), "--overwrite"]) == 2
    assert "train a smaller one" in capsys.readouterr().err


def test_a_model_learns_what_it_is_shown(tmp_path, pairs):
    """End to end: what it has seen, a small model translates, also after it was saved."""
    learning = Learning(
        steps=250, batch_tokens=400, learning_rate=5e-3, warmup=40, validate_every=1000
    )
    settings = TrainSettings(
        held_out=1, shape=replace(SHAPE, width=64, weight_dropout=0.0), learning=learning
    )
    out = tmp_path / "model"
    record = translation.train(out, settings, Heard().listener, pairs=pairs)
    model, tokenizer = translation.load(out)
    seen = parallel.split(parallel.read_pairs(pairs), 0, 1).train
    found = bleu.measure(
        model, tokenizer, [pair.french for pair in seen], [pair.english for pair in seen], beams=2
    )
    assert found.score > 90
    assert record["epochs"] > 2
    assert record["loss"] < 3


def test_the_commands_say_what_came_of_it(tmp_path, pairs, capsys):
    folder = tmp_path / "model"
    small = ["--pairs", str(pairs), "--steps", "1"]
    command = ["experiment", "translation", "train", "--out", str(folder)]
    # There are fewer pairs than are to be held out: one line.
    assert cli.run([*command, *small]) == 2
    assert "hold out fewer" in capsys.readouterr().err
    assert cli.run([*command, "--pairs", str(tmp_path / "none"), "--steps", "1"]) == 2
    assert "cannot read" in capsys.readouterr().err
    assert cli.run([*command, *small, "--minutes", "1"]) == 2
    assert "one of them" in capsys.readouterr().err
    tune = ["experiment", "translation", "tune", "--out", str(folder / "x")]
    assert cli.run([*tune, "--model", str(tmp_path), *small]) == 2
    assert "has no training.json" in capsys.readouterr().err


def test_a_command_trains(tmp_path, pairs, capsys, monkeypatch):
    tiny = {"held_out": 4, "shape": SHAPE}
    monkeypatch.setattr(translation, "TrainSettings", partial(TrainSettings, **tiny))
    folder = tmp_path / "model"
    command = ["experiment", "translation", "train", "--out", str(folder), "--pairs", str(pairs)]
    assert cli.run([*command, "--steps", "2", "--batch-tokens", "120"]) == 0
    output = capsys.readouterr()
    assert "beam 5, 4 sentences" in output.out
    assert "nrefs:1" in output.out
    tune = ["experiment", "translation", "tune", "--out", str(tmp_path / "tuned")]
    tune += ["--model", str(folder), "--pairs", str(pairs), "--steps", "1"]
    assert cli.run(tune) == 0
    assert "after: BLEU" in capsys.readouterr().out


def test_bad_settings_are_one_line():
    for settings, what in (
        ({"steps": 1, "minutes": 1.0}, "one of them"),
        ({}, "one of them"),
        ({"steps": 0}, "steps must be more than 0"),
        ({"steps": 1, "batch_tokens": -1}, "batch-tokens must be more than 0"),
        ({"steps": 1, "dtype": "int8"}, "dtype is one of"),
    ):
        with pytest.raises(RationalesError, match=what):
            Learning(**settings)


def test_the_rate_rises_falls_with_the_root_and_ends_at_zero():
    learning = Learning(steps=1000, learning_rate=1.0, warmup=100, cooldown=0.2)
    assert learning.rate(49, 0) == pytest.approx(0.5)
    assert learning.rate(99, 0) == pytest.approx(1.0)
    assert learning.rate(399, 0) == pytest.approx(0.5)
    assert learning.rate(1000, 0) == 0
    timed = Learning(minutes=10, learning_rate=1.0, warmup=100, cooldown=0.5)
    assert timed.rate(399, 0) == pytest.approx(0.5)
    assert timed.rate(399, 450) == pytest.approx(0.25)
    assert timed.fraction(10**6, 300) == pytest.approx(0.5)


def test_batches_hold_each_pair_once_an_epoch_and_about_as_many_tokens():
    lengths = torch.randint(1, 12, (200, 2), generator=torch.Generator().manual_seed(0)).tolist()
    sources = [[10 + n] * s for n, (s, _) in enumerate(lengths)]
    targets = [[10 + n] * t for n, (_, t) in enumerate(lengths)]
    batches = Batches(sources, targets, tokens=60, pad=0, seed=3)
    for epoch in (0, 1):
        seen = []
        for step in range(epoch * batches.per_epoch, (epoch + 1) * batches.per_epoch):
            batch = batches.batch(step)
            rows, longest = batch.sources.shape
            assert rows == 1 or rows * (longest + batch.targets.shape[1]) <= 60
            for source, target in zip(batch.sources, batch.targets, strict=True):
                row = int(source[0]) - 10
                assert source[source != 0].tolist() == sources[row]
                assert target[target != NO_TARGET].tolist() == targets[row]
                seen.append(row)
        assert sorted(seen) == list(range(200))
    again = Batches(sources, targets, tokens=60, pad=0, seed=3)
    assert torch.equal(batches.batch(70).sources, again.batch(70).sources)
    other = [batches.batch(s).sources.tolist() for s in range(batches.per_epoch)]
    assert other != [
        batches.batch(s + batches.per_epoch).sources.tolist() for s in range(batches.per_epoch)
    ]


def test_the_decoder_reads_what_it_has_to_say_one_place_later():
    batch = Batches([[5, 1], [6, 1]], [[7, 8, 1], [9, 1]], tokens=99, pad=0, seed=0).batch(0)
    rows = sorted(zip(batch.inputs(0, 0).tolist(), batch.targets.tolist(), strict=True))
    assert rows == [([0, 7, 8], [7, 8, 1]), ([0, 9, 1], [9, 1, NO_TARGET])]
    assert batch.tokens == 5


@pytest.mark.parametrize(
    "text",
    [
        "Je n'ai pas vu l'eau, vas-tu ? 12 %",
        "“Don't!” she'll say… 東京 🙂",
        "É à ç œ ’ «oui» \u00ad",
        "",
    ],
)
def test_pieces_give_back_every_text(tmp_path, text):
    file = tmp_path / "tokenizer.json"
    file.write_text(train_pieces(["Je n'ai pas vu l'eau.", "I don't see it."] * 3, 300))
    tokenizer = load_pieces(file, 64)
    ids = tokenizer(text)["input_ids"]
    assert ids[-1] == tokenizer.eos_token_id == 1
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert tokenizer.pad_token_id == 0


def test_pieces_part_words_where_people_do(tmp_path):
    file = tmp_path / "tokenizer.json"
    words = ["l'", "eau", "don", "'t", "vas", "-tu", "?"]
    file.write_text(train_pieces([" l'eau don't vas-tu ?"] * 50, 600))
    tokenizer = load_pieces(file, 64)
    pieces = [tokenizer.decode([id]) for id in tokenizer("l'eau don't vas-tu\u00a0?")["input_ids"]]
    assert [piece.strip() for piece in pieces[:-1]] == words


def test_bleu_is_that_of_sacrebleu():
    found = bleu.bleu(["the cat sat on the mat"], ["the cat sat on the mat"], 1)
    assert found.score == pytest.approx(100)
    assert "tok:13a" in found.signature
    assert "greedy, 1 sentences" in str(found)


def test_bleu_says_which_extra_it_needs(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sacrebleu", None)
    with pytest.raises(MissingExtraError, match=r"rationales\[translation\]"):
        bleu.check()
