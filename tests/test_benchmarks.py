"""The benchmark's published algorithm is the paper's, and what it counts is what was computed."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from conftest import SENTENCES
from rationales import Context, Explainer

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


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark itself, which imports the files beside it."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return load("bench")


@pytest.fixture
def passages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_explainer: Explainer
) -> list[str]:
    """A file of three passages that end as the tiny model predicts, and one that does not."""
    words = SENTENCES[0].split() + SENTENCES[1].split()
    found = {"The dog sleeps on": "🙂"}
    for start in range(len(words)):
        for end in range(start + 4, len(words)):
            context = " ".join(words[start:end])
            word = _predicted_word(tiny_explainer, context)
            if word and len(found) < 4:
                found[context] = word
    assert len(found) == 4
    lines = [json.dumps({"context": c, "continuation": word}) for c, word in found.items()]
    (tmp_path / "lambada_openai_test.jsonl").write_text("\n".join(lines))
    monkeypatch.setenv("RATIONALES_DATA", str(tmp_path))
    return list(found)


def _predicted_word(explainer: Explainer, context: str) -> str:
    """What the model predicts after this text, if that token begins a word; else nothing."""
    ids = tuple(explainer.tokenizer(context)["input_ids"])
    [score] = explainer.scorer.score([(Context(ids, 0), tuple(range(len(ids))))])
    text = explainer.tokenizer.decode([score.prediction_id])
    again = explainer.tokenizer(context + text)["input_ids"]
    return text[1:] if text[:1] == " " and again == [*ids, score.prediction_id] else ""


def test_a_quick_bench(
    bench: ModuleType,
    passages: list[str],
    tiny_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    which = ["--model", str(tiny_folder), "--adapter", "none", "--settings", "a,d", "--limit", "1"]
    monkeypatch.setattr(sys, "argv", ["bench.py", "--quick", "--out", str(out), *which])
    bench.main()
    lines = [json.loads(line) for line in (out / "lines.jsonl").read_text().splitlines()]
    runs = {(line["item"], line["method"]): line for line in lines if line["kind"] == "run"}
    alone = [("d-0", method) for method in ("published", "exact", "fast")]
    assert [which for which in runs if which[0] == "d-0"] == alone
    for (_, method), line in runs.items():
        assert 0 < line["model_seconds"] < line["seconds"]
        assert 0 < line["model_cpu_seconds"] < line["cpu_seconds"]
        if method == "published":  # a pass for the first token and one a step
            steps = len(line["indices"]) - 1
            assert line["passes"] == steps + 1
            assert line["tokens"] == published.tokens_of(line["context"], steps)
    items = json.loads((out / "items.json").read_text())["settings"]
    assert passages[0] not in items["a"][0]["text"] + items["d"][0]["text"]
    table = (out / "table.md").read_text()
    assert table in capsys.readouterr().out
    exact, fast = (runs["d-0", method]["passes"] for method in ("exact", "fast"))
    [row] = [row for row in table.splitlines() if row.startswith("| fast / exact |")]
    assert row.split(" | ")[5] == f"{fast / exact:.3f}"


def test_one_target_a_call_has_passages_of_its_own(
    bench: ModuleType, passages: list[str], tiny_explainer: Explainer
) -> None:
    for seed in range(8):
        of = {
            setting: bench.make_items(setting, tiny_explainer, seed, bench.FULL.at_most(2))
            for setting in "ad"
        }
        # The three that the model predicts: two for (a), and the one that is left for (d).
        assert [len(of["a"]), len(of["d"])] == [2, 1]
        assert of["d"][0].text not in [item.text for item in of["a"]]


def test_passages_with_large_rationales_are_left_out(
    bench: ModuleType, passages: list[str], tiny_explainer: Explainer
) -> None:
    every = bench.make_items("a", tiny_explainer, 0, bench.FULL)
    sizes = {i.text: len(tiny_explainer.explain(i.text, target=i.target)[0]) for i in every}
    largest = max(sizes.values()) - 1
    few = bench.make_items("a", tiny_explainer, 0, replace(bench.FULL, largest=largest))
    assert [i.text for i in few] == [text for text, size in sizes.items() if size <= largest]


def test_a_pass_within_a_pass_is_one(bench: ModuleType) -> None:
    inner = shared("gpt2")

    class Outer(torch.nn.Module):
        def forward(self, **inputs: Any) -> Any:
            return inner(**inputs)

    models = SimpleNamespace(subsets=Outer(), whole=inner)
    ids = torch.tensor([_ids(inner, 5), _ids(inner, 5)])
    with bench.measured(models) as work:
        models.subsets(input_ids=ids)
        models.whole(ids)
    assert (work.passes, work.tokens) == (2, 20)
    assert work.shared(4).passes == 0.5
    inner(input_ids=ids)
    assert work.passes == 2


def test_passes_that_no_hook_saw_are_an_error(bench: ModuleType) -> None:
    with pytest.raises(SystemExit, match=r"3 tokens went .* 5 were computed"):
        bench._check_tokens(bench.Work(tokens=3), 5)


def test_lines_without_passes_have_a_dash(bench: ModuleType, tmp_path: Path) -> None:
    old = {"kind": "run", "setting": "a", "method": "exact", "item": "a-0", "context": 7}
    old |= {"seconds": 2.0, "tokens": 30, "indices": [6], "sufficient": True, "rechecked": True}
    new = old | {"passes": 2, "model_seconds": 1.5, "cpu_seconds": 4.0, "model_cpu_seconds": 3.0}
    rows = [
        next(row for row in text.splitlines() if row.startswith("| (a) exact |"))
        for text in (bench.write_tables(tmp_path, [line], {}) for line in (old, new))
    ]
    assert rows[0] == "| (a) exact | 2.00 | 30 | – | – | – |  | – | – |"
    assert rows[1] == "| (a) exact | 2.00 | 30 | 2.00 | 15 | 158 |  | 75.0 % | 25.0 % |"


def _ids(model: Any, length: int) -> list[int]:
    rng = torch.Generator().manual_seed(3)
    return torch.randint(0, model.config.vocab_size, (length,), generator=rng).tolist()
