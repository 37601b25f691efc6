"""An adapter that is merged against one that is computed beside the weights: memory, time, answers.

    python benchmarks/adapter.py [--model NAME] [--adapter FOLDER] [--texts 6]

Memory: a process each loads the model alone, with the adapter merged, and with the adapter beside
the weights, and explains one text. What it takes beyond its imports is compared with the bytes of
the model's weights. Time and rationales: all targets of texts that the model writes (six texts of
the default model: more than 300 targets), with the one and the other in turns, in one process. The
bars, of the adapter beside the weights: at most 1.15 times the memory of the model alone, at most
1.15 times the time of the merged one, the same rationales.
"""

import argparse
import json
import subprocess
import sys
import time
from statistics import median

from measure import peak_gigabytes
from settings import PROMPTS, own_texts

import rationales

WAYS = {
    "the model alone": {"adapter": False},
    "merged": {"merge": True},
    "beside": {"merge": False},
}


def load(arguments: argparse.Namespace, way: str) -> rationales.Explainer:
    return rationales.load(arguments.model, **{"adapter": arguments.adapter} | WAYS[way])


def memory(arguments: argparse.Namespace, way: str) -> dict[str, float]:
    """The gigabytes of this process after imports, after loading and after one text."""
    import transformers  # noqa: F401
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: F401

    found = {"imports": peak_gigabytes()}
    explainer = load(arguments, way)
    found["loaded"] = peak_gigabytes()
    scorer = explainer.without_adapter().model
    found["weights"] = sum(w.numel() * w.element_size() for w in scorer.parameters()) / 1e9
    explainer.explain(PROMPTS[0], generate=8)
    return found | {"explained": peak_gigabytes()}


def measure_memory(passed: list[str]) -> None:
    """A table of what each process takes beyond its imports, also as a multiple of the weights."""
    print("| | loaded, GB | / weights | one text explained, GB | / the model alone |")
    print("|---|---:|---:|---:|---:|")
    alone = None
    for way in WAYS:
        command = [sys.executable, __file__, *passed, "--way", way]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found = json.loads(done.stdout.splitlines()[-1])
        loaded, explained = (found[when] - found["imports"] for when in ("loaded", "explained"))
        alone = alone or explained
        print(
            f"| {way} | {loaded:.3f} | {loaded / found['weights']:.2f} "
            f"| {explained:.3f} | {explained / alone:.2f} |",
            flush=True,
        )
    print(f"\nThe weights of the model: {found['weights']:.3f} GB\n")


def measure_time(arguments: argparse.Namespace) -> None:
    """Seconds and rationales of both ways, text by text, and what they come to."""
    explainers = {way: load(arguments, way) for way in ("merged", "beside")}
    texts: dict[str, tuple[str, int]] = {}
    for item in own_texts(explainers["merged"], arguments.texts):
        texts[item.prompt] = (item.text, texts.get(item.prompt, ("", 0))[1] + 1)
    seconds: dict[str, list[float]] = {way: [] for way in explainers}
    targets = differ = 0
    for place, (prompt, (text, size)) in enumerate(texts.items()):
        found = {}
        # The one that comes first takes turns: the second may find caches warm.
        for way in sorted(explainers, reverse=bool(place % 2)):
            start = time.perf_counter()
            explained = explainers[way].explain(prompt, continuation=text[len(prompt) :])
            seconds[way].append(time.perf_counter() - start)
            found[way] = [rationale.indices for rationale in explained]
        targets += len(found["merged"])
        differ += sum(a != b for a, b in zip(found["merged"], found["beside"], strict=True))
        merged, beside = (seconds[way][-1] for way in ("merged", "beside"))
        print(
            f"{size} targets: merged {merged:.1f} s, beside {beside:.1f} s, "
            f"ratio {beside / merged:.3f}, {differ} of {targets} rationales differ so far",
            flush=True,
        )
    ratios = [b / m for m, b in zip(seconds["merged"], seconds["beside"], strict=True)]
    total = sum(seconds["beside"]) / sum(seconds["merged"])
    print(f"\nTime, beside / merged: {total:.3f} (median of texts {median(ratios):.3f})")
    print(f"Rationales that differ: {differ} of {targets}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="a name or a folder; the default model if left out")
    parser.add_argument("--adapter", help="a folder; the packaged one if left out")
    parser.add_argument("--texts", type=int, default=6, help="how many texts are timed")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way is not None:
        print(json.dumps(memory(arguments, arguments.way)))
        return
    measure_memory(sys.argv[1:])
    measure_time(arguments)


if __name__ == "__main__":
    main()
