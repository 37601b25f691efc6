"""Subsets of a source and a target prefix, scored by an encoder–decoder from transformers.

    log p(target | kept source tokens, kept target tokens before it)

Kept tokens keep their original positions, in one of two ways:

- *sparse*: only the kept tokens go in, with the position embeddings of their own places. For the
  families that add position embeddings to tokens: Marian, BART, mBART, M2M100.
- *masked*: all tokens go in, with a mask over what is dropped. For those that count by index: T5.

A source of which nothing is kept is one pad token at position 0, the place of the first source
token: a mask of nothing but zeros would show the decoder what it covers.

Many subsets have their source in common: each kept source is encoded once, and what the encoder
made of it is stored, in bounded memory, also for the calls to come. Subsets of about the same size
share a pass: the shorter ones are followed by pads, which nothing looks at.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence

from rationales.context import Context
from rationales.errors import RationalesError
from rationales.scoring import positions
from rationales.scoring.hooks import at_places, has_table, logits_of, skips_pads
from rationales.scoring.logits import DEFAULT_BATCH_TOKENS, ModelScorer, read_scores, refused
from rationales.scoring.protocol import Evaluation, Query, Score

if TYPE_CHECKING:
    from transformers import PreTrainedModel

STORED_BYTES = 2**28
"""What the stored encoder states may take."""


class _Side(NamedTuple):
    """What the encoder or the decoder is shown: tokens, and which of them it may look at.

    ``places`` are the positions of the tokens, where these are not simply counted.
    """

    ids: tuple[int, ...]
    keep: tuple[bool, ...]
    places: tuple[int, ...] | None

    @property
    def kind(self) -> tuple[int, bool]:
        """What sides that share a pass have in common: about the same length, how it is placed."""
        return _about(len(self.ids)), self.places is None


class Seq2SeqScorer(ModelScorer):
    """Scores subsets with an encoder–decoder from transformers.

    Contexts are those of ``seq2seq_context``. The model is tested when it is given: if sparse
    evaluation is not exact, everything is masked instead; if a mask does not hide what it drops,
    the model is refused. ``tokens`` counts what the forward passes have computed on both sides.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        batch_tokens: int = DEFAULT_BATCH_TOKENS,
        evaluation: Literal["auto", "sparse", "masked"] = "auto",
    ) -> None:
        if not getattr(model.config, "is_encoder_decoder", False):
            raise RationalesError(
                f"{type(model).__name__} is no encoder–decoder: score it with CausalScorer"
            )
        super().__init__(model, batch_tokens, evaluation)
        network: Any = model
        try:
            self._encoder, self._decoder = network.get_encoder(), network.get_decoder()
        except (AttributeError, NotImplementedError) as error:
            why = "has no encoder and decoder that can be asked one by one"
            raise refused(model, why) from error
        self._pad: int | None = getattr(model.config, "pad_token_id", None)
        self._encoded = EncoderStore()
        tables = [getattr(p, "embed_positions", None) for p in (self._encoder, self._decoder)]
        self._controls_positions = all(map(has_table, tables))
        self.max_positions = positions.max_positions(model) if self._controls_positions else None
        # M2M100 counts the tokens that are no pads: one of these in a text shifts the others.
        self._pads_count = not any(map(skips_pads, tables))
        if evaluation == "auto":
            self._sparse = self._test()
        self._new_store()
        self._work.tokens = 0

    def _new_store(self) -> bool:
        held = len(self._encoded.states) > 1  # a pass of a single subset needs one of them
        self._encoded = EncoderStore()
        return held

    def evaluation(self, context: Context) -> Evaluation:
        """How subsets of this context are shown to the model: ``sparse`` or ``masked``."""
        shifted = not self._pads_count and self._pad in context.ids
        return "masked" if shifted else super().evaluation(context)

    def _score(self, queries: Sequence[Query]) -> list[Score]:
        shown = [self._shown(*query, self.evaluation(query[0])) for query in queries]
        groups: dict[tuple[tuple[int, bool], ...], list[int]] = {}
        for place, (source, target) in enumerate(shown):
            groups.setdefault((source.kind, target.kind), []).append(place)

        def ask(batch: list[int]) -> list[Score]:
            logits = self._logits([shown[place] for place in batch])
            return read_scores(logits, [queries[place][0] for place in batch])

        scores: dict[int, Score] = {}
        for places in groups.values():
            length = sum(max(len(shown[p][side].ids) for p in places) for side in (0, 1))
            scores.update(self._in_batches(places, length, ask))
        return [scores[place] for place in range(len(queries))]

    def _shown(
        self, context: Context, kept: tuple[int, ...], evaluation: Evaluation
    ) -> tuple[_Side, _Side]:
        """What the encoder and the decoder are shown of a query."""
        border, end = context.source, len(context.ids)
        if not 0 < border < end:
            raise RationalesError(
                "an encoder–decoder needs a source and the beginning of a target: make contexts "
                "with seq2seq_context"
            )
        middle = bisect_left(kept, border)
        target = _side(context.ids, kept[middle:], range(border, end), evaluation)
        if middle:
            return _side(context.ids, kept[:middle], range(border), evaluation), target
        if self._pad is None:
            raise RationalesError(
                f"{self.model.config.model_type} has no pad token to stand in for a source of "
                "which nothing is kept: pin the source's end token"
            )
        return _Side((self._pad,), (True,), (0,)), target

    @torch.no_grad()
    def _logits(self, pairs: Sequence[tuple[_Side, _Side]]) -> torch.Tensor:
        """The logits after the last token of each target; all pairs are of the same kinds."""
        from transformers.modeling_outputs import BaseModelOutput

        network: Any = self.model
        sources, targets = zip(*pairs, strict=True)
        ids = self._padded([side.ids for side in targets], self._pad)
        rows, ends = torch.arange(len(targets)), [len(target.ids) - 1 for target in targets]

        def last(values: torch.Tensor) -> torch.Tensor:
            return values[rows, ends][:, None]

        states = self._states(sources)
        with at_places(self._decoder, self._places(targets)), logits_of(network, last) as chosen:
            logits: torch.Tensor = network(
                encoder_outputs=BaseModelOutput(last_hidden_state=states),  # type: ignore[arg-type]
                attention_mask=self._padded([side.keep for side in sources]),
                decoder_input_ids=ids,
                decoder_attention_mask=self._padded([side.keep for side in targets]),
                use_cache=False,
                return_dict=True,
            ).logits
        self._work.tokens += ids.numel()
        logits = (logits if chosen else last(logits))[:, 0]
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def _states(self, sources: Sequence[_Side]) -> torch.Tensor:
        """What the encoder makes of each source: (rows, length, dimensions)."""
        found = {side: self._encoded.get(side) for side in dict.fromkeys(sources)}
        new = [side for side, states in found.items() if states is None]
        if new:
            ids = self._padded([side.ids for side in new], self._pad)
            mask = self._padded([side.keep for side in new])
            with at_places(self._encoder, self._places(new)):
                output: torch.Tensor = self._encoder(
                    input_ids=ids, attention_mask=mask, return_dict=True
                ).last_hidden_state
            self._work.tokens += ids.numel()
            for side, states in zip(new, output, strict=True):
                found[side] = self._encoded.put(side, states[: len(side.ids)])
        rows = [states for side in sources if (states := found[side]) is not None]
        return pad_sequence(rows, batch_first=True)

    def _padded(self, rows: Sequence[Sequence[int]], filler: int | None = 0) -> torch.Tensor:
        """The rows as one tensor, (rows, length), the shorter ones filled up behind."""
        length = max(map(len, rows))
        full = [[*row, *[filler or 0] * (length - len(row))] for row in rows]
        return torch.tensor(full, dtype=torch.long, device=positions.input_device(self.model))

    def _places(self, sides: Sequence[_Side]) -> torch.Tensor | None:
        """The positions of all rows; None if they are counted one by one."""
        places = [side.places for side in sides if side.places is not None]
        return self._padded(places) if places else None

    def _self_test(self) -> bool:
        """Whether sparse evaluation is exact; an error if masked evaluation is not.

        On one random pair of texts with holes on both sides: changing a dropped token must change
        nothing, dropped tokens must leave their positions empty, the whole must be the model's
        ordinary answer, and sparse must agree with masked.
        """
        length = min(self._tested, self.max_positions or self._tested)  # of each side
        parts = (self._encoder, self._decoder)
        rows = min(part.get_input_embeddings().weight.shape[0] for part in parts)

        def no_pads(ids: Iterable[int]) -> list[int]:
            return [(i + 1) % rows if i == self._pad else i for i in ids]

        rng = torch.Generator().manual_seed(0)
        ids = no_pads(torch.randint(0, rows, (2 * length,), generator=rng).tolist())
        everything = tuple(range(len(ids)))
        kept = tuple(i for i in everything if i % 3 == 0 or i == everything[-1])
        other = no_pads(i if place in kept else (i + 3) % rows for place, i in enumerate(ids))

        def ask(
            ids: list[int], kept: tuple[int, ...], how: Evaluation, border: int = length
        ) -> torch.Tensor:
            context = Context(tuple(ids), 0, source=border)
            return self._logits([self._shown(context, kept, how)])[0].log_softmax(-1).cpu()

        full, masked = ask(ids, everything, "masked"), ask(ids, kept, "masked")
        self._check_answers(full, masked)
        with torch.no_grad():
            ordinary = self.model(
                input_ids=self._padded([ids[:length]]),
                attention_mask=self._padded([[1] * length]),
                decoder_input_ids=self._padded([ids[length:]]),
                use_cache=False,
                return_dict=True,
            ).logits[0, -1]
        if not self._agree(full, ordinary.float().log_softmax(-1).cpu()):
            raise refused(self.model, "does not say the same of the parts as of the whole")
        if not self._agree(masked, ask(other, kept, "masked")):
            raise refused(self.model, "still reads tokens that the attention mask drops")
        if self._controls_positions and self._agree(masked, ask(ids, kept, "sparse")):
            return True
        # Nothing moves the tokens of such a model: closed up, they must give another answer.
        close = [ids[i] for i in kept]
        border = sum(i < length for i in kept)
        closed = ask(close, everything[: len(close)], "masked", border)
        exact = self.model.dtype in (torch.float32, torch.float64)
        if exact and torch.allclose(masked, closed, atol=1e-6, rtol=0):
            raise refused(self.model, "moves kept tokens together when others are dropped")
        return False


