"""The tutorial runs from top to bottom and prints what is stored in it.

``python tests/test_tutorial.py`` runs it and stores what it prints, as plain text.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

from rationales.models import default as default_model

pytest.importorskip("ipykernel")
nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

NOTEBOOK = Path(__file__).parent.parent / "docs" / "tutorial.ipynb"


def execute(folder: Path) -> Any:
    """The notebook after a run in an empty folder, with outputs in plain text only."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    # Without colours, the tokens that are kept are ‹marked›.
    plain = {"NO_COLOR": "1", "JUPYTER_COLUMNS": "84"}
    own = {"JUPYTER_RUNTIME_DIR": str(folder / "jupyter"), "IPYTHONDIR": str(folder / "ipython")}
    nbclient.NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    ).execute(env={**os.environ, **plain, **own})
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.execution_count = None
            text = "".join(map(_text, cell.outputs))
            cell.outputs = [nbformat.v4.new_output("stream", text=text)] if text else []
    return notebook


def _text(output: Any) -> str:
    """What an output is in plain text; warnings and pictures are left out."""
    if output.output_type == "stream":
        return output.text if output.name == "stdout" else ""
    if any(kind.startswith("image/") for kind in output.data):
        return ""
    text = re.sub(r"\x1b\[[\d;]*m", "", output.data["text/plain"])
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


def outputs(notebook: Any) -> list[str]:
    """What the cells print, without numbers: times differ, and last digits of probabilities may."""
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    printed = ["".join(output.text for output in cell.outputs) for cell in codes]
    return [re.sub(r"\s*[\d.]+", " #", text) for text in printed]


@pytest.mark.real_model
def test_the_tutorial_runs_and_prints_what_it_stores(tmp_path: Path) -> None:
    if default_model.find() is None and default_model.installed_gguf() is None:
        pytest.skip("the default model is not here: run `rationales model get`")
    assert outputs(execute(tmp_path)) == outputs(nbformat.read(NOTEBOOK, as_version=4))
    written = {path.name for path in tmp_path.iterdir()}
    expected = {"explanation.json", "explanation.html", "figure.pdf"}
    assert expected <= written


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        nbformat.write(execute(Path(folder)), NOTEBOOK)
