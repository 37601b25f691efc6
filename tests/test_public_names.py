"""What the package offers by name, and how little importing it loads."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import rationales

PACKAGE = Path(rationales.__file__).parent

PUBLIC = [
    "METHODS",
    "BlackBoxScorer",
    "Candidate",
    "Columns",
    "Context",
    "Conversation",
    "Cost",
    "Documents",
    "Endpoint",
    "Execute",
    "Explainer",
    "Explanation",
    "Failure",
    "Interrupted",
    "Method",
    "MissingExtraError",
    "Options",
    "Part",
    "Outcome",
    "Prediction",
    "Progress",
    "Proof",
    "Rationale",
    "RationalesError",
    "RationalesWarning",
    "Report",
    "Request",
    "Score",
    "Step",
    "SubsetScorer",
    "TableScorer",
    "Token",
    "Translator",
    "load",
    "rationalize",
    "run",
    "report",
]


def test_the_public_names() -> None:
    """A change here is a change for users: it belongs in the change log."""
    assert sorted(rationales.__all__) == sorted(PUBLIC)
    assert [name for name in PUBLIC if not hasattr(rationales, name)] == []


@pytest.mark.parametrize("module", ["rationales", "rationales.cli", "rationales.ranking"])
def test_importing_loads_no_model_library(module: str) -> None:
    heavy = ["torch", "transformers", "captum", "pandas", "numpy"]
    code = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert loaded.stdout.strip() == "[]"


def test_the_version_is_the_installed_one() -> None:
    try:
        installed = metadata.version("rationales")
    except metadata.PackageNotFoundError:
        pytest.skip("the package is not installed, only on the path")
    assert rationales.__version__ == installed


def test_the_package_is_typed_and_brings_its_schema() -> None:
    assert (PACKAGE / "py.typed").exists()
    assert (PACKAGE / "schema.json").exists()
