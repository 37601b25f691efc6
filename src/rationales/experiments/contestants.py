"""The methods that a table compares: names, options, and how the paper calls them.

Importances with a sign can be ranked by it or without it. Such a baseline runs in both forms, from
one attribution, and a table shows the stronger of the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from rationales.context import Context
from rationales.errors import RationalesError
from rationales.explainer import Explainer
from rationales.methods import BASELINES, METHODS, SIGNED
from rationales.options import READ_BY, Options
from rationales.ranking import Ranker, make_ranker

LABELS = {
    "greedy": "greedy",
    "greedy-minimal": "greedy, minimal",
    "greedy-fast": "greedy, fast",
    **{name: METHODS[name].label for name in BASELINES},
}
OF_TRANSLATIONS = tuple(n for n in LABELS if n not in METHODS or not METHODS[n].causal_only)
"""What there is for encoder–decoders: a rollout follows one stack of layers."""


@dataclass(frozen=True)
class Method:
    """One way to find a rationale; ``row`` is the row of the table that it competes for."""

    name: str
    row: str
    label: str
    options: Options
    after: str | None = None
    """The method whose rationales this one starts from."""


def contestants(
    names: Sequence[str] | None = None,
    seed: int = 0,
    steps: int = 100,
    max_size: int | None = None,
    known: Sequence[str] = tuple(LABELS),
) -> list[Method]:
    """The methods of these names, signed baselines twice.

    If there are no names, all that are known but ``greedy-fast``, which is not the paper's
    algorithm. ``seed`` is that of the random order, ``steps`` those of integrated gradients. No
    search goes beyond ``max_size`` tokens: what is not sufficient by then is not sufficient.
    """
    wanted = [name for name in known if name != "greedy-fast"] if names is None else list(names)
    for name in wanted:
        if name not in known:
            raise RationalesError(f"unknown method {name!r}: choose from {', '.join(known)}")
    if not wanted:
        raise RationalesError(f"no methods: choose from {', '.join(known)}")
    if "greedy-minimal" in wanted and "greedy" not in wanted:
        raise RationalesError("greedy-minimal starts from greedy's rationales: name greedy too")
    found: list[Method] = []
    for name in (each for each in LABELS if each in wanted):
        options = Options(max_size=max_size)
        read = {"seed": seed, "ig_steps": steps}
        own = {option: value for option, value in read.items() if name in READ_BY[option]}
        label = LABELS[name]
        if name in SIGNED:
            for form, absolute in (("signed", False), ("absolute", True)):
                full = name if form == "signed" else f"{name}-absolute"
                changed = options.change(method=name, absolute=absolute, **own)
                found.append(Method(full, name, f"{label} ({form})", changed))
        elif name == "greedy-minimal":
            found.append(Method(name, name, label, options.change(minimal=True), after="greedy"))
        elif name == "greedy-fast":
            found.append(Method(name, name, label, options.change(fast=True)))
        else:
            found.append(Method(name, name, label, options.change(method=name, **own)))
    return found


def check_limit(limit: int | None) -> None:
    """Raise if a limit on the number of examples leaves none."""
    if limit is not None and limit < 1:
        raise RationalesError(f"limit must be at least 1, not {limit}")


@dataclass
class Rankings:
    """The importances of a model's baselines, each attribution made once."""

    explainer: Explainer
    _known: dict[tuple[str, Context], list[float]] = field(default_factory=dict)

    def ranker(self, options: Options, contexts: Iterable[Context] = ()) -> Ranker | None:
        """The ranker that the options call for; None for a search that has no order.

        ``contexts`` are those that will be ranked: where it can, the ranker takes them together.
        """
        if options.method not in BASELINES:
            return None
        signed = make_ranker(
            options.method,
            self.explainer.model,
            seed=options.value("seed"),
            ig_steps=options.ig_steps,
            batch_tokens=getattr(self.explainer.scorer, "batch_tokens", 4096),
        )
        found = _Remembering(signed, options.method, self._known)
        found.rank(list(contexts))
        return found

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()


@dataclass(frozen=True)
class _Remembering:
    """A ranker that looks up what it has ranked before."""

    inner: Ranker
    method: str
    known: dict[tuple[str, Context], list[float]]

    def rank(self, contexts: Sequence[Context]) -> list[list[float]]:
        """The importances; contexts that are new are ranked together."""
        new = [context for context in contexts if self._key(context) not in self.known]
        for context, found in zip(new, self.inner.rank(new), strict=True):
            self.known[self._key(context)] = found
        return [list(self.known[self._key(context)]) for context in contexts]

    def _key(self, context: Context) -> tuple[str, Context]:
        """What an importance depends on: not on what a search may add, or has already."""
        return self.method, replace(context, required=(), units=None)
