"""The live page in a real browser, from the first click to the download."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from rationales import Explanation
from rationales.scoring.causal import CausalScorer
from rationales.serve.app import Limits

from browser import chromium, serious, watched
from serving import events, served

TEXT = "The Supreme Court on Tuesday"
DONE = re.compile(r"rationales? in")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def server(chat_explainer: Any) -> Iterator[str]:
    with served({"tiny": chat_explainer}, limits=Limits()) as address:
        yield address


def explain(page: Page, text: str = TEXT, **options: Any) -> None:
    """Fill in the form and wait for the last rationale."""
    page.locator("#text").fill(text)
    for name, value in options.items():
        field = page.locator(f"#{name}")
        field.select_option(value) if name in ("method", "unit") else field.fill(str(value))
    page.get_by_role("button", name="Explain", exact=True).click()
    expect(page.locator("#status")).to_contain_text(DONE)


def by_api(server: str, **options: Any) -> Explanation:
    return answered(server, {"text": TEXT, "options": options})


def answered(server: str, body: dict[str, Any]) -> Explanation:
    with httpx.Client(base_url=server, timeout=60) as client:
        _, data = events(client, body)[-1]
    return Explanation.from_dict(data["explanation"])


def marked(page: Page, selector: str) -> set[int]:
    script = "all => all.map(each => Number(each.dataset.i))"
    return set(page.eval_on_selector_all(f".pane:first-child .main > .running {selector}", script))


def token(page: Page, index: int) -> Any:
    return page.locator(".pane:first-child .main > .running").locator(f"[data-i='{index}']")


def longest(explanation: Explanation) -> Any:
    return max(explanation, key=len)


def test_type_explain_click_replay_and_switch_units(browser: Browser, server: str):
    wanted = by_api(server, generate=6)
    with watched(browser, own=server) as page:
        page.goto(server)
        explain(page, generate=6)
        assert marked(page, "[role=button]") == {r.target for r in wanted}
        for rationale in wanted:
            token(page, rationale.target).click()
            assert marked(page, ".kept") == set(rationale.indices)
        rationale = longest(wanted)
        token(page, rationale.target).click()
        page.get_by_label("Step", exact=True).first.focus()
        page.keyboard.press("Home")
        assert marked(page, ".kept") == {rationale.indices[0]}
        page.keyboard.press("End")
        assert marked(page, ".kept") == set(rationale.indices)
        page.get_by_role("button", name="Words", exact=True).click()
        assert marked(page, ".kept, .part") >= set(rationale.indices)


def test_two_methods_side_by_side(browser: Browser, server: str):
    with watched(browser, own=server) as page:
        page.goto(server)
        explain(page, generate=4)
        explain(page, generate=4, method="nearest-first")
        page.get_by_label("Beside").select_option(index=1)
        panes = page.locator(".pane:visible")
        expect(panes).to_have_count(2)
        first, second = (panes.nth(n).locator(".main > .running").inner_text() for n in (0, 1))
        assert first.split()[0] == second.split()[0] == "The"


def test_switching_a_token_shows_the_prediction_of_the_api(browser: Browser, server: str):
    wanted = by_api(server, generate=6)
    rationale = longest(wanted)
    with watched(browser, own=server) as page:
        page.goto(server)
        explain(page, generate=6)
        token(page, rationale.target).click()
        page.get_by_role("button", name="Try it yourself").click()
        trial = page.locator("section.trial")
        expect(trial.locator(".says")).to_contain_text("the model predicts")
        off = next(i for i in rationale.indices if i != rationale.target - 1)
        with page.expect_response("**/score") as answer:
            trial.locator(f"[data-i='{off}']").click()
        body = json.loads(answer.value.request.post_data or "")
        assert set(body["keep"]) | {rationale.target - 1} == set(rationale.indices) - {off}
        found = httpx.post(f"{server}/score", json=body).json()
        assert answer.value.json() == found
        rank = f"rank {found['rank']}"
        expect(trial.locator(".says")).to_contain_text(rank)
        # What was put together is in the address, and a link reopens it.
        link = page.url
        with watched(browser, own=server) as other:
            other.goto(link)
            expect(other.locator("section.trial .says")).to_contain_text(rank)
            assert marked(other, ".target") == {rationale.target}


def test_another_rationale_without_these_tokens(browser: Browser, server: str):
    wanted = by_api(server, generate=6)
    rationale = longest(wanted)
    with watched(browser, own=server) as page:
        page.goto(server)
        explain(page, generate=6)
        token(page, rationale.target).click()
        page.get_by_role("button", name="Try it yourself").click()
        with page.expect_response("**/explain") as answer:
            page.get_by_role("button", name="Find another one without these").click()
        body = json.loads(answer.value.request.post_data or "")
        assert not {*body["within"]} & ({*rationale.indices} - {rationale.target - 1})
        expect(page.locator("nav li")).to_have_count(2)
        expect(page.locator("#status")).to_contain_text("1 rationale in")
        kept = marked(page, ".kept")
        assert kept & {*rationale.indices} <= {rationale.target - 1}


def test_downloads(browser: Browser, server: str, tmp_path: Path):
    with watched(browser, own=server) as page:
        page.goto(server)
        explain(page, generate=3)
        for button, name in (
            ("Save JSON", "explanation.json"),
            ("Save SVG", "explanation.svg"),
            ("Download HTML", "rationales.html"),
        ):
            with page.expect_download() as download:
                page.get_by_role("button", name=button).click()
            download.value.save_as(tmp_path / name)
    loaded = Explanation.load(tmp_path / "explanation.json")
    assert loaded == by_api(server, generate=3)
    assert (tmp_path / "explanation.svg").read_text(encoding="utf-8").startswith("<")
    with watched(browser) as page:  # from disk, with networking off
        page.goto((tmp_path / "rationales.html").as_uri())
        assert marked(page, "[role=button]") == {r.target for r in loaded}


def test_keyboard_only(browser: Browser, server: str):
    with watched(browser, own=server) as page:
        page.goto(server)
        expect(page.locator("#explain")).to_be_enabled()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "text"
        page.keyboard.type(TEXT)
        page.keyboard.press("Control+Enter")
        expect(page.locator("#status")).to_contain_text(DONE)
        for _ in range(60):
            if page.evaluate("document.activeElement.matches('.main > .running [role=button]')"):
                break
            page.keyboard.press("Tab")
        before = marked(page, ".target")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        assert marked(page, ".target") != before


def test_nothing_is_sent_before_the_page_is_ready(browser: Browser, server: str):
    with watched(browser, own=server) as page:
        page.route("**/models", lambda route: None)  # never answered
        page.goto(server)
        page.locator("#text").fill(TEXT)
        expect(page.locator("#explain")).to_be_disabled()
        page.keyboard.press("Control+Enter")
        assert page.url.rstrip("/") == server


def test_errors_are_one_sentence_on_the_page(browser: Browser, server: str):
    page = browser.new_page()  # not watched: a browser tells of a refused request on its console
    page.goto(server)
    page.locator("#text").fill(TEXT)
    page.get_by_text("More options").click()
    page.locator("#criterion").fill("magic")
    page.get_by_role("button", name="Explain", exact=True).click()
    expect(page.locator("#error")).to_contain_text("magic")
    page.close()


def test_stop_ends_the_search(browser: Browser, server: str, monkeypatch: Any):
    import time

    plain = CausalScorer.score

    def slow(self: Any, queries: Any) -> Any:
        time.sleep(0.3)
        return plain(self, queries)

    monkeypatch.setattr(CausalScorer, "score", slow)
    with watched(browser, own=server) as page:
        page.goto(server)
        page.locator("#text").fill(TEXT)
        page.get_by_role("button", name="Explain", exact=True).click()
        page.get_by_role("button", name="Stop").click()
        expect(page.locator("#status")).to_have_text("stopped")
        page.wait_for_timeout(1500)
    assert httpx.get(f"{server}/healthz").json()["running"] == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_and_width(browser: Browser, server: str, scheme: str, width: int):
    options = {"color_scheme": scheme, "viewport": {"width": width, "height": 844}}
    with watched(browser, own=server, **options) as page:
        page.goto(server)
        assert serious(page) == []
        explain(page, generate=3)
        page.get_by_role("button", name="Try it yourself").click()
        expect(page.locator("section.trial .says")).to_contain_text("the model predicts")
        assert serious(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_hostile_texts_are_inert(browser: Browser, server: str):
    text = "<img src=x onerror=alert(1)> </script><script>alert(2)</script> \u202eabc"
    with watched(browser, own=server) as page:
        page.goto(server)
        explain(page, text=text, generate=2)
        page.get_by_role("button", name="Try it yourself").click()
        expect(page.locator("section.trial .says")).to_contain_text("the model predicts")
        assert page.locator("img, main script").count() == 0
        assert "\u202e" not in page.locator(".main > .running").first.inner_text()


def filled(page: Page, mode: str, rows: list[dict[str, str]]) -> None:
    """Choose a mode, and fill in its documents or messages."""
    kind = {"documents": "document", "chat": "message"}[mode]
    page.locator(f"input[name=mode][value={mode}]").check()
    for number, row in enumerate(rows, start=1):
        if number > 1:
            page.locator(f"#add-{kind}").click()
        for name, value in row.items():
            field = page.get_by_label(f"{kind.title()} {number}: {name}", exact=True)
            field.select_option(value) if name == "role" else field.fill(value)


def submit(page: Page) -> dict[str, Any]:
    """The request that the form sends, when it was answered."""
    with page.expect_request("**/explain") as request:
        page.get_by_role("button", name="Explain", exact=True).click()
    expect(page.locator("#status")).to_contain_text(DONE)
    body: dict[str, Any] = json.loads(request.value.post_data or "")
    return body


def test_documents_with_a_question(browser: Browser, server: str):
    rows = [
        {"title": "<b>One", "text": "The Supreme Court ruled."},
        {"text": "</script> It rained."},
    ]
    with watched(browser, own=server) as page:
        page.goto(server)
        filled(page, "documents", [*rows, {"text": "Not this one."}])
        page.get_by_role("button", name="Remove document 3").click()
        page.locator("#question").fill("Who ruled?")
        page.get_by_label("certify").check()
        page.get_by_label("Tokens").fill("2")
        body = submit(page)
        assert body["documents"] == rows
        assert body["question"] == "Who ruled?"
        assert body["options"] == {"certify": True, "generate": 2}
        names = page.locator(".pane:first-child .running .part-name").all_inner_texts()
        assert names[:2] == ["Document <b>One", "Document 2"]
        assert page.locator("main b, main script, main img").count() == 0
        found = answered(server, body)
        proven = next(r for r in found if r.proof)
        token(page, proven.target).click()
        assert page.locator(".proof li").first.is_visible()
        page.get_by_role("button", name="Documents", exact=True).click()
        page.get_by_role("button", name="Try it yourself").click()
        says = page.locator("section.trial .says")
        expect(says).to_contain_text("the model predicts")
        first = found.parts[0]
        with page.expect_response("**/score") as answer:
            page.locator(f"section.trial [data-i='{first.start}']").click()
        kept = {*json.loads(answer.value.request.post_data or "")["keep"]}
        whole = {*range(first.start, first.end)}
        assert kept & whole in (whole, set())  # a document is switched as one
        with page.expect_request("**/explain") as request:
            page.get_by_role("button", name="Find a rationale within this").click()
        assert json.loads(request.value.post_data or "")["parts"] == found.to_dict()["parts"]
        expect(page.locator("nav li")).to_have_count(2)
        expect(page.locator("#status")).to_contain_text("1 rationale in")
        link = page.url
    with watched(browser, own=server) as page:  # a link has all that was asked
        with page.expect_request("**/explain") as request:
            page.goto(link)
        assert json.loads(request.value.post_data or "") == body
        expect(page.locator("#status")).to_contain_text(DONE)
        page.get_by_role("button", name="Clear").click()
        assert "documents" not in page.url


def test_a_chat(browser: Browser, server: str):
    rows = [
        {"role": "system", "text": "Be brief."},
        {"role": "user", "text": "<img src=x onerror=alert(1)> ruled?"},
        {"role": "assistant", "text": "The Court"},
    ]
    with watched(browser, own=server) as page:
        page.goto(server)
        filled(page, "chat", rows)
        page.get_by_label("Message 1: always seen").check()
        body = submit(page)
        pinned = [{"pinned": True}, {}, {}]
        assert body["messages"] == [
            {"role": row["role"], "content": row["text"]} | more
            for row, more in zip(rows, pinned, strict=True)
        ]
        names = page.locator(".pane:first-child .running .part-name").all_inner_texts()
        assert names == ["Message system", "Message user", "Answer"]
        assert page.locator(".pane:first-child .answer .body").inner_text().strip() == "The Court"
        assert page.get_by_role("button", name="Messages", exact=True).is_visible()
        assert page.locator("img").count() == 0


def test_an_old_link_to_a_chat_and_a_damaged_one(browser: Browser, server: str):
    with watched(browser, own=server) as page:
        with page.expect_request("**/explain") as request:
            page.goto(f'{server}/#text=Who+ruled%3F&mode=chat&options={{"generate":1}}')
        body = json.loads(request.value.post_data or "")
        assert body["messages"] == [{"role": "user", "content": "Who ruled?"}]
        expect(page.locator("#status")).to_contain_text(DONE)
    page = browser.new_page()  # not watched: what a damaged link asks for is refused
    page.goto(f"{server}/#documents=[1,null,{{]&mode=documents&options=3")
    expect(page.locator("#error")).to_contain_text("document 1 is empty")
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_and_width_of_lists(browser: Browser, server: str, scheme: str):
    options = {"color_scheme": scheme, "viewport": {"width": 390, "height": 844}}
    with watched(browser, own=server, **options) as page:
        page.goto(server)
        for mode, name in (("chat", "text"), ("documents", "text")):
            filled(page, mode, [{name: "The Court ruled."}, {name: "It rained."}])
            page.get_by_text("More options").click()
            assert serious(page) == []
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
