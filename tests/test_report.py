"""The report on a run: its numbers, its lists, its page, its command."""

from __future__ import annotations

import html
import json
import re
import statistics
import sys
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import rationales
from rationales import Explanation, MissingExtraError, Rationale, RationalesError, Report
from rationales.render import histogram
from rationales.render.report import page
from rationales.runs import report as reporting
from rationales.runs import tally
from rationales.units import group

from runfolder import corpus, write
from shown import HOSTILE, chat, court, explanation, hostile, pair, rationale, tokens_of

VERDICTS = ("sufficient", "predicted", "minimal", "optimal")


class Tags(HTMLParser):
    """The elements of a page and where its links lead; no attribute is a script or a style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        given = dict(attributes)
        assert not [name for name in given if name.startswith("on") or name == "style"]
        if tag == "a":
            self.links.append(given["href"] or "")


def items_in(text: str) -> list[dict[str, Any]]:
    """The rows that the viewer on a page shows."""
    [data] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
    items: list[dict[str, Any]] = json.loads(data)["items"]
    return items


def reach(each: Rationale) -> int | None:
    """How far a rationale reaches back, by hand."""
    side = each.tokens[each.target].side
    return max((each.target - i for i in each.indices if each.tokens[i].side == side), default=None)


def words_by_hand(shown: list[Explanation]) -> dict[str, tuple[int, int]]:
    """Each word's rationales and contexts: a loop over every target and every word before it."""
    kept: Counter[str] = Counter()
    contexts: Counter[str] = Counter()
    for each in shown:
        for found in each:
            before, in_rationale = set(), set()
            for unit in group(each.tokens, "word"):
                if found.target - 1 in unit or min(unit) >= found.target:
                    continue
                word = "".join(each.tokens[i].text for i in unit).strip().lower()
                before.add(word)
                if {*unit} & {*found.indices}:
                    in_rationale.add(word)
            contexts.update(before)
            kept.update(in_rationale)
    return {word: (kept[word], contexts[word]) for word in contexts}


def test_numbers_are_those_of_a_slow_count(tmp_path: Path) -> None:
    shown = corpus(150)
    found = rationales.report(write(tmp_path, shown, parts=3))
    all = [each for one in shown for each in one]
    assert (found.rows, found.failed, found.overall.rationales) == (150, 0, len(all))
    assert found.overall.sizes == Counter(len(each) for each in all)
    assert found.overall.reaches == Counter(reach(each) for each in all)
    assert found.overall.contexts == Counter(
        sum(not token.pinned for token in each.tokens[: each.target]) for each in all
    )
    assert tally.mean(found.overall.sizes) == pytest.approx(statistics.mean(map(len, all)))
    assert tally.quantile(found.overall.sizes, 50) == statistics.median_low(map(len, all))
    assert tally.quantile(found.overall.sizes, 100) == max(map(len, all))
    for verdict in VERDICTS:
        known = [getattr(each, verdict) for each in all if getattr(each, verdict) is not None]
        assert known
        assert found.overall.checked(verdict) == (sum(known), len(known))
    for name, part in found.parts.items():
        verdict = name.removeprefix("not ")
        wanted = [each for each in all if getattr(each, verdict) is (verdict == name)]
        assert part.sizes == Counter(map(len, wanted))
        assert part.checked("minimal")[0] == sum(each.minimal is True for each in wanted)


def test_groups_are_compared(tmp_path: Path) -> None:
    shown = corpus(80)
    found = rationales.report(write(tmp_path, shown))
    assert list(found.groups) == [7, "law", "news", None]
    for name, part in found.groups.items():
        sizes = Counter(len(each) for one in shown if one.group == name for each in one)
        assert part.sizes == sizes
    text = page(found)
    true, checked = found.overall.checked("minimal")
    assert f"{100 * true / checked:.1f} %<small>{true} of {checked} checked</small>" in text
    assert "By group" in text
    assert "(no group)" in text


