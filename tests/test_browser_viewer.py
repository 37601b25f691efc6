"""The viewer in a real browser: from disk, with networking off, and no message on the console."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from rationales import Explanation, Step
from rationales.context import Part
from rationales.render import viewer

from browser import chromium, serious, watched
from shown import (
    HOSTILE,
    chat,
    court,
    documents,
    explanation,
    hostile,
    long,
    pair,
    rationale,
    tokens_of,
)

Opens = Callable[..., AbstractContextManager[Page]]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Opens:
    """Opens a page of explanations from disk, at a hash, with options of the browser's context."""

    @contextmanager
    def open_page(
        shown: Explanation | list[Explanation], hash: str = "", *, gold: Any = None, **options: Any
    ) -> Iterator[Page]:
        each = shown if isinstance(shown, list) else [shown]
        path = tmp_path / "page.html"
        path.write_text(viewer.page(each, gold=gold), encoding="utf-8", newline="\n")
        with watched(browser, **options) as page:
            page.goto(f"{path.as_uri()}{hash}")
            yield page

    return open_page


def indices(page: Page, selector: str) -> set[int]:
    """The indices of the tokens in the text that have a mark."""
    script = "all => all.map(each => Number(each.dataset.i))"
    return set(page.eval_on_selector_all(f".pane:first-child .main > .running {selector}", script))


def token(page: Page, index: int, pane: int = 0) -> Any:
    return page.locator(".main > .running").nth(pane).locator(f"[data-i='{index}']")


def hash_of(page: Page) -> dict[str, str]:
    script = "() => Object.fromEntries(new URLSearchParams(location.hash.slice(1)))"
    found: dict[str, str] = page.evaluate(script)
    return found


def test_a_click_marks_the_rationale_of_every_target(opened: Opens):
    shown = court()
    with opened(shown) as page:
        assert indices(page, "[role=button]") == {r.target for r in shown}
        for each in reversed(shown.rationales):
            token(page, each.target).click()
            assert indices(page, ".kept") == set(each.indices)
            assert indices(page, ".target") == indices(page, "[aria-pressed=true]") == {each.target}
            numbers = {i: token(page, i).get_attribute("data-order") for i in each.indices}
            assert numbers == {i: str(k + 1) for k, i in enumerate(each.indices)}
            assert hash_of(page)["target"] == str(each.target)
        page.mouse.move(600, 850)


def test_the_words_say_what_was_found(opened: Opens):
    with opened(court(), "#target=6") as page:
        words = page.locator(".words").first
        assert "Given only “Supreme Court … day” (3 of 6 context tokens)" in words.inner_text()
        assert "Nothing can be dropped" in words.inner_text()
        token(page, 7).click()
        assert "No smaller subset is sufficient" in words.inner_text()
        token(page, 9).click()
        assert "✗ not sufficient" in words.inner_text()
        assert "stopped at its maximum size" in words.inner_text()
        assert "not the model’s first choice" in words.inner_text()
        assert words.get_attribute("aria-live") == "polite"


def test_hovering_previews_and_never_overrides(opened: Opens):
    with opened(court(), "#target=6") as page:
        said = page.locator(".words").first.inner_text()
        token(page, 9).hover()
        assert indices(page, ".seen") == {8, 6, 2, 4, 1}
        assert indices(page, ".kept") == {5, 2, 1}
        assert page.locator(".words").first.inner_text() == said
        page.mouse.move(600, 880)
        assert indices(page, ".seen, .seen-target") == set()
        page.keyboard.press("Escape")
        token(page, 6).focus()
        page.keyboard.press("Escape")
        assert indices(page, ".kept") == set()
        token(page, 9).hover()
        assert "✗ not sufficient" in page.locator(".words").first.inner_text()
        page.mouse.move(600, 880)
        assert "Choose a token" in page.locator(".words").first.inner_text()


def test_steps_are_replayed(opened: Opens):
    with opened(court(), "#target=6") as page:
        slider = page.get_by_label("Step", exact=True).first
        assert page.locator(".pane").first.locator("svg.curve circle").count() == 3
        slider.focus()
        page.keyboard.press("ArrowLeft")
        assert indices(page, ".kept") == {5, 2}
        assert hash_of(page)["step"] == "2"
        assert "Candidates of step 2" in page.locator(".candidates").first.inner_text()
        page.keyboard.press("Home")
        assert indices(page, ".kept") == {5}
        page.keyboard.press("End")
        assert indices(page, ".kept") == {5, 2, 1}
        assert "step" not in hash_of(page)
        page.locator("tr[data-step='2']").first.click()
        assert indices(page, ".kept") == {5, 2}


