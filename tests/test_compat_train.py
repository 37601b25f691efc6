"""Training for compatibility on tiny models: what is learned, and that runs go on exactly."""

from __future__ import annotations

import copy
import errno
import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import typer
from accelerate import Accelerator
from scipy import stats
from torch.nn import functional

from rationales import cli
from rationales.cli import compat as compat_commands
from rationales.compat import learner as learning
from rationales.compat import run as runs
from rationales.compat import train as training
from rationales.compat.adapter import load_adapter
from rationales.compat.inputs import MaskedPass
from rationales.compat.learner import row_weights, schedule
from rationales.compat.losses import data_loss, distill_loss
from rationales.compat.options import TrainOptions
from rationales.compat.rows import Rows, generator
from rationales.compat.run import RunFolder, State
from rationales.compat.samples import sample_rows
from rationales.compat.student import LoraStudent, make_student
from rationales.compat.subsets import DISTRIBUTIONS, mixture, uniform_length
from rationales.compat.text import pack, read_text
from rationales.compat.wikitext import detokenise, is_tokenised
from rationales.errors import RationalesError
from rationales.models import fingerprint
from rationales.text import prefix_ids

from tiny_models import build

SENTENCE = "The law of the land is the law, and the dog sleeps on the way to the airport. "
TEXT = "\n".join(f"{place} {SENTENCE * 3}" for place in ("Court", "Bangkok", "City", "Fox") * 12)


def one_line(caught) -> str:
    message = str(caught.value)
    assert message
    assert "\n" not in message
    return message


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory, tiny_tokenizer):
    """A small model on disk, with its tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "tiny-llama"
    build("llama", vocab_size=len(tiny_tokenizer)).save_pretrained(folder)
    tiny_tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def text_file(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text(TEXT, encoding="utf-8")
    return file


def six_steps(model_folder: Path, folder: Path) -> TrainOptions:
    """A run on the text in a folder."""
    return TrainOptions(
        texts=(str(folder / "text.txt"),),
        out=folder / "out",
        model=str(model_folder),
        lora_rank=4,
        length=16,
        batch=4,
        micro_batch=2,
        steps=6,
        checkpoint_every=2,
        learning_rate=1e-2,
        seed=3,
    )


@pytest.fixture
def options(model_folder, text_file, tmp_path):
    """A run of six steps."""
    return six_steps(model_folder, tmp_path)


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(next(folder.glob("*model.safetensors")))


def assert_same_weights(one: Path, other: Path) -> None:
    first, second = weights_of(one), weights_of(other)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


# Text


def test_the_spacing_of_wikitext_is_undone():
    tokenised = """
 = Valkyria Chronicles III =

 A tactical role @-@ playing game ( Japanese : 戦場 , lit . Field ) sold 1 @,@ 250 @.@ 5 copies .
 It follows the " Nameless " , and " Calamaty Raven " ; the players ' choice , isn 't it ?
 = = Gameplay = =
 Pat O 'Connor 's film didn 't cost $ 5 : " I ' ve ' had ' it " , he said at 10 : 30 !
