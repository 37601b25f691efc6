"""Folders of models and GGUF files: what they must hold, and how they are read and written.

Nothing in a folder may run code: neither Python files nor, unless the user allows it, pickles.
"""

from __future__ import annotations

import mmap
import re
import struct
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

from rationales.errors import RationalesError, first_line

WEIGHTS = re.compile(r"model(-\d+-of-\d+)?\.safetensors")
PICKLED = re.compile(r"pytorch_model(-\d+-of-\d+)?\.bin")
TOKENIZER = re.compile(
    r"tokenizer\.json|vocab\.(json|txt)|tekken\.json|(tokenizer|spiece|sentencepiece.*)\.model"
)
BESIDE_WEIGHTS = {".json", ".txt", ".model", ".spm", ".jinja"}
"""The files of a config, a vocabulary and a chat template."""
LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
# A field of a GGUF header: key, type (a string), length, value. gguf's own reader takes seconds.
SMOLLM = b"tokenizer.ggml.pre" + struct.pack("<IQ", 8, 6) + b"smollm"

Kind = Literal["causal", "seq2seq"]
"""A causal language model, or an encoder–decoder."""
_KINDS = {"causal": "a causal language model", "seq2seq": "an encoder–decoder"}
_COMMANDS = {"causal": "explain", "seq2seq": "translate"}


def read_model(
    path: Path, name: str, dtype: str, allow_pickle: bool = False, kind: Kind | None = "causal"
) -> tuple[Any, Any]:
    """The model in a folder or a GGUF file, dequantised, and its tokenizer; both are checked."""
    import transformers

    library: Any = transformers
    folder, where = path, LOCAL
    quantized: dict[str, Any] = {}
    if path.is_file():
        kind = check_kind(name, "causal", "GGUF", kind)
        folder, where = path.parent, {"gguf_file": path.name}
        quantized = {"quantization_config": library.GgufConfig(dequantize=True)}
        dtype = "float32" if dtype == "auto" else dtype
    else:
        names = file_names(folder)
        if "config.json" in names:  # first: the kind of a model matters more than what it lacks
            kind = check_config(folder, name, kind)
        if missing := missing_files(names, allow_pickle):
            raise RationalesError(f"{name} {missing}")
    with reading(f"the tokenizer of {name}"):
        tokenizer = library.AutoTokenizer.from_pretrained(folder, **where)
        if path.is_file():
            _split_digits(path, tokenizer)
    auto = library.AutoModelForSeq2SeqLM if kind == "seq2seq" else library.AutoModelForCausalLM
    with reading(f"the weights of {name}"), _no_bar(path):
        model, info = auto.from_pretrained(
            folder,
            dtype=dtype,
            use_safetensors=None if allow_pickle else True,
            ignore_mismatched_sizes=True,  # check_weights refuses them, in one line
            output_loading_info=True,
            **where,
            **quantized,
        )
    check_weights(info, name)
    advice = "put the model's own tokenizer into the folder"
    check_vocabulary(model, tokenizer, f"the tokenizer of {name}", advice)
    return model, tokenizer


def _no_bar(path: Path) -> AbstractContextManager[Any]:
    """A context in which the reader of GGUF files shows no progress bar.

    No setting of transformers switches it off. To import that reader takes half a second, which
    folders need not wait for.
    """
    if not path.is_file():
        return nullcontext()
    from transformers import modeling_gguf_pytorch_utils as reader

    return patch.object(reader, "tqdm", lambda tensors, **_: tensors)


def _split_digits(gguf: Path, tokenizer: Any) -> None:
    """Make each digit a token if a GGUF file says so: transformers does not read that field."""
    from tokenizers import pre_tokenizers as pre

    with gguf.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        if view.find(SMOLLM) >= 0:
            digits = pre.Digits(individual_digits=True)
            rest = pre.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True)
            tokenizer.backend_tokenizer.pre_tokenizer = pre.Sequence([digits, rest])


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


def needed_files(names: set[str]) -> list[str]:
    """The files of a complete model that are loaded; pickled weights only if there are no other."""
    weights = WEIGHTS if any(map(WEIGHTS.fullmatch, names)) else PICKLED
    return [n for n in names if weights.fullmatch(n) or Path(n).suffix in BESIDE_WEIGHTS]


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
        stated in causal.values() or "ForCausalLM" in stated or "For" not in stated
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
        if isinstance(error, ModuleNotFoundError) and error.name is not None:
            package = error.name.partition(".")[0]
            raise RationalesError(
                f"{what} cannot be loaded without {package}: pip install {package}"
            ) from error
        reason = first_line(error).partition(". ")[0]
        if "trust_remote_code" in str(error):
            reason = "it needs Python code of its own, which could do anything and is never run"
        raise RationalesError(
            f"{what} cannot be loaded ({reason}): fetch it again, or use another model"
        ) from error


@contextmanager
def quietly() -> Iterator[None]:
    """A context in which transformers shows no progress bars and no warnings."""
    from transformers.utils import logging

    log: Any = logging
    level = log.get_verbosity()
    # Its own switch would turn the hub's progress bars on and off too.
    with warnings.catch_warnings(), patch.object(log, "_tqdm_active", False):
        warnings.simplefilter("ignore")
        log.set_verbosity_error()
        try:
            yield
        finally:
            log.set_verbosity(level)
