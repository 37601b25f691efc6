"""A fact among other sentences, or two that are needed together: are they found, what else is kept?

    python benchmarks/facts.py --tokens 300 --out facts.jsonl
    python benchmarks/facts.py --tokens 300 --facts two --cases 20 --out two.jsonl
    python benchmarks/facts.py --tokens 2000 --cases 10 --contextcite cc/bin/python --out both.jsonl

Each case is a document of sentences from WikiText-2 with one or two sentences about something made
up, and a question about it at the end. A case counts if the model answers with the fact, and does
not if the sentence is taken out. With two, it counts if the model answers with both and not if
either is taken out, and if neither of them alone is sufficient: as a document of its own, and as
the explainer judges it, with gaps and the adapter. How many were rejected is printed. Every third
document has a stray quotation mark. Cases are drawn by the seed alone: nothing was tuned.

For each case, a search for sentences (coarse to fine, ending there) and one down to tokens: whether
the facts' sentences are kept, how many words of other sentences are, and the seconds. A line for
each case goes to the file, and cases that are there are not done again.

With --contextcite, ContextCite answers the same cases in turn (benchmarks/contextcite.py says how
to install it): its seconds, its first sentences, and how many of its ranking are sufficient.
"""

import argparse
import json
import random
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch

import rationales
from rationales.data import data_file
from rationales.prompt import Documents
from rationales.units import group

TEMPLATE = "{documents}\n\nQ: {question}\nA:"
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
    places: tuple[int, ...]
    """Which sentences are the facts."""
    question: str
    answer: str

    @property
    def target(self) -> str:
        """The last word of the answer."""
        return self.answer.split()[-1]

    def prompt(self, places: Sequence[int] | None = None) -> Documents:
        """The question about a document of the sentences in these places; about all of them."""
        kept = range(len(self.sentences)) if places is None else places
        document = " ".join(self.sentences[place] for place in kept)
        return Documents((document,), self.question, TEMPLATE)

    def others(self, *left_out: int) -> list[int]:
        """All places but these."""
        return [place for place in range(len(self.sentences)) if place not in left_out]


def draw_cases(
    explainer: rationales.Explainer, tokens: int, seed: int, two: bool
) -> Iterator[Case]:
    """Cases of about this many tokens, without end."""
    rng = random.Random(f"{seed} {tokens}" + " two" * two)
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
        facts, question, answer = (two_facts if two else one_fact)(rng)
        place = rng.randrange(len(sentences) + 1)
        places: list[int] = []
        for fact in facts:
            if places:  # the second one follows at once, or somewhere later
                place += 1 if number % 2 else rng.randrange(1, len(sentences) - place + 1)
            sentences.insert(place, fact)
            places.append(place)
        name = f"{tokens}-{seed}-{number}" + "-two" * two
        yield Case(name, tuple(sentences), tuple(places), question, answer)


def one_fact(rng: random.Random) -> tuple[list[str], str, str]:
    """A fact, a question about it, and the answer."""
    person = rng.choice(PEOPLE)
    thing, values = rng.choice(THINGS)
    value = rng.choice(values)
    question = f"What is the {thing} of {person}?"
    fact = f"The {thing} of {person} is {value}"
    return [f"{fact}."], question, f" {fact}"


def two_facts(rng: random.Random) -> tuple[list[str], str, str]:
    """Two facts that are needed together, a question about them, and the answer.

    A rule and its premise, or somebody and what is said of "she" or "the older one".
    """
    form = rng.choice(TWO)
    first, second = rng.sample(form.kinds, 2)
    values = rng.sample(form.values, 2)
    names = rng.sample(NAMES, 2)
    which = rng.randrange(2)
    words = {
        "k": first, "l": second, "v": values[0], "w": values[1], "a": names[0], "b": names[1],
        "kind": (first, second)[which], "name": names[which],
    }  # fmt: skip
    facts = [fact.format(**words) for fact in form.facts]
    question, answer = (each.format(**words) for each in (form.question, form.answer))
    return facts, question, f" {answer} {values[which]}"


@dataclass(frozen=True)
class Two:
    """A form of two facts: two kinds of people have two different things."""

    facts: tuple[str, str]
    question: str
    answer: str
    values: Sequence[str]
    kinds: Sequence[str] = ("doctor", "teacher", "farmer", "baker", "painter")


