"""What scorers of Hugging Face models share: runs, batches, self-tests, scores from logits."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from rationales.context import Context
from rationales.errors import RationalesError, first_line
from rationales.scoring import positions
from rationales.scoring.guard import LOCK, at_rest, signature
from rationales.scoring.protocol import PASS_TOKENS, Evaluation, Query, Score, closed_up
from rationales.scoring.verdicts import Verdicts
from rationales.ties import TIE

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from typing_extensions import Self

LOGITS_AT_ONCE = 2**25
"""Rows × vocabulary of one pass: with a token or two a row, the logits are most of the memory."""

DEFAULT_BATCH_TOKENS = 4096


@dataclass
class _Work:
    """What a scorer and those made from it for single runs have in common."""

    batch_tokens: int
    tokens: int = 0


class ModelScorer(ABC):
    """Scores subsets with a model from transformers, one thread at a time.

    ``tokens`` counts what the forward passes have computed; ``batch_tokens`` bounds a pass. States
    of the model are stored only within a run (``fresh``), and dropped when the model has changed.
    """

    pass_tokens = PASS_TOKENS
    can_delete = True

    def __init__(self, model: PreTrainedModel, batch_tokens: int, evaluation: str) -> None:
        if batch_tokens < 1:
            raise RationalesError(f"batch_tokens must be at least 1, not {batch_tokens}")
        self.model = model
        self._work = _Work(batch_tokens)
        self._in_run = False
        self._signature = signature(model)
        self._vocabulary = int(positions.text_config(model).vocab_size)
        # Each subset of a pass has logits over the whole vocabulary.
        self._max_subsets = max(1, LOGITS_AT_ONCE // self._vocabulary)
        covered = positions.is_covered(model)
        # The length of a self-test: more where only the self-test knows the family.
        self._tested = 32 if covered else 128
        self._longest_sparse = None if covered or evaluation == "sparse" else self._tested
        self._sparse = evaluation == "sparse"
        self._telling = False
        """Whether the self-test could have told a fault: the model's answer depends on its input.

        Nothing is remembered of a model that always says the same, which passes any test.
        """

    @property
    def tokens(self) -> int:
        """How many tokens the forward passes have computed."""
        return self._work.tokens

    @property
    def batch_tokens(self) -> int:
        """How many tokens a forward pass holds at most."""
        return self._work.batch_tokens

    def evaluation(self, context: Context) -> Evaluation:
        """How subsets of this context are shown to the model: ``sparse`` or ``masked``."""
        longest = self._longest_sparse
        longer_side = max(context.source, len(context.ids) - context.source)
        within = longest is None or longer_side <= longest
        return "sparse" if self._sparse and within else "masked"

    def fresh(self) -> Self:
        """This scorer for one run, with a store of its own; see ``protocol.fresh``."""
        if self._in_run:
            return self
        scorer = copy.copy(self)
        scorer._in_run = True
        scorer._new_store()
        return scorer

    def score(self, queries: Sequence[Query]) -> list[Score]:
        """One score for each query, in order; as many forward passes as the token budget needs."""
        if not self._in_run:  # what is stored on the way belongs to this call
            return self.fresh().score(queries)
        with LOCK:
            now = signature(self.model)
        if now != self._signature:
            self._signature = now
            self._new_store()
        for context, kept in queries:
            if not kept or kept[-1] != len(context.ids) - 1:
                raise RationalesError(
                    "a decoder predicts from the token before the target: it must be kept, "
                    "so make it required or pinned in the context"
                )
        return self._score([closed_up(query) for query in queries])

    @abstractmethod
    def _score(self, queries: Sequence[Query]) -> list[Score]:
        """The scores, by passes of a model that is at rest, from states of the model as it is."""

    @abstractmethod
    def _new_store(self) -> bool:
        """Begin with an empty store; whether the former one took memory that can be given up."""

    @abstractmethod
    def _self_test(self) -> bool:
        """Whether sparse evaluation is exact; an error if masked evaluation is not."""

    @cached_property
    def _verdicts(self) -> Verdicts:
        return Verdicts(self.model, type(self).__name__)

    def _test(self) -> bool:
        """The result of the self-test, now or earlier; a model that cannot do it is refused."""
        if isinstance(known := self._verdicts.recall("sparse"), bool):
            self._telling = True
            return known
        try:
            with at_rest(self.model):
                exact = self._self_test()
        except RationalesError:
            raise
        except Exception as error:  # a family whose forward pass needs other arguments
            raise refused(self.model, f"fails the self-test ({first_line(error)})") from error
        if self._telling:
            self._verdicts.remember("sparse", exact)
        return exact

    def _agree(self, one: torch.Tensor, other: torch.Tensor) -> bool:
        return agree(one, other, self.model.dtype)

    def _check_answers(self, full: torch.Tensor, *masked: torch.Tensor) -> None:
        """Raise if an answer of the self-test is NaN; note whether masking makes a difference."""
        if any(row.isnan().any() for row in (full, *masked)):
            raise RationalesError(
                f"{self.model.config.model_type} model: its weights give NaN; "
                "the file may be damaged, or the dtype too narrow (try --dtype float32)"
            )
        self._telling = not self._agree(full, masked[0])

    def _in_batches(
        self, places: list[int], length: int, ask: Callable[[list[int]], list[Score]]
    ) -> Iterator[tuple[int, Score]]:
        """The scores of the queries at these places, each of at most ``length`` tokens."""
        while places:
            rows = max(1, min(self.batch_tokens // length, self._max_subsets))
            batch, rest = places[:rows], places[rows:]
            try:
                with at_rest(self.model):
                    scores = ask(batch)
            except Exception as error:
                self._make_room(error, len(batch), len(batch) * length)
                continue
            yield from zip(batch, scores, strict=True)
            places = rest

    def _make_room(self, error: BaseException, subsets: int, tokens: int) -> None:
        """Make the next passes smaller than this one, which ran out of memory.

        Any other error is raised again; so is this one, if the pass had only one subset.
        """
        held = self._new_store()
        if not is_out_of_memory(error):
            raise error
        if subsets == 1 and held:
            return  # what was stored took memory too: tried again without it
        if subsets == 1:
            raise RationalesError(
                f"out of memory on a single subset of {tokens} tokens: "
                "take a smaller model, a shorter text or --dtype bfloat16"
            ) from error
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        self._work.batch_tokens = max(1, tokens // 2)


def read_scores(logits: torch.Tensor, contexts: Sequence[Context]) -> list[Score]:
    """What the logits, (rows, vocabulary), say about the target of each row's context.

    The logits are used up: what they hold afterwards is something else.
    """
    targets = torch.tensor([context.target_id for context in contexts], device=logits.device)
    (best, second), (predictions, _) = (each.unbind(1) for each in logits.topk(2, dim=-1))
    wanted = logits.gather(1, targets[:, None])
    # Sums of float32 are eight times faster than those of bool, and exact up to 16 million.
    above = torch.empty_like(logits, dtype=torch.float32)
    ranks = torch.gt(logits, wanted + TIE, out=above).sum(dim=-1).long() + 1
    for row in (second >= best - TIE).nonzero()[:, 0].tolist():
        predictions[row] = (logits[row] >= best[row] - TIE).nonzero()[0, 0]
    predictions = torch.where(ranks == 1, targets, predictions)
    margins = wanted[:, 0] - torch.where(wanted[:, 0] >= best, second, best)
    predicted = logits.gather(1, predictions[:, None])[:, 0]
    extra = {n: logits[n, list(c.extra_ids)] for n, c in enumerate(contexts) if c.extra_ids}
    # log p = logit − log Σ exp(logit), in place: the logits are the largest tensor there is.
    normalizer = logits.sub_(best[:, None]).exp_().sum(dim=-1).log_().add_(best)
    if normalizer.isnan().any():  # a logit is NaN, or infinite: it overflowed
        raise RationalesError(
            "the model's probabilities are NaN: its weights may be damaged, "
            "or the dtype too narrow (try --dtype float32)"
        )
    columns = (wanted[:, 0] - normalizer, predictions, predicted - normalizer, ranks)
    more = [
        tuple((extra[n] - normalizer[n]).tolist()) if n in extra else ()
        for n in range(len(contexts))
    ]
    rows = zip(*(column.tolist() for column in columns), more, margins.tolist(), strict=True)
    return [Score(*row) for row in rows]


def agree(one: torch.Tensor, other: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether two answers of a model of this type, log-probabilities, differ by rounding alone.

    In bfloat16, rounding moves single log-probabilities by up to 0.9 nats, more than some faults
    do. The divergence of one distribution from the other tells the two apart: by rounding it is
    at most 0.0075 nats in bfloat16 and 0.00012 in float16, with gaps closed up mostly 0.1 and more
    (``benchmarks/half_precision.py``).
    """
    if dtype in (torch.float32, torch.float64):
        return torch.allclose(one, other, atol=1e-3, rtol=0)
    divergence = (one.exp() * (one - other)).nan_to_num(0.0, torch.inf, torch.inf).sum()
    return bool(divergence <= (0.002 if dtype == torch.float16 else 0.02))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error says so; on a CPU or an Apple GPU, torch raises a plain RuntimeError."""
    said = ("can't allocate memory", "not enough memory", "out of memory")
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in said)
    )


def refused(model: PreTrainedModel, why: str) -> RationalesError:
    return RationalesError(
        f"{model.config.model_type} models are not supported: the model {why}, so its predictions "
        "on a subset are not defined by an attention mask; wrap it in rationales.BlackBoxScorer"
    )
