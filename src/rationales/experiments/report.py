"""One page with everything that was run: tables and figures in a single file that opens offline."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from markdown_it import MarkdownIt

from rationales import __version__
from rationales.errors import RationalesError
from rationales.experiments.run import TABLE
from rationales.runs import RUN, RunFolder

REPORT = "report.html"

_STYLE = """
:root { color-scheme: light; }
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem; line-height: 1.5;
       font-family: system-ui, sans-serif; color: #222; background: #fff; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { padding: 0.25rem 0.7rem; border-bottom: 1px solid #ddd; white-space: nowrap; }
th { border-bottom: 2px solid #888; }
svg { max-width: 100%; height: auto; }
figure { margin: 1.5rem 0; }
figcaption { color: #666; font-size: 0.85rem; }
section + section { border-top: 1px solid #ccc; margin-top: 3rem; }
code { background: #f3f3f3; padding: 0 0.2rem; }
"""


def write(out: str | Path, names: Sequence[str]) -> Path:
    """The path of the report on the runs of these names, each of which is a folder of ``out``."""
    out = Path(out).expanduser()
    sections = "\n".join(_section(out / name, name) for name in names)
    contents = "".join(f'<li><a href="#{name}">{html.escape(name)}</a></li>' for name in names)
    page = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Rationales for sequential predictions: experiments</title>
<style>{_STYLE}</style>
</head>
<body>
<p>Written by rationales {html.escape(__version__)}.</p>
<ul>{contents}</ul>
{sections}
</body>
</html>
"""
    return RunFolder(out, "experiment all").write(REPORT, page)


def _section(folder: Path, name: str) -> str:
    """One experiment: its table, the figures that its run recorded, and links to its pages."""
    try:
        table = (folder / TABLE).read_text(encoding="utf-8")
        files = json.loads((folder / RUN).read_text(encoding="utf-8"))["files"]
        paths = [folder / file for file in sorted(files) if file.endswith(".svg")]
        pictures = [(path.stem, path.read_text(encoding="utf-8")) for path in paths]
        pages = [file for file in sorted(files) if file.endswith(".html")]
    except OSError as error:
        raise RationalesError(
            f"cannot read {error.filename}: {error.strerror}; run rationales experiment {name} "
            f"--out {folder}"
        ) from error
    drawn = "\n".join(
        f"<figure>{inline_svg(text, f'{name}-{stem}')}"
        f"<figcaption>{html.escape(stem)}</figcaption></figure>"
        for stem, text in pictures
    )
    links = "\n".join(
        f'<p><a href="{quote(f"{name}/{file}")}">{html.escape(file)}</a>: click a word, see its '
        "rationale</p>"
        for file in pages
    )
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(table)
    return f'<section id="{name}">\n{body}\n{drawn}\n{links}\n</section>'


def inline_svg(text: str, name: str) -> str:
    """A picture as part of a page: no declarations, and ids that are its own."""
    start = text.find("<svg")
    if start < 0:
        raise RationalesError(f"the figure {name} is no SVG picture: draw it again")
    body = re.sub(r"<metadata>.*?</metadata>", "", text[start:], flags=re.DOTALL)
    return re.sub(r'\bid="|href="#|url\(#', rf"\g<0>{name}-", body)
