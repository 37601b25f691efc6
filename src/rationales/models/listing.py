"""The models on this machine that can be loaded by name."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from rationales.models import default
from rationales.models.files import file_names, missing_files


@dataclass(frozen=True)
class ModelEntry:
    """One model that can be named: what it is, where it is, and whether it can be used at once."""

    name: str
    label: str
    path: Path | None
    size_bytes: int
    state: str


def list_models() -> list[ModelEntry]:
    """The default model, then the causal language models in the hub's local cache, by name."""
    from huggingface_hub import CacheNotFound, constants, scan_cache_dir

    folder, size, state = default.find(), 0, "not here: run `rationales model get`"
    if folder is not None:
        size, state = sum(file.stat().st_size for file in folder.iterdir()), "ready"
    elif (gguf := default.installed_gguf()) is not None:
        size, state = gguf.stat().st_size, "converted when first used"
    own = ModelEntry(default.DEFAULT_MODEL, default.DEFAULT_LABEL, folder, size, state)
    try:
        repos = scan_cache_dir(constants.HF_HUB_CACHE).repos
    except (CacheNotFound, OSError, ValueError):
        return [own]
    found = []
    for repo in repos:
        for cached in repo.revisions if repo.repo_type == "model" else ():
            folder = cached.snapshot_path
            try:
                config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
                stated = str(config["architectures"][0])
            except (OSError, ValueError, LookupError, TypeError):
                continue
            # Judged by its name: to ask transformers would import torch for a list.
            causal = stated.endswith(("ForCausalLM", "LMHeadModel"))
            if causal and not config.get("is_encoder_decoder"):
                state = missing_files(file_names(folder), allow_pickle=False) or "ready"
                if "main" not in cached.refs:
                    state += f" (revision {min(cached.refs, default=cached.commit_hash)})"
                found.append(ModelEntry(repo.repo_id, stated, folder, cached.size_on_disk, state))
    return [own, *sorted(found, key=lambda entry: entry.name.lower())]