"""
    assert is_tokenised(tokenised)
    assert detokenise(tokenised).split("\n") == [
        "A tactical role-playing game (Japanese: 戦場, lit. Field) sold 1,250.5 copies.",
        'It follows the "Nameless", and "Calamaty Raven"; the players\' choice, isn\'t it?',
        "Pat O'Connor's film didn't cost $5: \"I 've' had 'it\", he said at 10:30!",
        "",
    ]


def test_a_file_is_left_as_it_is_unless_it_looks_like_wikitext(tmp_path):
    odd = tmp_path / "odd.txt"
    odd.write_bytes("\ufeffA , strange ( way ) .\r\nto write = x =".encode())
    text = read_text(odd)
    assert text.text == "A , strange ( way ) .\nto write = x ="
    assert text.name == "odd.txt"
    assert len(text.sha256) == 64
    odd.write_text("one @-@ two , three .", encoding="utf-8")
    assert read_text(odd).text == "one-two, three.\n"


def test_files_that_cannot_be_read_are_one_line(tmp_path):
    with pytest.raises(RationalesError, match="cannot read") as caught:
        read_text(tmp_path / "none.txt")
    one_line(caught)
    (tmp_path / "latin.txt").write_bytes("Größe".encode("latin-1"))
    with pytest.raises(RationalesError, match="not UTF-8") as caught:
        read_text(tmp_path / "latin.txt")
    one_line(caught)


def test_rows_begin_where_paragraphs_or_sentences_begin(tiny_tokenizer_with_bos):
    tokenizer = tiny_tokenizer_with_bos
    sentences = [f"Number {n} is the law of the land." for n in range(60)]
    paragraphs = [" ".join(sentences[n : n + 10]) for n in range(0, 60, 10)]
    text = "\n\n".join(paragraphs)
    rows = pack(text, tokenizer, 40)
    assert len(rows) > 10
    assert rows.shape[1] == 40
    assert rows.dtype == torch.int32
    starts = []
    for row in rows.tolist():
        assert row[0] == tokenizer.bos_token_id
        part = tokenizer.decode(row[1:])
        assert part in text
        starts.append(int(part.removeprefix("Number ").split()[0]))
    assert {0, 10, 20, 30, 40, 50} <= set(starts)
    assert starts == sorted(set(starts))  # none twice, in order


def test_text_without_sentences_is_cut_between_words_or_anywhere(tiny_tokenizer):
    words = "law " * 300
    rows = pack(words, tiny_tokenizer, 20)
    assert rows.numel() > 0.8 * len(tiny_tokenizer(words)["input_ids"])
    assert all(tiny_tokenizer.decode(row).startswith("law") for row in rows)
    assert len(pack("東" * 300, tiny_tokenizer, 20)) > 10


def test_hard_wrapped_paragraphs_are_told_by_blank_lines(tiny_tokenizer):
    text = "\n\n".join(f"Chapter {n} of the law\nwent on and on\nand on." for n in range(30))
    rows = pack(text, tiny_tokenizer, 40)
    assert all(tiny_tokenizer.decode(row).startswith("Chapter") for row in rows)


@pytest.mark.parametrize("text", ["", "Too short.", "\n \n"])
def test_a_text_that_does_not_fill_a_row_has_none(tiny_tokenizer, text):
    assert pack(text, tiny_tokenizer, 16).shape == (0, 16)


def test_a_text_that_is_too_short_is_refused(options, text_file):
    text_file.write_text("Too short.", encoding="utf-8")
    with pytest.raises(RationalesError, match=r"text\.txt is too short") as caught:
        training.train(options)
    one_line(caught)


# The model's own text


def test_own_text_is_drawn_from_the_model(tiny_tokenizer_with_bos):
    tokenizer = tiny_tokenizer_with_bos
    model = build("gpt2", vocab_size=len(tokenizer))
    rows = sample_rows(model, tokenizer, (3000, 3), seed=1)
    assert rows.shape == (3000, 3)
    assert (rows[:, 0] == tokenizer.bos_token_id).all()
    assert not set(tokenizer.all_special_ids) & set(rows[:, 1:].flatten().tolist())

    def expected(prefix: list[int]) -> torch.Tensor:
        logits = model(input_ids=torch.tensor([prefix])).logits[0, -1].detach().double()
        logits[tokenizer.all_special_ids] = -math.inf
        return logits.softmax(-1)

    def assert_drawn_from(ids: torch.Tensor, chances: torch.Tensor) -> None:
        seen, likely = torch.bincount(ids, minlength=len(chances)), chances * len(ids) > 5
        counts = [*seen[likely].tolist(), int(seen[~likely].sum())]
        wanted = [*(chances[likely] * len(ids)).tolist(), float(chances[~likely].sum() * len(ids))]
        assert stats.chisquare(counts, wanted).pvalue > 1e-4

    assert_drawn_from(rows[:, 1], expected([tokenizer.bos_token_id]))
    # The third token comes through the cache of keys and values.
    common = int(rows[:, 1].mode().values)
    after = rows[rows[:, 1] == common][:, 2]
    assert_drawn_from(after, expected([tokenizer.bos_token_id, common]))


def test_own_text_repeats_with_its_seed_and_begins_as_told(tiny_tokenizer):
    model = build("gpt2", vocab_size=len(tiny_tokenizer))
    assert prefix_ids(tiny_tokenizer) == []
    heard = []
    one = sample_rows(model, tiny_tokenizer, (70, 5), seed=1, progress=heard.append)
    assert torch.equal(one, sample_rows(model, tiny_tokenizer, (70, 5), seed=1))
    assert not torch.equal(one, sample_rows(model, tiny_tokenizer, (70, 5), seed=2))
    assert len(set(one[:, 0].tolist())) > 30
    assert heard == sorted(heard)
    starts = torch.tensor([9, 11], dtype=torch.int32)
    begun = sample_rows(model, tiny_tokenizer, (20, 5), seed=1, starts=starts)
    assert set(begun[:, 0].tolist()) == {9, 11}


# The order of the rows


def test_rows_are_a_function_of_seed_and_step():
    files, own = torch.arange(10)[:, None], 100 + torch.arange(3)[:, None]
    rows = Rows(files, own, 0.25, seed=5)
    batches = [rows.batch(step, 4).flatten().tolist() for step in range(20)]
    assert batches == [rows.batch(step, 4).flatten().tolist() for step in range(20)]
    flat = [n for batch in batches for n in batch]
    assert all(sum(n >= 100 for n in batch) == 1 for batch in batches)  # a quarter of four
    texts = [n for n in flat if n < 100]
    assert [sorted(texts[n : n + 10]) for n in range(0, 60, 10)] == [list(range(10))] * 6
    assert texts[:10] != texts[10:20]
    other = Rows(files, own, 0.25, seed=6)
    assert batches != [other.batch(step, 4).flatten().tolist() for step in range(20)]
    with pytest.raises(RationalesError):
        Rows(files[:0], own, 0.25, 5)


# Losses


def test_distilling_is_the_divergence_and_its_gradient():
    rng = generator(0, "test", 0)
    student, teacher = torch.randn(2, 2, 3, 50, generator=rng, dtype=torch.float32) * 3
    first, second = (student.clone().requires_grad_() for _ in range(2))
    log_q, log_p = second.log_softmax(-1), teacher.log_softmax(-1)
    weights = torch.tensor([0.5, 3.0])
    each = functional.kl_div(log_q, log_p, log_target=True, reduction="none")
    plain = (each.sum((1, 2)) * weights).sum()
    (plain * 0.7).backward()
    loss = distill_loss(first, teacher.clone(), weights)
    (loss * 0.7).backward()
    assert loss.item() == pytest.approx(plain.item(), rel=1e-5)
    assert torch.allclose(first.grad, second.grad, atol=1e-6)
    assert float(distill_loss(student, student.clone(), weights)) == pytest.approx(0, abs=1e-5)


def test_the_loss_on_data_is_that_of_the_next_token():
    logits, ids = torch.randn(2, 5, 9), torch.randint(9, (2, 5))
    log_p = logits.log_softmax(-1)
    weights = torch.tensor([0.5, 3.0])
    wanted = -sum(weights[r] * log_p[r, i, ids[r, i + 1]] for r in range(2) for i in range(4))
    assert float(data_loss(logits, ids, weights)) == pytest.approx(float(wanted), rel=1e-5)


def test_full_rows_count_by_their_weight_and_rows_one_on_average():
    keep = torch.ones(4, 3, 5, dtype=torch.bool)
    keep[1, 2, 4] = keep[3] = False  # one head that misses one token is enough
    assert row_weights(keep, 0.5, 3.0).tolist() == [1.5, 0.5, 1.5, 0.5]
    assert row_weights(keep, 0.5, 1.0).tolist() == [1.0] * 4
    draw = mixture(DISTRIBUTIONS["uniform-length"], 0.25)
    keep = draw(4000, 12, 1, generator(0, "test", 0))
    assert float(row_weights(keep, 0.25, 4.0).mean()) == pytest.approx(1, abs=0.05)


def test_the_rate_rises_and_then_falls_to_zero():
    assert [schedule(f, 0.2) for f in (0.0, 0.1, 0.2, 0.6, 1.0)] == pytest.approx(
        [0, 0.5, 1, 0.5, 0]
    )
    assert schedule(0.25, 0.0) == 0.75
    assert schedule(0.5, 1.0) == 0.5


# What is trained


@pytest.mark.parametrize("family", ["gpt2", "llama", "gpt-neox"])
def test_gradients_flow_only_through_the_adapter(family, options):
    model = build(family)
    weights = {name: weight.clone() for name, weight in model.named_parameters()}
    head = model.get_output_embeddings()
    ids = torch.randint(2, 60, (2, 12), generator=generator(0, "test", 1))
    with torch.no_grad():
        base = model(input_ids=ids).logits
    student = LoraStudent(model, options)
    masked_pass = MaskedPass(model)
    logits = masked_pass(student.module, ids, None)
    assert torch.allclose(logits, base, atol=1e-4)  # an adapter begins as nothing
    logits.square().mean().backward()
    trained = {n: w for n, w in student.module.named_parameters() if w.requires_grad}
    assert trained
    for name, weight in student.module.named_parameters():
        assert (weight.grad is not None) == (name in trained) == ("lora_" in name)
    assert model.get_output_embeddings() is head  # the last layer has no adapter
    torch.optim.AdamW(trained.values(), lr=0.1).step()
    with student.teacher() as teacher:
        assert torch.equal(masked_pass(teacher, ids, None), base)  # the adapter is off
    assert not torch.allclose(masked_pass(student.module, ids, None), base, atol=1e-3)
    kept = {n.replace(".base_layer", ""): w for n, w in model.named_parameters() if "lora" not in n}
    assert kept.keys() == weights.keys()
    assert all(torch.equal(kept[name], weights[name]) for name in weights)


def test_all_weights_are_held_to_a_frozen_copy(options):
    model = build("llama")
    original = copy.deepcopy(model)
    student = make_student(model, replace(options, method="full"))
    ids = torch.randint(2, 60, (2, 12))
    masked_pass = MaskedPass(model)
    masked_pass(student.module, ids, None).square().mean().backward()
    assert all(weight.grad is not None for weight in student.module.parameters())
    torch.optim.SGD(student.module.parameters(), lr=1.0).step()
    with student.teacher() as teacher:
        assert teacher is not student.module
        assert not any(weight.requires_grad for weight in teacher.parameters())
        assert torch.equal(masked_pass(teacher, ids, None), masked_pass(original, ids, None))


def divergence(model, base, ids: torch.Tensor) -> float:
    """KL of predictions from random subsets to those of the base model from everything."""
    keep = uniform_length(len(ids), ids.shape[1], 1, generator(99, "test", 0))
    with torch.no_grad():
        student = MaskedPass(model)(model, ids, keep)
        teacher = MaskedPass(base)(base, ids, None)
        return float(distill_loss(student, teacher, torch.ones(len(ids)))) / ids.numel()


def load(folder: Path):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder).eval()


@pytest.mark.parametrize("method", ["lora", "full"])
def test_training_brings_subsets_nearer_to_the_full_context(
    method, options, model_folder, tiny_tokenizer, tmp_path
):
    reports = []
    longer = replace(options, method=method, steps=60, batch=8, micro_batch=8)
    result = training.train(longer, on_step=reports.append)
    base = load(model_folder)
    ids = pack(TEXT, tiny_tokenizer, 16)[:32].long()
    learned = load_adapter(base, result.folder) if method == "lora" else load(result.folder)
    assert divergence(learned, base, ids) < 0.8 * divergence(base, base, ids)
    assert [report.step for report in reports] == list(range(1, 61))
    assert reports[-1].fraction == 1
    assert reports[-1].loss == pytest.approx(result.loss)
    assert all(report.tokens_per_second > 0 for report in reports)
    record = json.loads((result.folder / "compat.json").read_text())
    assert record["steps"] == result.steps == 60
    assert record["tokens"] == result.tokens == 60 * 8 * 16
    assert record["options"]["method"] == method
    assert record["base"]["name"] == "tiny-llama"
    assert record["data"] == [{"name": "text.txt", "sha256": read_text(options.texts[0]).sha256}]
    assert {"torch", "transformers", "peft", "accelerate", "rationales"} <= set(record["versions"])
    assert not (result.folder / "checkpoints").exists()
    for file in result.folder.iterdir():  # nothing tells where it was made
        assert str(tmp_path).encode() not in file.read_bytes()
        assert str(model_folder).encode() not in file.read_bytes()


def test_a_run_goes_on_from_an_adapter(options, tmp_path):
    first = training.train(options)
    # A run that changes next to nothing keeps what it started from.
    idle = replace(options, start=first.folder, out=tmp_path / "idle", steps=1, learning_rate=1e-9)
    second = training.train(idle)
    before, after = weights_of(first.folder), weights_of(second.folder)
    assert all(torch.allclose(before[name], after[name], atol=1e-4) for name in before)
    assert any(weight.abs().max() > 1e-3 for name, weight in after.items() if "lora_B" in name)
    record = json.loads((second.folder / "compat.json").read_text())
    assert record["start"]["command"].startswith("rationales compat train")
    assert record["start"]["steps"] == 6
    assert "--start out" in record["command"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lora_rank": 8}, "rank 4 and alpha"),
        ({"start": "nowhere"}, "nowhere holds no adapter"),
    ],
)
def test_an_adapter_that_does_not_fit_is_one_line(options, tmp_path, changes, message):
    start = training.train(options).folder
    again = replace(options, **{"start": start, "out": tmp_path / "again"} | changes)
    with pytest.raises(RationalesError, match=message) as caught:
        training.train(again)
    one_line(caught)


def test_all_weights_start_from_no_adapter(options):
    with pytest.raises(RationalesError, match="goes with the method lora"):
        replace(options, method="full", start="x")


def test_the_loss_on_data_needs_no_teacher(options):
    result = training.train(replace(options, loss="data", distribution="inverse-length"))
    assert 3 < result.loss < 12  # nats, of some 400 tokens
    assert weights_of(result.folder)


def test_own_text_is_sampled_once(options, monkeypatch):
    own = replace(options, texts=(*options.texts, "self"), self_share=0.5, self_rows=10)

    def stop(report) -> None:
        if report.step == 3:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        training.train(own, on_step=stop)
    monkeypatch.setattr(training, "sample_rows", lambda *_, **__: pytest.fail("sampled again"))
    result = training.train(own)
    record = json.loads((result.folder / "compat.json").read_text())
    assert [data["name"] for data in record["data"]] == ["text.txt", "self"]
    assert "--text text.txt --text self" in record["command"]
    assert "--self-share 0.5 --self-rows 10" in record["command"]


def test_the_recorded_command_gives_the_same_options(command, options, text_file, monkeypatch):
    given = replace(options, texts=("self", str(text_file)), distribution="uniform")
    taken = []

    def take(options, **_):
        taken.append(options)
        return training.TrainResult(Path(options.out), 1, 1, 1.0, 1.0)

    monkeypatch.setattr(training, "train", take)
    words = given.command(str(given.model), [str(text_file)]).split()
    assert command(*words[1:]) == 0
    assert taken[0].recorded() == given.recorded()


# Going on


@pytest.fixture(scope="module")
def unbroken(model_folder, tmp_path_factory):
    """The folder of a run that nothing happened to."""
    folder = tmp_path_factory.mktemp("unbroken")
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    return training.train(six_steps(model_folder, folder)).folder


def break_at(step: int, error: BaseException):
    def on_step(report) -> None:
        if report.step == step:
            raise error

    return on_step


@pytest.mark.parametrize("step", [1, 2, 5])
def test_a_broken_run_goes_on_to_the_same_weights(step, options, unbroken):
    with pytest.raises(ZeroDivisionError):
        training.train(options, on_step=break_at(step, ZeroDivisionError()))
    seen = []
    result = training.train(options, on_step=lambda report: seen.append(report.step))
    assert seen == list(range(step // 2 * 2 + 1, 7))  # from the last checkpoint on
    assert_same_weights(result.folder, unbroken)
    recorded = [
        json.loads((folder / "compat.json").read_text()) for folder in (result.folder, unbroken)
    ]
    assert recorded[0]["loss"] == recorded[1]["loss"]


def test_a_killed_process_goes_on_to_the_same_weights(options, unbroken):
    script = f"""
