"""The columns before the text or the matrix: verdict, target, size, and probabilities.

Verdict, target and size are always there. The others yield where there is no room for them: first
the model's own choice, which then stands below the text, then the probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from rationales.render.marks import (
    FAINT,
    label,
    percent,
    shortened,
    size,
    target,
    verdict,
)
from rationales.result import Explanation, Rationale, Step


@dataclass(frozen=True)
class Column:
    """A column that is there if anything stands in it, and if there is room."""

    title: str
    cell: Callable[[Rationale], str]
    justify: Literal["left", "right"] = "right"

    def width(self, rationales: Sequence[Rationale]) -> int:
        """The cells that it takes; 0 if nothing stands in it."""
        texts = [self.cell(rationale) for rationale in rationales]
        lines = "\n".join([self.title, *texts]).split("\n")
        return max(map(cell_len, lines)) if any(texts) else 0


def given_all(rationale: Rationale) -> str:
    """The target's probability given the whole context."""
    return percent(rationale.full_context.target_logprob if rationale.full_context else None)


def given_kept(rationale: Rationale) -> str:
    """The target's probability given the rationale."""
    return percent(rationale.steps[-1].target_logprob if rationale.steps else None)


def alternative(rationale: Rationale) -> str:
    """The probability of the alternative given the rationale, in a contrast."""
    return percent(rationale.steps[-1].contrast_logprob if rationale.steps else None)


def choices(rationale: Rationale) -> list[str]:
    """The model's first choices where these are not the target, with their probabilities."""
    found: dict[str, str] = {}
    if rationale.full_context is not None and rationale.predicted is False:
        found["given all"] = first_choice(rationale.full_context, '"')
    if rationale.steps and rationale.steps[-1].prediction_id != rationale.target_id:
        found["given kept"] = first_choice(rationale.steps[-1], '"')
    if len(found) == 2 and len(set(found.values())) == 1:
        return [found["given all"]]
    return [f"{said} {given}" for given, said in found.items()]


def first_choice(step: Step, quote: str = "", width: int = 20) -> str:
    """What the model says then, with its probability if that is known."""
    text = label(str(step.prediction_id) if step.prediction_text is None else step.prediction_text)
    return f"{quote}{shortened(text, width)}{quote} {percent(step.prediction_logprob)}".rstrip()


_ALL = Column("p given\nall", given_all)
_KEPT = Column("p given\nkept", given_kept)
_ALTERNATIVE = Column("p instead\ngiven kept", alternative)
_CHOICE = Column("the model\nsays", lambda rationale: "\n".join(choices(rationale)), "left")
_BY_IMPORTANCE = (_KEPT, _ALL, _ALTERNATIVE, _CHOICE)
_IN_ORDER = (_ALL, _KEPT, _ALTERNATIVE, _CHOICE)


@dataclass(frozen=True)
class Leading:
    """The first columns of a table of rationales, and which of those that may yield are there."""

    explanation: Explanation
    target_width: int
    padding: int
    columns: tuple[Column, ...]
    room: int
    """Cells that are left; below 0, there are too few for the columns that are always there."""

    def grid(self) -> Table:
        """A table with these columns, to which others can be added."""
        grid = Table(box=None, padding=(0, self.padding, 0, 0), header_style=FAINT)
        grid.add_column("", no_wrap=True)
        grid.add_column("target", no_wrap=True, vertical="top")
        grid.add_column("size", justify="right", no_wrap=True)
        for column in self.columns:
            grid.add_column(column.title, justify=column.justify, no_wrap=True)
        return grid

    def rows(self) -> Iterator[tuple[Rationale, list[Text | str]]]:
        """Each rationale and its cells; those of its alternatives come after it."""
        for rationale in self.explanation:
            yield rationale, self._cells(rationale, target(rationale, self.target_width))
            for other in rationale.alternatives:
                yield other, self._cells(other, Text("or", FAINT))

    def _cells(self, rationale: Rationale, target: Text) -> list[Text | str]:
        own = (Text(column.cell(rationale)) for column in self.columns)
        return [verdict(rationale), target, size(rationale), *own]

    def completed(self, rationale: Rationale, text: Text) -> Text:
        """The text of the last column: with the model's own choice, if that has no column."""
        said = "" if _CHOICE in self.columns else ", ".join(choices(rationale))
        return Text.assemble(text, (f"\nthe model says {said}", FAINT)) if said else text


def shown(explanation: Explanation) -> list[Rationale]:
    """The rationales in the order of their rows."""
    return [each for rationale in explanation for each in (rationale, *rationale.alternatives)]


def leading(explanation: Explanation, width: int, rest: int, padding: int) -> Leading:
    """The columns that fit in beside the ``rest``; there is at least one rationale."""
    rationales = shown(explanation)
    narrow = max(8, width // 4)
    targets = [target(rationale, narrow).cell_len for rationale in explanation]
    sizes = [len(size(rationale)) for rationale in rationales]
    always = (1, max(len("target"), *targets), max(len("size"), *sizes))
    room = width - rest - sum(each + padding for each in always)
    there: list[Column] = []
    for column in _BY_IMPORTANCE:
        if own := column.width(rationales):
            if own + padding > room:
                break
            room -= own + padding
            there.append(column)
    columns = tuple(column for column in _IN_ORDER if column in there)
    return Leading(explanation, narrow, padding, columns, room)