def test_without_a_group_nothing_is_compared(tmp_path: Path, monkeypatch: Any) -> None:
    plain = [replace(each, group=None) for each in corpus(5)]
    found = rationales.report(write(tmp_path / "none", plain))
    assert found.groups == {}
    assert "By group" not in page(found)
    monkeypatch.setattr(tally, "MOST_GROUPS", 3)
    many = rationales.report(write(tmp_path / "many", corpus(80)))
    assert many.groups == {}
    assert many.overall.rationales == sum(map(len, corpus(80)))
    assert "groups: they are not compared" in page(many)


def test_words_are_those_of_a_slow_count(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(tally, "_SHOWN_WORDS", 1000)
    shown = [*corpus(60), chat(), pair()[0]]
    shown = [replace(each, id=place) for place, each in enumerate(shown)]
    found = rationales.report(write(tmp_path, shown))
    counted = words_by_hand(shown)
    expected = {
        (word, kept, contexts)
        for word, (kept, contexts) in counted.items()
        if kept and contexts >= tally.LEAST_CONTEXTS
    }
    assert len(expected) >= 10
    assert {*found.words_by_share} == {*found.words_by_count} == expected
    kept, contexts = map(sum, zip(*counted.values(), strict=True))
    assert found.word_share == pytest.approx(kept / contexts)
    assert [word.kept for word in found.words_by_count] == sorted(
        (word.kept for word in found.words_by_count), reverse=True
    )


def test_a_frequent_word_is_not_an_important_one(tmp_path: Path) -> None:
    """“the” is in as many rationales as “visa”, and in many more contexts."""
    shown = []
    for number in range(40):
        word = " visa" if number < 10 else " bus"
        tokens = tokens_of(["I", " saw", " the", word, " and", " left", " ."])
        kept = {True: [5, 3, 2], False: [5]}[number < 10]
        shown.append(explanation(tokens, [rationale(tokens, 6, kept)], id=number))
    found = rationales.report(write(tmp_path, shown))
    assert found.words_by_share == (("visa", 10, 10), ("the", 10, 40))
    assert "left" not in [word.text for word in found.words_by_count]  # it is required


def test_rare_words_are_dropped_when_there_are_too_many(monkeypatch: Any) -> None:
    monkeypatch.setattr(tally, "_MOST_WORDS", 50)
    words = tally.Words()
    for number in range(200):
        tokens = [{"text": text} for text in (" court", f" rare{number}", " is", " .")]
        words.add(tokens, [{"target": 3, "indices": [2, 0]}])
    assert words.by_share() == (("court", 200, 200),)
    assert words.share == pytest.approx(0.5)


def test_lists_have_the_first_rows_by_size_reach_and_verdict(tmp_path: Path) -> None:
    shown = corpus(150)
    found = rationales.report(write(tmp_path, shown))

    def first(key: Any, sufficient: bool) -> list[tuple[Any, int]]:
        """The rows by the least key of a rationale of theirs, and its target."""
        best = []
        for one in shown:
            if keys := [(key(each), each.target) for each in one if each.sufficient == sufficient]:
                least, target = min(keys)
                best.append((least, one.id, target))
        return [(id, target) for _, id, target in sorted(best)[: tally.LISTED]]

    def listed(name: str) -> list[tuple[Any, int]]:
        pairs = found.lists[name]
        return [(found.explanations[each.item].id, each.rationale.target) for each in pairs]

    assert listed("longest") == first(lambda each: -len(each), True)
    assert listed("farthest") == first(lambda each: -reach(each), True)
    assert listed("insufficient") == first(lambda each: (not each.predicted, -len(each)), False)
    ids = [each.id for each in found.explanations]
    assert len({*ids}) == len(ids) <= 60
    for each in (each for listed in found.lists.values() for each in listed):
        assert each.rationale in found.explanations[each.item].rationales
        assert (each.size, each.reach) == (len(each.rationale), reach(each.rationale))


def test_the_order_of_the_lines_makes_no_difference(tmp_path: Path) -> None:
    shown = corpus(100)
    one = rationales.report(write(tmp_path / "one", shown))
    two = rationales.report(write(tmp_path / "two", shown[::-1], parts=5))
    assert page(replace(one, folder=tmp_path)) == page(replace(two, folder=tmp_path))


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    folder = write(tmp_path, corpus(10))
    whole = page(rationales.report(folder))
    with (folder / "part-00000.jsonl").open("a", encoding="utf-8") as file:
        file.write(court().to_json()[:-1])
    (folder / "failed.jsonl").write_text('{"id": 3, "line"')
    assert page(rationales.report(folder)) == whole


NO_TARGET = {**court().to_dict(), "rationales": [{"indices": []}]}
NO_SECONDS = {key: value for key, value in court().to_dict().items() if key != "seconds"}


@pytest.mark.parametrize(
    "line", ["{", "7", '{"id": 3}', json.dumps(NO_TARGET), json.dumps(NO_SECONDS)]
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str) -> None:
    folder = write(tmp_path, corpus(3), parts=1)
    with (folder / "part-00000.jsonl").open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    with pytest.raises(RationalesError, match=r"line 4 of .*part-00000.jsonl is damaged"):
        rationales.report(folder)


def test_no_rows(tmp_path: Path) -> None:
    found = rationales.report(write(tmp_path, [], total=30))
    assert found.summary[0] == (
        "0 rows explained, 0 failed, of 30: the run is not finished; 0 rationales"
    )
    text = page(found)
    assert "0 of 30 rows" in text
    assert "<table" not in text
    assert items_in(text) == []
    assert len(found.to_dataframe()) == 0


def test_rows_without_a_rationale(tmp_path: Path) -> None:
    alone = explanation(tokens_of(["a"]), [], id=1, unexplainable=(0,))
    found = rationales.report(write(tmp_path, [alone]))
    assert (found.rows, found.overall.rationales) == (1, 0)
    assert page(found)


def test_failed_rows_are_grouped_by_their_error(tmp_path: Path) -> None:
    failed = [
        {"id": f"a{n}", "line": n, "error": f"the text has {9000 + n} tokens", "attempts": 1}
        for n in range(1, 9)
    ]
    failed += [{"id": 9, "line": 9, "error": "the worker ended", "attempts": 1}]
    failed += [{"id": 9, "line": 9, "error": "<b>no</b> text in 'x'", "attempts": 3}]
    found = rationales.report(write(tmp_path, [], failed=failed, total=9))
    assert (found.rows, found.failed, found.finished) == (0, 9, True)
    assert [(each.error, each.rows) for each in found.errors] == [
        ("the text has 9001 tokens", 8),
        ("<b>no</b> text in 'x'", 1),
    ]
    assert found.errors[0].examples == tuple((f"a{n}", n) for n in range(1, 6))
    text = page(found)
    assert "and 3 more" in text
    assert "&lt;b&gt;no&lt;/b&gt; text" in text
    assert "not finished" not in text


def test_an_unfinished_run_says_so(tmp_path: Path) -> None:
    failed = [{"id": 99, "line": 99, "error": "empty", "attempts": 1}]
    found = rationales.report(write(tmp_path, corpus(20), failed=failed, total=5000))
    assert not found.finished
    assert "The run is not finished: 21 of 5,000 rows." in page(found)
    (tmp_path / "status.json").write_text("torn")
    assert rationales.report(tmp_path).finished


def test_a_translation_reaches_within_itself(tmp_path: Path) -> None:
    translation, _ = pair()
    found = rationales.report(write(tmp_path, [replace(translation, id=1)]))
    # The first target keeps a source token only; each other keeps the token before it.
    assert found.overall.reaches == {1: 5}
    assert found.overall.sizes == {1: 1, 2: 5}
    assert found.overall.contexts == {7: 1, 8: 1, 9: 1, 10: 1, 11: 1, 12: 1}
    assert "only kept tokens of the translation have a distance" in page(found)
    frame = found.to_dataframe()
    assert frame["reach"].isna().tolist() == [True] + [False] * 5
    assert frame["rationale"][1] == "pense → I"


def test_sizes_count_units(tmp_path: Path) -> None:
    tokens = court().tokens
    units = ((4, 5), (1,), (2,))
    words = replace(rationale(tokens, 6, [4, 5, 1, 2]), units=units)
    one = explanation(tokens, [words], id=1, options={"unit": "word"})
    found = rationales.report(write(tmp_path, [one]))
    assert (found.overall.sizes, found.unit) == ({3: 1}, "words")
    assert "Size of rationales, in words" in page(found)
    assert found.to_dataframe()["size"].tolist() == [3]
    mixed = rationales.report(write(tmp_path, [one, replace(court(), id=2)]))
    assert (mixed.unit, mixed.units) == ("units", {"token": 4, "word": 1})
    assert "Units: tokens in 4 rationales, words in 1 rationales." in page(mixed)


def test_pinned_tokens_are_no_context(tmp_path: Path) -> None:
    found = rationales.report(write(tmp_path, [replace(chat(), id=1)]))
    assert found.overall.contexts == {13: 1, 14: 1, 15: 1, 16: 1}
    nothing = replace(court()[0], indices=(), steps=(), tokens=())
    alone = replace(court(), id=1, rationales=(nothing,))
    empty = rationales.report(write(tmp_path, [alone]))
    assert (empty.overall.sizes, empty.overall.reaches) == ({0: 1}, {})
    assert "Nothing is kept." in page(empty)


def test_of_a_long_line_only_what_is_listed_is_shown(tmp_path: Path, monkeypatch: Any) -> None:
    folder = write(tmp_path, [replace(court(), id=1)])
    assert len(rationales.report(folder).explanations[0]) == 4
    monkeypatch.setattr(reporting, "_LARGE", 100)
    found = rationales.report(folder)
    assert [each.target for each in found.explanations[0]] == [6, 9]
    assert found.overall.rationales == 4


def test_nothing_of_a_run_is_markup(tmp_path: Path) -> None:
    bad = HOSTILE[0]
    rows = [
        replace(
            hostile(),
            id=f"{place}{HOSTILE[1]}",
            group=f"{bad}{place}",
            adapter=bad,
            options={bad: bad, "unit": bad},
            rationales=tuple(replace(each, units=((0,),)) for each in hostile().rationales),
        )
        for place in range(6)
    ]
    failed = [{"id": bad, "line": bad, "error": HOSTILE[1], "attempts": 1}]
    folder = tmp_path / "a <b>"
    text = page(rationales.report(write(folder, rows, failed=failed)))
    found = Tags(text)
    assert found.tags["script"] == 2
    assert found.tags["style"] == 1
    assert found.tags["img"] == found.tags["b"] == 0
    assert bad not in text
    assert html.escape(bad) in text
    assert "\u202e" not in text.partition('id="data"')[0]
    assert "<title>Report on a &lt;b&gt;</title>" in text
    text.encode()


def test_links_lead_to_rows_of_the_viewer(tmp_path: Path) -> None:
    found = rationales.report(write(tmp_path, corpus(100)))
    text = page(found)
    items = items_in(text)
    links = [re.fullmatch(r"#item=(\d+)&target=(\d+)", link) for link in Tags(text).links]
    assert len(links) == sum(map(len, found.lists.values())) > 20
    for link in links:
        assert link is not None
        explained = items[int(link[1])]["explanation"]
        assert int(link[2]) in [each["target"] for each in explained["rationales"]]


def test_a_table_has_a_row_for_each_rationale(tmp_path: Path) -> None:
    shown = corpus(20)
    frame = rationales.report(write(tmp_path, shown, parts=1)).to_dataframe()
    pairs = [(one, each) for one in shown for each in one]
    assert frame["id"].tolist() == [one.id for one, _ in pairs]
    assert frame["target"].tolist() == [each.target for _, each in pairs]
    assert frame["rationale"].tolist() == [each.text for _, each in pairs]
    assert frame["reach"].tolist() == [reach(each) for _, each in pairs]
    for verdict in VERDICTS:
        values = frame[verdict].astype(object).where(frame[verdict].notna(), None).tolist()
        assert values == [getattr(each, verdict) for _, each in pairs]
    assert [*frame.columns] == [
        *("id", "group", "target", "target_text", "size", "reach"),
        *(*VERDICTS, "rationale"),
    ]


def test_a_table_without_pandas_names_the_command(tmp_path: Path, monkeypatch: Any) -> None:
    found = rationales.report(write(tmp_path, corpus(2)))
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'rationales\[dataframe\]'"):
        found.to_dataframe()


def test_a_notebook_shows_the_page_in_a_frame(tmp_path: Path) -> None:
    found = rationales.report(write(tmp_path, corpus(5)))
    match = re.fullmatch(r'<iframe srcdoc="([^"]*)" [^<>]*></iframe>', found._repr_html_())
    assert match is not None
    assert html.unescape(match[1]) == page(found)
    assert repr(found) == f"<Report on {tmp_path.name}: {found.summary[0]}>"
    assert isinstance(found, Report)


def test_what_holds_no_run_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(RationalesError, match="holds no run: give the --out of rationales run"):
            rationales.report(folder)
    (tmp_path / "run.json").write_text(
        '{"kind": "experiment lambada", "identity": {}, "files": []}'
    )
    with pytest.raises(RationalesError, match="holds a run of experiment lambada"):
        rationales.report(tmp_path)


def test_the_command_writes_the_page(tmp_path: Path, run: Any) -> None:
    folder = write(tmp_path / "court", corpus(20), total=40)
    code, out, said = run("report", str(folder))
    assert (code, out) == (0, f"{folder / 'report.html'}\n")
    lines = said.splitlines()
    assert lines[0].startswith("20 rows explained, 0 failed, of 40: the run is not finished; ")
    assert len(lines) == 3
    assert (folder / "report.html").read_text(encoding="utf-8") == page(rationales.report(folder))
    other, table = tmp_path / "other.html", tmp_path / "table.csv"
    code, out, _ = run("report", str(folder), "--out", str(other), "--csv", str(table))
    assert (code, out) == (0, f"{other}\n")
    assert other.read_bytes() == (folder / "report.html").read_bytes()
    assert table.read_text(encoding="utf-8").count("\n") > 20


def test_the_command_says_what_is_wrong_in_one_line(tmp_path: Path, run: Any) -> None:
    code, _, said = run("report", str(tmp_path))
    assert (code, said.count("\n")) == (2, 1)
    assert "holds no run" in said
    folder = write(tmp_path / "court", corpus(2))
    code, _, said = run("report", str(folder), "--out", str(tmp_path / "missing" / "x.html"))
    assert code == 2
    assert "give a file in a folder that exists" in said


@given(st.lists(st.integers(0, 3000), min_size=1), st.lists(st.integers(0, 40)))
@example([5] * 300 + [9000, 60], [1, 2, 3])
def test_every_number_is_in_one_bar(one: list[int], other: list[int]) -> None:
    drawn = histogram.bars(Counter(one), Counter(other))
    assert len(drawn) <= 26
    for numbers, counts in (
        (one, [bar.sufficient for bar in drawn]),
        (other, [bar.others for bar in drawn]),
    ):
        expected = [
            sum(bar.first <= n and (bar.last is None or n <= bar.last) for n in numbers)
            for bar in drawn
        ]
        assert counts == expected
        assert sum(counts) == len(numbers)
    text = histogram.svg(drawn, "sizes")
    assert text.count("<title>") == len(drawn)
    assert text.count("<rect") == sum(bool(b.sufficient) + bool(b.others) for b in drawn)


@given(st.permutations(range(3 * tally.LISTED)))
def test_the_first_are_kept_in_whichever_order_they_come(keys: list[int]) -> None:
    top = tally.Top()
    for key in keys:
        top.offer(key, tally.Place(Path(), key, 0, 0), key)
    assert [target for _, target in top.first()] == [*range(tally.LISTED)]


@given(st.lists(st.integers(0, 50), min_size=1))
def test_quantiles_are_numbers_that_occur(numbers: list[int]) -> None:
    counts = Counter(numbers)
    assert tally.quantile(counts, 50) == statistics.median_low(numbers)
    assert tally.quantile(counts, 100) == max(numbers)
    assert tally.quantile(counts, 1) == sorted(numbers)[max(0, -(-len(numbers) // 100) - 1)]
