"""``rationales explain`` and ``translate``: a text in, the rationale of each target out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from rationales.cli.arguments import OF_MODEL, Model, Printing, Question, Texts
from rationales.cli.output import opened
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

    adapter: Annotated[str | None, OF_MODEL] = None
    """The folder of a compatibility adapter for the model; none leaves out the one that the default
    model comes with."""


def explain(texts: Texts, options: Any, model: CausalModel, printing: Printing) -> None:
    """Show which words of the context a language model needed for what it says."""
    _answer("causal", 'explain "The Supreme Court on Tuesday"', texts, options, model, printing)


def translate(texts: Texts, options: Any, model: Model, printing: Printing) -> None:
    """Translate a text, and show which words each word of the translation needed."""
    _answer("seq2seq", 'translate "Je pense que tu as raison."', texts, options, model, printing)


def _answer(
    kind: Literal["causal", "seq2seq"],
    example: str,
    texts: Texts,
    options: Any,
    model: Model,
    printing: Printing,
) -> None:
    question = Question.of(kind, options, printing.steps)
    adapter = getattr(model, "adapter", None)  # only language models have one
    model.check(adapter)
    requests = read_requests(texts, question, f"rationales {example}")
    with opened(printing, texts) as output:
        explain_all(model.load(kind, adapter), requests, output)
