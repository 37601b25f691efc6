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
from rationales.errors import RationalesError
from rationales.methods import BASELINES, CONTROLS, METHODS
from rationales.ranking import attribute
from rationales.ranking import order as unit_order
from rationales.scoring.hooks import eager_attention

from tiny_models import STRETCHED, build

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
GRADIENT_METHODS = [name for name in BASELINES if METHODS[name].kind == "gradient"]
ATTENTION_METHODS = [name for name in BASELINES if METHODS[name].kind == "attention"]
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


def rank(name: str, model: Any = None, context: Context = CONTEXT, **options: Any) -> list[float]:
    """The importances of one context."""
    [importances] = attribute([context], name, model, **options)
    return importances


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


def test_order_refuses_what_is_not_a_number() -> None:
    context = Context(ids=(1, 2, 3), target_id=6, required=(2,))
    with pytest.raises(RationalesError, match=r"index 1 is not a number.*float32") as error:
        order(context, [0.0, math.nan, 0.0])
    assert is_one_line(error)


def test_an_importance_that_nobody_uses_may_be_anything() -> None:
    context = Context(ids=(1, 2, 3), target_id=6, required=(2,))
    assert order(context, [0.0, 1.0, math.nan]) == (1, 0)


# --- the controls


def test_random_repeats_and_depends_on_seed_and_context_alone() -> None:
    first = rank("random")
    torch.manual_seed(0)
    variants = [
        Context(ids=(1, 2), target_id=3),
        Context(CONTEXT.ids, CONTEXT.target_id),
        Context(CONTEXT.ids, target_id=14),
        Context((*CONTEXT.ids[:-1], 18), CONTEXT.target_id),
    ]
    _, unpinned, *others = attribute(variants, "random")
    assert unpinned == first
    assert rank("random", seed=1) != first
    assert first not in others


def test_random_is_the_same_in_every_process() -> None:
    context = Context(ids=(1, 2, 3, 4, 5, 6), target_id=7)
    assert order(context, rank("random", context=context)) == (3, 0, 4, 2, 5, 1)


def test_random_orders_are_uniform() -> None:
    context = Context(ids=(1, 2, 3), target_id=7)
    seen = [order(context, rank("random", context=context, seed=seed)) for seed in range(600)]
    assert all(70 < seen.count(each) < 130 for each in set(seen))
    assert len(set(seen)) == 6


def test_nearest_first_goes_backwards_from_the_target() -> None:
    assert order(CONTEXT, rank("nearest-first")) == (7, 6, 5, 4, 3, 2, 1)


# --- every family


def test_predictions_of_the_tiny_models_are_far_from_uniform(model: Any) -> None:
    with torch.no_grad():
        probabilities = model(torch.tensor([CONTEXT.ids])).logits[0, -1].softmax(-1)
    assert 5 / VOCABULARY < probabilities.max() < 0.999


@pytest.mark.parametrize("name", BASELINES)
def test_every_method_ranks_every_family(name: str, model: Any) -> None:
    importances = rank(name, model, ig_steps=5)
    assert len(importances) == len(CONTEXT.ids)
    assert all(type(value) is float and math.isfinite(value) for value in importances)
    assert len(set(importances)) > 1
    assert sorted(order(CONTEXT, importances)) == list(CONTEXT.candidates)


def test_gradient_norm_is_the_norm_of_the_gradient_by_hand(model: Any) -> None:
    _, gradient = embeddings_and_gradient(model)
    expected = gradient.square().sum(-1).sqrt()
    assert rank("gradient-norm", model) == pytest.approx(expected.tolist(), rel=1e-4)


def test_gradient_times_embedding_is_the_product_by_hand(model: Any) -> None:
    embedded, gradient = embeddings_and_gradient(model)
    expected = torch.einsum("td,td->t", embedded, gradient)
    close = {"rel": 1e-3, "abs": 1e-5 * float(expected.abs().max())}
    signed = rank("gradient-x-embedding", model)
    assert signed == pytest.approx(expected.tolist(), **close)


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
        importances = rank(name, model)
        assert importances == pytest.approx(list(expected[name]), rel=1e-4, abs=1e-7)
        assert sum(importances) == pytest.approx(1.0, abs=1e-5)


