"""The models that a server is started with, by the names that its page shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from rationales.errors import RationalesError
from rationales.explainer import Explainer
from rationales.loading import load
from rationales.models.default import OnStage


def load_models(
    names: Sequence[str],
    adapter: str | Literal[False] | None,
    progress: OnStage,
    *,
    endpoints: Sequence[str] = (),
    endpoint_model: str | None = None,
    budget: int | None = None,
) -> dict[str, Explainer]:
    """The explainers of these models, loaded; one with an adapter is there without it too.

    ``adapter`` is that of the first model. If there are no names and no endpoints: the default
    model and the packaged translation model.
    """
    given: Sequence[str | None] = names or ([] if endpoints else [None])
    found = [
        load(name, adapter=adapter if place == 0 else None, progress=progress)
        for place, name in enumerate(given)
    ]
    found += [
        load(endpoint=url, endpoint_model=None if place else endpoint_model, budget=budget)
        for place, url in enumerate(endpoints)
    ]
    if not (names or endpoints):
        found.append(load(kind="seq2seq", progress=progress))
    explainers: dict[str, Explainer] = {}
    for each in found:
        name = Path(each.name).name if Path(each.name).exists() else each.name
        if name in explainers:
            name = each.name
        if name in explainers:
            raise RationalesError(f"the model {name} is named twice: name it once")
        explainers[name] = each
        if each.adapter is not None:
            explainers[f"{name}, without adapter"] = each.without_adapter()
    return explainers
