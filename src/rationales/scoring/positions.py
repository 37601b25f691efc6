"""Kept tokens at their original positions, for every family of causal models.

There are two exact ways to show a model a subset of a context:

- *sparse*: only the kept tokens, each with its original position. The cost is that of the subset.
- *masked*: the full context, with an attention mask over what is dropped. Always as long as the
  context, but right where a model counts by index: sliding windows, local and chunked attention.

Both need care. Without an explicit mask of ones, gaps in the positions look like packed sequences
and kept tokens silently stop seeing each other. ALiBi models take no positions and derive them
from a cumulative sum of the mask, so dropped tokens close ranks; some RoPE variants read the
largest position of the whole batch, and remember it. This module is where all of that is known.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from rationales.scoring.guard import LOCK
from rationales.scoring.hooks import logits_of

if TYPE_CHECKING:
    from transformers import DynamicCache, PreTrainedModel

_WINDOW_FIELDS = ("sliding_window", "window_size", "attention_chunk_size", "local_attention")
_BATCH_DEPENDENT_ROPE = ("dynamic", "longrope")

EXACT_FAMILIES = frozenset(
    {
        "bloom", "falcon", "gemma", "gemma2", "gemma3_text", "gpt2", "gpt_neo", "gpt_neox", "gptj",
        "llama", "mistral", "mixtral", "mpt", "olmo2", "opt", "phi3", "qwen2", "qwen3", "stablelm",
        "bart", "m2m_100", "marian", "mbart", "mt5", "t5",
    }
)  # fmt: skip
"""The model types that the exactness tests cover: what they need beyond a self-test is known."""


def text_config(model: PreTrainedModel) -> Any:
    """The configuration of the language model proper (multimodal models nest it)."""
    return model.config.get_text_config(decoder=True)


def is_covered(model: PreTrainedModel) -> bool:
    """Whether the exactness tests cover this model: its family, in the code of transformers."""
    own_code = type(model).__module__.startswith("transformers.models.")
    return own_code and model.config.model_type in EXACT_FAMILIES


def max_positions(model: PreTrainedModel) -> int | None:
    """How many tokens the model has positions for, or None where nothing bounds them."""
    config = text_config(model)
    rope = getattr(config, "rope_parameters", None) or {}
    # Dynamic RoPE reaches beyond the configured positions, which are the original ones.
    stretch = float(rope["factor"]) if rope.get("rope_type") == "dynamic" else 1.0
    names = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
    sizes = [] if alibi_builders(model) else [getattr(config, name, None) for name in names]
    return next((int(n * stretch) for n in sizes if isinstance(n, int) and n > 0), None)


def window(model: PreTrainedModel) -> int | None:
    """The smallest window of any layer: contexts within it are exact when evaluated sparsely."""
    config = text_config(model)
    layers = getattr(config, "layer_types", None)
    if layers is not None and all(kind == "full_attention" for kind in layers):
        return None
    if getattr(config, "model_type", "") == "gpt_neo" and "local" not in config.attention_layers:
        return None
    sizes = [getattr(config, name, None) for name in _WINDOW_FIELDS]
    return min((size for size in sizes if isinstance(size, int) and size > 0), default=None)


def rope_switch(model: PreTrainedModel) -> int | None:
    """The length beyond which RoPE frequencies depend on the largest position of a batch."""
    config = text_config(model)
    parameters = getattr(config, "rope_parameters", None) or {}
    # Either one set of parameters, or one for each type of layer.
    sets = [parameters, *(value for value in parameters.values() if isinstance(value, dict))]
    if not any(rope.get("rope_type") in _BATCH_DEPENDENT_ROPE for rope in sets):
        return None
    # "longrope" goes by the original length, "dynamic" by the configured one. The smallest of all
    # is safe: contexts beyond it are evaluated with others of their own length only.
    original = "original_max_position_embeddings"
    named = [rope.get(original) for rope in sets] + [getattr(config, original, None)]
    return min(int(length) for length in (*named, config.max_position_embeddings) if length)


def input_device(model: PreTrainedModel) -> torch.device:
    """Where a model takes its input; its layers may be spread over other devices, or offloaded."""
    device: torch.device = model.get_input_embeddings().weight.device  # type: ignore[assignment]
    return torch.device("cpu") if device.type == "meta" else device


class NextToken:
    """Logits of the next token, from ids at given positions under a mask.

    ``ids``, ``positions`` and ``mask`` are (rows, length); the answer is (rows, vocabulary), for
    the token after the last column. A ``cache`` holds tokens that come before them, which the mask
    covers too; the states of the new ones are added to it. With ``at``, the answer is for the
    tokens after these (row, column), and the mask may say for each token what it sees: True in
    (rows, 1, length, cached and new).
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._alibi = alibi_builders(model)
        self._dynamic_rope = dynamic_rope(model)
        accepted = inspect.signature(model.forward).parameters
        self._takes_positions = "position_ids" in accepted
        self.controls_positions = self._takes_positions or bool(self._alibi)
        """Whether tokens can be put at any position, through an argument or the ALiBi bias."""
        # The bias of ALiBi would have to be that of the cached positions too.
        self.takes_cache = (
            self._takes_positions and "past_key_values" in accepted and not self._alibi
        )

    @torch.no_grad()  # not inference mode: RoPE layers keep tensors that gradients need later
    def __call__(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor,
        cache: DynamicCache | None = None,
        at: Sequence[tuple[int, int]] | None = None,
    ) -> torch.Tensor:
        forget_long_sequences(self._dynamic_rope)
        device = input_device(self._model)
        ids, positions, mask = (each.to(device) for each in (ids, positions, mask))
        where: dict[str, Any] = {"position_ids": positions} if self._takes_positions else {}
        if cache is not None:
            where["past_key_values"] = cache
        if mask.dim() == 4:  # what is added to the attention: nothing, or as good as −∞
            added = torch.zeros(mask.shape, dtype=self._model.dtype, device=mask.device)
            mask = added.masked_fill_(~mask, torch.finfo(added.dtype).min)
        length = ids.shape[1]
        if at is None:
            at = [(row, length - 1) for row in range(len(ids))]
        wanted = torch.tensor([row * length + column for row, column in at], device=ids.device)

        def choose(values: torch.Tensor) -> torch.Tensor:
            # Side by side, as one row: of a view with gaps, torch would read the weights of the
            # whole vocabulary once a row.
            return values.flatten(0, 1)[wanted][None]

        with alibi_at(self._alibi, positions), logits_of(self._model, choose) as chosen:
            logits: torch.Tensor = self._model(
                input_ids=ids, attention_mask=mask, use_cache=cache is not None, **where
            ).logits
        return (logits if chosen else choose(logits))[0].float()

    @torch.no_grad()
    def attention(
        self, ids: torch.Tensor, position: int, cache: DynamicCache
    ) -> torch.Tensor | None:
        """The attention that tokens from this position on pay to all up to them, on average.

        Of each layer, that of the head that pays most. The tokens come after all that is in the
        cache. None if the model does not tell its weights.
        """
        device = input_device(self._model)
        places = torch.arange(position, position + ids.shape[1], device=device)
        with logits_of(self._model, lambda states: states[:, -1:]):
            layers = self._model(
                input_ids=ids.to(device),
                position_ids=places[None],
                attention_mask=torch.ones(1, position + ids.shape[1], device=device),
                past_key_values=cache,
                output_attentions=True,
            ).attentions
        if not layers or any(layer is None for layer in layers):
            return None
        # Each layer is (1, heads, new tokens, all tokens).
        return torch.stack([layer[0].float().amax(0).mean(0).cpu() for layer in layers]).mean(0)


