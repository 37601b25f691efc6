"""How quickly a corpus run answers, and how much memory it takes.

    python benchmarks/corpus.py throughput --out DIR [--rows 200] [--skip ray]
    python benchmarks/corpus.py memory --model FOLDER --out DIR [--rows 2000]

``throughput``: rows of 60 tokens with one target each, which the default model predicts, by the
published algorithm on some of them, by one process, by two workers with one thread each, and by two
Ray actors. Times are those between the first batch and the last, without loading the model.
``memory``: the resident memory of one process after each hundred rows. Texts come from the folder
that RATIONALES_DATA names.
"""

import argparse
import json
import time
from pathlib import Path

import psutil
from published import greedy
from settings import _prediction

import rationales
from rationales.data import data_file
from rationales.options import Options
from rationales.runs.corpus import Execute, State
from rationales.text import encode

TOKENS = 60


def write_rows(explainer: rationales.Explainer, path: Path, count: int) -> None:
    """Rows of so many tokens, of which the model predicts the last."""
    text = data_file("wikitext2/valid.raw").read_text(encoding="utf-8")
    paragraphs = [line.strip() for line in text.splitlines() if len(line) > 600]
    rows = 0
    with path.open("w", encoding="utf-8") as file:
        for number in range(10 * count):
            paragraph = paragraphs[number % len(paragraphs)][(number // len(paragraphs)) * 150 :]
            ids = encode(explainer.tokenizer, paragraph, Options()).ids[:TOKENS]
            if len(ids) < TOKENS:
                continue
            target = next(
                (t for t in range(TOKENS - 1, TOKENS // 2, -1) if _predicts(explainer, ids, t)),
                None,
            )
            if target is None:
                continue
            shown = explainer.tokenizer.decode(list(ids))
            if encode(explainer.tokenizer, shown, Options()).ids != tuple(ids):
                continue
            file.write(json.dumps({"id": rows, "text": shown, "target": target}) + "\n")
            rows += 1
            if rows == count:
                return


def _predicts(explainer: rationales.Explainer, ids: tuple[int, ...], target: int) -> bool:
    return _prediction(explainer, tuple(ids[:target])) == ids[target]


def throughput(out: Path, rows: int, sample: int, skip: list[str]) -> None:
    """Seconds a row by each executor, and by the published algorithm."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "rows.jsonl"
    explainer = rationales.load()
    if not path.exists():
        write_rows(explainer, path, rows)
    given = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    seconds: dict[str, float] = {}
    if "published" not in skip:
        chosen = given[:: max(1, len(given) // sample)]
        begun = time.perf_counter()
        base, adapted = explainer.scorer.base.model, explainer.scorer.adapted.model
        for row in chosen:
            ids = encode(explainer.tokenizer, row["text"], Options()).ids
            greedy(adapted, ids, row["target"], whole=base)
        seconds["published"] = (time.perf_counter() - begun) / len(chosen)
        print(f"published  {seconds['published']:.3f} s a row ({len(chosen)} rows)", flush=True)
    for name, execute in {
        "local": Execute(),
        "workers": Execute(workers=2),
        "ray": Execute(workers=2, ray="local"),
    }.items():
        if name in skip:
            continue
        states: list[State] = []
        model = explainer if name == "local" else None
        rationales.run(path, out / name, model, execute=execute, on_progress=states.append)
        seconds[name] = states[-1].seconds / max(1, states[-1].new)
        print(f"{name:10} {seconds[name]:.3f} s a row ({states[-1].new} rows)", flush=True)
    for one, other in (("local", "published"), ("local", "workers"), ("workers", "ray")):
        if {one, other} <= seconds.keys():
            print(f"time of {one} / time of {other}: {seconds[one] / seconds[other]:.2f}")


def memory(out: Path, model: str, rows: int) -> None:
    """Resident memory after each hundred rows."""
    out.mkdir(parents=True, exist_ok=True)
    words = data_file("wikitext2/valid.raw").read_text(encoding="utf-8").split()
    path = out / "memory.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(rows):
            text = " ".join(words[number * 7 : number * 7 + 20])
            file.write(json.dumps({"text": text, "target": "last", "max_size": 4}) + "\n")
    seen: dict[int, float] = {}

    def tell(state: State) -> None:
        seen.setdefault(state.done // 100 * 100, psutil.Process().memory_info().rss / 2**20)

    rationales.run(path, out / "memory", rationales.load(model), on_progress=tell)
    later = {done: size for done, size in seen.items() if done >= 200}
    for done, size in seen.items():
        print(f"{done:6} rows  {size:7.0f} MB")
    sizes = [*later.values()]
    mean, half = sum(sizes) / len(sizes), len(sizes) // 2
    halves = [sum(part) / len(part) / mean for part in (sizes[:half], sizes[half:])]
    print(
        f"after the first 200 rows: {mean:.0f} MB, from {min(sizes) / mean:.3f} to "
        f"{max(sizes) / mean:.3f} of that; the two halves {halves[0]:.3f} and {halves[1]:.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["throughput", "memory"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--model", help="for memory: a small one")
    parser.add_argument("--published", type=int, default=20, help="rows for the published one")
    parser.add_argument("--skip", nargs="*", default=[])
    arguments = parser.parse_args()
    if arguments.what == "throughput":
        throughput(arguments.out, arguments.rows or 200, arguments.published, arguments.skip)
    else:
        memory(arguments.out, arguments.model, arguments.rows or 2000)


if __name__ == "__main__":
    main()
