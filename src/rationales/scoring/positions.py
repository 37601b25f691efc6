"""Kept tokens at their original positions, for every family of causal models.

There are two exact ways to show a model a subset of a context:

- *sparse*: only the kept tokens, each with its original position. The cost is that of the subset.
- *masked*: the whole context, with an attention mask over what is dropped. Always as long as the
  context, but right where a model counts by index: sliding windows, local and chunked attention.

Both need care. Without an explicit mask of ones, gaps in the positions look like packed sequences
and kept tokens silently stop seeing each other. ALiBi models take no positions and derive them
from a cumulative sum of the mask, so dropped tokens close ranks; some RoPE variants read the
largest position of the whole batch, and remember it. This module is where all of that is known.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from rationales.scoring.guard import LOCK

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


def tested_length(model: PreTrainedModel) -> int:
    """How many tokens a self-test has at most: more where only the self-test knows the family."""
    return 32 if is_covered(model) else 128


def max_positions(model: PreTrainedModel) -> int | None:
    """How many tokens the model has positions for, or None where nothing bounds them."""
    config = text_config(model)
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0 and not alibi_builders(model):
            return int(value * _stretch(config))
    return None


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


def _stretch(config: Any) -> float:
    """How far dynamic RoPE reaches beyond the configured positions, which are the original ones."""
    parameters = getattr(config, "rope_parameters", None) or {}
    dynamic = parameters.get("rope_type") == "dynamic"
    return float(parameters["factor"]) if dynamic else 1.0


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
        accepted = inspect.signature(model.forward).parameters
        self.takes_positions = "position_ids" in accepted
        untyped: Any = model
        self._head = untyped.get_output_embeddings()
        self._alibi = alibi_builders(model)
        # The bias of ALiBi would have to be that of the cached positions too.
        self.takes_cache = (
            self.takes_positions and "past_key_values" in accepted and not self._alibi
        )
        self._dynamic_rope = _dynamic_rope(model)

    @property
    def controls_positions(self) -> bool:
        """Whether tokens can be put at any position, through an argument or the ALiBi bias."""
        return self.takes_positions or bool(self._alibi)

    @torch.no_grad()  # not inference mode: RoPE layers keep tensors that gradients need later
    def __call__(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor,
        cache: DynamicCache | None = None,
        at: Sequence[tuple[int, int]] | None = None,
    ) -> torch.Tensor:
        for module in self._dynamic_rope:
            _forget(module)
        where: dict[str, Any] = {"position_ids": positions} if self.takes_positions else {}
        if cache is not None:
            where["past_key_values"] = cache
        if mask.dim() == 4:  # what is added to the attention: nothing, or as good as −∞
            least = torch.finfo(self._model.dtype).min
            mask = torch.zeros(
                mask.shape, dtype=self._model.dtype, device=mask.device
            ).masked_fill_(~mask, least)
        if at is None:
            at = [(row, ids.shape[1] - 1) for row in range(len(ids))]
        wanted = torch.tensor(
            [row * ids.shape[1] + column for row, column in at], device=ids.device
        )
        with alibi_at(self._alibi, positions), _only(self._head, wanted) as selected:
            output = self._model(
                input_ids=ids, attention_mask=mask, use_cache=cache is not None, **where
            )
        logits: torch.Tensor = output.logits.flatten(0, 1)
        return (logits if selected else logits[wanted]).float()


@contextmanager
def _only(head: Any, wanted: torch.Tensor) -> Iterator[list[bool]]:
    """Within it, the last layer is given only these of all tokens, side by side, as one row.

    The logits of all would be the largest tensor by far; and of a view with gaps, torch would read
    the weights of the whole vocabulary once a row. What it yields is empty if nothing was selected:
    a model may not have its last layer as a module.
    """
    selected: list[bool] = []
    thread = threading.get_ident()

    def select(_: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...] | None:
        if threading.get_ident() != thread:  # somebody runs the model without our lock
            return None
        selected.append(True)
        return inputs[0].flatten(0, 1)[wanted][None], *inputs[1:]

    if not isinstance(head, torch.nn.Module):
        yield selected
        return
    with head.register_forward_pre_hook(select):
        yield selected


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
    """Within it, the ALiBi bias is that of the given positions, whatever the mask."""
    if not builders:
        yield
        return

    def at_positions(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def build(attention_mask: torch.Tensor, num_heads: int, dtype: Any) -> torch.Tensor:
            # The original, given a mask of ones, is the table slope · position for 0, 1, 2, …
            every = attention_mask.new_ones(1, int(positions.max()) + 1)
            table = original(every, num_heads, dtype)[:, 0]  # (heads, positions)
            bias = table[:, positions].transpose(0, 1)  # (rows, heads, length)
            return bias.reshape(-1, 1, positions.shape[1])

        return build

    with LOCK:  # the patch is visible to every user of the module
        for owner, original in builders:
            owner.build_alibi_tensor = at_positions(original)
        try:
            yield
        finally:
            for owner, original in builders:
                if isinstance(owner, torch.nn.Module):
                    del owner.build_alibi_tensor  # the class's own method shows again
                else:
                    owner.build_alibi_tensor = original


def forget_long_sequences(model: PreTrainedModel) -> None:
    """Undo what dynamic RoPE layers kept of longer inputs: the next pass starts afresh."""
    for module in _dynamic_rope(model):
        _forget(module)


def _dynamic_rope(model: PreTrainedModel) -> list[Any]:
    return [m for m in model.modules() if _is_dynamic(getattr(m, "rope_type", None))]


def _is_dynamic(rope_type: Any) -> bool:
    kinds = rope_type.values() if isinstance(rope_type, dict) else [rope_type]
    return any(isinstance(kind, str) and "dynamic" in kind for kind in kinds)


def _forget(module: Any) -> None:
    prefixes = (
        [f"{kind}_" for kind in module.rope_type] if isinstance(module.rope_type, dict) else [""]
    )
    for prefix in prefixes:
        original = getattr(module, f"{prefix}original_inv_freq", None)
        if original is not None:
            current = getattr(module, f"{prefix}inv_freq")
            module.register_buffer(
                f"{prefix}inv_freq", original.to(current.device), persistent=False
            )
        setattr(module, f"{prefix}max_seq_len_cached", module.original_max_seq_len)
    module.max_seq_len_cached = module.original_max_seq_len
