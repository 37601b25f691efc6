"""Subsets scored by a causal Hugging Face model, many to a forward pass.

What subsets have in common is computed once, where that is exact (``prefixes``); elsewhere, subsets
of the same size share a pass. No answer depends on its neighbours. A pass holds at most
``batch_tokens`` tokens; running out of memory halves that.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

from rationales.context import Context
from rationales.errors import RationalesError, first_line
from rationales.scoring import positions
from rationales.scoring.logits import (
    LOGITS_AT_ONCE,
    is_out_of_memory,
    read_scores,
    refused,
    smaller_batches,
    weights_version,
)
from rationales.scoring.prefixes import Paths, PrefixStore
from rationales.scoring.protocol import Query, Score

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Evaluation = Literal["sparse", "masked"]

DEFAULT_BATCH_TOKENS = 4096


class _Shape(NamedTuple):
    """What the queries of one forward pass have in common."""

    evaluation: Evaluation
    length: int
    rope_length: int | None


class CausalScorer:
    """Scores subsets with a causal language model from transformers.

    The model is tested when it is given: if sparse evaluation is not exact, whole contexts are
    masked instead; if masking is not exact either (recurrent models), it is refused. Prefixes are
    shared if that too is shown to be exact; ``shares_prefixes`` says so. ``tokens`` counts what the
    forward passes have computed.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        batch_tokens: int = DEFAULT_BATCH_TOKENS,
        evaluation: Literal["auto", "sparse", "masked"] = "auto",
        share_prefixes: bool = True,
    ) -> None:
        if batch_tokens < 1:
            raise RationalesError(f"batch_tokens must be at least 1, not {batch_tokens}")
        model.train(False)
        self.model = model
        self.batch_tokens = batch_tokens
        self.max_positions = positions.max_positions(model)
        self._next_token = positions.NextToken(model)
        self._window = positions.window(model)
        self._rope_switch = positions.rope_switch(model)
        self._sparse = evaluation == "sparse"
        if evaluation == "auto":
            try:
                self._sparse = self._self_test()
            except RationalesError:
                raise
            except Exception as error:  # a family whose forward pass wants something of its own
                why = f"fails the self-test ({first_line(error)})"
                raise refused(model, why) from error
        self._prefixes = self._shared_store() if share_prefixes and self._sparse else None
        self._weights = weights_version(model) if self._prefixes is not None else 0
        self._lock = threading.Lock()  # of what is stored
        self.tokens = 0

    @property
    def shares_prefixes(self) -> bool:
        """Whether subsets that begin alike are computed once up to there."""
        return self._prefixes is not None

    def evaluation(self, context: Context) -> Evaluation:
        """How subsets of this context are shown to the model: ``sparse`` or ``masked``."""
        within = self._window is None or len(context.ids) <= self._window
        return "sparse" if self._sparse and within else "masked"

    def score(self, queries: Sequence[Query]) -> list[Score]:
        """One score for each query, in order; as many forward passes as the token budget asks."""
        groups: dict[_Shape, list[int]] = {}
        for place, query in enumerate(queries):
            groups.setdefault(self._shape(query), []).append(place)
        scores: dict[int, Score] = {}
        if self._prefixes is not None:
            # Beyond the switch, the states of a token depend on the length of the context.
            sparse = [s for s in groups if s.evaluation == "sparse" and s.rope_length is None]
            places = sorted(place for shape in sparse for place in groups[shape])
            with self._lock:
                self._score_shared(self._prefixes, {p: queries[p] for p in places}, scores)
        for shape, group in groups.items():
            waiting = [place for place in group if place not in scores]
            while waiting:
                batch = waiting[: self._rows(shape.length)]
                try:
                    answers = self._forward([queries[p] for p in batch], shape.evaluation)
                except (MemoryError, RuntimeError) as error:
                    self.batch_tokens = smaller_batches(
                        error, len(batch), len(batch) * shape.length
                    )
                    continue
                scores.update(zip(batch, answers, strict=True))
                waiting = waiting[len(batch) :]
        return [scores[place] for place in range(len(queries))]

    def _score_shared(
        self, store: PrefixStore, queries: dict[int, Query], scores: dict[int, Score]
    ) -> None:
        """Add the scores of these queries, if they have anything in common or stored."""
        if (weights := weights_version(self.model)) != self._weights:
            store.clear()  # its states are those of other weights
            self._weights = weights
        while waiting := [place for place in queries if place not in scores]:
            paths = Paths(store, [queries[place] for place in waiting])
            if not paths.worthwhile:
                return
            for batch in paths.passes(self.batch_tokens, self._most_asked):
                try:
                    logits = paths.run(batch, self._next_token, self.model.device)
                    self.tokens += batch.tokens
                    places = [waiting[which] for which in batch.asked]
                    answers = read_scores(logits, [queries[place][0] for place in places])
                except BaseException as error:
                    # A place may have been given that nothing was written to: nothing stays.
                    held = store.clear()
                    if not isinstance(error, MemoryError | RuntimeError):
                        raise
                    # What was stored took memory too: one alone is tried again without it.
                    if not (held and len(batch.asked) == 1 and is_out_of_memory(error)):
                        tokens = len(batch.rows) * (batch.past + batch.new)
                        self.batch_tokens = smaller_batches(error, len(batch.asked), tokens)
                    store.max_bytes //= 2
                    break
                scores.update(zip(places, answers, strict=True))

    def _shape(self, query: Query) -> _Shape:
        context, kept = query
        if not kept or kept[-1] != len(context.ids) - 1:
            raise RationalesError(
                "a causal model predicts from the token before the target: it must be kept, "
                "so make it required or pinned in the context"
            )
        evaluation = self.evaluation(context)
        length = len(kept) if evaluation == "sparse" else len(context.ids)
        switch = self._rope_switch
        rope = len(context.ids) if switch is not None and len(context.ids) > switch else None
        return _Shape(evaluation, length, rope)

    def _rows(self, length: int) -> int:
        return max(1, min(self.batch_tokens // max(1, length), self._most_asked))

    @property
    def _most_asked(self) -> int:
        """Subsets of one pass at most: each has logits over the whole vocabulary."""
        return max(1, LOGITS_AT_ONCE // int(positions.text_config(self.model).vocab_size))

    def _forward(self, queries: Sequence[Query], evaluation: Evaluation) -> list[Score]:
        """One forward pass over queries of the same shape."""
        masked = evaluation == "masked"
        device = self.model.device
        kept = [tuple(range(len(context.ids))) if masked else keep for context, keep in queries]
        ids = torch.tensor(
            [[c.ids[i] for i in row] for (c, _), row in zip(queries, kept, strict=True)]
        )
        places = torch.tensor(kept)
        mask = torch.ones_like(ids)
        if masked:
            mask.zero_()
            for row, (_, keep) in enumerate(queries):
                mask[row, list(keep)] = 1
        logits = self._next_token(ids.to(device), places.to(device), mask.to(device))
        self.tokens += ids.numel()
        return read_scores(logits, [context for context, _ in queries])

    def _self_test(self) -> bool:
        """Whether sparse evaluation is exact; an error if masked evaluation is not.

        On one random context with holes: changing a dropped token must change nothing; dropped
        tokens must leave their positions empty; and sparse must agree with masked.
        """
        config = positions.text_config(self.model)
        if getattr(self.model, "_is_stateful", False):
            raise refused(self.model, "carries a recurrent state through every token")
        limits = [n for n in (self._window, self.max_positions) if n is not None]
        length = max(4, min([12, *limits]))
        rng = torch.Generator().manual_seed(0)
        ids = torch.randint(0, config.vocab_size, (1, length), generator=rng)
        keep = [i for i in range(length) if i == length - 1 or i % 3 == 0]
        places = torch.arange(length)[None]
        mask = torch.zeros_like(ids)
        mask[0, keep] = 1
        changed = torch.where(mask.bool(), ids, (ids + 1) % config.vocab_size)

        def ask(ids: torch.Tensor, places: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            on = self.model.device
            return self._next_token(ids.to(on), places.to(on), mask.to(on)).log_softmax(-1).cpu()

        full = ask(ids, places, torch.ones_like(mask))
        masked = ask(ids, places, mask)
        if full.isnan().any() or masked.isnan().any():
            raise RationalesError(
                f"{self.model.config.model_type} model: its weights give NaN; "
                "the file may be damaged, or the dtype too narrow (try --dtype float32)"
            )
        tolerance = self._tolerance
        if not torch.allclose(masked, ask(changed, places, mask), atol=tolerance, rtol=0):
            raise refused(self.model, "still reads tokens that the attention mask drops")
        compact, ones = ids[:, keep], torch.ones_like(ids[:, keep])
        if not self._next_token.controls_positions:
            closed_up = ask(compact, torch.arange(len(keep))[None], ones)
            if torch.allclose(masked, closed_up, atol=tolerance, rtol=0):
                raise refused(self.model, "moves kept tokens together when others are dropped")
            return False
        sparse = ask(compact, places[:, keep], ones)
        return torch.allclose(masked, sparse, atol=tolerance, rtol=0)

    @property
    def _tolerance(self) -> float:
        return 1e-3 if self.model.dtype in (torch.float32, torch.float64) else 0.3

    def _shared_store(self) -> PrefixStore | None:
        """A store for prefixes, if sharing them is exact for this model; None if it is not.

        On random subsets of one random context, asked for twice: the second time, what the first
        has stored must give the answers of plain sparse evaluation, behind padding too.
        """
        if self._window is not None or not self._next_token.takes_cache:
            return None
        limits = [n for n in (self._rope_switch, self.max_positions) if n is not None]
        length = max(4, min([12, *limits]))
        rng = torch.Generator().manual_seed(1)
        vocabulary = int(positions.text_config(self.model).vocab_size)
        ids = torch.randint(0, vocabulary, (length,), generator=rng)
        coins = torch.rand(4, length, generator=rng) < 0.6
        coins[:, -1] = True
        coins[0], coins[1, :2], coins[2:, 0] = True, True, True
        subsets = [torch.nonzero(row)[:, 0] for row in coins]
        context = Context(tuple(ids.tolist()), 0)
        queries = [(context, tuple(kept.tolist())) for kept in subsets]
        on = self.model.device
        try:
            from transformers import DynamicCache

            cache = DynamicCache()
            first = ids[None, :1].to(on)
            self._next_token(first, torch.zeros_like(first), torch.ones_like(first), cache)
            store = PrefixStore.like(cache)
            if store is None:
                return None
            for _ in range(2):
                paths = Paths(store, queries)
                for batch in paths.passes(self.batch_tokens, self._most_asked):
                    logits = paths.run(batch, self._next_token, on).log_softmax(-1)
                    for which, row in zip(batch.asked, logits, strict=True):
                        kept = subsets[which][None]
                        plain = self._next_token(
                            ids[kept].to(on), kept.to(on), torch.ones_like(kept).to(on)
                        ).log_softmax(-1)
                        if not torch.allclose(row, plain[0], atol=self._tolerance, rtol=0):
                            return None
            weights_version(self.model)
        except Exception:  # a family that keeps its states in a way of its own
            return None
        store.clear()
        return store
