"""The scorer of encoder–decoders: exact for each family, and what it refuses and leaves behind."""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers

from rationales import Context, RationalesError, Score, rationalize
from rationales.context import seq2seq_context
from rationales.scoring import seq2seq
from rationales.scoring.protocol import Query
from rationales.scoring.seq2seq import Seq2SeqScorer
from rationales.scoring.span import merged, single_tokens
from rationales.ties import TIE

import seq2seq_oracle as oracle
from tiny_models import (
    TRANSLATORS,
    VOCABULARY,
    build,
    build_translator,
    draw_weights,
    shared_translator,
)

EVERY = pytest.mark.parametrize("family", TRANSLATORS)
SPARSE = [name for name, family in TRANSLATORS.items() if family.evaluation == "sparse"]


def pair(source: int, prefix: int, seed: int = 0) -> Context:
    """A random source with an end token, and a random prefix with a decoder start."""
    rng = random.Random(1000 * seed + 10 * source + prefix)
    ids = [rng.randrange(3, VOCABULARY) for _ in range(source + prefix + 1)]
    ids[source - 1], ids[source] = 1, 0
    pinned = frozenset({source - 1, source})
    return seq2seq_context(tuple(ids), source + prefix, pinned, source)


def some_queries(seed: int = 0) -> list[Query]:
    """Random subsets of pairs of several lengths: small ones, large ones, everything."""
    rng = random.Random(seed)
    queries: list[Query] = []
    for source, prefix in ((5, 1), (7, 4), (7, 6), (3, 6)):
        context = pair(source, prefix, seed)
        n = len(context.ids)
        queries.append((context, tuple(range(n))))
        queries.append((context, (n - 1,)))  # of the source, nothing at all
        for share in (0.2, 0.5, 0.8):
            chosen = {i for i in range(n) if rng.random() < share}
            queries.append((context, tuple(sorted(chosen | {n - 1}))))
    return queries


def expected(model: Any, queries: list[Query]) -> list[torch.Tensor]:
    return [
        oracle.log_probabilities(model, c.ids[: c.source], c.ids[c.source :], kept)
        for c, kept in queries
    ]


def assert_scores(
    scores: list[Score], rows: list[torch.Tensor], queries: list[Query], within: float = 1e-4
) -> None:
    for score, row, (context, _) in zip(scores, rows, queries, strict=True):
        assert score.target_logprob == pytest.approx(float(row[context.target_id]), abs=within)
        assert score.prediction_id == int(row.argmax())
        assert score.prediction_logprob == pytest.approx(float(row.max()), abs=within)
        assert score.rank == 1 + int((row > row[context.target_id] + TIE).sum())


def one_line(error: pytest.ExceptionInfo[RationalesError]) -> str:
    message = str(error.value)
    assert "\n" not in message
    return message


# --- exactness


@EVERY
def test_each_family_is_evaluated_as_it_can_be(family: str) -> None:
    scorer = Seq2SeqScorer(shared_translator(family))
    assert scorer.evaluation(pair(5, 3)) == TRANSLATORS[family].evaluation
    assert scorer.max_positions == (64 if family in SPARSE else None)


@EVERY
@pytest.mark.parametrize("evaluation", ["auto", "masked"])
def test_scores_are_those_of_full_length_masked_passes(family: str, evaluation: Any) -> None:
    model, queries = shared_translator(family), some_queries()
    scorer = Seq2SeqScorer(model, evaluation=evaluation)
    assert_scores(scorer.score(queries), expected(model, queries), queries)


@EVERY
def test_the_whole_is_the_ordinary_forward_pass(family: str) -> None:
    model, context = shared_translator(family), pair(8, 5)
    [score] = Seq2SeqScorer(model).score([(context, tuple(range(13)))])
    row = oracle.ordinary(model, context.ids[:8], context.ids[8:])
    assert_scores([score], [row], [(context, ())])


@EVERY
def test_what_is_asked_for_is_told(family: str) -> None:
    model, context = shared_translator(family), replace(pair(6, 4), extra_ids=(9, 4))
    queries = [(context, (1, 5, 6, 9))]
    [row] = expected(model, queries)
    [score] = Seq2SeqScorer(model).score(queries)
    assert score.extra_logprobs == pytest.approx((float(row[9]), float(row[4])), abs=1e-4)


