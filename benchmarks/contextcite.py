"""ContextCite's answer to a question about a document, for benchmarks/facts.py.

It runs in an environment of its own, because what ContextCite depends on differs from what this
package does, and speaks JSON lines: a line in is {"sentences": […], "query": …, "answer": …,
"target": …}, a line out is {"scores": […], "seconds": …}, a score for each sentence.

    python -m venv cc
    cc/bin/pip install -c constraints.txt torch
    cc/bin/pip install -c constraints.txt context-cite==0.0.4 spacy datasets cloudpickle narwhals
    python benchmarks/facts.py --contextcite cc/bin/python --out facts.jsonl

ContextCite has its defaults: 64 ablations, each sentence kept with probability 0.5, one ablation a
forward pass, Lasso. Its prompt and its sentences are the benchmark's.
"""

import json
import os
import sys
import time

import numpy
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(folder: str, threads: int) -> None:
    """Answer lines until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed is no answer
    from context_cite import ContextCiter
    from context_cite.context_partitioner import BaseContextPartitioner

    class Sentences(BaseContextPartitioner):
        """Sentences that are given, with the spaces between them."""

        def __init__(self, parts: list[str]) -> None:
            super().__init__("".join(parts))
            self.parts = parts

        @property
        def num_sources(self) -> int:
            return len(self.parts)

        def split_context(self) -> None:
            pass

        def get_source(self, index: int) -> str:
            return self.parts[index]

        def get_context(self, mask: numpy.ndarray | None = None) -> str:
            kept = [True] * len(self.parts) if mask is None else mask
            return "".join(part for part, keep in zip(self.parts, kept, strict=True) if keep)

    torch.set_num_threads(threads)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = "{{ messages[0]['content'] }}"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    for line in sys.stdin:
        asked = json.loads(line)
        begun = time.perf_counter()
        partitioner = Sentences(asked["sentences"])
        citer = ContextCiter(
            model,
            tokenizer,
            partitioner.context,
            asked["query"],
            prompt_template=asked["template"],
            partitioner=partitioner,
        )
        _, prompt = citer._get_prompt_ids(return_prompt=True)
        citer._cache["output"] = prompt + asked["answer"]
        start = citer.response.rindex(asked["target"])
        scores = citer.get_attributions(start, start + len(asked["target"]), verbose=False)
        seconds = time.perf_counter() - begun
        answers.write(json.dumps({"scores": scores.tolist(), "seconds": seconds}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
