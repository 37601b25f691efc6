"""Compared methods, and rationales of many examples: a run that is killed goes on."""

from __future__ import annotations

import json

import pytest

from progresses import silent, untimed
from rationales import Explainer, Options
from rationales.context import Context
from rationales.errors import RationalesError
from rationales.experiments.finding import KEY, Task, find_rationales
from rationales.experiments.language.agreement import find_smallest, smallest
from rationales.experiments.methods import LABELS, Settings
from rationales.experiments.run import Run
from rationales.runs import Lines


def test_the_methods_are_the_paper_s_and_signed_ones_come_twice():
    found = Settings().compared
    assert len(found) == len(LABELS) - 1 + 2  # greedy-fast is left out
    names = [method.name for method in found]
    assert "greedy-fast" not in names
    assert names.index("gradient-x-embedding-absolute") == names.index("gradient-x-embedding") + 1
    assert [m.options.absolute for m in found if m.row == "integrated-gradients"] == [False, True]
    [fast] = Settings(methods=("greedy-fast",)).compared
    assert fast.options == Options(fast=True)
    for method in Settings(seed=3, ig_steps=7).compared:
        own = {"seed": 3 if method.row == "random" else None}
        own["ig_steps"] = 7 if method.row == "integrated-gradients" else None
        assert {name: getattr(method.options, name) for name in own} == own


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("none",), "unknown method 'none'"),
        ((), "no methods"),
        (("greedy-minimal",), "name greedy"),
    ],
)
def test_methods_that_cannot_be_compared(names, message):
    with pytest.raises(RationalesError, match=message):
        Settings(methods=names)


@pytest.fixture
def contexts(tiny_explainer):
    """Ten contexts of eight tokens; the target is what the model predicts, or in two cases not."""
    found = {}
    for number in range(10):
        ids = tuple((number * 37 + place * 11) % 390 + 2 for place in range(8))
        [score] = tiny_explainer.scorer.score([(Context(ids, 0), tuple(range(8)))])
        target = score.prediction_id if number > 1 else (score.prediction_id + 1) % 390
        found[str(number)] = Context(ids, target, required=(7,))
    return found


NAMES = ("greedy", "greedy-minimal", "greedy-fast", "gradient-x-embedding", "random")


def tasks_of(explainer):
    methods = Settings(methods=NAMES).compared
    return [Task(explainer, m) for m in methods] + [
        Task(explainer, m, added=3) for m in methods if m.after is None
    ]


def test_a_run_that_dies_at_any_line_repeats_nothing_and_ends_the_same(
    tiny_explainer, contexts, tmp_path
):
    tasks = tasks_of(tiny_explainer)
    whole = Lines(tmp_path / "whole.jsonl", KEY)
    find_rationales(tasks, contexts, whole, silent)
    assert len(whole) == len(tasks) * len(contexts)

    path = tmp_path / "broken.jsonl"
    for stop in (1, 20, 37):  # of its own lines, and once in the middle of one

        def dies(what, done, total, note, began=[], stop=stop):  # noqa: B006
            began.append(done)
            if done - began[0] >= stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            find_rationales(tasks, contexts, Lines(path, KEY), dies)
        with path.open("a") as file:
            file.write('{"example": "torn"')
    before = path.read_text().splitlines()[:-1]
    assert 0 < len(before) < len(whole)
    find_rationales(tasks, contexts, Lines(path, KEY), silent)
    text = path.read_text()
    assert text.splitlines()[: len(before)] == before
    keys = [tuple(json.loads(line)[name] for name in KEY) for line in text.splitlines()]
    assert len(keys) == len(set(keys))
    assert untimed(path) == untimed(whole.path)

    class Nobody:
        def score(self, queries):
            raise AssertionError("a finished run asks nothing")

    unasked = Explainer(Nobody(), tiny_explainer.tokenizer, model=tiny_explainer.model)
    find_rationales(tasks_of(unasked), contexts, Lines(path, KEY), silent)


