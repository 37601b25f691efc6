"""The paper's second figure on compatibility: how probable is "the" after "the" alone?

A model that was trained on complete contexts only has never seen a lone token beyond the first
position. A small GPT-2 with learned positions is trained on a text, then fine-tuned for
compatibility. f("the" | "the" at position t) is measured before and after.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
from annotated_types import Ge

from rationales.compat.options import TrainOptions
from rationales.compat.text import read_text
from rationales.compat.train import train
from rationales.context import Context
from rationales.data import data_file
from rationales.errors import RationalesError
from rationales.experiments.run import Run, open_run
from rationales.experiments.tables import markdown_table
from rationales.experiments.toys.training import (
    ModelSettings,
    Schedule,
    Task,
    trained,
    untrained_gpt2,
)
from rationales.models.files import save_model
from rationales.render import figures
from rationales.runs import PARTS, OnProgress
from rationales.scoring.causal import CausalScorer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

WIKITEXT = "wikitext2/train.raw"
DATA = (WIKITEXT,)
WORD = " the"
PAPER_PERPLEXITY = {"before": 18.3, "after": 17.1}
"""Of GPT-2 Large on Open WebText, from the paper's table on held-out performance."""
LABELS = {"before": "trained on complete contexts", "after": "fine-tuned for compatibility"}
_END_OF_TEXT = "<|endoftext|>"
_HELDOUT = 0.03
_ROWS_AT_ONCE = 64


@dataclass(frozen=True)
class FineTuning:
    """Word dropout, with the paper's distribution and mixture."""

    steps: int = 500
    """Steps of fine-tuning."""
    batch: int = 64
    """Rows of a step."""
    learning_rate: float = 1e-3
    """The highest learning rate."""
    distribution: str = "uniform-length"
    """The distribution of the subsets."""
    mixture: float = 0.5
    """The share of the rows with incomplete contexts."""


@dataclass(frozen=True)
class Settings(ModelSettings):
    """The settings of a run, but for its text."""

    vocabulary: Annotated[int, Ge(257)] = 4000
    """Tokens of the vocabulary: all bytes, the end of a text, and more."""
    length: Annotated[int, Ge(2)] = 64
    """Positions of the model, and tokens of a row."""
    training: Schedule = field(default_factory=lambda: Schedule(1500, 64, 2e-3, 200))
    """The training on complete contexts."""
    fine_tuning: FineTuning = field(default_factory=FineTuning)
    """The fine-tuning for compatibility."""


def run(
    out: str | Path,
    text: str | Path | None = None,
    settings: Settings | None = None,
    *,
    overwrite: bool,
    progress: OnProgress,
) -> dict[str, Any]:
    """The results of the experiment, which are then in the folder with their table and figure.

    ``text`` is a file to train on; by default the WikiText-2 of RATIONALES_DATA.
    """
    settings = settings or Settings()
    file = read_text(data_file(WIKITEXT) if text is None else text)
    subject = {"text": file.name, "text_sha256": file.sha256}
    with open_run("the", out, settings, subject, overwrite=overwrite) as folder:
        known, heldout = _split(file.text)
        progress("learning a vocabulary", 0, None, "")
        tokenizer = _tokenizer(known, settings, folder)
        heldout_rows = _rows(_encode(tokenizer, heldout), settings.length)
        word = _word_id(tokenizer)
        models = _models(known, tokenizer, settings, folder, progress)
        results = folder.known | {
            "word": WORD,
            "text": _in_text(_encode(tokenizer, known), word),
            "paper_perplexity": PAPER_PERPLEXITY,
            "models": {
                name: {
                    "label": LABELS[name],
                    "training_seconds": seconds,
                    "heldout_perplexity": perplexity(model, heldout_rows),
                    **repeats(model, word, settings.length),
                }
                for name, (model, seconds) in models.items()
            },
        }
        folder.finish(results, report(results))
        folder.draw("the", figures.repetition(results))
    return results


def repeats(model: PreTrainedModel, word: int, length: int) -> dict[str, Any]:
    """f(word | the word alone at position t) for t = 1 … length, and how often it is the argmax."""
    # Dropped tokens are not seen, so any token can stand for them.
    contexts = [Context((word,) * t, word, required=(t - 1,)) for t in range(1, length + 1)]
    scores = CausalScorer(model).score([(context, context.required) for context in contexts])
    values = [math.exp(score.target_logprob) for score in scores]
    later = scores[1:]
    return {
        "repeats": values,
        "mean_from_2": sum(values[1:]) / len(later),
        "argmax_from_2": sum(score.prediction_id == word for score in later) / len(later),
    }


@torch.no_grad()
def perplexity(model: PreTrainedModel, rows: torch.Tensor) -> float:
    """exp of the mean negative log-probability of the next token, given all before it."""
    total = 0.0
    for ids in torch.split(rows, _ROWS_AT_ONCE):
        logits = model(ids[:, :-1], attention_mask=torch.ones_like(ids[:, :-1])).logits
        targets = ids[:, 1:].flatten()
        losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets, reduction="sum")
        total += float(losses)
    return math.exp(total / rows[:, 1:].numel())


