"""``rationales translate``: a text in, its translation and the rationale of each word out."""

from __future__ import annotations

from typing import Any

import typer

from rationales.cli.arguments import Model, Printing, Texts, option_group
from rationales.cli.command import command
from rationales.cli.running import EXIT_CODES, answer

EXAMPLES = """
[bold]Examples[/bold]\n
  rationales translate "Je pense que tu as raison."\n
  rationales translate "Je pense." --continuation "I think so." --unit word\n
  rationales translate "Ich denke." --model Helsinki-NLP/opus-mt-de-en\n
  rationales translate "Hello." --prefix "translate English to German: " --model t5-small\n
  rationales translate "Hello." --src-lang en --tgt-lang fr --model facebook/m2m100_418M\n
  rationales translate --jsonl sources.jsonl --json rationales.jsonl --model FOLDER
"""


def translate(texts: Texts, options: Any, model: Model, printing: Printing) -> None:
    """Translate texts and explain the translations."""
    example = 'rationales translate "Je pense que tu as raison."'
    answer("seq2seq", example, texts, options, model, printing)


app = typer.Typer(add_completion=False)
app.command(epilog=EXAMPLES + EXIT_CODES)(command(translate, options=option_group("seq2seq")))
