"""Training for compatibility on tiny models: what is learned, and that runs resume exactly."""

from __future__ import annotations

import copy
import errno
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import typer
from transformers import TrainingArguments

from rationales import cli
from rationales.cli import compat as compat_commands
from rationales.compat import train as training
from rationales.compat import trainer as trainers
from rationales.compat.adapter import load_adapter
from rationales.compat.inputs import MaskedPass
from rationales.compat.losses import data_loss, distill_loss, row_weights
from rationales.compat.options import TrainOptions
from rationales.compat.rows import Rows, generator
from rationales.compat.students import make_student
from rationales.compat.subsets import DISTRIBUTIONS, mixture, uniform_length
from rationales.compat.text import pack, read_text
from rationales.compat.trainer import SubsetTrainer, training_arguments
from rationales.errors import RationalesError, RationalesWarning
from rationales.models.identity import fingerprint

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


def test_a_text_that_is_too_short_is_refused(options, text_file):
    text_file.write_text("Too short.", encoding="utf-8")
    with pytest.raises(RationalesError, match=r"text\.txt is too short") as caught:
        training.train(options)
    one_line(caught)


# Losses


def test_distilling_is_the_divergence_and_its_gradient():
    rng = generator(0, "test", 0)
    student, teacher = torch.randn(2, 2, 3, 50, generator=rng, dtype=torch.float32) * 3
    first, second = (student.clone().requires_grad_() for _ in range(2))
    log_q, log_p = second.log_softmax(-1), teacher.log_softmax(-1)
    weights = torch.tensor([0.5, 3.0])
    plain = (log_p.exp() * (log_p - log_q)).sum(-1).mean(-1)
    (plain * weights).sum().backward()
    loss = distill_loss(first, teacher)
    (loss * weights).sum().backward()
    assert loss.tolist() == pytest.approx(plain.tolist(), rel=1e-5)
    assert torch.allclose(first.grad, second.grad, atol=1e-6)
    assert distill_loss(student, student).tolist() == pytest.approx([0, 0], abs=1e-5)


def test_the_loss_on_data_is_that_of_the_next_token():
    logits, targets = torch.randn(2, 5, 9), torch.randint(9, (2, 5))
    log_p = logits.log_softmax(-1)
    wanted = [-sum(float(log_p[r, i, targets[r, i]]) for i in range(5)) / 5 for r in range(2)]
    assert data_loss(logits, targets).tolist() == pytest.approx(wanted, rel=1e-5)


def test_full_rows_count_by_their_weight_and_rows_one_on_average():
    keep = torch.ones(4, 3, 5, dtype=torch.bool)
    keep[1, 2, 4] = keep[3] = False  # one head that misses one token is enough
    assert row_weights(keep, 0.5, 3.0).tolist() == [1.5, 0.5, 1.5, 0.5]
    assert row_weights(keep, 0.5, 1.0).tolist() == [1.0] * 4
    draw = mixture(DISTRIBUTIONS["uniform-length"], 0.25)
    keep = draw(4000, 12, 1, generator(0, "test", 0))
    assert float(row_weights(keep, 0.25, 4.0).mean()) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    ("bound", "seconds"), [({"steps": 5}, [0] * 6), ({"steps": None, "minutes": 5 / 60}, range(6))]
)
def test_the_rate_rises_and_then_falls_to_zero(options, bound, seconds):
    options = replace(options, warmup=0.5, **bound)
    rates = [options.rate(step, after) for step, after in enumerate(seconds)]
    middles = [0.2, 0.6, 1.0, 0.6, 0.2] if options.steps else [0, 0.6, 1.0, 0.6, 0.2]
    assert rates[:5] == pytest.approx(middles)  # how long the first step takes is not known
    assert [options.fraction(*done) for done in enumerate(seconds)][-1] == 1
    assert replace(options, warmup=0.0).rate(1, 1) == pytest.approx(0.7)


# What is trained


