"""``rationales explain``: a text in, the rationale of each target out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from rationales.cli.arguments import (
    MODEL,
    TARGETS,
    WHAT,
    Model,
    Printing,
    Searching,
    Texts,
    asked,
    command,
)
from rationales.cli.output import Output
from rationales.cli.progress import Bar
from rationales.cli.running import explain_all, read_requests
from rationales.options import DEFAULTS, Options

EXAMPLES = """
[bold]Examples[/bold]\n
  rationales explain "The Supreme Court on Tuesday"\n
  rationales explain "The capital of Japan is Tokyo" --target last --steps 3\n
  rationales explain "What is the capital of France?" --chat --generate 12\n
  rationales explain "I live in France. I speak" --continuation " French" --model gpt2\n
  rationales explain "My sister met her husband in Paris, and she" --target she --instead-of " he"\n
  rationales explain --file report.txt --target last --unit word --fast --minimal\n
  rationales explain --file long.txt --target last --coarse-to-fine\n
  rationales explain --jsonl texts.jsonl --json rationales.jsonl
"""


@dataclass(frozen=True)
class Questions:
    """Which tokens are explained, and by what."""

    generate: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Explain this many tokens of the model's own continuation; "
            f"{DEFAULTS['generate']} if left out.",
            rich_help_panel=WHAT,
        ),
    ] = None
    continuation: Annotated[
        str | None,
        typer.Option(
            help="Explain this continuation instead of the model's own.", rich_help_panel=WHAT
        ),
    ] = None
    target: Annotated[
        str | None,
        typer.Option(help=f"Explain tokens of the text itself: {TARGETS}", rich_help_panel=WHAT),
    ] = None
    chat: Annotated[
        bool,
        typer.Option(
            "--chat",
            help="Wrap the text in the model's chat template, whose own tokens are always kept.",
            rich_help_panel=WHAT,
        ),
    ] = False
    specials: Annotated[
        str,
        typer.Option(
            help="Special tokens that the tokenizer adds: pinned (always kept, not "
            "counted) or candidate.",
            rich_help_panel=WHAT,
        ),
    ] = Options.specials


@dataclass(frozen=True)
class CausalModel(Model):
    """Which language model, with its adapter."""

    adapter: Annotated[
        str | None,
        typer.Option(
            help="The folder of a compatibility adapter for the model; none leaves out the one "
            "that the default model comes with.",
            rich_help_panel=MODEL,
        ),
    ] = None


@command
def explain(
    texts: Texts, questions: Questions, searching: Searching, model: CausalModel, printing: Printing
) -> None:
    """Show which words of the context a language model needed for what it says."""
    question = asked("causal", printing, questions, searching)
    model.check(model.adapter)
    example = 'rationales explain "The Supreme Court on Tuesday"'
    requests = read_requests(texts, question, example)
    with Output(printing, texts) as output:
        with Bar() as bar:
            bar.update("loading the model", 0, None)
            explainer = model.load("causal", model.adapter, bar.loading)
        explain_all(explainer, requests, output)