def test_units_are_switched(opened: Opens):
    with opened(court(), "#target=6") as page:
        page.get_by_role("button", name="Words").click()
        assert indices(page, ".kept") == {5, 2, 1}
        assert indices(page, ".part") == {4}
        page.get_by_role("button", name="Sentences").click()
        assert indices(page, ".part") == {0, 3, 4}
        assert hash_of(page)["unit"] == "sentence"


def test_two_targets_are_compared(opened: Opens):
    with opened(court(), "#target=6") as page:
        page.get_by_role("button", name="Pin to compare").click()
        token(page, 7).click()
        assert indices(page, ".kept") == {6, 2}
        assert indices(page, ".kept2") == {5, 2, 1}
        assert indices(page, ".kept.kept2") == {2}
        assert "In common: “Court”" in page.locator(".words").first.inner_text()
        assert hash_of(page) == {"target": "7", "pin": "6"}
        page.get_by_role("button", name="Unpin").click()
        assert indices(page, ".kept2") == set()


def test_alternatives_are_chosen(opened: Opens):
    with opened(court(), "#target=7") as page:
        page.get_by_role("button", name="Alternative 1").click()
        assert indices(page, ".kept") == {6, 1, 0}
        assert hash_of(page)["alternative"] == "1"


def test_side_by_side(opened: Opens):
    with opened([court(), court("beam"), chat()]) as page:
        page.get_by_label("Beside").select_option("1")
        assert page.locator(".pane:visible").count() == 2
        token(page, 6, pane=1).click()
        kept = "all => all.map(each => Number(each.dataset.i))"
        assert page.eval_on_selector_all(".pane:nth-child(2) .running .kept", kept) == [0, 1, 2, 5]
        assert indices(page, ".kept") == {5, 2, 1}
        token(page, 8).click()
        assert "not explained here" in page.locator(".words").nth(1).inner_text()
        page.get_by_role("button", name="My sister Ana").click()
        assert page.locator(".pane:visible").count() == 1
        assert page.get_by_label("Beside").count() == 0 or page.get_by_label("Beside").is_hidden()


def test_the_matrix_has_a_cell_for_each_kept_token(opened: Opens):
    translation, gold = pair()
    with opened(translation, "#view=matrix", gold=[gold]) as page:
        assert page.locator(".row").count() == len(translation)
        assert page.locator(".cell.on").count() == sum(map(len, translation))
        assert page.locator(".gold.sure").count() == len(gold["sure"])
        assert page.locator(".gold.possible").count() == len(gold["possible"])
        page.locator(".row").nth(4).click()
        assert hash_of(page) == {"view": "matrix", "target": "13"}
        assert page.locator(".own .cell.on").count() == 2
        page.keyboard.press("ArrowUp")
        page.keyboard.press("Enter")
        assert hash_of(page)["target"] == "12"
        page.get_by_role("button", name="Words").click()
        assert page.locator(".row").count() == 5


def test_the_matrix_shows_at_most_200_and_says_so(opened: Opens):
    with opened(long(700), "#view=matrix&target=500") as page:
        assert page.locator(".row").count() == 200
        assert page.locator("svg.matrix > text").count() <= 200
        assert "at most 200 × 200" in page.locator(".matrix-place").inner_text()
        assert page.locator(".row.own").count() == 1


def test_a_link_reopens_what_was_selected(opened: Opens):
    shown = [chat(), court(), court("beam")]
    link = "#item=1&target=7&pin=6&step=1&unit=word&beside=2&text=mine"
    with opened(shown, link) as page:
        assert indices(page, ".kept") == {6}
        assert indices(page, ".kept2") == {5, 2, 1}
        assert page.locator(".pane:visible").count() == 2
        page.get_by_role("button", name="Tokens").click()
        assert hash_of(page)["text"] == "mine"
        page.evaluate("location.hash = '#item=1&target=9'")
        page.locator(".running [data-i='9'].target").wait_for()
        assert page.locator(".pane:visible").count() == 1


