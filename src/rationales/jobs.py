"""What is asked of an explainer, and how far it has come with it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from rationales.context import Context, Subset
from rationales.methods import Means, make_search
from rationales.options import Options
from rationales.passage import Passage
from rationales.rationale import Explanation, Rationale
from rationales.search.base import Search


@dataclass(frozen=True)
class Request:
    """One text to explain, and what to ask of it; the id comes back with the answer."""

    text: str
    options: Options = field(default_factory=Options)
    id: str | int | None = None


@dataclass(frozen=True)
class Progress:
    """How far a run is: targets explained, targets known so far, subsets scored."""

    done: int = 0
    total: int = 0
    evaluations: int = 0


class Interrupted(KeyboardInterrupt):
    """The run was interrupted; ``explanations`` hold the targets that were finished."""

    def __init__(self, explanations: list[Explanation]) -> None:
        super().__init__("interrupted")
        self.explanations = explanations


@dataclass(eq=False)
class Job:
    """A request under way: its passage, its targets, and what was found so far."""

    request: Request
    passage: Passage
    targets: list[int]
    unexplainable: tuple[int, ...]
    means: Means
    units: tuple[Subset, ...] | None
    asked: tuple[int, ...]
    span: tuple[int, ...]
    found: list[Rationale] = field(default_factory=list)
    evaluations: set[str] = field(default_factory=set)
    started: float = field(default_factory=time.perf_counter)

    @property
    def finished(self) -> bool:
        return len(self.found) == len(self.targets)

    def context(self, target: int) -> Context:
        """What may be kept for this target, and what is asked of it."""
        context = replace(self.passage.context(target), asked=self.asked, span=self.span)
        return context if self.units is None else context.grouped(self.units)

    def search(self, context: Context) -> Search:
        """The search that the request asks for."""
        return make_search(context, self.request.options, self.means)
