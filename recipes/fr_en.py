"""The packaged French–English model: trained from scratch, then fine-tuned for compatibility.

    pairs ─► leak-free split ─► joint BPE tokenizer ─► Marian's architecture ─► BLEU, test part

``tune`` goes on with word dropout on the source and on the target. An interrupted command resumes
from its last checkpoint when it is given again. Example:

    python recipes/fr_en.py train  --out runs/fr-en
    python recipes/fr_en.py tune   --model runs/fr-en --out runs/fr-en-compat
    python recipes/fr_en.py export --model runs/fr-en-compat --out fr-en
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import tokenizers
import torch
import transformers
import typer
from sacrebleu.metrics.bleu import BLEU
from tokenizers import normalizers, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from rationales.compat.seq2seq import Kept, Seq2SeqPass, WordDropout, check_seq2seq
from rationales.compat.trainer import last_checkpoint
from rationales.data import data_file, sha256
from rationales.errors import RationalesError
from rationales.experiments.translation import pairs as data
from rationales.runs import RunFolder, versions

# 8.4 million parameters, 17 MB in half precision.
VOCABULARY = 8_000
ARCHITECTURE = {
    "d_model": 256,
    "encoder_ffn_dim": 1_024,
    "decoder_ffn_dim": 1_024,
    "encoder_attention_heads": 8,
    "decoder_attention_heads": 8,
    "encoder_layers": 4,
    "decoder_layers": 3,
    "max_position_embeddings": 512,
    "dropout": 0.1,
}
LABEL_SMOOTHING = 0.1
COOLDOWN = 0.3
"""The share of a run over which the learning rate falls to zero at the end."""
CHECKPOINT_EVERY, VALIDATE_EVERY, VALIDATION_PAIRS = 200, 1_000, 200
BEAMS = (1, 5)
LONGEST = 128
"""The length of a translation, in tokens, at most, when BLEU is measured."""
MOST_BYTES = 20_000_000
"""The size of a packaged model at most."""

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

Out = Annotated[Path, typer.Option(metavar="DIR", help="The folder of the run and its model.")]
Model = Annotated[Path, typer.Option(metavar="DIR", help="The folder of a trained model.")]
Pairs = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Lines of English TAB French; else Tatoeba's.")
]
Minutes = Annotated[float, typer.Option(min=0.01, help="Minutes of training; BLEU comes on top.")]
Steps = Annotated[int | None, typer.Option(min=1, help="Training steps, instead of minutes.")]
Batch = Annotated[int, typer.Option(min=1, help="Pairs in a training step.")]
Rate = Annotated[float, typer.Option(help="The highest learning rate, after the warmup.")]
Warmup = Annotated[int, typer.Option(min=1, help="Steps over which the learning rate rises.")]
Bf16 = Annotated[bool, typer.Option("--bf16", help="Multiply in bfloat16; weights stay float32.")]
Seed = Annotated[int, typer.Option(help="The seed of all random numbers.")]
HeldOut = Annotated[int, typer.Option(min=1, help="Pairs for validation; as many for the test.")]


@app.command()
def train(
    context: typer.Context,
    out: Out,
    pairs: Pairs = None,
    minutes: Minutes = 90,
    steps: Steps = None,
    batch: Batch = 200,
    learning_rate: Rate = 1.5e-3,
    warmup: Warmup = 1_000,
    bf16: Bf16 = False,
    seed: Seed = 0,
    held_out: HeldOut = data.HELD_OUT,
) -> None:
    """Train a model from scratch, and measure its BLEU."""
    file = pairs or data_file(data.PAIRS)
    command, settings = options_of(context)
    known = {
        "command": command,
        "settings": settings | {"vocabulary": VOCABULARY, "architecture": ARCHITECTURE},
        "data": {"name": file.name, "sha256": sha256(file)},
    }
    parts = data.split(data.read_pairs(file), seed, held_out)

    def make_trainer() -> PairTrainer:
        texts = (side for pair in parts.train for side in (pair.french, pair.english))
        tokenizer = build_tokenizer(texts, VOCABULARY, ARCHITECTURE["max_position_embeddings"])
        model = build_model(tokenizer, seed, **ARCHITECTURE)
        return PairTrainer(out, model, tokenizer, settings, parts)

    finish(out, known, make_trainer)


@app.command()
def tune(
    context: typer.Context,
    out: Out,
    model: Model,
    pairs: Pairs = None,
    minutes: Minutes = 30,
    steps: Steps = None,
    batch: Batch = 200,
    learning_rate: Rate = 5e-4,
    warmup: Warmup = 200,
    bf16: Bf16 = False,
    seed: Seed = 0,
) -> None:
    """Fine-tune a trained model for compatibility; BLEU before and after."""
    file, dropout = pairs or data_file(data.PAIRS), WordDropout()
    trained = data.read_record(model, file)
    command, settings = options_of(context)
    known = {
        "command": command,
        "base": {"name": model.resolve().name, "sha256": sha256(model / "model.safetensors")},
        "settings": settings | {"dropout": asdict(dropout)},
        "data": trained["data"],
        "bleu_before": trained["bleu"],
        "trained": trained,
    }
    parts = data.split(data.read_pairs(file), *data.split_of(trained))
    network, tokenizer = load(model)
    check_seq2seq(network)
    finish(out, known, lambda: PairTrainer(out, network, tokenizer, settings, parts, dropout))


@app.command()
def export(out: Out, model: Model) -> None:
    """Copy a finished model as it is packaged: half precision, no checkpoints, at most 20 MB."""
    if not (model / data.RECORD).is_file():
        raise RationalesError(f"{model} has no {data.RECORD}: give the --out of a finished run")
    if out.exists() and any(out.iterdir()):
        raise RationalesError(f"{out} is not empty: give another --out")
    save(*load(model), out)
    (out / data.RECORD).write_bytes((model / data.RECORD).read_bytes())
    size = sum(file.stat().st_size for file in out.iterdir())
    typer.echo(f"{size / 1e6:.1f} MB in {out}")
    if size > MOST_BYTES:
        limit = f"{MOST_BYTES / 1e6:.0f} MB"
        raise RationalesError(f"a packaged model has at most {limit}: train a smaller one")


def options_of(context: typer.Context) -> tuple[str, dict[str, Any]]:
    """The command line with names instead of paths, and the options that determine the weights."""
    paths = ("out", "model", "pairs")
    names = [each.name for each in context.command.params if each.name in context.params]
    settings = {name: context.params[name] for name in names if name not in paths}
    if settings["steps"]:
        settings["minutes"] = None
    words = [f"python recipes/fr_en.py {context.info_name}"]
    words += [f"--{name} {name.upper()}" for name in paths if context.params.get(name)]
    for name, value in settings.items():
        if value is not None and value is not False:
            flag = f"--{name.replace('_', '-')}"
            words.append(flag if value is True else f"{flag} {value}")
    return " ".join(words), settings


def finish(out: Path, known: dict[str, Any], make_trainer: Callable[[], PairTrainer]) -> None:
    """Train, save the model in half precision, and write its record with the BLEU of that model."""
    if (out / data.RECORD).exists():
        raise RationalesError(f"{out} holds a finished model: give another --out")
    with RunFolder(out, "recipes/fr_en.py").opened(known):  # begun, or resumed
        trainer = make_trainer()
        checkpoint = last_checkpoint(out / "checkpoints")
        trainer.train(resume_from_checkpoint=checkpoint and str(checkpoint))
    state, model = trainer.state, trainer.model
    losses = [entry["loss"] for entry in state.log_history if "loss" in entry]
    record = {
        **known,
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "steps": state.global_step,
        "epochs": round(state.epoch, 2),
        "seconds": round(trainer.pace.seconds, 1),
        "loss": losses[-1],
    }
    save(model, trainer.processing_class, out)
    model.float().load_state_dict(load(out)[0].state_dict())  # half precision rounds the weights
    record["bleu"] = trainer.bleu()
    record["versions"] = versions("tokenizers", "sacrebleu")
    text = json.dumps(record, indent=2, ensure_ascii=False)
    (out / data.RECORD).write_text(text + "\n", encoding="utf-8")
    for when in ("bleu_before", "bleu"):
        for found in record.get(when, ()):
            typer.echo(f"{when}: {found['score']:.1f} ({found['beams']} beams)")
    typer.echo(f"{state.global_step:,} steps in {record['seconds'] / 60:.1f} minutes: {out}")


class Pace(transformers.TrainerCallback):
    """Stops a training after its steps or minutes, and gives the learning rate its shape.

        rate(s) = highest · min(s / warmup, √(warmup / s)), linearly to zero over the last part

    The scheduler saves the attributes of this object in each checkpoint, so that a resumed run
    counts the seconds of all its processes.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        names = ("minutes", "steps", "warmup", "seed")
        self.minutes, self.steps, self.warmup, self.seed = (settings[name] for name in names)
        self.seconds = self.began = 0.0

    def __call__(self, step: int) -> float:
        """The share of the highest rate for a step, counted from 0."""
        rate = min((step + 1) / self.warmup, math.sqrt(self.warmup / (step + 1)))
        return rate * min(1.0, max(0.0, 1 - self.done(step)) / COOLDOWN)

    def done(self, step: int) -> float:
        """The share of the training that is done after a number of steps."""
        return step / self.steps if self.steps else self.seconds / 60 / self.minutes

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        # The order of the pairs depends on the epoch alone: a resumed run sees the rest of them.
        torch.manual_seed(1_000_000 * self.seed + int(state.epoch or 0))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if not math.isfinite(loss := (logs or {}).get("loss", 0.0)):
            raise RationalesError(f"the loss is {loss}: give a lower --learning-rate")

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.began = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.seconds += time.monotonic() - self.began
        if self.done(state.global_step) >= 1:
            control.should_training_stop = control.should_log = control.should_save = True


