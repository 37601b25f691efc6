"""``rationales translate``: a source in, its translation and the rationale of each token out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from rationales.cli.arguments import (
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
from rationales.options import Options

EXAMPLES = """
[bold]Examples[/bold]\n
  rationales translate "Je pense que tu as raison."\n
  rationales translate "Je pense." --continuation "I think so." --unit word\n
  rationales translate "Ich denke." --model Helsinki-NLP/opus-mt-de-en\n
  rationales translate "Hello." --prefix "translate English to German: " --model t5-small\n
  rationales translate "Hello." --src-lang en --tgt-lang fr --model facebook/m2m100_418M\n
  rationales translate --jsonl sources.jsonl --json rationales.jsonl --model FOLDER
"""


@dataclass(frozen=True)
class Questions:
    """What is translated from and to, and which tokens are explained."""

    continuation: Annotated[
        str | None,
        typer.Option(
            help="Explain this translation instead of the model's own.", rich_help_panel=WHAT
        ),
    ] = None
    target: Annotated[
        str | None,
        typer.Option(
            help=f"Explain these tokens of the translation only: {TARGETS} Indices count from "
            "the first token of the source.",
            rich_help_panel=WHAT,
        ),
    ] = None
    max_length: Annotated[
        int | None,
        typer.Option(
            help="Translate into this many tokens at most; about twice the source if left out.",
            rich_help_panel=WHAT,
        ),
    ] = None
    src_lang: Annotated[
        str | None,
        typer.Option(
            help="The language of the source, for models that know several.", rich_help_panel=WHAT
        ),
    ] = None
    tgt_lang: Annotated[
        str | None,
        typer.Option(help="The language of the translation, likewise.", rich_help_panel=WHAT),
    ] = None
    prefix: Annotated[
        str | None,
        typer.Option(
            help="A text before the source that tells the model what to do (T5); its tokens are "
            "always kept.",
            rich_help_panel=WHAT,
        ),
    ] = None
    specials: Annotated[
        str,
        typer.Option(
            help="Special tokens that the tokenizer adds to the source: pinned (always kept, not "
            "counted) or candidate.",
            rich_help_panel=WHAT,
        ),
    ] = Options.specials


@command
def translate(
    texts: Texts, questions: Questions, searching: Searching, model: Model, printing: Printing
) -> None:
    """Translate a text, and show which words each word of the translation needed."""
    question = asked("seq2seq", printing, questions, searching)
    model.check()
    example = 'rationales translate "Je pense que tu as raison."'
    requests = read_requests(texts, question, example)
    with Output(printing, texts) as output:
        with Bar() as bar:
            bar.update("loading the model", 0, None)
            translator = model.load("seq2seq", progress=bar.loading)
        explain_all(translator, requests, output)
