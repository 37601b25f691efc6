"""A table of rationales: verdict, target, size and probabilities before the text or the matrix.

Verdict, target and size are always there. The others yield where there is no room for them: first
the model's own choice, which then stands below the text, then the probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from rationales.render.marks import FAINT, label, percent, shortened, size, target, verdict
from rationales.result import Explanation, Rationale, Step


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


_ALL, _KEPT, _INSTEAD = "p given\nall", "p given\nkept", "p instead\ngiven kept"
_CHOICE = "the model\nsays"
_OPTIONAL: dict[str, Callable[[Rationale], str]] = {
    _ALL: lambda r: percent(r.full_context.target_logprob if r.full_context else None),
    _KEPT: lambda r: percent(r.steps[-1].target_logprob if r.steps else None),
    _INSTEAD: lambda r: percent(r.steps[-1].contrast_logprob if r.steps else None),
    _CHOICE: lambda r: "\n".join(choices(r)),
}
"""The columns that are there if anything stands in them, and if there is room."""
_BY_IMPORTANCE = (_KEPT, _ALL, _INSTEAD, _CHOICE)


def shown(explanation: Explanation) -> list[Rationale]:
    """The rationales in the order of their rows: each is followed by its alternatives."""
    return [each for rationale in explanation for each in (rationale, *rationale.alternatives)]


def widest(texts: Sequence[str]) -> int:
    """The cells that a column of these texts takes."""
    return max(cell_len(line) for text in texts for line in text.split("\n"))


def rationale_table(
    explanation: Explanation,
    width: int,
    headings: Sequence[str],
    cells: Callable[[Rationale], list[Text]],
    *,
    rest: int,
    padding: int,
) -> tuple[Table, int]:
    """A table of at least one rationale, and the room that is left: below 0, there is too little.

    Its last columns have these headings and cells, and take at least ``rest`` of the width.
    """
    rationales = shown(explanation)
    narrow = max(8, width // 4)
    targets = [
        each
        for rationale in explanation
        for each in [target(rationale, narrow)] + [Text("or", FAINT)] * len(rationale.alternatives)
    ]
    sizes = [size(rationale) for rationale in rationales]
    always = (1, widest(["target", *(text.plain for text in targets)]), widest(["size", *sizes]))
    room = width - rest - sum(each + padding for each in always)
    texts = {title: [cell(each) for each in rationales] for title, cell in _OPTIONAL.items()}
    there: set[str] = set()
    for title in _BY_IMPORTANCE:
        if any(texts[title]):
            own = widest([title, *texts[title]]) + padding
            if own > room:
                break
            room -= own
            there.add(title)
    optional = [title for title in _OPTIONAL if title in there]

    grid = Table(box=None, padding=(0, padding, 0, 0), header_style=FAINT)
    grid.add_column("", no_wrap=True)
    grid.add_column("target", no_wrap=True)
    grid.add_column("size", justify="right", no_wrap=True)
    for title in optional:
        grid.add_column(title, justify="left" if title == _CHOICE else "right", no_wrap=True)
    for heading in headings[:-1]:
        grid.add_column(Text(heading), justify="center", no_wrap=True)
    grid.add_column(headings[-1], overflow="fold")
    for place, rationale in enumerate(rationales):
        *own_cells, text = cells(rationale)
        if _CHOICE not in there and (said := ", ".join(choices(rationale))):
            text = Text.assemble(text, (f"\nthe model says {said}", FAINT))
        leading: list[Text | str] = [verdict(rationale), targets[place], sizes[place]]
        leading += [Text(texts[title][place]) for title in optional]
        grid.add_row(*leading, *own_cells, text)
    return grid, room
