"""Subsets scored by a causal Hugging Face model, many to a forward pass.

What subsets have in common is computed once, where that is exact (``prefixes``); elsewhere, subsets
of the same size share a pass. No answer depends on its neighbours. A pass holds at most
``batch_tokens`` tokens; running out of memory halves that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

from rationales.context import Context
from rationales.errors import RationalesError, first_line
from rationales.scoring import positions
from rationales.scoring.guard import at_rest
from rationales.scoring.logits import (
    DEFAULT_BATCH_TOKENS,
    LOGITS_AT_ONCE,
    ModelScorer,
    agree,
    is_out_of_memory,
    read_scores,
    refused,
    smaller_batches,
)
from rationales.scoring.prefixes import Paths, PrefixStore
from rationales.scoring.protocol import Query, Score

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Evaluation = Literal["sparse", "masked"]


class _Shape(NamedTuple):
    """What the queries of one forward pass have in common."""

    evaluation: Evaluation
    length: int
    rope_length: int | None


class CausalScorer(ModelScorer):
    """Scores subsets with a causal language model from transformers.

    The model is tested when it is given: if sparse evaluation is not exact, whole contexts are
    masked instead; if masking is not exact either (recurrent models), it is refused. Prefixes are
    shared if that too is shown to be exact; ``shares_prefixes`` says so. Of families that the
    exactness tests of this package do not cover, contexts longer than the tested one are masked.
    ``like`` is a scorer of a model with other weights and nothing else: its tests hold here too.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        batch_tokens: int = DEFAULT_BATCH_TOKENS,
        evaluation: Literal["auto", "sparse", "masked"] = "auto",
        share_prefixes: bool = True,
        like: CausalScorer | None = None,
    ) -> None:
        super().__init__(model, batch_tokens)
        self.max_positions = positions.max_positions(model)
        self._next_token = positions.NextToken(model)
        self._window = positions.window(model)
        self._rope_switch = positions.rope_switch(model)
        self._tested = positions.tested_length(model)
        trusted = positions.is_covered(model) or evaluation == "sparse"
        limits = [self._window, None if trusted else self._tested]
        self._longest_sparse = min((n for n in limits if n is not None), default=None)
        self._sparse = evaluation == "sparse"
        self._prefixes: PrefixStore | None = None
        if like is not None:
            self._sparse = like._sparse
            self._prefixes = None if like._prefixes is None else like._prefixes.empty()
            return
        with at_rest(model):
            if evaluation == "auto":
                try:
                    self._sparse = self._self_test()
                except RationalesError:
                    raise
                except Exception as error:  # a family whose forward pass wants something else
                    why = f"fails the self-test ({first_line(error)})"
                    raise refused(model, why) from error
            if share_prefixes and self._sparse:
                self._prefixes = self._shared_store()

    @property
    def shares_prefixes(self) -> bool:
        """Whether subsets that begin alike are computed once up to there."""
        return self._prefixes is not None

    def evaluation(self, context: Context) -> Evaluation:
        """How subsets of this context are shown to the model: ``sparse`` or ``masked``."""
        longest = self._longest_sparse
        within = longest is None or len(context.ids) <= longest
        return "sparse" if self._sparse and within else "masked"

    def _new_store(self) -> None:
        if self._prefixes is not None:
            self._prefixes = self._prefixes.empty()

    def _score(self, queries: Sequence[Query]) -> list[Score]:
        groups: dict[_Shape, list[int]] = {}
        for place, query in enumerate(queries):
            groups.setdefault(self._shape(query), []).append(place)
        scores: dict[int, Score] = {}
        if self._prefixes is not None:
            # Beyond the switch, the states of a token depend on the length of the context.
            sparse = [s for s in groups if s.evaluation == "sparse" and s.rope_length is None]
            places = sorted(place for shape in sparse for place in groups[shape])
            self._score_shared(self._prefixes, {p: queries[p] for p in places}, scores)
        for shape, group in groups.items():
            waiting = [place for place in group if place not in scores]
            while waiting:
                batch = waiting[: self._rows(shape.length)]
                try:
                    answers = self._forward([queries[p] for p in batch], shape.evaluation)
                except (MemoryError, RuntimeError) as error:
                    self._work.batch_tokens = smaller_batches(
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
        while waiting := [place for place in queries if place not in scores]:
            paths = Paths(store, [queries[place] for place in waiting])
            if not paths.worthwhile:
                return
            for batch in paths.passes(self.batch_tokens, self._most_asked):
                try:
                    logits = paths.run(batch, self._next_token, self.model.device)
                    self._work.tokens += batch.tokens
                    places = [waiting[which] for which in batch.queries]
                    answers = read_scores(logits, [queries[place][0] for place in places])
                except BaseException as error:
                    # A place may have been given that nothing was written to: nothing stays.
                    held = store.clear()
                    if not isinstance(error, MemoryError | RuntimeError):
                        raise
                    # What was stored took memory too: one alone is tried again without it.
                    if not (held and len(batch.queries) == 1 and is_out_of_memory(error)):
                        tokens = len(batch.rows) * (batch.past + batch.new)
                        self._work.batch_tokens = smaller_batches(error, len(batch.queries), tokens)
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
        self._work.tokens += ids.numel()
        return read_scores(logits, [context for context, _ in queries])

    def _self_test(self) -> bool:
        """Whether sparse evaluation is exact; an error if masked evaluation is not.

        On random subsets of one random context: the whole must be the model's ordinary answer;
        changing dropped tokens must change nothing; dropped tokens must leave their positions
        empty; and sparse must agree with masked.
        """
        if getattr(self.model, "_is_stateful", False):
            raise refused(self.model, "carries a recurrent state through every token")
        ids, subsets = self._sample([self._window, self.max_positions])
        length, kept = len(ids), torch.tensor(subsets)
        vocabulary = int(positions.text_config(self.model).vocab_size)
        shown = torch.zeros(len(subsets), length, dtype=torch.long).scatter_(1, kept, 1)
        changed = torch.where(shown[:1].bool(), ids, (ids + 1) % vocabulary)
        whole, *masked = self._ask(
            torch.cat([ids.expand(len(subsets) + 1, -1), changed]),
            torch.arange(length).expand(len(subsets) + 2, -1),
            torch.cat([torch.ones_like(shown[:1]), shown, shown[:1]]),
        )
        if any(row.isnan().any() for row in (whole, *masked)):
            raise RationalesError(
                f"{self.model.config.model_type} model: its weights give NaN; "
                "the file may be damaged, or the dtype too narrow (try --dtype float32)"
            )
        if not self._agree(whole, self._ordinary(ids)):
            raise refused(self.model, "counts positions in a way of its own")
        if not self._agree(masked[0], masked.pop()):
            raise refused(self.model, "still reads tokens that the attention mask drops")
        close = torch.arange(kept.shape[1]).expand_as(kept)
        places = kept if self._next_token.controls_positions else close
        sparse = self._ask(ids[kept], places, torch.ones_like(kept))
        agree = all(self._agree(*pair) for pair in zip(masked, sparse, strict=True))
        if agree and not self._next_token.controls_positions:
            raise refused(self.model, "moves kept tokens together when others are dropped")
        return agree

    def _sample(self, limits: Sequence[int | None]) -> tuple[torch.Tensor, list[list[int]]]:
        """A random text within these limits, and subsets of it, some of which begin alike."""
        length = max(4, min(n for n in (self._tested, *limits) if n is not None))
        rng = torch.Generator().manual_seed(0)
        vocabulary = int(positions.text_config(self.model).vocab_size)
        ids = torch.randint(0, vocabulary, (length,), generator=rng)
        subsets = []
        for begins_with in ([0], [0, 1], [0, 1], []):
            free = [i for i in range(length - 1) if i not in begins_with]
            drawn = torch.randperm(len(free), generator=rng).tolist()
            more = [free[i] for i in drawn[: max(2, length // 3) - len(begins_with)]]
            subsets.append(sorted([*begins_with, *more, length - 1]))
        return ids, subsets

    def _ask(self, ids: torch.Tensor, places: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Log-probabilities of the next token, (rows, vocabulary), on the CPU."""
        on = self.model.device
        return self._next_token(ids.to(on), places.to(on), mask.to(on)).log_softmax(-1).cpu()

    @torch.no_grad()
    def _ordinary(self, ids: torch.Tensor) -> torch.Tensor:
        """The log-probabilities after a text, as everybody asks for them."""
        ids = ids[None].to(self.model.device)
        logits = self.model(input_ids=ids, use_cache=False).logits
        return logits[0, -1].float().log_softmax(-1).cpu()  # type: ignore[no-any-return]

    def _agree(self, one: torch.Tensor, other: torch.Tensor) -> bool:
        return agree(one, other, self.model.dtype)

    def _shared_store(self) -> PrefixStore | None:
        """A store for prefixes, if sharing them is exact for this model; None if it is not.

        On random subsets of one random context, asked for twice: the second time, what the first
        has stored must give the answers of plain sparse evaluation, behind padding too.
        """
        if self._window is not None or not self._next_token.takes_cache:
            return None
        ids, subsets = self._sample([self._rope_switch, self.max_positions])
        kept = torch.tensor(subsets)
        context = Context(tuple(ids.tolist()), 0)
        # The first subset is asked for without its last but one token too: rows of two lengths.
        shorter = [*subsets[0][:-2], subsets[0][-1]]
        queries = [(context, tuple(subset)) for subset in (*subsets, shorter)]
        try:
            from transformers import DynamicCache

            expected = [
                row
                for each in (kept, torch.tensor([shorter]))
                for row in self._ask(ids[each], each, torch.ones_like(each))
            ]
            cache, on = DynamicCache(), self.model.device
            first = ids[None, :1].to(on)
            self._next_token(first, torch.zeros_like(first), torch.ones_like(first), cache)
            store = PrefixStore.like(cache)
            if store is None:
                return None
            for _ in range(2):
                paths = Paths(store, queries)
                for batch in paths.passes(self.batch_tokens, self._most_asked):
                    logits = paths.run(batch, self._next_token, on).log_softmax(-1).cpu()
                    for which, row in zip(batch.queries, logits, strict=True):
                        if not self._agree(row, expected[which]):
                            return None
        except Exception:  # a family that keeps its states in a way of its own
            return None
        return store.empty()
