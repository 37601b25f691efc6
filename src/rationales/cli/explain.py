"""``rationales explain``: a text in, the rationale of each target out."""

from __future__ import annotations

from typing import Any

import typer

from rationales.cli.arguments import CausalModel, Printing, Prompts, option_group
from rationales.cli.command import command
from rationales.cli.running import EXIT_CODES, answer

EXAMPLES = """
[bold]Examples[/bold]\n
  rationales explain "The Supreme Court on Tuesday"\n
  rationales explain "The capital of Japan is Tokyo" --target last --steps 3\n
  rationales explain "What is the capital of France?" --chat --generate 12\n
  rationales explain "I live in France. I speak" --continuation " French" --model gpt2\n
  rationales explain "My sister met her husband in Paris, and she" --target she --instead-of " he"\n
  rationales explain --file report.txt --target last --unit word --fast --minimal\n
  rationales explain --file long.txt --target last --coarse-to-fine\n
  rationales explain --documents manuals/*.txt --question "How long is it?" \\\n
    --chat --target "42 km" --span --coarse-to-fine --fast\n
  rationales explain --messages chat.json --unit message\n
  rationales explain --jsonl texts.jsonl --json rationales.jsonl
"""


def explain(texts: Prompts, options: Any, model: CausalModel, printing: Printing) -> None:
    """Explain what a language model says."""
    example = 'rationales explain "The Supreme Court on Tuesday"'
    answer("causal", example, texts, options, model, printing)


app = typer.Typer(add_completion=False)
app.command(epilog=EXAMPLES + EXIT_CODES)(command(explain, options=option_group("causal")))
