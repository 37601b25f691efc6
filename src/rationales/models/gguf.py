"""GGUF files → dequantised models."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rationales.models.folder import quietly

# A field of the header: key, type (a string), length, value. gguf's own reader takes seconds.
SMOLLM = b"tokenizer.ggml.pre" + struct.pack("<IQ", 8, 6) + b"smollm"


def read_gguf(
    gguf: Path, dtype: str = "float32", tick: Callable[[float], None] = lambda share: None
) -> tuple[Any, Any, dict[str, Any]]:
    """The dequantised model of a GGUF file, its tokenizer, and what transformers reports of it.

    ``tick`` is told the share of the time that has passed.
    """
    from unittest.mock import patch

    import torch
    from tokenizers import pre_tokenizers as pre
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers import modeling_gguf_pytorch_utils as reader

    tick(0.2)  # the imports
    tokenizer_class: Any = AutoTokenizer
    model_class: Any = AutoModelForCausalLM
    where = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    # The reader has a progress bar that no setting of transformers switches off.
    with quietly(), patch.object(reader, "tqdm", lambda tensors, **_: tensors):
        tokenizer = tokenizer_class.from_pretrained(**where)
        with gguf.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            if view.find(SMOLLM) >= 0:
                # transformers does not read this field, which makes each digit a token.
                digits = pre.Digits(individual_digits=True)
                rest = pre.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True)
                tokenizer.backend_tokenizer.pre_tokenizer = pre.Sequence([digits, rest])
        tick(0.4)
        model, info = model_class.from_pretrained(
            **where,
            dtype=getattr(torch, dtype),
            quantization_config=GgufConfig(dequantize=True),
            output_loading_info=True,
        )
    return model, tokenizer, info
