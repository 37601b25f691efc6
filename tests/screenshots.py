"""Pictures of the viewer in its states, to be looked at: ``python tests/screenshots.py [FOLDER]``.

With paths of saved explanations after the folder, these are shown too.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from rationales import Explanation
from rationales.render import viewer

from browser import chromium, watched
from shown import chat, court, documents, hostile, long, pair

WIDE, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}
TRY = """(data) => Rationales.view(document.querySelector("main"), data, {
  score: async ({ keep }) => ({ target_logprob: -1.2, prediction_id: 7, prediction_text: " ruled",
    prediction_logprob: -1.2, rank: 1, sufficient: keep.length > 2 }),
  search: async () => {},
})"""


def main(folder: Path, others: list[Path]) -> None:
    translation, gold = pair()
    two = [court(), court("beam")]
    # name → explanations, hash, options of the browser, gold links
    states: dict[str, tuple[list[Explanation], str, dict[str, Any], Any]] = {
        "light": ([court()], "#target=6", {}, None),
        "dark": ([court()], "#target=6", {"color_scheme": "dark"}, None),
        "narrow": ([court()], "#target=6", {"viewport": PHONE}, None),
        "compared": ([court()], "#target=7&pin=6", {}, None),
        "words": ([court()], "#target=6&unit=word&step=2", {}, None),
        "translation": ([translation], "#target=10", {}, [gold]),
        "matrix": ([translation], "#view=matrix&target=10", {}, [gold]),
        "matrix-dark": ([court()], "#view=matrix&target=9", {"color_scheme": "dark"}, None),
        "1000-tokens": ([long(1000)], "#target=700&pin=690", {}, None),
        "1000-tokens-narrow": ([long(1000)], "#target=700", {"viewport": PHONE}, None),
        "1000-tokens-matrix": ([long(1000)], "#view=matrix&target=700", {}, None),
        "chat": ([chat()], "", {}, None),
        "chat-dark": ([chat()], "", {"color_scheme": "dark"}, None),
        "documents": ([documents()], "", {}, None),
        "documents-dark": ([documents()], "", {"color_scheme": "dark"}, None),
        "documents-narrow": ([documents()], "", {"viewport": PHONE}, None),
        "documents-long": ([documents(40)], "", {}, None),
        "documents-long-narrow": ([documents(40)], "", {"viewport": PHONE}, None),
        "beside": (two, "#beside=1&target=6", {}, None),
        "hostile": ([hostile()], "#target=5", {}, None),
        "try": ([court()], "#target=6&keep=1.2.5", {}, None),
        "try-narrow": ([court()], "#target=6&keep=1.2.5", {"viewport": PHONE}, None),
    }
    for path in others:
        states[path.stem] = ([Explanation.load(path)], "", {}, None)
    folder.mkdir(parents=True, exist_ok=True)
    with chromium() as browser, tempfile.TemporaryDirectory() as scratch:
        for name, (shown, hash, options, links) in states.items():
            page_path = Path(scratch) / f"{name}.html"
            page_path.write_text(viewer.page(shown, gold=links), encoding="utf-8", newline="\n")
            with watched(browser, **{"viewport": WIDE, **options}) as page:
                page.goto(f"{page_path.as_uri()}{hash}")
                if name.startswith("try"):
                    data = viewer.page_data(shown)
                    page.evaluate(TRY, json.loads(viewer.as_json(data)))
                    page.wait_for_timeout(400)
                whole = not name.startswith("1000")
                page.screenshot(path=folder / f"viewer-{name}.png", full_page=whole)


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("screenshots")
    main(place, [Path(each) for each in sys.argv[2:]])