@pytest.mark.parametrize("link", ["#target=99&item=7", "#step=x&unit=y&view=z&beside=0&pin=-1"])
def test_a_link_to_what_does_not_exist_is_harmless(opened: Opens, link: str):
    with opened(court(), link) as page:
        assert indices(page, ".kept") == {5, 2, 1}


def test_keyboard_only(opened: Opens):
    with opened(court()) as page:
        for _ in range(20):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.matches('.running [role=button]')"):
                break
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        assert indices(page, ".kept") == {6, 2}
        page.keyboard.press("End")
        page.keyboard.press(" ")
        assert indices(page, ".target") == {9}
        page.keyboard.press("Home")
        page.keyboard.press("Enter")
        assert indices(page, ".target") == {6}
        assert page.locator(".running [tabindex='0']").count() == 1


def test_downloads(opened: Opens, tmp_path: Path):
    with opened(court(), accept_downloads=True) as page:
        for name in ("JSON", "SVG"):
            with page.expect_download() as waiting:
                page.get_by_role("button", name=name).click()
            waiting.value.save_as(tmp_path / name)
        page.get_by_role("button", name="Matrix").click()
        with page.expect_download() as waiting:
            page.get_by_role("button", name="SVG").click()
        waiting.value.save_as(tmp_path / "matrix")
    assert Explanation.load(tmp_path / "JSON") == court()
    text = "".join(ElementTree.parse(tmp_path / "SVG").getroot().itertext())
    assert "Supreme" in text
    assert "Supreme" in "".join(ElementTree.parse(tmp_path / "matrix").getroot().itertext())


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("link", ["#target=6&pin=7&unit=word", "#view=matrix"])
def test_axe_finds_nothing_serious(opened: Opens, scheme: str, link: str):
    with opened([court(), court("beam"), chat()], link, color_scheme=scheme) as page:
        assert serious(page) == []


def test_a_phone_shows_all_without_scrolling_sideways(opened: Opens):
    for shown in (long(300), chat(), hostile()):
        with opened(shown, viewport={"width": 390, "height": 844}) as page:
            for view in ("Text", "Matrix"):
                page.get_by_role("button", name=view).click()
                assert page.evaluate("document.documentElement.scrollWidth") <= 390
            assert serious(page) == []


def test_hostile_texts_are_inert(opened: Opens, tmp_path: Path):
    with opened(hostile(), accept_downloads=True) as page:
        for i in range(1, 10):
            token(page, i).click()
        shown = page.locator(".main > .running").first.inner_text()
        assert HOSTILE[0] in shown
        assert "⟨U+202E⟩evil" in shown
        assert "\u202e" not in shown
        assert len(token(page, 4).inner_text()) == 60
        assert token(page, 4).get_attribute("title") == "x" * 10_000
        assert page.locator("img, iframe, main script").count() == 0
        for view in ("Text", "Matrix"):
            page.get_by_role("button", name=view).click()
            with page.expect_download() as waiting:
                page.get_by_role("button", name="SVG").click()
            waiting.value.save_as(tmp_path / view)
            tags = {
                each.tag.rpartition("}")[2] for each in ElementTree.parse(tmp_path / view).iter()
            }
            assert tags <= {"svg", "desc", "rect", "path", "text", "g"}


def test_a_frame_in_a_notebook(browser: Browser, tmp_path: Path):
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><title>n</title>{hostile()._repr_html_()}", encoding="utf-8")
    with watched(browser, accept_downloads=True) as page:
        page.goto(path.as_uri())
        frame = page.frame_locator("iframe")
        frame.locator(".running [data-i='3']").first.click()
        assert frame.locator(".running .target").first.get_attribute("data-i") == "3"
        with page.expect_download() as waiting:
            frame.get_by_role("button", name="JSON").click()
        waiting.value.save_as(tmp_path / "x.json")
    assert Explanation.load(tmp_path / "x.json") == hostile()


def test_a_click_writes_no_text_again(opened: Opens):
    """How long a click takes in 2,000 tokens, ``benchmarks/viewer.py`` measures."""
    shown = long(2000)
    with opened(shown) as page:
        page.evaluate("window.first = document.querySelector('.running .token')")
        token(page, 400).click()
        assert page.evaluate("first.isConnected")
        assert indices(page, ".kept") == set(shown[399].indices)