# --- integrated gradients


@pytest.mark.parametrize("steps", [7, 100])
def test_integrated_gradients_are_those_of_captum(model: Any, steps: int) -> None:
    from captum.attr import IntegratedGradients

    embedded, _ = embeddings_and_gradient(model)
    plain = copy.deepcopy(model)
    if hasattr(model.base_model, "word_embeddings_layernorm"):
        plain.base_model.word_embeddings_layernorm = torch.nn.Identity()

    def log_probabilities(rows: torch.Tensor) -> torch.Tensor:
        mask = torch.ones(rows.shape[:2], dtype=torch.long)
        logits = plain(inputs_embeds=rows, attention_mask=mask).logits[:, -1]
        return logits.log_softmax(-1)[:, CONTEXT.target_id]

    expected = (
        IntegratedGradients(log_probabilities)
        .attribute(embedded[None], torch.zeros_like(embedded)[None], n_steps=steps)[0]
        .sum(-1)
    )
    close = {"rel": 1e-3, "abs": 1e-4 * float(expected.abs().max())}
    for batch_tokens in (1, 4096):  # one row at a time, and all of them at once
        options = {"ig_steps": steps, "batch_tokens": batch_tokens}
        found = rank("integrated-gradients", model, **options)
        assert found == pytest.approx(expected.tolist(), **close)
    default = rank("integrated-gradients", model)
    assert (default == rank("integrated-gradients", model, ig_steps=steps)) == (steps == 100)


@pytest.mark.parametrize("family", ["GPT2", "GPTNeo"])
def test_integrated_gradients_are_complete(family: str) -> None:
    # From zero token embeddings, positions kept, to the full context.
    model = shared_model(family)
    embedded, _ = embeddings_and_gradient(model)
    with torch.no_grad():
        full = log_probability(model, input_ids=torch.tensor([CONTEXT.ids]))
        nothing = log_probability(model, inputs_embeds=torch.zeros_like(embedded)[None])
    importances = rank("integrated-gradients", model)
    assert abs(float(full - nothing)) > 0.5
    assert sum(importances) == pytest.approx(float(full - nothing), abs=0.01)


@pytest.mark.parametrize("name", ["gradient-x-embedding", "integrated-gradients"])
def test_an_order_can_drop_the_sign(name: str, gpt2: Any) -> None:
    signed = rank(name, gpt2)
    assert min(signed) < 0
    absolute = order(CONTEXT, [abs(value) for value in signed])
    assert absolute != order(CONTEXT, signed)
    assert absolute == tuple(i for (i,) in unit_order(CONTEXT, signed, absolute=True))


def test_a_pass_of_integrated_gradients_stays_within_its_tokens(gpt2: Any) -> None:
    shapes: list[torch.Size] = []
    gpt2.transformer.wte.register_forward_hook(
        lambda module, args, output: shapes.append(output.shape[:2])
    )
    length = len(CONTEXT.ids)
    rank("integrated-gradients", gpt2, ig_steps=10, batch_tokens=4 * length + 1)
    assert shapes == [(4, length), (4, length), (2, length)]


def test_the_order_of_bloom_is_more_than_rounding_errors() -> None:
    # BLOOM normalises its token embeddings first: a product with what goes in there is zero.
    bloom = shared_model("Bloom")
    embedded, gradient = embeddings_and_gradient(bloom)
    bound = float((embedded.norm(dim=-1) * gradient.norm(dim=-1)).max())
    for name in ("gradient-x-embedding", "integrated-gradients"):
        assert max(map(abs, rank(name, bloom))) > 0.01 * bound
    assert not bloom.transformer.word_embeddings_layernorm._forward_hooks


# --- many targets


def text_contexts(ids: tuple[int, ...]) -> list[Context]:
    return [causal_context(ids, target, frozenset({0})) for target in range(1, len(ids))]


