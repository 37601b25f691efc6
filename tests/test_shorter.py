"""Shorter and faster searches, other questions: properties over random tables."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rationales import Context, RationalesError, Score, TableScorer, rationalize
from rationales.ranking import order
from rationales.search.base import Units
from rationales.search.beam import beam
from rationales.search.combined import coarse_to_fine
from rationales.search.criterion import parse
from rationales.search.exhaustive import exhaustive
from rationales.search.fast import Shortlist, fast
from rationales.search.greedy import greedy
from rationales.search.soft import soft

from tables import OTHER, TARGET, Problem, find, problems, properties

THIRD = 8


def grouped(problem: Problem, cuts: list[bool]) -> Problem:
    """The problem with its tokens in units: a new one begins where a cut is."""
    units: list[list[int]] = []
    for index in range(len(problem.context.ids)):
        if not units or cuts[index % len(cuts)]:
            units.append([])
        units[-1].append(index)
    return Problem(problem.context.grouped(units), problem.table)


# Minimal ----------------------------------------------------------------------------------------


@given(problems(), st.sampled_from(["greedy", "beam", "exhaustive", "nearest-first"]))
@properties
def test_minimal_means_minimal(problem: Problem, method: str) -> None:
    context = problem.context
    usual = rationalize(context, TableScorer(problem.table), method=method)
    rationale = rationalize(context, TableScorer(problem.table), method=method, minimal=True)
    assert rationale.sufficient == usual.sufficient
    if not rationale.sufficient:
        assert rationale.indices == usual.indices
        assert not rationale.minimal
        return
    assert rationale.minimal
    assert {*rationale.indices} <= {*usual.indices}
    assert problem.yields_target(rationale.indices)
    assert rationale.steps[-1].prediction_id == TARGET
    for index in {*rationale.indices} - {*context.required}:
        assert not problem.yields_target(tuple(i for i in rationale.indices if i != index))


@given(problems())
@properties
def test_optimal_is_said_only_of_the_smallest(problem: Problem) -> None:
    shortest, _ = find(problem, exhaustive(problem.context))
    assert bool(shortest.optimal) == shortest.sufficient
    rationale = rationalize(problem.context, TableScorer(problem.table), minimal=True)
    if rationale.optimal:
        assert len(rationale) == len(shortest)


def test_pruning_drops_what_later_tokens_made_superfluous() -> None:
    # 0 looks best on its own; together, 1 and 2 are enough without it.
    values = {(0,): -1.0, (1,): -2.0, (2,): -3.0, (0, 1): -0.9, (0, 2): -1.0, (1, 2): -0.1}

    def look_up(kept: frozenset[int]) -> Score:
        own = tuple(sorted(kept - {3}))
        enough = {1, 2} <= kept
        return Score(values.get(own, -0.05 if enough else -4.0), TARGET if enough else OTHER)

    context = Context((1, 2, 3, 4), TARGET, required=(3,))
    assert rationalize(context, TableScorer(look_up)).indices == (3, 0, 1, 2)
    pruned = rationalize(context, TableScorer(look_up), minimal=True)
    assert pruned.indices == (3, 1, 2)
    assert [step.index for step in pruned.steps] == [3, 1, 2]
    assert pruned.minimal
    assert pruned.optimal is None


# Beam -------------------------------------------------------------------------------------------


@given(problems(), st.integers(1, 4))
@properties
def test_a_beam_lies_between_exhaustive_and_greedy(problem: Problem, width: int) -> None:
    shortest, _ = find(problem, exhaustive(problem.context))
    middle, _ = find(problem, beam(problem.context, width=width))
    quick, _ = find(problem, greedy(problem.context))
    if quick.sufficient:
        assert shortest.sufficient
        assert middle.sufficient
        assert len(shortest) <= len(middle) <= len(quick)
    if middle.sufficient:
        assert problem.yields_target(middle.indices)


@given(problems())
@properties
def test_a_wide_beam_is_exhaustive(problem: Problem) -> None:
    shortest, _ = find(problem, exhaustive(problem.context))
    widest, _ = find(problem, beam(problem.context, width=1000))
    assert (widest.sufficient, len(widest) if widest.sufficient else 0) == (
        shortest.sufficient,
        len(shortest) if shortest.sufficient else 0,
    )


# Fast -------------------------------------------------------------------------------------------


shortlists = st.builds(
    Shortlist,
    by_gain=st.integers(1, 3),
    neighbours=st.integers(0, 2),
    oldest=st.integers(0, 2),
    leaps=st.sampled_from([(), (2,), (2, 3, 5)]),
    growth=st.sampled_from([0.0, 0.5, 2.0]),
    patience=st.sampled_from([1, 2, 3, 99]),
)


@given(problems(), shortlists)
@properties
def test_fast_never_reports_a_sufficiency_that_was_not_seen(
    problem: Problem, shortlist: Shortlist
) -> None:
    rationale, asked = find(problem, fast(problem.context, shortlist=shortlist))
    kept = frozenset(rationale.indices) | frozenset(problem.context.pinned)
    assert kept in asked
    assert rationale.sufficient == problem.yields_target(rationale.indices)
    assert len(rationale.steps) == len(rationale) - len(problem.context.required) + 1
    if rationale.sufficient:
        assert rationale.minimal
    else:  # it has tried to the end
        assert len(rationale) == len(problem.context.everything)


@given(problems(), st.randoms(use_true_random=False), st.integers(0, 4))
@properties
def test_proposals_change_what_is_tried_and_never_what_is_true(
    problem: Problem, rng: random.Random, alone: int
) -> None:
    proposed = list(problem.context.choices)
    rng.shuffle(proposed)
    shortlist = Shortlist(alone=alone, long=0)
    search = fast(problem.context, shortlist=shortlist, proposed=tuple(proposed), keep_candidates=3)
    rationale, asked = find(problem, search)
    kept = problem.context.required
    for step in rationale.steps:  # a candidate is what it would have led to
        for each in step.candidates:
            assert each.target_logprob == problem.score((*kept, each.index)).target_logprob
        kept += () if step.index is None or step.index in kept else (step.index,)
    assert frozenset(rationale.indices) | frozenset(problem.context.pinned) in asked
    assert rationale.sufficient == problem.yields_target(rationale.indices)
    plain, _ = find(problem, fast(problem.context))
    # Both try single units and end with everything: neither misses what the other finds there.
    assert rationale.sufficient or not plain.sufficient or len(plain) > 1
    if rationale.sufficient:
        assert rationale.minimal
    else:
        assert len(rationale) == len(problem.context.everything)


def pairs_with_attention(table: Callable[[frozenset[int]], Score]) -> tuple[Problem, Units]:
    """A problem of thirty pairs of tokens, and its units by attention: 7 first, then 20."""
    size = 60
    context = Context(tuple(range(size)), TARGET, required=(size - 1,))
    context = context.grouped([(n, n + 1) for n in range(0, size, 2)])
    attention = [{7: 2.0, 20: 1.0}.get(index, 0.0) for index in range(size)]
    return Problem(context, table), order(context, attention)


@given(problems(), st.randoms(use_true_random=False))
@properties
def test_what_a_level_has_kept_is_searched_from_all_of_it(
    problem: Problem, rng: random.Random
) -> None:
    kept = [index for index in range(len(problem.context.ids)) if rng.random() < 0.7]
    part = problem.context.grouped([[i] for i in range(len(problem.context.ids))], kept)
    proposed = list(part.choices)
    rng.shuffle(proposed)
    problem = replace(problem, context=part)
    rationale, asked = find(problem, fast(part, proposed=tuple(proposed)))
    assert frozenset(rationale.indices) | frozenset(part.pinned) in asked
    assert rationale.sufficient == problem.yields_target(rationale.indices)
    assert rationale.sufficient or {*rationale.indices} == {*part.everything}
    for index in {*rationale.indices} - {*part.required}:
        fewer = tuple(i for i in rationale.indices if i != index)
        assert not rationale.sufficient or not problem.yields_target(fewer)
    if problem.yields_target(part.everything):
        assert rationale.sufficient


def test_tokens_that_help_only_together_are_found_at_once_in_what_a_level_has_kept() -> None:
    needed = {3, 7, 9, 11}

    def look_up(kept: frozenset[int]) -> Score:
        return Score(-1.0, TARGET) if needed <= kept else Score(-2.0, OTHER)

    tokens = [(index,) for index in range(40)]
    whole = Context(tuple(range(40)), TARGET, required=(39,))
    part = whole.grouped(tokens, range(2, 14))
    proposed = tuple(reversed(part.choices))
    rationale, asked = find(Problem(part, look_up), fast(part, proposed=proposed))
    assert rationale.indices == (39, 11, 9, 7, 3)
    assert [step.index for step in rationale.steps] == [39, 11, 9, 7, 3]
    _, growing = find(Problem(part, look_up), fast(part, shortlist=Shortlist(few=0)))
    assert len({*asked}) < len({*growing})
    # Nothing is known of a whole text: there, greedy search grows.
    short = Context(tuple(range(12)), TARGET, required=(11,))
    _, asked = find(Problem(short, look_up), fast(short))
    assert frozenset({0, 11}) in asked


def test_a_good_proposal_saves_the_first_step() -> None:
    problem, units = pairs_with_attention(lambda kept: Score(-1.0, TARGET if 7 in kept else OTHER))
    search = fast(problem.context, shortlist=Shortlist(long=50), proposed=units)
    rationale, asked = find(problem, search)
    assert rationale.units == ((58, 59), (6, 7))
    assert len(asked) <= 4


def test_proposals_that_are_sufficient_together_by_chance_are_not_taken() -> None:
    def look_up(kept: frozenset[int]) -> Score:
        value = sum({7: 2.0, 31: 2.0, 20: 0.5}.get(index, 0.0) for index in kept)
        return Score(value - 5, TARGET if 7 in kept and kept & {20, 31} else OTHER)

    problem, units = pairs_with_attention(look_up)
    search = fast(problem.context, shortlist=Shortlist(long=50), proposed=units)
    rationale, _ = find(problem, search)
    assert rationale.units == ((58, 59), (6, 7), (30, 31))


@given(problems())
@properties
def test_fast_with_room_for_all_takes_the_first_sufficient_step(problem: Problem) -> None:
    everything = Shortlist(by_gain=100, leaps=())
    rationale, _ = find(problem, fast(problem.context, shortlist=everything))
    usual, _ = find(problem, greedy(problem.context))
    assert len(rationale) <= len(usual)


def test_fast_asks_for_less() -> None:
    size = 60

    def look_up(kept: frozenset[int]) -> Score:
        found = len(kept & {7, 21, 33, 48})
        return Score(found - 5.0 + len(kept) / 1000, TARGET if found == 4 else OTHER)

    context = Context(tuple(range(100, 100 + size)), TARGET, required=(size - 1,))
    usual = rationalize(context, TableScorer(look_up))
    quick = rationalize(context, TableScorer(look_up), fast=True)
    assert quick.indices == usual.indices
    assert quick.evaluations < usual.evaluations / 2


def test_fast_starts_from_everything_where_growing_misleads() -> None:
    size, needed = 80, {3, 40, 71}

    def look_up(kept: frozenset[int]) -> Score:
        # Worth something only together; alone, each makes the target less likely than any other.
        found = kept >= needed
        return Score(
            -0.1 if found else -5.0 + len(kept - needed) / 100 - len(kept & needed),
            TARGET if found else OTHER,
        )

    context = Context(tuple(range(100, 100 + size)), TARGET, required=(size - 1,))
    quick = rationalize(context, TableScorer(look_up), fast=True)
    usual = rationalize(context, TableScorer(look_up))
    assert {*quick.indices} == {*needed, size - 1}
    assert quick.minimal
    assert len(usual) > 70
    assert quick.evaluations < usual.evaluations / 5


def test_fast_gives_up_soon_where_nothing_is_enough() -> None:
    size = 80

    def look_up(kept: frozenset[int]) -> Score:
        return Score(-5.0 + len(kept) / 100, OTHER)

    context = Context(tuple(range(100, 100 + size)), TARGET, required=(size - 1,))
    quick = rationalize(context, TableScorer(look_up), fast=True)
    assert not quick.sufficient
    assert len(quick) == len(quick.steps) == size
    assert quick.evaluations < 6 * size


# Units ------------------------------------------------------------------------------------------


@given(problems(), st.lists(st.booleans(), min_size=1, max_size=8), st.integers(0, 10**6))
@properties
def test_searches_add_whole_units(problem: Problem, cuts: list[bool], seed: int) -> None:
    problem = grouped(problem, cuts)
    context = problem.context
    parts = [*context.choices, *([context.required] if context.required else [])]
    for search in (greedy(context), exhaustive(context), beam(context), fast(context)):
        rationale, _ = find(problem, search)
        assert rationale.units is not None
        assert [i for unit in rationale.units for i in unit] == list(rationale.indices)
        assert {*rationale.units} <= {*parts}
        assert rationale.sufficient == problem.yields_target(rationale.indices)


def test_a_required_token_takes_its_word_along() -> None:
    context = Context(tuple(range(6)), TARGET, required=(5,), pinned=(0,))
    words = context.grouped([(0, 1), (2, 3), (4, 5, 6)])
    assert words.required == (4, 5)
    assert words.choices == ((1,), (2, 3))
    assert words.candidates == (1, 2, 3)
    assert words.everything == (1, 2, 3, 4, 5)


@pytest.mark.parametrize("units", [((0, 1), (1, 2)), ((3,),), ((),), ((7,),)])
def test_units_that_overlap_or_leave_the_context_are_refused(
    units: tuple[tuple[int, ...], ...],
) -> None:
    with pytest.raises(RationalesError, match="units must"):
        Context((1, 2, 3, 4), TARGET, required=(3,), units=units)


def test_levels_have_one_name_each() -> None:
    with pytest.raises(RationalesError, match="1 names for 2 levels"):
        Context((1, 2), TARGET, levels=(((0, 1),), ((0,), (1,))), level_names=("word",))


@given(problems(), st.lists(st.booleans(), min_size=1, max_size=8))
@properties
def test_coarse_to_fine_ends_within_what_each_level_kept(
    problem: Problem, cuts: list[bool]
) -> None:
    context = problem.context
    coarse = grouped(problem, cuts).context
    tokens = tuple((index,) for index in range(len(context.ids)))
    context = replace(context, levels=((coarse.required, *coarse.choices), tokens))
    seen: list[Context] = []

    def watched(context: Context):  # type: ignore[no-untyped-def]
        seen.append(context)
        return greedy(context)

    rationale, _ = find(problem, coarse_to_fine(context, watched, watched))
    first, _ = find(problem, greedy(seen[0]))
    assert rationale.sufficient == first.sufficient == problem.yields_target(rationale.indices)
    assert {*rationale.indices} <= {*first.indices}


# Other questions --------------------------------------------------------------------------------


def three_tokens(seed: int) -> Callable[[frozenset[int]], Score]:
    """A model of three tokens: the target, a rival and a third, with all their probabilities."""

    def look_up(kept: frozenset[int]) -> Score:
        draw = random.Random(f"{seed} {sorted(kept)}")
        weights = {TARGET: draw.random(), OTHER: draw.random(), THIRD: draw.random() / 2}
        total = sum(weights.values())
        logs = {token: math.log(weight / total) for token, weight in weights.items()}
        ranked = sorted(logs, key=lambda token: -logs[token])
        return Score(
            logs[TARGET], ranked[0], logs[ranked[0]], ranked.index(TARGET) + 1, (logs[OTHER],)
        )

    return look_up


@given(problems(), st.integers(0, 10**6))
@properties
def test_contrast_with_the_only_rival_agrees_with_argmax(problem: Problem, seed: int) -> None:
    def two_tokens(kept: frozenset[int]) -> Score:
        p = random.Random(f"{seed} {sorted(kept)}").uniform(0.01, 0.99)
        best = TARGET if p > 0.5 else OTHER
        return Score(math.log(p), best, math.log(max(p, 1 - p)), 1 + (p < 0.5), (math.log(1 - p),))

    usual = rationalize(problem.context, TableScorer(two_tokens))
    contrast = rationalize(replace(problem.context, extra_ids=(OTHER,)), TableScorer(two_tokens))
    assert contrast.indices == usual.indices
    assert contrast.sufficient == usual.sufficient


@given(problems(), st.integers(0, 10**6), st.sampled_from(["top-k=1", "top-k=2", "prob=0.6"]))
@properties
def test_criteria_hold_where_they_are_said_to(problem: Problem, seed: int, name: str) -> None:
    table = three_tokens(seed)
    rationale = rationalize(problem.context, TableScorer(table), criterion=name)
    kind, level = parse(name)

    def enough(indices: tuple[int, ...]) -> bool:
        score = table(frozenset(indices) | frozenset(problem.context.pinned))
        assert score.rank is not None
        return score.rank <= level if kind == "top-k" else math.exp(score.target_logprob) >= level

    assert rationale.sufficient == enough(rationale.indices)
    # The steps before the last were not enough.
    for size in range(len(problem.context.required), len(rationale)):
        assert not enough(rationale.indices[:size])
    if name == "top-k=1":
        assert rationale.indices == rationalize(problem.context, TableScorer(table)).indices


@given(problems(), st.integers(0, 10**6), st.floats(0.1, 1.0))
@properties
def test_a_ratio_is_of_the_whole_context(problem: Problem, seed: int, share: float) -> None:
    table = three_tokens(seed)
    context = problem.context
    rationale = rationalize(context, TableScorer(table), criterion=f"ratio={share}")
    full = table(frozenset(context.everything) | frozenset(context.pinned)).target_logprob
    last = rationale.steps[-1].target_logprob
    assert rationale.sufficient == (last >= full + math.log(share) - 1e-9)
    assert rationale.sufficient  # the whole context always is


@pytest.mark.parametrize(
    "name", ["", "argmax=1", "top-k", "top-k=0", "top-k=1.5", "prob=0", "prob=2", "ratio=x", "p=1"]
)
def test_criteria_that_mean_nothing_are_refused(name: str) -> None:
    with pytest.raises(RationalesError, match="criterion must be argmax"):
        parse(name)


@pytest.mark.parametrize(("name", "wants"), [("top-k=2", "rank"), ("argmax", "alternative")])
def test_scorers_that_tell_too_little_are_named(name: str, wants: str) -> None:
    context = Context(
        (1, 2), TARGET, required=(1,), extra_ids=(OTHER,) if wants == "alternative" else ()
    )
    scorer = TableScorer(lambda kept: Score(-1.0, OTHER))
    with pytest.raises(RationalesError, match=wants):
        rationalize(context, scorer, criterion=name)


@given(problems(), st.integers(2, 4), st.booleans())
@properties
def test_disjoint_rationales_are_disjoint(problem: Problem, how_many: int, minimal: bool) -> None:
    context = problem.context
    first = rationalize(context, TableScorer(problem.table), disjoint=how_many, minimal=minimal)
    usual = rationalize(context, TableScorer(problem.table), minimal=minimal)
    assert first.indices == usual.indices
    together = [first, *first.alternatives]
    assert len(together) <= how_many
    for one, other in combinations(together, 2):
        assert {*one.indices} & {*other.indices} == {*context.required}
    for other in first.alternatives:
        assert other.sufficient
        assert problem.yields_target(other.indices)


# The soft objective -----------------------------------------------------------------------------


@given(problems(), st.floats(0.01, 3.0))
@properties
def test_soft_is_the_cheapest_subset_on_the_greedy_path(problem: Problem, penalty: float) -> None:
    context = problem.context
    rationale, _ = find(problem, soft(context, penalty=penalty))

    def cost(indices: tuple[int, ...]) -> float:
        return penalty * len(indices) - problem.score(indices).target_logprob

    path = [context.required]
    while len(path[-1]) < len(context.everything):
        tried = [(*path[-1], k) for k in context.candidates if k not in path[-1]]
        path.append(max(tried, key=lambda s: problem.score(s).target_logprob))
    assert cost(rationale.indices) == min(cost(subset) for subset in path)
    assert rationale.indices in path


def test_soft_can_return_fewer_tokens_than_are_sufficient() -> None:
    """As the paper warns: where tokens are dear, a likely target is bargain enough."""

    def look_up(kept: frozenset[int]) -> Score:
        share = {1: 0.05, 2: 0.35, 3: 0.45, 4: 0.6}[len(kept)]
        return Score(math.log(share), TARGET if share > 0.5 else OTHER)

    context = Context((1, 2, 3, 4), TARGET, required=(3,))
    usual = rationalize(context, TableScorer(look_up))
    assert (len(usual), usual.sufficient) == (4, True)
    cheap = rationalize(context, TableScorer(look_up), method="soft", penalty=0.5)
    assert (len(cheap), cheap.sufficient) == (2, False)
    patient = rationalize(context, TableScorer(look_up), method="soft", penalty=0.01)
    assert (len(patient), patient.sufficient) == (4, True)


@given(problems())
@properties
def test_a_subset_is_scored_once(problem: Problem) -> None:
    assume(problem.context.candidates)
    for options in ({"method": "beam"}, {"minimal": True}, {"fast": True}):
        scorer = TableScorer(problem.table)
        rationalize(problem.context, scorer, **options)
        assert len(scorer.scored) == len({*scorer.scored})