import os, signal, torch
torch.set_num_threads(1)
from pathlib import Path, PosixPath
from rationales.compat.train import TrainOptions, train
def kill(report):
    if report.step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
train({options!r}, on_step=kill)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    seen = []
    result = training.train(options, on_step=lambda report: seen.append(report.step))
    assert seen == [3, 4, 5, 6]
    assert_same_weights(result.folder, unbroken)


def test_an_interrupt_saves_the_last_step(options, unbroken):
    with pytest.raises(training.TrainingInterrupted) as caught:
        training.train(options, on_step=break_at(3, KeyboardInterrupt()))
    assert isinstance(caught.value, KeyboardInterrupt)
    assert caught.value.step == 3
    seen = []
    result = training.train(options, on_step=lambda report: seen.append(report.step))
    assert seen == [4, 5, 6]
    assert_same_weights(result.folder, unbroken)


def test_an_interrupt_within_a_step_saves_the_step_before(options, unbroken, monkeypatch):
    calls = []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 8:  # the second half of the fourth step
            raise KeyboardInterrupt
        return distill_loss(*arguments)

    monkeypatch.setattr(learning, "distill_loss", interrupted)
    with pytest.raises(training.TrainingInterrupted) as caught:
        training.train(options)
    assert caught.value.step == 3
    assert_same_weights(training.train(options).folder, unbroken)


