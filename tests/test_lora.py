"""Adapters read as peft writes them: merged, or computed beside the weights of any model."""

from __future__ import annotations

import copy
import json
import sys
import warnings
from pathlib import Path
from subprocess import run
from typing import Any

import pytest
import torch

import rationales
from rationales import RationalesError, RationalesWarning
from rationales.compat import adapter as adapters
from rationales.compat import lora
from rationales.compat.adapter import _merged_by_peft, load_adapter
from rationales.compat.lora import LowRank
from rationales.models.identity import fingerprint, fingerprints
from rationales.scoring.adapted import AdaptedScorer
from rationales.scoring.causal import CausalScorer
from rationales.scoring.guard import signature

from tiny_models import build

TEXT = "The quick brown fox jumps over the lazy dog"
FAMILIES = ["llama", "gpt2", "gpt-neox", "bloom", "falcon-rotary", "opt", "qwen3", "gemma2"]


def write_adapter(model: Any, folder: Path, **settings: Any) -> Path:
    """The folder of an adapter for this model, with random weights."""
    from peft import LoraConfig, get_peft_model

    settings = {"target_modules": "all-linear", "r": 3, "lora_alpha": 5, **settings}
    rng = torch.Generator().manual_seed(1)
    with warnings.catch_warnings(), torch.random.fork_rng():
        torch.manual_seed(1)  # peft draws the first weights
        warnings.simplefilter("ignore")  # GPT-2's transposed layers are noticed, and told of
        config = LoraConfig(task_type="CAUSAL_LM", **settings)
        adapted = get_peft_model(copy.deepcopy(model), config)
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.data += 0.1 * torch.randn(parameter.shape, generator=rng)
        adapted.save_pretrained(folder, save_embedding_layers=False)
    record = {"base": {"name": "tiny", "fingerprints": fingerprints(model)}}
    (folder / "compat.json").write_text(json.dumps(record), encoding="utf-8")
    return folder


def by_peft(model: Any, folder: Path) -> Any:
    """The model with the adapter, merged as peft does it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _merged_by_peft(model, folder)


@torch.no_grad()
def answers(model: Any) -> torch.Tensor:
    ids = torch.arange(2, 14).reshape(2, 6)
    logits: torch.Tensor = model(input_ids=ids).logits.float().log_softmax(-1)
    return logits


@pytest.fixture
def no_peft(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever asks peft fails."""
    monkeypatch.setattr(adapters, "_merged_by_peft", None)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_merged_model_is_that_of_peft_and_shares_all_else(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build(family)
    folder, before = write_adapter(model, tmp_path), answers(model)
    expected = dict(by_peft(model, folder).named_parameters())
    monkeypatch.setattr(adapters, "_merged_by_peft", None)
    merged = load_adapter(model, folder)
    assert type(merged) is type(model)
    found, own = dict(merged.named_parameters()), dict(model.named_parameters())
    assert found.keys() == expected.keys()
    for name, weight in found.items():
        assert torch.allclose(weight, expected[name], atol=1e-6, rtol=0), name
        changed = not torch.equal(expected[name], own[name])
        assert (weight is own[name]) != changed, name
        assert not (changed and weight.requires_grad)
    assert torch.equal(answers(model), before)
    assert not torch.allclose(answers(merged), before, atol=1e-2)


@pytest.mark.usefixtures("no_peft")
@pytest.mark.parametrize("family", FAMILIES)
def test_beside_the_weights_nothing_is_copied(family: str, tmp_path: Path) -> None:
    model = build(family)
    folder, before = write_adapter(model, tmp_path), answers(model)
    merged, beside = (load_adapter(model, folder, merge) for merge in (True, False))
    assert torch.allclose(answers(beside), answers(merged), atol=1e-4)
    assert torch.equal(answers(model), before)
    own = {id(weight) for weight in model.parameters()}
    added = [weight for weight in beside.parameters() if id(weight) not in own]
    layers = [module for module in beside.modules() if isinstance(module, LowRank)]
    assert len(added) == 2 * len(layers) > 0
    # The two models have no module in common: hooks and modes of one are not the other's.
    assert not {*model.modules()} & {*beside.modules()}
    assert beside.config is not model.config


@pytest.mark.parametrize(
    ("settings", "is_plain"),
    [
        ({"use_rslora": True}, True),
        ({"target_modules": ["q_proj", "down_proj"]}, True),
        (
            {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"layers.0.self_attn.q_proj": 9}},
            True,
        ),
        ({"init_lora_weights": "gaussian", "lora_dropout": 0.1}, True),
        ({"use_dora": True}, False),
        ({"bias": "all"}, False),
        ({"bias": "lora_only"}, False),
        ({"lora_bias": True}, False),
        ({"modules_to_save": ["lm_head"]}, False),
        ({"target_modules": ["q_proj", "embed_tokens"]}, False),
        ({"init_lora_weights": "pissa"}, False),
        ({"layers_to_transform": [1], "target_modules": ["q_proj"]}, True),
    ],
)
def test_what_is_not_plain_is_merged_by_peft(
    settings: dict[str, Any], is_plain: bool, tmp_path: Path
) -> None:
    model = build("llama", attention_bias=True, mlp_bias=True)
    folder = write_adapter(model, tmp_path, **settings)
    assert (lora.read_updates(model, folder) is not None) == is_plain
    merged = load_adapter(model, folder)
    assert torch.allclose(answers(merged), answers(by_peft(model, folder)), atol=1e-4)
    assert not torch.allclose(answers(merged), answers(model), atol=1e-3)
    if not is_plain:
        with pytest.raises(RationalesError, match="has to be merged: leave out merge"):
            load_adapter(model, folder, merge=False)


