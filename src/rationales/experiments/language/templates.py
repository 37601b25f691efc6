"""Long-range agreement: the paper's templates, filled with analogous pairs of words.

    When my flight landed in [B], … asleep. (I had a terrifying dream …). … the capital, [A]
                            antecedent       distractor                                 target

The target is the slot that ends the template, the antecedent the other one. Kept are pairs of which
each word is a single token, tested in its place: with the leading space it has there.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from rationales.context import Context, causal_context
from rationales.data import data_file
from rationales.errors import RationalesError
from rationales.experiments.finding import example_lines, predictions
from rationales.metrics import tokens_in_span
from rationales.runs import OnProgress, RunFolder
from rationales.text import Tokenizer, prefix_ids

if TYPE_CHECKING:
    from rationales.explainer import Explainer

TEMPLATES, PAIRS = "analogy_templates.json", "questions-words.txt"
HALVES = ("development", "held-out")


@dataclass(frozen=True)
class Completed:
    """The tokens of a text; the last of them is the target."""

    id: str
    ids: tuple[int, ...]
    pinned: int
    """How many special tokens the tokenizer put in front; every subset holds them."""

    @property
    def context(self) -> Context:
        """What comes before the target."""
        return causal_context(self.ids, len(self.ids) - 1, frozenset(range(self.pinned)))


@dataclass(frozen=True)
class Example(Completed):
    """A filled template, and where its parts are."""

    antecedent: int
    distractor: frozenset[int]
    without_distractor: tuple[int, ...]
    """The ids of the text without the parenthesis."""

    @property
    def short_context(self) -> Context:
        """The context without the distractor."""
        return replace(self, ids=self.without_distractor).context


def examples(tokenizer: Tokenizer, half: str | None = None) -> list[Example]:
    """All filled templates in which both words are single tokens; only one half if it is named.

    The halves are fixed by a hash of each pair: one to look at while developing, one held out.
    """
    templates = read_templates()
    filled = (
        fill(tokenizer, templates[section], first, second, id=f"{section} {first} {second}")
        for section, first, second in read_pairs()
        if section in templates and half in (None, half_of(section, first, second))
    )
    return [example for example in filled if example is not None]


def read_templates() -> dict[str, str]:
    """The template of each section."""
    path = data_file(TEMPLATES)
    try:
        templates = json.loads(path.read_text(encoding="utf-8"))
        return {str(section): str(template) for section, template in templates.items()}
    except (ValueError, AttributeError) as error:
        raise RationalesError(f"{TEMPLATES} is not JSON of sections and templates") from error


def read_pairs() -> Iterator[tuple[str, str, str]]:
    """Each section and pair of words once; a line of the file holds two pairs."""
    section, seen = "", set()
    for line in data_file(PAIRS).read_text(encoding="utf-8").splitlines():
        if line.startswith(":"):
            section = line[2:].strip()
            continue
        words = line.split()
        for pair in (words[:2], words[2:4]):
            if len(pair) == 2 and (section, *pair) not in seen:
                seen.add((section, *pair))
                yield section, pair[0], pair[1]


def half_of(section: str, first: str, second: str) -> str:
    """The half that a pair belongs to."""
    digest = hashlib.sha256(f"{section} {first} {second}".encode()).digest()
    return HALVES[digest[0] % 2]


def fill(
    tokenizer: Tokenizer, template: str, first: str, second: str, id: str = ""
) -> Example | None:
    """The template with this pair, or None if one of its words is not a single token."""
    words = {"[A]": first, "[B]": second}
    text, places = "", {}
    for piece in re.split(r"(\[[AB]\])", template):
        begin, text = len(text), text + words.get(piece, piece)
        if piece in words:
            places[piece] = (begin, len(text))
    parenthesis = re.search(r" \(.*?\)\.", text)
    if len(places) != 2 or not template.endswith(("[A]", "[B]")) or parenthesis is None:
        raise RationalesError(
            "a template has [A], [B] at its end or the other way round, and a parenthesis "
            f"that is a sentence: {template!r}"
        )
    encoded = encode(tokenizer, text)
    antecedent, target = (
        tokens_in_span(text, encoded.offsets, span) for span in sorted(places.values())
    )
    if len(antecedent) != 1 or len(target) != 1:
        return None
    shortened = encode(tokenizer, text.replace(parenthesis.group(), ""))
    inside = tokens_in_span(text, encoded.offsets, parenthesis.span())
    shift = len(encoded.prefix)
    return Example(
        id=id,
        ids=encoded.prefix + encoded.ids,
        pinned=shift,
        antecedent=antecedent[0] + shift,
        # From its first token to its last: a space in between may be a token of its own.
        distractor=frozenset(range(inside[0] + shift, inside[-1] + shift + 1)),
        without_distractor=shortened.prefix + shortened.ids,
    )


def completed(
    explainer: Explainer, run: RunFolder, seed: int, limit: int | None, progress: OnProgress
) -> tuple[list[Example], int]:
    """The examples that the model completes, at most ``limit``, and how many there are in all.

    It has to predict the last word with the distractor and without it. The examples are in random
    order, so that a limit takes some of every section.
    """
    everything = examples(explainer.tokenizer)
    filled = random.Random(seed).sample(everything, len(everything))

    def predicts(each: Example) -> dict[str, bool]:
        return predictions(explainer, {"with": each.context, "without": each.short_context})

    lines = example_lines(run, filled, predicts, "predicting last words", progress)
    known = zip(filled, lines, strict=True)
    predicted = (each for each, line in known if line["with"] and line["without"])
    kept = list(islice(predicted, limit))
    if not kept:
        raise RationalesError(
            f"the model completes none of the {len(filled)} templates with and without their "
            "distractor: take a larger model"
        )
    return kept, len(filled)


class Encoded(NamedTuple):
    """A text's own ids with the characters of each, and the special ids in front of them."""

    prefix: tuple[int, ...]
    ids: tuple[int, ...]
    offsets: tuple[tuple[int, int], ...]


def encode(tokenizer: Tokenizer, text: str) -> Encoded:
    """The text's tokens with their places; an error if the tokenizer does not know these."""
    if not getattr(tokenizer, "is_fast", False):
        raise RationalesError(
            "this experiment needs to know which characters a token stands for, which this "
            "model's tokenizer does not tell: use a model with a fast tokenizer"
        )
    found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    offsets = tuple((int(start), int(end)) for start, end in found["offset_mapping"])
    covered = {place for start, end in offsets for place in range(start, end)}
    if any(not c.isspace() and place not in covered for place, c in enumerate(text)):
        raise RationalesError("this model's tokenizer leaves out characters of the text")
    return Encoded(tuple(prefix_ids(tokenizer, text)), tuple(found["input_ids"]), offsets)
