"""A translation model of our own, French to English: trained from scratch, then made compatible.

    pairs ─► split by components ─► joint pieces ─► Marian's architecture ─► BLEU, held out

``train`` is the first half of it, ``tune`` the second: it goes on with word dropout on the source
and on the target (``rationales.compat.seq2seq``), and measures BLEU before and after. Both leave a
folder that transformers loads, with the record of the run beside the weights, and both go on where
they stopped.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rationales.compat.rows import generator
from rationales.compat.run import CHECKPOINTS, RunFolder
from rationales.compat.seq2seq import WordDropout, check_seq2seq
from rationales.compat.train import versions
from rationales.data import data_file, sha256
from rationales.errors import RationalesError, first_line
from rationales.experiments import bleu
from rationales.experiments.pieces import load_pieces, train_pieces
from rationales.experiments.translation.pairs import HELD_OUT, PAIRS, Split, read_pairs, split
from rationales.experiments.translation_record import RECORD, WEIGHTS, read_record, split_of
from rationales.experiments.translation_training import Course, Learning, Listener, learn_pairs
from rationales.models import check_bfloat16, quietly, save_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

BEAMS = (1, 5)
"""BLEU in the end is measured with so many beams; 1 is greedy."""
_FORMAT = 1
_CONFIG, _PIECES = "config.json", "tokenizer.json"


@dataclass(frozen=True)
class Shape:
    """The size of the model; with these, 8.4 million parameters, and 17 MB in half precision."""

    pieces: int = 8_000
    width: int = 256
    feed_forward: int = 1_024
    heads: int = 8
    encoder_layers: int = 4
    decoder_layers: int = 3
    positions: int = 512
    weight_dropout: float = 0.1


@dataclass(frozen=True)
class TrainSettings:
    """What makes a training the one it is."""

    seed: int = 0
    held_out: int = HELD_OUT
    shape: Shape = field(default_factory=Shape)
    learning: Learning = field(default_factory=lambda: Learning(minutes=90))


@dataclass(frozen=True)
class TuneSettings:
    """What makes a fine-tuning for compatibility the one it is; the split is the model's own."""

    seed: int = 0
    dropout: WordDropout = field(default_factory=WordDropout)
    learning: Learning = field(
        default_factory=lambda: Learning(minutes=30, learning_rate=5e-4, warmup=200)
    )