def test_an_interrupt_within_an_update_leaves_the_last_checkpoint(options, unbroken, monkeypatch):
    step, calls = torch.optim.AdamW.step, []

    def interrupted(self, *args, **rest):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return step(self, *args, **rest)

    monkeypatch.setattr(torch.optim.AdamW, "step", interrupted)
    with pytest.raises(training.TrainingInterrupted) as caught:
        training.train(options)
    assert caught.value.step == 2
    assert_same_weights(training.train(options).folder, unbroken)


def test_a_run_bounded_by_time_follows_the_clock(options, monkeypatch):
    """A clock that goes on by a second whenever it is looked at: a step takes one second."""
    now, rates = [0.0], []

    class Clock:
        @staticmethod
        def monotonic() -> float:
            now[0] += 1
            return now[0]

    monkeypatch.setattr(learning, "time", Clock)
    timed = replace(options, steps=None, minutes=0.1, warmup=0.5, checkpoint_every=1)
    step = torch.optim.AdamW.step

    def watched(self, *args, **rest):
        rates.append(self.param_groups[0]["lr"])
        return step(self, *args, **rest)

    monkeypatch.setattr(torch.optim.AdamW, "step", watched)
    with pytest.raises(ZeroDivisionError):
        training.train(timed, on_step=break_at(4, ZeroDivisionError()))
    result = training.train(timed)
    assert result.steps == 6
    assert result.seconds == 6
    # In the middle of each second, but for the first: how long it takes is not known yet, …
    middle = [1 / 6, 1 / 2, 5 / 6, 5 / 6, 1 / 2, 1 / 6]
    # … nor, of a run that goes on, how long its first step will take.
    middle[0], middle[4] = 0.0, 2 / 3
    assert rates == pytest.approx([1e-2 * share for share in middle])


