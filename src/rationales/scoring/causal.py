"""Subsets scored by a causal Hugging Face model, many to a forward pass.

What subsets have in common is computed once, where that is exact (``prefixes``); elsewhere, subsets
of the same size share a pass. No score depends on the others. A pass holds at most
``batch_tokens`` tokens; running out of memory halves that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch

from rationales.context import Context
from rationales.scoring import positions
from rationales.scoring.guard import at_rest
from rationales.scoring.hooks import eager_attention
from rationales.scoring.logits import DEFAULT_BATCH_TOKENS, ModelScorer, read_scores, refused
from rationales.scoring.prefixes import Paths, PrefixStore
from rationales.scoring.protocol import Evaluation, Query, Score

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Shape = tuple[Evaluation, int, int | None]
"""What the queries of one pass share: evaluation, length, and the length that RoPE depends on."""


_LOOKING = 32
"""Tokens of a target whose attention is looked at, at most: all layers of it are in memory."""


class CausalScorer(ModelScorer):
    """Scores subsets with a causal language model from transformers.

    The model is tested when it is given: if sparse evaluation is not exact, full contexts are
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
        super().__init__(model, batch_tokens, evaluation)
        self.max_positions = positions.max_positions(model)
        self._next_token = positions.NextToken(model)
        self._rope_switch = positions.rope_switch(model)
        self._window = positions.window(model)
        if self._window is not None:
            self._longest_sparse = min(self._window, self._longest_sparse or self._window)
        self._prefixes: PrefixStore | None = None
        if like is not None:
            self._sparse, self._prefixes = like._sparse, like._prefixes
            self._new_store()
            return
        if evaluation == "auto":
            self._sparse = self._test()
        if share_prefixes and self._sparse:
            self._prefixes = self._store()

    @property
    def shares_prefixes(self) -> bool:
        """Whether subsets that begin alike are computed once up to there."""
        return self._prefixes is not None

    def _new_store(self) -> bool:
        if self._prefixes is None:
            return False
        held = len(self._prefixes) > 0
        self._prefixes = self._prefixes.empty()
        return held

    def _score(self, queries: Sequence[Query]) -> list[Score]:
        shapes = [self._shape(query) for query in queries]
        # Beyond the switch, the states of a token depend on the length of the context.
        alike = [p for p, shape in enumerate(shapes) if shape[0] == "sparse" and shape[2] is None]
        scores = self._score_shared({place: queries[place] for place in alike})
        groups: dict[Shape, list[int]] = {}
        for place, shape in enumerate(shapes):
            if place not in scores:
                groups.setdefault(shape, []).append(place)

        def ask(batch: list[int]) -> list[Score]:
            return self._forward([queries[place] for place in batch], shapes[batch[0]][0])

        for (_, length, _), places in groups.items():
            scores.update(self._in_batches(places, length, ask))
        return [scores[place] for place in range(len(queries))]

    def _score_shared(self, queries: dict[int, Query]) -> dict[int, Score]:
        """The scores of these queries, as long as they have anything in common or stored."""
        scores: dict[int, Score] = {}
        while self._prefixes is not None and len(scores) < len(queries):
            waiting = [place for place in queries if place not in scores]
            paths = Paths(self._prefixes, [queries[place] for place in waiting])
            if not paths.worthwhile:
                break
            for batch in paths.passes(self.batch_tokens, self._max_subsets):
                places = [waiting[which] for which in batch.queries]
                try:
                    with at_rest(self.model):
                        logits = paths.run(batch, self._next_token)
                        answers = read_scores(logits, [queries[place][0] for place in places])
                    self._work.tokens += len(batch.rows) * batch.new
                except BaseException as error:
                    # A place may have been given that nothing was written to: nothing stays.
                    tokens = len(batch.rows) * (batch.past + batch.new)
                    self._make_room(error, len(places), tokens)
                    self._prefixes.halve()
                    break
                scores.update(zip(places, answers, strict=True))
        return scores

    @torch.no_grad()
    def attention(self, context: Context) -> list[float] | None:
        """The attention that the prediction of the target pays to each token of the full context.

        That of the head that pays most, on average over the layers; of a target of several tokens,
        on average over its first tokens too. None if the model does not tell, or if the context was
        not scored in this run: its states are not computed again. It may propose what to try first,
        and proves nothing.
        """
        if self._prefixes is None or self._shape((context, ()))[2] is not None:
            return None
        before, last = context.ids[:-1], context.ids[-1]
        slots = Paths(self._prefixes, [(context, (*range(len(before)), len(before)))]).stored(0)
        if len(slots) < len(before):
            return None
        ids = torch.tensor([[last, context.target_id, *context.span_ids][:-1][:_LOOKING]])
        with at_rest(self.model), eager_attention(self.model):
            try:
                paid = self._next_token.attention(ids, len(before), self._prefixes.read([slots]))
            except Exception:  # too little memory, or a family that tells it in another way
                return None
        self._work.tokens += ids.numel()
        if paid is None:
            return None
        paid[0] = 0  # the first token attracts attention whatever it says
        return paid[: len(context.ids)].tolist()

    def _shape(self, query: Query) -> Shape:
        context, kept = query
        evaluation = self.evaluation(context)
        full = len(context.ids)
        beyond = self._rope_switch is not None and full > self._rope_switch
        return evaluation, len(kept) if evaluation == "sparse" else full, full if beyond else None

    def _forward(self, queries: Sequence[Query], evaluation: Evaluation) -> list[Score]:
        """The scores of queries of the same shape, by one forward pass."""
        masked = evaluation == "masked"
        shown = [tuple(range(len(context.ids))) if masked else keep for context, keep in queries]
        ids = torch.tensor(
            [[c.ids[i] for i in row] for (c, _), row in zip(queries, shown, strict=True)]
        )
        mask = torch.ones_like(ids)
        if masked:
            mask.zero_()
            for row, (_, keep) in enumerate(queries):
                mask[row, list(keep)] = 1
        logits = self._next_token(ids, torch.tensor(shown), mask)
        self._work.tokens += ids.numel()
        return read_scores(logits, [context for context, _ in queries])

    def _self_test(self) -> bool:
        """Whether sparse evaluation is exact; an error if masked evaluation is not.

        On random subsets of one random context: the full context must give the model's ordinary
        answer; changing dropped tokens must change nothing; dropped tokens must leave their
        positions empty; and sparse must agree with masked.
        """
        if getattr(self.model, "_is_stateful", False):
            raise refused(self.model, "carries a recurrent state through every token")
        ids, subsets = self._sample()
        length, kept = len(ids), torch.tensor(subsets)
        shown = torch.zeros(len(subsets), length, dtype=torch.long).scatter_(1, kept, 1)
        changed = torch.where(shown[:1].bool(), ids, (ids + 1) % self._vocabulary)
        full, *masked = self._ask(
            torch.cat([ids.expand(len(subsets) + 1, -1), changed]),
            torch.arange(length).expand(len(subsets) + 2, -1),
            torch.cat([torch.ones_like(shown[:1]), shown, shown[:1]]),
        )
        self._check_answers(full, *masked)
        if not self._agree(full, self._ordinary(ids)):
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

    def _sample(self) -> tuple[torch.Tensor, list[list[int]]]:
        """A random text and subsets of it, of one size, some of which begin alike."""
        limits = (self._tested, self._window, self._rope_switch, self.max_positions)
        length = max(4, min(n for n in limits if n is not None))
        rng = torch.Generator().manual_seed(0)
        ids = torch.randint(0, self._vocabulary, (length,), generator=rng)
        subsets = []
        for begins_with in ([0], [0, 1], [0, 1], []):
            free = [i for i in range(length - 1) if i not in begins_with]
            drawn = torch.randperm(len(free), generator=rng).tolist()
            more = [free[i] for i in drawn[: max(2, length // 3) - len(begins_with)]]
            subsets.append(sorted([*begins_with, *more, length - 1]))
        return ids, subsets

    def _ask(self, ids: torch.Tensor, places: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Log-probabilities of the next token, (rows, vocabulary), on the CPU."""
        return self._next_token(ids, places, mask).log_softmax(-1).cpu()

    @torch.no_grad()
    def _ordinary(self, ids: torch.Tensor) -> torch.Tensor:
        """The log-probabilities after a text, by the model's ordinary forward pass."""
        ids = ids[None].to(positions.input_device(self.model))
        logits = self.model(input_ids=ids, use_cache=False).logits
        return logits[0, -1].float().log_softmax(-1).cpu()  # type: ignore[no-any-return]

    def _store(self) -> PrefixStore | None:
        """An empty store for prefixes, now or earlier found to be exact; None if it is not."""
        kind = self._verdicts.recall("prefixes")
        if (known := PrefixStore.of_kind(kind, self.model.device)) is not None:
            return known
        with at_rest(self.model):
            store = self._tested_store()
        if store is not None and self._telling:
            self._verdicts.remember("prefixes", store.kind)
        return store

    def _tested_store(self) -> PrefixStore | None:
        """An empty store for prefixes; None if sharing them is not exact for this model.

        On random subsets of one random context, asked for twice: the second time, what the first
        has stored must give the answers of plain sparse evaluation, behind padding too.
        """
        if self._window is not None or not self._next_token.takes_cache:
            return None
        ids, subsets = self._sample()
        context = Context(tuple(ids.tolist()), 0)
        # The first subset is asked for without its last but one token too: rows of two lengths.
        shorter = [*subsets[0][:-2], subsets[0][-1]]
        queries = [(context, tuple(subset)) for subset in (*subsets, shorter)]
        try:
            from transformers import DynamicCache

            expected = [
                row
                for kept in (torch.tensor(subsets), torch.tensor([shorter]))
                for row in self._ask(ids[kept], kept, torch.ones_like(kept))
            ]
            cache, first = DynamicCache(), ids[None, :1]
            self._next_token(first, torch.zeros_like(first), torch.ones_like(first), cache)
            store = PrefixStore.like(cache)
            if store is None:
                return None
            for _ in range(2):
                paths = Paths(store, queries)
                for batch in paths.passes(self.batch_tokens, self._max_subsets):
                    logprobs = paths.run(batch, self._next_token).log_softmax(-1).cpu()
                    for which, row in zip(batch.queries, logprobs, strict=True):
                        if not self._agree(row, expected[which]):
                            return None
        except Exception:  # a family that keeps its states in another way
            return None
        return store.empty()