def plain_step(model, rows: Rows, batch: int, rate: float) -> None:
    """One step of AdamW, a target at a time, each given nothing but its own kept tokens."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    total = 0.0
    for item in (rows[number] for number in range(batch)):
        ids, keep = item["ids"], item["keep"][0]
        for last in range(len(ids) - 1):
            seen = torch.tensor([i for i in range(last + 1) if keep[i] or i == last])
            logits = model(
                input_ids=ids[seen][None],
                position_ids=seen[None],
                attention_mask=torch.ones(1, len(seen), dtype=torch.long),
            ).logits[0, -1]
            total = total - logits.log_softmax(-1)[ids[last + 1]] / (len(ids) - 1) / batch
    total.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


@pytest.mark.parametrize("micro_batch", [4, 3, 1])
def test_a_step_is_that_of_one_subset_at_a_time(options, tmp_path, micro_batch):
    model, oracle = build("llama"), build("llama")
    draw = mixture(DISTRIBUTIONS["uniform"], 0.8)
    ids = torch.randint(2, 60, (4, 10), generator=generator(0, "test", 2))
    rows = Rows(ids, 0, draw=lambda rng: draw(1, 9, 1, rng)[0])
    arguments = training_arguments(
        tmp_path, steps=1, batch=4, micro_batch=micro_batch, learning_rate=1e-2
    )
    one_step = replace(options, steps=1, warmup=0.5)  # the middle of the step has the highest rate
    SubsetTrainer(model, MaskedPass(model), rows, arguments, one_step).run()
    plain_step(oracle, rows, 4, 1e-2)
    for name, weight in oracle.named_parameters():
        assert torch.allclose(model.get_parameter(name), weight, atol=1e-4), name


@pytest.mark.parametrize("family", ["gpt2", "llama", "gpt-neox"])
def test_gradients_flow_only_through_the_adapter(family, options):
    model = build(family)
    weights = {name: weight.clone() for name, weight in model.named_parameters()}
    head = model.get_output_embeddings()
    ids = torch.randint(2, 60, (2, 12), generator=generator(0, "test", 1))
    with torch.no_grad():
        base = model(input_ids=ids).logits
    masked_pass = MaskedPass(model)
    module, teacher = make_student(model, masked_pass, options)
    logits = masked_pass(module, ids, None)
    assert torch.allclose(logits, base, atol=1e-4)  # an adapter begins as nothing
    logits.square().mean().backward()
    trained = {n: w for n, w in module.named_parameters() if w.requires_grad}
    assert trained
    for name, weight in module.named_parameters():
        assert (weight.grad is not None) == (name in trained) == ("lora_" in name)
    assert model.get_output_embeddings() is head  # the last layer has no adapter
    torch.optim.AdamW(trained.values(), lr=0.1).step()
    assert torch.equal(teacher(ids), base)  # the adapter is off
    assert not torch.allclose(masked_pass(module, ids, None), base, atol=1e-3)
    kept = {n.replace(".base_layer", ""): w for n, w in model.named_parameters() if "lora" not in n}
    assert kept.keys() == weights.keys()
    assert all(torch.equal(kept[name], weights[name]) for name in weights)


def test_all_weights_are_held_to_a_frozen_copy(options):
    model = build("llama")
    original = copy.deepcopy(model)
    masked_pass = MaskedPass(model)
    module, teacher = make_student(model, masked_pass, replace(options, method="full"))
    ids = torch.randint(2, 60, (2, 12))
    masked_pass(module, ids, None).square().mean().backward()
    assert all(weight.grad is not None for weight in module.parameters())
    torch.optim.SGD(module.parameters(), lr=1.0).step()
    soft_targets = teacher(ids)
    assert not soft_targets.requires_grad
    assert torch.equal(soft_targets, masked_pass(original, ids, None))


def divergence(model, base, ids: torch.Tensor) -> float:
    """KL of predictions from random subsets to those of the base model from everything."""
    keep = uniform_length(len(ids), ids.shape[1], 1, generator(99, "test", 0))
    with torch.no_grad():
        student = MaskedPass(model)(model, ids, keep)
        teacher = MaskedPass(base)(base, ids, None)
        return float(distill_loss(student, teacher).mean())


def load(folder: Path):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder).eval()


@pytest.mark.parametrize("method", ["lora", "full"])
def test_training_brings_subsets_nearer_to_the_full_context(
    method, options, model_folder, tiny_tokenizer, tmp_path
):
    steps = Steps()
    longer = replace(options, method=method, steps=60, batch=8, micro_batch=8)
    result = training.train(longer, progress=steps)
    base = load(model_folder)
    ids = pack(TEXT, tiny_tokenizer, 16)[:32].long()
    learned = load_adapter(base, result.folder) if method == "lora" else load(result.folder)
    assert divergence(learned, base, ids) < 0.8 * divergence(base, base, ids)
    assert steps.seen == list(range(1, 61))
    assert steps.fractions[-1] == 1
    record = json.loads((result.folder / "compat.json").read_text())
    assert record["steps"] == result.steps == 60
    assert record["tokens"] == result.tokens == 60 * 8 * 16
    assert record["options"]["method"] == method
    assert record["base"]["name"] == "tiny-llama"
    assert record["data"] == [{"name": "text.txt", "sha256": read_text(options.texts[0]).sha256}]
    assert {"torch", "transformers", "peft", "accelerate", "rationales"} <= set(record["versions"])
    assert not (result.folder / "parts").exists()
    for file in result.folder.glob("[!.]*.*"):  # nothing tells where it was made
        assert str(tmp_path).encode() not in file.read_bytes()
        assert str(model_folder).encode() not in file.read_bytes()


def test_a_run_starts_from_an_adapter(options, tmp_path):
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
    with pytest.raises(RationalesError, match="goes with method lora"):
        replace(options, method="full", start="x")


def test_the_loss_on_data_needs_no_teacher(options):
    result = training.train(replace(options, loss="data", distribution="inverse-length"))
    assert 3 < result.loss < 12  # nats, of some 400 tokens
    assert weights_of(result.folder)


def test_own_text_is_sampled_once(options, monkeypatch):
    own = replace(options, texts=(*options.texts, "self"), self_share=0.5, self_rows=10)
    with pytest.raises(ZeroDivisionError):
        training.train(own, progress=Steps(break_at=3))
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


# Resuming


class Steps:
    """Hears the progress of a run; keeps its steps, and can break it at one of them."""

    def __init__(self, break_at: int = 0, error: BaseException | None = None) -> None:
        self.seen: list[int] = []
        self.fractions: list[float] = []
        self._break_at, self._error = break_at, error or ZeroDivisionError()

    def __call__(self, what: str, done: float, total: float | None, note: str) -> None:
        if what == "training":
            self.seen.append(int(note.split()[1].replace(",", "")))
            self.fractions.append(done)
            if self.seen[-1] == self._break_at:
                raise self._error


def resumed(options: TrainOptions) -> tuple[Path, list[int]]:
    """The folder of a run that was broken before, and the steps that it still took."""
    steps = Steps()
    return training.train(options, progress=steps).folder, steps.seen


@pytest.fixture(scope="module")
def unbroken(model_folder, tmp_path_factory):
    """The folder of a run that nothing happened to."""
    folder = tmp_path_factory.mktemp("unbroken")
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    return training.train(six_steps(model_folder, folder)).folder


@pytest.mark.parametrize("step", [1, 2, 5])
def test_a_broken_run_resumes_to_the_same_weights(step, options, unbroken):
    with pytest.raises(ZeroDivisionError):
        training.train(options, progress=Steps(break_at=step))
    folder, seen = resumed(options)
    # The step that broke was not saved: a checkpoint comes after the news of its step.
    assert seen == list(range((step - 1) // 2 * 2 + 1, 7))
    assert_same_weights(folder, unbroken)
    records = [json.loads((each / "compat.json").read_text()) for each in (folder, unbroken)]
    assert records[0]["loss"] == records[1]["loss"]


def test_a_killed_process_resumes_to_the_same_weights(options, unbroken):
    script = f"""
