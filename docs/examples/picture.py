"""Draws the picture in the README from real output: python docs/examples/picture.py FILE.svg."""

import io
import re
import sys
from pathlib import Path

from rich.console import Console

import rationales
from rationales.render.terminal import show

TEXT = "The Supreme Court on Tuesday"


def main(path: str) -> None:
    explanation = rationales.load().explain(TEXT)
    console = Console(
        record=True,
        width=110,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        no_color=False,  # whatever the terminal that draws it
    )
    show(explanation, console=console)
    svg = console.export_svg(title=f'rationales explain "{TEXT}"')
    # The picture names fonts that are installed, and loads none.
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    Path(path).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
