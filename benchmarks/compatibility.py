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
import json
import math
import random
from statistics import fmean

import rationales
from rationales.compat.text import pack, read_text
from rationales.context import causal_context
from rationales.data import data_file
from rationales.experiments.language.templates import Example, examples
from rationales.scoring.adapted import AdaptedScorer
from rationales.scoring.causal import CausalScorer


def predicted(scorer, found: list[Example]) -> list[Example]:
    """The examples whose last word the model predicts, with the distractor and without it."""
    kept = []
    for example in found:
        queries = [
            (context, tuple(range(len(context.ids))))
            for context in (example.context, example.short_context)
        ]
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
            rationale = rationales.rationalize(example.context, scorer)
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
    # Fresh ones: what a scorer has stored of earlier calls shifts the last digit of a later one.
    alone = CausalScorer(scorer.base.model)
    together = AdaptedScorer(CausalScorer(scorer.base.model), scorer.adapted)
    for name, each in (("without", alone), ("with", together)):
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