NAMES = ["Kelo", "Miru", "Tavi", "Zori", "Nalu", "Pemi", "Ravo", "Selu"]
TWO = [
    Two(
        ("All {k}s in the village drink {v}, and all {l}s drink {w}.", "{name} is a {kind}."),
        "What does {name} drink?",
        "{name} drinks",
        THINGS[2][1],
    ),
    Two(
        ("Children in the {k} group learn the {v}, and children in the {l} group learn the {w}.",
         "{name} is in the {kind} group."),
        "What does {name} learn?",
        "{name} learns the",
        THINGS[4][1],
        ("red", "blue", "green", "white"),
    ),
    Two(
        ("{a} is a girl and {b} is a boy.", "She has a {v} and he has a {w}."),
        "What does {name} have?",
        "{name} has a",
        THINGS[1][1],
    ),
    Two(
        ("{a} is the older sister of {b}.", "The older one keeps a {v}, the younger one a {w}."),
        "What does {name} keep?",
        "{name} keeps a",
        THINGS[1][1],
    ),
    Two(
        ("The {k} is called {a} and the {l} is called {b}.", "The {k} likes {v}, the {l} {w}."),
        "What does {name} like?",
        "{name} likes",
        THINGS[0][1],
    ),
]  # fmt: skip


def counts(explainer: rationales.Explainer, case: Case) -> bool:
    """Whether the model answers with the facts, not without one, nor with one of two alone."""

    def says(places: Sequence[int] | None) -> bool:
        [found] = answers(explainer, case, places, criterion="top-k=1", max_size=1)
        return bool(found.predicted)

    if len(case.places) > 1 and (  # short documents first: most cases fail there
        not says(case.places) or any(says([place]) for place in case.places)
    ):
        return False
    if not says(None) or any(says(case.others(place)) for place in case.places):
        return False
    return len(case.places) == 1 or not any(is_alone_sufficient(explainer, case))


def is_alone_sufficient(explainer: rationales.Explainer, case: Case) -> Iterator[bool]:
    """Whether each of the facts is sufficient by itself, as a search would judge it."""
    found = answers(explainer, case, criterion="top-k=1", max_size=1)
    target = found[0].target
    said = range(found.parts[-1].end, target)
    for place in case.places:
        kept = [*said, *tokens_of(found, case.sentences[place])]
        yield explainer.predict(found.tokens, target, kept).sufficient


def answers(
    explainer: rationales.Explainer,
    case: Case,
    places: Sequence[int] | None = None,
    **options: object,
) -> rationales.Explanation:
    """The explanation of the answer's last word."""
    asked = rationales.Options(continuation=case.answer, target=case.target).change(**options)
    [found] = explainer.explain_all([rationales.Request(case.prompt(places), asked)])
    if isinstance(found, rationales.Failure):
        raise found.error
    return found


def measure(explainer: rationales.Explainer, case: Case, citer: "Citer | None") -> dict:
    """What each search keeps of a case, and how long it takes."""
    line: dict = {"id": case.id}
    for name, finest in (("sentences", "sentence"), ("tokens", "token")):
        begun = time.perf_counter()
        found = answers(explainer, case, coarse_to_fine=True, fast=True, finest=finest)
        seconds = time.perf_counter() - begun
        rationale = found[0]
        facts = [tokens_of(found, case.sentences[place]) for place in case.places]
        document = found.tokens[: found.parts[0].end]
        kept = {*rationale.indices}
        words = group(document, "word", parts=found.parts)
        line[name] = {
            "seconds": round(seconds, 3),
            "facts": [bool(kept & fact) for fact in facts],
            "sufficient": rationale.sufficient,
            "words": sum(bool(kept & {*w}) and {*w}.isdisjoint(set().union(*facts)) for w in words),
            "size": sum(
                unit[0] < len(document) for unit in rationale.units or zip(rationale.indices)
            ),
            "evaluations": rationale.evaluations,
        }
        if name == "sentences" and citer is not None:
            units = group(document, "sentence", parts=found.parts)
            line["contextcite"] = citer.compare(explainer, case, found, units, facts)
    return line


def tokens_of(found: rationales.Explanation, sentence: str) -> set[int]:
    """The indices of the tokens of a sentence."""
    start = found.text.index(sentence)
    indices, position = set(), 0
    for token in found.tokens:
        if position < start + len(sentence) and position + len(token.text) > start:
            indices.add(token.index)
        position += len(token.text)
    return indices


