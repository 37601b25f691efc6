"""Greedy rationalization written down from the paper, with nothing shared with the package.

One subset at a time: the whole context goes in, an attention mask covers what is dropped, the
positions are given, all logits come out. Slow, and plain enough to be checked by reading it.

BLOOM and Falcon take no positions. They count the tokens that the mask leaves, so their kept tokens
close ranks; here the bias is put back to the original positions. That this is right is checked in
turn against forward passes written by hand from the weights, at the end of this file.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers.models.bloom import modeling_bloom
from transformers.models.falcon import modeling_falcon

TIE = 1e-4
"""Log-probabilities this close are equal: the rule of the package, written down again."""


@dataclass(frozen=True)
class Found:
    """A rationale, and after each step the target's log-probability and the model's argmax."""

    indices: tuple[int, ...]
    sufficient: bool
    logprobs: tuple[float, ...]
    predictions: tuple[int, ...]
    evaluations: int


def greedy(
    model: Any,
    ids: Sequence[int],
    target: int,
    pinned: Collection[int] = (),
    max_size: int | None = None,
) -> Found:
    """Algorithm 1 for the token at index ``target``; ``pinned`` tokens are always there."""
    always = [i for i in pinned if i < target]
    start = [i for i in [target - 1] if i not in always]
    others = [k for k in range(target) if k not in always and k not in start]

    def p(subset: Sequence[int]) -> torch.Tensor:
        return log_probabilities(model, ids[:target], [*subset, *always])

    return grow(p, start, others, ids[target], max_size)


def grow(
    p: Callable[[Sequence[int]], torch.Tensor],
    start: Sequence[int],
    others: Sequence[int],
    y: int,
    max_size: int | None = None,
) -> Found:
    """Algorithm 1 over any index space: ``p`` gives log-probabilities from a subset."""
    S = list(start)
    now, evaluations = p(S), 1
    logprobs, predictions = [float(now[y])], [first_choice(now, y)]
    limit = len(start) + len(others) if max_size is None else max_size
    while predictions[-1] != y and len(S) < limit and set(others) - set(S):
        tried = {k: p([*S, k]) for k in others if k not in S}
        evaluations += len(tried)
        highest = max(float(tried[k][y]) for k in tried)
        best = next(k for k in tried if float(tried[k][y]) >= highest - TIE)
        S.append(best)
        logprobs.append(float(tried[best][y]))
        predictions.append(first_choice(tried[best], y))
    return Found(tuple(S), predictions[-1] == y, tuple(logprobs), tuple(predictions), evaluations)


def first_choice(logprobs: torch.Tensor, y: int) -> int:
    """The argmax; of tokens within TIE of it, the target or else the lowest."""
    equal = (logprobs >= logprobs.max() - TIE).nonzero()[:, 0].tolist()
    return y if y in equal else equal[0]


def log_probabilities(model: Any, context: Sequence[int], kept: Collection[int]) -> torch.Tensor:
    """log p(· | kept tokens at their original positions), over the vocabulary."""
    mask = torch.tensor([[int(i in kept) for i in range(len(context))]])
    inputs = {"input_ids": torch.tensor([list(context)]), "attention_mask": mask}
    if "position_ids" in inspect.signature(model.forward).parameters:
        inputs["position_ids"] = torch.arange(len(context))[None]
    with torch.no_grad(), alibi_by_index():
        logits = model(**inputs, use_cache=False).logits
    return logits[0, -1].log_softmax(-1)


def ordinary(model: Any, context: Sequence[int]) -> torch.Tensor:
    """log p(· | the whole context): the model called as everybody calls it."""
    with torch.no_grad():
        return model(torch.tensor([list(context)]), use_cache=False).logits[0, -1].log_softmax(-1)


@contextmanager
def alibi_by_index() -> Iterator[None]:
    """Within it, BLOOM and Falcon bias the key at index i by slope · i, whatever the mask."""

    def build(attention_mask: torch.Tensor, num_heads: int, dtype: torch.dtype) -> torch.Tensor:
        rows, length = attention_mask.shape
        bias = torch.tensor(np.outer(alibi_slopes(num_heads), np.arange(length)), dtype=dtype)
        return bias.repeat(rows, 1).reshape(rows * num_heads, 1, length)

    originals = [(m, m.build_alibi_tensor) for m in (modeling_bloom, modeling_falcon)]
    for module, _ in originals:
        module.build_alibi_tensor = build
    try:
        yield
    finally:
        for module, original in originals:
            module.build_alibi_tensor = original


def alibi_slopes(heads: int) -> np.ndarray:
    """The slopes of the ALiBi paper: 2^(−8i/n), and every other one of 2n for what is left over."""
    n = 2 ** math.floor(math.log2(heads))
    own = [2 ** (-8 * i / n) for i in range(1, n + 1)]
    return np.array(own + [2 ** (-4 * i / n) for i in range(1, 2 * (heads - n), 2)])


# --- forward passes by hand: the kept tokens and their positions in, log-probabilities out


def by_hand_gpt2(model: Any, tokens: Sequence[int], positions: Sequence[int]) -> np.ndarray:
    w, heads = weights(model), model.config.n_head
    x = w("transformer.wte.weight")[[*tokens]] + w("transformer.wpe.weight")[[*positions]]
    for layer in range(model.config.n_layer):
        at = f"transformer.h.{layer}"
        h = layer_norm(x, w, f"{at}.ln_1")
        # GPT-2 stores its matrices the other way around than a linear layer does.
        qkv = h @ w(f"{at}.attn.c_attn.weight") + w(f"{at}.attn.c_attn.bias")
        q, k, v = (split(part, heads) for part in np.split(qkv, 3, axis=-1))
        x = x + attend(q, k, v) @ w(f"{at}.attn.c_proj.weight") + w(f"{at}.attn.c_proj.bias")
        h = layer_norm(x, w, f"{at}.ln_2") @ w(f"{at}.mlp.c_fc.weight") + w(f"{at}.mlp.c_fc.bias")
        x = x + gelu(h) @ w(f"{at}.mlp.c_proj.weight") + w(f"{at}.mlp.c_proj.bias")
    return log_softmax(layer_norm(x, w, "transformer.ln_f")[-1] @ w("lm_head.weight").T)


def by_hand_opt(model: Any, tokens: Sequence[int], positions: Sequence[int]) -> np.ndarray:
    w, heads = weights(model), model.config.num_attention_heads
    at = "model.decoder"
    # The first two rows of OPT's positions are unused.
    x = w(f"{at}.embed_tokens.weight")[[*tokens]]
    x = x + w(f"{at}.embed_positions.weight")[np.array(positions) + 2]
    for layer in range(model.config.num_hidden_layers):
        at = f"model.decoder.layers.{layer}"
        h = layer_norm(x, w, f"{at}.self_attn_layer_norm")
        q, k, v = (split(linear(h, w, f"{at}.self_attn.{p}_proj"), heads) for p in "qkv")
        x = x + linear(attend(q, k, v), w, f"{at}.self_attn.out_proj")
        h = np.maximum(linear(layer_norm(x, w, f"{at}.final_layer_norm"), w, f"{at}.fc1"), 0)
        x = x + linear(h, w, f"{at}.fc2")
    x = layer_norm(x, w, "model.decoder.final_layer_norm")
    return log_softmax(x[-1] @ w("lm_head.weight").T)


def by_hand_bloom(model: Any, tokens: Sequence[int], positions: Sequence[int]) -> np.ndarray:
    w, heads = weights(model), model.config.n_head
    bias = np.outer(alibi_slopes(heads), positions)[:, None, :]  # (heads, any query, keys)
    x = w("transformer.word_embeddings.weight")[[*tokens]]
    x = layer_norm(x, w, "transformer.word_embeddings_layernorm")
    for layer in range(model.config.n_layer):
        at = f"transformer.h.{layer}"
        qkv = linear(
            layer_norm(x, w, f"{at}.input_layernorm"), w, f"{at}.self_attention.query_key_value"
        )
        # Query, key and value of a head lie side by side: (tokens, heads, 3, head size).
        q, k, v = qkv.reshape(len(x), heads, 3, -1).transpose(2, 1, 0, 3)
        x = x + linear(attend(q, k, v, bias), w, f"{at}.self_attention.dense")
        h = linear(layer_norm(x, w, f"{at}.post_attention_layernorm"), w, f"{at}.mlp.dense_h_to_4h")
        x = x + linear(gelu(h), w, f"{at}.mlp.dense_4h_to_h")
    return log_softmax(layer_norm(x, w, "transformer.ln_f")[-1] @ w("lm_head.weight").T)


def by_hand_llama(model: Any, tokens: Sequence[int], positions: Sequence[int]) -> np.ndarray:
    w, config = weights(model), model.config
    heads, keys = config.num_attention_heads, config.num_key_value_heads
    x = w("model.embed_tokens.weight")[[*tokens]]
    for layer in range(config.num_hidden_layers):
        at = f"model.layers.{layer}"
        h = rms_norm(x, w, f"{at}.input_layernorm")
        q, k, v = (
            split(linear(h, w, f"{at}.self_attn.{p}_proj"), n)
            for p, n in (("q", heads), ("k", keys), ("v", keys))
        )
        q, k = rotate(q, positions), rotate(k, positions)
        k, v = (np.repeat(part, heads // keys, axis=0) for part in (k, v))
        x = x + linear(attend(q, k, v), w, f"{at}.self_attn.o_proj")
        h = rms_norm(x, w, f"{at}.post_attention_layernorm")
        gate, up = linear(h, w, f"{at}.mlp.gate_proj"), linear(h, w, f"{at}.mlp.up_proj")
        x = x + linear(gate / (1 + np.exp(-gate)) * up, w, f"{at}.mlp.down_proj")
    return log_softmax(rms_norm(x, w, "model.norm")[-1] @ w("lm_head.weight").T)


BY_HAND: dict[str, Callable[[Any, Sequence[int], Sequence[int]], np.ndarray]] = {
    "gpt2": by_hand_gpt2,
    "llama": by_hand_llama,
    "opt": by_hand_opt,
    "bloom": by_hand_bloom,
}


def weights(model: Any) -> Callable[[str], np.ndarray]:
    """The model's weights by name, as arrays of double precision."""
    state = model.state_dict()
    return lambda name: state[name].double().numpy() if name in state else np.zeros(())


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, bias: Any = 0.0) -> np.ndarray:
    """Causal attention of (heads, tokens, size), as (tokens, heads · size)."""
    scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1]) + bias
    scores = np.where(np.tril(np.ones(scores.shape[-2:])) > 0, scores, -np.inf)
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    seen = shares / shares.sum(axis=-1, keepdims=True) @ v
    return seen.transpose(1, 0, 2).reshape(q.shape[1], -1)


def rotate(x: np.ndarray, positions: Sequence[int]) -> np.ndarray:
    """RoPE: number i of a head and number i + half of it are one complex number, turned."""
    half = x.shape[-1] // 2
    angles = np.outer(positions, 10000.0 ** (-np.arange(half) / half))
    turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)
    return np.concatenate([turned.real, turned.imag], axis=-1)


def split(x: np.ndarray, heads: int) -> np.ndarray:
    """(tokens, heads · size) as (heads, tokens, size)."""
    return x.reshape(len(x), heads, -1).transpose(1, 0, 2)


def linear(x: np.ndarray, w: Callable[[str], np.ndarray], name: str) -> np.ndarray:
    return x @ w(f"{name}.weight").T + w(f"{name}.bias")


def layer_norm(x: np.ndarray, w: Callable[[str], np.ndarray], name: str) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
    return scaled * w(f"{name}.weight") + w(f"{name}.bias")


def rms_norm(x: np.ndarray, w: Callable[[str], np.ndarray], name: str) -> np.ndarray:
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6) * w(f"{name}.weight")


def gelu(x: np.ndarray) -> np.ndarray:
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())
