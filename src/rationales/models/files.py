"""Folders of models: what they must hold to be loaded safely, and how they are written."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from rationales.errors import RationalesError

WEIGHTS = re.compile(r"model(-\d+-of-\d+)?\.safetensors")
PICKLED = re.compile(r"pytorch_model(-\d+-of-\d+)?\.bin")
TOKENIZER = re.compile(
    r"tokenizer\.json|vocab\.(json|txt)|tekken\.json|(tokenizer|spiece|sentencepiece.*)\.model"
)
CAUSAL = re.compile(r".*(ForCausalLM|LMHeadModel)")

Kind = Literal["causal", "seq2seq"]
"""A causal language model, or an encoder–decoder."""


def file_names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir() if file.is_file()}


def lacking_files(names: set[str], allow_pickle: bool) -> str:
    """What a model with files of these names lacks, as the end of a sentence, or nothing."""
    if "config.json" not in names:
        return "has no config.json: give the folder of a transformers model"
    pickled = not any(map(WEIGHTS.fullmatch, names))
    files = sorted(name for name in names if (PICKLED if pickled else WEIGHTS).fullmatch(name))
    if not files:
        return "has no weights (model.safetensors): give the folder of a whole model"
    if pickled and not allow_pickle:
        return (
            "has only pickled weights (pytorch_model.bin), which can run code when read: "
            "if you trust them, give --allow-pickle"
        )
    for file in files:
        # model-00001-of-00002 tells of the other one.
        if split := re.fullmatch(r"(.*)-\d+-of-(\d+)(\..*)", file):
            stem, count, suffix = split.groups()
            shards = {f"{stem}-{n:05d}-of-{count}{suffix}" for n in range(1, int(count) + 1)}
            if missing := sorted(shards - names):
                return f"has no {missing[0]}: its weights are incomplete, fetch them again"
    if not any(map(TOKENIZER.fullmatch, names)):
        return "has no tokenizer files (tokenizer.json): save its tokenizer beside the weights"
    return ""


def check_config(folder: Path, name: str, wanted: Kind | None = "causal") -> Kind:
    """The kind of model that the config in a folder is of; an error if it is not as wanted.

    None is content with either.
    """
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL_NAMES,
    )
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES as SEQ2SEQ_NAMES,
    )

    try:
        raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        kind = str(raw["model_type"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RationalesError(
            f"the config.json of {name} is damaged or names no model_type: fetch it again"
        ) from error
    if kind not in CONFIG_MAPPING:
        if "auto_map" in raw:
            raise RationalesError(
                f"{name} needs Python code from its own repository (trust_remote_code), which is "
                "not supported because it could do anything: take a model that transformers knows"
            )
        raise RationalesError(
            f"{name} has the model type {kind!r}, which transformers {transformers.__version__} "
            "does not know: take another model, or upgrade transformers"
        )
    known: Any = CONFIG_MAPPING[kind]
    stated = (raw.get("architectures") or [""])[0]
    if raw.get("is_encoder_decoder", getattr(known, "is_encoder_decoder", False)):
        if wanted == "causal":
            raise RationalesError(
                f"{name} is an encoder–decoder; explain takes causal language models, "
                "and translate takes this one"
            )
        if kind not in SEQ2SEQ_NAMES:
            raise RationalesError(f"{name} is a {stated or kind}; translate takes text to text")
        return "seq2seq"
    # A bare model ("GPT2Model") may have all it needs: whether it does, its keys will tell.
    causal = CAUSAL.fullmatch(stated) or stated in CAUSAL_NAMES.values() or "For" not in stated
    if wanted == "seq2seq":
        raise RationalesError(
            f"{name} is a {stated or kind}; translate takes encoder–decoders"
            + (", and explain takes this one" if kind in CAUSAL_NAMES and causal else "")
        )
    if kind not in CAUSAL_NAMES or not causal:
        raise RationalesError(f"{name} is a {stated or kind}; explain takes causal language models")
    return "causal"


def check_vocabulary(model: Any, tokenizer: Any, which: str, advice: str) -> None:
    """Raise if the tokenizer can only be that of another model: it has more tokens.

    A model may have more, where its embeddings are padded. Tokens that were added to a tokenizer
    do not count: some models have no embeddings for those that they never see.
    """
    rows, tokens = embedded(model), getattr(tokenizer, "vocab_size", None)
    if rows is not None and tokens is not None and not 0 < tokens <= rows:
        raise RationalesError(f"{which} has {tokens} tokens and its model {rows}: {advice}")


def embedded(model: Any) -> int | None:
    """How many tokens a model has embeddings for; None if it does not tell."""
    try:
        weight = model.get_input_embeddings().weight
    except (AttributeError, NotImplementedError):
        return None
    return int(weight.shape[0])


def save_model(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a model and its tokenizer to a folder, with no bars but our own."""
    with quietly():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


@contextmanager
def quietly() -> Iterator[None]:
    """A context in which transformers and the hub show no bars and no warnings of their own."""
    from huggingface_hub import utils as hub_utils
    from transformers.utils import logging

    log: Any = logging
    hub: Any = hub_utils
    bars, hub_bars = log.is_progress_bar_enabled(), not hub.are_progress_bars_disabled()
    level, hub_level = log.get_verbosity(), hub.logging.get_verbosity()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log.disable_progress_bar()
        log.set_verbosity_error()
        hub.logging.set_verbosity_error()
        try:
            yield
        finally:
            log.set_verbosity(level)
            hub.logging.set_verbosity(hub_level)
            if bars:
                log.enable_progress_bar()  # the hub's bars too,
            if not hub_bars:
                hub.disable_progress_bars()  # which may have been off before
