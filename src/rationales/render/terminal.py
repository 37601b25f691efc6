"""An explanation in a terminal: one row a target, its rationale highlighted in the text."""

from __future__ import annotations

from math import exp

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rationales.rationale import Candidate, Explanation, Rationale, Step

KEPT = "bold #000000 on #ffd75f"
DROPPED = "#8a8a8a"
PINNED = "italic #626262"
ENOUGH = "bold green"
NOT_ENOUGH = "bold red"

_ROOM_AROUND = 40
"""Characters of dropped text shown beside kept tokens; what is longer is cut out of the middle."""


def show(explanation: Explanation, *, steps: bool = False, console: Console | None = None) -> None:
    """Print the explanation; with ``steps``, how each rationale grew."""
    console = console or Console()
    console.print(header(explanation))
    for index in explanation.unexplainable:
        text = visible(explanation.tokens[index].text)
        console.print(Text(f"token {index} {text!r} has nothing before it: unexplainable"))
    if explanation.rationales:
        console.print(_overview(explanation, console.width))
        console.print(legend(explanation))
    if steps:
        for rationale in explanation:
            console.print()
            console.print(steps_table(rationale))


def _overview(explanation: Explanation, width: int) -> Table:
    """All targets at a glance: a matrix for a translation, if it fits in, else the texts."""
    from rationales.render.matrix import matrix

    return matrix(explanation, width) or table(explanation)


def header(explanation: Explanation) -> Text:
    """The line that says what was run."""
    parts = [
        explanation.model,
        *(["compatible"] if explanation.adapter else []),
        explanation.method,
        *_options(explanation),
        f"{explanation.evaluation} evaluation",
        f"{explanation.seconds:.1f} s",
    ]
    if not explanation.complete:
        parts.append("interrupted: only the finished targets")
    return Text(" · ".join(parts), style="bright_black")


def _options(explanation: Explanation) -> list[str]:
    """The options that shaped the rationales, in words: ``fast``, ``unit word``, ``span``."""
    return [
        name.replace("_", "-") if value is True else f"{name.replace('_', '-')} {value}"
        for name, value in explanation.options.items()
    ]


def legend(explanation: Explanation) -> Text:
    """What the colours and marks in the table stand for, as far as they occur."""
    text = Text.assemble(
        ("kept", KEPT), "  ", ("dropped", DROPPED), "  ", ("target: enough", ENOUGH)
    )
    if not all(r.sufficient for r in explanation):
        text.append("  target: not reached", NOT_ENOUGH)
    if any(r.predicted is False for r in explanation):
        text.append("  * not the model's first choice given everything", "bright_black")
    if any(r.optimal for r in explanation):
        text.append("  ! nothing smaller is enough", "bright_black")
    return text


def table(explanation: Explanation) -> Table:
    """One row a target: the target, the size of its rationale, the text before it."""
    grid = Table(box=None, padding=(0, 2, 0, 0), header_style="bright_black")
    grid.add_column("target", no_wrap=True)
    grid.add_column("size", justify="right", no_wrap=True)
    grid.add_column("context", overflow="fold")
    for rationale in explanation:
        grid.add_row(target(rationale), size(rationale), highlighted(rationale))
        for other in rationale.alternatives:
            grid.add_row(Text("or", "bright_black"), size(other), highlighted(other))
    return grid


def target(rationale: Rationale) -> Text:
    """The target in the colour of the verdict, with a mark if it is not the first choice."""
    text = Text(label(rationale.target_text or ""), style=_verdict(rationale))
    if rationale.predicted is False:
        text.append("*", "bright_black")
    return text


def size(rationale: Rationale) -> str:
    """How many units were kept; with a mark where that is known to be the least."""
    size = len(rationale) if rationale.units is None else len(rationale.units)
    return f"{size}!" if rationale.optimal else str(size)


