"""A study in a real browser: both roles from the first click to the export."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from rationales.annotation.assignment import give_work
from rationales.annotation.export import export
from rationales.annotation.study import Study
from rationales.serve.annotate import create_app
from studies import opened

from browser import chromium, serious, watched
from serving import running

HTML = "<img src=x onerror=alert(1)>"
TEXTS = [
    f'The kettle began to {HTML} whistle, and 🙂 Maria said: "Have some tea',
    "Rain fell on the old roof all night and we could not sleep",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Study]]:
    consent = f"You take part freely. {HTML}"
    with (
        opened(tmp_path, TEXTS, consent=consent, words=4, double=0) as study,
        running(create_app(study)) as address,
    ):
        yield address, study


def add(organiser: Page, role: str) -> str:
    """The link of a new annotator, made on the organiser's page."""
    links = organiser.locator("#annotators input")
    before = links.count()
    organiser.locator("#role").select_option(role)
    organiser.get_by_role("button", name="Add an annotator").click()
    expect(links).to_have_count(before + 1)
    return links.nth(before).input_value()


def begin(page: Page, link: str) -> None:
    page.goto(link)
    expect(page.locator("#consent-text")).to_contain_text(HTML)  # as text
    assert serious(page) == []
    page.get_by_role("button", name="I agree").click()
    page.get_by_role("button", name="Start").click()


def ranking(page: Page) -> list[str]:
    return page.locator("#ranking bdi").all_inner_texts()


def word(page: Page, text: str) -> Any:
    return page.locator("#passage").get_by_role("button", name=text, exact=True)


def test_two_selectors_at_once_a_predictor_and_the_export(
    browser: Browser, served: tuple[str, Study], tmp_path: Path
):
    address, study = served
    with (
        watched(browser, own=address) as organiser,
        watched(browser, own=address) as one,
        watched(browser, own=address) as two,
    ):
        organiser.goto(f"{address}/#{study.token}")
        links = [add(organiser, role) for role in ("selector", "selector", "predictor")]
        begin(one, links[0])
        begin(two, links[1])
        for page in (one, two):
            expect(page.locator("#passage mark")).to_be_visible()
        pages = {page.locator("#passage").inner_text()[:3]: page for page in (one, two)}
        assert pages.keys() == {"The", "Rai"}  # not the same passage
        kettle, rain = pages["The"], pages["Rai"]
        assert kettle.locator("#passage mark").inner_text() == "tea"
        assert HTML in kettle.locator("#passage").inner_text()
        for text in ("kettle", "Maria", "whistle"):
            word(kettle, text).click()
        expect(kettle.locator("#count")).to_have_text("all 4 words")
        word(kettle, "Have").click()
        expect(kettle.locator("#error")).to_contain_text("take one out first")
        kettle.get_by_role("button", name="move whistle up").click()
        kettle.get_by_role("button", name="take Maria out").click()
        expect(kettle.locator("#finish")).to_be_disabled()
        kettle.get_by_role("button", name="Undo").click()
        expect(kettle.locator("#finish")).to_be_enabled()
        ranked = ["some", "kettle", "whistle", "Maria"]
        expect(kettle.locator("#ranking bdi")).to_have_text(ranked)
        kettle.reload()  # nothing is lost, not even what can be undone
        expect(kettle.locator("#ranking bdi")).to_have_text(ranked)
        expect(kettle.locator("#finish")).to_be_enabled()
        kettle.get_by_role("button", name="Undo").click()
        expect(kettle.locator("#ranking bdi").nth(2)).to_have_text("Maria")
        assert serious(kettle) == []
        kettle.get_by_role("button", name="Finish this passage").click()
        expect(kettle.locator("#between-heading")).to_be_visible()
        word(rain, "night").click()
        expect(rain.locator("#ranking bdi")).to_have_count(2)  # the other goes on meanwhile

        with watched(browser, own=address) as guesser:
            begin(guesser, links[2])
            expect(guesser.locator("#newest")).to_contain_text("Word 1")
            for guess in ("more", "tea", None, "TEA"):
                number = guesser.locator("#newest").inner_text()
                if number.startswith("Word 2"):
                    assert serious(guesser) == []
                    guesser.reload()
                    expect(guesser.locator("#newest")).to_have_text(number)
                    expect(guesser.locator("#word")).to_have_value("more")
                if guess is None:
                    guesser.get_by_role("button", name="No idea").click()
                else:
                    guesser.locator("#word").fill(guess)
                    guesser.get_by_role("button", name="Guess", exact=True).click()
                if not number.startswith("Word 4"):
                    expect(guesser.locator("#newest")).not_to_have_text(number)
            expect(guesser.locator("#finished")).to_have_text("You have finished one passage.")
            expect(guesser.locator("#nothing")).to_contain_text("Come back later")
            guesser.get_by_role("button", name="Look again").click()

        organiser.get_by_role("button", name="Refresh").click()
        organiser.get_by_role("button", name="accept more for tea").click()
        expect(organiser.locator("#guesses")).to_contain_text("accepted")
        assert serious(organiser) == []
        name = rain.locator("#who").inner_text().removeprefix("You are ").removesuffix(".")
        organiser.get_by_role("button", name=f"delete all data of {name}").click()
        organiser.get_by_role("button", name="really delete all data of").click()
        expect(organiser.locator("#annotators tr")).to_have_count(2)
    export(study, tmp_path / "out")
    [line] = (tmp_path / "out/annotations.jsonl").read_text(encoding="utf-8").splitlines()
    found = json.loads(line)
    assert found["text"] == TEXTS[0]
    assert [found["text"][start:end] for start, end in found["rationale"]] == ["some"]
    study.judge("p0", "more", False)
    export(study, tmp_path / "out")
    found = json.loads((tmp_path / "out/annotations.jsonl").read_text(encoding="utf-8"))
    assert [found["text"][a:b] for a, b in found["rationale"]] == ["some", "kettle"]


