"""GGUF files → dequantised models."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rationales.models.files import quietly


def load_gguf(
    gguf: Path, dtype: str = "float32", tick: Callable[[float], None] | None = None
) -> tuple[Any, Any, dict[str, Any]]:
    """The dequantised model of a GGUF file, its tokenizer, and what transformers says of the keys.

    ``tick`` hears which share of the work is done.
    """
    import torch
    from tokenizers import pre_tokenizers as pre
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GgufConfig

    tell = tick or (lambda share: None)
    config_class: Any = AutoConfig
    tokenizer_class: Any = AutoTokenizer
    model_class: Any = AutoModelForCausalLM
    with quietly(), _counted(lambda share: tell(0.9 + 0.08 * share)):
        tell(0.15)  # what has been imported by now takes that long
        where = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
        tokenizer = tokenizer_class.from_pretrained(**where)
        if _pre_tokenizer(gguf) == b"smollm":
            # transformers reads the vocabulary but not this field; digits are tokens of their own.
            tokenizer.backend_tokenizer.pre_tokenizer = pre.Sequence(
                [
                    pre.Digits(individual_digits=True),
                    pre.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True),
                ]
            )
        tell(0.35)
        config = config_class.from_pretrained(**where)
        tell(0.6)
        model, info = model_class.from_pretrained(
            **where,
            config=config,
            dtype=getattr(torch, dtype),
            quantization_config=GgufConfig(dequantize=True),
            output_loading_info=True,
        )
    tell(1.0)
    return model, tokenizer, info


@contextmanager
def _counted(tick: Callable[[float], None]) -> Iterator[None]:
    """A context in which ``tick`` hears how many tensors of a GGUF file are dequantised.

    It takes the place of a bar that is tqdm's own, and which no setting of transformers turns off.
    """
    from transformers import modeling_gguf_pytorch_utils

    reader: Any = modeling_gguf_pytorch_utils

    def count(tensors: list[Any], **_: Any) -> Iterator[Any]:
        for done, tensor in enumerate(tensors):
            tick(done / len(tensors))
            yield tensor

    bar, reader.tqdm = reader.tqdm, count
    try:
        yield
    finally:
        reader.tqdm = bar


def _pre_tokenizer(gguf: Path) -> bytes:
    """The name of the pre-tokenizer in a GGUF file's header, or nothing.

    A search for the bytes, as the reader of gguf takes seconds: key, type 8 (string), length, text.
    """
    key = b"tokenizer.ggml.pre" + (8).to_bytes(4, "little")
    with gguf.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        at = view.find(key)
        if at < 0:
            return b""
        begin = at + len(key) + 8
        return view[begin : begin + int.from_bytes(view[begin - 8 : begin], "little")]
