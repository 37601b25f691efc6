"""Key and value states of kept prefixes, computed once for all the subsets that begin alike.

The states of a kept token depend on the kept tokens before it and on nothing else. A search asks
for S + k for every k, step after step, and all targets of a text ask about the same tokens: most
of what they need was computed already. Here a subset is a *path*, the (position, id) of its tokens,
and the subsets of one call are a tree. Three things are decided, each on its own:

- ``PrefixStore``: the states of single tokens, found by the path that leads to them;
- ``rounds``: which beginnings are computed first, because several paths need them;
- ``arrange``: which rows share a forward pass. All rows of a pass have the same number of new
  tokens; one that could do with fewer may compute some again, if that spares a pass.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from rationales.scoring.protocol import Query

if TYPE_CHECKING:
    from transformers import DynamicCache

DEFAULT_BYTES = 2**28

# What a pass costs, in tokens: the weights are read for one token as for thirty-two, and every
# layer has its overhead.
_LEAST_TOKENS = 32
_OVERHEAD = 64

Path = tuple[int, ...]
"""Nodes of the tree of one call, from the first token on."""

Key = tuple[int, int, int]
"""The serial number of the token before (0 for none), the position and the id of a token."""


@dataclass(slots=True)
class State:
    """Where the states of one token are stored."""

    key: Key
    serial: int
    slot: int
    used: int


class PrefixStore:
    """Key and value states of single tokens, by the path that leads to them; bounded by bytes.

    What was used longest ago makes room, but nothing that the current call has used: what is
    planned stays true. Serial numbers are never given twice, so what followed a dropped token
    is not found any more, and is dropped in its turn.
    """

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, max_bytes: int) -> None:
        """A store for states like these of one token, (layers, heads, size) each."""
        self._slabs = [torch.zeros_like(keys)[None], torch.zeros_like(values)[None]]
        self._bytes = sum(slab.nbytes for slab in self._slabs)
        self._states: OrderedDict[Key, State] = OrderedDict()  # the last one used is the last
        self._free: list[int] = []
        self._serial = self._call = self._in_use = 0
        self.max_bytes = max_bytes

    @classmethod
    def like(cls, cache: DynamicCache, max_bytes: int = DEFAULT_BYTES) -> PrefixStore | None:
        """A store for the states in this cache; None if its layers are not all alike."""
        from transformers.cache_utils import DynamicLayer

        layers: list[Any] = list(cache.layers)
        if any(type(layer) is not DynamicLayer for layer in layers):
            return None
        states = [(layer.keys, layer.values) for layer in layers]
        kinds = {(x.shape, x.dtype, x.device, y.shape, y.dtype, y.device) for x, y in states}
        if len(kinds) != 1 or states[0][0].dim() != 4:
            return None
        keys = torch.stack([layer.keys[0, :, 0] for layer in layers])
        return cls(keys, torch.stack([layer.values[0, :, 0] for layer in layers]), max_bytes)

    def __len__(self) -> int:
        return len(self._states)

    @property
    def nbytes(self) -> int:
        """How many bytes are taken."""
        return sum(slab.nbytes for slab in self._slabs)

    @property
    def room(self) -> int:
        """How many more tokens the current call can store."""
        return max(0, self._most - self._in_use)

    @property
    def _most(self) -> int:
        return self.max_bytes // self._bytes - 1  # the first slot stays empty, for padding

    def begin(self) -> None:
        """Begin a call: all that is stored may be dropped, until it is found again."""
        self._call += 1
        self._in_use = 0

    def find(self, before: int, position: int, token: int) -> State | None:
        """The state of the token after the one with serial number ``before``, if it is stored."""
        state = self._states.get((before, position, token))
        if state is not None and state.used != self._call:
            self._states.move_to_end(state.key)
            state.used = self._call
            self._in_use += 1
        return state

    def add(self, before: int, position: int, token: int) -> State | None:
        """A place for the states of this token; None if the current call has used all there is."""
        found = self.find(before, position, token)
        if found is not None or not self.room:
            return found
        if not self._free and len(self._states) < self._most:
            self._grow()
        elif not self._free:
            _, oldest = self._states.popitem(last=False)
            self._free.append(oldest.slot)
        self._serial += 1
        state = State((before, position, token), self._serial, self._free.pop(), self._call)
        self._states[state.key] = state
        self._in_use += 1
        return state

    def _grow(self) -> None:
        """Twice the slots, so that little is taken where little is needed."""
        taken = len(self._states) + 1
        more = min(max(64, taken), self._most + 1 - taken)
        self._slabs = [
            torch.cat([slab, slab.new_zeros(more, *slab.shape[1:])]) for slab in self._slabs
        ]
        self._free = list(range(taken, taken + more))

    def write(
        self, slots: list[int], cache: DynamicCache, rows: list[int], columns: list[int]
    ) -> None:
        """Put what the cache has at these rows and columns into these slots."""
        layers: list[Any] = list(cache.layers)
        device = self._slabs[0].device
        row, column, slot = (torch.tensor(x, device=device) for x in (rows, columns, slots))
        for slab, parts in zip(
            self._slabs, ([x.keys for x in layers], [x.values for x in layers]), strict=True
        ):
            slab.index_copy_(0, slot, torch.stack([part[row, :, column] for part in parts], 1))

    def read(self, slots: list[list[int]]) -> DynamicCache:
        """A cache with these tokens, a list of equal length for each row; slot 0 is padding."""
        from transformers import DynamicCache

        if not slots[0]:
            return DynamicCache()
        index = torch.tensor(slots, device=self._slabs[0].device)
        # (rows, tokens, layers, heads, size) → for each layer (rows, heads, tokens, size)
        keys, values = (
            slab.index_select(0, index.flatten())
            .view(*index.shape, *slab.shape[1:])
            .permute(2, 0, 3, 1, 4)
            .unbind()
            for slab in self._slabs
        )
        return DynamicCache(zip(keys, values, strict=True))

    def clear(self) -> bool:
        """Drop everything; whether there was anything."""
        held = bool(self._states)
        self._states.clear()
        self._free, self._in_use = [], 0
        self._slabs = [slab[:1].clone() for slab in self._slabs]
        return held


class Pass(NamedTuple):
    """Rows of one forward pass: for each, its path and how much of that is stored."""

    paths: list[Path]
    pasts: list[int]
    asked: list[int] | None
    """Which of the call's subsets these are; None if they are beginnings of some."""

    @property
    def length(self) -> int:
        """Tokens of a row, stored and new ones and padding."""
        return max(len(path) for path in self.paths)

    @property
    def new(self) -> int:
        """Tokens that are computed, in each row."""
        return len(self.paths[0]) - self.pasts[0]


