"""What the compatibility adapter of the default model does to rationales.

    python benchmarks/compatibility.py agreement --half development
    python benchmarks/compatibility.py agreement --half held-out
    python benchmarks/compatibility.py full-context

``agreement``: greedy rationales with and without the adapter on the paper's templates with
analogies. Pairs of words are split in two fixed halves by a hash: one to look at while developing,
the other for the final figure. Kept are pairs of single tokens whose last word the model itself
predicts, with and without the distractor (the parenthesis).

``full-context``: the perplexity of WikiText-2 test with the adapter in place and without, and how
often the adapter's own first choice given a whole Lambada passage is the model's.

Both read their data from the folder that RATIONALES_DATA names.
"""

import argparse
import hashlib
import json
import math
import random
import re
from dataclasses import dataclass
from statistics import fmean

import rationales
from rationales.compat.text import pack, read_text
from rationales.context import causal_context
from rationales.data import data_file
from rationales.scoring.adapted import AdaptedScorer


@dataclass(frozen=True)
class Example:
    """A filled template: token ids, the target's index, where antecedent and distractor are."""

    ids: tuple[int, ...]
    antecedent: int
    distractor: frozenset[int]
    without_distractor: tuple[int, ...]


def examples(tokenizer, half: str) -> list[Example]:
    """All filled templates of one half of the pairs in which both words are single tokens."""
    templates = json.loads(data_file("analogy_templates.json").read_text())
    found, section, seen = [], "", set()
    for line in data_file("questions-words.txt").read_text().splitlines():
        if line.startswith(":"):
            section = line[2:].strip()
            continue
        words = line.split()
        for pair in (tuple(words[:2]), tuple(words[2:])):
            if (section, pair) in seen or section not in templates:
                continue
            seen.add((section, pair))
            digest = hashlib.sha256(" ".join((section, *pair)).encode()).digest()
            if ("development", "held-out")[digest[0] % 2] == half:
                found.append(fill(tokenizer, templates[section], *pair))
    return [example for example in found if example is not None]


def fill(tokenizer, template: str, a: str, b: str) -> Example | None:
    """The template with this pair, or None if one of its words is not a single token."""
    words = {"A": a, "B": b}
    text, places = "", {}
    for piece in re.split(r"(\[[AB]\])", template):
        slot = piece[1:-1] if piece in ("[A]", "[B]") else ""
        if slot:
            places[slot] = (len(text), len(text) + len(words[slot]))
        text += words[slot] if slot else piece
    parenthesis = re.search(r" \(.*?\)\.", text)
    assert parenthesis is not None
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)

    def tokens(start: int, end: int) -> list[int]:
        """The tokens that share a character, not a space, with this stretch of the text."""
        return [
            index
            for index, (first, last) in enumerate(encoded["offset_mapping"])
            if text[max(first, start) : min(last, end)].strip()
        ]

    target = "A" if template.endswith("[A]") else "B"
    antecedent = tokens(*places["B" if target == "A" else "A"])
    if len(antecedent) != 1 or len(tokens(*places[target])) != 1:
        return None
    distractor = frozenset(tokens(*parenthesis.span()))
    shortened = tokenizer(text.replace(parenthesis.group(), ""), add_special_tokens=False)
    return Example(
        tuple(encoded["input_ids"]), antecedent[0], distractor, tuple(shortened["input_ids"])
    )


def predicted(scorer, found: list[Example]) -> list[Example]:
    """The examples whose last word the model predicts, with the distractor and without it."""
    kept = []
    for example in found:
        queries = []
        for ids in (example.ids, example.without_distractor):
            context = causal_context(ids, len(ids) - 1, frozenset())
            queries.append((context, tuple(range(len(context.ids)))))
        scores = scorer.score(queries)
        if all(s.prediction_id == c.target_id for s, (c, _) in zip(scores, queries, strict=True)):
            kept.append(example)
    return kept


def agreement(arguments: argparse.Namespace) -> None:
    explainer = rationales.load(adapter=arguments.adapter)
    assert isinstance(explainer.scorer, AdaptedScorer), "there is no adapter to compare"
    filled = examples(explainer.tokenizer, arguments.half)
    found = predicted(explainer.scorer.base, filled)
    print(f"{len(filled)} filled templates, {len(found)} predicted with and without the distractor")
    random.Random(0).shuffle(found)
    found = found[: arguments.limit]
    for name, scorer in (("without", explainer.scorer.base), ("with", explainer.scorer)):
        sizes, antecedents, free, sufficient = [], [], [], []
        for example in found:
            context = causal_context(example.ids, len(example.ids) - 1, frozenset())
            rationale = rationales.rationalize(context, scorer)
            sizes.append(len(rationale))
            antecedents.append(example.antecedent in rationale.indices)
            free.append(example.distractor.isdisjoint(rationale.indices))
            sufficient.append(rationale.sufficient)
        print(
            f"{name:7} adapter: length {fmean(sizes):.2f}, antecedent {fmean(antecedents):.3f}, "
            f"no distractor {fmean(free):.3f}, sufficient {fmean(sufficient):.3f} "
            f"({len(found)} examples)",
            flush=True,
        )


def full_context(arguments: argparse.Namespace) -> None:
    explainer = rationales.load(adapter=arguments.adapter)
    scorer = explainer.scorer
    assert isinstance(scorer, AdaptedScorer), "there is no adapter to compare"
    text = read_text(data_file("wikitext2/test.raw")).text
    rows = pack(text, explainer.tokenizer, 65)[: arguments.limit]
    queries = []
    for row in rows.tolist():
        context = causal_context(tuple(row), len(row) - 1, frozenset())
        queries.append((context, tuple(range(len(context.ids)))))
    for name, each in (("without", scorer.base), ("with", scorer)):
        nll = -fmean(score.target_logprob for score in each.score(queries))
        print(f"{name:7} adapter: full-context perplexity {math.exp(nll):.12f} ({len(queries)})")
    same = []
    lines = data_file("lambada_openai_test.jsonl").read_text().splitlines()
    for line in random.Random(0).sample(lines, arguments.limit):
        passage = json.loads(line)
        ids = explainer.tokenizer(passage["context"])["input_ids"]
        context = rationales.Context(tuple(ids), 0, (len(ids) - 1,))
        query = (context, tuple(range(len(ids))))
        [own], [adapted] = scorer.base.score([query]), scorer.adapted.score([query])
        same.append(own.prediction_id == adapted.prediction_id)
    print(
        f"the adapter's own first choice on {len(same)} Lambada passages agrees: {fmean(same):.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    for name, command in (("agreement", agreement), ("full-context", full_context)):
        one = commands.add_parser(name)
        one.set_defaults(run=command)
        one.add_argument("--adapter", default=None, help="a folder; the packaged one if left out")
        one.add_argument("--limit", type=int, default=200)
        if name == "agreement":
            one.add_argument("--half", choices=["development", "held-out"], default="development")
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
