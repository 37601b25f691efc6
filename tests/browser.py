"""A real browser for tests: Chromium, if there is one, watched for messages and requests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
OWN = ("file:", "blob:", "data:", "about:")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Chromium. Without one, tests are skipped; if CI_REQUIRES_BROWSER is set, they fail."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        missing = "Chromium is not installed (Debian: apt install chromium)"
        if os.environ.get("CI_REQUIRES_BROWSER"):
            pytest.fail(missing)
        pytest.skip(missing)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*FLAGS])
        yield browser
        browser.close()


@contextmanager
def watched(browser: Browser, own: str | None = None, **options: Any) -> Iterator[Page]:
    """A page that must have no console message, no error, and no request but to itself.

    ``own`` is the address that may be asked; without it, networking is off.
    """
    options = {"viewport": {"width": 1280, "height": 900}, "offline": own is None, **options}
    context = browser.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(20_000)
    seen: list[str] = []
    allowed = (*OWN, own) if own else OWN
    page.on("console", lambda message: seen.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: seen.append(f"error: {error}"))
    page.on("dialog", lambda dialog: (seen.append("dialog"), dialog.dismiss()))
    context.on(
        "request",
        lambda request: None if request.url.startswith(allowed) else seen.append(request.url),
    )
    yield page
    context.close()
    assert seen == []


def serious(page: Page) -> list[str]:
    """What axe finds to be serious or critical."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [
        f"{each['id']}: {each['nodes'][0]['html'][:200]}"
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
