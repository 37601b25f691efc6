"""Key and value states of kept prefixes, computed once for all the subsets that begin alike.

The states of a kept token depend on the kept tokens before it and on nothing else. A search asks
for S + k for every k, step after step, and all targets of a text ask about the same tokens: most
of what they need was computed already. Here a subset is a *path*, the (position, id) of its tokens,
and the subsets of one call are a tree. Three things are decided, each on its own:

- ``PrefixStore``: the states of single tokens, found by the path that leads to them;
- ``fill``: which paths share a row. A row holds a part of the tree: every token sees only what is
  before it on its path, so what paths have in common is computed once, and a row is always full;
- ``Paths.passes``: which rows share a forward pass: rows that are about as long.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from rationales.scoring.protocol import PASS_TOKENS, Query

if TYPE_CHECKING:
    from transformers import DynamicCache

DEFAULT_BYTES = 2**28

_ROW_TOKENS = 96
"""New tokens of a row, besides those of its first path: the attention of a row grows with them."""

_FEW_ROWS = 8
"""So many rows or fewer are made equally long: of more, one that is short wastes little."""

Path = tuple[int, ...]
"""Nodes of the tree of one call, from the first token on."""

Key = tuple[int, int, int]
"""The serial number of the token before (0 for none), the position and the id of a token."""


class State(NamedTuple):
    """Where the states of one token are stored."""

    serial: int
    slot: int


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
        self._used: set[Key] = set()
        """Those that the current call has used."""
        self._free: list[int] = []
        self._serial = 0
        self._latest: tuple[list[int], DynamicCache | None] = ([], None)
        """The slots of the last text that was computed alone, and the cache that holds them: a text
        that is generated goes on from there, and nothing is copied."""
        self.max_bytes = max_bytes
        self.grows = True
        """Whether the bound rises for a text that is longer."""

    @classmethod
    def like(cls, cache: DynamicCache) -> PrefixStore | None:
        """A store for the states in this cache; None if its layers are not all alike."""
        from transformers.cache_utils import DynamicLayer

        layers: list[Any] = list(cache.layers)
        if any(type(layer) is not DynamicLayer for layer in layers):
            return None
        keys, values = [x.keys for x in layers], [x.values for x in layers]
        for states in (keys, values):
            if len({(x.shape, x.dtype, x.device) for x in states}) != 1 or states[0].dim() != 4:
                return None
        key, value = (torch.stack([x[0, :, 0] for x in each]) for each in (keys, values))
        return cls(key, value, DEFAULT_BYTES)

    @classmethod
    def of_kind(cls, kind: Any, device: torch.device) -> PrefixStore | None:
        """A store for states of this kind; None if this is not a kind."""
        try:
            dtype = getattr(torch, kind["dtype"])
            keys, values = (
                torch.empty(kind[name], dtype=dtype, device=device) for name in ("keys", "values")
            )
        except (KeyError, TypeError, AttributeError, RuntimeError):
            return None
        return cls(keys, values, DEFAULT_BYTES) if keys.dim() == values.dim() == 3 else None

    @property
    def kind(self) -> dict[str, Any]:
        """The shapes of a token's states, (layers, heads, size), and their type, for JSON."""
        keys, values = (list(slab.shape[1:]) for slab in self._slabs)
        dtype = str(self._slabs[0].dtype).removeprefix("torch.")
        return {"keys": keys, "values": values, "dtype": dtype}

    def empty(self) -> PrefixStore:
        """Another store for states of the same kind, with nothing in it."""
        keys, values = self._slabs
        store = PrefixStore(keys[0], values[0], self.max_bytes)
        store.grows = self.grows
        return store

    def halve(self) -> None:
        """Take at most half of the memory from now on."""
        self.max_bytes //= 2
        self.grows = False

    def __len__(self) -> int:
        return len(self._states)

    def begin(self, longest: int = 0) -> None:
        """Begin a call: all that is stored may be dropped, until it is found again.

        The longest subset of the call finds room, unless memory has run out before.
        """
        self._used.clear()
        if self.grows:  # one slot stays empty, for padding
            self.max_bytes = max(self.max_bytes, (longest + 1) * self._bytes)

    def find(self, before: int, position: int, token: int) -> State | None:
        """The state of the token after the one with serial number ``before``, if it is stored."""
        key = (before, position, token)
        state = self._states.get(key)
        if state is not None:
            self._states.move_to_end(key)
            self._used.add(key)
        return state

    def add(self, before: int, position: int, token: int) -> State | None:
        """A place for the states of a new token; None if the current call has used all there is."""
        most = self.max_bytes // self._bytes - 1  # the first slot stays empty, for padding
        if len(self._used) >= most:
            return None
        taken = len(self._states) + 1
        if not self._free and taken <= most:
            # Twice the slots, so that little is taken where little is needed.
            more = min(max(64, taken), most + 1 - taken)
            self._slabs = [
                torch.cat([slab, slab.new_zeros(more, *slab.shape[1:])]) for slab in self._slabs
            ]
            self._free = list(range(taken, taken + more))
        elif not self._free:
            _, oldest = self._states.popitem(last=False)
            self._free.append(oldest.slot)
            self._latest = [], None  # its slots may hold other tokens from now on
        self._serial += 1
        key = (before, position, token)
        state = self._states[key] = State(self._serial, self._free.pop())
        self._used.add(key)
        return state

    def hold(self, cache: DynamicCache, slots: list[int]) -> None:
        """Keep a cache of one row, whose tokens are stored in these slots."""
        self._latest = slots, cache

    def write(self, cache: DynamicCache, where: list[tuple[int, int, int]]) -> None:
        """Put what the cache has at these (row, column, slot) into the slots."""
        row, column, slot = torch.tensor(where, device=self._slabs[0].device).unbind(1)
        for slab, name in zip(self._slabs, ("keys", "values"), strict=True):
            parts = [getattr(layer, name)[row, :, column] for layer in cache.layers]
            slab.index_copy_(0, slot, torch.stack(parts, 1))

    def read(self, slots: list[list[int]]) -> DynamicCache:
        """A cache with these tokens, a list of equal length for each row; slot 0 is padding."""
        from transformers import DynamicCache

        if not slots[0]:
            return DynamicCache()
        held, cache = self._latest
        if len(slots) == 1 and slots[0] == held and cache is not None:
            self._latest = [], None  # a pass adds to it what may not be stored
            return cache
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


