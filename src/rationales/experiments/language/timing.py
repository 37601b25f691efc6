"""The cost of one search, with a new scorer: nothing that another search computed is used."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from rationales.context import Context, causal_context
from rationales.data import data_file
from rationales.errors import RationalesError
from rationales.explainer import Explainer
from rationales.options import Options
from rationales.runs import Line, Lines, Pace, Progress
from rationales.text import Tokenizer, prefix_ids

if TYPE_CHECKING:
    from rationales.scoring.adapted import AdaptedScorer
    from rationales.scoring.causal import CausalScorer

TEXT = "wikitext2/valid.raw"
KEY = ("part", "example", "way")
_TRIES = 1000


@dataclass(frozen=True)
class Way:
    """A way to search: the options, and how the model sees a subset."""

    name: str
    label: str
    options: Options
    evaluation: Literal["masked", "sparse"] = "sparse"
    share_prefixes: bool = False


_EXHAUSTIVE = Options(method="exhaustive", max_evaluations=0)
WAYS = (
    Way("masked", "greedy, full inputs with masks", Options(), "masked"),
    Way("sparse", "greedy, sparse inputs", Options()),
    Way("shared", "greedy, sparse inputs, prefixes shared", Options(), share_prefixes=True),
    Way("fast", "greedy, fast", Options(fast=True), share_prefixes=True),
    Way("exhaustive", "exhaustive", _EXHAUSTIVE, share_prefixes=True),
)


@dataclass(frozen=True)
class Timed:
    """One search to be timed: to a sufficient rationale, or to ``size`` tokens in any case."""

    part: Literal["templates", "growth"]
    example: str
    way: Way
    context: Context
    size: int | None = None
    """At most this many tokens."""

    @property
    def key(self) -> tuple[str, str, str]:
        """The key of its line."""
        return (self.part, self.example, self.way.name)

    @property
    def options(self) -> Options:
        """The options of the search; as contexts grow, none ends before its largest size."""
        criterion = "none" if self.part == "growth" else "argmax"
        return self.way.options.change(max_size=self.size, criterion=criterion)


def time_all(
    explainer: Explainer, searches: Sequence[Timed], lines: Lines, progress: Progress
) -> None:
    """Time the searches that have no line yet, one after the other."""
    missing = [each for each in searches if each.key not in lines]
    pace = Pace(Counter(f"{each.part} {each.way.name}" for each in missing), len(searches))
    if missing:
        # The first passes of a process are slow: a short search that is not timed.
        _cost(explainer, replace(missing[0], part="growth", way=WAYS[0], size=2))
    for each in missing:
        progress(each.way.label, pace.done, pace.total, pace.note)
        pace.begin()
        lines.add(dict(zip(KEY, each.key, strict=True)) | _cost(explainer, each))
        pace.finish(f"{each.part} {each.way.name}")


def contexts_of(explainer: Explainer, length: int, count: int, seed: int) -> dict[str, Context]:
    """Contexts of this many tokens, from random places of a text."""
    text = data_file(TEXT).read_text(encoding="utf-8")
    tokenizer: Tokenizer = explainer.tokenizer
    prefix = tuple(prefix_ids(tokenizer))
    places = random.Random(f"{seed} {length}")
    found: dict[str, Context] = {}
    limit = getattr(explainer.scorer, "max_positions", None)
    if limit is not None and len(prefix) + length > limit:
        raise RationalesError(f"the model has positions for {limit} tokens, not for {length}")
    for _ in range(_TRIES):
        if len(found) == count:
            return found
        start = places.randrange(max(1, len(text) - 12 * length))
        piece = text[start : start + 12 * length].partition(" ")[2]
        ids = tuple(tokenizer(piece, add_special_tokens=False)["input_ids"])
        if len(ids) > length:
            ids = prefix + ids[: length + 1]
            pinned = frozenset(range(len(prefix)))
            found[f"{length}/{start}"] = causal_context(ids, len(ids) - 1, pinned)
    raise RationalesError(f"{TEXT} is too short for {count} contexts of {length} tokens")


def _cost(explainer: Explainer, search: Timed) -> Line:
    """The cost of one search, as a line."""
    scorer = _new_scorer(explainer, search)
    alone = Explainer(scorer, explainer.tokenizer)
    began = time.perf_counter()
    [(_, rationale)] = alone.rationalize([("", search.context)], search.options)
    return {
        "seconds": round(time.perf_counter() - began, 4),
        "tokens": scorer.tokens,
        "evaluations": rationale.evaluations,
        "context": len(search.context.everything),
        "size": len(rationale),
        "sufficient": rationale.sufficient,
    }


def _new_scorer(explainer: Explainer, search: Timed) -> CausalScorer | AdaptedScorer:
    """A scorer that has computed nothing yet, with the explainer's weights."""
    from rationales.scoring.adapted import AdaptedScorer
    from rationales.scoring.causal import CausalScorer

    def new(old: CausalScorer) -> CausalScorer:
        evaluation = search.way.evaluation
        if evaluation == "sparse":
            evaluation = old.evaluation(search.context)  # where sparse is not exact, it is not used
        return CausalScorer(
            old.model,
            batch_tokens=old.batch_tokens,
            evaluation=evaluation,
            share_prefixes=search.way.share_prefixes,
        )

    scorer = explainer.scorer
    if isinstance(scorer, AdaptedScorer):
        return AdaptedScorer(new(scorer.base), new(scorer.adapted))
    if isinstance(scorer, CausalScorer):
        return new(scorer)
    raise RationalesError("efficiency is measured on a model: a black box will not do")
