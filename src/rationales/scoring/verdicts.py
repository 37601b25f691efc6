"""The verdicts of self-tests, remembered in the user's cache folder.

A self-test takes several forward passes at each start. What it tests is the code that runs: the
class of the model, its configuration, the libraries, this package. Where all of that is the same,
so is the verdict. A model that was changed (hooks, modules that are not of torch or transformers,
quantised weights) is tested each time; so is one that is refused.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rationales import __version__
from rationales.cache import cache_folder, keep_json, read_json
from rationales.errors import RationalesError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FOLDER = "self-tests"
_KNOWN_CODE = ("torch.nn.", "transformers.")


class Verdicts:
    """The verdicts about a model, a JSON value for each test of a scorer."""

    def __init__(self, model: PreTrainedModel, scorer: str) -> None:
        self._files: Path | None = None
        if _is_unchanged(model):
            key = json.dumps([scorer, _tested(model)], sort_keys=True, default=repr)
            with suppress(RationalesError):  # without a home folder, nothing is remembered
                name = hashlib.sha256(key.encode()).hexdigest()[:32]
                self._files = cache_folder() / FOLDER / name

    def recall(self, test: str) -> Any:
        """The verdict of a test; None if there is none, or it cannot be read."""
        return None if self._files is None else read_json(self._file(self._files, test))

    def remember(self, test: str, verdict: Any) -> None:
        """Write a verdict for the next time; where that is not possible, it is tested again."""
        if self._files is not None:
            keep_json(self._file(self._files, test), verdict)

    @staticmethod
    def _file(files: Path, test: str) -> Path:
        return files.with_name(f"{files.name}-{test}.json")


def _is_unchanged(model: PreTrainedModel) -> bool:
    """Whether only code of torch and transformers runs, on plain weights."""
    import torch

    return all(
        type(module).__module__.startswith(_KNOWN_CODE)
        and not (module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))
        for module in model.modules()
    ) and all(type(weight) is torch.nn.Parameter for weight in model.parameters())


def _tested(model: PreTrainedModel) -> dict[str, Any]:
    """All that a verdict depends on."""
    import torch
    import transformers

    config: Any = model.config
    text = config.get_text_config(decoder=True)
    return {
        "versions": [__version__, torch.__version__, transformers.__version__],
        "source": _source(),
        "config": {k: v for k, v in config.to_dict().items() if k != "_name_or_path"},
        "attention": [config._attn_implementation, text._attn_implementation],
        "modules": [(name, _class(module)) for name, module in model.named_modules()],
        "weights": [
            (name, list(weight.shape), str(weight.dtype), weight.device.type)
            for name, weight in model.named_parameters()
        ],
    }


def _class(module: Any) -> str:
    return f"{type(module).__module__}.{type(module).__qualname__}"


@cache
def _source() -> str:
    """A digest of the code that tests and that is tested, for those who change it."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()