@EVERY
def test_scores_do_not_depend_on_the_batch_or_on_what_is_stored(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, queries = shared_translator(family), some_queries(seed=1)
    rows = expected(model, queries)
    scorer = Seq2SeqScorer(model).fresh()
    for _ in range(2):
        assert_scores(scorer.score(queries), rows, queries)
    order = random.Random(0).sample(range(len(queries)), len(queries))
    scores = Seq2SeqScorer(model, batch_tokens=20).score([queries[i] for i in order])
    assert_scores(scores, [rows[i] for i in order], [queries[i] for i in order])
    assert_scores([scorer.score([query])[0] for query in queries], rows, queries)
    monkeypatch.setattr(seq2seq, "STORED_BYTES", 0)
    forgetful = Seq2SeqScorer(model)
    assert_scores(forgetful.score(queries), rows, queries)
    assert len(forgetful._encoded.states) == forgetful._encoded.bytes == 0


@EVERY
def test_greedy_adds_tokens_of_both_sides_as_the_paper_says(family: str) -> None:
    model = shared_translator(family)
    scorer = Seq2SeqScorer(model)
    sides = set()
    for seed, place in enumerate((0, 1, -2, -1)):  # some are hard to reach
        context = pair(6, 4, seed)
        [full] = expected(model, [(context, tuple(range(10)))])
        context = replace(context, target_id=int(full.argsort(descending=True)[place]))
        found = oracle.greedy(
            model, context.ids[:6], context.ids[6:], context.target_id, context.pinned
        )
        mine = rationalize(context, scorer)
        assert mine.indices == found.indices
        assert mine.sufficient == found.sufficient
        assert mine.evaluations == found.evaluations
        assert [s.prediction_id for s in mine.steps] == list(found.predictions)
        logprobs = [s.target_logprob for s in mine.steps]
        assert logprobs == pytest.approx(list(found.logprobs), abs=1e-4)
        sides |= {index < 6 for index in mine.indices[1:]}
    assert sides == {True, False}


@EVERY
def test_greedy_from_an_empty_source(family: str) -> None:
    """With nothing pinned on the source side, the first steps are those of a lone pad token."""
    model = shared_translator(family)
    context = replace(pair(5, 3), pinned=(5,))
    found = oracle.greedy(model, context.ids[:5], context.ids[5:], context.target_id, (5,))
    mine = rationalize(context, Seq2SeqScorer(model))
    assert (mine.indices, mine.sufficient) == (found.indices, found.sufficient)


def test_answers_of_several_tokens() -> None:
    model, context = shared_translator("marian"), replace(pair(5, 3), span_ids=(7,))
    kept = (0, 4, 5, 7)
    queries = [(context, kept)]
    [score] = merged(queries, Seq2SeqScorer(model).score(single_tokens(queries)))
    source, prefix = context.ids[:5], context.ids[5:]
    first = oracle.log_probabilities(model, source, prefix, kept)[context.target_id]
    longer = (*prefix, context.target_id)
    second = oracle.log_probabilities(model, source, longer, (*kept, 8))[7]
    assert score.target_logprob == pytest.approx(float(first + second), abs=1e-4)


# --- negative controls: what the tests above would not forgive


@EVERY
def test_positions_matter(family: str) -> None:
    """Closing the gaps, on either side, gives other answers in every family."""
    model, context = shared_translator(family), pair(8, 6)
    source, prefix = context.ids[:8], context.ids[8:]
    right = oracle.log_probabilities(model, source, prefix, (0, 3, 7, 8, 11, 13))
    short = [source[0], source[3], source[7]], [prefix[0], prefix[3], prefix[5]]
    closed_source = oracle.log_probabilities(model, short[0], prefix, (0, 1, 2, 3, 6, 8))
    closed_target = oracle.log_probabilities(model, source, short[1], (0, 3, 7, 8, 9, 10))
    for wrong in (closed_source, closed_target):
        assert (right - wrong).abs().max() > 1e-2


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_an_all_zero_mask_leaks(family: str) -> None:
    """Why a pad token stands in: a source that is masked whole still shows in the answer."""
    model, answers = shared_translator(family), []
    for first in (7, 9):
        with torch.no_grad(), oracle.eager(model):
            logits = model(
                input_ids=torch.tensor([[first, 5, 1]]),
                attention_mask=torch.zeros(1, 3, dtype=torch.long),
                decoder_input_ids=torch.tensor([[0]]),
            ).logits
        answers.append(logits[0, -1].log_softmax(-1))
    assert (answers[0] - answers[1]).abs().max() > 1e-3
    scores = [
        Seq2SeqScorer(model, evaluation="masked").score(
            [(Context((first, 5, 1, 0), 4, source=3), (3,))]
        )[0]
        for first in (7, 9)
    ]
    assert scores[0] == scores[1]


# --- what is computed, and how much


@pytest.mark.parametrize("family", ["marian", "t5"])
def test_a_kept_source_is_encoded_once(family: str) -> None:
    scorer = Seq2SeqScorer(shared_translator(family)).fresh()
    lengths: list[int] = []
    with scorer._encoder.register_forward_pre_hook(
        lambda module, inputs, named: lengths.append(len(named["input_ids"])), with_kwargs=True
    ):
        context = pair(6, 5)
        same = [(context, (1, 5, 6, *more, 10)) for more in ((), (7,), (8,), (7, 8, 9))]
        scorer.score([*same, (context, (2, 5, 6, 10)), (context, (2, 5, 6, 9, 10))])
        assert sum(lengths) == 2
        scorer.score(same)
        scorer.score([(replace(context, target_id=4), (2, 5, 6, 10))])
        assert sum(lengths) == 2


def test_only_kept_tokens_are_computed_in_sparse_evaluation() -> None:
    scorer = Seq2SeqScorer(shared_translator("marian"))
    scorer.score([(pair(9, 7), (2, 8, 9, 15))])
    assert scorer.tokens == 4
    scorer = Seq2SeqScorer(shared_translator("t5"))
    scorer.score([(pair(9, 7), (2, 8, 9, 15))])
    assert scorer.tokens == 16


@EVERY
def test_subsets_of_about_the_same_size_share_a_pass(family: str) -> None:
    model = shared_translator(family)
    # Sides of 9 to 12 tokens, of which subsets keep as many: one kind, sparse or masked.
    contexts = [pair(source, prefix) for source, prefix in ((10, 9), (12, 11), (11, 12), (12, 9))]
    queries: list[Query] = []
    for context in contexts:
        everything = tuple(range(len(context.ids)))
        fewer = (*everything[:2], *everything[3 : context.source + 1], *everything[-9:])
        queries += [(context, everything), (context, tuple(sorted({*fewer})))]
    scorer, original, passes = Seq2SeqScorer(model), Seq2SeqScorer._logits, []

    def logits(pairs: Any) -> torch.Tensor:
        passes.append(len(pairs))
        return original(scorer, pairs)

    scorer._logits = logits  # type: ignore[method-assign]
    assert_scores(scorer.score(queries), expected(model, queries), queries)
    assert passes == [len(queries)]


def test_few_pads_are_added() -> None:
    about = [seq2seq._about(n) for n in (1, 2, 3, 4, 5, 7, 9, 13, 17)]
    assert about == [1, 2, 3, 4, 6, 8, 12, 16, 24]
    assert all(0 <= (to := seq2seq._about(n)) - n < to / 3 for n in range(1, 2000))


def test_a_head_that_cannot_be_hooked_is_none_the_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    model, queries = build_translator("marian"), some_queries()
    rows = expected(model, queries)
    monkeypatch.setattr(model, "get_output_embeddings", lambda: None)
    assert_scores(Seq2SeqScorer(model).score(queries), rows, queries)


def test_what_is_stored_stays_within_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seq2seq, "STORED_BYTES", 2_000)
    scorer = Seq2SeqScorer(shared_translator("bart")).fresh()
    for seed in range(4):
        scorer.score(some_queries(seed))
        assert 0 < scorer._encoded.bytes <= 2_000
        stored = scorer._encoded.states.values()
        assert scorer._encoded.bytes == sum(states.nbytes for states in stored)


