"""A fact among other sentences: is it found, and what else is kept?

    python benchmarks/facts.py --tokens 300 --out facts.jsonl
    python benchmarks/facts.py --tokens 1000 --cases 10 --out facts.jsonl

Each case is a document of sentences from WikiText-2 with one sentence about something made up, and
a question about it at the end. A case counts if the model answers with the fact, and does not if
the sentence is taken out; how many were rejected is printed. Every third document has a stray
quotation mark. Cases are drawn by the seed alone: nothing here was tuned.

For each case, a search for sentences (coarse to fine, ending there) and one down to tokens: whether
the fact's sentence is kept, how many words of other sentences are, and the seconds. A line for each
case goes to the file, and cases that are there are not done again.
"""

import argparse
import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import rationales
from rationales.data import data_file
from rationales.prompt import Documents
from rationales.units import group

PEOPLE = ["Ana", "Boris", "Carla", "David", "Elena", "Felix", "Greta", "Hugo", "Irene", "Jonas"]
THINGS = [
    ("favourite colour", ["purple", "orange", "green", "yellow", "brown", "pink"]),
    ("pet", ["horse", "parrot", "rabbit", "snake", "goat", "turtle"]),
    ("favourite drink", ["coffee", "milk", "wine", "tea", "beer", "water"]),
    ("home town", ["Paris", "Berlin", "Madrid", "Vienna", "Rome", "London"]),
    ("instrument", ["piano", "guitar", "violin", "flute", "trumpet", "drum"]),
]


@dataclass(frozen=True)
class Case:
    """A document with one fact in it, a question about the fact, and the answer."""

    id: str
    sentences: tuple[str, ...]
    place: int
    """Which sentence is the fact."""
    question: str
    answer: str

    def document(self, with_fact: bool = True) -> str:
        return " ".join(s for n, s in enumerate(self.sentences) if with_fact or n != self.place)

    def prompt(self, with_fact: bool = True) -> Documents:
        return Documents(
            (self.document(with_fact),), self.question, "{documents}\n\nQ: {question}\nA:"
        )


def draw_cases(explainer: rationales.Explainer, tokens: int, seed: int) -> Iterator[Case]:
    """Cases of about so many tokens, without end."""
    rng = random.Random(f"{seed} {tokens}")
    text = data_file("wikitext2/valid.raw").read_text(encoding="utf-8")
    paragraphs = [line.strip() for line in text.splitlines() if len(line) > 300]
    number = 0
    while True:
        number += 1
        start = rng.randrange(len(paragraphs) - 40)
        sentences: list[str] = []
        size = 0
        for paragraph in paragraphs[start : start + 40]:
            for sentence in paragraph.split(" . "):
                sentence = sentence.strip(" .") + "."
                size += len(explainer.tokenizer(sentence)["input_ids"])
                if size > tokens:
                    break
                sentences.append(sentence)
        if len(sentences) < 3:
            continue
        if number % 3 == 0:
            stray = rng.randrange(len(sentences))
            sentences[stray] = '"' + sentences[stray]
        person = rng.choice(PEOPLE)
        thing, values = rng.choice(THINGS)
        value = rng.choice(values)
        place = rng.randrange(len(sentences) + 1)
        sentences.insert(place, f"The {thing} of {person} is {value}.")
        question = f"What is the {thing} of {person}?"
        answer = f" The {thing} of {person} is {value}"
        yield Case(f"{tokens}-{seed}-{number}", tuple(sentences), place, question, answer)


def says(explainer: rationales.Explainer, case: Case, with_fact: bool) -> bool:
    """Whether the model says the value after the beginning of the answer."""
    [found] = explainer.explain_all([request(case, with_fact, criterion="top-k=1", max_size=1)])
    if isinstance(found, rationales.Failure):
        raise found.error
    return bool(found[0].predicted)


def request(case: Case, with_fact: bool = True, **options: object) -> rationales.Request:
    asked = rationales.Options(continuation=case.answer, target=case.answer.split()[-1])
    return rationales.Request(case.prompt(with_fact), asked.change(**options))


def measure(explainer: rationales.Explainer, case: Case) -> dict:
    """What each search keeps of a case, and how long it takes."""
    line: dict = {"id": case.id}
    for name, finest in (("sentences", "sentence"), ("tokens", "token")):
        begun = time.perf_counter()
        asked = request(case, coarse_to_fine=True, fast=True, finest=finest)
        [found] = explainer.explain_all([asked])
        if isinstance(found, rationales.Failure):
            raise found.error
        rationale = found[0]
        fact = case.sentences[case.place]
        start = found.text.index(fact)
        span, position = set(), 0
        for token in found.tokens:
            if position < start + len(fact) and position + len(token.text) > start:
                span.add(token.index)
            position += len(token.text)
        end = found.parts[0].end
        words = group(found.tokens[:end], "word", parts=found.parts)
        kept = {*rationale.indices}
        line[name] = {
            "seconds": round(time.perf_counter() - begun, 3),
            "fact": bool(kept & span),
            "sufficient": rationale.sufficient,
            "words": sum(bool(kept & {*word}) and not span & {*word} for word in words),
            "size": len(rationale.units or rationale.indices),
            "evaluations": rationale.evaluations,
        }
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--cases", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    explainer = rationales.load()
    known = arguments.out.read_text().splitlines() if arguments.out.exists() else []
    lines = {line["id"]: line for line in map(json.loads, known)}
    found: list[dict] = []
    rejected = 0
    for case in draw_cases(explainer, arguments.tokens, arguments.seed):
        if len(found) == arguments.cases:
            break
        if case.id not in lines:
            if not says(explainer, case, True) or says(explainer, case, False):
                rejected += 1
                continue
            lines[case.id] = measure(explainer, case)
            with arguments.out.open("a") as file:
                file.write(json.dumps(lines[case.id]) + "\n")
        found.append(lines[case.id])
        print(json.dumps(lines[case.id]), flush=True)
    count = len(found)
    print(f"{count} cases of {arguments.tokens} tokens, {rejected} rejected")
    for name in ("sentences", "tokens"):
        of = [line[name] for line in found]
        print(
            f"{name}: fact kept in {sum(x['fact'] for x in of) / count:.0%}, sufficient in "
            f"{sum(x['sufficient'] for x in of) / count:.0%}, words of other sentences "
            f"{sum(x['words'] for x in of) / count:.2f}, "
            f"{sum(x['seconds'] for x in of) / count:.2f} s"
        )


if __name__ == "__main__":
    main()
