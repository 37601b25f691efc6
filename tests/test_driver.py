"""The driver: many searches at once give what each gives alone, in bounded memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import islice, pairwise
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rationales import Context, Rationale, RationalesError, Score
from rationales.context import Subset
from rationales.scoring.protocol import Query
from rationales.search import driver
from rationales.search.base import Search
from rationales.search.driver import run
from rationales.search.exhaustive import exhaustive
from rationales.search.fast import fast
from rationales.search.greedy import greedy
from rationales.search.ordered import ordered

OTHER = 9999


class RandomModel:
    """A scorer whose answers depend on the context and the kept set, and on nothing else."""

    def __init__(self, ease: float = 0.15, pass_tokens: int = 0) -> None:
        self.ease = ease
        self.pass_tokens = pass_tokens
        self.batches: list[int] = []

    def score(self, queries: Sequence[Query]) -> list[Score]:
        self.batches.append(len(queries))
        return [self._answer(context, kept) for context, kept in queries]

    def _answer(self, context: Context, kept: tuple[int, ...]) -> Score:
        draw = random.Random(f"{context.ids} {context.target_id} {sorted(kept)}")
        prediction = context.target_id if draw.random() < self.ease else OTHER
        return Score(-draw.random(), prediction)


SEARCHES: dict[str, Callable[[Context], Search]] = {
    "greedy": greedy,
    "fast": fast,
    "exhaustive": lambda context: exhaustive(context, max_evaluations=20),
    "ordered": lambda context: ordered(context, context.choices),
}


@st.composite
def contexts(draw: st.DrawFn) -> Context:
    size = draw(st.integers(0, 6))
    return Context(
        ids=tuple(draw(st.lists(st.integers(0, 99), min_size=size, max_size=size))),
        target_id=draw(st.integers(100, 199)),
        required=(size - 1,) if size else (),
        pinned=(0,) if size > 1 and draw(st.booleans()) else (),
    )


tasks = st.lists(st.tuples(st.sampled_from(sorted(SEARCHES)), contexts()), max_size=12)


def start(chosen: Sequence[tuple[str, Context]]) -> Iterator[tuple[int, Context, Search]]:
    for key, (name, context) in enumerate(chosen):
        yield key, context, SEARCHES[name](context)


def alone(name: str, context: Context) -> Rationale:
    """What a search finds if it is asked for its questions one list at a time."""
    search, scorer = SEARCHES[name](context), RandomModel()
    wanted = next(search)
    while True:
        answers = [scorer._answer(context, context.keep(subset)) for subset in wanted]
        try:
            wanted = search.send(answers)
        except StopIteration as finished:
            return finished.value


@given(tasks, st.integers(1, 60), st.sampled_from([0, 5, 64]))
@settings(deadline=None, max_examples=150)
def test_side_by_side_is_the_same_as_one_at_a_time(
    chosen: list[tuple[str, Context]], pool: int, pass_tokens: int
) -> None:
    with mock.patch.object(driver, "_POOL_TOKENS", pool):
        found = list(run(start(chosen), RandomModel(pass_tokens=pass_tokens)))
    assert sorted(key for key, _ in found) == list(range(len(chosen)))
    assert dict(found) == {key: alone(*task) for key, task in enumerate(chosen)}


@given(tasks.flatmap(lambda t: st.tuples(st.just(t), st.permutations(range(len(t))))))
@settings(deadline=None)
def test_the_order_of_searches_changes_no_result(
    given_order: tuple[list[tuple[str, Context]], list[int]],
) -> None:
    chosen, places = given_order
    straight = dict(run(start(chosen), RandomModel()))
    shuffled = dict(run(start([chosen[place] for place in places]), RandomModel()))
    assert {places[key]: rationale for key, rationale in shuffled.items()} == straight


def never_enough(length: int, first: int = 0) -> tuple[Context, Search]:
    """A greedy search that keeps as many tokens as there are, and so takes many rounds."""
    ids = tuple(range(first, first + length))
    context = Context(ids=ids, target_id=100, required=(length - 1,))
    return context, greedy(context)


def test_one_pass_takes_the_questions_of_all_searches() -> None:
    scorer = RandomModel(ease=0)
    found = list(run(((key, *never_enough(6)) for key in range(8)), scorer))
    assert len(found) == 8
    # Six rounds: the required token, then one round for each token added.
    assert scorer.batches == [8 * questions for questions in (1, 5, 4, 3, 2, 1)]


@pytest.mark.parametrize("search", [greedy, fast])
def test_where_a_pass_has_its_price_fewer_are_made_for_the_same_answer(search: Any) -> None:
    """Only what the search has asked for counts as its evaluations."""
    context = Context(tuple(range(20)), 100, required=(19,))
    frugal, hasty = RandomModel(ease=0.02), RandomModel(ease=0.02, pass_tokens=64)
    results = [list(run([(0, context, search(context))], scorer)) for scorer in (frugal, hasty)]
    assert results[0] == results[1]
    assert len(hasty.batches) < len(frugal.batches)
    assert sum(hasty.batches) >= sum(frugal.batches) == results[0][0][1].evaluations


def test_searches_are_started_only_as_the_pool_has_room() -> None:
    started: list[int] = []

    def many() -> Iterator[tuple[int, Context, Search]]:
        for key in range(1000):  # far more than there is room for
            started.append(key)
            yield (key, *never_enough(8))

    results = run(many(), RandomModel(ease=0))
    with mock.patch.multiple(driver, _POOL_TOKENS=20, _LEAST_TOKENS=1, _AHEAD=0):
        assert started == []  # nothing before the first result is asked for
        next(results)
        # The first round asks for one token a search: 20 of them fill the pool.
        assert len(started) == 20
        for finished, _ in enumerate(islice(results, 60), start=2):
            assert len(started) - finished <= 20
        results.close()


@pytest.mark.parametrize("length", [3, 12, 60])
def test_of_300_equal_searches_the_first_ends_early(length: int) -> None:
    """Streaming, without a clock: questions asked, and searches started, before each answer."""
    started: list[int] = []
    asked = 0

    def many() -> Iterator[tuple[int, Context, Search]]:
        for key in range(300):
            started.append(key)
            yield (key, *never_enough(length, first=key))

    def count(questions: int, level: str | None) -> None:
        nonlocal asked
        asked += questions

    scorer = RandomModel(ease=0)
    at = [(key, asked, len(started)) for key, _ in run(many(), scorer, on_evaluations=count)]
    assert [key for key, _, _ in at] == list(range(300)), "equal searches end in order"
    assert at[0][1] <= 0.05 * asked
    assert at[0][2] <= 0.05 * 300
    # And the others go on coming: never is half of all asked without an answer.
    assert max(b - a for (_, a, _), (_, b, _) in pairwise(at)) <= asked / 2


def test_the_targets_of_a_text_are_started_together() -> None:
    """What their contexts have in common is computed once, if it is asked for in one call."""
    ids = tuple(range(200))

    def search(context: Context) -> Search:
        yield [context.everything]
        return Rationale(len(context.ids), 999, (), sufficient=False, evaluations=1)

    contexts = [Context(ids[:end], 999, required=(end - 1,)) for end in range(1, 200)]
    scorer = RandomModel(ease=0)
    assert len(list(run(((c.ids, c, search(c)) for c in contexts), scorer))) == 199
    assert scorer.batches == [199]


class Poisoned:
    """A scorer that fails if it is asked about this id, whatever else it is asked."""

    def __init__(self, id: int, error: Exception) -> None:
        self.id, self.error = id, error
        self.model = RandomModel(ease=0)

    def score(self, queries: Sequence[Query]) -> list[Score]:
        if any(context.ids[index] == self.id for context, kept in queries for index in kept):
            raise self.error
        return self.model.score(queries)


def test_an_error_while_scoring_is_that_of_the_search_that_asked() -> None:
    def caught(search: Search) -> Generator[list[Subset], list[Score], Rationale | str]:
        try:
            return (yield from search)
        except RationalesError as error:
            return str(error)

    chosen = [never_enough(5, first=10 * key) for key in range(6)]
    scorer = Poisoned(32, RationalesError("NaN"))  # the middle of the search 3
    searches = ((key, context, caught(search)) for key, (context, search) in enumerate(chosen))
    found = dict(run(searches, scorer))
    assert found.pop(3) == "NaN"
    expected = [(key, *never_enough(5, first=10 * key)) for key in found]
    assert found == dict(run(expected, RandomModel(ease=0)))
    # A search that does not catch it ends the run.
    plain = [(key, *never_enough(5, first=10 * key)) for key in range(6)]
    with pytest.raises(RationalesError, match="NaN"):
        list(run(plain, scorer))


def test_questions_without_a_token_fill_the_pool_too() -> None:
    started: list[int] = []

    def many() -> Iterator[tuple[int, Context, Search]]:
        for key in range(1000):  # far more than there is room for
            started.append(key)
            context = Context(ids=(), target_id=100)
            yield key, context, greedy(context)

    with mock.patch.multiple(driver, _POOL_TOKENS=20, _LEAST_TOKENS=1, _AHEAD=0):
        next(run(many(), RandomModel()))
    assert len(started) == 20


@pytest.mark.parametrize("given_back", [0, 2, 4])
def test_a_scorer_that_answers_too_few_or_too_many_is_noticed(given_back: int) -> None:
    class Careless:
        def score(self, queries: Sequence[Query]) -> list[Score]:
            return [Score(-1.0, OTHER)] * given_back

    searches = ((key, *never_enough(4)) for key in range(3))
    with pytest.raises(
        RationalesError, match=rf"Careless was asked for 3 subsets and answered {given_back}: "
    ) as error:
        list(run(searches, Careless()))
    assert "\n" not in str(error.value)


class Watched:
    """Searches that record how they ended."""

    def __init__(self) -> None:
        self.closed: list[int] = []
        self.context = Context(ids=(1, 2), target_id=100, required=(1,))

    def search(self, key: int, error: Exception | None = None) -> tuple[int, Context, Search]:
        def generator() -> Search:
            try:
                yield [(1,)]
                if error is not None:
                    raise error
                yield [(1, 0)]
                return Rationale(2, 100, (1, 0), sufficient=False, evaluations=2)
            finally:
                self.closed.append(key)

        return key, self.context, generator()


def test_an_error_in_a_search_ends_the_run_and_closes_the_others() -> None:
    watched, error = Watched(), ZeroDivisionError("in the search")
    scorer = RandomModel(ease=0)
    searches = [watched.search(0), watched.search(1, error), watched.search(2)]
    with pytest.raises(ZeroDivisionError) as raised:
        list(run(searches, scorer))
    assert raised.value is error
    # The traceback keeps the run's frame alive, so nothing is closed by chance.
    assert sorted(watched.closed) == [0, 1, 2]
    assert scorer.batches == [3]


def test_an_error_in_the_scorer_closes_all_searches() -> None:
    class Broken:
        def score(self, queries: Sequence[Query]) -> list[Score]:
            raise ConnectionError("no answer")

    watched = Watched()
    with pytest.raises(ConnectionError, match="no answer") as raised:
        list(run([watched.search(0), watched.search(1)], Broken()))
    assert raised.value is not None
    assert sorted(watched.closed) == [0, 1]


def test_a_caller_that_leaves_early_closes_all_searches() -> None:
    watched = Watched()
    short = Context(ids=(3,), target_id=100, required=(0,))
    results = run(
        [watched.search(0), ("short", short, greedy(short)), watched.search(2)], RandomModel(ease=1)
    )
    assert next(results)[0] == "short"
    assert watched.closed == []
    results.close()
    assert sorted(watched.closed) == [0, 2]


def test_on_evaluations_is_told_each_pass() -> None:
    told: list[int] = []
    scorer = RandomModel()

    def tell(count: int, level: str | None) -> None:
        assert level is None
        told.append(count)

    with mock.patch.object(driver, "_POOL_TOKENS", 15):
        found = list(
            run(
                ((key, *never_enough(2 + key)) for key in range(6)),
                scorer,
                on_evaluations=tell,
            )
        )
    assert told == scorer.batches
    assert len(told) > 1
    assert sum(told) == sum(rationale.evaluations for _, rationale in found)


def test_no_searches_give_no_results() -> None:
    scorer, told = RandomModel(), []
    assert list(run([], scorer, on_evaluations=lambda *scored: told.append(scored))) == []
    assert (scorer.batches, told) == ([], [])


def test_rounds_are_large_at_once_where_nobody_waits_for_the_first_answer():
    context = Context(ids=tuple(range(100, 160)), target_id=5, required=(59,))

    def first_round(first_soon: bool) -> int:
        asked: list[int] = []

        class Counting:
            def score(self, queries):
                asked.append(len(queries))
                return [Score(-1.0, 5) for _ in queries]

        searches = ((n, context, greedy(context)) for n in range(40))
        assert len([*run(searches, Counting(), first_soon=first_soon)]) == 40
        return asked[0]

    assert first_round(True) < 10
    assert first_round(False) == 40