import os, signal, torch
torch.set_num_threads(1)
from pathlib import Path, PosixPath
from rationales.compat.train import TrainOptions, train
def kill(what, done, total, note):
    if note.startswith("step 3 "):
        os.kill(os.getpid(), signal.SIGKILL)
train({options!r}, progress=kill)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    folder, seen = resumed(options)
    assert seen == [3, 4, 5, 6]
    assert_same_weights(folder, unbroken)


def at_call(number: int, error: BaseException, function):
    """The function, which raises an error instead at one of its calls."""
    calls = []

    def called(*arguments, **named):
        calls.append(1)
        if len(calls) == number:
            raise error
        return function(*arguments, **named)

    return called


def test_an_interrupt_saves_the_last_step(options, unbroken):
    with pytest.raises(training.TrainingInterrupted) as caught:
        training.train(options, progress=Steps(3, KeyboardInterrupt()))
    assert isinstance(caught.value, KeyboardInterrupt)
    assert caught.value.step == 3
    folder, seen = resumed(options)
    assert seen == [4, 5, 6]
    assert_same_weights(folder, unbroken)


def test_an_interrupt_within_a_step_saves_the_step_before(options, unbroken, monkeypatch):
    # The second half of the fourth step.
    interrupted = at_call(8, KeyboardInterrupt(), distill_loss)
    monkeypatch.setattr(trainers, "distill_loss", interrupted)
    with pytest.raises(training.TrainingInterrupted) as caught:
        training.train(options)
    assert caught.value.step == 3
    assert_same_weights(training.train(options).folder, unbroken)