# The folder


def state(step: int) -> State:
    weights = {"w": torch.full((3,), float(step))}
    return State(step, 1.5 * step, [0.5], weights, {"state": {}, "param_groups": []})


def test_the_last_two_checkpoints_are_kept_and_the_last_is_loaded(tmp_path):
    run = RunFolder(tmp_path)
    with run.opened({"a": 1}, overwrite=False):
        assert run.load() is None
        for step in (5, 10, 15):
            run.save(state(step))
    assert [path.name for path in sorted((tmp_path / "checkpoints").iterdir())] == [
        "step-00000010",
        "step-00000015",
    ]
    loaded = run.load()
    assert (loaded.step, loaded.seconds, loaded.losses) == (15, 22.5, [0.5])
    assert torch.equal(loaded.weights["w"], torch.full((3,), 15.0))


def test_a_half_written_checkpoint_is_never_loaded(tmp_path):
    run = RunFolder(tmp_path)
    with run.opened({"a": 1}, overwrite=False):
        run.save(state(5))
        run.save(state(10))
        whole = (tmp_path / "checkpoints" / "step-00000010" / "state.pt").read_bytes()
        hidden = tmp_path / "checkpoints" / ".step-00000015.abc"
        hidden.mkdir()
        (hidden / "state.pt").write_bytes(whole[: len(whole) // 2])
        assert run.load().step == 10
        (tmp_path / "checkpoints" / "step-00000010" / "state.pt").write_bytes(whole[:100])
        run = RunFolder(tmp_path)
        assert run.load().step == 5
        run.save(state(10))  # in the place of the one that cannot be read
        assert run.load().step == 10
    with RunFolder(tmp_path).opened({"a": 1}, overwrite=False):
        assert not hidden.exists()


@pytest.mark.parametrize("how", ["no space", "quota", "from torch"])
def test_a_full_disk_leaves_the_last_checkpoint(how, options, unbroken, monkeypatch):
    save, calls = torch.save, []

    def full(content, file):
        calls.append(1)
        if len(calls) < 2:
            return save(content, file)
        file.write(b"half of it")
        if how == "from torch":
            try:
                raise OSError(errno.ENOSPC, "No space left on device")
            except OSError as error:
                raise RuntimeError("unexpected pos 576 vs 534") from error
        number = errno.ENOSPC if how == "no space" else errno.EDQUOT
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(runs.torch, "save", full)
    with pytest.raises(RationalesError, match=r"no space left in .* for a checkpoint") as caught:
        training.train(options)
    assert "step-00000002 is kept" in one_line(caught)
    assert [p.name for p in (Path(options.out) / "checkpoints").iterdir()] == ["step-00000002"]
    monkeypatch.undo()
    assert_same_weights(training.train(options).folder, unbroken)


def test_a_disk_that_is_full_in_the_end_leaves_no_half_result(options, unbroken, monkeypatch):
    def full(self, folder, name, tokenizer):
        (folder / "adapter_model.safetensors").write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(LoraStudent, "save", full)
        with pytest.raises(RationalesError, match=r"no space left in .* for the result"):
            training.train(options)
    assert {p.name for p in Path(options.out).iterdir()} <= {"checkpoints", "run.json", "run.lock"}
    assert_same_weights(training.train(options).folder, unbroken)


def test_a_folder_that_cannot_be_made_is_one_line(options, text_file):
    with pytest.raises(RationalesError, match="cannot write the run") as caught:
        training.train(replace(options, out=text_file / "out"))
    one_line(caught)


def test_another_run_is_never_overwritten_unasked(options, text_file):
    first = training.train(options)
    before = weights_of(first.folder)
    (first.folder / "notes.txt").write_text("mine")
    others = [
        (
            replace(options, distribution="uniform"),
            "its distribution is log-uniform-length, not uniform",
        ),
        (replace(options, seed=4), "its seed is 3, not 4"),
        (replace(options, steps=7), "its steps is 6, not 7"),
    ]
    for other, why in others:
        with pytest.raises(RationalesError, match=why) as caught:
            training.train(other)
        assert "--overwrite" in one_line(caught)
    text_file.write_text(TEXT + " More.", encoding="utf-8")
    with pytest.raises(RationalesError, match="its data differs"):
        training.train(options)
    assert weights_of(first.folder).keys() == before.keys()
    second = training.train(replace(options, seed=4, overwrite=True))
    assert any(not torch.equal(before[n], w) for n, w in weights_of(second.folder).items())
    assert (first.folder / "notes.txt").read_text() == "mine"


def test_overwriting_removes_what_the_run_before_wrote(options):
    folder = training.train(replace(options, method="full")).folder
    assert (folder / "model.safetensors").is_file()
    training.train(replace(options, overwrite=True))
    assert not (folder / "model.safetensors").exists()
    assert not (folder / "tokenizer.json").exists()
    assert (folder / "adapter_model.safetensors").is_file()


def test_a_folder_with_other_files_is_refused(options):
    folder = Path(options.out)
    folder.mkdir()
    (folder / "thesis.tex").write_text("mine")
    with pytest.raises(RationalesError, match="it has other files"):
        training.train(options)
    training.train(replace(options, overwrite=True))
    assert (folder / "thesis.tex").read_text() == "mine"


def test_a_finished_run_is_found_again(options):
    first = training.train(options)
    assert training.train(options, on_step=lambda _: pytest.fail("trained again")) == first


def test_one_process_at_a_time(tmp_path):
    with (
        RunFolder(tmp_path).opened({"a": 1}, overwrite=False),
        pytest.raises(RationalesError, match="another process trains in") as caught,
        RunFolder(tmp_path).opened({"a": 1}, overwrite=False),
    ):
        pass
    one_line(caught)


# Adapters


@pytest.fixture(scope="module")
def adapter(tmp_path_factory, model_folder):
    """The folder of a trained adapter."""
    folder = tmp_path_factory.mktemp("adapter")
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    options = TrainOptions(
        texts=(str(folder / "text.txt"),),
        out=folder / "out",
        model=str(model_folder),
        lora_rank=4,
        length=16,
        batch=8,
        steps=10,
        learning_rate=1e-2,
    )
    return training.train(options).folder


def test_an_adapter_is_merged_into_a_copy(adapter, model_folder):
    from peft import PeftModel

    model = load(model_folder)
    ids = torch.randint(2, 60, (2, 12))
    with torch.no_grad():
        before = model(input_ids=ids).logits
        merged = load_adapter(model, adapter)
        assert torch.equal(model(input_ids=ids).logits, before)  # to the last bit
        assert fingerprint(model) == fingerprint(load(model_folder))
        learned = merged(input_ids=ids).logits
        apart = PeftModel.from_pretrained(load(model_folder), adapter)(input_ids=ids).logits
    assert type(merged) is type(model)
    assert not merged.training
    assert not any(weight.requires_grad for weight in merged.parameters())
    assert not torch.allclose(learned, before, atol=1e-2)
    assert torch.allclose(learned, apart, atol=1e-4)
    assert all(weight.dtype == torch.float16 for weight in weights_of(adapter).values())
    config = json.loads((adapter / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "tiny-llama"
    assert config["target_modules"] == sorted(config["target_modules"])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_an_adapter_fits_its_model_in_any_type(adapter, model_folder, dtype):
    model = load(model_folder).to(dtype)
    merged = load_adapter(model, adapter)
    assert merged.dtype == model.dtype == dtype


def test_the_adapter_of_another_model_is_refused(adapter, tiny_tokenizer):
    other = build("llama", vocab_size=len(tiny_tokenizer))
    with torch.no_grad():
        other.model.layers[1].mlp.up_proj.weight[0, 0] += 1e-3
    with pytest.raises(RationalesError, match="was trained for tiny-llama, not for this") as caught:
        load_adapter(other, adapter)
    one_line(caught)


def test_a_folder_without_a_record_or_with_a_damaged_one_is_refused(
    adapter, model_folder, tmp_path
):
    model = load(model_folder)
    with pytest.raises(RationalesError, match="holds no adapter") as caught:
        load_adapter(model, tmp_path)
    one_line(caught)
    for file in adapter.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "adapter_model.safetensors").write_bytes(b"rubbish")
    with pytest.raises(RationalesError, match="is damaged") as caught:
        load_adapter(model, tmp_path)
    one_line(caught)
    (tmp_path / "compat.json").write_text("{}")
    with pytest.raises(RationalesError, match=r"compat\.json is damaged"):
        load_adapter(model, tmp_path)


# Options


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"texts": ()}, "at least one text"),
        ({"steps": 3, "minutes": 1.0}, "not both"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"length": 1}, "length must be at least 2"),
        ({"distribution": "normal"}, "distribution is one of uniform"),
        ({"loss": "mse"}, "loss is one of"),
        ({"method": "prefix"}, "method is one of"),
        ({"dtype": "float16"}, "dtype is one of"),
        ({"mixture": 1.5}, "mixture is a share"),
        ({"full_weight": 0.0}, "full_weight must be more than 0"),
        ({"minutes": 0.0, "steps": None}, "minutes must be more than 0"),
        ({"learning_rate": math.nan}, "learning_rate must be more than 0"),
    ],
)
def test_options_are_checked(options, change, why):
    with pytest.raises(RationalesError, match=why) as caught:
        replace(options, **change)
    one_line(caught)