def test_printing_shows_text_and_marks_only(opened: Opens):
    with opened(court()) as page:
        page.emulate_media(media="print")
        assert page.locator(".bar-row").is_hidden()
        assert page.locator(".token.kept").first.is_visible()


def test_a_contrast_shows_both_probabilities(opened: Opens):
    shown = court()
    [first, *_] = shown.rationales
    data = shown.to_dict()
    for step in data["rationales"][0]["steps"]:
        step["contrast_logprob"] = -2.5
    data["options"] = {"instead_of": " rejected"}
    with opened(Explanation.from_dict(data)) as page:
        assert "“ruled” is more likely than “rejected”" in page.locator(".words").first.inner_text()
        assert page.locator(".line.against").count() == 1
        assert page.locator("tr[data-step='1'] td").nth(3).inner_text() == "8.21\u00a0%"
        assert first.target == 6


def test_targets_of_several_tokens(opened: Opens):
    tokens = tokens_of(["a", " b", " c", " d"])
    with opened(explanation(tokens, [rationale(tokens, 2, [1], target_length=2)])) as page:
        token(page, 3).click()
        assert indices(page, ".target") == {2, 3}


LIVE = """(data) => {
  window.asked = [];
  window.searched = [];
  const host = {
    score: (question) => new Promise((done, failed) => {
      asked.push(question);
      const late = question.keep.length === 4 ? 400 : 10; // answers overtake one another
      setTimeout(() => question.keep.length === 6 ? failed(new Error("the queue is full")) : done({
        target_logprob: Math.log(0.25), prediction_id: 7,
        prediction_text: ` n${question.keep.length}`, prediction_logprob: Math.log(0.5), rank: 2,
        sufficient: question.keep.length > 2 }), late);
    }),
    search: (question) => { searched.push(question); return Promise.resolve(); },
  };
  window.viewer = Rationales.view(document.querySelector("main"), data, host);
}"""


def live(page: Page, shown: list[Explanation]) -> None:
    page.evaluate(LIVE, json.loads(viewer.as_json(viewer.page_data(shown))))


def toggle(page: Page, index: int) -> None:
    page.locator(f".trial [data-i='{index}']").dispatch_event("click")


def test_try_it_yourself(opened: Opens, tmp_path: Path):
    with opened(court(), "#target=6", accept_downloads=True) as page:
        assert page.get_by_role("button", name="Try it yourself").count() == 0
        live(page, [court()])
        page.get_by_role("button", name="Try it yourself").click()
        says = page.locator(".says")
        says.get_by_text("n3").wait_for()
        assert page.evaluate("asked") == [{"item": 0, "target": 6, "keep": [1, 2, 5]}]
        assert (
            "✓ sufficient From 3 of 6 context tokens the model predicts “n3” (50.0\u00a0%)"
            in says.inner_text()
        )
        assert "The target “ruled” has 25.0\u00a0% and rank 2." in says.inner_text()
        toggle(page, 0)  # four tokens: a late answer, which the next one overtakes
        page.wait_for_timeout(200)
        assert page.evaluate("asked.length") == 2
        toggle(page, 0)
        toggle(page, 1)
        says.get_by_text("n2").wait_for()
        page.wait_for_timeout(500)
        assert "n2" in says.inner_text()
        assert page.evaluate("asked.length") == 3  # toggled twice, asked once
        assert hash_of(page)["keep"] == "2.5"
        toggle(page, 5)  # the token before the target is always kept
        assert hash_of(page)["keep"] == "2.5"
        page.get_by_role("button", name="Find a rationale within this").click()
        page.get_by_role("button", name="Find another one without these").click()
        within = page.evaluate("searched.map(each => each.within)")
        assert within == [[2, 5], [0, 1, 3, 4, 5]]
        says.get_by_text("n2").wait_for()
        with page.expect_download() as waiting:
            page.get_by_role("button", name="Download trial").click()
        waiting.value.save_as(tmp_path / "trial.json")
        trial = json.loads((tmp_path / "trial.json").read_text())
        assert (trial["target"], trial["keep"]) == (6, [2, 5])
        assert trial["prediction"]["prediction_text"] == " n2"
        page.get_by_role("button", name="Keep all").click()
        says.get_by_text("the queue is full").wait_for()
        page.get_by_role("button", name="Reset").click()
        says.get_by_text("n3").wait_for()
        assert serious(page) == []