class PairTrainer(transformers.Seq2SeqTrainer):
    """Trains a translation model on pairs, with or without word dropout, and measures BLEU."""

    def __init__(
        self,
        out: Path,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        settings: dict[str, Any],
        parts: data.Split,
        dropout: WordDropout | None = None,
    ) -> None:
        self.pace, self.parts, self.dropout = Pace(settings), parts, dropout
        self.masked_pass = Seq2SeqPass(model)
        some = parts.validation[:: max(1, len(parts.validation) // VALIDATION_PAIRS)]
        super().__init__(
            model,
            transformers.Seq2SeqTrainingArguments(
                output_dir=str(out / "checkpoints"),
                seed=settings["seed"],
                max_steps=settings["steps"] or 10**9,  # Pace stops a training by minutes
                per_device_train_batch_size=settings["batch"],
                train_sampling_strategy="group_by_length",
                learning_rate=settings["learning_rate"],
                adam_beta2=0.98,
                bf16=settings["bf16"],
                predict_with_generate=True,
                generation_max_length=LONGEST,
                per_device_eval_batch_size=50,
                eval_strategy="steps",
                eval_steps=VALIDATE_EVERY,
                logging_steps=100,
                logging_nan_inf_filter=False,
                save_steps=CHECKPOINT_EVERY,
                save_total_limit=1,
                report_to=[],
                disable_tqdm=True,
                dataloader_pin_memory=torch.cuda.is_available(),
            ),
            data_collator=transformers.DataCollatorForSeq2Seq(tokenizer, model),
            train_dataset=encode(tokenizer, parts.train),
            eval_dataset=encode(tokenizer, some),
            processing_class=tokenizer,
            compute_metrics=self.score,
            callbacks=[self.pace],
        )

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """The scheduler of the learning rate, whose shape is that of ``Pace``."""
        optimizer = optimizer or self.optimizer
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, self.pace)
        return self.lr_scheduler

    def compute_loss(self, model: Any, inputs: Any, **_: Any) -> torch.Tensor:
        """The mean of -log f(y_t | x_S, y_S) over the targets of a batch, with smoothed labels.

        S is a random subset for each attention head with word dropout, and all tokens without.
        """
        sources, targets, keep = inputs["input_ids"], inputs["labels"], None
        if self.dropout is not None:
            drawn = self.dropout.draw(
                inputs["attention_mask"].sum(-1).cpu(),
                (targets != -100).sum(-1).cpu(),
                self.masked_pass.heads,
                torch.default_generator,  # a checkpoint holds its state
            )
            keep = Kept(*(side.to(sources.device) for side in drawn))
        with self.accelerator.autocast():
            logits = self.masked_pass(model, sources, inputs["decoder_input_ids"], keep)
        return torch.nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), targets.flatten(), label_smoothing=LABEL_SMOOTHING
        )

    def bleu(self) -> list[dict[str, Any]]:
        """BLEU on the test pairs, greedy and by beam search."""
        rows, found = encode(self.processing_class, self.parts.test), []
        for beams in BEAMS:
            metrics = self.evaluate(rows, num_beams=beams, early_stopping=beams > 1)
            known = {"score": metrics["eval_bleu"], "signature": metrics["eval_signature"]}
            found.append(known | {"beams": beams, "sentences": len(rows)})
        return found

    def score(self, predicted: Any) -> dict[str, Any]:
        """BLEU of detokenised text as sacrebleu computes it, with sacrebleu's signature."""
        tokenizer, metric = self.processing_class, BLEU()
        translations, references = (
            # -100 where a row has ended
            tokenizer.batch_decode(ids.clip(min=tokenizer.pad_token_id), skip_special_tokens=True)
            for ids in (predicted.predictions, predicted.label_ids)
        )
        score = metric.corpus_score(translations, [references]).score
        return {"bleu": score, "signature": str(metric.get_signature())}


