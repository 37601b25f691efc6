"""Names → loaded models.

    default ──► converted cache folder ─┐
    hub id ───► hub's local cache ──────┼─► folder ─► checks ─► model, tokenizer
    a folder ───────────────────────────┘               ▲
    a GGUF file ────────────────────────────────────────┘

Each model is checked alike: the kind that is wanted, complete, in safetensors, with its tokenizer.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from annotated_types import Ge, Predicate

from rationales.checking import Expected, check_values
from rationales.errors import OptionError, RationalesError
from rationales.models import default
from rationales.models.default import OnStage
from rationales.models.files import Kind, read_model, reading
from rationales.models.hub import from_hub, snapshot

if TYPE_CHECKING:
    from typing_extensions import Unpack

TRANSLATORS = Path(__file__).parent.parent / "translators"
DEFAULT_TRANSLATOR = "fr-en"
"""The translation model that is part of the package: French to English."""


_Dtype = Predicate(lambda name: name in ("float32", "bfloat16", "float16", "auto"))
_Device = Predicate(lambda name: bool(re.fullmatch(r"(cpu|cuda|mps|xpu)(:[0-9]+)?", name)))


class LoadOptions(TypedDict, total=False):
    """What ``load`` takes besides a model, its tokenizer and their kind."""

    adapter: Annotated[str | Path | Literal[False] | None, Expected("a folder, or False for none")]
    merge: bool | None
    revision: Annotated[str | None, Expected("a branch, a tag or a commit")]
    dtype: Annotated[Annotated[str, _Dtype] | None, Expected("float32, bfloat16, float16 or auto")]
    device: Annotated[
        Annotated[str, _Device] | None, Expected("cpu, cuda, mps or xpu, or one such as cuda:1")
    ]
    batch_tokens: Annotated[int, Ge(1)] | None
    allow_pickle: bool
    progress: OnStage | None
    endpoint: Annotated[str | None, Expected("an address such as http://127.0.0.1:8080/v1")]
    endpoint_model: Annotated[str | None, Expected("the name of a model")]
    budget: Annotated[int, Ge(1)] | None
    repeat: Annotated[int, Ge(1)] | None


@dataclass(frozen=True)
class LoadedModel:
    """A model that is ready to score (evaluation mode, no gradients), and its tokenizer."""

    model: Any
    tokenizer: Any
    name: str
    folder: Path | None
    """The folder that the weights were read from; None for a GGUF file."""


def load_model(
    name: str | None = None,
    *,
    kind: Kind | None = "causal",
    dtype: str | None = None,
    device: str | None = None,
    allow_pickle: bool = False,
    revision: str | None = None,
    progress: OnStage | None = None,
) -> LoadedModel:
    """The model and the tokenizer of that name; the default model of the kind without a name.

    A name is ``default``, a folder, a ``.gguf`` file or a hub id, of which ``revision`` is a
    branch, a tag or a commit; the hub is asked only for what is not in its local cache. The type is
    float32 on a CPU, and elsewhere the checkpoint's own. A model of another ``kind`` is an error;
    None accepts both kinds.
    """
    check_arguments(name, dtype=dtype, device=device, revision=revision)

    import torch

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype = dtype or ("float32" if device.startswith("cpu") else "auto")
    device_type, _, index = device.partition(":")
    if int(index or 0) >= torch.get_device_module(device_type).device_count():
        raise RationalesError(
            f"the device {device} is not available here: leave it out, or use cpu"
        )
    if name is not None and not is_default(name):
        path = _local(name) or from_hub(name, allow_pickle, kind, revision)
    elif kind == "seq2seq":
        name, path = DEFAULT_TRANSLATOR, packaged_translator()
    else:
        name, path = default.DEFAULT_LABEL, default.get(progress=progress, download=False)
    with reading(name):
        model, tokenizer = read_model(path, name, dtype, allow_pickle, kind)
        model = model.eval().requires_grad_(False).to(device)
    if device.startswith("cpu") and model.dtype == torch.bfloat16:
        check_bfloat16()
    return LoadedModel(model, tokenizer, name, folder=path if path.is_dir() else None)


def check_arguments(name: str | None, **options: Unpack[LoadOptions]) -> None:
    """Raise for what is known to be wrong without torch: unknown values, paths that are absent."""
    check_values(LoadOptions, options)
    check_endpoint(name, **options)
    is_local = name is None or is_default(name) or _local(name) is not None
    if options.get("revision") is not None and is_local:
        raise OptionError(
            "{revision} is for hub ids, and {value} is not one: leave it out",
            value=name or "the default model",
        )


def check_endpoint(name: object, **options: Unpack[LoadOptions]) -> None:
    """Raise if what is for an endpoint is mixed with what is for a model that is loaded here."""
    if options.get("endpoint") is None:
        for each in ("endpoint_model", "budget", "repeat"):
            if options.get(each) is not None:
                raise OptionError(f"{{{each}}} is for an {{endpoint}}, and there is none: give one")
        return
    own = ("adapter", "merge", "revision", "dtype", "device", "batch_tokens")
    given = ["model"] * (name is not None) + [each for each in own if options.get(each) is not None]
    for each in given:
        raise OptionError(
            f"the {{endpoint}} has its model: leave out {{{each}}}; {{endpoint_model}} names one"
        )


def model_path(name: str | None = None) -> Path:
    """The folder on this machine that holds a model, or its GGUF file; an error if it is absent."""
    if name is None or is_default(name):
        if (path := default.find()) is None:
            raise RationalesError(default.ABSENT)
    elif (path := _local(name) or snapshot(name)) is None:
        raise RationalesError(f"{name} is not on this machine: it is fetched when first loaded")
    return path


def is_default(name: str | None) -> bool:
    """Whether a name is one of the default model."""
    return name is None or name.strip().lower() in ("default", default.DEFAULT_MODEL)


def packaged_translator() -> Path:
    """The folder of the translation model that is part of the package; an error if it is absent."""
    folder = TRANSLATORS / DEFAULT_TRANSLATOR
    if not folder.is_dir():
        raise RationalesError(
            "this installation has no translation model: give one with --model, a folder or a hub "
            "id such as Helsinki-NLP/opus-mt-fr-en"
        )
    return folder


def check_bfloat16() -> None:
    """Raise if bfloat16 does not work on this CPU.

    Some virtual machines announce instructions that they do not have, and then the process dies
    without a message. So another process tries, with matrices large enough for the fast path.
    """
    attempt = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); a @ a"
    done = subprocess.run([sys.executable, "-c", attempt], capture_output=True, check=False)
    if done.returncode < 0:
        raise RationalesError(
            "this machine announces bfloat16 instructions that it does not have: use float32, or "
            "set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 in the environment"
        )


def _local(name: str) -> Path | None:
    """The folder or the GGUF file of that name; None if the name can only be a hub id."""
    if not name.strip():
        raise RationalesError(
            "the name of the model is empty: give a hub id, a folder, or `default`"
        )
    path = os.path.expanduser(name)
    if os.path.isdir(path):
        return Path(path)
    if os.path.isfile(path):
        with suppress(OSError), open(path, "rb") as file:
            if file.read(4) == b"GGUF":
                return Path(path)
        raise RationalesError(
            f"{name} is a file, but not a GGUF file that can be read: give the folder of the model"
        )
    if name.startswith((".", "~", "/")) or "\\" in name or name.lower().endswith(".gguf"):
        raise RationalesError(f"there is no file or folder {name}: give the path of a model")
    return None