def test_the_keyboard_is_sufficient_on_a_phone(browser: Browser, served: tuple[str, Study]):
    address, study = served
    selector, predictor = study.add(("selector",)), study.add(("predictor",))
    phone = {"viewport": {"width": 390, "height": 844}}

    def press(page: Page, *keys: str) -> None:
        for key in keys:
            page.keyboard.press(key)

    def reach(page: Page, selector: str) -> None:
        """Go there by Tab alone."""
        for _ in range(40):
            if page.evaluate("s => document.activeElement.matches(s)", selector):
                return
            page.keyboard.press("Tab")
        raise AssertionError(f"Tab does not lead to {selector}")

    def fits(page: Page) -> None:
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    with watched(browser, own=address, **phone) as page:
        page.goto(f"{address}/#{selector.token}")
        expect(page.locator("#agree")).to_be_visible()
        reach(page, "#agree")
        press(page, "Enter")
        expect(page.locator("#next")).to_be_visible()
        fits(page)
        reach(page, "#next")
        press(page, "Enter")
        expect(page.locator("#passage mark")).to_be_visible()
        reach(page, "#passage button")
        for _ in range(3):
            press(page, "ArrowRight", "Enter")
        expect(page.locator("#count")).to_have_text("all 4 words")
        before = ranking(page)
        reach(page, "[data-move=down]:not(:disabled)")
        press(page, "Enter")
        moved = [before[0], before[2], before[1], before[3]]
        expect(page.locator("#ranking bdi").nth(1)).to_have_text(moved[1])
        assert ranking(page) == moved
        assert page.evaluate("document.activeElement.dataset.move") == "down"  # focus stays
        press(page, "Shift+Tab")
        fits(page)
        assert serious(page) == []
        reach(page, "#finish")
        press(page, "Enter")
        expect(page.locator("#between-heading")).to_be_visible()

        page.goto(f"{address}/#{predictor.token}")
        expect(page.locator("#agree")).to_be_visible()
        reach(page, "#agree")
        press(page, "Enter")
        expect(page.locator("#next")).to_be_visible()
        reach(page, "#next")
        press(page, "Enter")
        expect(page.locator("#word")).to_be_focused()
        page.keyboard.type("first")
        for number in range(1, 5):  # Enter keeps the guess
            expect(page.locator("#newest")).to_contain_text(f"Word {number} of 4")
            fits(page)
            press(page, "Enter")
        expect(page.locator("#between-heading")).to_be_visible()
    [play] = predictor.plays
    assert [guess.guess for guess in play.guesses] == ["first"] * 4


def test_requests_that_fail_and_actions_at_once(browser: Browser, served: tuple[str, Study]):
    address, study = served
    who = study.add(("selector",))
    who.record("agreed", consent=study.consent_digest)
    give_work(study, who)
    [first] = who.selections[0].words
    page = browser.new_page()  # errors of requests are messages in its console
    fates = ["answer", "answer", "refuse", "answer", "lose"]

    def answer(route: Route) -> None:
        fate = fates.pop(0) if fates and route.request.method == "POST" else "answer"
        if fate == "refuse":
            route.fulfill(status=503, json={"error": "the disk is full"})
        elif fate == "lose":
            route.fetch()
            route.abort()
        else:
            route.continue_()

    def click(*what: str) -> None:
        """Click these at once, before anything is answered."""
        page.evaluate("all => all.forEach(s => document.querySelector(s).click())", [*what])

    def word_at(place: int) -> str:
        return f"#passage [data-place='{place}']"

    page.route("**/work", answer)
    page.goto(f"{address}/#{who.token}")
    expect(page.locator("#passage mark")).to_be_visible()
    click(word_at(0), word_at(1), word_at(2))
    expect(page.locator("#error")).to_have_text("the disk is full")
    expect(page.locator("#ranking bdi")).to_have_count(3)  # what was saved stays
    assert who.selections[0].words == (first, 0, 1)
    click("#undo", word_at(3))  # the words are not known until the answer is there
    expect(page.locator("#ranking bdi")).to_have_count(2)
    assert who.selections[0].words == (first, 0)
    click("#undo")  # done, but the answer gets lost
    expect(page.locator("#error")).to_contain_text("may not be saved")
    click(word_at(3))
    expect(page.locator("#error")).to_contain_text("out of date")
    expect(page.locator("#ranking bdi")).to_have_count(1)
    click(word_at(3))
    expect(page.locator("#error")).to_be_hidden()
    expect(page.locator("#ranking bdi")).to_have_count(2)
    assert who.selections[0].words == (first, 3)
    page.close()


def test_a_page_without_a_link_says_so(browser: Browser, served: tuple[str, Study]):
    address, _ = served
    with watched(browser, own=address) as page:
        page.goto(address)
        expect(page.locator("#error")).to_contain_text("the whole link")
