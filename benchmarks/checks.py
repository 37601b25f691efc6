"""What the benchmark checks one subset at a time, beside everything that is batched or fast."""

import copy
from collections.abc import Collection, Sequence
from typing import Any

import torch
from settings import Item

TOLERANCE = 1e-4
"""Log-probabilities this close, in nats, are equal; at just this distance, rounding decides."""


def is_sufficient(models: "Models", item: Item, kept: Collection[int]) -> bool:
    """Whether these tokens yield the target: float32, the whole context, a mask over the rest."""
    seen = {*kept, *(i for i in item.pinned if i < item.target)}
    mask = torch.tensor([[int(i in seen) for i in range(item.target)]])
    with torch.no_grad():
        logits = models.of(item, seen)(
            input_ids=torch.tensor([item.ids[: item.target]]),
            attention_mask=mask,
            position_ids=torch.arange(item.target)[None],
            use_cache=False,
            logits_to_keep=1,
        ).logits
    logprobs = logits[0, -1].log_softmax(dim=-1)
    return bool(logprobs[item.ids[item.target]] >= logprobs.max() - TOLERANCE)


def difference(
    models: "Models", item: Item, published: Sequence[int], exact: Sequence[int]
) -> dict | None:
    """Where two greedy rationales part and how far apart the two choices are; None if nowhere.

    Where one has stopped and the other goes on, the two choices are the target and the model's
    best other token.
    """
    if list(published) == list(exact):
        return None
    same = 0
    while same < min(len(published), len(exact)) and published[same] == exact[same]:
        same += 1
    prefix, y = list(published[:same]), item.ids[item.target]
    if same < min(len(published), len(exact)):
        one, other = (_in_float64(models, item, [*prefix, p[same]])[y] for p in (published, exact))
        what = f"step {same}: {published[same]} (published) or {exact[same]} (exact)"
    else:
        logprobs = _in_float64(models, item, prefix)
        one = logprobs[y].clone()
        logprobs[y] = -torch.inf
        other = logprobs.max()
        what = f"after step {same - 1}: one is sufficient, the other is not"
    nats = abs(float(one - other))
    return {"what": what, "nats": nats, "tie": nats <= TOLERANCE}


class Models:
    """The model for subsets and the one for whole contexts, and copies of them in float64."""

    def __init__(self, scorer: Any) -> None:
        self.subsets = getattr(scorer, "adapted", scorer).model
        self.whole = getattr(scorer, "base", scorer).model
        self._copies: dict[int, Any] = {}

    def of(self, item: Item, seen: Collection[int]) -> Any:
        return self.whole if len(seen) == item.target else self.subsets

    def in_float64(self, item: Item, seen: Collection[int]) -> Any:
        model = self.of(item, seen)
        if id(model) not in self._copies:
            self._copies[id(model)] = _to_float64(model)
        return self._copies[id(model)]


def _in_float64(models: Models, item: Item, kept: Collection[int]) -> torch.Tensor:
    """log p(· | kept tokens), over the vocabulary, of this one subset."""
    places = sorted({*kept, *(i for i in item.pinned if i < item.target)})
    with torch.no_grad():
        logits = models.in_float64(item, places)(
            input_ids=torch.tensor([[item.ids[i] for i in places]]),
            attention_mask=torch.ones(1, len(places), dtype=torch.long),
            position_ids=torch.tensor([places]),
            use_cache=False,
            logits_to_keep=1,
        ).logits
    assert logits.dtype == torch.float64
    return logits[0, -1].log_softmax(dim=-1)


def _to_float64(model: Any) -> Any:
    """A copy in float64; norms too, which the Llama family always computes in float32."""
    model = copy.deepcopy(model).double()
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm") and hasattr(module, "variance_epsilon"):
            module.forward = _rms_norm(module)
    return model


def _rms_norm(module: Any) -> Any:
    def forward(x: torch.Tensor) -> torch.Tensor:
        mean = x.pow(2).mean(-1, keepdim=True)
        return module.weight * x * torch.rsqrt(mean + module.variance_epsilon)

    return forward
