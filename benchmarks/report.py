"""The report on a large run: how long it takes and how much memory.

    python benchmarks/report.py                  # 100,000 rows of 60 tokens, about 500 MB on disk
    python benchmarks/report.py --rows 10000

The rows are made up: words of a vocabulary of 50,000, some of several tokens, with the frequencies
of a natural text; one target each, the last token. The bars: 60 s and 2 GB on one core.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import accumulate
from math import log
from pathlib import Path

from rationales import Explanation

TOKENS = 60
PART = 10_000
SYLLABLES = [c + v + e for c in "bdfgklmnprst" for v in "aeiou" for e in ("", "n", "r", "s")]


def rows(count: int) -> Iterator[dict[str, object]]:
    """Explanations in the plain dictionaries of the schema."""
    draw = random.Random(0)
    words = [
        (" " + draw.choice(SYLLABLES) + draw.choice(SYLLABLES), draw.choice(SYLLABLES))[
            : draw.choice((1, 1, 2))
        ]
        for _ in range(50_000)
    ]
    weights = [*accumulate(1 / rank for rank in range(1, len(words) + 1))]
    for number in range(count):
        texts = [p for word in draw.choices(words, cum_weights=weights, k=TOKENS) for p in word]
        texts = texts[: TOKENS - 1]
        texts[9::12] = ["," if draw.random() < 0.5 else "."] * len(texts[9::12])
        size = min(1 + int(draw.expovariate(0.25)), TOKENS // 2)
        kept = [TOKENS - 2, *draw.sample(range(TOKENS - 2), size - 1)]
        sufficient = draw.random() < 0.95
        steps = [
            {
                "index": index,
                "target_logprob": log((k + 1) / (size + 1)),
                "prediction_id": 7 if k + 1 == size and sufficient else 8,
                "prediction_logprob": -0.5,
                "prediction_text": " a",
            }
            for k, index in enumerate(kept)
        ]
        yield {
            "schema": 2,
            "model": "made up",
            "method": "greedy",
            "evaluation": "sparse",
            "tokens": [
                {"index": i, "id": 7, "text": text} for i, text in enumerate([*texts, " end"])
            ],
            "rationales": [
                {
                    "target": TOKENS - 1,
                    "target_id": 7,
                    "indices": kept,
                    "sufficient": sufficient,
                    "evaluations": TOKENS * size,
                    "steps": steps,
                    "predicted": draw.random() < 0.8,
                    "target_text": " end",
                    "full_context": {**steps[-1], "index": None},
                }
            ],
            "seconds": 0.1,
            "id": number,
            "group": f"group {number % 8}",
        }


def make(folder: Path, count: int) -> None:
    """Write the folder of a run of so many rows."""
    (folder / "run.json").write_text(json.dumps({"kind": "run", "identity": {}, "files": []}))
    (folder / "status.json").write_text(json.dumps({"total": count}))
    file = None
    for number, row in enumerate(rows(count)):
        if number % PART == 0:
            if file is not None:
                file.close()
            file = (folder / f"part-{number // PART:05}.jsonl").open("w", encoding="utf-8")
            Explanation.from_dict(row)  # what is made up is an explanation
        assert file is not None
        file.write(json.dumps(row, ensure_ascii=False) + "\n")
    if file is not None:
        file.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    count = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, count)
        size = sum(path.stat().st_size for path in folder.iterdir())
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "rationales", "report", name], check=True)
        wall = time.perf_counter() - start
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        page = (folder / "report.html").stat().st_size
    print(
        f"{count:,} rows ({size / 1e6:.0f} MB): {wall:.1f} s, "
        f"{used.ru_utime + used.ru_stime:.1f} s of CPU (bar: 60 s); "
        f"at most {used.ru_maxrss / 1e6:.2f} GB (bar: 2 GB); the page has {page / 1e6:.1f} MB"
    )


if __name__ == "__main__":
    main()
