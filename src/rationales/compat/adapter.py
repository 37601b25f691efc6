"""Adapters on disk: which model one belongs to, and that model with its adapter.

adapter_config.json, adapter_model.safetensors   as peft writes them
compat.json                                      how it was trained, and for which weights
"""

from __future__ import annotations

import copy
import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rationales.errors import OptionError, RationalesError, RationalesWarning, cannot
from rationales.models.files import reading
from rationales.models.identity import fingerprint, is_quantized

if TYPE_CHECKING:
    from transformers import PreTrainedModel

RECORD = "compat.json"
WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"


def read_record(folder: str | Path) -> dict[str, Any]:
    """The ``compat.json`` of an adapter's folder: its base, its training, its data."""
    path = Path(folder) / RECORD
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        record["base"]["fingerprints"]["float32"]
    except FileNotFoundError as error:
        raise RationalesError(
            f"{folder} holds no adapter of this package (no {RECORD}): "
            "train one with `rationales compat train`"
        ) from error
    except OSError as error:
        raise cannot("read", path, error) from error
    except (ValueError, KeyError, TypeError) as error:
        raise RationalesError(f"{path} is damaged: train or fetch the adapter again") from error
    return dict(record)


def check_adapter(folder: str | Path) -> dict[str, Any]:
    """The record of the adapter in a folder; an error if there is none, or none of its weights."""
    record = read_record(folder)
    if not (Path(folder) / WEIGHTS).is_file():
        raise OptionError(
            "{folder} holds no {weights}: if all weights were trained, give it as {model}",
            folder=folder,
            weights=WEIGHTS,
        )
    return record


def check_base(model: PreTrainedModel, record: dict[str, Any], folder: str | Path) -> None:
    """Raise if the adapter in this folder, with this record, is that of another model.

    Quantised weights are no longer those that it was trained for: a warning says so.
    """
    base = record["base"]
    dtype = str(model.dtype).removeprefix("torch.")
    if is_quantized(model):
        warnings.warn(
            f"the weights of this {model.config.model_type} model are quantised: whether the "
            f"adapter in {folder} was trained for it cannot be checked",
            RationalesWarning,
            stacklevel=2,
        )
    elif base["fingerprints"].get(dtype) != fingerprint(model):
        raise RationalesError(
            f"the adapter in {folder} was trained for {base.get('name', 'another model')}, "
            f"not for this {model.config.model_type} model: leave it out, or train one for it"
        )


def load_adapter(
    model: PreTrainedModel, folder: str | Path, merge: bool | None = None
) -> PreTrainedModel:
    """The model with the adapter, which is a second model; the first stays as it is.

    An adapter of another model is refused: its base is recorded beside it. ``merge`` says whether
    the adapter is added to the weights, in a copy of them; if it is None, the model's size does
    (``lora.MERGED_BELOW``).
    """
    check_base(model, check_adapter(folder), folder)
    from rationales.compat.lora import adapted, read_updates

    with reading(f"the adapter in {folder}"):
        updates = read_updates(model, Path(folder))
        if updates is not None:
            return adapted(model, updates, merge)
        if merge is False:
            raise OptionError(
                "the adapter in {folder} is more than low-rank updates of linear layers, and has "
                "to be merged: leave out {merge}",
                folder=folder,
            )
        return _merged_by_peft(model, folder)


def _merged_by_peft(model: PreTrainedModel, folder: str | Path) -> PreTrainedModel:
    """A copy of the model with an adapter of any kind merged into its weights."""
    import torch
    from peft import PeftModel  # here, as it takes a second

    merged: Any = copy.deepcopy(model).to(torch.float32)  # type: ignore[arg-type]  # what an adapter adds is lost in fewer bits
    adapted = PeftModel.from_pretrained(merged, folder, torch_device=str(model.device))
    merged = adapted.merge_and_unload(safe_merge=True)
    result: PreTrainedModel = merged.to(model.dtype).requires_grad_(False).eval()
    return result
