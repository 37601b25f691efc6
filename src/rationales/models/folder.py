"""Folders of models: what a folder must hold, and how it is read and written.

Nothing in a folder may run code: neither Python files nor, unless the user allows it, pickles.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

from rationales.errors import RationalesError, first_line

WEIGHTS = re.compile(r"model(-\d+-of-\d+)?\.safetensors")
PICKLED = re.compile(r"pytorch_model(-\d+-of-\d+)?\.bin")
TOKENIZER = re.compile(
    r"tokenizer\.json|vocab\.(json|txt)|tekken\.json|(tokenizer|spiece|sentencepiece.*)\.model"
)
CAUSAL = re.compile(r".*(ForCausalLM|LMHeadModel)")
LOCAL = {"local_files_only": True, "trust_remote_code": False}

Kind = Literal["causal", "seq2seq"]
"""A causal language model, or an encoder–decoder."""
_KINDS = {"causal": "a causal language model", "seq2seq": "an encoder–decoder"}
_COMMANDS = {"causal": "explain", "seq2seq": "translate"}


def read_folder(
    folder: Path, name: str, dtype: str, allow_pickle: bool, kind: Kind | None
) -> tuple[Any, Any, dict[str, Any]]:
    """The model in a folder, its tokenizer, and what transformers reports of the weights."""
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

    names = file_names(folder)
    if "config.json" in names:  # first: the kind of a model matters more than what it lacks
        kind = check_config(folder, name, kind)
    if missing := missing_files(names, allow_pickle):
        raise RationalesError(f"{name} {missing}")
    tokenizer_class: Any = AutoTokenizer
    model_class: Any = AutoModelForSeq2SeqLM if kind == "seq2seq" else AutoModelForCausalLM
    with reading(f"the tokenizer of {name}"):
        tokenizer = tokenizer_class.from_pretrained(folder, **LOCAL)
    with reading(f"the weights of {name}"):
        model, info = model_class.from_pretrained(
            folder,
            dtype=dtype,
            use_safetensors=None if allow_pickle else True,
            ignore_mismatched_sizes=True,  # check_weights refuses them, in one line
            output_loading_info=True,
            **LOCAL,
        )
    return model, tokenizer, info


def file_names(folder: Path) -> set[str]:
    """The names of the files in a folder."""
    return {file.name for file in folder.iterdir() if file.is_file()}


def missing_files(names: set[str], allow_pickle: bool) -> str:
    """What a model with files of these names lacks, as the end of a sentence, or nothing."""
    if "config.json" not in names:
        return "has no config.json: give the folder of a transformers model"
    weights = sorted(filter(WEIGHTS.fullmatch, names))
    pickled = sorted(filter(PICKLED.fullmatch, names))
    if not weights and not pickled:
        return "has no weights (model.safetensors): give the folder of a complete model"
    if not weights and not allow_pickle:
        return (
            "has only pickled weights (pytorch_model.bin), which can run code when read: "
            "if you trust them, give --allow-pickle"
        )
    # The name of one shard tells the names of all: model-00001-of-00002.safetensors.
    if shard := re.fullmatch(r"(.*-)\d+(-of-(\d+)\..*)", (weights or pickled)[0]):
        stem, rest, count = shard.groups()
        shards = {f"{stem}{number:05d}{rest}" for number in range(1, int(count) + 1)}
        if absent := sorted(shards - names):
            return f"has no {absent[0]}: its weights are incomplete, fetch them again"
    if not any(map(TOKENIZER.fullmatch, names)):
        return "has no tokenizer files (tokenizer.json): save its tokenizer beside the weights"
    return ""


def check_config(folder: Path, name: str, wanted: Kind | None) -> Kind:
    """The kind of model that the config in a folder describes; an error if it is not as wanted."""
    from transformers import AutoConfig
    from transformers.models.auto import modeling_auto as auto

    with reading(f"the config.json of {name}"):
        config: Any = AutoConfig.from_pretrained(folder, **LOCAL)
        stated = str((config.architectures or [config.model_type])[0])
    found: Kind | None = None
    if getattr(config, "is_encoder_decoder", False):
        if config.model_type in auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES:
            found = "seq2seq"
    elif config.model_type in (causal := auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) and (
        # A bare model ("GPT2Model") may have tied weights that suffice: check_weights finds out.
        stated in causal.values() or CAUSAL.fullmatch(stated) or "For" not in stated
    ):
        found = "causal"
    return check_kind(name, found, stated, wanted)


def check_kind(name: str, found: Kind | None, stated: str, wanted: Kind | None) -> Kind:
    """The kind of model that was found; an error if it is none, or not the one that is wanted."""
    if found is not None and wanted in (None, found):
        return found
    what = f"{_KINDS[found]} ({stated})" if found else f"a {stated}"
    expected = _KINDS[wanted] if wanted else " or ".join(_KINDS.values())
    advice = f"`rationales {_COMMANDS[found]}` takes it" if found else "use another model"
    raise RationalesError(f"{name} is {what}, not {expected}: {advice}")


def check_weights(info: dict[str, Any], name: str) -> None:
    """Raise if transformers initialized weights at random: ``info`` is what it reports."""
    wrong_size = {key for key, *_ in info["mismatched_keys"]}
    for keys, what in ((info["missing_keys"], "lack"), (wrong_size, "have other sizes for")):
        if keys:
            some = ", ".join(sorted(keys)[:3]) + (" …" if len(keys) > 3 else "")
            raise RationalesError(
                f"the weights of {name} {what} {some}: they are incomplete, or of another model "
                "than config.json; fetch both again"
            )


def check_vocabulary(model: Any, tokenizer: Any, which: str, advice: str) -> None:
    """Raise if the tokenizer must be that of another model because it has more tokens.

    A model may have more, where its embeddings are padded. Tokens that were added to a tokenizer
    do not count: some models have no embeddings for those that they never see.
    """
    rows, tokens = embedded(model), getattr(tokenizer, "vocab_size", None)
    if rows is not None and tokens is not None and not 0 < tokens <= rows:
        raise RationalesError(f"{which} has {tokens} tokens and its model {rows}: {advice}")


def embedded(model: Any) -> int | None:
    """The number of tokens that a model has embeddings for; None if it does not tell."""
    try:
        weight = model.get_input_embeddings().weight
    except (AttributeError, NotImplementedError):
        return None
    return int(weight.shape[0])


def save_model(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a model and its tokenizer to a folder, without the libraries' progress bars."""
    with quietly():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


@contextmanager
def reading(what: str) -> Iterator[None]:
    """A context in which libraries read ``what``: they show nothing, and an error is one line."""
    try:
        with quietly():
            yield
    except RationalesError:
        raise
    except Exception as error:  # the libraries raise anything for a damaged file
        reason = first_line(error).partition(". ")[0]
        if "trust_remote_code" in str(error):
            reason = "it needs Python code of its own, which could do anything and is never run"
        raise RationalesError(
            f"{what} cannot be loaded ({reason}): fetch it again, or use another model"
        ) from error


@contextmanager
def quietly() -> Iterator[None]:
    """A context in which transformers and the hub show no progress bars and no warnings."""
    from huggingface_hub import utils
    from transformers.utils import logging

    hub: Any = utils
    log: Any = logging
    with warnings.catch_warnings(), ExitStack() as restored:
        warnings.simplefilter("ignore")
        for library in (log, hub.logging):
            restored.callback(library.set_verbosity, library.get_verbosity())
            library.set_verbosity_error()
        if hub.are_progress_bars_disabled():
            restored.callback(hub.disable_progress_bars)
        if log.is_progress_bar_enabled():
            restored.callback(log.enable_progress_bar)  # the hub's too: so it comes first
        log.disable_progress_bar()
        yield