def test_an_interrupt_within_an_update_leaves_the_last_checkpoint(options, unbroken, monkeypatch):
    step = at_call(4, KeyboardInterrupt(), torch.optim.AdamW.step)
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda *args, **named: step(*args, **named))
    with pytest.raises(training.TrainingInterrupted) as caught:
        training.train(options)
    assert caught.value.step == 2
    assert_same_weights(training.train(options).folder, unbroken)


def test_a_run_bounded_by_time_follows_the_clock(options, monkeypatch):
    """A clock that moves by a second whenever it is looked at: a step takes one second."""
    now, rates = [0.0], []

    class Clock:
        @staticmethod
        def monotonic() -> float:
            now[0] += 1
            return now[0]

    monkeypatch.setattr(trainers, "time", Clock)
    timed = replace(options, steps=None, minutes=0.1, warmup=0.5, checkpoint_every=1)
    step = torch.optim.AdamW.step

    def watched(self, *args, **rest):
        rates.append(self.param_groups[0]["lr"])
        return step(self, *args, **rest)

    monkeypatch.setattr(torch.optim.AdamW, "step", watched)
    with pytest.raises(ZeroDivisionError):
        training.train(timed, progress=Steps(break_at=5))
    result = training.train(timed)
    assert result.steps == 6
    assert result.seconds == 6
    # In the middle of each second, but for the first: how long it takes is not known yet. The
    # fifth step was not saved, and is done again.
    middle = [0.0, 1 / 2, 5 / 6, 5 / 6, 1 / 2, 1 / 2, 1 / 6]
    assert rates == pytest.approx([1e-2 * share for share in middle])


# Checkpoints and the folder


def break_run(options: TrainOptions) -> list[Path]:
    """The two checkpoints of a run that was broken, the older one first."""
    with pytest.raises(ZeroDivisionError):
        training.train(options, progress=Steps(break_at=5))
    found = sorted((Path(options.out) / "parts" / "checkpoints").iterdir())
    assert [path.name for path in found] == ["checkpoint-2", "checkpoint-4"]
    return found


def damage(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])


@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json"]
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(name, options, unbroken):
    _, newer = break_run(options)
    damage(newer / name)
    with pytest.warns(RationalesWarning, match="checkpoint-4 .* going on from checkpoint-2"):
        folder, seen = resumed(options)
    assert seen == [3, 4, 5, 6]
    assert_same_weights(folder, unbroken)


def test_a_run_without_a_readable_checkpoint_never_begins_again_unasked(options, unbroken):
    checkpoints = break_run(options)
    for checkpoint in checkpoints:
        damage(checkpoint / "optimizer.pt")
    with pytest.raises(RationalesError, match="remove that folder to begin again") as caught:
        training.train(options)
    assert "checkpoint-4" in one_line(caught)
    shutil.rmtree(checkpoints[0].parent)
    assert_same_weights(training.train(options).folder, unbroken)


