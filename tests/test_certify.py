"""Proofs of rationales: all that is said is true of the table, what is not known is absent."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rationales import Options, Score, rationalize
from rationales.context import Context, Token
from rationales.errors import BudgetError, RationalesError
from rationales.render.proof import facts
from rationales.result import Explanation, Proof, Rationale, Step
from rationales.scoring.table import TableScorer
from rationales.search.choose import make_search
from rationales.search.combined import coarse_to_fine
from rationales.search.driver import run
from rationales.search.fast import fast as search_fast
from rationales.search.greedy import greedy
from test_shorter import grouped

from tables import OTHER, TARGET, Problem, find, problems, properties


def certified(problem: Problem, **options: Any) -> Rationale:
    asked = Options(certify=True, **options)
    return find(problem, make_search(problem.context, asked, list))[0]


_CUTS = st.none() | st.lists(st.booleans(), min_size=1, max_size=8)
"""Where units of several tokens end, if there are such."""


def sizes_of(problem: Problem) -> list[int]:
    """The sizes of all sufficient subsets, without what is required."""
    choices = problem.context.choices
    required = problem.context.required
    return [
        size
        for size in range(len(choices) + 1)
        for units in combinations(choices, size)
        if problem.yields_target((*required, *(i for unit in units for i in unit)))
    ]


@properties
@given(problems(), _CUTS, st.booleans(), st.sampled_from([0, 3, 10, 50]))
def test_what_is_said_is_true(
    problem: Problem, cuts: list[bool] | None, fast: bool, budget: int
) -> None:
    problem = problem if cuts is None else grouped(problem, cuts)
    found = certified(problem, fast=fast, max_evaluations=budget)
    if not found.sufficient:
        assert found.proof is None
        return
    proof, context = found.proof, problem.context
    assert proof is not None
    own = [unit for unit in context.choices if {*unit} <= {*found.indices}]
    required = context.required
    smallest = min(sizes_of(problem))
    assert smallest <= len(own)
    if budget:
        assert proof.evaluations <= budget
    else:  # everything was asked
        assert None not in (proof.lower_bound, found.minimal, proof.without, proof.more)
        assert proof.lower_bound == smallest
        assert found.optimal is (len(own) == smallest)
    assert (proof.lower_bound or 0) <= smallest
    if found.optimal is not None:
        assert found.optimal is (len(own) == smallest)
    smaller = [tuple(i for i in found.indices if i not in unit) for unit in own]
    if found.minimal is not None:
        assert found.minimal is not any(map(problem.yields_target, smaller))
    rest = tuple(i for i in context.everything if i not in found.indices or i in required)
    if proof.without is None:
        assert proof.without_sufficient is None
        assert found.without_drop is None
    else:
        assert proof.without_sufficient is problem.yields_target(rest)
        assert proof.without.target_logprob == problem.score(rest).target_logprob
        assert found.full_context is not None
        drop = found.full_context.target_logprob - proof.without.target_logprob
        assert found.without_drop == pytest.approx(drop)
    if proof.critical_units is not None:
        assert proof.critical_units == tuple(
            unit
            for unit in context.choices
            if not problem.yields_target(tuple(i for i in context.everything if i not in unit))
        )
    elif not budget:
        assert not problem.yields_target(context.everything)
    suffixes = [
        (*required, *(i for unit in context.choices[len(context.choices) - n :] for i in unit))
        for n in range(len(context.choices) + 1)
    ]
    enough = [n for n, suffix in enumerate(suffixes) if problem.yields_target(suffix)]
    if proof.suffix is not None:
        assert proof.suffix == enough[0]
    elif not budget:
        assert not enough


@properties
@given(problems(), _CUTS)
def test_no_search_finds_less_than_the_lower_bound(
    problem: Problem, cuts: list[bool] | None
) -> None:
    problem = problem if cuts is None else grouped(problem, cuts)
    found = certified(problem, max_evaluations=30)
    if found.proof is None or found.proof.lower_bound is None:
        return
    context = problem.context
    order = [*range(len(context.ids))]
    for options in (
        {},
        {"fast": True},
        {"minimal": True},
        {"beam": 2},
        {"method": "exhaustive"},
        {"method": "random", "seed": 3},
        {"disjoint": 3},
    ):
        one, _ = find(problem, make_search(context, Options(**options), lambda: order))  # type: ignore[arg-type]
        for other in (one, *one.alternatives):
            own = {*other.indices} - {*context.required}
            size = sum({*unit} <= own for unit in context.choices)
            assert not other.sufficient or found.proof.lower_bound <= size


@properties
@given(problems(), st.lists(_CUTS, min_size=1, max_size=3), st.booleans())
def test_every_level_ends_sufficient_or_is_the_last_and_keeps_all(
    problem: Problem, cuts: list[list[bool] | None], fast: bool
) -> None:
    """What is not sufficient holds all that its level may keep: nothing more is left to add."""
    context = problem.context
    levels = []
    for each in cuts:
        units = grouped(problem, each or [False]).context
        levels.append((units.required, *units.choices) if units.required else units.choices)
    tokens = tuple((index,) for index in range(len(context.ids)))
    context = replace(context, levels=(*levels, tokens))
    seen: list[tuple[Context, Rationale]] = []

    def watched(within: Context) -> Any:
        result = yield from (search_fast if fast else greedy)(within)
        seen.append((within, result))
        return result

    rationale, _ = find(problem, coarse_to_fine(context, watched, watched))
    *before, (within, last) = seen
    assert all(result.sufficient for _, result in before)
    assert rationale.sufficient is last.sufficient is problem.yields_target(last.indices)
    if rationale.sufficient:
        assert all(len(unit) == 1 for unit in within.choices)  # the last level
    else:
        assert {*rationale.indices} == {*within.required, *within.candidates}
        assert rationale.stopped is None


@properties
@given(problems(), st.integers(1, 3))
def test_whether_there_are_more_disjoint_ones(problem: Problem, count: int) -> None:
    found = certified(problem, disjoint=count, max_evaluations=0)
    if found.proof is None:
        return
    plain = find(problem, make_search(problem.context, Options(disjoint=count + 1), list))[0]
    assert len(found.alternatives) == min(len(plain.alternatives), count - 1)
    assert found.proof.more is (len(plain.alternatives) >= count)


def test_the_budget_bounds_the_proof() -> None:
    context = Context(ids=tuple(range(100, 130)), target_id=TARGET, required=(29,))
    asked: list[frozenset[int]] = []

    def table(kept: frozenset[int]) -> Any:
        asked.append(kept)
        return Score(-1.0, TARGET if {3, 7, 11} <= kept else 9)

    scorer = TableScorer(table)
    found = rationalize(context, scorer, minimal=True, certify=True, max_evaluations=100)
    assert found.proof is not None
    assert found.proof.lower_bound == 2  # 0 and 1 units were tried, 406 pairs were not
    assert found.proof.evaluations <= 100
    whole = rationalize(context, scorer, minimal=True, certify=True, max_evaluations=5000)
    assert whole.proof is not None
    assert whole.optimal is True
    assert whole.proof.suffix == 26  # from token 3 on
    assert whole.proof.critical_units == ((3,), (7,), (11,))
    assert whole.proof.without_sufficient is False


def test_a_budget_that_allows_nothing_leaves_everything_absent() -> None:
    context = Context(ids=(100, 101, 102), target_id=TARGET, required=(2,))
    scorer = TableScorer(lambda kept: Score(-1.0, TARGET if 0 in kept else 9))
    found = rationalize(context, scorer, certify=True, max_evaluations=1)
    assert found.sufficient
    assert found.minimal is None
    assert found.proof == Proof()


def test_a_search_for_one_more_ends_with_the_budget() -> None:
    context = Context(ids=tuple(range(100, 160)), target_id=TARGET, required=(59,))
    scorer = TableScorer(lambda kept: Score(-1.0, TARGET if kept & {3, 7} else 9))
    short = rationalize(context, scorer, certify=True, max_evaluations=130)
    assert short.proof is not None
    assert short.proof.more is None
    assert short.proof.evaluations <= 130
    long = rationalize(context, scorer, certify=True, max_evaluations=500)
    assert long.proof is not None
    assert long.proof.more is True


def test_a_rationale_of_a_real_model_is_proven_and_told(tiny_explainer: Any) -> None:
    text = "The quick brown fox jumps over the lazy"
    found = tiny_explainer.explain(text, generate=2, certify=True)
    for rationale in found:
        proof = rationale.proof
        assert isinstance(proof, Proof)
        assert proof.margin is not None
        assert proof.margin >= -1e-4
        assert proof.deleted_sufficient is not None
        assert proof.without_adapter_sufficient is None  # there is no adapter
        assert proof.stable is proof.deleted_sufficient
        assert any("nats ahead" in fact for fact in facts(rationale))
    assert Explanation.from_json(found.to_json()) == found
    kept = "".join(found.tokens[i].text for i in sorted(found[0].indices))
    closed = tiny_explainer.explain(kept, continuation=found[0].target_text)
    if len(closed.tokens) == len(found[0].indices) + 1:  # joined, they are the same tokens
        assert found[0].proof.deleted_sufficient is closed[0].predicted
    plain = tiny_explainer.explain(text, generate=1)
    assert plain[0].proof is None
    assert plain.cost is None


def test_without_is_a_forward_pass_on_the_rest(tiny_explainer: Any, tiny_model: Any) -> None:
    found = tiny_explainer.explain("The quick brown fox jumps over", generate=3, certify=True)
    for rationale in found:
        before = rationale.target - 1
        rest = [i for i in range(rationale.target) if i not in rationale.indices or i == before]
        ids = torch.tensor([[found.tokens[i].id for i in rest]])
        with torch.no_grad():
            logits = tiny_model(
                input_ids=ids,
                position_ids=torch.tensor([rest]),
                attention_mask=torch.ones_like(ids),
            ).logits[0, -1]
        logprobs = logits.log_softmax(-1)
        without = rationale.proof.without
        assert without.target_logprob == pytest.approx(
            float(logprobs[rationale.target_id]), abs=1e-3
        )
        assert without.prediction_logprob == pytest.approx(float(logprobs.max()), abs=1e-3)
        assert rationale.proof.without_sufficient is (without.prediction_id == rationale.target_id)


def test_what_it_took_is_told_for_all_targets_together(tiny_explainer: Any) -> None:
    before = tiny_explainer.scorer.tokens
    found = tiny_explainer.explain("The quick brown fox", continuation=" jumps over", certify=True)
    assert found.cost is not None
    assert found.cost.model_tokens == tiny_explainer.scorer.tokens - before
    assert found.cost.seconds == found.seconds
    proofs = [r.proof for r in found if r.proof is not None]
    asked = [r.evaluations for r in found] + [proof.evaluations for proof in proofs]
    assert found.cost.subsets == sum(asked)
    assert Explanation.from_json(found.to_json()).cost == found.cost


def test_proofs_are_columns_of_a_data_frame(tiny_explainer: Any) -> None:
    text = "The quick brown fox jumps over the lazy"
    plain = tiny_explainer.explain(text, generate=2).to_dataframe()
    found = tiny_explainer.explain(text, generate=2, certify=True, disjoint=2)
    frame = found.to_dataframe()
    assert [*frame.columns[: len(plain.columns)]] == [*plain.columns]
    assert {"margin", "without_drop", "stable", "alternatives", "proof_evaluations"} <= {*frame}
    for (_, row), rationale in zip(frame.iterrows(), found, strict=True):
        assert row["margin"] == rationale.proof.margin
        assert row["without_drop"] == rationale.without_drop
        assert row["stable"] == rationale.proof.stable
        assert row["alternatives"] == [each.text for each in rationale.alternatives]


def prove(step: int | None = 2, **proven: Any) -> Rationale:
    kept = (0,) if step is None else (2, 0)
    own = {name: proven.pop(name) for name in ("minimal", "optimal") if name in proven}
    tokens = tuple(Token(i, i, text) for i, text in enumerate(["One", " two", " three"]))
    said = Step(index=None, target_logprob=-0.5, prediction_id=TARGET, prediction_text=" x")
    first = Step(index=step, target_logprob=-1.0, prediction_id=TARGET)
    return Rationale(
        target=3, target_id=TARGET, indices=kept, sufficient=True, evaluations=3,
        steps=(first,), full_context=said, proof=Proof(evaluations=7, **proven), **own,
        tokens=tokens,
    )  # fmt: skip


WITHOUT = Step(index=None, target_logprob=-2.0, prediction_id=9, prediction_text=" y")


@pytest.mark.parametrize(
    ("proven", "said"),
    [
        ({}, "proof: 7 subsets scored"),
        ({"margin": 1.25}, "1.25 nats ahead of the runner-up"),
        ({"margin": -1e-7}, "0.00 nats ahead of the runner-up"),
        ({"margin": -2.0}, "2.00 nats behind the most likely token"),
        ({"minimal": True}, "minimal: no single word can be left out"),
        ({"minimal": False}, "not minimal: a single word can be left out"),
        ({"optimal": True, "minimal": True}, "smallest: no set of fewer words is sufficient"),
        ({"lower_bound": 1}, "no set of fewer than 2 words is sufficient"),
        (
            {"without": WITHOUT, "without_sufficient": False},
            "everything else predicts ' y' (target 1.50 nats less likely)",
        ),
        (
            {"without": WITHOUT, "without_sufficient": True},
            "everything else is sufficient too (target 1.50 nats less likely)",
        ),
        ({"critical_units": ()}, "the full context needs no single word"),
        ({"critical_units": ((0,), (1, 2))}, "the full context needs 'One', 'two three'"),
        ({"suffix": 0}, "the last word alone is sufficient"),
        ({"suffix": 2}, "the last 3 words alone are sufficient"),
        ({"suffix": 0, "step": None}, "the pinned tokens alone are sufficient"),
        ({"more": True}, "one more disjoint rationale was found"),
        ({"more": False}, "no more disjoint rationale was found"),
        (
            {"stable": True, "deleted_sufficient": True, "without_adapter_sufficient": True},
            "stable: sufficient too if the rest is deleted and without the adapter",
        ),
        (
            {"stable": False, "deleted_sufficient": False, "without_adapter_sufficient": True},
            "not stable: not sufficient if the rest is deleted",
        ),
    ],
)
def test_proofs_in_words(proven: dict[str, Any], said: str) -> None:
    *told, last = facts(prove(**proven), "word")
    assert last == "proof: 7 subsets scored"
    assert told == [said] * (said != last)


def test_a_budget_needs_something_that_reads_it() -> None:
    with pytest.raises(RationalesError, match="max_evaluations goes with"):
        Options(max_evaluations=5)
    assert Options(max_evaluations=5, certify=True).max_evaluations == 5


def test_what_is_excluded_is_part_of_everything_else() -> None:
    def look_up(kept: frozenset[int]) -> Score:
        found = bool(kept & {0, 1})
        return Score(-0.1 if found else -3.0, TARGET if found else OTHER)

    context = Context((1, 2, 3, 4), TARGET, required=(3,), excluded=(0,))
    found = rationalize(context, TableScorer(look_up), certify=True)
    assert found.proof is not None
    assert {*found.indices} == {1, 3}
    assert found.proof.without_sufficient  # token 0 is left
    assert found.proof.critical_units == ()
    assert found.proof.critical_tried == "rationale"  # what is excluded was not tried
    # With token 0, fewer may be sufficient, and what is most recent is not known.
    assert (found.proof.lower_bound, found.proof.suffix, found.optimal) == (None, None, None)


def test_units_that_are_kept_in_part_are_not_certified() -> None:
    def look_up(kept: frozenset[int]) -> Score:
        return Score(-0.1, TARGET) if 1 in kept else Score(-3.0, OTHER)

    levels = (((0, 1), (2, 3)), ((0,), (1, 2), (3,)))  # the second has a unit over the border
    context = Context((1, 2, 3, 4, 5), TARGET, required=(4,), levels=levels)
    found = rationalize(context, TableScorer(look_up), coarse_to_fine=True, certify=True)
    assert ({*found.indices}, found.sufficient, found.proof) == ({1, 4}, True, None)


def needs_five(kept: frozenset[int]) -> Score:
    return Score(len(kept & {3, 9, 15, 21, 33}) - 6.0, TARGET if kept >= {3, 9, 15, 21, 33} else 9)


def test_a_search_that_ended_is_complete_whatever_the_budget_leaves_for_its_proof() -> None:
    context = Context(tuple(range(40)), TARGET, required=(39,))
    alone = rationalize(context, TableScorer(needs_five), method="deletion")
    both = rationalize(
        context, TableScorer(needs_five), method="deletion", certify=True, max_evaluations=100
    )
    assert (both.indices, both.stopped, both.minimal) == (alone.indices, None, True)
    assert both.proof is not None
    assert both.proof.without_sufficient is False


class Limited:
    """A scorer that may be asked this many times, as an endpoint with a budget may."""

    def __init__(self, budget: int, needed: set[int]) -> None:
        self.left, self.needed = budget, needed

    def score(self, queries: Any) -> list[Score]:
        affordable = queries[: self.left]
        self.left -= len(affordable)
        scores = [
            Score(
                -1.0 - len(self.needed - {*kept}),
                context.target_id if self.needed <= {*kept} else OTHER,
            )
            for context, kept in affordable
        ]
        if len(scores) < len(queries):
            missing = [None] * (len(queries) - len(scores))
            raise BudgetError("the budget is spent", [*scores, *missing])
        return scores


@pytest.mark.parametrize("span", [(), (7,)])
@pytest.mark.parametrize("method", ["greedy", "deletion"])
@pytest.mark.parametrize("certify", [False, True])
def test_whatever_is_left_of_a_budget_what_is_said_is_true(
    span: tuple[int, ...], method: str, certify: bool
) -> None:
    context = Context((1, 2, 3, 4, 5), TARGET, required=(4,), span_ids=span)
    ends = set()
    for budget in range(60):
        scorer = Limited(budget, {0, 1})
        found = rationalize(context, scorer, method=method, certify=certify)
        assert found.sufficient == ({0, 1} <= {*found.indices})
        assert found.minimal in (None, True) or not found.sufficient
        asked = None if found.proof is None else found.proof.without is not None
        ends.add((found.stopped, found.sufficient, asked))
    assert {("budget", False, None), (None, True, True if certify else None)} <= ends
    if certify:
        assert (None, True, False) in ends  # the budget was spent by the proof


def test_what_may_not_be_added_is_not_kept_when_the_budget_is_spent() -> None:
    context = Context(tuple(range(10)), TARGET, required=(9,), excluded=(0, 1, 2))
    for budget in range(20):
        found = rationalize(context, Limited(budget, set()), certify=True)
        assert {*found.indices}.isdisjoint(context.excluded)


@pytest.mark.parametrize("levels", [(), (tuple((i,) for i in range(19)),)])
def test_the_best_of_a_budget_is_no_larger_than_allowed(levels: Any) -> None:
    context = Context(tuple(range(20)), TARGET, required=(19,), levels=levels)
    asked = {"coarse_to_fine": True} if levels else {}
    ends = set()
    for budget in range(60):
        found = rationalize(context, Limited(budget, {1, 2, 3}), max_size=2, **asked)
        assert len(found) <= 2
        assert not found.sufficient
        ends.add(found.stopped)
    assert ends == {"budget", "max-size"}
    found = rationalize(context, Limited(99, {5}), max_size=2, method="deletion", max_evaluations=5)
    assert (len(found) <= 2) or not found.sufficient


def test_what_a_budget_leaves_of_a_coarse_search_is_in_units_of_its_last_level() -> None:
    levels = (((0, 1, 2, 3), (4, 5, 6, 7), (8, 9)), ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9)))
    context = Context(tuple(range(10)), TARGET, required=(9,), levels=levels)
    options = Options(coarse_to_fine=True, finest="word", method="deletion", max_evaluations=3)

    def look_up(kept: frozenset[int]) -> Score:
        return Score(-0.1, TARGET) if kept >= {1, 6} else Score(-3.0, OTHER)

    search = make_search(context, options, list)
    [(_, found)] = run([(0, context, search)], TableScorer(look_up))
    assert (found.stopped, found.sufficient) == ("budget", True)
    assert found.units is not None
    assert {*found.units} <= {*levels[-1], (9,)}
    assert sorted(i for unit in found.units for i in unit) == sorted(found.indices)


@pytest.mark.parametrize(("finest", "kept"), [("word", (10, 11)), (None, (11,))])
def test_a_budget_in_which_nothing_fitted_is_told(finest: Any, kept: tuple[int, ...]) -> None:
    documents = ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11))
    size = 2 if finest else 1
    last = tuple(tuple(range(i, i + size)) for i in range(0, 12, size))
    context = Context(tuple(range(12)), TARGET, required=(11,), levels=(documents, last))
    asked = {"max_size": 1, "max_evaluations": 2, "finest": finest}
    options = Options(coarse_to_fine=True, method="deletion", **asked)
    search = make_search(context, options, list)

    def look_up(kept: frozenset[int]) -> Score:
        return Score(-0.1, TARGET) if kept >= {1, 6} else Score(-3.0, OTHER)

    [(_, found)] = run([(0, context, search)], TableScorer(look_up))
    assert (found.indices, found.sufficient, found.stopped) == (kept, False, "budget")
    assert found.units == ((kept,) if finest else None)
    assert found.evaluations == 2


def test_a_proof_after_a_budget_counts_what_is_required() -> None:
    context = Context(tuple(range(9)), TARGET, pinned=(8,))
    found = rationalize(
        context, Limited(99, {2, 5}), method="deletion", certify=True, max_evaluations=6
    )
    assert (found.stopped, found.sufficient) == ("budget", True)
    assert found.proof is not None
    assert found.proof.lower_bound == 1  # nothing is required: a set of one may be sufficient
    assert "no set of fewer than 1 token is sufficient" in facts(found, "token")


def test_an_alternative_is_the_smallest_only_if_nothing_smaller_could_be() -> None:
    def look_up(kept: frozenset[int]) -> Score:
        found = 0 in kept or kept >= {1, 2}
        return Score(-0.1 if found else -3.0, TARGET if found else OTHER)

    context = Context((1, 2, 3, 4), TARGET, required=(3,))
    found = rationalize(context, TableScorer(look_up), method="exhaustive", disjoint=2)
    assert ({*found.indices}, found.optimal) == ({0, 3}, True)
    [other] = found.alternatives
    assert ({*other.indices}, other.optimal) == ({1, 2, 3}, None)


def test_a_margin_without_bound_is_left_out() -> None:
    def look_up(kept: frozenset[int]) -> Score:
        return replace(Score(-0.1, TARGET), margin=math.inf)

    found = rationalize(Context((1, 2), TARGET), TableScorer(look_up), certify=True)
    assert found.proof is not None
    assert found.proof.margin is None


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_budget_that_ends_in_a_second_search_leaves_the_first(left: int) -> None:
    context = Context((1, 2, 3, 4, 5), TARGET, required=(4,))
    first = 2 + len(context.choices)  # the full context, nothing, and each token
    scorer = Limited(first + left, {1})
    found = rationalize(context, scorer, disjoint=3)
    assert ({*found.indices}, found.sufficient, found.stopped) == ({1, 4}, True, None)
    assert scorer.left == 0


def test_an_exhausted_budget_does_not_deny_another_rationale() -> None:
    def look_up(kept: frozenset[int]) -> Score:
        found = 0 in kept or kept >= {20, 25}
        return Score(-0.1 if found else -3.0, TARGET if found else OTHER)

    context = Context(tuple(range(30)), TARGET, required=(29,))
    asked = Options(method="exhaustive", disjoint=2, max_evaluations=100, certify=True)
    found = rationalize(context, TableScorer(look_up), asked)
    assert found.proof is not None
    assert (found.alternatives, found.proof.more) == ((), None)


def test_disjoint_rationales_of_sentences_share_the_required_one() -> None:
    def look_up(kept: frozenset[int]) -> Score:
        found = kept >= {0, 3} or kept >= {2, 3}
        return Score(-0.1 if found else -3.0, TARGET if found else OTHER)

    levels = (((0, 1), (2,), (3, 4)),)
    context = Context((1, 2, 3, 4, 5), TARGET, required=(4,), levels=levels)
    found = rationalize(context, TableScorer(look_up), coarse_to_fine=True, disjoint=3)
    assert [{*each.indices} for each in (found, *found.alternatives)] == [{0, 1, 3, 4}, {2, 3, 4}]
