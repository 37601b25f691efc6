"""How a rationale grew, in a terminal: each unit that was added, and what the model then says."""

from __future__ import annotations

from math import exp

from rich.table import Table
from rich.text import Text

from rationales.render.columns import first_choice, widest
from rationales.render.marks import FAINT, NOT_REACHED, label, percent, shortened, verdict_style
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
    added = [shortened(_text(rationale, step), most) for step in steps]
    says = [first_choice(step, width=most // 2) for step in steps]
    tried = [
        ", ".join(
            f"{shortened(_text(rationale, each), 20)} {percent(each.target_logprob)}"
            for each in step.candidates
        )
        for step in steps
    ]
    with_contrast = any(step.contrast_logprob is not None for step in steps)
    room = width - (1 + with_contrast) * _PROBABILITY
    room -= sum(widest(["the model", *texts]) + _PADDING for texts in (added, says) if texts)
    candidates_beside = any(tried) and room >= _CANDIDATES
    room -= candidates_beside * _CANDIDATES
    bar = min(_BAR, room - _PADDING)

    columns: dict[str, list[Text]] = {"added": [Text(text) for text in added]}
    columns["p of\ntarget"] = [Text(percent(step.target_logprob)) for step in steps]
    if bar >= _BAR // 2:
        bars = ("█" * round(bar * exp(step.target_logprob)) for step in steps)
        columns[""] = [Text(each, "green") for each in bars]
    if with_contrast:
        columns["p of\ninstead"] = [Text(percent(step.contrast_logprob)) for step in steps]
    if candidates_beside:
        columns["the model\nthen says"] = [Text(said) for said in says]
        columns["best candidates"] = [Text(candidates, FAINT) for candidates in tried]
    else:
        below = (f"\nbest: {candidates}" if candidates else "" for candidates in tried)
        columns["the model\nthen says"] = [
            Text.assemble(said, (best, FAINT)) for said, best in zip(says, below, strict=True)
        ]

    name = shortened(label(rationale.target_text or ""), width // 2)
    reached = " was reached" if rationale.sufficient else " was not reached"
    grid = Table(
        title=Text.assemble("how ", (name, verdict_style(rationale)), reached),
        caption=Text(f"stopped: {rationale.stopped}", NOT_REACHED) if rationale.stopped else None,
        title_justify="left",
        caption_justify="left",
        box=None,
        padding=(0, _PADDING, 0, 0),
        header_style=FAINT,
    )
    for heading in columns:
        if heading in ("the model\nthen says", "best candidates"):
            grid.add_column(heading, overflow="fold")
        else:
            right = heading.startswith("p of")
            grid.add_column(heading, justify="right" if right else "left", no_wrap=True)
    for row in zip(*columns.values(), strict=True):
        grid.add_row(*row)
    return grid


def _text(rationale: Rationale, added: Step | Candidate) -> str:
    """What was added, or could have been: a token, or all those of a unit."""
    if added.index is None:
        return "(pinned only)"
    indices = added.unit or (added.index,)
    return label("".join(rationale.tokens[index].text for index in indices))
