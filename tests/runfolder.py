"""Folders of runs, made by hand: what tests of the report read."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rationales import Explanation

from shown import explanation, rationale, tokens_of

VOCABULARY = ["the", "of", "court", "don't", "Tuesday", "law", "not", "Größe", "a", "b", "x", "y"]


def write(
    folder: Path,
    explanations: Sequence[Explanation],
    *,
    failed: Sequence[dict[str, Any]] = (),
    total: int | None = None,
    parts: int = 2,
) -> Path:
    """The folder of a run with these rows, in so many parts."""
    folder.mkdir(exist_ok=True)
    run = {"kind": "run", "identity": {}, "names": {}, "versions": {}, "files": []}
    (folder / "run.json").write_text(json.dumps(run))
    for number in range(parts):
        lines = [each.to_json() + "\n" for each in explanations[number::parts]]
        (folder / f"part-{number:05}.jsonl").write_text("".join(lines), encoding="utf-8")
    if failed:
        lines = [json.dumps(each) + "\n" for each in failed]
        (folder / "failed.jsonl").write_text("".join(lines), encoding="utf-8")
    if total is not None:
        (folder / "status.json").write_text(json.dumps({"total": total}))
    return folder


def corpus(rows: int, seed: int = 0) -> list[Explanation]:
    """Texts of words of one or two tokens, with rationales of all kinds for some tokens."""
    draw = random.Random(seed)
    made = []
    for number in range(rows):
        words = draw.choices(VOCABULARY, k=draw.randrange(4, 20))
        pieces = [piece for word in words for piece in cut(f" {word}", draw)]
        pinned = [0] if draw.random() < 0.5 else []
        tokens = tokens_of([*["<s>"] * len(pinned), *pieces, " ."], pinned)
        targets = sorted(draw.sample(range(2, len(tokens)), draw.randrange(1, 4)))
        found = []
        for target in targets:
            free = range(len(pinned), target - 1)
            kept = [target - 1, *draw.sample(free, draw.randrange(min(8, len(free)) + 1))]
            sufficient = draw.random() < 0.7
            verdicts = {
                "predicted": draw.choice([True, False, None]),
                "minimal": draw.choice([True, False, None]) if sufficient else None,
                "optimal": draw.choice([True, None]) if sufficient else None,
            }
            each = rationale(tokens, target, kept, sufficient=sufficient, **verdicts)
            if draw.random() < 0.2:
                each = replace(each, alternatives=(rationale(tokens, target, [target - 1]),))
            found.append(each)
        group = draw.choice(["news", "law", 7, None])
        made.append(explanation(tokens, found, id=number, group=group))
    return made


def cut(word: str, draw: random.Random) -> list[str]:
    """A word in one or two tokens."""
    at = draw.randrange(2, len(word)) if len(word) > 3 and draw.random() < 0.4 else len(word)
    return [piece for piece in (word[:at], word[at:]) if piece]