def test_rows_longer_than_the_model_are_refused(options):
    with pytest.raises(RationalesError, match="--length 65 is more than the 64 positions"):
        training.train(replace(options, length=65))


def test_bfloat16_is_tried_before_it_is_used(options, monkeypatch):
    def dies() -> None:
        raise RationalesError("no bfloat16 here")

    monkeypatch.setattr(training, "check_bfloat16", dies)
    with pytest.raises(RationalesError, match="no bfloat16 here"):
        training.train(replace(options, dtype="bfloat16"))
    assert not Path(options.out).exists()


def test_a_loss_that_is_no_number_ends_the_run(options):
    with pytest.raises(RationalesError, match=r"the loss is .* lower --learning-rate") as caught:
        training.train(replace(options, learning_rate=1e30))
    one_line(caught)


def test_rows_are_shared_among_processes(options, monkeypatch):
    class Two(Accelerator):
        num_processes = 2

    monkeypatch.setattr(training, "Accelerator", Two)
    with pytest.raises(RationalesError, match="--batch 3 cannot be shared among 2 processes"):
        training.train(replace(options, batch=3))


# The command


@pytest.fixture
def command(monkeypatch):
    """Runs ``rationales`` with its arguments; gives the exit code."""
    app = typer.Typer()
    app.add_typer(compat_commands.app, name="compat")
    monkeypatch.setattr(cli, "app", app)
    return lambda *arguments: cli.run([str(argument) for argument in arguments])


