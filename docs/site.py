"""What `make docs` adds to the pages of this folder: the tutorial, and pages from elsewhere."""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
ELSEWHERE = {
    "tutorial.md": "docs/tutorial.ipynb",
    "changelog.md": "CHANGELOG.md",
    "recipes.md": "recipes/README.md",
    "adapter.md": "src/rationales/adapters/smollm2-135m-instruct-compat/README.md",
    "translator.md": "src/rationales/translators/fr-en/README.md",
}
"""Pages of the site, and the files of the repository that they are."""


def on_files(files: Files, config: Any) -> Files:
    """The files of the site, with those that are not pages of this folder."""
    for page, path in ELSEWHERE.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        content = as_markdown(json.loads(text)) if path.endswith(".ipynb") else text
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page, with links to files of the repository as links to their pages."""
    this = page.file.src_uri
    pages = {path: page for page, path in ELSEWHERE.items()}

    def link(found: re.Match[str]) -> str:
        folder = posixpath.dirname(ELSEWHERE.get(this, f"docs/{this}"))
        path = posixpath.normpath(posixpath.join(folder, found[1]))
        target = pages.get(path, posixpath.relpath(path, "docs"))
        return f"]({posixpath.relpath(target, posixpath.dirname(this) or '.')}"

    return re.sub(r"\]\((?![a-z]+:)([^)#\s]+)", link, markdown)


def as_markdown(notebook: dict[str, Any]) -> str:
    """The texts, the code and the stored outputs of a notebook."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(f"```python\n{source}\n```" if cell["cell_type"] == "code" else source)
        for output in cell.get("outputs", ()):
            text = "".join(output["text"] if "text" in output else output["data"]["text/plain"])
            parts.append(f"```text\n{text.rstrip()}\n```")
    parts.append('This page is a notebook: <a href="tutorial.ipynb" download>tutorial.ipynb</a>.')
    return "\n\n".join(parts)
