"""What a search costs in forward passes and tokens, counted without a clock.

    python benchmarks/rounds.py --scores scores.jsonl
    python benchmarks/rounds.py --scores scores.jsonl --shortlist '{"by_gain": 8}' --seed 1001

For comparing settings of fast search: each target is explained alone, and then all together. Every
subset is scored once and written to the file of scores; after that, other settings that ask for the
same subsets need no model. Passes and tokens are those that the planner of the package would make
(``scoring/prefixes.py``), with nothing computed. The cost is PASS_TOKENS × passes + tokens.

Choose settings with seeds that the benchmark does not use. Data come from the folder that
RATIONALES_DATA names.
"""

import argparse
import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from settings import FULL, Item, lambada

import rationales
from rationales.context import causal_context
from rationales.scoring.prefixes import Paths, PrefixStore, State
from rationales.scoring.protocol import PASS_TOKENS, Query, Score
from rationales.search import choose, driver
from rationales.search.fast import Shortlist, fast

STATES = 3640
"""Tokens that the prefix store of the default model holds."""


class EmptyStore(PrefixStore):
    """A prefix store that remembers which states it would hold, and holds none."""

    def __init__(self) -> None:
        self._states, self._used, self._serial = OrderedDict(), set(), 0

    def add(self, before: int, position: int, token: int) -> State | None:
        if len(self._used) >= STATES:
            return None
        while len(self._states) >= STATES:
            self._states.popitem(last=False)
        self._serial += 1
        key = (before, position, token)
        self._used.add(key)
        self._states[key] = State(self._serial, 0)
        return self._states[key]

    def write(self, *_: object) -> None:
        pass

    def hold(self, *_: object) -> None:
        pass


class Planner:
    """The passes of one model, without the model."""

    def __init__(self) -> None:
        self.store = EmptyStore()
        self.passes = self.tokens = 0

    def plan(self, queries: Sequence[Query]) -> None:
        if queries:
            paths = Paths(self.store, queries)
            for batch in paths.passes(4096, 682):
                paths._keep(batch, None)
                self.passes += 1
                self.tokens += len(batch.rows) * batch.new


class Recorded:
    """A scorer that asks the model only for what is not in its file."""

    pass_tokens = PASS_TOKENS

    def __init__(self, explainer: rationales.Explainer, file: Path) -> None:
        self.explainer, self.file = explainer, file
        lines = file.read_text().splitlines() if file.exists() else []
        self.known = {key: Score(*score) for key, score in map(json.loads, lines)}

    def fresh(self) -> "Recorded":
        self.base, self.adapted = Planner(), Planner()
        return self

    def score(self, queries: Sequence[Query]) -> list[Score]:
        for planner, full in ((self.base, True), (self.adapted, False)):
            planner.plan([q for q in queries if (len(q[1]) == len(q[0].ids)) == full])
        keys = [f"{hash((c.ids, c.target_id))} {kept}" for c, kept in queries]
        new = {
            key: query for key, query in zip(keys, queries, strict=True) if key not in self.known
        }
        if new:
            found = dict(zip(new, self.explainer.scorer.score(list(new.values())), strict=True))
            with self.file.open("a") as file:
                for key, s in found.items():
                    score = (s.target_logprob, s.prediction_id, s.prediction_logprob, s.rank)
                    file.write(json.dumps([key, score]) + "\n")
            self.known |= found
        return [self.known[key] for key in keys]


def measure(name: str, scorer: Recorded, items: list[Item], **options: object) -> None:
    """One line for the targets one by one, and one for all together."""
    asked = rationales.Options().change(**options)

    def search(items: list[Item]) -> list[rationales.Rationale]:
        contexts = [(i, causal_context(i.ids, i.target, frozenset(i.pinned))) for i in items]
        searches = [(i.id, c, choose.make_search(c, asked, None)) for i, c in contexts]
        return [found for _, found in driver.run(searches, scorer)]

    for how, groups in (("alone", [[item] for item in items]), ("together", [items])):
        sizes, passes, tokens = [], 0, 0
        for group in groups:
            sizes += [len(found) for found in search(group)]
            passes += scorer.base.passes + scorer.adapted.passes
            tokens += scorer.base.tokens + scorer.adapted.tokens
        per = len(items)
        print(
            f"{name:10} {how:9} passes {passes / per:6.2f}  tokens {tokens / per:7.1f}  "
            f"cost {(PASS_TOKENS * passes + tokens) / per:7.1f}  size {sum(sizes) / per:.2f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scores", type=Path, required=True, help="the file of scores")
    parser.add_argument("--passages", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1001)
    parser.add_argument("--max-size", type=int, default=14, help="where exact search gives up")
    parser.add_argument("--shortlist", type=json.loads, default={}, help="fields of Shortlist")
    arguments = parser.parse_args()
    explainer = rationales.load()
    amounts = replace(FULL, passages=arguments.passages)
    items = list(lambada(explainer, "a", amounts, arguments.seed))
    scorer = Recorded(explainer, arguments.scores)
    choose.fast = partial(fast, shortlist=Shortlist(**arguments.shortlist))
    measure("fast", scorer, items, fast=True)
    measure("exact", scorer, items, max_size=arguments.max_size)


if __name__ == "__main__":
    main()