def test_new_weights_are_noticed() -> None:
    model, queries = build_translator("marian"), some_queries()
    scorer = Seq2SeqScorer(model).fresh()
    before = scorer.score(queries)
    with torch.no_grad():
        for parameter in model.get_encoder().layers.parameters():
            parameter.mul_(-0.5)
    assert scorer.score(queries) != before
    assert_scores(scorer.score(queries), expected(model, queries), queries)


def test_running_out_of_memory_makes_smaller_passes() -> None:
    model, queries = shared_translator("marian"), some_queries()
    scorer = Seq2SeqScorer(model)
    original = scorer._logits

    def logits(pairs: Any) -> torch.Tensor:
        if len(pairs) > 1:
            raise torch.OutOfMemoryError("out of memory")
        return original(pairs)

    scorer._logits = logits  # type: ignore[method-assign]
    assert_scores(scorer.score(queries), expected(model, queries), queries)
    assert scorer.batch_tokens < seq2seq.DEFAULT_BATCH_TOKENS


def test_a_single_subset_that_does_not_fit_is_an_error() -> None:
    scorer = Seq2SeqScorer(shared_translator("marian")).fresh()
    scorer.score(some_queries())  # what is stored is given up first
    tried: list[int] = []

    def logits(pairs: Any) -> torch.Tensor:
        tried.append(len(scorer._encoded.states))
        raise MemoryError

    scorer._logits = logits  # type: ignore[method-assign]
    with pytest.raises(RationalesError, match="single subset of 4 tokens") as error:
        scorer.score([(pair(9, 7), (2, 8, 9, 15))])
    one_line(error)
    assert tried[0] > 1
    assert tried[1:] == [0]


