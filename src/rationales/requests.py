"""What is asked of an explainer, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from rationales.errors import RationalesError
from rationales.options import Options
from rationales.result import Explanation


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
    """How far a run is: targets explained, targets known by now, subsets scored."""

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
