"""Explanations to look at, without a model: what tests of the viewer and the screenshots show."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import log

from rationales import Candidate, Explanation, Rationale, Step
from rationales.context import Part, Token
from rationales.result import Proof

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "<!--",
    "\u202eevil\u2066",
    "x" * 10_000,
    "\x00\x1b[31m",
    "]]>&lt;",
    "\n\n",
    "",
    " ",
)

WORDS = """the court held that a law of the state may not take away what people have agreed upon
unless there is some reason that can be given in public before it does so"""


def tokens_of(
    pieces: Sequence[str], pinned: Sequence[int] = (), source: int = 0
) -> tuple[Token, ...]:
    """Tokens with these texts; the first ``source`` ones are the source of a translation."""
    return tuple(
        Token(
            i,
            100 + i,
            text,
            i in pinned,
            ("source" if i < source else "target") if source else None,
        )
        for i, text in enumerate(pieces)
    )


def rationale(
    tokens: Sequence[Token],
    target: int,
    kept: Sequence[int],
    probabilities: Sequence[float] | None = None,
    **more: object,
) -> Rationale:
    """A rationale that grew by one token a step; the last step predicts the target."""
    if probabilities is None:
        probabilities = [0.6 * (k + 1) / len(kept) for k in range(len(kept))]
    steps = tuple(
        Step(
            index,
            log(p),
            tokens[target].id if k == len(kept) - 1 else 7,
            log(p) if k == len(kept) - 1 else log(0.3),
            tokens[target].text if k == len(kept) - 1 else " a",
            candidates=tuple(
                Candidate(i, log(p * share))
                for i, share in ((index, 1.0), (kept[0] - 1, 0.4))
                if i >= 0
            ),
        )
        for k, (index, p) in enumerate(zip(kept, probabilities, strict=True))
    )
    fields = {
        "sufficient": True,
        "evaluations": 10 * len(kept),
        "steps": steps,
        "predicted": True,
        "target_text": tokens[target].text,
        "full_context": Step(None, log(0.62), tokens[target].id, log(0.62), tokens[target].text),
        **more,
    }
    return Rationale(target, tokens[target].id, tuple(kept), **fields)  # type: ignore[arg-type]


def explanation(tokens: Sequence[Token], found: Sequence[Rationale], **more: object) -> Explanation:
    fields = {"model": "tiny", "method": "greedy", "evaluation": "sparse", "seconds": 1.5, **more}
    return Explanation(tokens=tuple(tokens), rationales=tuple(found), **fields)  # type: ignore[arg-type]


def court(method: str = "greedy") -> Explanation:
    """A short text with a continuation of four tokens; the second one has an alternative."""
    pieces = [
        "The",
        " Supreme",
        " Court",
        " on",
        " Tues",
        "day",
        " ruled",
        " that",
        " the",
        " law",
        ".",
    ]
    tokens = tokens_of(pieces)
    if method != "greedy":
        found = [rationale(tokens, 6, [5, 2, 1, 0]), rationale(tokens, 7, [6, 4])]
        return explanation(tokens, found, method=method)
    other = rationale(tokens, 7, [6, 1, 0])
    return explanation(
        tokens,
        [
            rationale(tokens, 6, [5, 2, 1], [0.012, 0.21, 0.48], minimal=True),
            rationale(tokens, 7, [6, 2], alternatives=(other,), optimal=True),
            rationale(tokens, 8, [7]),
            rationale(
                tokens, 9, [8, 6, 2, 4, 1], sufficient=False, stopped="max-size", predicted=False
            ),
        ],
    )


def pair() -> tuple[Explanation, dict[str, list[tuple[int, int]]]]:
    """A translation, and gold links between its sides."""
    source = ["Je", " pense", " que", " tu", " as", " raison", ".", "</s>"]
    tokens = tokens_of([*source, "<pad>", "I", " think", " you", "'re", " right", "."], [7, 8], 8)
    kept = {9: [0], 10: [9, 1], 11: [10, 3], 12: [11, 4], 13: [12, 5], 14: [13, 6]}
    found = [rationale(tokens, target, indices) for target, indices in kept.items()]
    gold = {"sure": [(0, 9), (1, 10), (5, 13), (6, 14)], "possible": [(3, 11), (4, 12), (5, 12)]}
    return explanation(tokens, found, model="fr-en"), gold


def chat() -> Explanation:
    """A question in a chat template, whose tokens are pinned, and the beginning of an answer."""
    pieces = ["<|im_start|>", "user", "\n"]
    pieces += [
        "My",
        " sister",
        " Ana",
        " lives",
        " in",
        " Lisbon",
        ".",
        " Which",
        " language",
        " does",
    ]
    pieces += [" she", " speak", "?", "<|im_end|>", "\n", "<|im_start|>", "assistant", "\n"]
    start = len(pieces)
    pieces += ["Ana", " speaks", " Portuguese", "."]
    tokens = tokens_of(pieces, [0, 1, 2, *range(16, 21)])
    kept = {0: [5, 13], 1: [start, 14, 10], 2: [start + 1, 8, 11], 3: [start + 2]}
    return explanation(tokens, [rationale(tokens, start + k, kept[k]) for k in kept])


def long(size: int, every: int = 1) -> Explanation:
    """A text of many tokens, each of which (or each of ``every``) is explained."""
    draw = random.Random(0)
    words = WORDS.split()
    pieces = []
    while len(pieces) < size:
        sentence = [f" {draw.choice(words)}" for _ in range(draw.randrange(5, 18))]
        sentence[0] = sentence[0].title()
        pieces += [*sentence, "."]
        if draw.random() < 0.2:
            pieces += ["\n\n", draw.choice(words).title()]
    pieces = pieces[:size]
    tokens = tokens_of(pieces)
    found = [
        rationale(
            tokens,
            i,
            [i - 1, *draw.sample(range(max(0, i - 60), i - 1), min(i - 1, draw.randrange(5)))],
        )
        for i in range(1, size, every)
    ]
    return explanation(tokens, found)


def documents(filler: int = 0, names: Sequence[str] = ("1", "Notes", "Weather")) -> Explanation:
    """Three documents and a question, with an answer of two tokens, which is certified.

    ``filler`` is how many more sentences each document has, around its own one.
    """
    other = [" Nobody", " said", " anything", " else", " about", " this", " today", "."] * filler
    own = (
        [" The", " bridge", " is", " 42", " km", " long", "."],
        [" It", " was", " opened", " in", " spring", "."],
        [" It", " rained", " on", " Monday", "."],
    )
    pieces, parts, pinned = [], [], []
    for number, (name, sentence) in enumerate(zip(names, own, strict=True)):
        pinned += [len(pieces)] * (number > 0)
        pieces += ["\n\n"] * (number > 0)
        start = len(pieces)
        pieces += [*other, *sentence, *other]
        parts.append(Part("document", name, start, len(pieces)))
    pinned += range(len(pieces), len(pieces) + 12)
    pieces += ["\n\n", "Question", ": "]
    parts.append(Part("question", "question", len(pieces), len(pieces) + 6))
    pieces += ["How", " long", " is", " the", " bridge", "?", "\n", "Answer", ":"]
    target = len(pieces)
    tokens = tokens_of([*pieces, " 42", " km", "."], pinned)
    at = parts[0].start + len(other)
    proof = Proof(
        margin=1.25,
        lower_bound=2,
        without=Step(None, log(0.1), 7, log(0.4), " 3"),
        without_sufficient=False,
        critical_units=((at + 3,),),
        critical_tried="rationale",
        evaluations=12,
    )
    found = [
        rationale(tokens, target, [at + 3, at + 1], optimal=True, minimal=True, proof=proof),
        rationale(tokens, target + 1, [target, at + 4]),
        rationale(tokens, target + 2, [target + 1, parts[1].start + len(other) + 4]),
    ]
    return explanation(tokens, found, parts=tuple(parts))


def hostile() -> Explanation:
    """Token texts that would run, break out or turn the text around, if they were not inert."""
    tokens = tokens_of([*HOSTILE, " end"])
    found = [rationale(tokens, i, [i - 1, *range(i - 1)][:6]) for i in range(1, len(tokens))]
    return explanation(tokens, found, model=HOSTILE[0], id=HOSTILE[1])