class EncoderStore:
    """The encoder's states of the sources that were asked for last, within ``STORED_BYTES``."""

    def __init__(self) -> None:
        self.bytes = 0
        self.states: OrderedDict[_Side, torch.Tensor] = OrderedDict()

    def get(self, side: _Side) -> torch.Tensor | None:
        """The states of a source, (length, dimensions), if they are still there."""
        if (states := self.states.get(side)) is not None:
            self.states.move_to_end(side)
        return states

    def put(self, side: _Side, states: torch.Tensor) -> torch.Tensor:
        """The same states, stored; those that were not asked for in the longest time make room."""
        states = states.clone()  # a row of a batch would keep the whole batch in memory
        self.states[side] = states
        self.bytes += states.nbytes
        while self.bytes > STORED_BYTES:
            _, old = self.states.popitem(last=False)
            self.bytes -= old.nbytes
        return states


def _side(
    ids: tuple[int, ...], kept: tuple[int, ...], inside: range, evaluation: Evaluation
) -> _Side:
    """One side of a query: what is kept of it, or all of it with the others masked."""
    if evaluation == "sparse":
        places = tuple(i - inside.start for i in kept)
        return _Side(tuple(ids[i] for i in kept), (True,) * len(kept), places)
    visible = {*kept}
    return _Side(ids[inside.start : inside.stop], tuple(i in visible for i in inside), None)


def _about(length: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, 24, …: of as many tokens, less than a third is pads."""
    power = 1 << (length - 1).bit_length()
    return 3 * power // 4 if power > 2 and length <= 3 * power // 4 else power
