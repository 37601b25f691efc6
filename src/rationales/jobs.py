"""What is asked of an explainer, and how far it has come with it."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass, field, replace

from rationales.context import Context, Subset
from rationales.errors import RationalesError
from rationales.methods import Means, make_search
from rationales.options import Options
from rationales.result import Explanation, Rationale
from rationales.scoring.protocol import Score
from rationales.text import Passage


@dataclass(frozen=True)
class Request:
    """One text to explain, and what to ask of it; the id comes back with the answer."""

    text: str
    options: Options = field(default_factory=Options)
    id: str | int | None = None


@dataclass(frozen=True)
class Failure:
    """The answer to a request that could not be explained: what is wrong with it."""

    error: RationalesError
    id: str | int | None = None


@dataclass(frozen=True)
class Progress:
    """How far a run is: targets explained, targets known so far, subsets scored."""

    done: int = 0
    total: int = 0
    evaluations: int = 0


class Interrupted(KeyboardInterrupt):
    """The run was interrupted; ``explanations`` hold the targets that were finished.

    They are those that were not handed out before: texts of which some target was finished.
    """

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
    error: RationalesError | None = None
    evaluations: set[str] = field(default_factory=set)
    started: float = field(default_factory=time.perf_counter)

    @property
    def finished(self) -> bool:
        """Whether all its targets are explained."""
        return len(self.found) == len(self.targets)

    @property
    def over(self) -> bool:
        """Whether it can be answered: by an explanation, or by what went wrong."""
        return self.finished or self.error is not None

    def context(self, target: int) -> Context:
        """What may be kept for this target, and what is asked of it."""
        context = replace(self.passage.context(target), asked=self.asked, span=self.span)
        return context if self.units is None else context.grouped(self.units)

    def search(self, context: Context) -> Generator[list[Subset], list[Score], None]:
        """The search that the request asks for; what it finds, or an error, is noted here."""
        try:
            search = make_search(context, self.request.options, self.means)
            self.found.append((yield from search))
        except RationalesError as error:
            self.error = self.error or error
