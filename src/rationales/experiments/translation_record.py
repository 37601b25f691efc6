"""A finished translation model: the record beside its weights, and what can be made of it.

The record says which pairs a model has not seen. A model and its record can be part of the package.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from rationales.data import sha256
from rationales.errors import RationalesError, first_line
from rationales.experiments.translation.pairs import HELD_OUT, Pair, read_pairs, split
from rationales.explainer import Explainer
from rationales.models import DEFAULT_TRANSLATOR, packaged_translator

RECORD, WEIGHTS = "training.json", "model.safetensors"
MOST_BYTES = 20_000_000
"""Of a model that is part of the package."""


def read_record(folder: Path) -> dict[str, Any]:
    """The record of a trained model; an error if the folder has none."""
    try:
        record: dict[str, Any] = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        split_of(record), record["data"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RationalesError(
            f"{folder} has no {RECORD} of `rationales experiment translation train`: give the "
            "folder of its --out"
        ) from error
    return record


def split_of(record: dict[str, Any]) -> tuple[int, int]:
    """The seed of a model's split, and how many pairs it holds out twice."""
    while "trained" in record:  # what was tuned has the split of what it was trained from
        record = record["trained"]
    return int(record["settings"]["seed"]), int(record["settings"]["held_out"])


def held_out(explainer: Explainer, file: Path) -> tuple[Pair, ...]:
    """The test pairs of the split that a translation model was trained with.

    What is not known of a model's training is taken to be as usual: it may have seen these pairs.
    """
    home = Path(explainer.name)
    if explainer.name == DEFAULT_TRANSLATOR:
        home = packaged_translator()
    known = 0, HELD_OUT
    if (home / RECORD).is_file():
        record = read_record(home)
        if record["data"].get("sha256") != sha256(file):
            raise RationalesError(
                f"{home} was trained on other pairs than {file}: what was held out would leak"
            )
        known = split_of(record)
    return split(read_pairs(file), *known).test


def export(model: str | Path, out: str | Path, overwrite: bool = False) -> Path:
    """The folder of a finished model as it can be part of the package: nothing but what loads.

    The weights are in half precision, and everything together within ``MOST_BYTES``.
    """
    from safetensors.torch import load_file, save_file

    folder, target = Path(model).expanduser(), Path(out).expanduser()
    record = read_record(folder)
    names = [WEIGHTS, *(name for name in record.get("files", ()) if name != WEIGHTS), RECORD]
    if target.exists() and any(target.iterdir()) and not overwrite:
        raise RationalesError(f"{target} is not empty: give another --out, or --overwrite")
    if folder.resolve() == target.resolve():
        raise RationalesError(f"{target} is the model itself: give another --out")
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name in names:
            file = target / Path(name).name
            if name == WEIGHTS:
                weights = load_file(folder / name)
                halves = {k: w.half() if w.is_floating_point() else w for k, w in weights.items()}
                save_file(halves, file, {"format": "pt"})
            else:
                file.write_bytes((folder / name).read_bytes())
            file.chmod(0o644)
    except (OSError, SafetensorError) as error:
        why = getattr(error, "strerror", None) or first_line(error)
        raise RationalesError(f"cannot write {folder} to {target}: {why}") from error
    size = sum((target / name).stat().st_size for name in names)
    if size > MOST_BYTES:
        raise RationalesError(
            f"{target} has {size / 1e6:.1f} MB, and a packaged model at most "
            f"{MOST_BYTES / 1e6:.0f}: train a smaller one"
        )
    return target