def test_the_size_of_a_model_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("llama")
    folder = write_adapter(model, tmp_path)
    size = sum(weight.numel() for weight in model.parameters())
    for limit, merged in ((size + 1, True), (size, False)):
        monkeypatch.setattr(lora, "MERGED_BELOW", limit)
        found = load_adapter(model, folder)
        assert any(isinstance(module, LowRank) for module in found.modules()) != merged


@pytest.mark.parametrize("damage", ["shape", "nan"])
def test_a_damaged_adapter_is_one_line(damage: str, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    model = build("llama")
    folder = write_adapter(model, tmp_path)
    weights = load_file(folder / adapters.WEIGHTS)
    name = next(name for name in weights if "lora_A" in name)
    weights[name] = weights[name][:, 1:].contiguous() if damage == "shape" else weights[name] / 0
    save_file(weights, folder / adapters.WEIGHTS)
    for merge in (True, False):
        with pytest.raises(RationalesError, match=r"adapter in .* cannot be loaded") as caught:
            load_adapter(model, folder, merge)
        assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("no_peft")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_half_precision_a_merged_update_is_rounded_away(dtype: Any, tmp_path: Path) -> None:
    model = build("llama")
    updates = lora.read_updates(model, write_adapter(model, tmp_path))
    assert updates is not None
    name = "model.layers.0.mlp.down_proj"
    update = lora.Update(updates[name].down, updates[name].up, scaling=0.01)
    half = copy.deepcopy(model).to(dtype)
    merged, beside = (
        lora.adapted(half, {name: update}, merge).get_submodule(name) for merge in (True, False)
    )
    assert merged.weight.dtype == beside.up.dtype == dtype
    exact = update.scaling * update.up @ update.down
    changes = [
        merged.weight.float() - half.get_submodule(name).weight.float(),
        beside.up.T.float() @ beside.down.float(),
    ]
    errors = [float((change.detach() - exact).norm() / exact.norm()) for change in changes]
    assert errors[1] < 0.01
    assert errors[0] > 5 * errors[1]


@pytest.mark.usefixtures("no_peft")
@pytest.mark.parametrize("merge", [True, False])
def test_an_explainer_looks_into_the_adapted_model(
    merge: bool, tiny_tokenizer: Any, tmp_path: Path
) -> None:
    model = build("llama", vocab_size=len(tiny_tokenizer)).train()
    folder = write_adapter(model, tmp_path)
    apart = by_peft(model, folder)
    scorer = AdaptedScorer(CausalScorer(copy.deepcopy(model)), CausalScorer(apart))
    expected = rationales.Explainer(scorer, tiny_tokenizer, model=apart)
    explainer = rationales.load(model, tiny_tokenizer, adapter=folder, merge=merge)
    assert isinstance(explainer.scorer, AdaptedScorer)
    base = rationales.Explainer(explainer.scorer, tiny_tokenizer, model=model)
    differ = 0
    for method in ("greedy", "gradient-norm", "integrated-gradients", "all-attention"):
        found, right, other = (
            [rationale.indices for rationale in each.explain(TEXT, method=method)]
            for each in (explainer, expected, base)
        )
        assert found == right, method
        differ += found != other
    assert differ == 3  # the baselines do look inside
    alone = explainer.without_adapter()
    assert alone.model is model
    assert torch.equal(answers(model.eval()), answers(copy.deepcopy(model)))


def test_the_users_model_stays_as_it_is(tiny_tokenizer: Any, tmp_path: Path) -> None:
    model = build("llama", vocab_size=len(tiny_tokenizer)).train().requires_grad_(True)
    folder = write_adapter(model, tmp_path)
    before = signature(model)
    for merge in (True, False):
        explainer = rationales.load(model, tiny_tokenizer, adapter=folder, merge=merge)
        explainer.explain(TEXT, target="last", method="gradient-norm")
        assert explainer.model is not None
        assert not explainer.model.training
        assert all(module.training for module in model.modules())
        assert all(weight.requires_grad for weight in model.parameters())
        assert signature(model) == before


@pytest.mark.parametrize("adapter", [None, False])
def test_merge_needs_an_adapter(adapter: Any, tiny_model: Any, tiny_tokenizer: Any) -> None:
    with pytest.raises(RationalesError, match="merge is about an adapter, and there is none"):
        rationales.load(tiny_model, tiny_tokenizer, adapter=adapter, merge=True)


def test_peft_is_not_imported_for_an_ordinary_adapter(tiny_tokenizer: Any, tmp_path: Path) -> None:
    model = build("llama", vocab_size=len(tiny_tokenizer))
    model.save_pretrained(tmp_path / "model")
    tiny_tokenizer.save_pretrained(tmp_path / "model")
    write_adapter(model, tmp_path / "adapter")
    code = (
        "import sys, rationales\n"
        "rationales.load('model', adapter='adapter').explain('The dog', target='last')\n"
        "assert 'peft' not in sys.modules"
    )
    run([sys.executable, "-c", code], cwd=tmp_path, check=True)


# Models whose weights are elsewhere, or other numbers -------------------------------------------


def offloaded(model: Any, folder: Path) -> Any:
    """All weights in memory, each moved to its layer while that runs."""
    from accelerate import cpu_offload

    return cpu_offload(model, torch.device("cpu"))


def on_disk(model: Any, folder: Path) -> Any:
    """The second layer on the disk; the others stay."""
    from accelerate import dispatch_model

    parts = ["model.embed_tokens", "model.layers.0", "model.norm", "model.rotary_emb", "lm_head"]
    places = dict.fromkeys(parts, "cpu") | {"model.layers.1": "disk"}
    return dispatch_model(model, places, main_device="cpu", offload_dir=folder, force_hooks=True)


def in_one_place(model: Any, folder: Path) -> Any:
    """One device for all parts, by the hooks that several would have."""
    from accelerate import dispatch_model

    return dispatch_model(model, {"": "cpu"}, main_device="cpu", force_hooks=True)


def in_int8(model: Any) -> Any:
    """The weights of linear layers in eight bits."""
    quantization = pytest.importorskip(
        "torchao.quantization", reason="torchao is not installed: pip install torchao"
    )
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    return model


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("place", [offloaded, on_disk, in_one_place])
def test_a_model_that_is_spread_answers_as_it_did(
    place: Any, tied: bool, tiny_tokenizer: Any, tmp_path: Path
) -> None:
    def made() -> Any:
        return build("llama", vocab_size=len(tiny_tokenizer), tie_word_embeddings=tied)

    folder = write_adapter(made(), tmp_path)
    plain = rationales.load(made(), tiny_tokenizer, adapter=folder)
    model = place(made(), tmp_path / "offloaded")
    assert fingerprint(model) == fingerprint(made())
    explainer = rationales.load(model, tiny_tokenizer, adapter=folder)
    for method in ("greedy", "gradient-norm", "all-attention"):
        for one, other in (
            (explainer, plain),
            (explainer.without_adapter(), plain.without_adapter()),
        ):
            found, right = (each.explain(TEXT, method=method) for each in (one, other))
            assert found.evaluation == right.evaluation == "sparse"
            assert [r.indices for r in found] == [r.indices for r in right], method
    if place is not in_one_place:
        with pytest.raises(RationalesError, match="quantised or offloaded"):
            load_adapter(model, folder, merge=True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_quantised_model_passes_its_self_test(
    dtype: Any, tiny_tokenizer: Any, tmp_path: Path
) -> None:
    model = build("llama", vocab_size=len(tiny_tokenizer))
    folder = write_adapter(model, tmp_path)
    model = in_int8(model.to(dtype))
    with pytest.warns(RationalesWarning, match="quantised: whether the adapter") as caught:
        explainer = rationales.load(model, tiny_tokenizer, adapter=folder)
    assert len([each for each in caught if each.category is RationalesWarning]) == 1
    assert isinstance(explainer.scorer, AdaptedScorer)
    assert explainer.scorer.base.shares_prefixes
    assert explainer.explain(TEXT, target="last").evaluation == "sparse"
    dequantised = copy.deepcopy(model)
    for module in dequantised.modules():
        if isinstance(module, torch.nn.Linear):
            weight = module.weight.detach().dequantize()
            module.weight = torch.nn.Parameter(weight, requires_grad=False)
    updates = lora.read_updates(model, folder)
    assert updates is not None
    expected = answers(lora.adapted(dequantised, updates, merge=False))
    tolerance = 1e-3 if dtype == torch.float32 else 0.3
    assert explainer.model is not None
    assert torch.allclose(answers(explainer.model), expected, atol=tolerance)
    with pytest.raises(RationalesError, match=r"quantised or offloaded.*leave out merge"):
        load_adapter(model, folder, merge=True)
    before, fingerprinted = signature(model), fingerprint(model)
    weight = model.model.layers[0].mlp.up_proj.weight
    other = torch.nn.Parameter(copy.deepcopy(weight.detach()), requires_grad=False)
    model.model.layers[0].mlp.up_proj.weight = other
    assert signature(model) != before
    assert fingerprint(model) == fingerprinted


def test_a_quantised_folder_without_its_library_is_one_line(
    tiny_tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build("llama", vocab_size=len(tiny_tokenizer)).save_pretrained(tmp_path)
    tiny_tokenizer.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    quantised = {"default": {"_data": {}, "_type": "Int8WeightOnlyConfig", "_version": 2}}
    config["quantization_config"] = {"quant_method": "torchao", "quant_type": quantised}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchao"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torchao", None)
    with pytest.raises(RationalesError, match="cannot be loaded without torchao: pip install"):
        rationales.load(tmp_path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_folder_may_hold_quantised_weights(tiny_tokenizer: Any, tmp_path: Path) -> None:
    quantization = pytest.importorskip(
        "torchao.quantization", reason="torchao is not installed: pip install torchao"
    )
    from transformers import AutoModelForCausalLM, TorchAoConfig

    build("llama", vocab_size=len(tiny_tokenizer)).save_pretrained(tmp_path / "plain")
    config = TorchAoConfig(quantization.Int8WeightOnlyConfig())
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "plain", quantization_config=config)
    model.save_pretrained(tmp_path / "int8")
    tiny_tokenizer.save_pretrained(tmp_path / "int8")
    explainer = rationales.load(tmp_path / "int8")
    assert isinstance(explainer.scorer, CausalScorer)
    assert fingerprint(explainer.scorer.model) == fingerprint(model)
    assert explainer.explain(TEXT, target="last").evaluation == "sparse"
