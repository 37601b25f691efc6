"""Verdicts of self-tests: remembered for the same code and configuration, and for nothing else."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.modules.module import register_module_forward_hook

from rationales import RationalesError
from rationales.context import Context
from rationales.scoring import verdicts
from rationales.scoring.causal import CausalScorer
from rationales.scoring.seq2seq import Seq2SeqScorer

from tiny_models import TRANSLATORS, build, build_translator

FAMILIES = ["gpt2", "llama", "bart", "t5"]


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the verdicts, which is not there yet."""
    monkeypatch.setenv("RATIONALES_CACHE", str(tmp_path))
    return tmp_path / verdicts.FOLDER


def made(family: str) -> Any:
    return build_translator(family) if family in TRANSLATORS else build(family)


def scorer_of(model: Any) -> CausalScorer | Seq2SeqScorer:
    return (Seq2SeqScorer if model.config.is_encoder_decoder else CausalScorer)(model)


def passes(model: Any) -> int:
    """The number of forward passes that making a scorer takes."""
    counted = []
    # Of all modules, not of the model: it would be a changed one.
    hook = register_module_forward_hook(lambda module, *_: counted.append(module is model))
    with hook:
        scorer_of(model)
    return sum(counted)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_of_the_same_kind_is_not_tested_again(memory: Path, family: str) -> None:
    first, second = made(family), made(family)
    second.config._name_or_path = "somewhere/else"
    for weight in second.parameters():
        weight.data.mul_(1.01)
    assert passes(first) > 0
    assert passes(first) == passes(second) == 0
    assert not list(memory.glob(".*"))
    tested, known = scorer_of(first), scorer_of(second)
    assert known._sparse == tested._sparse == (family != "t5")
    if isinstance(known, CausalScorer) and isinstance(tested, CausalScorer):
        assert known.shares_prefixes
        assert known._prefixes is not None
        assert tested._prefixes is not None
        assert known._prefixes.kind == tested._prefixes.kind


def test_a_remembered_verdict_gives_the_same_scores(memory: Path) -> None:
    model = build("llama")
    queries = [(Context((5, 6, 7, 8), 9), kept) for kept in ((0, 3), (0, 1, 3), (0, 1, 2, 3))]
    assert CausalScorer(model).score(queries) == CausalScorer(model).score(queries)


def dtype(model: Any) -> None:
    model.to(torch.float64)


def config(model: Any) -> None:
    model.config.attn_pdrop = 0.25


def attention(model: Any) -> None:
    model.set_attn_implementation("eager")


CHANGES = {"dtype": dtype, "config": config, "attention": attention}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_another_kind_of_model_is_tested(memory: Path, change: Any) -> None:
    model = build("gpt2")
    assert passes(model) > 0
    change(model)
    assert passes(model) > 0
    assert passes(model) == 0


def hooked(model: Any) -> None:
    model.transformer.h[0].register_forward_hook(lambda *_: None)


def patched(model: Any) -> None:
    model.transformer.h[0].forward = model.transformer.h[0].forward


def replaced(model: Any) -> None:
    class Own(torch.nn.Identity):
        pass

    model.transformer.h[0].attn.resid_dropout = Own()


def with_other_weights(model: Any) -> None:
    class Packed(torch.nn.Parameter):
        pass

    weight = model.transformer.h[0].ln_1.weight
    model.transformer.h[0].ln_1.weight = Packed(weight.detach())


@pytest.mark.parametrize("change", [hooked, patched, replaced, with_other_weights])
def test_a_changed_model_is_tested_each_time(memory: Path, change: Any) -> None:
    model = build("gpt2")
    assert passes(model) > 0
    change(model)
    assert passes(model) == passes(model) > 0


@pytest.mark.parametrize("what", ["torch", "transformers", "rationales", "source"])
def test_with_other_code_a_model_is_tested(
    memory: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    import transformers

    model = build("gpt2")
    assert passes(model) > 0
    if what == "source":
        monkeypatch.setattr(verdicts, "_source", lambda: "another")
    else:
        where = {"torch": torch, "transformers": transformers, "rationales": verdicts}[what]
        monkeypatch.setattr(where, "__version__", "0.0.1")
    assert passes(model) > 0


def test_a_model_that_is_refused_is_refused_again(memory: Path) -> None:
    model = build("gpt2")
    model.transformer.h[0].ln_1.weight.data.fill_(torch.nan)
    for _ in range(2):
        with pytest.raises(RationalesError, match="its weights give NaN"):
            scorer_of(model)
    assert not memory.exists()


def test_damaged_weights_are_told_from_a_remembered_architecture(memory: Path) -> None:
    whole = build("gpt2")
    CausalScorer(whole)
    damaged = copy.deepcopy(whole)
    damaged.transformer.h[0].ln_1.weight.data.fill_(torch.nan)
    scorer = CausalScorer(damaged)
    with pytest.raises(RationalesError, match="NaN"):
        scorer.score([(Context((5, 6, 7), 9), (0, 2))])


def test_nothing_is_remembered_of_a_model_that_always_says_the_same(memory: Path) -> None:
    model = build("gpt2")
    model.transformer.ln_f.weight.data.zero_()
    assert passes(model) == passes(model) > 0
    assert not memory.exists()


@pytest.mark.parametrize("content", [b"", b"[", b"[1, 2]", b'{"keys": "?"}', b"\xff", b"null"])
def test_a_damaged_verdict_is_tested_again(memory: Path, content: bytes) -> None:
    model = build("gpt2")
    assert passes(model) > 0
    for file in memory.iterdir():
        file.write_bytes(content)
    assert passes(model) > 0
    assert passes(model) == 0


def test_without_a_folder_that_can_be_written_models_are_tested(memory: Path) -> None:
    memory.write_text("a file in its place")
    model = build("gpt2")
    assert passes(model) == passes(model) > 0


def test_without_a_home_folder_models_are_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Path:
        raise RationalesError("no home folder: set RATIONALES_CACHE to a folder")

    monkeypatch.setattr(verdicts, "cache_folder", fail)
    model = build("gpt2")
    assert passes(model) == passes(model) > 0
