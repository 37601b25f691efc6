"""Explanations → page data → one self-contained HTML page, or a frame of it for notebooks.

The page holds ``viewer.js``, ``viewer.css`` and the data, and asks for nothing else: its
Content-Security-Policy allows one script and one style sheet, by their hashes. Texts are in the
page as JSON only, which no browser runs; the script makes text nodes of them.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from rationales.errors import RationalesError
from rationales.render.proof import facts, unit_of
from rationales.result import Explanation, Rationale
from rationales.units import group

Links = Mapping[str, Iterable[tuple[int, int]]]
"""Gold links of a translation, ``sure`` and ``possible``: pairs of a source and a target index."""

_START = """
Rationales.view(
  document.querySelector("main"), JSON.parse(document.getElementById("data").textContent));
"""
_TITLE = 80


def page(
    explanations: Sequence[Explanation],
    *,
    title: str | None = None,
    titles: Sequence[str] | None = None,
    gold: Sequence[Links | None] | None = None,
) -> str:
    """An HTML page that shows these explanations: with a list, if they are several."""
    data = page_data(explanations, titles=titles, gold=gold)
    name = title or (data["items"][0]["title"] if len(data["items"]) == 1 else "Rationales")
    return document(name, "<main></main>", data, _START)


def document(title: str, body: str, data: Any, start: str, style: str = "") -> str:
    """An HTML page with the viewer's script and style, followed by those given, and data for it.

    The body is markup; ``start`` is the script that reads the data, the text of the element of that
    id, and begins the view.
    """
    script, style = source("viewer.js") + start, source("viewer.css") + style
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html.escape(_encodable(title))}</title>
<style>{style}</style>
</head>
<body class="rationales-page">
{body}
<script type="application/json" id="data">{as_json(data)}</script>
<script>{script}</script>
</body>
</html>
"""


def frame(explanations: Explanation | Sequence[Explanation]) -> str:
    """The page in a frame: what a notebook shows."""
    each = [explanations] if isinstance(explanations, Explanation) else list(explanations)
    characters = max((len(explanation.text) for explanation in each), default=0)
    # Lines of running text beside the panel, which has about 560 pixels itself.
    return framed(page(each), min(900, max(640, 200 + 39 * (1 + characters // 60))))


def framed(text: str, height: int) -> str:
    """A page in an ``<iframe>`` that needs no file and no server.

    The frame may run its script and offer downloads; it cannot reach the notebook.
    """
    return (
        f'<iframe srcdoc="{html.escape(text)}" sandbox="allow-scripts allow-downloads" '
        f'title="Rationales" width="100%" height="{height}" frameborder="0"></iframe>'
    )


def page_data(
    explanations: Sequence[Explanation],
    titles: Sequence[str] | None = None,
    gold: Sequence[Links | None] | None = None,
) -> dict[str, Any]:
    """What the viewer reads: explanations, each with a title, its words, sentences and proofs."""
    if titles is None:
        titles = _titles(explanations)
    for name, given in (("titles", titles), ("gold", gold)):
        if given is not None and len(given) != len(explanations):
            raise RationalesError(
                f"{name} must have one entry for each explanation: "
                f"found {len(given)} for {len(explanations)}"
            )
    return {
        "items": [
            item(explanation, title, gold[place] if gold else None)
            for place, (explanation, title) in enumerate(zip(explanations, titles, strict=True))
        ]
    }


def item(explanation: Explanation, title: str, gold: Links | None = None) -> dict[str, Any]:
    """One explanation as the viewer reads it."""
    language = explanation.options.get("language", "en")
    # Halves of characters, which no splitter reads, become another character.
    tokens = [replace(token, text=_whole(token.text)) for token in explanation.tokens]
    links = {} if gold is None else {"gold": {name: [*map(list, gold[name])] for name in gold}}
    return {
        "title": title,
        "explanation": explanation.to_dict(),
        "units": {
            "word": group(tokens, "word", parts=explanation.parts),
            "sentence": group(tokens, "sentence", language, parts=explanation.parts),
        },
        "proofs": {
            str(each.target): found
            for each in explanation
            if (found := proofs(each, unit_of(explanation)))
        },
        **links,
    }


def proofs(rationale: Rationale, unit: str) -> list[list[str]]:
    """What was proven of a rationale and of its alternatives, in words; none if nothing was."""
    found = [[*facts(each, unit)] for each in (rationale, *rationale.alternatives)]
    return found if any(found) else []


def as_json(data: Any) -> str:
    """JSON that can stand in a ``<script>`` element and be written in UTF-8, whatever it says."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _encodable(text.replace("<", "\\u003c"))


@cache
def source(name: str) -> str:
    """The text of a script or a style sheet: ``viewer.js``, ``viewer.css`` …"""
    return files("rationales.render").joinpath(name).read_text(encoding="utf-8")


def _titles(explanations: Sequence[Explanation]) -> list[str]:
    """The id or the beginning of each text; where these repeat, with what found the rationales."""
    names = []
    for explanation in explanations:
        given = (t.text for t in explanation.tokens if not t.pinned and t.side != "target")
        name = str(explanation.id) if explanation.id is not None else "".join(given)
        name = " ".join(name.split()) or "(no text)"
        names.append(name if len(name) <= _TITLE else name[: _TITLE - 1] + "…")
    return [
        " · ".join(
            [
                *_differences(
                    explanation, [e for e, n in zip(explanations, names, strict=True) if n == name]
                ),
                name,
            ]
        )
        for name, explanation in zip(names, explanations, strict=True)
    ]


def _differences(explanation: Explanation, others: Sequence[Explanation]) -> list[str]:
    """By what the run of this explanation differs from those of others of the same text."""

    def run(each: Explanation) -> list[str]:
        options = ", ".join(f"{name} {value}" for name, value in sorted(each.options.items()))
        adapter = "with adapter" if each.adapter else "without adapter"
        return [each.model.rstrip("/").rpartition("/")[2], adapter, each.method, options]

    runs = [run(each) for each in others]
    return [
        own
        for place, own in enumerate(run(explanation))
        if own and len({r[place] for r in runs}) > 1
    ]


def _encodable(text: str) -> str:
    """The text with halves of characters written as escapes: UTF-8 has no bytes for them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _whole(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _hash(text: str) -> str:
    """The source expression by which a Content-Security-Policy allows this script or style."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
