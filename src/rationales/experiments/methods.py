"""The methods that a table compares: names, options, and how the paper calls them.

Importances with a sign can be ranked by it or without it. Such a baseline runs in both forms, and a
table shows the one with the shorter rationales.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge

from rationales.checking import check_fields
from rationales.errors import RationalesError
from rationales.methods import BASELINES, METHODS, SIGNED
from rationales.options import READ_BY, Options

LABELS = {
    "greedy": METHODS["greedy"].label,
    "greedy-minimal": "greedy, minimal",
    "greedy-fast": "greedy, fast",
    **{name: METHODS[name].label for name in BASELINES},
}
"""The methods that can be compared, in the order of a table."""

OF_TRANSLATIONS = tuple(n for n in LABELS if n not in METHODS or not METHODS[n].causal_only)
"""Those that encoder–decoders have."""


@dataclass(frozen=True)
class Compared:
    """One method of a table."""

    name: str
    label: str
    options: Options
    after: str | None = None
    """The method whose rationales this one starts from."""

    @property
    def row(self) -> str:
        """The row in which it or its other form is shown."""
        return self.name.removesuffix("-absolute")


@dataclass(frozen=True)
class Choice:
    """Which examples and methods a run is about."""

    known: ClassVar[Sequence[str]] = tuple(LABELS)
    """The methods that may be compared."""

    limit: Annotated[int, Ge(1)] | None = None
    """Only N examples, drawn at random."""
    methods: tuple[str, ...] | None = None
    """Only these methods, separated by commas: greedy,all-attention."""
    seed: Annotated[int, Ge(0)] = 0
    """Seed of everything that is random."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.methods is not None:
            names, known = split_names(self.methods), ", ".join(self.known)
            object.__setattr__(self, "methods", names)
            if not names:
                raise RationalesError(f"no methods: choose from {known}")
            for name in names:
                if name not in self.known:
                    raise RationalesError(f"unknown method {name!r}: choose from {known}")
            if "greedy-minimal" in names and "greedy" not in names:
                raise RationalesError(
                    "greedy-minimal starts from greedy's rationales: name greedy too"
                )


@dataclass(frozen=True)
class Settings(Choice):
    """The settings that all comparisons of methods have."""

    ig_steps: Annotated[int, Ge(1)] = 100
    """Steps of integrated gradients."""
    max_size: Annotated[int, Ge(0)] | None = None
    """Rationales of at most N tokens; 0: no limit. One that is not sufficient then counts as the
    whole context."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "max_size", self.max_size or None)

    @property
    def compared(self) -> list[Compared]:
        """The methods that are compared in the order of the table, signed baselines twice.

        If none are named, all that are known but ``greedy-fast``, which is not the paper's
        algorithm.
        """
        wanted = self.methods or [name for name in self.known if name != "greedy-fast"]
        variants = {"greedy-minimal": {"minimal": True}, "greedy-fast": {"fast": True}}
        read: dict[str, Any] = {"seed": self.seed, "ig_steps": self.ig_steps}
        found: list[Compared] = []
        for name, label in LABELS.items():
            if name not in wanted:
                continue
            own = variants.get(name, {"method": name})
            own = own | {option: read[option] for option in read if name in READ_BY[option]}
            options = Options(max_size=self.max_size).change(**own)
            if name in SIGNED:
                absolute = options.change(absolute=True)
                found.append(Compared(name, f"{label} (signed)", options))
                found.append(Compared(f"{name}-absolute", f"{label} (absolute)", absolute))
            else:
                after = "greedy" if options.minimal else None
                found.append(Compared(name, label, options, after))
        return found


def split_names(names: Sequence[str]) -> tuple[str, ...]:
    """The names, where some may stand together with commas between them."""
    every = (name.strip() for each in names for name in each.split(","))
    return tuple(name for name in every if name)
