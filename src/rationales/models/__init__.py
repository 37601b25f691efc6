"""Names → models: the default model, a folder, a GGUF file, or a model of the hub.

Importing this package imports neither torch nor transformers.
"""

from __future__ import annotations

from rationales.models.default import DEFAULT_LABEL, DEFAULT_MODEL, Progress
from rationales.models.folder import Kind, check_vocabulary, embedded, quietly, save_model
from rationales.models.identity import fingerprint, fingerprints
from rationales.models.listing import ModelEntry, list_models
from rationales.models.loading import (
    DEFAULT_TRANSLATOR,
    DEVICES,
    DTYPES,
    LoadedModel,
    check_arguments,
    check_bfloat16,
    is_default,
    load_model,
    model_path,
    packaged_translator,
)

__all__ = [
    "DEFAULT_LABEL",
    "DEFAULT_MODEL",
    "DEFAULT_TRANSLATOR",
    "DEVICES",
    "DTYPES",
    "Kind",
    "LoadedModel",
    "ModelEntry",
    "Progress",
    "check_arguments",
    "check_bfloat16",
    "check_vocabulary",
    "embedded",
    "fingerprint",
    "fingerprints",
    "is_default",
    "list_models",
    "load_model",
    "model_path",
    "packaged_translator",
    "quietly",
    "save_model",
]
