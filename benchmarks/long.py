"""One answer out of thousands of tokens of documents: seconds and memory.

    RATIONALES_DATA=… python benchmarks/long.py --tokens 8000

A case of benchmarks/facts.py, searched coarse to fine and fast, in a process of its own. Besides
the time, the most memory that the process took is printed, with that of the model alone.
"""

import argparse
import resource
import time
from itertools import islice

import facts

import rationales


def peak() -> float:
    """The most memory that this process has taken, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    explainer = rationales.load()
    print(f"the model alone: {peak():.2f} GB")

    def length(case: facts.Case) -> int:
        return len(explainer.tokenizer(" ".join(case.sentences))["input_ids"])

    drawn = facts.draw_cases(explainer, arguments.tokens, arguments.seed, two=False)
    case = max(islice(drawn, 20), key=length)  # most are shorter
    begun = time.perf_counter()
    found = facts.answers(explainer, case, coarse_to_fine=True, fast=True)
    seconds = time.perf_counter() - begun
    [rationale] = found
    print(
        f"{rationale.target} tokens before the target: {seconds:.0f} s, {peak():.2f} GB; "
        f"{'predicted' if rationale.predicted else 'not predicted'}, "
        f"{'sufficient' if rationale.sufficient else 'not sufficient'}: {rationale.text!r}"
    )


if __name__ == "__main__":
    main()