def test_what_was_added_first_is_not_searched_again_and_is_the_same(
    tiny_explainer, contexts, tmp_path
):
    tasks = tasks_of(tiny_explainer)
    whole = Lines(tmp_path / "whole.jsonl", KEY)
    find_rationales(tasks, contexts, whole, silent)
    alone = Lines(tmp_path / "alone.jsonl", KEY)
    find_rationales([task for task in tasks if task.added], contexts, alone, silent)
    assert len(alone) == sum(task.added is not None for task in tasks) * len(contexts)
    for line in alone:
        assert line["evaluations"] > 0
        assert whole[tuple(line[name] for name in KEY)]["indices"] == line["indices"]
    read = [line for line in whole if line["added"] and not line["evaluations"]]
    assert {line["method"] for line in read} >= {"greedy", "gradient-x-embedding", "random"}
    assert "greedy-fast" not in {line["method"] for line in read}  # it began otherwise
    for line in read:
        key = (line["example"], line["adapter"], line["method"], None)
        assert len(whole[key]["indices"]) >= 4


def test_lines_hold_what_the_searches_find(tiny_explainer, contexts, tmp_path):
    lines = Lines(tmp_path / "lines.jsonl", KEY)
    find_rationales(tasks_of(tiny_explainer), contexts, lines, silent)
    for name, context in contexts.items():
        greedy = lines[name, False, "greedy", None]
        minimal = lines[name, False, "greedy-minimal", None]
        assert greedy["predicted"] is (int(name) > 1)
        if greedy["predicted"]:
            assert greedy["sufficient"]
        assert set(minimal["indices"]) <= set(greedy["indices"])
        assert minimal["sufficient"] == greedy["sufficient"]
        first = lines[name, False, "greedy", 3]
        assert len(first["indices"]) == 4
        assert not first["sufficient"]
        both = min(4, len(greedy["indices"]))
        assert first["indices"][:both] == greedy["indices"][:both]
        assert first["indices"][0] == context.required[0]


@pytest.mark.parametrize(
    ("best", "searched", "found", "optimal", "bound"),
    [
        (9, 4, 3, 3, 3),
        (9, 4, None, None, 5),
        (5, 4, None, 5, 5),
        (3, 2, None, 3, 3),
        (1, 0, None, 1, 1),
    ],
)
def test_the_smallest_size_from_what_was_searched(best, searched, found, optimal, bound):
    line = {"best_known": best, "searched": searched, "found": found}
    assert smallest(line) == {"optimum": optimal, "at_least": bound}


def test_exhaustive_search_stops_below_the_best_that_is_known(tiny_explainer, contexts, tmp_path):
    few = {name: contexts[name] for name in ("2", "3", "4")}
    run = Run(tmp_path, "experiment x")
    lines = run.lines(KEY)
    find_rationales(
        [Task(tiny_explainer, m) for m in Settings(methods=("greedy",)).compared],
        few,
        lines,
        silent,
    )
    found = find_smallest(tiny_explainer, few, run, lines, 2, silent)
    full = {
        name: len(tiny_explainer_rationale(tiny_explainer, context))
        for name, context in few.items()
    }
    for name, line in found.items():
        greedy = len(lines[name, False, "greedy", None]["indices"])
        assert line["best_known"] == greedy
        assert line["searched"] == min(2, greedy - 1)
        assert line["at_least"] <= full[name] <= greedy
        if line["optimum"] is not None:
            assert line["optimum"] == full[name]
    text = (run.parts / "exhaustive.jsonl").read_text()
    assert find_smallest(tiny_explainer, few, run, lines, 2, silent) == found
    assert (run.parts / "exhaustive.jsonl").read_text() == text


def tiny_explainer_rationale(explainer, context):
    from rationales import rationalize

    return rationalize(context, explainer.scorer, method="exhaustive")


def test_no_search_goes_beyond_the_largest_size(tiny_explainer, contexts, tmp_path):
    lines = Lines(tmp_path / "lines.jsonl", KEY)
    methods = Settings(methods=("greedy", "greedy-minimal", "random"), max_size=2).compared
    find_rationales([Task(tiny_explainer, m) for m in methods], contexts, lines, silent)
    assert len(lines) == 3 * len(contexts)
    assert all(len(line["indices"]) <= 2 for line in lines)
    assert not all(line["sufficient"] for line in lines)