def test_an_unfinished_checkpoint_is_not_a_damaged_one(options, unbroken):
    _, newer = break_run(options)
    (newer / "trainer_state.json").unlink()  # written last
    folder, seen = resumed(options)
    assert seen == [3, 4, 5, 6]
    assert_same_weights(folder, unbroken)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_the_last_checkpoint(number, options, unbroken, monkeypatch):
    full = at_call(4, OSError(number, os.strerror(number)), torch.save)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        with pytest.raises(RationalesError, match=r"cannot write a checkpoint .* no space left"):
            training.train(options)
    folder, seen = resumed(options)
    assert seen == [3, 4, 5, 6]
    assert_same_weights(folder, unbroken)


def test_a_disk_that_is_full_at_the_end_leaves_no_half_result(options, unbroken, monkeypatch):
    def full(module, loaded, name, folder):
        (folder / "adapter_model.safetensors").write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(training, "save_student", full)
        with pytest.raises(RationalesError, match=r"cannot write the result .* no space left"):
            training.train(options)
    assert not (Path(options.out) / "adapter_model.safetensors").exists()
    folder, seen = resumed(options)
    assert seen == []
    assert_same_weights(folder, unbroken)


def test_a_folder_that_cannot_be_made_is_one_line(options, text_file):
    with pytest.raises(RationalesError, match=r"cannot write run\.json") as caught:
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
    for overwrite in (False, True):
        with pytest.raises(RationalesError, match="has other files"):
            training.train(replace(options, overwrite=overwrite))
    assert [file.name for file in folder.iterdir() if file.suffix] == ["thesis.tex"]


def test_a_finished_run_is_found_again(options):
    first = training.train(options)
    assert training.train(options, progress=Steps(break_at=1)) == first


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
    with pytest.raises(RationalesError, match=r"the adapter in .* cannot be loaded") as caught:
        load_adapter(model, tmp_path)
    one_line(caught)
    (tmp_path / "compat.json").write_text("{}")
    with pytest.raises(RationalesError, match=r"compat\.json is damaged"):
        load_adapter(model, tmp_path)


# Options


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"texts": ()}, "texts must be a list of text files"),
        ({"steps": 3, "minutes": 1.0}, "not both"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"length": 1}, "length must be at least 2"),
        ({"distribution": "normal"}, "distribution must be uniform, "),
        ({"loss": "mse"}, "loss must be distill or data"),
        ({"method": "prefix"}, "method must be"),
        ({"dtype": "float16"}, "dtype must be"),
        ({"mixture": 1.5}, "mixture must be at most 1"),
        ({"full_weight": 0.0}, "full_weight must be more than 0"),
        ({"minutes": 0.0, "steps": None}, "minutes must be more than 0"),
        ({"learning_rate": math.nan}, "learning_rate must be a finite number"),
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
    with pytest.raises(RationalesError, match=r"the loss is .* lower learning rate") as caught:
        training.train(replace(options, learning_rate=1e30))
    one_line(caught)


def test_rows_are_shared_among_processes(options, monkeypatch):
    monkeypatch.setattr(TrainingArguments, "world_size", 2)
    with pytest.raises(RationalesError, match="--batch 3 cannot be shared among 2 processes"):
        training.train(replace(options, batch=3))


# The command


@pytest.fixture
def command(monkeypatch):
    """Runs ``rationales`` with its arguments; gives the exit code."""
    app = typer.Typer()
    app.add_typer(compat_commands.app, name="compat")
    monkeypatch.setattr(cli, "app", app)
    return lambda *arguments: cli.call([str(argument) for argument in arguments])


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


def test_an_interrupted_command_says_how_to_resume(
    command, model_folder, text_file, tmp_path, capsys, monkeypatch
):
    given = ("compat", "train", "--model", model_folder, "--text", text_file, *SMALL)
    given = (*given, "--steps", 5, "--out", tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr(trainers, "distill_loss", at_call(4, KeyboardInterrupt(), distill_loss))
        assert command(*given) == 130
    error = capsys.readouterr().err
    assert "the checkpoint of step 3 is saved: the same command resumes" in error
    assert command(*given) == 0
    assert "5 steps" in capsys.readouterr().err
