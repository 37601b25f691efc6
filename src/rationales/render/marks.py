"""How tokens and verdicts are marked in a terminal: by colour, or by signs where there is none.

with colour      kept tokens on yellow, dropped ones grey, pinned ones in blue italics
without          ‹kept›, dropped, «pinned»
always           ✓ sufficient, ✗ not reached, * not the model's first choice, ! no smaller one
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby, takewhile
from math import exp

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from rationales.context import Token
from rationales.result import Rationale

KEPT = "bold #000000 on #ffd75f"
DROPPED = "#8a8a8a"
PINNED = "italic #5f87af"
FAINT = "bright_black"
CELL = "bold #ffd75f"
SUFFICIENT = "bold green"
NOT_REACHED = "bold red"


@dataclass(frozen=True)
class Marks:
    """What stands before and after kept and pinned tokens: nothing, where colour marks them."""

    kept: tuple[str, str] = ("", "")
    pinned: tuple[str, str] = ("", "")


COLOURS = Marks()
BRACKETS = Marks(kept=("‹", "›"), pinned=("«", "»"))


def marks_of(console: Console) -> Marks:
    """The marks that can be seen there: NO_COLOR, a dumb terminal and a pipe need brackets."""
    return BRACKETS if console.no_color or console.color_system is None else COLOURS


def verdict(rationale: Rationale) -> Text:
    """A sign and a colour for whether the rationale is sufficient."""
    return Text("✓" if rationale.sufficient else "✗", verdict_style(rationale))


def verdict_style(rationale: Rationale) -> str:
    """The colour of the verdict."""
    return SUFFICIENT if rationale.sufficient else NOT_REACHED


def target(rationale: Rationale, width: int) -> Text:
    """The target in the colour of the verdict, with a mark if it is not the first choice."""
    text = Text(shortened(label(rationale.target_text or ""), width), verdict_style(rationale))
    if rationale.predicted is False:
        text.append("*", FAINT)
    return text


def size(rationale: Rationale) -> str:
    """How many units were kept; with a mark where that is known to be the least."""
    size = len(rationale) if rationale.units is None else len(rationale.units)
    return f"{size}!" if rationale.optimal else str(size)


def kinds(rationale: Rationale) -> Iterable[tuple[Token, str]]:
    """The tokens before the target, each with what became of it: kept, pinned or dropped."""
    kept = set(rationale.indices)
    for token in rationale.tokens[: rationale.target]:
        yield token, "kept" if token.index in kept else "pinned" if token.pinned else "dropped"


Piece = tuple[str, str]
"""A stretch of text, and whether it is kept, pinned or dropped."""


def highlighted(rationale: Rationale, marks: Marks = COLOURS, room: int = 40) -> Text:
    """The text before the target with kept and pinned tokens marked.

    Where much was not kept, ``room`` characters of it are shown beside kept tokens; what lies
    between is cut out, and so is the middle of long pinned stretches.
    """
    text = Text()
    side, any_kept = None, False

    def by_side_and_kept(each: tuple[Token, str]) -> tuple[str | None, bool]:
        return each[0].side, each[1] == "kept"

    for (own_side, is_kept), run in groupby(kinds(rationale), by_side_and_kept):
        if text and own_side != side:
            text.append(" → ", FAINT)
        side = own_side
        pieces = [(visible(token.text), kind) for token, kind in run]
        if is_kept:
            any_kept = True
            _put_kept(text, [piece for piece, _ in pieces], marks)
            continue
        if not any_kept:  # the beginning of a chat template is shown
            pinned = [*takewhile(lambda each: each[1] == "pinned", pieces)]
            _put_rest(text, pinned, marks, room)
            pieces = pieces[len(pinned) :]
        characters = [(character, kind) for piece, kind in pieces for character in piece]
        if len(characters) > 2 * room + 20:
            head = room if any_kept else 0
            _put_rest(text, characters[:head], marks, room)
            cut = f"[… {len(characters) - head - room} characters …] "
            text.append(f" {cut}" if head else cut, DROPPED)
            characters = characters[-room:]
        _put_rest(text, characters, marks, room)
    return text


def _put_kept(text: Text, pieces: Iterable[str], marks: Marks) -> None:
    """Append kept tokens; brackets are around all that stand side by side."""
    opening, closing = marks.kept
    for piece in pieces:
        # The space before a word is not part of what was kept, to the eye.
        bare = piece.lstrip(" ") or piece
        text.append(piece[: len(piece) - len(bare)])
        text.append(opening + bare, KEPT)
        opening = ""
    text.append(closing, KEPT)


def _put_rest(text: Text, pieces: Iterable[Piece], marks: Marks, room: int) -> None:
    """Append dropped and pinned pieces; the middle of long pinned stretches is left out."""
    for kind, run in groupby(pieces, lambda each: each[1]):
        stretch = "".join(piece for piece, _ in run)
        if kind == "pinned":
            text.append(shortened(stretch, max(12, room // 2)).join(marks.pinned), PINNED)
        else:
            text.append(stretch, DROPPED)


def label(text: str) -> str:
    """A token's text on its own: without the space before it, and never empty."""
    return visible(text).strip(" ") or "␣"


def visible(text: str) -> str:
    """The text on one line: line breaks, tabs and other control characters as symbols."""
    if not text:
        return "·"  # a later part of a character that began in the token before
    text = text.replace("\n", "⏎").replace("\t", "⇥").replace("\r", "␍")
    return "".join(c if c.isprintable() else "�" for c in text)


def shortened(text: str, width: int) -> str:
    """The text in at most this many cells: where it is longer, its middle is left out."""
    if cell_len(text) <= width:
        return text
    head = width // 2
    tail = width - 1 - head
    return f"{set_cell_size(text, head)}…{set_cell_size(text[::-1], tail)[::-1]}"


def percent(logprob: float | None) -> str:
    """The probability in per cent, with three digits; nothing if there is none."""
    if logprob is None:
        return ""
    probability = exp(logprob)
    return f"{100 * probability:.3g}%" if probability < 0.0995 else f"{100 * probability:.1f}%"


_INSTEAD = dict(zip("✓✗‹›«»…·■█→␣⏎⇥␍–", "+x[]{}~.##>_//\\-", strict=True))
"""What stands for our own signs where only ASCII can be shown."""


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """What stands for characters that an encoding lacks, and where to go on: an error handler."""
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end]
    return "".join(_INSTEAD.get(c, "?" * cell_len(c)) for c in lacking), error.end


codecs.register_error("rationales", _replaced)


class Encodable:
    """A renderable in which what the terminal's encoding lacks is replaced, cell by cell."""

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._renderable, options):
            text = segment.text.encode(options.encoding, "rationales").decode(options.encoding)
            yield segment._replace(text=text)