def test_the_trial_switches_words_and_is_kept_in_the_link(opened: Opens):
    with opened(court(), "#target=6&keep=0.5&unit=word") as page:
        live(page, [court()])
        page.locator(".says").get_by_text("n2").wait_for()
        toggle(page, 4)  # " Tues": the word's other token is always kept
        assert hash_of(page)["keep"] == "0.4.5"
        page.locator(".trial [data-i='0']").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press(" ")
        assert hash_of(page)["keep"] == "0.1.4.5"
        page.get_by_role("button", name="Tokens").click()
        assert hash_of(page)["keep"] == "0.1.4.5"
        assert page.evaluate("viewer.selection().keep") == [0, 1, 4, 5]
        token(page, 7).click()
        assert hash_of(page)["keep"] == "2.6"


def test_the_result_of_a_search_is_shown_when_it_arrives(opened: Opens):
    with opened(court(), "#target=6&keep=5") as page:
        live(page, [court()])
        page.get_by_role("button", name="Find another").click()
        data = json.loads(viewer.as_json(viewer.page_data([court(), court("beam")])))
        page.evaluate("data => viewer.update(data)", data)
        assert page.evaluate("viewer.item()") == 1
        assert indices(page, ".kept") == {5, 2, 1, 0}


def test_results_arrive_one_by_one(opened: Opens):
    whole = json.loads(viewer.as_json(viewer.page_data([court()])))
    with opened(court(), "#target=8") as page:
        page.evaluate(LIVE, {"items": []})
        assert "Nothing is explained yet" in page.locator("main").inner_text()
        for known in range(5):
            item = whole["items"][0]
            part = {**item["explanation"], "rationales": item["explanation"]["rationales"][:known]}
            page.evaluate("data => viewer.update(data)", {"items": [{**item, "explanation": part}]})
            assert page.locator(".main > .running [role=button]:visible").count() == known
        assert indices(page, ".target") == {8}
        token(page, 6).click()
        page.evaluate("data => viewer.update(data)", whole)
        assert page.evaluate("viewer.selection().target") == 6


# --- Messages and documents ------------------------------------------------------------------


def hidden(page: Page) -> set[int]:
    """The indices of the tokens of the first text that cannot be seen."""
    script = "all => all.filter(e => !e.checkVisibility()).map(e => Number(e.dataset.i))"
    return set(page.eval_on_selector_all(".pane:first-child .main > .running .token", script))


def test_a_prompt_is_laid_out_in_its_parts(opened: Opens):
    shown = documents()
    with opened(shown) as page:
        text = page.locator(".running").first
        names = [*text.locator(".part-name").all_inner_texts()]
        assert names == ["Document 1", "Document Notes", "Document Weather", "Question", "Answer"]
        assert "always seen" in text.locator(".question h3").inner_text()
        assert text.locator(".answer .body").inner_text().strip() == "42 km."
        assert hidden(page) == {
            t.index
            for t in shown.tokens
            if t.pinned and not shown.parts[-1].start <= t.index < shown.parts[-1].end
        }
        page.get_by_role("button", name="Show template").click()
        assert hidden(page) == set()
        assert page.locator(".legend").inner_text().count("always seen") == 1
        [source] = page.locator(".sources button").all()
        assert source.inner_text() == "Document 1: 2 words"
        source.click()
        assert page.evaluate("document.activeElement.textContent").startswith("Document 1")
        token(page, shown[2].target).click()
        sources = page.locator(".sources button").all_inner_texts()
        assert sources == ["Document Notes: 1 word", "Answer: 1 word"]
        page.get_by_role("button", name="Documents", exact=True).click()
        assert hash_of(page)["unit"] == "part"
        start, end = shown.parts[1].start, shown.parts[1].end
        assert indices(page, ".document .kept, .document .part") == {*range(start, end)}


def test_the_proof_is_told_and_what_was_not_checked_is_absent(opened: Opens):
    shown = documents()
    with opened(shown) as page:
        [facts] = viewer.proofs(shown[0], "token")
        said = page.locator(".proof li").all_inner_texts()
        assert said == facts
        assert len(facts) == 5  # of nine or more
        assert indices(page, ".critical") == {*shown[0].proof.critical_units[0]}
        words = page.locator(".words").first
        assert "was not checked" not in words.inner_text()
        token(page, shown[1].target).click()
        assert "Whether something can be dropped from it was not checked" in words.inner_text()
        assert page.locator(".proof").count() == 0
        assert indices(page, ".critical") == set()