class Citer:
    """ContextCite in another process."""

    def __init__(self, python: Path, folder: Path) -> None:
        script = Path(__file__).with_name("contextcite.py")
        command = [str(python), str(script), str(folder), str(torch.get_num_threads())]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        )

    def compare(
        self,
        explainer: rationales.Explainer,
        case: Case,
        found: rationales.Explanation,
        units: Sequence[Sequence[int]],
        facts: Sequence[set[int]],
    ) -> dict:
        """Its seconds, whether its first sentences are the facts, how many are sufficient."""
        asked = {
            "sentences": ["".join(found.tokens[i].text for i in unit) for unit in units],
            "query": case.question,
            "template": TEMPLATE.replace("documents", "context").replace("question", "query"),
            "answer": case.answer,
            "target": case.target,
        }
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        order = sorted(range(len(units)), key=lambda n: -answer["scores"][n])
        target = found[0].target
        said = [*range(found.parts[-1].end, target)]  # the answer before the target
        size = next(
            (
                size
                for size in range(len(order) + 1)
                if explainer.predict(
                    found.tokens, target, [*said, *(i for n in order[:size] for i in units[n])]
                ).sufficient
            ),
            None,
        )
        first = {i for n in order[: len(facts)] for i in units[n]}
        return {
            "seconds": round(answer["seconds"], 3),
            "facts": [bool(first & fact) for fact in facts],
            "size": size,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--facts", choices=["one", "two"], default="one")
    parser.add_argument("--cases", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--contextcite", type=Path, help="the Python that has ContextCite")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    explainer = rationales.load()
    citer = Citer(arguments.contextcite, explainer.folder) if arguments.contextcite else None
    known = arguments.out.read_text().splitlines() if arguments.out.exists() else []
    lines = {line["id"]: line for line in map(json.loads, known)}
    found: list[dict] = []
    rejected = 0
    for case in draw_cases(explainer, arguments.tokens, arguments.seed, arguments.facts == "two"):
        if len(found) == arguments.cases:
            break
        if case.id not in lines:
            fits = counts(explainer, case)
            lines[case.id] = measure(explainer, case, citer) if fits else {"id": case.id}
            with arguments.out.open("a") as file:
                file.write(json.dumps(lines[case.id]) + "\n")
        if "sentences" not in lines[case.id]:
            rejected += 1
            continue
        found.append(lines[case.id])
        print(json.dumps(lines[case.id]), flush=True)
    print(f"{len(found)} cases of {arguments.tokens} tokens, {rejected} rejected")
    report(found)


def report(found: Sequence[dict]) -> None:
    """Print the means, and the ratios of the cases that ContextCite has answered too."""
    count = len(found)
    for name in ("sentences", "tokens"):
        of = [line[name] for line in found]
        print(
            f"{name}: facts kept in {sum(all(x['facts']) for x in of) / count:.0%}, sufficient in "
            f"{sum(x['sufficient'] for x in of) / count:.0%}, words of other sentences "
            f"{sum(x['words'] for x in of) / count:.2f}, "
            f"{sum(x['seconds'] for x in of) / count:.2f} s"
        )
    compared = [line for line in found if "contextcite" in line]
    if not compared:
        return
    theirs = [line["contextcite"] for line in compared]
    seconds = sum(x["seconds"] for x in theirs)
    first = sum(all(x["facts"]) for x in theirs) / len(theirs)
    print(f"ContextCite: facts first in {first:.0%}, {seconds / len(theirs):.2f} s")
    for name in ("sentences", "tokens"):
        ratio = sum(line[name]["seconds"] for line in compared) / seconds
        middle = median(line[name]["seconds"] / line["contextcite"]["seconds"] for line in compared)
        print(
            f"{name}: {ratio:.3f} of ContextCite's time (1/{1 / ratio:.0f}), "
            f"in the median case {middle:.3f} (1/{1 / middle:.0f})"
        )
    smaller = [
        x["contextcite"]["size"] is None or x["sentences"]["size"] <= x["contextcite"]["size"]
        for x in compared
    ]
    print(
        f"sentences: as few as the first of ContextCite's or fewer in {sum(smaller)}/{len(smaller)}"
    )


if __name__ == "__main__":
    main()
