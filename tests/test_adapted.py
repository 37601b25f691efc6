"""Whole contexts go to the model itself, incomplete ones to its compatible twin."""

from __future__ import annotations

from collections.abc import Sequence

from rationales import Context, Explainer, Score
from rationales.scoring.adapted import AdaptedScorer
from rationales.scoring.causal import CausalScorer
from rationales.scoring.protocol import Query

from tiny_models import build

CONTEXT = Context(ids=(5, 6, 7), target_id=8, required=(2,))


class Recorder(CausalScorer):
    """A causal scorer that remembers what it was asked."""

    asked: list[Query]

    def score(self, queries: Sequence[Query]) -> list[Score]:
        self.asked = [*getattr(self, "asked", []), *queries]
        return super().score(queries)


def make() -> tuple[AdaptedScorer, Recorder, Recorder]:
    base, adapted = Recorder(build("gpt2")), Recorder(build("llama"))
    return AdaptedScorer(base, adapted), base, adapted


def test_each_question_goes_to_the_right_model_and_answers_keep_their_order():
    scorer, base, adapted = make()
    queries = [(CONTEXT, kept) for kept in ((2,), (0, 1, 2), (0, 2), (0, 1, 2), (1, 2))]
    scores = scorer.score(queries)
    assert [kept for _, kept in base.asked] == [(0, 1, 2), (0, 1, 2)]
    assert [kept for _, kept in adapted.asked] == [(2,), (0, 2), (1, 2)]
    expected = [
        (base if len(kept) == 3 else adapted).score([(context, kept)])[0]
        for context, kept in queries
    ]
    for score, alone in zip(scores, expected, strict=True):
        assert abs(score.target_logprob - alone.target_logprob) < 1e-5
        assert score.prediction_id == alone.prediction_id


def test_a_context_of_one_token_is_whole():
    scorer, base, adapted = make()
    scorer.score([(Context((5,), 8, (0,)), (0,))])
    assert len(base.asked) == 1
    assert adapted.asked == []


def test_what_is_generated_is_the_models_own(tiny_model, tiny_tokenizer):
    twin = build("gpt2", vocab_size=len(tiny_tokenizer))
    for parameter in twin.parameters():
        parameter.data *= 1.3
    plain = Explainer(CausalScorer(tiny_model), tiny_tokenizer, model=tiny_model)
    scorer = AdaptedScorer(CausalScorer(tiny_model), CausalScorer(twin))
    both = Explainer(scorer, tiny_tokenizer, model=twin, adapter="twin")
    alone, adapted = plain.explain("The Supreme Court on"), both.explain("The Supreme Court on")
    assert adapted.tokens == alone.tokens
    assert all(r.predicted for r in adapted)
    assert (adapted.adapter, alone.adapter) == ("twin", None)
    assert adapted.from_json(adapted.to_json()) == adapted
    assert [r.indices for r in adapted] != [r.indices for r in alone]
