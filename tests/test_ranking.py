"""Importances against independent computations, on tiny models of nine families."""

from __future__ import annotations

import copy
import math
import subprocess
import sys
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from rationales.context import Context, causal_context
from rationales.errors import MissingExtraError, RationalesError
from rationales.ranking import (
    BLACK_BOX_RANKERS,
    RANKERS,
    RankingOptions,
    inside,
    make_ranker,
)
from rationales.ranking import (
    order as unit_order,
)

VOCABULARY = 40
LLAMA_LIKE = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "GPT2": {"n_positions": 64, "n_embd": 16, "n_layer": 3, "n_head": 2},
    "Llama": LLAMA_LIKE,
    "GPTNeoX": {k: v for k, v in LLAMA_LIKE.items() if k != "num_key_value_heads"},
    # Embeddings narrower than the hidden states: OPT then projects them in.
    "OPT": {
        "hidden_size": 16,
        "word_embed_proj_dim": 8,
        "ffn_dim": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "max_position_embeddings": 64,
    },
    "Qwen2": LLAMA_LIKE,
    "Mistral": {**LLAMA_LIKE, "sliding_window": 4},
    "Bloom": {"hidden_size": 16, "n_layer": 3, "n_head": 2},
    "Gemma": {**LLAMA_LIKE, "head_dim": 8},
    "GPTNeo": {
        "max_position_embeddings": 64,
        "hidden_size": 16,
        "num_layers": 2,
        "num_heads": 2,
        "intermediate_size": 32,
        "attention_types": [[["global", "local"], 1]],
        "window_size": 4,
    },
}
GRADIENT_METHODS = RANKERS[:3]
ATTENTION_METHODS = RANKERS[3:6]
TEXT = (7, 11, 3, 29, 11, 5, 38, 2, 17)
CONTEXT = causal_context((*TEXT, 13), len(TEXT), pinned=frozenset({0}))


@cache
def shared_model(family: str) -> Any:
    """A tiny model whose predictions are far from uniform; for tests that leave it as it is."""
    torch.manual_seed(1)
    config = getattr(transformers, f"{family}Config")(
        vocab_size=VOCABULARY, bos_token_id=0, eos_token_id=1, pad_token_id=1, **FAMILIES[family]
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.4)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


@pytest.fixture(params=FAMILIES)
def model(request: pytest.FixtureRequest) -> Any:
    return shared_model(request.param)


@pytest.fixture
def gpt2() -> Any:
    return copy.deepcopy(shared_model("GPT2"))


def log_probability(model: Any, **inputs: Any) -> torch.Tensor:
    """The target's log-probability from a plain call of the model."""
    return model(**inputs).logits[0, -1].log_softmax(-1)[CONTEXT.target_id]