class Paths:
    """The subsets of one call as a tree, with what of it is stored."""

    def __init__(self, store: PrefixStore, queries: Sequence[Query]) -> None:
        store.begin()
        self._store = store
        self._nodes: dict[Key, int] = {}
        self._positions: list[int] = []
        self._tokens: list[int] = []
        self._states: dict[int, State] = {}
        self._paths = [self._path(context.ids, kept) for context, kept in queries]
        # Only incomplete subsets grow in the steps of a search.
        self._grows = [len(kept) < len(context.ids) for context, kept in queries]
        _, self._plan = rounds(self._paths, self._states.keys(), store.room)

    def _path(self, ids: Sequence[int], kept: Sequence[int]) -> Path:
        path: list[int] = []
        before = -1
        for position in kept:
            key = (before, position, ids[position])
            node = self._nodes.get(key)
            if node is None:
                node = self._nodes[key] = len(self._tokens)
                self._positions.append(position)
                self._tokens.append(ids[position])
                serial = self._serial(before)
                found = None if serial is None else self._store.find(serial, *key[1:])
                if found is not None:
                    self._states[node] = found
            path.append(node)
            before = node
        return tuple(path)

    def _serial(self, node: int) -> int | None:
        state = self._states.get(node)
        return 0 if node < 0 else None if state is None else state.serial

    @property
    def worthwhile(self) -> bool:
        """Whether anything is stored or shared, or may be of use to a later call."""
        several = len(self._paths) > 1
        grows = any(g and len(p) > 1 for g, p in zip(self._grows, self._paths, strict=True))
        return len(self._plan) > 1 or bool(self._states) or (several and grows)

    def passes(self, rows: Callable[[int], int]) -> Iterator[Pass]:
        """The passes to run, in order, of at most ``rows(length)`` rows each."""
        for number, (paths, new) in enumerate(self._plan, start=1):
            groups: dict[int, list[int]] = {}
            for which, tokens in enumerate(new):
                groups.setdefault(tokens, []).append(which)
            for tokens, waiting in groups.items():
                waiting.sort(key=lambda which: -len(paths[which]))  # little padding
                while waiting:
                    batch = waiting[: rows(len(paths[waiting[0]]))]
                    del waiting[: len(batch)]
                    mine = [paths[which] for which in batch]
                    pasts = [len(path) - tokens for path in mine]
                    yield Pass(mine, pasts, batch if number == len(self._plan) else None)

    def run(self, batch: Pass, next_token: Callable[..., torch.Tensor], device: Any) -> Any:
        """The logits after each row, (rows, vocabulary); new states are stored."""
        past = max(batch.pasts)
        slots, mask = [], torch.ones(len(batch.paths), past + batch.new, dtype=torch.long)
        for row, (path, stored) in enumerate(zip(batch.paths, batch.pasts, strict=True)):
            padding = past - stored
            slots.append([0] * padding + [self._states[node].slot for node in path[:stored]])
            mask[row, :padding] = 0
        fresh = [path[stored:] for path, stored in zip(batch.paths, batch.pasts, strict=True)]
        ids, places = (
            torch.tensor([[of[node] for node in row] for row in fresh], device=device)
            for of in (self._tokens, self._positions)
        )
        cache = self._store.read(slots)
        logits = next_token(ids, places, mask.to(device), cache)
        self._keep(batch, cache, past)
        return logits

    def _keep(self, batch: Pass, cache: DynamicCache, past: int) -> None:
        """Store the new states, but for those of a subset's last token: no subset goes on there."""
        slots, rows, columns = [], [], []
        for row, (path, stored) in enumerate(zip(batch.paths, batch.pasts, strict=True)):
            if batch.asked is not None and not self._grows[batch.asked[row]]:
                continue
            before = path[stored - 1] if stored else -1
            for column, node in enumerate(path[stored : len(path) - (batch.asked is not None)]):
                if node not in self._states:
                    serial = self._serial(before)
                    assert serial is not None
                    place = (self._positions[node], self._tokens[node])
                    state = self._store.add(serial, *place)
                    if state is None:
                        break
                    self._states[node] = state
                    slots.append(state.slot)
                    rows.append(row)
                    columns.append(past + column)
                before = node
        if slots:
            self._store.write(slots, cache, rows, columns)


