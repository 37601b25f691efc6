"""The methods by name: what each does, what a table calls it, and which models it works with.

Light on purpose: the command line lists the methods without loading torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["search", "gradient", "attention", "control"]


@dataclass(frozen=True)
class Method:
    """One way to find a rationale."""

    name: str
    help: str
    """What it does, for the command line."""
    label: str
    """What tables and figures call it."""
    kind: Kind
    """A search of its own, or where a baseline's order comes from; a control needs no model."""
    signed: bool = False
    """Whether the importances have a sign, so that their absolute values are another order."""
    causal_only: bool = False
    """Whether it works with language models only, and not with encoder–decoders."""


_ROWS = (
    Method(
        "greedy",
        "add the token that helps most, until the target is the model's first choice",
        "greedy",
        "search",
    ),
    Method(
        "exhaustive",
        "try every subset, small ones first: a smallest rationale, at a price",
        "exhaustive",
        "search",
    ),
    Method(
        "beam", "keep the best few subsets of each size: never longer than greedy", "beam", "search"
    ),
    Method(
        "deletion",
        "leave out halves of the context while it is sufficient (QuickXplain): needs no "
        "probabilities",
        "deletion",
        "search",
    ),
    Method("soft", "weigh size against probability, sufficient or not", "soft", "search"),
    Method(
        "gradient-norm", "add by the norm of the embedding's gradient", "gradient norms", "gradient"
    ),
    Method(
        "gradient-x-embedding",
        "add by gradient times embedding",
        "gradient × embedding",
        "gradient",
        signed=True,
    ),
    Method(
        "integrated-gradients",
        "add by gradients integrated from zero embeddings",
        "integrated gradients",
        "gradient",
        signed=True,
    ),
    Method(
        "attention-rollout",
        "add by attention rolled out through the layers",
        "attention rollout",
        "attention",
        causal_only=True,
    ),
    Method(
        "last-attention", "add by the last layer's attention", "last attention layer", "attention"
    ),
    Method(
        "all-attention", "add by the attention of all layers", "all attention layers", "attention"
    ),
    Method("random", "add in random order (a control)", "random (control)", "control"),
    Method(
        "nearest-first",
        "add from the target backwards (a control)",
        "nearest first (control)",
        "control",
    ),
)
METHODS = {method.name: method for method in _ROWS}
"""All methods: the searches, then the paper's baselines in its order, then two controls."""

SEARCHES = tuple(name for name, method in METHODS.items() if method.kind == "search")
BASELINES = tuple(name for name, method in METHODS.items() if method.kind != "search")
"""The methods that add tokens in a fixed order."""
CONTROLS = tuple(name for name, method in METHODS.items() if method.kind == "control")
"""The baselines that need no model."""
SIGNED = tuple(name for name, method in METHODS.items() if method.signed)
