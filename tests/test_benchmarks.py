"""The benchmark's published algorithm is the paper's: the same as the tests' own transcription."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import oracle
from tiny_models import shared

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def load(name: str) -> ModuleType:
    """A file of the benchmarks, which are no package."""
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up by its name
    spec.loader.exec_module(module)
    return module


published = load("published")


@pytest.mark.parametrize("pinned", [(), (0,)])
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_published_is_the_papers_greedy(family: str, pinned: tuple[int, ...]) -> None:
    model = shared(family)
    ids = _ids(model, 12)
    for target in range(1, 12):
        expected = oracle.greedy(model, ids, target, pinned)
        found = published.greedy(model, ids, target, pinned=pinned, keep_candidates=True)
        assert found.indices == expected.indices
        assert found.sufficient == expected.sufficient
        begins_with = len({*(i for i in pinned if i < target), target - 1})
        steps = len(found.candidates)
        assert found.tokens == published.tokens_of(target, steps, begins_with)
        best = [max(tried.values()) for tried in found.candidates]
        assert best == pytest.approx(expected.logprobs[1:], abs=1e-4)


def test_steps_are_capped_and_batches_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    model = shared("gpt2")
    ids = _ids(model, 12)
    longest = max(range(1, 12), key=lambda t: len(published.greedy(model, ids, t).indices))
    whole = published.greedy(model, ids, longest)
    assert published.greedy(model, ids, longest, max_steps=1).indices == whole.indices[:2]
    monkeypatch.setattr(published, "BATCH_TOKENS", 4)
    assert published.greedy(model, ids, longest) == whole


def test_the_whole_context_is_the_other_models() -> None:
    asked = []

    def network(name: str) -> Any:
        def forward(**inputs: Any) -> Any:
            asked.append((name, inputs["input_ids"].shape[1]))
            return shared("gpt2")(**inputs)

        return forward

    ids = _ids(shared("gpt2"), 6)
    published.greedy(network("subsets"), ids, 1, whole=network("whole"))
    assert asked == [("whole", 1)]
    published.greedy(network("subsets"), ids, 5, whole=network("whole"))
    assert all((name == "whole") == (length == 5) for name, length in asked[1:])


def _ids(model: Any, length: int) -> list[int]:
    rng = torch.Generator().manual_seed(3)
    return torch.randint(0, model.config.vocab_size, (length,), generator=rng).tolist()
