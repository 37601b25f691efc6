"""How compatible a model is, against plain forward passes and counts."""

from __future__ import annotations

import json
import math
from collections import Counter

import pytest
import torch

from rationales import RationalesError, Score, cli
from rationales.compat.measure import MeasureOptions, measure
from rationales.compat.text import pack
from rationales.scoring.causal import CausalScorer

TEXT = "\n".join(
    f"The {animal} of the {place} ruled that the law of the land is {number}."
    for animal in ("fox", "dog", "queen", "court")
    for place in ("city", "airport", "street")
    for number in range(6)
)
OPTIONS = MeasureOptions(samples=20, length=12, words=5, seed=3)


def test_the_whole_context_is_the_models_own_surprise(tiny_model, tiny_tokenizer):
    found = measure(CausalScorer(tiny_model), tiny_tokenizer, TEXT, OPTIONS)
    asked: list[tuple[tuple[int, ...], int]] = []

    class Spy:
        def score(self, queries):
            asked.extend((c.ids, c.target_id) for c, kept in queries if len(kept) == 12)
            return [Score(0.0, 0) for _ in queries]

    measure(Spy(), tiny_tokenizer, TEXT, OPTIONS)
    assert len(asked) == found["samples"] == 20
    ids = torch.tensor([context for context, _ in asked])
    with torch.no_grad():
        logprobs = tiny_model(ids).logits[:, -1].log_softmax(-1)
    expected = -logprobs[range(20), [target for _, target in asked]].mean().item()
    assert found["full"].mean == pytest.approx(expected, abs=1e-4)


def test_subsets_have_their_size_and_keep_the_last_token(tiny_tokenizer):
    sizes: Counter[int] = Counter()

    class Spy:
        def score(self, queries):
            for context, kept in queries:
                assert kept[-1] == len(context.ids) - 1
                assert list(kept) == sorted(set(kept))
                if len(context.ids) == 12:
                    sizes[len(kept)] += 1
            return [Score(-1.0, 0) for _ in queries]

    found = measure(Spy(), tiny_tokenizer, TEXT, OPTIONS)
    # Two tokens are also kept by the question about "the" at a distance that fills the context.
    assert {size: sizes[size] for size in (1, 4, 8, 12)} == dict.fromkeys((1, 4, 8, 12), 20)
    assert list(found["by_size"]) == [1, 2, 4, 8]
    assert found["by_size"][4].mean == 1.0
    assert found["by_size"][4].error == 0.0
    assert all(value.mean == pytest.approx(math.exp(-1)) for value in found["the"].values())


def test_the_unigram_baseline_counts(tiny_tokenizer):
    targets: list[int] = []

    class Spy:
        def score(self, queries):
            targets.extend(c.target_id for c, kept in queries if len(kept) == 12)
            return [Score(-1.0, 0) for _ in queries]

    found = measure(Spy(), tiny_tokenizer, TEXT, OPTIONS)
    ids = pack(TEXT, tiny_tokenizer, 13).flatten().tolist()
    expected = [-math.log(ids.count(target) / len(ids)) for target in targets]
    assert found["unigram"].mean == pytest.approx(sum(expected) / len(expected))


def test_a_seed_repeats_and_another_differs(tiny_model, tiny_tokenizer):
    # Scorers of their own: what one has stored shifts the last digits of a second call.
    first = measure(CausalScorer(tiny_model), tiny_tokenizer, TEXT, OPTIONS)
    assert measure(CausalScorer(tiny_model), tiny_tokenizer, TEXT, OPTIONS) == first
    scorer = CausalScorer(tiny_model)
    other = MeasureOptions(samples=20, length=12, words=5, seed=4)
    assert measure(scorer, tiny_tokenizer, TEXT, other)["by_size"] != first["by_size"]


def test_short_text_and_small_numbers_are_refused(tiny_model, tiny_tokenizer):
    with pytest.raises(RationalesError, match="too short"):
        measure(CausalScorer(tiny_model), tiny_tokenizer, "The fox.", OPTIONS)
    with pytest.raises(RationalesError, match="at least 2"):
        MeasureOptions(samples=1)


def test_the_command(tiny_model, tiny_tokenizer, tmp_path, capsys):
    folder, text = tmp_path / "model", tmp_path / "text.txt"
    tiny_model.save_pretrained(folder)
    tiny_tokenizer.save_pretrained(folder)
    text.write_text(TEXT, encoding="utf-8")
    capsys.readouterr()
    arguments = ["compat", "measure", "--model", str(folder), "--text", str(text), "--length", "12"]
    figure = tmp_path / "figure.png"
    assert cli.call([*arguments, "--samples", "10", "--plot", str(figure)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "context\tmodel"
    assert [line.split("\t")[0] for line in lines[1:4]] == [
        "1 of 12 tokens",
        "2 of 12 tokens",
        "4 of 12 tokens",
    ]
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert cli.call([*arguments, "--samples", "10", "--json", "-"]) == 0
    [data] = json.loads(capsys.readouterr().out)
    assert data["samples"] == 10
    assert data["adapter"] is None
    assert cli.call([*arguments[:-2], "--text", str(tmp_path / "none.txt")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