class Row(NamedTuple):
    """What one row of a forward pass computes: new tokens, after stored ones that they need."""

    nodes: list[int]
    past: list[int]
    ends: list[tuple[int, int]]
    """Which subsets of the call end here, each with the column of its last token."""


class Pass(NamedTuple):
    """Rows of one forward pass; each reads and computes this many tokens, padding included."""

    rows: list[Row]
    past: int
    new: int

    @property
    def queries(self) -> list[int]:
        """Which subsets of the call are scored, in the order of their logits."""
        return [which for row in self.rows for which, _ in row.ends]


class Paths:
    """The subsets of one call as a tree, with what of it is stored."""

    def __init__(self, store: PrefixStore, queries: Sequence[Query]) -> None:
        store.begin(max((len(kept) for _, kept in queries), default=0))
        self._store = store
        self._nodes: dict[Key, int] = {}
        self._keys: list[Key] = []
        """Of each node: the node before it (−1 for none), the position and the id."""
        self._states = {-1: State(serial=0, slot=0)}
        """Of each node that is stored; and of what is before the first token, which is nothing."""
        self._paths = [self._path(context.ids, kept) for context, kept in queries]
        # No subset of a search goes on after its last token; a text that is generated does.
        self._kept = {
            node
            for path, (context, kept) in zip(self._paths, queries, strict=True)
            for node in (path if len(kept) == len(context.ids) else path[:-1])
        }

    def _path(self, ids: Sequence[int], kept: Sequence[int]) -> Path:
        path: list[int] = []
        before = -1
        for position in kept:
            key = (before, position, ids[position])
            node = self._nodes.get(key)
            if node is None:
                node = self._nodes[key] = len(self._keys)
                self._keys.append(key)
                parent = self._states.get(before)
                found = None if parent is None else self._store.find(parent.serial, *key[1:])
                if found is not None:
                    self._states[node] = found
            path.append(node)
            before = node
        return tuple(path)

    def stored(self, which: int) -> list[int]:
        """The slots of the tokens of a subset that are stored, from its first one on."""
        path = self._paths[which][:-1]
        return [self._states[node].slot for node in takewhile(self._states.__contains__, path)]

    @property
    def worthwhile(self) -> bool:
        """Whether anything is stored or shared, or may be of use to a later call."""
        return bool(self._kept) or len(self._keys) < sum(map(len, self._paths))

    def passes(self, most_tokens: int, most_queries: int) -> Iterator[Pass]:
        """The passes to run, each within these tokens (read or computed) and queries."""
        rows = fill(self._paths, self._states.keys(), most_tokens, most_queries)
        waiting = deque(sorted(rows, key=lambda row: -len(row.nodes)))
        while waiting:
            batch = [waiting.popleft()]
            new, past, queries = len(batch[0].nodes), len(batch[0].past), len(batch[0].ends)
            padding = 0
            while waiting:
                row = waiting[0]
                longer, queries = max(past, len(row.past)), queries + len(row.ends)
                padding += new - len(row.nodes)
                if (
                    (len(batch) + 1) * (longer + new) > most_tokens
                    or queries > most_queries
                    or padding > max(PASS_TOKENS, len(batch) * new // 16)
                ):
                    break
                past = longer
                batch.append(waiting.popleft())
            yield Pass(batch, past, new)

    def run(self, batch: Pass, next_token: Callable[..., torch.Tensor]) -> torch.Tensor:
        """The logits after each of the subsets, (subsets, vocabulary); new states are stored."""
        rows, past, new = batch

        def padded(row: list[int], length: int) -> list[int]:
            return row + [0] * (length - len(row))

        places, ids = (
            torch.tensor([padded([self._keys[n][of] for n in row.nodes], new) for row in rows])
            for of in (1, 2)
        )
        cache = self._store.read(
            [padded([self._states[n].slot for n in row.past], past) for row in rows]
        )
        at = [(number, column) for number, row in enumerate(rows) for _, column in row.ends]
        logits = next_token(ids, places, self._sees(batch), cache, at)
        self._keep(batch, cache)
        return logits

    def _sees(self, batch: Pass) -> torch.Tensor:
        """Which tokens, stored and new, each new one sees: all of its path, up to itself.

        (rows, 1, new, stored and new). Padding sees itself: the mean of nothing is not a number.
        """
        rows, past, new = batch
        sees = torch.zeros(len(rows), 1, new, past + new, dtype=torch.bool)
        for number, row in enumerate(rows):
            mine = sees[number, 0]
            column = {node: place for place, node in enumerate(row.past)}
            for place, node in enumerate(row.nodes):
                parent = self._keys[node][0]
                if (there := column.get(parent, -1)) >= past:
                    mine[place] = mine[there - past]
                elif parent >= 0:
                    mine[place, [column[each] for each in self._up(parent)]] = True
                column[node] = past + place
                mine[place, past + place] = True
        sees[:, 0, range(new), range(past, past + new)] = True
        return sees

    def _up(self, node: int) -> Iterator[int]:
        """This token and all before it on its path."""
        while node >= 0:
            yield node
            node = self._keys[node][0]

    def _keep(self, batch: Pass, cache: DynamicCache) -> None:
        """Store the new states that later subsets may begin with."""
        where = []
        for number, row in enumerate(batch.rows):
            for column, node in enumerate(row.nodes, start=batch.past):
                before, position, token = self._keys[node]
                parent = self._states.get(before)  # None if there was no room for it
                if node not in self._kept or node in self._states or parent is None:
                    continue
                state = self._store.add(parent.serial, position, token)
                if state is not None:
                    self._states[node] = state
                    where.append((number, column, state.slot))
        if where:
            self._store.write(cache, where)
        if len(batch.rows) == 1 and len(where) == batch.new:
            past = [self._states[node].slot for node in batch.rows[0].past]
            self._store.hold(cache, past + [slot for _, _, slot in where])


def fill(
    paths: Sequence[Path], stored: AbstractSet[int], most_tokens: int, most_queries: int
) -> list[Row]:
    """Rows for all paths: those that begin alike in one row, where what they share is new once.

    The last token of a path is computed even if it is stored: it gives the logits. A row has at
    most ``most_tokens`` tokens, new and stored, and ``most_queries`` queries, or one path. Few rows
    are about equally long, so that they share a pass with little padding.
    """
    # A path comes after those that go on where it ends: it then is within their row.
    order = sorted(range(len(paths)), key=lambda which: paths[which], reverse=True)

    def filled(room: int) -> list[Row]:
        return _filled(paths, order, stored, most_tokens, most_queries, room)

    rows = filled(_ROW_TOKENS)
    if 1 < len(rows) <= _FEW_ROWS:
        longest = max(len(row.nodes) for row in rows)
        mean = -(-sum(len(row.nodes) for row in rows) // len(rows))
        a_path = -(-sum(len(row.nodes) for row in rows) // len(paths))
        even = filled(min(_ROW_TOKENS, _ROW_TOKENS - (longest - mean) + a_path))
        if len(even) * max(len(row.nodes) for row in even) < len(rows) * longest:
            return even
    return rows


def _filled(
    paths: Sequence[Path],
    order: Sequence[int],
    stored: AbstractSet[int],
    most_tokens: int,
    most_queries: int,
    room_beside_first: int,
) -> list[Row]:
    """Rows for all paths in this order, each with this many new tokens besides its first path."""
    rows: list[Row] = []
    columns: dict[int, int] = {}
    past: set[int] = set()
    room = 0
    for which in order:
        path = paths[which]
        # How many tokens are stored; the last one does not count.
        known = next((d for d, n in enumerate(path[:-1]) if n not in stored), len(path) - 1)
        new = [node for node in path[known:] if node not in columns]
        more = [node for node in path[:known] if node not in past]
        full = not rows or len(rows[-1].ends) >= most_queries or len(new) > room
        if full or len(columns) + len(past) + len(new) + len(more) > most_tokens:
            new, more = list(path[known:]), list(path[:known])
            columns, past, room = {}, set(), len(new) + room_beside_first
            rows.append(Row([], [], []))
        row = rows[-1]
        room -= len(new)
        columns.update((node, len(row.nodes) + place) for place, node in enumerate(new))
        past.update(more)
        row.nodes.extend(new)
        row.past.extend(more)
        row.ends.append((which, columns[path[-1]]))
    return rows