def train(
    out: str | Path,
    settings: TrainSettings,
    listener: Listener,
    *,
    pairs: str | Path | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """The record of a model that is then in the folder: trained now, or before."""
    file = _check(settings.learning, pairs)
    identity = {
        "format": _FORMAT,
        "experiment": "translation train",
        "settings": asdict(settings),
        "data": {"name": file.name, "sha256": sha256(file)},
    }
    run = RunFolder(out, RECORD)
    with run.opened(identity, overwrite):
        if (record := run.record()) is not None:
            return record
        listener.progress("reading", 0, None, "")
        parts = split(read_pairs(file), settings.seed, settings.held_out)
        tokenizer = _pieces(run, parts, settings.shape)
        model = build(settings.shape, tokenizer, settings.seed)
        learned = learn_pairs(
            model, tokenizer, parts, Course(settings.learning, settings.seed), run, listener
        )
        _round(model)
        record = {
            "command": _command("train", settings.seed, settings.learning),
            **identity,
            "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
            **learned,
            "bleu": _bleu(model, tokenizer, parts, listener),
            "versions": _versions(),
        }
        _finish(run, model, tokenizer, record)
    return record


def tune(
    out: str | Path,
    base: str | Path,
    settings: TuneSettings,
    listener: Listener,
    *,
    pairs: str | Path | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """The record of a compatible model that is then in the folder: tuned now, or before."""
    file = _check(settings.learning, pairs)
    folder = Path(base).expanduser()
    trained = read_record(folder)
    data = {"name": file.name, "sha256": sha256(file)}
    if trained["data"].get("sha256") != data["sha256"]:
        raise RationalesError(
            f"{folder} was trained on other pairs than {file}: what was held out would leak"
        )
    identity = {
        "format": _FORMAT,
        "experiment": "translation tune",
        "base": {"name": folder.resolve().name, "sha256": sha256(folder / WEIGHTS)},
        "settings": asdict(settings),
        "data": data,
    }
    run = RunFolder(out, RECORD)
    with run.opened(identity, overwrite):
        if (record := run.record()) is not None:
            return record
        listener.progress("reading", 0, None, "")
        parts = split(read_pairs(file), *split_of(trained))
        model, tokenizer = load(folder)
        check_seq2seq(model)
        before = _bleu(model, tokenizer, parts, listener)
        learned = learn_pairs(
            model,
            tokenizer,
            parts,
            Course(settings.learning, settings.seed, settings.dropout),
            run,
            listener,
        )
        _round(model)
        record = {
            "command": f"{_command('tune', settings.seed, settings.learning)} --model MODEL",
            **identity,
            **learned,
            "bleu_before": before,
            "bleu": _bleu(model, tokenizer, parts, listener),
            "trained": trained,
            "versions": _versions(),
        }
        _finish(run, model, tokenizer, record)
    return record


def report(record: dict[str, Any]) -> str:
    """BLEU of a run, before it if there was a model before it, and after, in lines."""
    lines = [f"before: {bleu.Bleu(**found)}" for found in record.get("bleu_before", ())]
    after = "after: " if lines else ""
    lines += [f"{after}{bleu.Bleu(**found)}" for found in record["bleu"]]
    minutes = record["seconds"] / 60
    return "\n".join([*lines, f"{record['steps']:,} steps in {minutes:.0f} minutes"])


def load(folder: str | Path) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """The model of a folder, in float32, and its tokenizer."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    path = str(Path(folder).expanduser())
    try:
        with quietly():
            model: PreTrainedModel = AutoModelForSeq2SeqLM.from_pretrained(
                path, dtype=torch.float32
            )
            tokenizer: Any = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise RationalesError(
            f"cannot load a translation model from {folder}: {first_line(error)}"
        ) from error
    return _with_fixed_positions(model), tokenizer


def build(shape: Shape, tokenizer: PreTrainedTokenizerFast, seed: int) -> PreTrainedModel:
    """An untrained model of Marian's architecture, whose weights are a function of the seed."""
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=len(tokenizer),
        d_model=shape.width,
        encoder_ffn_dim=shape.feed_forward,
        decoder_ffn_dim=shape.feed_forward,
        encoder_attention_heads=shape.heads,
        decoder_attention_heads=shape.heads,
        encoder_layers=shape.encoder_layers,
        decoder_layers=shape.decoder_layers,
        max_position_embeddings=shape.positions,
        dropout=shape.weight_dropout,
        activation_function="relu",
        # Xavier's for square matrices, and one that leaves tied logits at a variance of one.
        init_std=shape.width**-0.5,
        scale_embedding=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
        forced_eos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator(seed, "weights", 0).initial_seed())
        model: PreTrainedModel = MarianMTModel(config)
    model.train(False)
    return _with_fixed_positions(model)


def _with_fixed_positions(model: PreTrainedModel) -> PreTrainedModel:
    """The model, whose sinusoids are not learned: they would be lost, as they are not saved."""
    for name, weight in model.named_parameters():
        if name.endswith("embed_positions.weight"):
            weight.requires_grad_(False)
    return model


def _pieces(run: RunFolder, parts: Split, shape: Shape) -> PreTrainedTokenizerFast:
    """The joint pieces of what is trained on; a run that goes on has those it began with."""
    file = run.path / CHECKPOINTS / _PIECES
    if not file.exists():
        sentences = (side for pair in parts.train for side in (pair.french, pair.english))
        file.parent.mkdir(exist_ok=True)
        partial = file.with_name(f".{_PIECES}")
        partial.write_text(train_pieces(sentences, shape.pieces), encoding="utf-8")
        partial.replace(file)
    return load_pieces(file, shape.positions)


def _bleu(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    parts: Split,
    listener: Listener,
) -> list[dict[str, Any]]:
    """BLEU on the test pairs, with each number of beams."""
    found = []
    for beams in BEAMS:

        def tell(done: int, beams: int = beams) -> None:
            listener.progress("translating", done, len(parts.test), f"beams: {beams}")

        measured = bleu.measure(
            model,
            tokenizer,
            [pair.french for pair in parts.test],
            [pair.english for pair in parts.test],
            beams,
            tell,
        )
        listener.say(f"test: {measured}")
        found.append(asdict(measured))
    return found


@torch.no_grad()
def _round(model: PreTrainedModel) -> None:
    """Round the weights to half precision, as they are saved: BLEU is that of what is saved."""
    for weight in model.parameters():
        weight.copy_(weight.half())


def _finish(
    run: RunFolder,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    record: dict[str, Any],
) -> None:
    """Write the model in half precision, its tokenizer and its record."""
    with run.finishing() as folder:
        save_model(model.half(), tokenizer, folder)  # type: ignore[no-untyped-call]  # torch
        # Half precision is for the disk: without this, transformers would compute in it.
        config = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
        text = json.dumps(config | {"dtype": "float32"}, indent=2, sort_keys=True)
        (folder / _CONFIG).write_text(text + "\n", encoding="utf-8")
        record["files"] = sorted(file.name for file in folder.iterdir())
        text = json.dumps(record, indent=2, ensure_ascii=False)
        (folder / RECORD).write_text(text + "\n", encoding="utf-8")


def _check(learning: Learning, pairs: str | Path | None) -> Path:
    """The file of the pairs; an error if something is missing, before anything is done."""
    bleu.check()
    if learning.dtype == "bfloat16":
        check_bfloat16()
    return Path(pairs).expanduser() if pairs is not None else data_file(PAIRS)


def _command(verb: str, seed: int, learning: Learning) -> str:
    return f"rationales experiment translation {verb} --seed {seed} {learning.flags()} --out OUT"


def _versions() -> dict[str, str]:
    return versions("torch", "transformers", "tokenizers", "sacrebleu")