def encode(tokenizer: PreTrainedTokenizerFast, pairs: Sequence[data.Pair]) -> list[dict[str, Any]]:
    """The token ids of both sides, without pairs that have more tokens than the model positions."""
    sources, targets = (
        tokenizer([getattr(pair, side) for pair in pairs], verbose=False)["input_ids"]
        for side in ("french", "english")
    )
    return [
        {"input_ids": source, "labels": target}
        for source, target in zip(sources, targets, strict=True)
        if max(len(source), len(target)) <= tokenizer.model_max_length
    ]


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int, **architecture: Any) -> Any:
    """An untrained model of Marian's architecture; the seed determines its weights."""
    config = transformers.MarianConfig(
        vocab_size=len(tokenizer),
        activation_function="relu",
        # Xavier's for square matrices, and one that leaves tied logits at a variance of one.
        init_std=architecture["d_model"] ** -0.5,
        scale_embedding=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
        forced_eos_token_id=None,
        **architecture,
    )
    transformers.set_seed(seed)
    return transformers.MarianMTModel(config)


def load(folder: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """The model of a folder in float32, and its tokenizer."""
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32)
    for side in (model.model.encoder, model.model.decoder):
        # Sinusoids are not saved, so they must not be trained.
        side.embed_positions.weight.requires_grad_(False)
    return model, transformers.AutoTokenizer.from_pretrained(folder)


