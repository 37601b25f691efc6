"""What ``load`` and ``explain`` are given: of the right type, or one clear line.

Python would find out later, by an attribute that is missing, or not at all: a dictionary is an
iterable of its keys, and the characters of a text are texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any, TypeVar, get_args

from rationales.context import Context
from rationales.errors import RationalesError, given
from rationales.jobs import Request
from rationales.models import Kind
from rationales.options import Options

T = TypeVar("T")


def path_to_str(value: T | PurePath) -> T | str:
    """A path as the string that a user would have typed; anything else as it is."""
    return str(value) if isinstance(value, PurePath) else value


def check_load(
    model: object,
    tokenizer: object,
    adapter: object,
    dtype: object,
    device: object,
    batch_tokens: object,
    kind: object,
) -> None:
    """Raise if an argument of ``load`` is of a type that it cannot be."""
    if model is not None and not isinstance(model, str):
        _check_model(model)
    if tokenizer is not None:
        check_tokenizer(tokenizer)
    for name, value, expected in (
        ("adapter", adapter, "a folder or 'none'"),
        ("dtype", dtype, "a name such as 'float32'"),
        ("device", device, "a name such as 'cpu'"),
    ):
        if value is not None and not isinstance(value, str):
            raise RationalesError(f"{name} must be {expected}, not {given(value)}")
    whole = isinstance(batch_tokens, int) and not isinstance(batch_tokens, bool)
    if batch_tokens is not None and not whole:
        raise RationalesError(f"batch_tokens must be a whole number, not {given(batch_tokens)}")
    if kind is not None and kind not in get_args(Kind):
        raise RationalesError(f"kind must be {' or '.join(get_args(Kind))}, not {given(kind)}")


def check_tokenizer(tokenizer: object) -> None:
    """Raise unless this is a tokenizer, by what is asked of it."""
    wanted = ("__call__", "decode", "convert_ids_to_tokens")
    if isinstance(tokenizer, type) or not all(hasattr(tokenizer, name) for name in wanted):
        raise RationalesError(
            "the tokenizer must be one of transformers: "
            f"AutoTokenizer.from_pretrained(...), not {given(tokenizer)}"
        )


def check_scorer(scorer: object) -> None:
    """Raise unless this is a scorer."""
    if isinstance(scorer, type) or not callable(getattr(scorer, "score", None)):
        raise RationalesError(
            f"the scorer must have a method score, as BlackBoxScorer has, not {given(scorer)}"
        )


def text_list(text: object) -> list[str]:
    """The texts in what ``explain`` was given: a text, or any iterable of texts."""
    if isinstance(text, str):
        return [text]
    no_list = (bytes, bytearray, memoryview, Mapping, set, frozenset)
    if not isinstance(text, Iterable) or isinstance(text, no_list):
        raise RationalesError(f"give a text (str) or a list of texts, not {given(text)}")
    texts = list(text)
    for place, each in enumerate(texts):
        if not isinstance(each, str):
            raise RationalesError(
                f"give a list of texts (str): at place {place} it has {given(each)}"
            )
    return texts


def check_request(request: object) -> None:
    """Raise unless this is a request for a text, with options."""
    if not isinstance(request, Request):
        raise RationalesError(f"give requests, as in Request(text), not {given(request)}")
    if not isinstance(request.text, str):
        raise RationalesError(f"the text of a request must be a str, not {given(request.text)}")
    checked_options(request.options)


def checked_options(options: object) -> Options:
    """The options that were given, or the usual ones."""
    if options is None:
        return Options()
    if not isinstance(options, Options):
        raise RationalesError(
            f"options must be Options(...), not {given(options)}; "
            "single ones can be given as keywords: explain(text, method='greedy')"
        )
    return options


def check_context(context: object) -> None:
    """Raise unless this is a context."""
    if not isinstance(context, Context):
        raise RationalesError(f"give a Context, not {given(context)}; texts are for explain")


def _check_model(model: Any) -> None:
    """Raise unless this is a model of transformers, or one wrapped like it (peft)."""
    import torch

    is_module = isinstance(model, torch.nn.Module)
    if not (is_module and hasattr(model, "config") and hasattr(model, "get_input_embeddings")):
        raise RationalesError(
            f"the model must be a name, a folder, or a model of transformers, not {given(model)}"
        )
