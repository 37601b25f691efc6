"""Any callable as a model: how it is asked, what is checked, and explanations made with it."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rationales import METHODS, BlackBoxScorer, Context, Explainer, RationalesError, Score
from rationales.methods import CONTROLS, SEARCHES
from rationales.ranking import attribute, order

Asked = list[tuple[list[tuple[list[int], list[int]]], int]]


class Recorder:
    """A black box that answers with what it was asked, and remembers it."""

    def __init__(self) -> None:
        self.asked: Asked = []

    def __call__(
        self, subsets: list[tuple[list[int], list[int]]], target_id: int
    ) -> list[tuple[float, int]]:
        self.asked.append((subsets, target_id))
        # A different answer for each question, so that none can be mistaken for another.
        return [
            (-sum(ids) - target_id / 8, 10 * target_id + len(positions))
            for ids, positions in subsets
        ]


FIRST = Context(ids=(20, 21, 22), target_id=1, required=(2,))
SECOND = Context(ids=(30, 31), target_id=2, required=(1,))


def test_questions_of_a_target_share_a_call_and_answers_keep_their_order() -> None:
    predict = Recorder()
    queries = [(FIRST, (2,)), (SECOND, (1,)), (FIRST, (0, 2)), (SECOND, (0, 1)), (FIRST, (1, 2))]
    scores = BlackBoxScorer(predict).score(queries)
    assert predict.asked == [
        ([([22], [2]), ([20, 22], [0, 2]), ([21, 22], [1, 2])], 1),
        ([([31], [1]), ([30, 31], [0, 1])], 2),
    ]
    assert scores == [
        Score(-22.125, 11),
        Score(-31.25, 21),
        Score(-42.125, 12),
        Score(-61.25, 22),
        Score(-43.125, 12),
    ]


def test_contexts_with_the_same_target_share_a_call() -> None:
    predict = Recorder()
    other = Context(ids=(40,), target_id=1, required=(0,))
    BlackBoxScorer(predict).score([(FIRST, (2,)), (other, (0,))])
    assert predict.asked == [([([22], [2]), ([40], [0])], 1)]


@pytest.mark.parametrize(("batch_size", "sizes"), [(1, [1] * 5), (2, [2, 1, 2]), (64, [3, 2])])
def test_no_call_is_larger_than_the_batch_size(batch_size: int, sizes: list[int]) -> None:
    predict = Recorder()
    queries = [(FIRST, (2,)), (FIRST, (0, 2)), (SECOND, (1,)), (FIRST, (1, 2)), (SECOND, (0, 1))]
    scores = BlackBoxScorer(predict, batch_size=batch_size).score(queries)
    assert [len(subsets) for subsets, _ in predict.asked] == sizes
    assert scores == BlackBoxScorer(Recorder()).score(queries)


def test_no_questions_are_no_call() -> None:
    predict = Recorder()
    assert BlackBoxScorer(predict).score([]) == []
    assert predict.asked == []


@pytest.mark.parametrize("batch_size", [0, -3])
def test_a_batch_holds_something(batch_size: int) -> None:
    with pytest.raises(RationalesError, match=f"at least 1, not {batch_size}"):
        BlackBoxScorer(Recorder(), batch_size=batch_size)


@pytest.mark.parametrize("answers", [0, 1, 3])
def test_the_number_of_answers_is_checked(answers: int) -> None:
    scorer = BlackBoxScorer(lambda subsets, target: [(-1.0, 1)] * answers)
    with pytest.raises(RationalesError, match=f"asked for 2 subsets and answered {answers}: "):
        scorer.score([(FIRST, (2,)), (FIRST, (1, 2))])


@pytest.mark.parametrize("predict", [None, 3, "model", [(-1.0, 1)]])
def test_what_cannot_be_called_is_refused(predict: Any) -> None:
    with pytest.raises(RationalesError, match="a black box must be a callable, not"):
        BlackBoxScorer(predict)


@pytest.mark.parametrize("batch_size", ["8", 2.5, True, None])
def test_a_batch_size_is_a_whole_number(batch_size: Any) -> None:
    with pytest.raises(RationalesError, match="batch_size must be a whole number"):
        BlackBoxScorer(Recorder(), batch_size=batch_size)


def refused(answers: Any) -> str:
    """What is said of the answers to two questions."""
    with pytest.raises(RationalesError) as error:
        BlackBoxScorer(lambda subsets, target: answers).score([(FIRST, (2,)), (FIRST, (1, 2))])
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    "answers", [None, -1.0, "ab", b"ab", {0: (-1.0, 1), 1: (-1.0, 1)}, {(-1.0, 1)}, numpy.array(1)]
)
def test_answers_that_are_no_list_are_refused(answers: Any) -> None:
    message = refused(answers)
    assert message.startswith("the black box answered ")
    assert "one (log-probability, argmax) for each subset" in message


@pytest.mark.parametrize("answer", [None, -1.0, (-1.0,), (-1.0, 1, 2), "abc", []])
def test_an_answer_that_is_no_pair_is_refused(answer: Any) -> None:
    message = refused([(-1.0, 1), answer])
    assert "for subset 1: it must return one (log-probability, argmax)" in message


@pytest.mark.parametrize(
    ("logprob", "named"),
    [
        (math.nan, "NaN"),
        (numpy.float32("nan"), "NaN"),
        (math.inf, "inf"),
        (0.7, "0.7"),
        (2e-6, "2e-06"),
        (None, "None"),
        ("-1.0", "'-1.0'"),
        (True, "True"),
        (1j, "type complex"),
        (numpy.array([-1.0]), "type ndarray"),
        (torch.tensor([-1.0, -2.0]), "type Tensor"),
        (10**400, "1000"),
    ],
)
def test_what_is_no_log_probability_is_refused(logprob: Any, named: str) -> None:
    message = refused([(-1.0, 1), (logprob, 1)])
    assert f"answered {named}" in message or named in message
    assert "for the log-probability of the target given subset 1: it must be a number of" in message


@pytest.mark.parametrize(
    "prediction",
    [None, 3.5, "3", -1, True, math.nan, math.inf, [3], numpy.array([3, 4]), torch.tensor([3])],
)
def test_what_is_no_id_is_refused(prediction: Any) -> None:
    message = refused([(-1.0, 1), (-1.0, prediction)])
    assert "for the most likely next token given subset 1: it must be the id of a token" in message


@pytest.mark.parametrize(
    "answers",
    [
        [(-math.inf, 7), [-0.5, 8]],
        ((numpy.float32(-math.inf), numpy.int64(7)), (numpy.float64(-0.5), numpy.uint8(8))),
        ((torch.tensor(-math.inf), torch.tensor(7)), (torch.tensor(-0.5), torch.tensor(8))),
        numpy.array([[-math.inf, 7], [-0.5, 8]]),
        torch.tensor([[-math.inf, 7], [-0.5, 8]]),
        zip([-math.inf, -0.5], [7, 8], strict=True),
    ],
)
def test_any_numbers_in_any_list_will_do(answers: Any) -> None:
    scorer = BlackBoxScorer(lambda subsets, target: answers)
    scores = scorer.score([(FIRST, (2,)), (FIRST, (1, 2))])
    assert scores == [Score(-math.inf, 7), Score(-0.5, 8)]
    for score in scores:
        assert (type(score.target_logprob), type(score.prediction_id)) == (float, int)


def test_what_is_above_0_by_rounding_is_0() -> None:
    [score] = BlackBoxScorer(lambda subsets, target: [(1e-7, 7)]).score([(FIRST, (2,))])
    assert score.target_logprob == 0.0


@pytest.mark.parametrize("error", [ConnectionError("no route"), TypeError("own"), RuntimeError()])
def test_an_exception_of_the_callable_is_its_own(error: Exception) -> None:
    def fail(subsets: list[Any], target_id: int) -> list[tuple[float, int]]:
        raise error

    with pytest.raises(type(error)) as caught:
        BlackBoxScorer(fail).score([(FIRST, (2,))])
    assert caught.value is error


def test_answers_become_plain_numbers() -> None:
    answer = (numpy.float32(-0.5), numpy.int64(7))
    [score] = BlackBoxScorer(lambda subsets, target: [answer]).score([(FIRST, (2,))])
    assert (type(score.target_logprob), type(score.prediction_id)) == (float, int)
    assert score == Score(-0.5, 7)


# Explanations ----------------------------------------------------------------------------------

TEXT = "The capital of France is"
WORDS = [*TEXT.split(), "Paris", "<end>"]
PARIS, END = WORDS.index("Paris"), WORDS.index("<end>")
NEEDED = {WORDS.index("capital"), WORDS.index("France")}


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    """One token a word."""
    words = Tokenizer(models.WordLevel({word: id for id, word in enumerate(WORDS)}, "<end>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>")


def geographer(
    subsets: list[tuple[list[int], list[int]]], target_id: int
) -> list[tuple[float, int]]:
    """Says Paris where it reads of a capital and of France, then falls silent."""
    answers = []
    for ids, _ in subsets:
        likely = END if ids[-1] == PARIS else PARIS if set(ids) >= NEEDED else 0
        missing = len(NEEDED - set(ids))
        answers.append((0.0 if likely == target_id else -1.0 - missing, likely))
    return answers


def explainer() -> Explainer:
    return Explainer(BlackBoxScorer(geographer), tokenizer())


@pytest.mark.parametrize(
    ("method", "indices"),
    [
        ("greedy", (4, 1, 3)),
        ("exhaustive", (4, 1, 3)),
        ("nearest-first", (4, 3, 2, 1)),
    ],
)
def test_a_black_box_explains(method: str, indices: tuple[int, ...]) -> None:
    explanation = explainer().explain(TEXT, continuation=" Paris", method=method)
    assert (explanation.evaluation, explanation.method) == ("black-box", method)
    assert explanation.model == "black box"
    [rationale] = explanation
    assert rationale.indices == indices
    assert rationale.sufficient
    assert rationale.predicted
    assert rationale.target_text == " Paris"
    assert rationale.steps[-1].prediction_id == PARIS
    assert rationale.steps[-1].prediction_logprob is None  # a black box does not tell


@pytest.mark.parametrize("seed", range(4))
def test_a_black_box_explains_in_random_order(seed: int) -> None:
    [rationale] = explainer().explain(TEXT, continuation=" Paris", method="random", seed=seed)
    context = Context(ids=(0, 1, 2, 3, 4), target_id=PARIS, required=(4,))
    [importances] = attribute([context], "random", seed=seed)
    shuffled = [index for (index,) in order(context, importances)]
    enough = next(n for n in range(5) if {1, 3} <= set(shuffled[:n]))
    assert rationale.indices == (4, *shuffled[:enough])
    assert rationale.sufficient


def test_a_black_box_continues_the_text_itself() -> None:
    explanation = Explainer(BlackBoxScorer(geographer), tokenizer(), name="atlas").explain(TEXT)
    assert explanation.model == "atlas"
    assert [token.id for token in explanation.tokens[5:]] == [PARIS, END]  # and then no further
    assert [rationale.indices for rationale in explanation] == [(4, 1, 3), (5,)]
    assert explanation[0].text == "capital … France is"


def test_a_black_box_sees_the_kept_tokens_where_they_were() -> None:
    asked: Asked = []

    def listening(subsets: list[Any], target_id: int) -> list[tuple[float, int]]:
        asked.append((subsets, target_id))
        return geographer(subsets, target_id)

    Explainer(BlackBoxScorer(listening), tokenizer()).explain(TEXT, continuation=" Paris")
    everything = [subset for subsets, _ in asked for subset in subsets]
    assert ([1, 3, 4], [1, 3, 4]) in everything
    assert all(ids == positions for ids, positions in everything)  # here, ids are positions
    assert all(positions == sorted(positions) for _, positions in everything)
    assert {target for _, target in asked} == {PARIS}


@pytest.mark.parametrize("method", sorted({*METHODS} - {*SEARCHES, *CONTROLS}))
def test_methods_that_look_inside_are_refused_in_one_line(method: str) -> None:
    with pytest.raises(RationalesError, match=f"^{method} looks inside the model; ") as error:
        explainer().explain(TEXT, continuation=" Paris", method=method)
    assert "\n" not in str(error.value)
    assert "nearest-first" in str(error.value)
