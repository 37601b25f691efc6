"""The documentation site: strict, complete, and nothing in it is loaded from another host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import rationales

ROOT = Path(__file__).parent.parent
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}
"""What a browser loads for a page by itself: elements, and the attribute with the address."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Page(HTMLParser):
    """The addresses that a page loads, the text of its scripts, and the ids that it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.scripts = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.ids.add(given.get("id") or "")
        if tag in LOADED and given.get("rel") != "canonical":
            self.loads.append(given.get(LOADED[tag]) or "")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts += data


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    afar = re.compile(r"^(https?:)?//")
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 15
    for path in pages:
        page = Page(path)
        assert [address for address in page.loads if afar.match(address)] == [], path
        assert "https://" not in page.scripts, path
    for path in [*pages, *site.rglob("*.css"), *site.rglob("*.svg")]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", text), path


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    ids = Page(site / "reference.html").ids
    assert [name for name in rationales.__all__ if f"rationales.{name}" not in ids] == []


def test_a_broken_link_fails(tmp_path: Path) -> None:
    """The settings of the site, for one page with a link that leads nowhere."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install '.[docs]'")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("[there](nowhere.md) [here](#nothing)\n")
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    settings = re.sub(r"^(nav|hooks|plugins):.*?^(?=\w)", "", settings, flags=re.M | re.S)
    (tmp_path / "mkdocs.yml").write_text(settings, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build"],
        cwd=tmp_path,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "nowhere.md" in done.stderr
    assert "#nothing" in done.stderr
