"""What others expect beside the code: a citation, notices, model cards, links that work."""

import re
from pathlib import Path

import pytest
import tomllib
import yaml

import rationales

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "rationales"
WEIGHTS = sorted({file.parent for file in PACKAGE.glob("*/*/*.safetensors")})
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_citation_is_of_this_version_and_names_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == rationales.__version__
    assert {"message", "title", "authors"} <= citation.keys()
    paper = citation["preferred-citation"]
    assert paper["title"] == "Rationales for Sequential Predictions"
    assert [author["family-names"] for author in paper["authors"]] == [
        "Vafa",
        "Deng",
        "Blei",
        "Rush",
    ]


def test_license_files_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"LICENSE", "NOTICE"} <= set(project["license-files"])
    assert all((ROOT / name).is_file() for name in project["license-files"])


def test_there_are_packaged_weights() -> None:
    assert {folder.name for folder in WEIGHTS} == {"fr-en", "smollm2-135m-instruct-compat"}


@pytest.mark.parametrize("folder", WEIGHTS, ids=lambda folder: folder.name)
def test_packaged_weights_have_a_card_and_a_notice(folder: Path) -> None:
    _, front, text = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    assert {"license", "language", "library_name", "tags"} <= yaml.safe_load(front).keys()
    for heading in ("Training", "Results", "Intended use", "Limits"):
        assert f"\n## {heading}\n" in text
    assert str(folder.relative_to(ROOT)) in (ROOT / "NOTICE").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    assert [link for link in local if not (page.parent / link).exists()] == []
