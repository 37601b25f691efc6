"""Importances over both sides of a translation, against gradients and attention by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rationales import Context, RationalesError
from rationales.context import seq2seq_context
from rationales.methods import BASELINES, METHODS
from rationales.ranking import attribute, order

import seq2seq_oracle as oracle
from tiny_models import TRANSLATORS, build_translator, shared_translator

EVERY = pytest.mark.parametrize("family", TRANSLATORS)
SOURCE, PREFIX, TARGET = (9, 5, 7, 12, 1), (0, 8, 30, 4), 17
CONTEXT = seq2seq_context((*SOURCE, *PREFIX, TARGET), 9, frozenset({4, 5}), 5)


def rank(name: str, model: Any = None, context: Context = CONTEXT, **options: Any) -> list[float]:
    """The importances of one context."""
    [importances] = attribute([context], name, model, **options)
    return importances


def embedding_scale(model: Any) -> float:
    """What a token's embedding is multiplied with, outside of what embeds it (Marian)."""
    own = model.config.model_type == "marian" and model.config.scale_embedding
    return float(model.config.d_model) ** 0.5 if own else 1.0


def gradients_by_hand(
    model: Any, source: torch.Tensor, target: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """∂ log p(target) / ∂ (embeddings of both sides), through ``inputs_embeds``; and log p."""
    source = source.detach().clone().requires_grad_()
    target = target.detach().clone().requires_grad_()
    # Marian's encoder takes scaled embeddings, its decoder scales them itself.
    logits = model(
        inputs_embeds=source * embedding_scale(model),
        attention_mask=torch.ones(1, len(SOURCE), dtype=torch.long),
        decoder_inputs_embeds=target,
        use_cache=False,
    ).logits
    logprob = logits[0, -1].log_softmax(-1)[TARGET]
    first, second = torch.autograd.grad(logprob, (source, target))
    return first[0], second[0], float(logprob.detach())


def embeddings(model: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The token embeddings of both sides: (1, length, dimensions) each."""
    with torch.no_grad():
        return (
            model.get_encoder().embed_tokens(torch.tensor([SOURCE])),
            model.get_decoder().embed_tokens(torch.tensor([PREFIX])),
        )


@EVERY
def test_gradient_norms_are_those_by_hand(family: str) -> None:
    model = shared_translator(family)
    first, second, logprob = gradients_by_hand(model, *embeddings(model))
    assert logprob == pytest.approx(float(oracle.ordinary(model, SOURCE, PREFIX)[TARGET]), abs=1e-4)
    expected = torch.cat([first, second]).norm(dim=-1).tolist()
    assert rank("gradient-norm", model) == pytest.approx(expected, rel=1e-3)


@EVERY
def test_gradient_times_embedding_is_the_product_by_hand(family: str) -> None:
    model = shared_translator(family)
    source, target = embeddings(model)
    first, second, _ = gradients_by_hand(model, source, target)
    expected = torch.cat([(first * source[0]).sum(-1), (second * target[0]).sum(-1)])
    found = rank("gradient-x-embedding", model)
    assert found == pytest.approx(expected.tolist(), rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("family", ["marian", "m2m100", "t5"])
def test_integrated_gradients_match_a_loop_by_hand(family: str) -> None:
    import numpy as np

    model = shared_translator(family)
    source, target = embeddings(model)
    points, weights = np.polynomial.legendre.leggauss(50)
    sums = [torch.zeros_like(source[0]), torch.zeros_like(target[0])]
    for point, weight in zip((points + 1) / 2, weights / 2, strict=True):
        first, second, _ = gradients_by_hand(model, source * point, target * point)
        sums[0] += first * weight
        sums[1] += second * weight
    expected = torch.cat([(sums[0] * source[0]).sum(-1), (sums[1] * target[0]).sum(-1)])
    found = rank("integrated-gradients", model, batch_tokens=30)  # 50 steps, if none are given
    assert found == pytest.approx(expected.tolist(), rel=1e-2, abs=1e-3)


def attention_by_hand(model: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Cross- and self-attention of the last position in each BART layer, from its weights."""
    decoder = model.get_decoder()
    heads = model.config.decoder_attention_heads
    cross, own = [], []
    with torch.no_grad():
        states = model.get_encoder()(torch.tensor([SOURCE])).last_hidden_state[0]
        places = decoder.embed_positions.weight[torch.arange(len(PREFIX)) + 2]
        x = decoder.layernorm_embedding(decoder.embed_tokens(torch.tensor(PREFIX)) + places)

        def attend(module: Any, x: torch.Tensor, y: torch.Tensor, causal: bool) -> Any:
            q, k, v = (
                p(z).view(len(z), heads, -1).transpose(0, 1)
                for p, z in ((module.q_proj, x), (module.k_proj, y), (module.v_proj, y))
            )
            scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
            if causal:
                hidden = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
                scores = scores.masked_fill(hidden, -torch.inf)
            weights = scores.softmax(-1)
            out = (weights @ v).transpose(0, 1).reshape(len(x), -1)
            return module.out_proj(out), weights[:, -1].mean(0)

        for layer in decoder.layers:
            out, weights = attend(layer.self_attn, x, x, causal=True)
            own.append(weights)
            x = layer.self_attn_layer_norm(x + out)
            out, weights = attend(layer.encoder_attn, x, states, causal=False)
            cross.append(weights)
            x = layer.encoder_attn_layer_norm(x + out)
            out = layer.fc2(layer.activation_fn(layer.fc1(x)))
            x = layer.final_layer_norm(x + out)
        logits = model.lm_head(x[-1]) + model.final_logits_bias[0]
    ordinary = oracle.ordinary(model, SOURCE, PREFIX)
    assert torch.allclose(logits.log_softmax(-1), ordinary, atol=1e-4)  # by hand, and right
    return cross, own


@pytest.mark.parametrize("name", ["last-attention", "all-attention"])
def test_attention_is_that_by_hand(name: str) -> None:
    model = shared_translator("bart")
    cross, own = attention_by_hand(model)
    assert len(cross) == len(own) == 2
    expected: list[float] = []
    # The end of the source and the start of the decoder are pinned: no shares for them.
    for layers, free in ((cross, [1, 1, 1, 1, 0]), (own, [0, 1, 1, 1])):
        chosen = layers if name == "all-attention" else layers[-1:]
        weights = torch.stack(chosen).mean(0) * torch.tensor(free)
        expected += (weights / weights.sum()).tolist()
    found = rank(name, model)
    assert found == pytest.approx(expected, abs=1e-5)
    assert sum(found[:5]) == pytest.approx(1) == sum(found[5:])


@EVERY
@pytest.mark.parametrize("name", ["last-attention", "all-attention"])
def test_attention_is_the_models_own(family: str, name: str) -> None:
    model = shared_translator(family)
    with torch.no_grad(), oracle.eager(model):
        output = model(
            input_ids=torch.tensor([SOURCE]),
            decoder_input_ids=torch.tensor([PREFIX]),
            output_attentions=True,
        )
    sides = []
    for layers, lo, hi in ((output.cross_attentions, 0, 4), (output.decoder_attentions, 1, 4)):
        layers = layers if name == "all-attention" else layers[-1:]
        row = torch.stack([layer[0, :, -1].mean(0) for layer in layers]).mean(0)
        sides.append((row[lo:hi] / row[lo:hi].sum()).tolist())
    found = rank(name, model)
    assert found[:4] == pytest.approx(sides[0], abs=1e-5)
    assert found[6:] == pytest.approx(sides[1], abs=1e-5)
    assert found[4] == found[5] == 0


def test_a_prefix_of_nothing_but_the_start_can_be_ranked() -> None:
    context = seq2seq_context((*SOURCE, 0, TARGET), 6, frozenset({4, 5}), 5)
    for name in BASELINES:
        if not METHODS[name].causal_only:
            assert len(rank(name, shared_translator("marian"), context)) == 6


def test_nearest_first_goes_through_the_target_then_the_source() -> None:
    ranked = order(CONTEXT, rank("nearest-first"))
    assert ranked == ((7,), (6,), (3,), (2,), (1,), (0,))


@EVERY
def test_rollout_is_refused_in_one_line(family: str) -> None:
    with pytest.raises(RationalesError, match="use last-attention or all-attention") as error:
        rank("attention-rollout", shared_translator(family))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("family", ["marian", "t5"])
def test_the_model_is_left_as_it_was(family: str) -> None:
    model = build_translator(family, attention_dropout=0.5, dropout=0.5).train()
    before = model.config._attn_implementation
    learning = [p.requires_grad for p in model.parameters()]
    for name in ("gradient-norm", "integrated-gradients", "all-attention"):
        assert rank(name, model, ig_steps=2) == pytest.approx(rank(name, model, ig_steps=2))
    assert model.training
    assert model.config._attn_implementation == before
    assert [p.requires_grad for p in model.parameters()] == learning
    assert all(p.grad is None for p in model.parameters())
    for part in (model.get_encoder(), model.get_decoder()):
        assert not part.get_input_embeddings()._forward_hooks


@pytest.mark.parametrize("family", ["marian", "bart", "t5"])
@pytest.mark.parametrize("name", [n for n in BASELINES if not METHODS[n].causal_only])
def test_all_targets_of_texts_are_ranked_together_as_one_by_one(family: str, name: str) -> None:
    """Two texts, and a budget that cuts the path."""
    model = shared_translator(family)
    texts = [tuple(range(3, 15)), tuple(range(20, 31))]
    contexts = [
        seq2seq_context(ids, target, frozenset({4, 5}), 5)
        for ids in texts
        for target in range(6, len(ids))
    ]
    options = {"ig_steps": 7, "batch_tokens": 30}
    together = attribute(contexts, name, model, **options)
    for found, context in zip(together, contexts, strict=True):
        alone = rank(name, model, context, **options)
        assert found == pytest.approx(alone, rel=1e-3, abs=1e-4)