def _models(
    text: str,
    tokenizer: PreTrainedTokenizerFast,
    settings: Settings,
    folder: Run,
    progress: OnProgress,
) -> dict[str, tuple[PreTrainedModel, float]]:
    """The model before and after fine-tuning, each with the seconds of its training."""
    from transformers import GPT2LMHeadModel

    before = _build(settings, len(tokenizer))
    rows = _rows(_encode(tokenizer, text), settings.length)
    task = Task("before", rows, settings.seed)
    seconds = trained(before, task, settings.training, folder, progress)
    start, source = folder.parts / "before", folder.parts / "text.txt"
    folder.write(f"{PARTS}/{source.name}", text)
    save_model(before, tokenizer, start)

    tuned = train(
        TrainOptions(
            texts=(str(source),),
            out=folder.parts / "after",
            model=str(start),
            loss="data",
            method="full",
            length=settings.length,
            micro_batch=settings.fine_tuning.batch,
            seed=settings.seed,
            cpu=True,
            **asdict(settings.fine_tuning),
        ),
        progress=lambda _, *rest: progress("fine-tuning for compatibility", *rest),
    )
    after: PreTrainedModel = GPT2LMHeadModel.from_pretrained(tuned.folder)
    return {"before": (before, seconds), "after": (after.train(False), tuned.seconds)}


def _build(settings: Settings, vocabulary: int) -> PreTrainedModel:
    """A small GPT-2, untrained."""
    return untrained_gpt2(
        settings,
        vocabulary,
        settings.length,
        activation_function="gelu_pytorch_tanh",  # GPT-2's own formula, in one operation
        bos_token_id=0,
        eos_token_id=0,
    )


def _split(text: str) -> tuple[str, str]:
    """The text to train on, and its end, which is held out; cut between two lines."""
    cut = text.rfind("\n", 0, int(len(text) * (1 - _HELDOUT))) + 1
    return text[:cut], text[cut:]


def _tokenizer(text: str, settings: Settings, folder: Run) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer that was trained on the text."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    path = folder.parts / "tokenizer.json"
    if not path.exists():
        learned = ByteLevelBPETokenizer()
        learned.train_from_iterator(
            text.splitlines(keepends=True),
            vocab_size=settings.vocabulary,
            min_frequency=0,
            special_tokens=[_END_OF_TEXT],
            show_progress=False,
        )
        folder.write(f"{PARTS}/{path.name}", learned.to_str())
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_file=str(path), eos_token=_END_OF_TEXT
    )


def _word_id(tokenizer: PreTrainedTokenizerFast) -> int:
    ids = _encode(tokenizer, WORD)
    if len(ids) != 1:
        raise RationalesError(
            f"“{WORD.strip()}” is not one token of the vocabulary, as the text is too short or "
            "not English: give another --text"
        )
    return int(ids[0])


def _encode(tokenizer: PreTrainedTokenizerFast, text: str) -> torch.Tensor:
    """The tokens of a text, in one row."""
    lines = text.splitlines(keepends=True) or [""]
    encoded = tokenizer(lines, add_special_tokens=False)["input_ids"]
    return torch.tensor([token for line in encoded for token in line], dtype=torch.long)


def _rows(ids: torch.Tensor, length: int) -> torch.Tensor:
    """The consecutive rows of a text, (rows, length + 1); the last token is predicted only."""
    if len(ids) <= length:
        raise RationalesError(
            f"the text is too short: {len(ids)} tokens to train or test on, but a row has "
            f"{length + 1}: give a longer --text"
        )
    return ids.unfold(0, length + 1, length)


def _in_text(ids: torch.Tensor, word: int) -> dict[str, float]:
    """The share of a word in a text, and its share of the tokens that follow it."""
    here = ids == word
    return {
        "share": float(here.double().mean()),
        "after_itself": float(here[1:][here[:-1]].double().mean()),
    }


def report(results: dict[str, Any]) -> str:
    """The table of the results, in Markdown, with the paper's row beside ours."""
    settings, models = results["settings"], results["models"]
    word, length = results["word"].strip(), settings["length"]
    before, after = models["before"], models["after"]
    rows = [
        {
            "model": model["label"],
            "t = 1": f"{model['repeats'][0]:.5f}",
            f"mean of t = 2 … {length}": f"{model['mean_from_2']:.5f}",
            "highest of these": f"{max(model['repeats'][1:]):.5f}",
            f"“{word}” is the argmax": f"{model['argmax_from_2']:.0%}",
            "held-out perplexity": f"{model['heldout_perplexity']:.2f}",
            "paper (GPT-2 Large)": f"{results['paper_perplexity'][name]:.1f}",
            "training, s": f"{model['training_seconds']:.0f}",
        }
        for name, model in models.items()
    ]
    return f"""# f("{word}" | "{word}" alone at position t), before and after fine-tuning

`rationales experiment the --seed {settings["seed"]} --out DIR`

{markdown_table([*rows[0]], [[*row.values()] for row in rows])}

The mean over positions 2 … {length} falls by a factor of
{before["mean_from_2"] / after["mean_from_2"]:.1f}.

- In the text, {results["text"]["share"]:.2%} of the tokens are "{word}", and
  {results["text"]["after_itself"]:.3%} of those that follow "{word}": what a model that knows the
  language would say to "{word}" alone.
- A GPT-2 with learned positions ({settings["layers"]} layers, {settings["width"]} dimensions,
  {length} positions, {settings["vocabulary"]:,} tokens), trained on {settings["text"]}, then
  fine-tuned with word dropout ({settings["fine_tuning"]["distribution"]}, mixture
  {settings["fine_tuning"]["mixture"]}). Perplexities are of the end of the text, which is not
  trained on, with complete contexts; the paper's are of another model and text.
- A rotary model sees only how far tokens are from each other: to it, a lone token is the same at
  every position, and its curve is flat.
"""