def test_long_documents_are_folded_but_for_what_was_kept(opened: Opens):
    shown = documents(filler=120)  # 5,800 tokens
    with opened(shown, viewport={"width": 390, "height": 844}) as page:
        assert hidden(page).isdisjoint({*shown[0].indices, *(r.target for r in shown)})
        assert len(hidden(page)) > 0.98 * len(shown.tokens)
        lines = page.locator(".folded")
        assert lines.count() == 4  # two around the sentence, and each other document is one line
        assert "tokens" in lines.first.inner_text()
        assert serious(page) == []
        lines.nth(2).focus()
        page.keyboard.press("Enter")
        notes = {*range(shown.parts[1].start, shown.parts[1].end)}
        assert hidden(page).isdisjoint(notes)
        assert page.evaluate("document.activeElement.textContent").startswith("Document Notes")
        page.get_by_role("button", name="Fold: Document Notes").click()
        assert hidden(page) >= notes
        page.get_by_role("button", name="Show all: Document Notes").click()
        assert hidden(page).isdisjoint(notes)
        page.get_by_role("button", name="Fold: Document Notes").click()
        page.get_by_role("button", name="Show all: Document 1").click()
        last = token(page, shown[2].target)
        last.scroll_into_view_if_needed()
        before = last.bounding_box()
        last.dispatch_event("click")  # it has a word of the notes, which unfold above it
        assert not hidden(page) & {*shown[2].indices}
        after = last.bounding_box()
        assert before is not None
        assert after is not None
        assert abs(before["y"] - after["y"]) < 2
        last.focus()
        page.keyboard.press("Escape")
        assert hidden(page) <= {t.index for t in shown.tokens if t.pinned}


def test_units_larger_than_words_are_marked_as_units(opened: Opens):
    shown = documents()
    first, second = (range(part.start, part.end) for part in shown.parts[:2])
    whole = [*first, *second]
    target = shown[0].target
    for unit, options in (("document", {"unit": "document"}), ("sentence", {"finest": "sentence"})):
        steps = tuple(Step(group[-1], -1.0, 7, unit=tuple(group)) for group in (first, second))
        found = rationale(
            shown.tokens, target, whole, units=(tuple(first), tuple(second)), steps=steps
        )
        with opened(replace(shown, rationales=(found,), options=options)) as page:
            assert indices(page, ".kept") == {*whole}, unit
            assert indices(page, "[data-order]") == {first[0], second[0]}
            sources = page.locator(".sources button").all_inner_texts()
            assert [each.partition(":")[0] for each in sources] == ["Document 1", "Document Notes"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_parts(opened: Opens, scheme: str):
    for width in (390, 1280):
        options = {"color_scheme": scheme, "viewport": {"width": width, "height": 844}}
        with opened(documents(filler=20), **options) as page:
            page.get_by_role("button", name="Show template").click()
            assert serious(page) == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_hostile_names_are_inert(opened: Opens, tmp_path: Path):
    shown = documents(names=(*HOSTILE[:2], "\u202eevil" * 100))
    with opened(shown, accept_downloads=True, viewport={"width": 390, "height": 844}) as page:
        names = page.locator(".running .part-name").all_inner_texts()
        assert names[0] == f"Document {HOSTILE[0]}"
        assert "\u202e" not in page.locator("main").inner_text()
        assert page.locator("img, iframe, main script").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        with page.expect_download() as waiting:
            page.get_by_role("button", name="SVG").click()
        waiting.value.save_as(tmp_path / "x.svg")
    text = "".join(ElementTree.parse(tmp_path / "x.svg").getroot().itertext())
    assert HOSTILE[0] in text


def test_parts_that_contradict_the_tokens_are_left_out(opened: Opens):
    shown = documents()
    wrong = (*shown.parts[:2], Part("document", "far", 10_000, 10_001), Part("message", "", 3, 3))
    with opened(replace(shown, parts=wrong)) as page:
        names = page.locator(".running .part-name").all_inner_texts()
        assert names[:2] == ["Document 1", "Document Notes"]
        assert token(page, shown[0].target).is_visible()
