"""The paper's figure on compatibility: a synthetic language, with and without word dropout.

Two models with the paper's architecture are trained on the majority language, one on complete
contexts and one with word dropout. Both predict complete lines equally well. Given a random subset
of the bits, only the second is calibrated: its f(1 | S) follows the exact probability, and its own
marginal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
from annotated_types import Ge, Lt

from rationales.compat.options import Count, Share
from rationales.compat.rows import generator
from rationales.compat.subsets import mixture, uniform
from rationales.experiments.run import Run, open_run
from rationales.experiments.tables import markdown_table
from rationales.experiments.toys.majority_language import (
    BEGIN,
    END,
    VOCABULARY,
    MajorityLanguage,
    WholeLanguage,
    line_logprobs,
    perplexity,
)
from rationales.experiments.toys.training import (
    ModelSettings,
    Schedule,
    Task,
    trained,
    untrained_gpt2,
)
from rationales.render import figures
from rationales.runs import OnProgress
from rationales.scoring.causal import CausalScorer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MODELS = {"standard": "standard training", "word-dropout": "word dropout 0.5"}
PAPER_PERPLEXITY = 1.8
"""Of both models, from the paper's table on held-out performance."""


@dataclass(frozen=True)
class Settings(ModelSettings):
    """The settings of a run; the defaults are the paper's but for the schedules."""

    heads: Count = 2
    width: Count = 64
    weight_dropout: Annotated[float, Ge(0), Lt(1)] = 0.1
    bits: Count = 17
    """Bits of a line, an odd number."""
    train_lines: Count = 50_000
    """Lines to train on."""
    heldout_lines: Count = 5_000
    """Lines for validation, and as many for the test."""
    feed_forward: Count = 256
    """Dimensions of the feed-forward layers."""
    mixture: Share = 0.5
    """In word dropout, the share of the lines with incomplete contexts."""
    subsets: Count = 256
    """Random subsets of each size and number of ones."""
    standard: Schedule = field(default_factory=lambda: Schedule(1000, 256, 2e-3, 400))
    """The training on complete contexts."""
    word_dropout: Schedule = field(default_factory=lambda: Schedule(3000, 256, 2e-3, 400))
    """The training with word dropout."""

    def __post_init__(self) -> None:
        super().__post_init__()
        MajorityLanguage(self.bits)  # an error for an even number


def run(
    out: str | Path, settings: Settings | None = None, *, overwrite: bool, progress: OnProgress
) -> dict[str, Any]:
    """The results of the experiment, which are then in the folder with their table and figure."""
    settings = settings or Settings()
    with open_run("majority", out, settings, overwrite=overwrite) as folder:
        language = MajorityLanguage(settings.bits)
        models = {name: _of_model(name, settings, folder, progress) for name in MODELS}
        results = folder.known | {
            "optimum_perplexity": language.optimum,
            "paper_perplexity": PAPER_PERPLEXITY,
            "models": models,
        }
        folder.finish(results, report(results))
        folder.draw("majority", figures.majority(results))
    return results


def _of_model(name: str, settings: Settings, folder: Run, progress: OnProgress) -> dict[str, Any]:
    """One model: trained, then measured on held-out lines and on random subsets."""
    language = MajorityLanguage(settings.bits)
    train, _, test = (
        language.sample(count, generator(settings.seed, "lines", number))
        for number, count in enumerate((settings.train_lines, *[settings.heldout_lines] * 2))
    )
    # Word dropout 0.5 is the paper's uniform distribution over subsets; begin is always kept. As in
    # the paper's practice it is combined with standard training: among uniform subsets, those of
    # nearly all bits are so rare that predictions from them would be learned very slowly.
    draw = mixture(uniform, settings.mixture, pinned=1) if name == "word-dropout" else None
    schedule = settings.word_dropout if name == "word-dropout" else settings.standard
    model = _build(settings)
    seconds = trained(model, Task(name, train, settings.seed, draw), schedule, folder, progress)
    progress(f"measuring {name}", 0, None, "")
    return {
        "label": MODELS[name],
        "training_seconds": seconds,
        "heldout_perplexity": perplexity(line_logprobs(model, test)[0]),
        **folder.part(f"{name}-subsets", lambda: measure(model, language, settings, progress)),
    }


def _build(settings: Settings) -> PreTrainedModel:
    """The paper's transformer decoder, untrained."""
    return untrained_gpt2(
        settings,
        VOCABULARY,
        MajorityLanguage(settings.bits).predicted,
        n_inner=settings.feed_forward,
        activation_function="relu",
        bos_token_id=BEGIN,
        eos_token_id=END,
    )


