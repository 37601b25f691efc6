"""How a command starts: threads that spin for a short time, no garbage collection of imports."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest

from rationales import threads
from rationales.cli import starting

PROGRAM = """
import os, sys
before = dict(os.environ)
from rationales import cli
assert os.environ == before, "importing changes the environment"
sys.argv = ["rationales", "--version"]
try:
    cli.main()
finally:
    print(os.environ.get("GOMP_SPINCOUNT"), "torch" in sys.modules)
"""


@pytest.mark.parametrize(
    ("given", "spin"),
    [
        ({}, threads.SPIN),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "PASSIVE"}, "None"),
    ],
)
def test_a_command_bounds_how_long_threads_spin_before_torch_is_imported(given, spin):
    unset = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    environment = {name: v for name, v in os.environ.items() if name not in unset} | given
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == f"{spin} False"


def test_garbage_is_collected_again_after_the_start():
    assert gc.isenabled()
    try:
        with starting.uncollected():
            assert not gc.isenabled()
            frozen = gc.get_freeze_count()
        assert gc.isenabled()
        assert gc.get_freeze_count() > frozen
        with pytest.raises(ValueError, match="fails"), starting.uncollected():
            raise ValueError("fails")
        assert gc.isenabled()
    finally:
        gc.unfreeze()


def test_a_folder_is_read_without_the_reader_of_gguf_files(tiny_folder):
    code = (
        "import sys; from rationales.models.loading import load_model; "
        "load_model(sys.argv[1]); assert 'torch' in sys.modules; "
        "assert 'transformers.modeling_gguf_pytorch_utils' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tiny_folder)], check=True)