Round = tuple[Sequence[Path], list[int]]
"""Paths that are computed together, and how many new tokens each is computed with."""


def rounds(paths: Sequence[Path], stored: AbstractSet[int], room: int) -> tuple[int, list[Round]]:
    """What computing the paths costs, and in which rounds it is done, the paths themselves last.

    Beginnings that several paths have in common are a round before, if that is cheaper: all their
    tokens are stored (there is room for so many). They may in turn have beginnings in common. Their
    number is at most half that of the paths, so there are few rounds.
    """
    cost, new = _arranged(paths, stored)
    beginnings, ready = _beginnings(paths, stored, room)
    if beginnings:
        first_cost, first = rounds(beginnings, stored, room)
        rest_cost, rest = _arranged(paths, ready)
        if first_cost + rest_cost < cost:
            return first_cost + rest_cost, [*first, (paths, rest)]
    return cost, [(paths, new)]


def stored_part(path: Path, stored: AbstractSet[int]) -> int:
    """How many tokens of the path are stored; its last one does not count, it gives the logits."""
    for depth, node in enumerate(path[:-1]):
        if node not in stored:
            return depth
    return len(path) - 1


def _beginnings(
    paths: Sequence[Path], stored: AbstractSet[int], room: int
) -> tuple[list[Path], AbstractSet[int]]:
    """The longest beginnings that paths have in common and that are not stored; what then is."""
    through = Counter(node for path in paths for node in path)
    found: dict[Path, None] = {}
    for path in paths:
        depth, known = len(path) - 1, stored_part(path, stored)
        while depth > known and through[path[depth - 1]] < 2:
            depth -= 1
        if depth > known:
            found[path[:depth]] = None
    within = {node for path in found for node in path[:-1]}
    chosen: list[Path] = []
    ready = set(stored)
    for path in found:
        if path[-1] in within:  # the beginning of another one
            continue
        more = [node for node in path if node not in ready]
        if len(ready) + len(more) - len(stored) <= room:
            chosen.append(path)
            ready.update(more)
    return chosen, ready


def _arranged(paths: Sequence[Path], stored: AbstractSet[int]) -> tuple[int, list[int]]:
    return arrange([(len(path) - stored_part(path, stored), len(path)) for path in paths])


def arrange(rows: Sequence[tuple[int, int]]) -> tuple[int, list[int]]:
    """What the rows cost at least, in tokens, and how many new tokens each is computed with.

    A row is (the fewest new tokens it can do with, all its tokens). Rows with the same number of
    new tokens share a pass.
    """
    count = Counter(least for least, _ in rows)
    shortest: dict[int, int] = {}
    for least, length in rows:
        shortest[least] = min(length, shortest.get(least, length))
    sizes = sorted(count)
    # best[j]: the sizes before the j-th, and where the last of their passes begins.
    best = [(0, 0)]
    for j, size in enumerate(sizes):
        together, choices = 0, []
        for i in range(j, -1, -1):
            if shortest[sizes[i]] < size:
                break
            together += count[sizes[i]]
            choices.append((best[i][0] + max(_LEAST_TOKENS, together * size) + _OVERHEAD, i))
        best.append(min(choices))
    computed: dict[int, int] = {}
    end = len(sizes)
    while end:
        start = best[end][1]
        computed.update(dict.fromkeys(sizes[start:end], sizes[end - 1]))
        end = start
    return best[-1][0], [computed[least] for least, _ in rows]