def save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """Write a model in half precision, and its tokenizer."""
    # Measuring BLEU has filled in defaults, which need not be saved.
    model.generation_config = transformers.GenerationConfig.from_model_config(model.config)
    model.half().save_pretrained(out)
    # Half precision is for the disk: without this, transformers would compute in it.
    model.config.dtype = torch.float32
    model.config.save_pretrained(out)
    tokenizer.save_pretrained(out)


PAD, END = "<pad>", "</s>"
_CONTRACTED = r"(?:s|t|m|d|ll|re|ve)\b"
# Words are split as annotators of word alignments split them: "l'" "eau", "don" "'t", "vas" "-tu".
# No token crosses from one to the next. Any other mark and any digit stands alone. A space goes
# with the word that follows.
_WORDS = (
    rf"['’]{_CONTRACTED}| ?-?[\p{{L}}\p{{M}}]+(?:['’](?!{_CONTRACTED}))?"
    r"| ?\p{N}| ?[^\s\p{L}\p{M}\p{N}]|\s+"
)
_SPACES = r"[\s\u00a0\u2007\u2009\u202f]+"


def build_tokenizer(
    sentences: Iterable[str], vocabulary: int, positions: int
) -> PreTrainedTokenizerFast:
    """A tokenizer for both languages: byte-pair encoding over bytes, so that no text is unknown.

    A sentence becomes its sub-words and an end token; the pad token also starts the decoder.
    """
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFC(),
            normalizers.Replace(tokenizers.Regex(_SPACES), " "),
            normalizers.Strip(),
            normalizers.Prepend(" "),  # the first word gets the same tokens as anywhere else
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = tokenizers.decoders.Sequence(
        [tokenizers.decoders.ByteLevel(), tokenizers.decoders.Strip(" ", 1, 0)]
    )
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sentences, trainer)
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"$A {END}", special_tokens=[(END, tokenizer.token_to_id(END))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        model_max_length=positions,
        clean_up_tokenization_spaces=False,
    )


if __name__ == "__main__":
    try:
        app()
    except RationalesError as error:
        sys.exit(f"error: {error}")
