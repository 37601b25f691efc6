"""How a rationale grew, in a terminal: each unit that was added, and what the model then says."""

from __future__ import annotations

from math import exp

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from rationales.render.columns import first_choice
from rationales.render.marks import (
    FAINT,
    NOT_REACHED,
    label,
    percent,
    shortened,
    verdict_style,
)
from rationales.result import Candidate, Rationale, Step

_PADDING = 2
_PROBABILITY = 7 + _PADDING
_CANDIDATES = 24 + _PADDING
_BAR = 20


def steps_table(rationale: Rationale, width: int) -> Table:
    """Each step: what was added, the target's probability, the model's choice, the candidates.

    The middle of long units is left out. Where there is no room the bars go, and the candidates
    stand below the model's choice.
    """
    steps = rationale.steps
    most = max(12, width // 3)
    added = [shortened(_added(rationale, step), most) for step in steps]
    says = [first_choice(step, width=most // 2) for step in steps]
    with_contrast = any(step.contrast_logprob is not None for step in steps)
    with_candidates = any(step.candidates for step in steps)
    room = width - _widest(added) - _widest(says) - (1 + with_contrast) * _PROBABILITY
    candidates_beside = with_candidates and room >= _CANDIDATES
    room -= candidates_beside * _CANDIDATES
    bar = min(_BAR, room - _PADDING)
    with_bar = bar >= _BAR // 2

    grid = Table(title=_title(rationale, width), title_justify="left", box=None)
    grid.padding = (0, _PADDING, 0, 0)
    grid.header_style = FAINT
    grid.add_column("added", no_wrap=True)
    grid.add_column("p of\ntarget", justify="right", no_wrap=True)
    if with_bar:
        grid.add_column("", no_wrap=True)
    if with_contrast:
        grid.add_column("p of\ninstead", justify="right", no_wrap=True)
    grid.add_column("the model\nthen says", overflow="fold")
    if candidates_beside:
        grid.add_column("best candidates", overflow="fold")
    for step, text, said in zip(steps, added, says, strict=True):
        row: list[str | Text] = [Text(text), percent(step.target_logprob)]
        if with_bar:
            row.append(Text("█" * round(bar * exp(step.target_logprob)), "green"))
        if with_contrast:
            row.append(percent(step.contrast_logprob))
        candidates = _candidates(rationale, step)
        if candidates_beside:
            row += [Text(said), Text(candidates, FAINT)]
        else:
            below = f"\nbest: {candidates}" if candidates else ""
            row.append(Text.assemble(said, (below, FAINT)))
        grid.add_row(*row)
    if rationale.stopped:
        grid.caption = Text(f"stopped: {rationale.stopped}", NOT_REACHED)
        grid.caption_justify = "left"
    return grid


def _title(rationale: Rationale, width: int) -> Text:
    return Text.assemble(
        "how ",
        (shortened(label(rationale.target_text or ""), width // 2), verdict_style(rationale)),
        " was reached" if rationale.sufficient else " was not reached",
    )


def _added(rationale: Rationale, step: Step) -> str:
    return "(pinned only)" if step.index is None else label(_unit_text(rationale, step))


def _candidates(rationale: Rationale, step: Step) -> str:
    return ", ".join(
        f"{shortened(label(_unit_text(rationale, each)), 20)} {percent(each.target_logprob)}"
        for each in step.candidates
    )


def _unit_text(rationale: Rationale, added: Step | Candidate) -> str:
    """The characters of what was added, or could have been: a token, or all those of a unit."""
    assert added.index is not None
    indices = added.unit or (added.index,)
    return "".join(rationale.tokens[index].text for index in indices)


def _widest(texts: list[str]) -> int:
    return max(len("the model"), *map(cell_len, texts)) + _PADDING if texts else 0
