"""How many rationales have each size or reach: bars, and the numbers that they stand for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from rationales.runs.tally import quantile

_MOST_BARS, _FEWEST_BARS, _MOST_LABELS = 24, 8, 8
_TOPS = (1, 2, 5, 10, 20, 30, 40, 50, 60, 80, 100)
"""Where the vertical axis may end, in per cent."""
_TOP, _BOTTOM = 14, 176
"""Where the longest bar may end, and where all begin, in pixels."""
_LEFT = 9.0
"""Where the first bar begins, in per cent of the width."""


@dataclass(frozen=True)
class Bar:
    """The rationales whose numbers lie between two others, these included."""

    first: int
    last: int | None
    """None: there is no upper end."""
    sufficient: int
    others: int

    @property
    def name(self) -> str:
        """The numbers of this bar, in words."""
        if self.last is None:
            return f"≥ {self.first:,}"
        return f"{self.first:,}" + f"–{self.last:,}" * (self.first < self.last)


def bars(sufficient: Counter[int], others: Counter[int]) -> list[Bar]:
    """The bars of all these numbers, of which there is at least one.

    The last bar has no upper end if a few numbers lie far out.
    """

    def within(counts: Counter[int], first: int, last: int | None) -> int:
        return sum(c for n, c in counts.items() if n >= first and (last is None or n <= last))

    both = sufficient + others
    low, end, most = min(both), quantile(both, 99) or 0, max(both)
    if most - low < _MOST_BARS or most <= 1.25 * end:
        end = most
    widths = (digit * 10**power for power in range(12) for digit in (1, 2, 5))
    width = next(each for each in widths if (end - low) // each + 2 <= _MOST_BARS + 1)
    starts = range(low - low % width, end + 1, width)
    edges: list[tuple[int, int | None]] = [(start, start + width - 1) for start in starts]
    if most >= starts[-1] + width:
        edges.append((starts[-1] + width, None))
    return [Bar(*each, within(sufficient, *each), within(others, *each)) for each in edges]


def svg(drawn: list[Bar], described: str) -> str:
    """The bars as a picture as wide as its place; those that are not sufficient are on top.

    All that is horizontal is in per cent, so that letters keep their size on a narrow screen.
    """
    total = sum(bar.sufficient + bar.others for bar in drawn)
    most = max(100 * (bar.sufficient + bar.others) / total for bar in drawn)
    top = next(each for each in _TOPS if each >= round(most, 6))
    scale = (_BOTTOM - _TOP) / top
    slot = (100 - _LEFT) / max(len(drawn), _FEWEST_BARS)
    parts = []
    for level in (0, top / 2, top):
        y = _BOTTOM - level * scale
        parts.append(f'<line x1="{_LEFT}%" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 1}%" y="{y + 4:.1f}" text-anchor="end">{level:g} %</text>')
    every = -(-len(drawn) // _MOST_LABELS)
    for place, bar in enumerate(drawn):
        x, base, rects = _LEFT + place * slot, float(_BOTTOM), ""
        for kind, count in (("yes", bar.sufficient), ("no", bar.others)):
            height = 100 * count / total * scale
            base -= height
            if count:
                rects += (
                    f'<rect class="{kind}" x="{x + 0.1 * slot:.2f}%" width="{0.8 * slot:.2f}%" '
                    f'y="{base:.1f}" height="{height:.1f}"/>'
                )
        told = f"{bar.name}: {bar.sufficient + bar.others:,}"
        told += f", {bar.others:,} of them not sufficient" * bool(bar.others)
        parts.append(f"<g><title>{told}</title>{rects}</g>")
        if place % every == 0:
            # The number of a bar is below it; of several numbers, the first is where it begins.
            middle = x + (slot / 2 if bar.first == bar.last else 0.1 * slot)
            at = f'x="{middle:.2f}%" y="{_BOTTOM + 18}" text-anchor="middle"'
            parts.append(f"<text {at}>{bar.first:,}</text>")
    drawing = "".join(parts)
    return f'<svg class="histogram" role="img" aria-label="{described}">{drawing}</svg>'
