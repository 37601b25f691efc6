"""``load``: a name or a model → an explainer for it."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, get_args, overload

from rationales.arguments import check_tokenizer
from rationales.checking import check_values
from rationales.errors import OptionError, RationalesError, given
from rationales.explainer import Explainer
from rationales.models.default import OnStage
from rationales.models.files import Kind, check_kind, check_vocabulary
from rationales.models.loading import (
    LoadedModel,
    LoadOptions,
    check_endpoint,
    is_default,
    load_model,
)
from rationales.text import Tokenizer
from rationales.translator import Translator

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from typing_extensions import Unpack

DEFAULT_ADAPTER = "smollm2-135m-instruct-compat"
"""The compatibility adapter of the default model, which is part of the package."""


@overload
def load(
    model: str | Path | PreTrainedModel | None = ...,
    tokenizer: Tokenizer | None = ...,
    *,
    kind: Literal["seq2seq"],
    **options: Unpack[LoadOptions],
) -> Translator: ...
@overload
def load(
    model: str | Path | PreTrainedModel | None = ...,
    tokenizer: Tokenizer | None = ...,
    *,
    kind: Kind | None = ...,
    **options: Unpack[LoadOptions],
) -> Explainer: ...
def load(
    model: str | Path | PreTrainedModel | None = None,
    tokenizer: Tokenizer | None = None,
    *,
    kind: Kind | None = None,
    adapter: str | Path | Literal[False] | None = None,
    merge: bool | None = None,
    revision: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
    batch_tokens: int | None = None,
    allow_pickle: bool = False,
    progress: OnStage | None = None,
    endpoint: str | None = None,
    endpoint_model: str | None = None,
    budget: int | None = None,
    repeat: int | None = None,
) -> Explainer:
    """An explainer for a model: a name, a folder, a model you already have, or the default one.

    For an encoder–decoder it is a ``Translator``, which translates a text and explains the
    translation. ``kind`` ("causal" or "seq2seq") makes the other kind of model an error; the
    default model of the second kind is the packaged translation model.

    With a model object, its tokenizer has to be given too. ``adapter`` is the folder of a
    compatibility adapter, which answers for incomplete contexts; the default model comes with one,
    which ``False`` leaves out. ``merge`` says whether the adapter is added to a copy of the weights
    that it changes, which is faster, or computed beside the weights, which takes no more memory
    than the model; if left out, it is merged into models of less than a billion parameters that are
    neither quantised nor offloaded. ``revision`` is a branch, tag or commit of a hub id.
    ``batch_tokens`` bounds the tokens of a forward pass, and with it the memory. ``progress`` is
    told the stage and the fraction done while the default model is converted.

    ``endpoint`` is the address of a server that speaks the OpenAI protocol, such as
    ``http://127.0.0.1:8080/v1``; ``endpoint_model`` names one of its models. At most ``budget``
    requests are sent, after which the best so far is reported; ``repeat`` sends each so many times
    and takes the majority. A key is read from the environment: ``RATIONALES_ENDPOINT_KEY``.
    """
    model = str(model) if isinstance(model, PurePath) else model
    adapter = str(adapter) if isinstance(adapter, PurePath) else adapter
    if kind not in (None, *get_args(Kind)):
        raise RationalesError(f"kind must be {' or '.join(get_args(Kind))}, not {given(kind)}")
    options: dict[str, Any] = {"revision": revision, "dtype": dtype, "device": device}
    options |= {"allow_pickle": allow_pickle, "progress": progress}
    others = {"adapter": adapter, "merge": merge, "batch_tokens": batch_tokens}
    asked: dict[str, Any] = {"endpoint": endpoint, "endpoint_model": endpoint_model}
    asked |= {"budget": budget, "repeat": repeat}
    check_values(LoadOptions, others | options | asked)
    check_endpoint(model, **others | options | asked)
    if endpoint is not None:
        from rationales.endpoints.explainer import load_endpoint

        if kind == "seq2seq" or tokenizer is not None:
            raise RationalesError("an endpoint is a language model with a tokenizer of its own")
        return load_endpoint(endpoint, endpoint_model, budget=budget, repeat=repeat or 1)
    if not (model is None or isinstance(model, str)):
        _check_model(model, revision)
    if tokenizer is not None:
        check_tokenizer(tokenizer)
    is_default_model = (model is None or isinstance(model, str)) and is_default(model)
    if is_default_model and adapter is None and kind != "seq2seq":
        adapter = DEFAULT_ADAPTER
    if merge is not None and not adapter:
        raise OptionError("{merge} is about an {adapter}, and there is none: leave it out")
    if model is None or isinstance(model, str):
        loaded = load_model(model, kind=kind, **options)
    else:
        name = getattr(model.config, "_name_or_path", "") or type(model).__name__
        loaded = LoadedModel(model, tokenizer, name, folder=None)
    tokenizer = loaded.tokenizer if tokenizer is None else tokenizer
    if tokenizer is None:
        raise RationalesError("a model object needs its tokenizer: load(model=..., tokenizer=...)")
    network, name, folder = loaded.model, loaded.name, loaded.folder
    check_vocabulary(network, tokenizer, "the tokenizer given", "give the model's own tokenizer")
    translates = bool(getattr(network.config, "is_encoder_decoder", False))
    check_kind(name, "seq2seq" if translates else "causal", type(network).__name__, kind)
    from rationales.compat.adapter import load_adapter
    from rationales.scoring.adapted import AdaptedScorer
    from rationales.scoring.causal import CausalScorer
    from rationales.scoring.logits import DEFAULT_BATCH_TOKENS
    from rationales.scoring.seq2seq import Seq2SeqScorer

    adapter = None if adapter is False else adapter
    batch_tokens = batch_tokens or DEFAULT_BATCH_TOKENS
    if translates:
        if adapter is not None:
            raise RationalesError("adapters are for causal language models: leave out the adapter")
        scorer = Seq2SeqScorer(network, batch_tokens=batch_tokens)
        return Translator(scorer, tokenizer, name=name, model=network, folder=folder)
    base = CausalScorer(network, batch_tokens=batch_tokens)
    if adapter is None:
        return Explainer(base, tokenizer, name=name, model=network, folder=folder)
    home = adapter_folder(adapter)
    adapted = load_adapter(network, home, merge)
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


def _check_model(model: object, revision: str | None) -> None:
    """Raise unless this is a model of transformers, which has no revisions."""
    import torch

    wanted = ("config", "get_input_embeddings")
    if not isinstance(model, torch.nn.Module) or not all(hasattr(model, name) for name in wanted):
        raise RationalesError(
            f"the model must be a name, a folder, or a model of transformers, not {given(model)}"
        )
    if revision is not None:
        raise RationalesError("revision is for hub ids, and the model is given: leave it out")
