"""``load``: a name or a model → an explainer for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, get_args, overload

from rationales.arguments import check_tokenizer
from rationales.errors import RationalesError, given
from rationales.explainer import Explainer
from rationales.models import Kind, check_vocabulary, is_default, load_model
from rationales.text import Tokenizer
from rationales.translator import Translator

if TYPE_CHECKING:
    from transformers import PreTrainedModel

DEFAULT_ADAPTER = "smollm2-135m-instruct-compat"
"""The compatibility adapter of the default model, which is part of the package."""


@overload
def load(
    model: str | Path | PreTrainedModel | None = ...,
    tokenizer: Tokenizer | None = ...,
    *,
    kind: Literal["seq2seq"],
    adapter: str | Path | Literal[False] | None = ...,
    revision: str | None = ...,
    dtype: str | None = ...,
    device: str | None = ...,
    batch_tokens: int | None = ...,
    allow_pickle: bool = ...,
    progress: Callable[[str, float], None] | None = ...,
) -> Translator: ...
@overload
def load(
    model: str | Path | PreTrainedModel | None = ...,
    tokenizer: Tokenizer | None = ...,
    *,
    kind: Kind | None = ...,
    adapter: str | Path | Literal[False] | None = ...,
    revision: str | None = ...,
    dtype: str | None = ...,
    device: str | None = ...,
    batch_tokens: int | None = ...,
    allow_pickle: bool = ...,
    progress: Callable[[str, float], None] | None = ...,
) -> Explainer: ...
def load(
    model: str | Path | PreTrainedModel | None = None,
    tokenizer: Tokenizer | None = None,
    *,
    kind: Kind | None = None,
    adapter: str | Path | Literal[False] | None = None,
    revision: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
    batch_tokens: int | None = None,
    allow_pickle: bool = False,
    progress: Callable[[str, float], None] | None = None,
) -> Explainer:
    """An explainer for a model: a name, a folder, a model you already have, or the default one.

    For an encoder–decoder it is a ``Translator``, which translates a text and explains the
    translation. ``kind`` ("causal" or "seq2seq") makes the other kind of model an error; the
    default model of the second kind is the packaged translation model.

    With a model object, its tokenizer has to be given too. ``adapter`` is the folder of a
    compatibility adapter, which answers for incomplete contexts; the default model comes with one,
    which ``False`` leaves out. ``revision`` is a branch, tag or commit of a hub id.
    ``batch_tokens`` bounds the tokens of a forward pass, and with it the memory. ``progress`` is
    told the stage and the fraction done while the default model is converted.
    """
    model = str(model) if isinstance(model, PurePath) else model
    adapter = str(adapter) if isinstance(adapter, PurePath) else adapter
    _check(model, tokenizer, adapter, revision, dtype, device, batch_tokens, kind)
    folder: Path | None = None
    if model is None or isinstance(model, str):
        if adapter is None and is_default(model) and kind != "seq2seq":
            adapter = DEFAULT_ADAPTER
        loaded = load_model(
            model,
            kind=kind,
            dtype=dtype,
            device=device,
            allow_pickle=allow_pickle,
            revision=revision,
            progress=progress,
        )
        network, name, folder = loaded.model, loaded.name, loaded.folder
        tokenizer = loaded.tokenizer if tokenizer is None else tokenizer
    else:
        network = model
        name = getattr(model.config, "_name_or_path", "") or type(model).__name__
    if tokenizer is None:
        raise RationalesError("a model object needs its tokenizer: load(model=..., tokenizer=...)")
    check_vocabulary(network, tokenizer, "the tokenizer given", "give the model's own tokenizer")
    translates = bool(getattr(network.config, "is_encoder_decoder", False))
    if kind is not None and translates != (kind == "seq2seq"):
        found = "an encoder–decoder" if translates else "a causal language model"
        raise RationalesError(f"{name} is {found}: give a model of the kind {kind}")
    from rationales.scoring.logits import DEFAULT_BATCH_TOKENS

    batch_tokens = DEFAULT_BATCH_TOKENS if batch_tokens is None else batch_tokens
    if translates:
        from rationales.scoring.seq2seq import Seq2SeqScorer

        if adapter:
            raise RationalesError("adapters are for causal language models: leave out the adapter")
        scorer = Seq2SeqScorer(network, batch_tokens=batch_tokens)
        return Translator(scorer, tokenizer, name=name, model=network, folder=folder)
    from rationales.scoring.causal import CausalScorer

    base = CausalScorer(network, batch_tokens=batch_tokens)
    if not adapter:
        return Explainer(base, tokenizer, name=name, model=network, folder=folder)
    from rationales.compat.adapter import load_adapter
    from rationales.scoring.adapted import AdaptedScorer

    home = adapter_folder(adapter)
    adapted = load_adapter(network, home)
    return Explainer(
        AdaptedScorer(base, CausalScorer(adapted, like=base, batch_tokens=batch_tokens)),
        tokenizer,
        name=name,
        model=adapted,  # the baselines' order and its judge are the same weights
        adapter=home.name,
        folder=folder,
    )


def adapter_folder(adapter: str) -> Path:
    """The folder of an adapter, which may be the packaged one by its name."""
    packaged = Path(__file__).parent / "adapters" / adapter
    return packaged if adapter == DEFAULT_ADAPTER else Path(adapter).expanduser()


def _check(
    model: Any,
    tokenizer: object,
    adapter: object,
    revision: object,
    dtype: object,
    device: object,
    batch_tokens: object,
    kind: object,
) -> None:
    """Raise if an argument of ``load`` is of a type that it cannot be."""
    if model is not None and not isinstance(model, str):
        import torch

        is_module = isinstance(model, torch.nn.Module)
        if not (is_module and hasattr(model, "config") and hasattr(model, "get_input_embeddings")):
            raise RationalesError(
                "the model must be a name, a folder, or a model of transformers, "
                f"not {given(model)}"
            )
        if revision is not None:
            raise RationalesError("revision is for hub ids, and the model is given: leave it out")
    if tokenizer is not None:
        check_tokenizer(tokenizer)
    for name, value, expected in (
        ("adapter", None if adapter is False else adapter, "a folder, or False for none"),
        ("revision", revision, "a branch, a tag or a commit"),
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
