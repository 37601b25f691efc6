"""The report in a real browser: from disk, with networking off, and no message on the console."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page

import rationales

from browser import chromium, serious, watched
from runfolder import corpus, write

PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def report(tmp_path_factory: Any) -> rationales.Report:
    failed = [{"id": "x", "line": 99, "error": "no <b>text</b>", "attempts": 1}]
    folder = tmp_path_factory.mktemp("run")
    return rationales.report(write(folder, corpus(120), failed=failed, total=300))


@pytest.fixture(scope="module")
def address(report: rationales.Report) -> str:
    path = report.folder / "report.html"
    report.save(path)
    return path.as_uri()


def link(page: Any, caption: str, row: int) -> Locator:
    """The link of a row of the table with this caption."""
    table = page.locator("table").filter(has=page.locator("caption", has_text=caption))
    found: Locator = table.locator("tbody tr").nth(row).locator("a")
    return found


def check_shown(page: Any, report: rationales.Report, name: str, row: int) -> None:
    """Raise unless the viewer shows this row of a list, and its target."""
    listed = report.lists[name][row]
    current = page.locator(".items [aria-current=true]")
    current.get_by_text(str(report.explanations[listed.item].id), exact=True).wait_for()
    assert page.locator(".running .target").first.get_attribute("data-i") == str(
        listed.rationale.target
    )
    script = "all => all.map(each => Number(each.dataset.i)).sort((a, b) => a - b)"
    kept = page.locator(".pane:first-child .running .kept").evaluate_all(script)
    assert kept == sorted(listed.rationale.indices)


def test_a_click_shows_the_row_in_the_viewer(
    browser: Browser, report: rationales.Report, address: str
) -> None:
    with watched(browser) as page:
        page.goto(address)
        for name, caption, row in (
            ("longest", "Longest", 3),
            ("farthest", "Farthest", 0),
            ("insufficient", "Not sufficient", 2),
        ):
            link(page, caption, row).click()
            check_shown(page, report, name, row)
            assert page.locator("#row").evaluate("e => e.getBoundingClientRect().top") < 900
            assert page.evaluate("document.activeElement.id") == "row-heading"
            tops = (
                "e => e.getBoundingClientRect().top - e.closest('ol').getBoundingClientRect().top"
            )
            assert 0 <= page.locator(".items [aria-current=true]").evaluate(tops) < 160
        page.locator(".items button").first.click()  # the viewer goes elsewhere …
        link(page, "Not sufficient", 2).click()  # … and comes back
        check_shown(page, report, "insufficient", 2)
        page.reload()  # the address has what was shown
        check_shown(page, report, "insufficient", 2)


def test_the_keyboard_is_sufficient(
    browser: Browser, report: rationales.Report, address: str
) -> None:
    with watched(browser) as page:
        page.goto(address)
        link(page, "Longest", 1).focus()
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        check_shown(page, report, "longest", 2)


def test_a_notebook_frame_shows_rows_too(
    browser: Browser, report: rationales.Report, tmp_path: Path
) -> None:
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<title>x</title>{report._repr_html_()}", encoding="utf-8")
    with watched(browser) as page:
        page.goto(notebook.as_uri())
        frame = page.frame_locator("iframe")
        for row in (4, 5, 4):
            link(frame, "Longest", row).click()
            check_shown(frame, report, "longest", row)
        other = frame.locator(".items button:not([aria-current=true])").last
        other.click()
        frame.locator(".items li:last-child [aria-current=true]").wait_for()
        link(frame, "Longest", 4).click()
        check_shown(frame, report, "longest", 4)


def test_without_javascript_all_figures_and_tables_are_there(
    browser: Browser, address: str
) -> None:
    with watched(browser, java_script_enabled=False) as page:
        page.goto(address)
        assert page.locator("svg.histogram rect").count() > 10
        assert page.locator("table:visible").count() >= 7
        page.get_by_text("The viewer needs JavaScript").wait_for()


@pytest.mark.parametrize(
    ("scheme", "viewport"), [("light", {"width": 1280, "height": 900}), ("dark", PHONE)]
)
def test_axe_finds_nothing_serious(
    browser: Browser, address: str, scheme: Any, viewport: Any
) -> None:
    with watched(browser, color_scheme=scheme, viewport=viewport) as page:
        page.goto(address)
        _open_numbers(page)
        assert serious(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]


def _open_numbers(page: Page) -> None:
    for summary in page.locator("summary").all():
        summary.click()
