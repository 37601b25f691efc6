"""Answers of several tokens against a plain loop over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from rationales import BlackBoxScorer, Context, Score, rationalize
from rationales.errors import RationalesError
from rationales.scoring.adapted import AdaptedScorer
from rationales.scoring.causal import CausalScorer
from rationales.scoring.protocol import Query, SubsetScorer
from rationales.scoring.span import merged, single_tokens
from rationales.search.criterion import is_first_choice

NEW, YORK, CITY, HALL = 10, 11, 12, 13
CONTEXT = Context(ids=(1, 2, 3), target_id=NEW, required=(2,), pinned=(0,), span_ids=(YORK, CITY))


class Fake:
    """Answers what it is told for each number of tokens said before, and records the questions."""

    def __init__(self, *scores: Score, start: int = 3) -> None:
        self._scores, self._start = scores, start
        self.asked: list[Query] = []

    def score(self, queries: Sequence[Query]) -> list[Score]:
        self.asked += queries
        return [self._scores[len(context.ids) - self._start] for context, _ in queries]


def scores_by(scorer: SubsetScorer, queries: list[Query]) -> list[Score]:
    return merged(queries, scorer.score(single_tokens(queries)))


def score_of(*scores: Score, context: Context = CONTEXT) -> Score:
    [found] = scores_by(Fake(*scores), [(context, (0, 2))])
    return found


def test_the_answer_is_asked_for_token_by_token() -> None:
    fake = Fake(Score(-1.0, NEW), Score(-0.5, YORK), Score(-0.25, CITY))
    scores_by(fake, [(CONTEXT, (0, 2))])
    assert [(context.ids, context.target_id, kept) for context, kept in fake.asked] == [
        ((1, 2, 3), NEW, (0, 2)),
        ((1, 2, 3, NEW), YORK, (0, 2, 3)),
        ((1, 2, 3, NEW, YORK), CITY, (0, 2, 3, 4)),
    ]
    assert all(context.span_ids == () and context.required == (2,) for context, _ in fake.asked)
    assert [context.pinned for context, _ in fake.asked] == [(0,), (0, 3), (0, 3, 4)]


def test_an_answer_that_is_all_predicted_is_sufficient() -> None:
    score = score_of(
        Score(-1.0, NEW, -1.0, rank=1),
        Score(-0.5, YORK, -0.5, rank=1),
        Score(-0.25, CITY, -0.25, rank=1),
    )
    assert score == Score(-1.75, NEW, -1.75, rank=1)
    assert is_first_choice(score, CONTEXT)


def test_the_first_wrong_prediction_stands_for_the_answer() -> None:
    score = score_of(
        Score(-1.0, NEW, -1.0, rank=1),
        Score(-3.0, HALL, -0.5, rank=4),
        Score(-2.0, YORK, -0.25, rank=2),
    )
    assert score == Score(-6.0, HALL, None, rank=4)
    assert not is_first_choice(score, CONTEXT)


@pytest.mark.parametrize("ranks", [(1, 2, 1), (None, None, None)])
def test_the_target_in_a_later_place_is_not_sufficient(ranks: tuple[int | None, ...]) -> None:
    predictions = (NEW, NEW, CITY)  # "New New City"
    score = score_of(*(Score(-1.0, p, rank=r) for p, r in zip(predictions, ranks, strict=True)))
    assert score.prediction_id == NEW
    assert not is_first_choice(score, CONTEXT)
    assert score.rank is not None
    assert score.rank >= 2


def test_what_the_scorer_does_not_tell_is_not_made_up() -> None:
    assert score_of(Score(-1, NEW), Score(-1, YORK), Score(-1, CITY)) == Score(-3, NEW)
    assert score_of(Score(-1, NEW), Score(-1, HALL), Score(-1, CITY)) == Score(-3, HALL)
    impossible = score_of(Score(-1, NEW), Score(-float("inf"), HALL), Score(-1, CITY))
    assert impossible.target_logprob == -float("inf")


def test_an_answer_in_text_only_has_no_probabilities() -> None:
    known, unknown = Score(0.0, NEW), replace(Score(0.0, YORK), known=False)
    assert not score_of(known, unknown, Score(0.0, CITY)).known


def test_tokens_that_are_all_predicted_are_first_whatever_their_ranks() -> None:
    """A scorer may rank the target second of two equals, and predict it."""
    score = score_of(Score(-1, NEW, rank=1), Score(-1, YORK, rank=2), Score(-1, CITY, rank=1))
    assert score.rank == 1
    assert is_first_choice(score, CONTEXT)


def test_a_tie_is_not_the_first_choice() -> None:
    """A scorer may rank equals alike; what counts is the token it predicts."""
    score = score_of(Score(-1, NEW, rank=1), Score(-1, HALL, rank=1), Score(-1, CITY, rank=1))
    assert score.rank == 2


def test_single_tokens_pass_through_in_order() -> None:
    single = replace(CONTEXT, span_ids=(), extra_ids=(7,))
    fake = Fake(
        Score(-1.0, NEW, rank=1, extra_logprobs=(-4.0,)), Score(-0.5, YORK), Score(-0.25, HALL)
    )
    queries = [(single, (0, 2)), (CONTEXT, (0, 1, 2)), (single, (0, 1, 2))]
    first, span, last = scores_by(fake, queries)
    assert first == last == Score(-1.0, NEW, rank=1, extra_logprobs=(-4.0,))
    assert span == Score(-1.75, HALL)
    assert fake.asked[0] == queries[0]
    assert fake.asked[-1] == queries[-1]
    assert scores_by(fake, []) == []


def test_an_alternative_to_a_span_is_refused() -> None:
    with pytest.raises(RationalesError, match="compared with a single token"):
        score_of(context=replace(CONTEXT, extra_ids=(7,)))


def test_a_rationale_of_a_span_makes_every_token_certain() -> None:
    """Token 0 is needed for the first token of the answer, token 1 for the second."""

    def predict(
        subsets: list[tuple[list[int], list[int]]], target_id: int
    ) -> list[tuple[float, int]]:
        needed = {NEW: 1, YORK: 2}[target_id]
        return [(-0.1, target_id) if needed in ids else (-5.0, HALL) for ids, _ in subsets]

    context = Context(ids=(1, 2, 3, 4), target_id=NEW, required=(3,), span_ids=(YORK,))
    rationale = rationalize(context, BlackBoxScorer(predict))
    assert rationale.sufficient
    assert set(rationale.indices) == {0, 1, 3}
    assert rationale.target_length == 2


def one_by_one(model: Any, context: Context, kept: Sequence[int]) -> tuple[float, bool]:
    """The joint log-probability and whether all is predicted, one masked pass a token."""
    total, right = 0.0, True
    answer = (context.target_id, *context.span_ids)
    for said, target_id in enumerate(answer):
        ids = torch.tensor([[*context.ids, *answer[:said]]])
        mask = torch.zeros_like(ids)
        mask[0, [*kept, *range(len(context.ids), ids.shape[1])]] = 1
        places = torch.arange(ids.shape[1])[None]
        with torch.no_grad():
            logits = model(input_ids=ids, attention_mask=mask, position_ids=places).logits[0, -1]
        total += float(logits.log_softmax(-1)[target_id])
        right &= int(logits.argmax()) == target_id
    return total, right


def test_a_model_agrees_with_one_pass_for_each_token(tiny_model: Any) -> None:
    ids = (5, 17, 99, 42, 8, 200)
    answer: list[int] = []
    for _ in range(3):  # what the model says itself, so that one of the answers is all right
        with torch.no_grad():
            logits = tiny_model(input_ids=torch.tensor([[*ids, *answer]])).logits
        answer.append(int(logits[0, -1].argmax()))
    said = Context(ids, answer[0], required=(5,), span_ids=tuple(answer[1:]))
    other = Context(ids, 7, required=(5,), pinned=(0,), span_ids=(8, 9, 10))
    queries = [
        (said, (0, 1, 2, 3, 4, 5)), (said, (2, 5)), (other, (0, 5)), (other, (0, 3, 4, 5)),
    ]  # fmt: skip
    scores = scores_by(CausalScorer(tiny_model), queries)
    for (context, kept), score in zip(queries, scores, strict=True):
        total, right = one_by_one(tiny_model, context, kept)
        assert score.target_logprob == pytest.approx(total, abs=1e-4)
        assert is_first_choice(score, context) == right
    assert is_first_choice(scores[0], said)
    assert scores[0].prediction_logprob == pytest.approx(scores[0].target_logprob)


def test_whole_contexts_are_still_the_base_models(tiny_model: Any) -> None:
    """With an adapter, every token of an answer to the whole context is the model's own."""
    base, adapted = Fake(*[Score(-1, 0)] * 3), Fake(*[Score(-2, 0)] * 3)
    scorer = AdaptedScorer(base, adapted)  # type: ignore[arg-type]
    whole, part = scores_by(scorer, [(CONTEXT, (0, 1, 2)), (CONTEXT, (0, 2))])
    assert (whole.target_logprob, part.target_logprob) == (-3, -6)