def highlighted(rationale: Rationale) -> Text:
    """The text before the target with the kept tokens marked and long dropped stretches cut."""
    text = Text()
    kept = set(rationale.indices)
    stretch: list[tuple[str, str]] = []

    def flush() -> None:
        dropped = "".join(piece for piece, _ in stretch)
        if len(dropped) > 2 * _ROOM_AROUND + 20:
            head = dropped[:_ROOM_AROUND] if text else ""
            text.append(f"{head} [… {len(dropped)} characters …] ", DROPPED)
            text.append(dropped[-_ROOM_AROUND:], DROPPED)
        else:
            for piece, style in stretch:
                text.append(piece, style)
        stretch.clear()

    for token in rationale.tokens[: rationale.target]:
        piece = visible(token.text)
        if token.index not in kept:
            stretch.append((piece, PINNED if token.pinned else DROPPED))
            continue
        flush()
        # The space before a word is not part of what was kept, to the eye.
        bare = piece.lstrip(" ") or piece
        text.append(piece[: len(piece) - len(bare)])
        text.append(bare, KEPT)
    flush()
    return text


def steps_table(rationale: Rationale) -> Table:
    """How the rationale grew: each token added, the target's probability, the model's choice."""
    title = Text.assemble(
        "how ",
        (label(rationale.target_text or ""), _verdict(rationale)),
        " was reached" if rationale.sufficient else " was not reached",
    )
    grid = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    grid.header_style = "bright_black"
    grid.add_column("added", no_wrap=True)
    grid.add_column("p(target)", justify="right")
    grid.add_column("")
    grid.add_column("the model then says", no_wrap=True)
    with_contrast = any(step.asked_logprob is not None for step in rationale.steps)
    if with_contrast:
        grid.add_column("p(instead)", justify="right")
    with_candidates = any(step.candidates for step in rationale.steps)
    if with_candidates:
        grid.add_column("best candidates", overflow="fold")
    for step in rationale.steps:
        added = "(pinned only)" if step.index is None else _unit_text(rationale, step)
        probability = exp(step.target_logprob)
        says = Text(label(step.prediction_text or str(step.prediction_id)))
        if step.prediction_logprob is not None:
            says.append(f"  {_percent(exp(step.prediction_logprob))}", "bright_black")
        row: list[str | Text] = [
            Text(label(added)),
            _percent(probability),
            Text("█" * round(20 * probability), "green"),
            says,
        ]
        if with_contrast:
            row.append("" if step.asked_logprob is None else _percent(exp(step.asked_logprob)))
        if with_candidates:
            candidates = [
                f"{label(_unit_text(rationale, c))} {_percent(exp(c.target_logprob))}"
                for c in step.candidates
            ]
            row.append(Text(", ".join(candidates), "bright_black"))
        grid.add_row(*row)
    if rationale.stopped:
        grid.caption = Text(f"stopped: {rationale.stopped}", NOT_ENOUGH)
        grid.caption_justify = "left"
    return grid


def _unit_text(rationale: Rationale, added: Step | Candidate) -> str:
    """The characters of what was added, or could have been: a token, or all those of a unit."""
    assert added.index is not None
    indices = added.unit or (added.index,)
    return "".join(rationale.tokens[index].text for index in indices)


def label(text: str) -> str:
    """A token's text on its own: without the space before it, and never empty."""
    return visible(text).strip(" ") or "␣"


def visible(text: str) -> str:
    """The text on one line: line breaks, tabs and other control characters as symbols."""
    if not text:
        return "·"  # a later part of a character that began in the token before
    text = text.replace("\n", "⏎").replace("\t", "⇥").replace("\r", "␍")
    return "".join(c if c.isprintable() else "�" for c in text)


def _verdict(rationale: Rationale) -> str:
    return ENOUGH if rationale.sufficient else NOT_ENOUGH


def _percent(probability: float) -> str:
    return f"{100 * probability:.3g}%" if probability < 0.0995 else f"{100 * probability:.1f}%"