def alibi_builders(model: PreTrainedModel) -> list[tuple[Any, Callable[..., torch.Tensor]]]:
    """The objects whose ``build_alibi_tensor`` this model calls, with the original function.

    BLOOM calls a method of its own, Falcon a function of its module.
    """
    owners: list[Any] = [m for m in model.modules() if hasattr(type(m), "build_alibi_tensor")]
    if not owners and getattr(model.config, "alibi", False):
        module = sys.modules[type(model).__module__]
        owners = [module] if hasattr(module, "build_alibi_tensor") else []
    with LOCK:  # or another thread's patch would be taken for the original
        return [(owner, owner.build_alibi_tensor) for owner in owners]


@contextmanager
def alibi_at(
    builders: list[tuple[Any, Callable[..., torch.Tensor]]], positions: torch.Tensor
) -> Iterator[None]:
    """Within it, the ALiBi bias is that of the given positions, not that of the mask."""
    if not builders:
        yield
        return

    def build(original: Any, attention_mask: torch.Tensor, num_heads: int, dtype: Any) -> Any:
        # The original, given a mask of ones, is the table slope · position for 0, 1, 2, …
        every = attention_mask.new_ones(1, int(positions.max()) + 1)
        table = original(every, num_heads, dtype)[:, 0]  # (heads, positions)
        bias = table[:, positions].transpose(0, 1)  # (rows, heads, length)
        return bias.reshape(-1, 1, positions.shape[1])

    with LOCK:  # the patch is visible to every user of the module
        for owner, original in builders:
            owner.build_alibi_tensor = partial(build, original)
        try:
            yield
        finally:
            for owner, original in builders:
                if isinstance(owner, torch.nn.Module):
                    del owner.build_alibi_tensor  # the class's own method shows again
                else:
                    owner.build_alibi_tensor = original


def dynamic_rope(model: PreTrainedModel) -> list[tuple[Any, str]]:
    """The RoPE layers that keep something of longer inputs, for ``forget_long_sequences``.

    Each with the prefix of what it keeps: there may be a kind of RoPE for each type of layer.
    """
    found = []
    for module in model.modules():
        kinds = getattr(module, "rope_type", None)
        named = {f"{key}_": kinds[key] for key in kinds} if isinstance(kinds, dict) else {"": kinds}
        found += [(module, prefix) for prefix, kind in named.items() if "dynamic" in str(kind)]
    return found


def forget_long_sequences(layers: list[tuple[Any, str]]) -> None:
    """Undo what dynamic RoPE layers kept of longer inputs: the next pass starts anew."""
    for layer, prefix in layers:
        original = getattr(layer, f"{prefix}original_inv_freq", None)
        if original is not None:
            here = getattr(layer, f"{prefix}inv_freq").device
            layer.register_buffer(f"{prefix}inv_freq", original.to(here), persistent=False)
        setattr(layer, f"{prefix}max_seq_len_cached", layer.original_max_seq_len)
        layer.max_seq_len_cached = layer.original_max_seq_len
