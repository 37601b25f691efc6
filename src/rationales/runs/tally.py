"""What is counted while the lines of a run go by, in memory that does not grow with them.

Counters of small numbers, a table of words with an upper limit, and the places of the few rows that
are listed. The order of the lines makes no difference.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import nsmallest
from math import sqrt
from typing import Any, NamedTuple

from rationales.runs.parts import Place
from rationales.units import LEVELS, group_texts

Row = dict[str, Any]
"""An explanation in plain dictionaries and lists, as a line has it."""
Group = str | int | None

VERDICTS = ("sufficient", "predicted", "minimal", "optimal")
LISTED = 20
"""Rows in each list: the longest and the farthest that are sufficient, and those that are not."""
MOST_GROUPS = 200
"""More groups than this are not compared."""
LEAST_CONTEXTS = 5
"""A word is shown if it occurs in at least this many contexts."""
_SHOWN_WORDS = 20
_MOST_WORDS = 500_000
_MOST_SETTINGS = 1_000


@dataclass(frozen=True)
class Summary:
    """Counts over some of the rationales of a run."""

    sizes: Counter[int] = field(default_factory=Counter)
    """How many rationales have each size, in units."""
    reaches: Counter[int] = field(default_factory=Counter)
    """How many reach back by each number of tokens; those that keep nothing are left out."""
    contexts: Counter[int] = field(default_factory=Counter)
    """How many have a context of each length: tokens before the target that may be kept."""
    verdicts: Counter[tuple[str, bool]] = field(default_factory=Counter)
    """How many are sufficient, predicted …, and how many are not; unchecked ones are left out."""

    def __add__(self, other: Summary) -> Summary:
        return Summary(
            self.sizes + other.sizes,
            self.reaches + other.reaches,
            self.contexts + other.contexts,
            self.verdicts + other.verdicts,
        )

    @property
    def rationales(self) -> int:
        """How many rationales are counted."""
        return self.sizes.total()

    def checked(self, verdict: str) -> tuple[int, int]:
        """How many rationales have this verdict, and for how many it was checked."""
        true = self.verdicts[verdict, True]
        return true, true + self.verdicts[verdict, False]


def mean(counts: Counter[int]) -> float | None:
    """The mean of counted numbers; None if there are none."""
    total = counts.total()
    return sum(number * count for number, count in counts.items()) / total if total else None


def quantile(counts: Counter[int], percent: int) -> int | None:
    """The least of the counted numbers that at least this share of them do not exceed."""
    rank = max(1, -(-percent * counts.total() // 100))
    for number in sorted(counts):
        rank -= counts[number]
        if rank <= 0:
            return number
    return None


def size_of(rationale: Row) -> int:
    """How many units were kept; a token is a unit where there are no others."""
    units = rationale.get("units")
    return len(rationale["indices"] if units is None else units)


def reach_of(rationale: Row, tokens: list[Row]) -> int | None:
    """The distance from the target to the farthest kept token; None if nothing is kept.

    In a translation, only tokens of the translation have a distance to the target.
    """
    target, kept = rationale["target"], rationale["indices"]
    if (side := tokens[target].get("side")) is not None:
        kept = [index for index in kept if tokens[index].get("side") == side]
    return target - min(kept) if kept else None


class Tally:
    """Counts over all rationales, and the places of the rows that are listed."""

    def __init__(self) -> None:
        self.rows = 0
        self.settings: Counter[str] = Counter()
        self.units: Counter[str] = Counter()
        self.sides = False
        self.words = Words()
        self.tops = {name: Top() for name in ("longest", "farthest", "insufficient")}
        self._cells: dict[tuple[Group, bool, bool | None], Summary] = defaultdict(Summary)
        self._groups: set[Group] = set()
        self.too_many_groups = False

    def add(self, place: Place, row: Row) -> None:
        """Count the rationales of a row."""
        tokens, rationales = row["tokens"], row["rationales"]
        self.rows += 1
        self._add_setting(row)
        of_group = self._group(row.get("group"))
        unit = row.get("options", {}).get("unit", "token")
        unit = unit if unit in LEVELS else "unit"  # the page trusts it
        pinned = [index for index, token in enumerate(tokens) if token.get("pinned")]
        self.sides = self.sides or any("side" in token for token in tokens[:1])
        keys: dict[str, tuple[Any, int]] = {}
        for each in rationales:
            size, reach, target = size_of(each), reach_of(each, tokens), each["target"]
            cell = self._cells[of_group, each["sufficient"], each.get("predicted")]
            cell.sizes[size] += 1
            cell.contexts[target - bisect_left(pinned, target)] += 1
            if reach is not None:
                cell.reaches[reach] += 1
            for verdict in VERDICTS:
                if (value := each.get(verdict)) is not None:
                    cell.verdicts[verdict, value] += 1
            self.units["token" if each.get("units") is None else unit] += 1
            # A list has a row once, with the target that comes first. Of those that are not
            # sufficient, these are the ones that the model predicts from the full context.
            new: dict[str, Any] = {"longest": -size, "farthest": -(reach or 0)}
            if not each["sufficient"]:
                new = {"insufficient": (not each.get("predicted"), -size)}
            for name, key in new.items():
                keys[name] = min(keys.get(name, (key, target)), (key, target))
        for name, (key, target) in keys.items():
            self.tops[name].offer((key, in_order(row.get("id"))), place, target)
        self.words.add(tokens, rationales)

    def sum(self, **wanted: Group) -> Summary:
        """The counts of the rationales with this ``group``, ``sufficient``, ``predicted``."""
        total = Summary()
        for values, cell in self._cells.items():
            named = dict(zip(("group", "sufficient", "predicted"), values, strict=True))
            if named.items() >= wanted.items():
                total += cell
        return total

    @property
    def groups(self) -> list[Group]:
        """The groups, in order; none if no row has one, or if there are too many."""
        if self._groups <= {None} or self.too_many_groups:
            return []
        return sorted(self._groups, key=in_order)

    def _group(self, name: Group) -> Group:
        """The group of a row, as long as there are not too many."""
        if name not in self._groups:
            if len(self._groups) >= MOST_GROUPS:
                self.too_many_groups = True
                return None
            self._groups.add(name)
        return name

    def _add_setting(self, row: Row) -> None:
        """Count what explained a row: model, adapter, method, options."""
        adapter = row.get("adapter")
        parts = [row["model"], row["method"]]
        if adapter is not None:
            parts.insert(1, "adapter " + re.split(r"[/\\]", adapter)[-1])
        for name, value in sorted(row.get("options", {}).items()):
            parts.append(name.replace("_", "-") + ("" if value is True else f" {value}"))
        setting = " · ".join(parts)
        if setting in self.settings or len(self.settings) < _MOST_SETTINGS:
            self.settings[setting] += 1


def in_order(name: Group) -> tuple[int, Any]:
    """The place of an id or a group among others: numbers, then names, then none."""
    return (2, "") if name is None else (int(isinstance(name, str)), name)


class Top:
    """The first few of many by their keys."""

    def __init__(self) -> None:
        self._kept: list[tuple[Any, Place, int]] = []
        self._last: Any = None

    def offer(self, key: Any, place: Place, target: int) -> None:
        """Keep this target of a row if its key is among the first."""
        if self._last is None or key < self._last:
            self._kept.append((key, place, target))
            if len(self._kept) >= 2 * LISTED:
                self._kept = sorted(self._kept)[:LISTED]
                self._last = self._kept[-1][0]

    def first(self) -> list[tuple[Place, int]]:
        """What is kept: where the line is, and the target."""
        return [(place, target) for _, place, target in sorted(self._kept)[:LISTED]]


class Word(NamedTuple):
    """A word, in how many rationales it is, and in how many contexts it occurs."""

    text: str
    kept: int
    contexts: int


class Words:
    """In how many contexts each word occurs, and in how many of their rationales it is kept.

    The word directly before a target is left out of both: it is kept because it is required.
    Upper and lower case are the same.
    """

    def __init__(self) -> None:
        self._kept: Counter[str] = Counter()
        self._contexts: Counter[str] = Counter()
        self._all_kept = self._all_contexts = self._dropped = 0

    def add(self, tokens: list[Row], rationales: list[Row]) -> None:
        """Count the words of a text, for each of its targets."""
        pieces = [token["text"] for token in tokens]
        sides = [None if token.get("pinned") else token.get("side", "") for token in tokens]
        units = group_texts(pieces, sides, "word")
        starts = [unit[0] for unit in units]
        unit_of = {index: number for number, unit in enumerate(units) for index in unit}
        # Of each target: how many words come before the one that is required.
        ends = [
            bisect_left(starts, each["target"]) - (each["target"] - 1 in unit_of)
            for each in rationales
        ]
        texts = [
            "".join([pieces[index] for index in unit]).strip().lower()
            for unit in units[: max(ends, default=0)]
        ]
        for each, end in zip(rationales, ends, strict=True):
            numbers = {unit_of[index] for index in each["indices"]}
            kept = {texts[number] for number in numbers if number < end} - {""}
            self._kept.update(kept)
            self._all_kept += len(kept)
        seen, start = {""}, 0
        for place, end in enumerate(sorted(ends)):
            # What is new before this target is in its context and in those of all later ones.
            new, later = {*texts[start:end]} - seen, len(ends) - place
            for text in new:
                self._contexts[text] += later
            self._all_contexts += later * len(new)
            seen |= new
            start = end
        while len(self._contexts) > _MOST_WORDS:  # the rarest begin anew, if they come again
            self._dropped += 1
            often = {text: n for text, n in self._contexts.items() if n > self._dropped}
            self._contexts = Counter(often)
            self._kept = Counter({text: n for text, n in self._kept.items() if text in often})

    @property
    def share(self) -> float | None:
        """The share of the words that is kept; None if there are no words."""
        return self._all_kept / self._all_contexts if self._all_contexts else None

    def by_share(self) -> tuple[Word, ...]:
        """The words that are kept in the largest share of the contexts in which they occur."""
        return self._first(lambda word: (-_lower_end(word), word.text))

    def by_count(self) -> tuple[Word, ...]:
        """The words that are in most rationales."""
        return self._first(lambda word: (-word.kept, word.contexts, word.text))

    def _first(self, key: Callable[[Word], Any]) -> tuple[Word, ...]:
        words = (
            Word(text, kept, self._contexts[text])
            for text, kept in self._kept.items()
            if self._contexts[text] >= LEAST_CONTEXTS
        )
        return tuple(nsmallest(_SHOWN_WORDS, words, key=key))


def _lower_end(word: Word) -> float:
    """The lower end of Wilson's 95 % interval of the share: few contexts put no word first."""
    z, n, p = 1.96, word.contexts, word.kept / word.contexts
    return (p + z * z / (2 * n) - z * sqrt(p * (1 - p) / n + z * z / (4 * n * n))) / (1 + z * z / n)