def as_one_by_one(name: str, model: Any, contexts: list[Context]) -> None:
    """Assert that contexts are ranked together as each alone."""
    options = {"ig_steps": 5, "batch_tokens": 30}
    together = attribute(contexts, name, model, **options)
    for found, context in zip(together, contexts, strict=True):
        alone = rank(name, model, context, **options)
        scale = max(map(abs, alone))
        assert found == pytest.approx(alone, rel=1e-3, abs=1e-4 * scale)


@pytest.mark.parametrize("name", BASELINES)
def test_all_targets_of_texts_are_ranked_together_as_one_by_one(name: str, model: Any) -> None:
    passes: list[int] = []
    contexts = [*text_contexts((*TEXT, 13)), *text_contexts(tuple(range(20, 25))), CONTEXT]
    with model.register_forward_hook(lambda *_: passes.append(1)):
        attribute(contexts, name, model, ig_steps=2)
    assert len(passes) in (0, 3)  # two texts, and another look at the first
    as_one_by_one(name, model, contexts)
    assert attribute([], name, model) == []


@pytest.mark.parametrize("name", ["gradient-x-embedding", "attention-rollout"])
@pytest.mark.parametrize("kind", STRETCHED)
def test_frequencies_that_depend_on_the_length_are_those_of_each_context(
    kind: str, name: str
) -> None:
    family, settings = STRETCHED[kind]
    contexts = text_contexts(tuple(range(3, 17)))
    model = build(family, **settings)
    as_one_by_one(name, model, contexts)
    # Nor do they depend on what was ranked before: dynamic RoPE remembers its longest input.
    upwards, downwards = attribute(contexts, name, model), attribute(contexts[::-1], name, model)
    for up, down in zip(upwards, reversed(downwards), strict=True):
        assert up == pytest.approx(down, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("name", GRADIENT_METHODS + ATTENTION_METHODS)
@pytest.mark.filterwarnings("ignore")  # transformers warns of a BERT that is no decoder
def test_a_model_that_looks_ahead_is_given_each_context_alone(name: str) -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
    )
    as_one_by_one(name, transformers.BertLMHeadModel(config).eval(), text_contexts(TEXT))


@pytest.mark.parametrize("name", GRADIENT_METHODS)
def test_logits_may_be_bent_after_the_head(name: str) -> None:
    # Gemma 2 caps its logits: what is after the head is no constant.
    gemma = build("gemma2", final_logit_softcapping=1.0)
    assert gemma(torch.tensor([CONTEXT.ids])).logits.abs().max() < 1
    as_one_by_one(name, gemma, text_contexts(TEXT))
    _, gradient = embeddings_and_gradient(gemma)
    expected = gradient.norm(dim=-1).tolist()
    assert rank("gradient-norm", gemma) == pytest.approx(expected, rel=1e-3)


def test_contexts_of_very_different_lengths_share_no_pass(gpt2: Any) -> None:
    passes: list[int] = []
    gpt2.register_forward_hook(lambda *_: passes.append(1))
    contexts = text_contexts(tuple(range(3, 33)))
    attribute([contexts[1], contexts[28]], "gradient-norm", gpt2)
    assert len(passes) == 2


# --- no trace is left


@pytest.mark.parametrize("name", GRADIENT_METHODS + ATTENTION_METHODS)
def test_a_model_in_training_is_left_as_it_was(name: str, gpt2: Any) -> None:
    at_rest = rank(name, gpt2)
    gpt2.train()
    gpt2.transformer.h[0].eval()
    gpt2.transformer.wpe.weight.requires_grad_(False)
    gpt2.transformer.h[1].mlp.c_fc.weight.grad = torch.ones_like(
        gpt2.transformer.h[1].mlp.c_fc.weight
    )
    flags = [module.training for module in gpt2.modules()]
    learning = [parameter.requires_grad for parameter in gpt2.parameters()]
    # GPT-2's default dropout of 0.1 would change the importances.
    assert rank(name, gpt2) == pytest.approx(at_rest)
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
    expected = rank(name, gpt2, ig_steps=3)
    with switched_off():
        assert rank(name, gpt2, ig_steps=3) == pytest.approx(expected)


