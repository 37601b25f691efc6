"""A click in a text of 2,000 tokens, by the clock: from the click to the end of the next frame.

    python benchmarks/viewer.py

The bar: 100 ms. Needs Chromium; nothing else should run beside it.
"""

import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from playwright.sync_api import sync_playwright

from rationales.render import viewer

from browser import FLAGS
from shown import long

CLICK = """async (targets) => {
  const times = [];
  for (const i of targets) {
    const began = performance.now();
    document.querySelector(`.running [data-i="${i}"]`).click();
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    times.push(performance.now() - began);
  }
  return times;
}"""
TARGETS = [1990, 700, 1500, 30, 1700, 900, 1999, 400, 1200, 60, 1800]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "page.html"
        file.write_text(viewer.page([long(2000)]), encoding="utf-8")
        path = "/usr/bin/chromium"
        page = playwright.chromium.launch(executable_path=path, args=[*FLAGS]).new_page()
        page.goto(file.as_uri())
        times = page.evaluate(CLICK, TARGETS)[1:]  # the first is not counted
    print(
        f"a click in 2,000 tokens: median {statistics.median(times):.0f} ms, "
        f"longest {max(times):.0f} ms (bar: 100 ms)"
    )


if __name__ == "__main__":
    main()