def test_pads_in_a_text_of_m2m100_are_left_out_of_the_count() -> None:
    model = shared_translator("m2m100")
    context = replace(pair(6, 4), ids=(7, 2, 9, 8, 4, 1, 0, 5, 2, 6))
    scorer = Seq2SeqScorer(model)
    assert scorer.evaluation(context) == "masked"
    queries = [(context, (0, 3, 5, 6, 9)), (context, tuple(range(10)))]
    assert_scores(scorer.score(queries), expected(model, queries), queries)


# --- what is refused


class Leaking(transformers.MarianMTModel):
    """A model that does not look at its mask of the source."""

    def forward(self, *args: Any, attention_mask: Any = None, **rest: Any) -> Any:
        return super().forward(*args, attention_mask=torch.ones_like(attention_mask), **rest)


class LeakingTarget(transformers.BartForConditionalGeneration):
    """A model that does not look at its mask of the target."""

    def forward(self, *args: Any, decoder_attention_mask: Any = None, **rest: Any) -> Any:
        return super().forward(*args, **rest)


@pytest.mark.parametrize(("family", "kind"), [("marian", Leaking), ("bart", LeakingTarget)])
def test_a_model_that_reads_what_is_dropped_is_refused(family: str, kind: Any) -> None:
    model = draw_weights(kind(shared_translator(family).config))
    with pytest.raises(RationalesError, match="still reads tokens") as error:
        Seq2SeqScorer(model)
    assert model.config.model_type in one_line(error)


def test_a_model_that_fails_in_the_self_test_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise AttributeError("no such thing\nat all")

    model = build_translator("marian")
    monkeypatch.setattr(model, "forward", fail)
    with pytest.raises(RationalesError, match="fails the self-test") as error:
        Seq2SeqScorer(model)
    one_line(error)


def test_nan_weights_are_refused() -> None:
    model = build_translator("t5")
    with torch.no_grad():
        model.get_output_embeddings().weight[3] = float("nan")
    with pytest.raises(RationalesError, match="NaN"):
        Seq2SeqScorer(model)


def test_a_language_model_is_refused() -> None:
    with pytest.raises(RationalesError, match="CausalScorer"):
        Seq2SeqScorer(build("gpt2"))


def test_contexts_without_a_source_or_its_last_token_are_refused() -> None:
    scorer = Seq2SeqScorer(shared_translator("marian"))
    with pytest.raises(RationalesError, match="seq2seq_context"):
        scorer.score([(Context((3, 4), 5), (0, 1))])
    with pytest.raises(RationalesError, match="must be kept"):
        scorer.score([(pair(5, 3), (0, 4, 5))])
    with pytest.raises(RationalesError, match="source tokens"):
        Context((3, 4), 5, source=3)
    with pytest.raises(RationalesError, match="none of the translation"):
        seq2seq_context((3, 4, 5, 6), 2, frozenset(), 2)


def test_a_source_without_a_stand_in_is_an_error() -> None:
    model = build_translator("t5")
    scorer = Seq2SeqScorer(model)
    scorer._pad = None
    with pytest.raises(RationalesError, match="pad token"):
        scorer.score([(pair(5, 3), (7,))])


# --- what is left behind


@pytest.mark.parametrize("family", ["marian", "m2m100", "t5"])
def test_the_model_is_left_as_it_was(family: str) -> None:
    model = build_translator(family)
    before = oracle.ordinary(model, (3, 4, 5, 1), (0, 7, 8))
    Seq2SeqScorer(model).score(some_queries())
    assert torch.equal(oracle.ordinary(model, (3, 4, 5, 1), (0, 7, 8)), before)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_threads_do_not_see_each_others_positions() -> None:
    model = shared_translator("marian")
    queries = [some_queries(seed) for seed in range(3)]
    rows = [expected(model, each) for each in queries]
    found: dict[int, list[list[Score]]] = {}

    def work(which: int) -> None:
        scorer = Seq2SeqScorer(model, evaluation="sparse")
        found[which] = [scorer.score(queries[which]) for _ in range(5)]

    threads = [threading.Thread(target=work, args=(which,)) for which in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    for which, answers in found.items():
        for scores in answers:
            assert_scores(scores, rows[which], queries[which])
