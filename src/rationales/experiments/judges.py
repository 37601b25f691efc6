"""Whose predictions are explained: the model with its adapter and without, and what they are.

The settings of a run hold fingerprints of weights and data, so that a run does not go on with
another model, another adapter or other examples than it began with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rationales import explainer as explaining
from rationales.compat.adapter import WEIGHTS
from rationales.context import Context
from rationales.data import data_file, sha256
from rationales.errors import RationalesError
from rationales.explainer import Explainer
from rationales.models import fingerprint
from rationales.scoring.adapted import AdaptedScorer


def judges(explainer: Explainer) -> list[Explainer]:
    """The explainer itself, and if it has an adapter the one without it."""
    return [explainer, bare(explainer)] if explainer.adapter is not None else [explainer]


def bare(explainer: Explainer) -> Explainer:
    """The explainer without its adapter."""
    if not isinstance(explainer.scorer, AdaptedScorer):
        return explainer
    base = explainer.scorer.base
    return Explainer(base, explainer.tokenizer, name=explainer.name, model=base.model)


def identity(
    explainer: Explainer, adapter: str | None, data: Sequence[str | Path]
) -> dict[str, Any]:
    """What makes a run that of this model and data; ``adapter`` is the folder it came from."""
    model = bare(explainer).model
    if model is None:
        raise RationalesError("the experiments look inside the model: a black box will not do")
    return {
        "model": Path(explainer.name).name if Path(explainer.name).exists() else explainer.name,
        "model_fingerprint": fingerprint(model),
        "adapter": explainer.adapter,
        "adapter_sha256": _adapter_digest(explainer, adapter),
        "data_sha256": {
            file.name if isinstance(file, Path) else file: sha256(
                file if isinstance(file, Path) else data_file(file)
            )
            for file in data
        },
    }


def predictions(explainer: Explainer, contexts: Mapping[str, Context]) -> dict[str, bool]:
    """Whether the model predicts each target from its whole context."""
    limit = getattr(explainer.scorer, "max_positions", None)
    for name, context in contexts.items():
        tokens = max(context.source, len(context.ids) - context.source)  # each side has its own
        if limit is not None and tokens > limit:
            raise RationalesError(
                f"the context of {name} has {tokens} tokens, and the model has positions "
                f"for {limit}: take another model"
            )
    queries = [(each, each.keep(each.everything)) for each in contexts.values()]
    scores = explainer.scorer.score(queries)
    return {
        name: score.prediction_id == context.target_id
        for (name, context), score in zip(contexts.items(), scores, strict=True)
    }


def _adapter_digest(explainer: Explainer, adapter: str | None) -> str | None:
    if explainer.adapter is None:
        return None
    if adapter is None or adapter == explaining.DEFAULT_ADAPTER:
        package = Path(explaining.__file__).parent
        return sha256(package / "adapters" / explaining.DEFAULT_ADAPTER / WEIGHTS)
    return sha256(Path(adapter).expanduser() / WEIGHTS)