def embeddings_and_gradient(model: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings and gradient taken inside a forward pass on token ids, without inputs_embeds."""
    seen: list[torch.Tensor] = []
    layer = getattr(model.base_model, "word_embeddings_layernorm", model.get_input_embeddings())
    with layer.register_forward_hook(lambda module, inputs, output: seen.append(output)):
        value = log_probability(model, input_ids=torch.tensor([CONTEXT.ids]))
    (gradient,) = torch.autograd.grad(value, seen[0])
    return seen[0][0].detach(), gradient[0]


def attention_weights(model: Any) -> list[np.ndarray]:
    """The head-averaged weights of each layer, from a copy made for eager attention."""
    config = copy.deepcopy(model.config)
    config._attn_implementation = "eager"
    eager = type(model)(config).eval()
    eager.load_state_dict(model.state_dict())
    with torch.no_grad():
        output = eager(torch.tensor([CONTEXT.ids]), output_attentions=True)
    return [layer[0].double().numpy().mean(axis=0) for layer in output.attentions]


def is_one_line(error: pytest.ExceptionInfo[RationalesError]) -> bool:
    return "\n" not in str(error.value) and len(str(error.value)) < 200


# --- the order


def order(context: Context, importances: list[float]) -> tuple[int, ...]:
    """The order of a context without units, whose units are single tokens."""
    return tuple(index for (index,) in unit_order(context, importances))


def test_words_are_as_important_as_their_most_important_token() -> None:
    context = Context(ids=(1, 2, 3, 4, 5), target_id=6, required=(4,), units=((0, 1), (2,), (3,)))
    assert unit_order(context, [0.0, 3.0, 1.0, 2.0, 9.0]) == ((0, 1), (3,), (2,))


def test_order_sorts_candidates_by_falling_importance() -> None:
    context = Context(ids=(1, 2, 3, 4, 5), target_id=6, required=(4,), pinned=(0,))
    assert order(context, [9.0, -1.0, 2.0, 0.5, 9.0]) == (2, 3, 1)


def test_order_gives_ties_to_the_lowest_index() -> None:
    context = Context(ids=(1, 2, 3, 4, 5), target_id=6, required=(4,))
    assert order(context, [1.0, 2.0, 1.0, 2.0, 0.0]) == (1, 3, 0, 2)
    assert order(context, [0.0, -0.0, 0.0, -0.0, 0.0]) == (0, 1, 2, 3)
    assert order(context, [-math.inf, 0.0, math.inf, 0.0, 0.0]) == (2, 1, 3, 0)


def test_order_refuses_what_is_not_a_number_and_a_wrong_length() -> None:
    context = Context(ids=(1, 2, 3), target_id=6, required=(2,))
    with pytest.raises(RationalesError, match=r"index 1 is not a number.*float32") as error:
        order(context, [0.0, math.nan, 0.0])
    assert is_one_line(error)
    with pytest.raises(RationalesError, match="2 importances for a context of 3 tokens") as error:
        order(context, [0.0, 0.0])
    assert is_one_line(error)


def test_an_importance_that_nobody_uses_may_be_anything() -> None:
    context = Context(ids=(1, 2, 3), target_id=6, required=(2,))
    assert order(context, [0.0, 1.0, math.nan]) == (1, 0)


# --- the controls


def test_random_repeats_and_depends_on_seed_and_context_alone() -> None:
    first = make_ranker("random").rank(CONTEXT)
    torch.manual_seed(0)
    ranker = make_ranker("random")
    ranker.rank(Context(ids=(1, 2), target_id=3))
    unpinned = Context(CONTEXT.ids, CONTEXT.target_id)
    assert ranker.rank(unpinned) == first
    assert make_ranker("random", options=RankingOptions(seed=1)).rank(CONTEXT) != first
    assert ranker.rank(Context(CONTEXT.ids, target_id=14)) != first
    assert ranker.rank(Context((*CONTEXT.ids[:-1], 18), CONTEXT.target_id)) != first


def test_random_is_the_same_in_every_process() -> None:
    context = Context(ids=(1, 2, 3, 4, 5, 6), target_id=7)
    assert order(context, make_ranker("random").rank(context)) == (3, 0, 4, 2, 5, 1)


def test_random_orders_are_uniform() -> None:
    context = Context(ids=(1, 2, 3), target_id=7)
    seen = [
        order(context, make_ranker("random", options=RankingOptions(seed=seed)).rank(context))
        for seed in range(600)
    ]
    assert all(70 < seen.count(each) < 130 for each in set(seen))
    assert len(set(seen)) == 6


def test_nearest_first_goes_backwards_from_the_target() -> None:
    assert order(CONTEXT, make_ranker("nearest-first").rank(CONTEXT)) == (7, 6, 5, 4, 3, 2, 1)


# --- every family


def test_predictions_of_the_tiny_models_are_far_from_uniform(model: Any) -> None:
    with torch.no_grad():
        probabilities = model(torch.tensor([CONTEXT.ids])).logits[0, -1].softmax(-1)
    assert 5 / VOCABULARY < probabilities.max() < 0.999


@pytest.mark.parametrize("name", RANKERS)
def test_every_method_ranks_every_family(name: str, model: Any) -> None:
    importances = make_ranker(name, model, RankingOptions(ig_steps=5)).rank(CONTEXT)
    assert len(importances) == len(CONTEXT.ids)
    assert all(type(value) is float and math.isfinite(value) for value in importances)
    assert len(set(importances)) > 1
    assert sorted(order(CONTEXT, importances)) == list(CONTEXT.candidates)


def test_gradient_norm_is_the_norm_of_the_gradient_by_hand(model: Any) -> None:
    _, gradient = embeddings_and_gradient(model)
    expected = gradient.square().sum(-1).sqrt()
    assert make_ranker("gradient-norm", model).rank(CONTEXT) == pytest.approx(
        expected.tolist(), rel=1e-4
    )


def test_gradient_times_embedding_is_the_product_by_hand(model: Any) -> None:
    embedded, gradient = embeddings_and_gradient(model)
    expected = torch.einsum("td,td->t", embedded, gradient)
    close = {"rel": 1e-3, "abs": 1e-5 * float(expected.abs().max())}
    signed = make_ranker("gradient-x-embedding", model).rank(CONTEXT)
    assert signed == pytest.approx(expected.tolist(), **close)
    absolute = make_ranker("gradient-x-embedding", model, RankingOptions(absolute=True))
    assert absolute.rank(CONTEXT) == [abs(value) for value in signed]


def test_attention_methods_match_numpy(model: Any) -> None:
    layers = attention_weights(model)
    # The whole product, layer by layer from the first one up.
    product = np.eye(len(CONTEXT.ids))
    for layer in layers:
        mixed = 0.5 * layer + 0.5 * np.eye(len(layer))
        product = (mixed / mixed.sum(axis=-1, keepdims=True)) @ product
    expected = {
        "last-attention": layers[-1][-1],
        "all-attention": sum(layers)[-1] / len(layers),
        "attention-rollout": product[-1],
    }
    for name in ATTENTION_METHODS:
        importances = make_ranker(name, model).rank(CONTEXT)
        assert importances == pytest.approx(list(expected[name]), rel=1e-4, abs=1e-7)
        assert sum(importances) == pytest.approx(1.0, abs=1e-5)


# --- integrated gradients


def test_integrated_gradients_match_a_loop_by_hand(model: Any) -> None:
    steps = 7
    embedded, _ = embeddings_and_gradient(model)
    plain = copy.deepcopy(model)
    if hasattr(model.base_model, "word_embeddings_layernorm"):
        plain.base_model.word_embeddings_layernorm = torch.nn.Identity()
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    total = torch.zeros_like(embedded)
    for node, weight in zip(nodes, weights, strict=True):
        point = (embedded * float(node + 1) / 2)[None].requires_grad_()
        mask = torch.ones(point.shape[:2], dtype=torch.long)
        value = log_probability(plain, inputs_embeds=point, attention_mask=mask)
        total += float(weight) / 2 * torch.autograd.grad(value, point)[0][0]
    expected = (total * embedded).sum(-1)
    close = {"rel": 1e-3, "abs": 1e-4 * float(expected.abs().max())}
    for batch_tokens in (1, 4096):  # one row at a time, and all of them at once
        options = RankingOptions(ig_steps=steps, batch_tokens=batch_tokens)
        signed = make_ranker("integrated-gradients", model, options).rank(CONTEXT)
        assert signed == pytest.approx(expected.tolist(), **close)


@pytest.mark.parametrize("family", ["GPT2", "GPTNeo"])
def test_integrated_gradients_are_complete(family: str) -> None:
    # From zero token embeddings, positions kept, to the full context.
    model = shared_model(family)
    embedded, _ = embeddings_and_gradient(model)
    with torch.no_grad():
        full = log_probability(model, input_ids=torch.tensor([CONTEXT.ids]))
        nothing = log_probability(model, inputs_embeds=torch.zeros_like(embedded)[None])
    importances = make_ranker("integrated-gradients", model).rank(CONTEXT)
    assert abs(float(full - nothing)) > 0.5
    assert sum(importances) == pytest.approx(float(full - nothing), abs=0.01)


def test_integrated_gradients_can_drop_the_sign(gpt2: Any) -> None:
    signed = make_ranker("integrated-gradients", gpt2).rank(CONTEXT)
    options = RankingOptions(absolute=True)
    absolute = make_ranker("integrated-gradients", gpt2, options).rank(CONTEXT)
    assert min(signed) < 0
    assert absolute == [abs(value) for value in signed]


def test_a_pass_of_integrated_gradients_stays_within_its_tokens(gpt2: Any) -> None:
    shapes: list[torch.Size] = []
    gpt2.transformer.register_forward_pre_hook(
        lambda module, args, kwargs: shapes.append(kwargs["inputs_embeds"].shape[:2]),
        with_kwargs=True,
    )
    length = len(CONTEXT.ids)
    options = RankingOptions(ig_steps=10, batch_tokens=4 * length + 1)
    make_ranker("integrated-gradients", gpt2, options).rank(CONTEXT)
    assert shapes == [(4, length), (4, length), (2, length)]


def test_the_order_of_bloom_is_more_than_rounding_errors() -> None:
    # BLOOM normalises its token embeddings first: a product with what goes in there is zero.
    bloom = shared_model("Bloom")
    embedded, gradient = embeddings_and_gradient(bloom)
    bound = float((embedded.norm(dim=-1) * gradient.norm(dim=-1)).max())
    for name in ("gradient-x-embedding", "integrated-gradients"):
        assert max(map(abs, make_ranker(name, bloom).rank(CONTEXT))) > 0.01 * bound
    assert not bloom.transformer.word_embeddings_layernorm._forward_hooks


# --- no trace is left


@pytest.mark.parametrize("name", GRADIENT_METHODS + ATTENTION_METHODS)
def test_a_model_in_training_is_left_as_it_was(name: str, gpt2: Any) -> None:
    at_rest = make_ranker(name, gpt2).rank(CONTEXT)
    gpt2.train()
    gpt2.transformer.h[0].eval()
    gpt2.transformer.wpe.weight.requires_grad_(False)
    gpt2.transformer.h[1].mlp.c_fc.weight.grad = torch.ones_like(
        gpt2.transformer.h[1].mlp.c_fc.weight
    )
    flags = [module.training for module in gpt2.modules()]
    learning = [parameter.requires_grad for parameter in gpt2.parameters()]
    # GPT-2's default dropout of 0.1 would change the importances.
    assert make_ranker(name, gpt2).rank(CONTEXT) == pytest.approx(at_rest)
    assert [module.training for module in gpt2.modules()] == flags
    assert [parameter.requires_grad for parameter in gpt2.parameters()] == learning
    gradients = {n: p.grad for n, p in gpt2.named_parameters() if p.grad is not None}
    assert list(gradients) == ["transformer.h.1.mlp.c_fc.weight"]
    assert bool((gradients["transformer.h.1.mlp.c_fc.weight"] == 1).all())


@pytest.mark.parametrize("name", GRADIENT_METHODS)
@pytest.mark.parametrize("switched_off", [torch.no_grad, torch.inference_mode])
def test_gradients_do_not_need_the_callers_grad_mode(
    name: str, switched_off: Any, gpt2: Any
) -> None:
    options = RankingOptions(ig_steps=3)
    expected = make_ranker(name, gpt2, options).rank(CONTEXT)
    with switched_off():
        assert make_ranker(name, gpt2, options).rank(CONTEXT) == pytest.approx(expected)


@pytest.mark.parametrize("name", ATTENTION_METHODS)
def test_the_attention_implementation_is_put_back(name: str, gpt2: Any) -> None:
    assert gpt2.config._attn_implementation == "sdpa"
    make_ranker(name, gpt2).rank(CONTEXT)
    assert gpt2.config._attn_implementation == "sdpa"
    gpt2.set_attn_implementation("eager")
    make_ranker(name, gpt2).rank(CONTEXT)
    assert gpt2.config._attn_implementation == "eager"


def test_everything_is_put_back_after_an_error(gpt2: Any) -> None:
    gpt2.train()

    def fail(*_: Any) -> None:
        assert gpt2.config._attn_implementation == "eager"
        raise ZeroDivisionError

    gpt2.transformer.ln_f.register_forward_hook(fail)
    with pytest.raises(ZeroDivisionError):
        make_ranker("last-attention", gpt2).rank(CONTEXT)
    assert gpt2.config._attn_implementation == "sdpa"
    assert all(module.training for module in gpt2.modules())
    assert all(parameter.requires_grad for parameter in gpt2.parameters())


def test_the_parts_of_a_composite_model_keep_their_own_attention() -> None:
    class Part:
        def __init__(self, implementation: str) -> None:
            self._attn_implementation = implementation

    class Composite:
        def __init__(self) -> None:
            self.config: Any = Part("sdpa")
            self.config.sub_configs = {"text_config": Part}
            self.config.text_config = Part("flex_attention")
            self.requests: list[Any] = []

        def set_attn_implementation(self, request: Any) -> None:
            self.requests.append(request)

    composite = Composite()
    with inside.eager_attention(composite):
        pass
    assert composite.requests == ["eager", {"": "sdpa", "text_config": "flex_attention"}]


@pytest.mark.parametrize("name", GRADIENT_METHODS + ATTENTION_METHODS)
def test_half_precision_gives_nearly_the_same_importances(name: str, gpt2: Any) -> None:
    options = RankingOptions(ig_steps=20)
    exact = make_ranker(name, gpt2, options).rank(CONTEXT)
    rounded = make_ranker(name, gpt2.to(torch.float16), options).rank(CONTEXT)
    assert np.corrcoef(exact, rounded)[0, 1] > 0.97


# --- clear errors


@pytest.mark.parametrize("name", [name for name in RANKERS if name not in BLACK_BOX_RANKERS])
def test_a_black_box_cannot_be_looked_into(name: str) -> None:
    with pytest.raises(RationalesError) as error:
        make_ranker(name, None)
    assert str(error.value) == (
        f"{name} looks inside the model; "
        "a black box has greedy, exhaustive, beam, soft, random, nearest-first"
    )


@pytest.mark.parametrize(
    "name",
    [n for n in RANKERS if n not in ("gradient-x-embedding", "integrated-gradients")],
)
def test_absolute_needs_a_sign(name: str, gpt2: Any) -> None:
    with pytest.raises(RationalesError, match=f"{name} has no sign") as error:
        make_ranker(name, gpt2, RankingOptions(absolute=True))
    assert is_one_line(error)


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(RationalesError, match=r"'gradnorm'.*gradient-norm.*nearest-first") as error:
        make_ranker("gradnorm")
    assert is_one_line(error)


@pytest.mark.parametrize("options", [{"ig_steps": 0}, {"batch_tokens": 0}])
def test_options_that_make_no_sense_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(RationalesError, match="must be at least 1, not 0"):
        RankingOptions(**options)


@pytest.mark.parametrize("name", GRADIENT_METHODS)
def test_without_captum_the_message_is_the_command(
    name: str, gpt2: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    with pytest.raises(MissingExtraError) as error:
        make_ranker(name, gpt2)
    assert str(error.value) == (
        f"the method {name} needs an extra: pip install 'rationales[baselines]'"
    )


@pytest.mark.parametrize("name", ATTENTION_METHODS)
def test_a_model_without_attention_weights_is_told_so(name: str) -> None:
    class NoWeights(transformers.GPT2LMHeadModel):
        """Answers like a model that has no attention to show."""

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return super().forward(*args, **{**kwargs, "output_attentions": False})

    model = NoWeights(shared_model("GPT2").config)
    with pytest.raises(RationalesError, match=r"NoWeights returns no.*gradient-norm") as error:
        make_ranker(name, model).rank(CONTEXT)
    assert is_one_line(error)


def test_a_model_without_inputs_embeds_is_told_so(gpt2: Any) -> None:
    gpt2.forward = lambda input_ids: None
    with pytest.raises(RationalesError, match=r"takes no inputs_embeds.*last-attention") as error:
        make_ranker("gradient-norm", gpt2).rank(CONTEXT)
    assert is_one_line(error)


def test_no_rollout_goes_through_an_encoder_decoder() -> None:
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2
    )
    model = transformers.T5ForConditionalGeneration(config)
    with pytest.raises(RationalesError, match="T5ForConditionalGeneration is an encoder") as error:
        make_ranker("attention-rollout", model)
    assert is_one_line(error)


@pytest.mark.parametrize("name", ["gradient-norm", "last-attention"])
def test_an_empty_context_is_refused(name: str, gpt2: Any) -> None:
    with pytest.raises(RationalesError, match="the context is empty") as error:
        make_ranker(name, gpt2).rank(Context(ids=(), target_id=1))
    assert is_one_line(error)


@pytest.mark.parametrize("name", RANKERS)
def test_a_context_of_one_token_can_be_ranked(name: str, gpt2: Any) -> None:
    assert len(make_ranker(name, gpt2).rank(causal_context((5, 6), 1, frozenset()))) == 1


# --- weight of the import


def test_naming_the_methods_loads_neither_torch_nor_captum() -> None:
    code = (
        "import sys; from rationales.ranking import RANKERS, make_ranker; make_ranker('random');"
        "sys.exit('torch' in sys.modules or 'captum' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
