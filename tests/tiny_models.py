"""Tiny models of many families, built from configurations: nothing is downloaded.

At its default initialisation a tiny model is nearly uniform, whatever it is shown, and agrees with
anything. The weights here are drawn wide enough that the place of a token matters; a test asserts
that for every family.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import torch
import transformers

VOCABULARY = 64
POSITIONS = 64


@dataclass(frozen=True)
class Family:
    """A configuration class by its first name, what to give it, and how it is to be evaluated."""

    config: str
    settings: dict[str, Any]
    evaluation: str = "sparse"
    scale: float = 0.3


LLAMA_LIKE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": POSITIONS,
}
ONE_KEY_A_HEAD = {k: v for k, v in LLAMA_LIKE.items() if k != "num_key_value_heads"}
ONE_LAYER_OF_EACH = ["sliding_attention", "full_attention"]

FAMILIES: dict[str, Family] = {
    "gpt2": Family("GPT2", {"n_positions": POSITIONS, "n_embd": 32, "n_layer": 2, "n_head": 4}),
    "llama": Family("Llama", LLAMA_LIKE),
    "gpt-neox": Family("GPTNeoX", ONE_KEY_A_HEAD),
    "opt": Family("OPT", {**ONE_KEY_A_HEAD, "word_embed_proj_dim": 32, "ffn_dim": 48}),
    "qwen2": Family("Qwen2", LLAMA_LIKE),
    "qwen3": Family("Qwen3", {**LLAMA_LIKE, "head_dim": 8}),
    "mistral": Family("Mistral", {**LLAMA_LIKE, "sliding_window": 32}),
    # Which experts see a token must not depend on the rest of the batch.
    "mixtral": Family("Mixtral", {**LLAMA_LIKE, "num_local_experts": 4, "num_experts_per_tok": 2}),
    # Six heads: the ALiBi slopes of a number that is no power of two are the irregular case.
    "bloom": Family("Bloom", {"hidden_size": 24, "n_layer": 2, "n_head": 6}),
    "gemma": Family("Gemma", {**LLAMA_LIKE, "head_dim": 8}),
    "gemma2": Family(
        "Gemma2",
        {**LLAMA_LIKE, "head_dim": 8, "sliding_window": 32, "layer_types": ONE_LAYER_OF_EACH},
    ),
    "gemma3": Family(
        "Gemma3Text",
        {
            **LLAMA_LIKE,
            "head_dim": 8,
            "query_pre_attn_scalar": 8,
            "sliding_window": 32,
            "layer_types": ONE_LAYER_OF_EACH,
        },
    ),
    "gpt-neo": Family(
        "GPTNeo",
        {
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_layers": 2,
            "num_heads": 4,
            "max_position_embeddings": POSITIONS,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 32,
        },
    ),
    # Falcon divides the bias by √size: more and smaller heads make it felt.
    "falcon-alibi": Family("Falcon", {**ONE_KEY_A_HEAD, "num_attention_heads": 8, "alibi": True}),
    "falcon-rotary": Family("Falcon", {**ONE_KEY_A_HEAD, "alibi": False}),
    "phi3": Family("Phi3", LLAMA_LIKE),
    "gptj": Family(
        "GPTJ",
        {"n_positions": POSITIONS, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4},
    ),
    "stablelm": Family("StableLm", LLAMA_LIKE),
    "olmo2": Family("Olmo2", LLAMA_LIKE),
    # ALiBi by index, with no argument and no method that could move it: only masking is exact.
    "mpt": Family(
        "Mpt",
        {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": POSITIONS},
        evaluation="masked",
    ),
}

WINDOW = 4
WINDOWED: dict[str, tuple[str, dict[str, Any]]] = {
    "mistral": ("mistral", {"sliding_window": WINDOW}),
    "gpt-neo": ("gpt-neo", {"window_size": WINDOW}),
    "gemma2": ("gemma2", {"sliding_window": WINDOW}),
    "gemma3": ("gemma3", {"sliding_window": WINDOW}),
    # Layers below max_window_layers have full attention, those from it on a window.
    "qwen2": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    ),
}
"""Families whose layers, or some of them, see the last four tokens only."""

SWITCH = 8
STRETCHED: dict[str, tuple[str, dict[str, Any]]] = {
    "dynamic": (
        "llama",
        {
            "max_position_embeddings": SWITCH,
            "rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0},
        },
    ),
    # Each type of layer has frequencies of its own; only one of the two types stretches them.
    "dynamic-by-layer": (
        "gemma3",
        {
            "max_position_embeddings": SWITCH,
            "rope_parameters": {
                "full_attention": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        },
    ),
    "longrope": (
        "phi3",
        {
            "original_max_position_embeddings": SWITCH,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "short_factor": [1.0, 1.1, 1.2, 1.3],
                "long_factor": [2.0, 3.0, 4.0, 5.0],
                "original_max_position_embeddings": SWITCH,
            },
        },
    ),
}
"""Models whose RoPE frequencies change for contexts of more than eight tokens."""


def build(name: str, **changes: Any) -> Any:
    """A new model of the family; the same weights each time."""
    family = FAMILIES[name]
    vocabulary = changes.pop("vocab_size", VOCABULARY)
    config = getattr(transformers, f"{family.config}Config")(
        vocab_size=vocabulary,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
        **{**family.settings, **changes},
    )
    return draw_weights(transformers.AutoModelForCausalLM.from_config(config), family.scale)


def draw_weights(model: Any, scale: float = 0.3) -> Any:
    """The model with wide random weights, the same each time, ready to predict."""
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=rng)
            if parameter.dim() > 1:
                parameter.copy_(noise * scale)
            else:  # biases and the weights of norms: moved, but left near what they are
                parameter.add_(noise * 0.1)
    return model.eval()


@cache
def shared(name: str) -> Any:
    """A model of the family for tests that leave it as it is."""
    return build(name)


# --- encoder–decoders

BART_LIKE: dict[str, Any] = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": POSITIONS,
    "scale_embedding": True,
}
T5_LIKE: dict[str, Any] = {
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "relative_attention_num_buckets": 16,
    "relative_attention_max_distance": 32,
}
TRANSLATORS: dict[str, Family] = {
    # As in Opus-MT: positions are sines, the decoder starts with the pad token.
    "marian": Family("Marian", {**BART_LIKE, "decoder_start_token_id": 2}),
    "bart": Family("Bart", {**BART_LIKE, "scale_embedding": False, "decoder_start_token_id": 1}),
    "mbart": Family("MBart", {**BART_LIKE, "decoder_start_token_id": 3}),
    "m2m100": Family("M2M100", {**BART_LIKE, "decoder_start_token_id": 1}),
    "t5": Family("T5", {**T5_LIKE, "decoder_start_token_id": 2}, evaluation="masked"),
    "mt5": Family("MT5", {**T5_LIKE, "decoder_start_token_id": 2}, evaluation="masked"),
}
"""Encoder–decoders; 0 is their beginning of sequence, 1 their end, 2 their pad token."""


def build_translator(name: str, **changes: Any) -> Any:
    """A new encoder–decoder of the family; the same weights each time."""
    family = TRANSLATORS[name]
    vocabulary = changes.pop("vocab_size", VOCABULARY)
    config = getattr(transformers, f"{family.config}Config")(
        vocab_size=vocabulary,
        **{
            "bos_token_id": 0,
            "eos_token_id": 1,
            "pad_token_id": 2,
            "forced_eos_token_id": None,
            **family.settings,
            **changes,
        },
    )
    model = draw_weights(transformers.AutoModelForSeq2SeqLM.from_config(config), family.scale)
    with torch.no_grad():  # zeros in a new model: what is left out then would not be missed
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.copy_(torch.linspace(-1, 1, model.final_logits_bias.shape[-1]))
    return model


@cache
def shared_translator(name: str) -> Any:
    """An encoder–decoder of the family for tests that leave it as it is."""
    return build_translator(name)


@cache
def recipe(name: str) -> Any:
    """The module of a recipe, which is no part of the package."""
    file = Path(__file__).parent.parent / "recipes" / f"{name}.py"
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