def measure(
    model: PreTrainedModel, language: MajorityLanguage, settings: Settings, progress: OnProgress
) -> dict[str, Any]:
    """f(1 | S) for random subsets of every size, beside the exact and the model's own marginal.

    f(1 | S) is the probability that a search for rationales sees: the scorer's, of the token 1, not
    renormalised over 0 and 1, given begin, the kept bits at their positions, and ``=``.
    """
    whole = WholeLanguage(model, language)
    scorer = CausalScorer(model)
    draws = generator(settings.seed, "measured subsets", 0)
    cells, errors, own_errors = [], [], []
    for size in range(language.bits + 1):
        progress("measuring subsets", size, language.bits + 1, f"of {size} bits")
        error = own_error = 0.0
        for ones in range(size + 1):
            subsets = language.draw(size, ones, settings.subsets, draws)
            scores = scorer.score([language.query(seen) for seen in subsets])
            f = torch.tensor([score.target_logprob for score in scores], dtype=torch.float64).exp()
            own = torch.tensor([whole.marginal(seen) for seen in subsets], dtype=torch.float64)
            exact, weight = language.probability(size, ones), language.weight(size, ones)
            error += weight * abs(float(f.mean()) - exact)
            own_error += weight * float((f - own).abs().mean())
            cells.append(
                {
                    "size": size,
                    "ones": ones,
                    "exact": exact,
                    "mean": float(f.mean()),
                    "low": float(f.quantile(0.1)),
                    "high": float(f.quantile(0.9)),
                    "own_marginal": float(own.mean()),
                }
            )
        errors.append(error)
        own_errors.append(own_error)
    return {
        "perplexity_of_all_lines": whole.perplexity,
        "calibration_error": sum(errors) / len(errors),
        "marginal_error": sum(own_errors) / len(own_errors),
        "calibration_error_by_size": errors,
        "marginal_error_by_size": own_errors,
        "cells": cells,
    }


def report(results: dict[str, Any]) -> str:
    """The table of the results, in Markdown, with the paper's row beside ours."""
    settings, models = results["settings"], results["models"]
    optimum, zero = f"{results['optimum_perplexity']:.4f}", f"{0:.4f}"
    rows = [
        {
            "model": model["label"],
            "held-out perplexity": f"{model['heldout_perplexity']:.4f}",
            "perplexity of all lines": f"{model['perplexity_of_all_lines']:.4f}",
            "paper": f"{results['paper_perplexity']:.1f}",
            "calibration error": f"{model['calibration_error']:.4f}",
            "marginal error": f"{model['marginal_error']:.4f}",
            "training, s": f"{model['training_seconds']:.0f}",
        }
        for model in models.values()
    ]
    cells = [[*row.values()] for row in rows]
    cells.append(["optimum", optimum, optimum, "", zero, zero, ""])
    sizes = range(settings["bits"] + 1)
    by_size = [
        [f"{model['label']}, {what}", *(f"{model[f'{what}_error_by_size'][k]:.3f}" for k in sizes)]
        for what in ("calibration", "marginal")
        for model in models.values()
    ]
    return f"""# Majority language: f(1 | S) with and without word dropout

`rationales experiment majority --seed {settings["seed"]} --out DIR`

{markdown_table([*rows[0]], cells)}

- Lines of {settings["bits"]} random bits, `=`, the majority and an end; perplexity over these
  {settings["bits"] + 3} tokens, given complete contexts, on {settings["heldout_lines"]:,} test
  lines, and on all 2^{settings["bits"]} lines there are.
- Word dropout: each token of a context is kept with probability ½ (uniform over subsets), in
  {settings["mixture"]:.0%} of the lines; the others are complete, as in the paper's practice.
- f(1 | S): the model sees a begin token (always kept), the kept bits at their own positions, and
  `=`. It is the probability that a search for rationales sees: of the token 1 among all tokens, not
  renormalised over 0 and 1, so that what a model gives to other tokens counts as an error.
- Calibration error: |mean f(1 | S) - exact p|, where the mean is over {settings["subsets"]} random
  subsets of each size k and number of ones m; weighted by the binomial probability of m within k;
  the mean over all k. The exact p is P(m + Bin({settings["bits"]} - k, ½) > {settings["bits"]}/2).
- Marginal error: |f(1 | S) - p(1 | S)|, with the model's own exact marginal p: the sum over all
  bits that are missing, weighted by the model's own probability of them. The mean over the same
  subsets, weighted alike.

Errors by the number of bits seen:

{markdown_table(["error", *map(str, sizes)], by_size)}
"""
