"""``rationales explain`` and ``translate``: a text in, the rationale of each target out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from rationales.cli.arguments import MODEL, Model, Printing, Question, Texts
from rationales.cli.output import Output
from rationales.cli.running import explain_all, read_requests

EXPLAIN_EXAMPLES = """
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

TRANSLATE_EXAMPLES = """
[bold]Examples[/bold]\n
  rationales translate "Je pense que tu as raison."\n
  rationales translate "Je pense." --continuation "I think so." --unit word\n
  rationales translate "Ich denke." --model Helsinki-NLP/opus-mt-de-en\n
  rationales translate "Hello." --prefix "translate English to German: " --model t5-small\n
  rationales translate "Hello." --src-lang en --tgt-lang fr --model facebook/m2m100_418M\n
  rationales translate --jsonl sources.jsonl --json rationales.jsonl --model FOLDER
"""


@dataclass(frozen=True)
class CausalModel(Model):
    """Which language model, with its adapter."""

    adapter: Annotated[str | None, typer.Option(rich_help_panel=MODEL)] = None
    """The folder of a compatibility adapter for the model; none leaves out the one that the default
    model comes with."""


def explain(texts: Texts, options: Any, model: CausalModel, printing: Printing) -> None:
    """Show which words of the context a language model needed for what it says."""
    question = Question.of("causal", options, printing.steps)
    model.check(model.adapter)
    requests = read_requests(texts, question, 'rationales explain "The Supreme Court on Tuesday"')
    with Output(printing, texts) as output:
        explain_all(model.load("causal", model.adapter), requests, output)


def translate(texts: Texts, options: Any, model: Model, printing: Printing) -> None:
    """Translate a text, and show which words each word of the translation needed."""
    question = Question.of("seq2seq", options, printing.steps)
    model.check()
    requests = read_requests(texts, question, 'rationales translate "Je pense que tu as raison."')
    with Output(printing, texts) as output:
        explain_all(model.load("seq2seq"), requests, output)