SMALL = ("--length", 16, "--batch", 4, "--lora-rank", 4, "--checkpoint-every", 2)


def test_the_command_trains(command, model_folder, text_file, tmp_path, capsys):
    out = tmp_path / "out"
    given = ("compat", "train", "--model", model_folder, "--text", text_file, "--out", out, *SMALL)
    assert command(*given, "--steps", 3) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{out}\n"
    assert "3 steps · 192 tokens" in captured.err
    assert (out / "adapter_model.safetensors").is_file()
    assert command(*given, "--steps", 4) == 2
    assert "its steps is 3, not 4" in capsys.readouterr().err


def test_an_interrupted_command_says_how_to_go_on(
    command, model_folder, text_file, tmp_path, capsys, monkeypatch
):
    tell = compat_commands._teller

    def interrupting(bar):
        teller = tell(bar)

        def on_step(report) -> None:
            teller(report)
            if report.step == 3:
                raise KeyboardInterrupt

        return on_step

    given = ("compat", "train", "--model", model_folder, "--text", text_file, *SMALL)
    given = (*given, "--steps", 5, "--out", tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr(compat_commands, "_teller", interrupting)
        assert command(*given) == 130
    error = capsys.readouterr().err
    assert "the checkpoint of step 3 is saved: the same command goes on from there" in error
    assert command(*given) == 0
    assert "5 steps" in capsys.readouterr().err
