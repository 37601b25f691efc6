"""Rounding against faults in half precision: what the tolerance of the self-test goes by.

    python benchmarks/half_precision.py [--model NAME ...]

For random subsets of random texts, the answer of sparse evaluation is compared with that of masked
evaluation (only rounding differs), and with that of a faulty one: gaps closed up, or one token a
position further. Two measures: the largest difference of a log-probability, and the divergence
Σ p (log p − log q) in nats. A measure is of use if rounding and faults do not overlap.
"""

import argparse

import torch
from transformers import AutoModelForCausalLM

from rationales.models.loading import model_path
from rationales.scoring.guard import at_rest
from rationales.scoring.positions import NextToken

LENGTHS, SUBSETS = (12, 32, 128), 8


def answers(model, ids: torch.Tensor, kept: list[int]) -> dict[str, torch.Tensor]:
    """The log-probabilities after a text of which some tokens are kept, in four ways."""
    ask = NextToken(model)
    places, whole = torch.tensor([kept]), torch.arange(len(ids))[None]
    mask = torch.zeros_like(whole)
    mask[0, kept] = 1
    ones = torch.ones_like(places)
    moved = places.clone()
    gap = next(i for i, place in enumerate(kept) if place + 1 not in kept)
    moved[0, gap] += 1
    closed = torch.arange(len(kept))[None]
    return {
        "masked": ask(ids[None], whole, mask),
        "rounding": ask(ids[places], places, ones),
        "gaps closed": ask(ids[places], closed, ones),
        "one token moved": ask(ids[places], moved, ones),
    }


def measure(model) -> dict[str, list[tuple[float, float]]]:
    """For each way, the largest difference from masked evaluation and the divergence."""
    rng = torch.Generator().manual_seed(0)
    found: dict[str, list[tuple[float, float]]] = {}
    for length in LENGTHS:
        for _ in range(SUBSETS):
            ids = torch.randint(0, model.config.vocab_size, (length,), generator=rng)
            some = torch.randperm(length - 1, generator=rng)[: length // 3].tolist()
            with at_rest(model):
                given = answers(model, ids, sorted([*some, length - 1]))
            logprobs = {name: logits[0].log_softmax(-1) for name, logits in given.items()}
            masked = logprobs.pop("masked")
            for name, other in logprobs.items():
                divergence = float((masked.exp() * (masked - other)).sum())
                pair = float((masked - other).abs().max()), divergence
                found.setdefault(name, []).append(pair)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", nargs="*", default=["default"])
    print("| model | type | | largest difference | divergence |\n|---|---|---|---|---|")
    for name in parser.parse_args().model:
        path = model_path(name)
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype).eval()
            for way, pairs in measure(model).items():
                ranges = [f"{min(x):.2g} … {max(x):.2g}" for x in zip(*pairs, strict=True)]
                kind = str(dtype).removeprefix("torch.")
                print(f"| {path.name} | {kind} | {way} | {' | '.join(ranges)} |", flush=True)


if __name__ == "__main__":
    main()