@pytest.mark.parametrize("name", ATTENTION_METHODS)
def test_the_attention_implementation_is_put_back(name: str, gpt2: Any) -> None:
    assert gpt2.config._attn_implementation == "sdpa"
    rank(name, gpt2)
    assert gpt2.config._attn_implementation == "sdpa"
    gpt2.set_attn_implementation("eager")
    rank(name, gpt2)
    assert gpt2.config._attn_implementation == "eager"


def test_everything_is_put_back_after_an_error(gpt2: Any) -> None:
    gpt2.train()

    def fail(*_: Any) -> None:
        assert gpt2.config._attn_implementation == "eager"
        raise ZeroDivisionError

    gpt2.transformer.ln_f.register_forward_hook(fail)
    with pytest.raises(ZeroDivisionError):
        rank("last-attention", gpt2)
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
    with eager_attention(composite):
        pass
    assert composite.requests == ["eager", {"": "sdpa", "text_config": "flex_attention"}]


@pytest.mark.parametrize("name", GRADIENT_METHODS + ATTENTION_METHODS)
def test_half_precision_gives_nearly_the_same_importances(name: str, gpt2: Any) -> None:
    exact = rank(name, gpt2, ig_steps=20)
    rounded = rank(name, gpt2.to(torch.float16), ig_steps=20)
    assert np.corrcoef(exact, rounded)[0, 1] > 0.97


# --- clear errors


@pytest.mark.parametrize("name", [name for name in BASELINES if name not in CONTROLS])
def test_a_black_box_cannot_be_looked_into(name: str) -> None:
    with pytest.raises(RationalesError) as error:
        attribute([CONTEXT], name)
    assert str(error.value) == (
        f"{name} looks inside the model; "
        "a black box has greedy, exhaustive, beam, deletion, soft, random, nearest-first"
    )


@pytest.mark.parametrize("name", ATTENTION_METHODS)
def test_a_model_without_attention_weights_is_told_so(name: str) -> None:
    class NoWeights(transformers.GPT2LMHeadModel):
        """Answers like a model that has no attention to show."""

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return super().forward(*args, **{**kwargs, "output_attentions": False})

    model = NoWeights(shared_model("GPT2").config)
    with pytest.raises(RationalesError, match=r"NoWeights returns no.*gradient-norm") as error:
        rank(name, model)
    assert is_one_line(error)


def test_a_model_needs_no_inputs_embeds(gpt2: Any) -> None:
    expected = rank("gradient-norm", gpt2)
    forward = gpt2.forward

    def plain(input_ids: Any, attention_mask: Any, use_cache: Any, return_dict: Any) -> Any:
        return forward(input_ids, attention_mask=attention_mask)

    gpt2.forward = plain
    assert rank("gradient-norm", gpt2) == pytest.approx(expected)


def test_a_model_with_other_embeddings_is_told_so(gpt2: Any) -> None:
    gpt2.get_input_embeddings = lambda: gpt2.transformer.h[0].mlp.c_fc
    gpt2.transformer.h[0].mlp.forward = lambda states: states
    with pytest.raises(RationalesError, match=r"its input embeddings.*last-attention") as error:
        rank("gradient-norm", gpt2)
    assert is_one_line(error)


def test_no_rollout_goes_through_an_encoder_decoder() -> None:
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2
    )
    model = transformers.T5ForConditionalGeneration(config)
    with pytest.raises(RationalesError, match="T5ForConditionalGeneration is an encoder") as error:
        attribute([CONTEXT], "attention-rollout", model)
    assert is_one_line(error)


@pytest.mark.parametrize("name", BASELINES)
def test_a_context_of_one_token_can_be_ranked(name: str, gpt2: Any) -> None:
    assert len(rank(name, gpt2, causal_context((5, 6), 1, frozenset()))) == 1


# --- weight of the import


def test_naming_a_method_does_not_load_torch() -> None:
    code = (
        "import sys; from rationales.ranking import attribute; attribute([], 'random');"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
