"""The spinner and the bar: at once on a terminal, nowhere else, and gone afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pty = pytest.importorskip("pty")

LINE = "\r\x1b[1A\x1b[2K"
"""What takes the last drawn line off the screen."""

LOADS = """
import time
from rationales.cli.progress import Bar
start = time.monotonic()
with Bar() as bar:
    bar.update("loading the model", 0, None)
    {work}
"""


def on_a_terminal(
    arguments: list[str], term: str = "xterm-256color", **environment: str
) -> tuple[int, list[tuple[float, str]]]:
    """The exit code of a Python process on a terminal, and what it wrote there, and when."""
    try:
        master, slave = pty.openpty()
    except OSError:
        pytest.skip("there are no pseudo-terminals here")
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=slave,
        stderr=slave,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "TERM": term, "COLUMNS": "80", **environment},
    )
    os.close(slave)
    written: list[tuple[float, str]] = []
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        written.append((time.monotonic(), chunk.decode(errors="replace")))
    os.close(master)
    return process.wait(), written


def together(written: list[tuple[float, str]]) -> str:
    return "".join(text for _, text in written)


def test_a_spinner_is_there_at_once_and_keeps_turning():
    code, written = on_a_terminal(["-c", LOADS.format(work="time.sleep(1)")])
    text = together(written)
    assert code == 0
    assert text.count("loading the model") >= 5
    assert "0:00:00" in text
    frames = {line.split(" loading")[0][-5:] for line in text.split("\r") if " loading" in line}
    assert len(frames) >= 4
    before = next(when for when, part in written if "loading" in part)
    assert written[-1][0] - before > 0.7, "it was drawn long before the work was done"


def test_the_first_frame_takes_less_than_a_third_of_a_second():
    """Counted from where loading begins; drawn by then, as the process ends without cleaning up."""
    work = "import os; os._exit(time.monotonic() - start >= 0.3)"
    code, written = on_a_terminal(["-c", LOADS.format(work=work)])
    assert code == 0
    assert "loading the model" in together(written)


@pytest.mark.parametrize(
    ("work", "says"),
    [
        ("pass", ""),
        ("1 / 0", "ZeroDivisionError"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    ],
)
def test_nothing_is_left_on_the_screen(work, says):
    _, written = on_a_terminal(["-c", LOADS.format(work=work)])
    text = together(written)
    drawn, found, after = text.rpartition(LINE)
    assert "loading the model" in drawn
    assert found, "the line is taken off"
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1, "the cursor is back"
    assert "loading the model" not in after.replace('"loading the model"', "")
    assert says in after


def test_others_have_the_line_until_the_next_update():
    work = """
    import sys
    print("a warning", file=sys.stderr)
    time.sleep(0.3)
    bar.update("explaining", 1, 2, "1/2 targets")
"""
    text = together(on_a_terminal(["-c", LOADS.format(work=work.strip())])[1])
    before, _, after = text.partition("a warning\r\n")
    assert before.endswith(LINE)
    assert "loading the model" not in after
    assert "explaining" in after
    assert "1/2 targets" in after


def test_a_dumb_terminal_gets_nothing():
    code, written = on_a_terminal(["-c", LOADS.format(work="time.sleep(0.3)")], term="dumb")
    assert (code, together(written)) == (0, "")


def test_what_is_not_a_terminal_gets_nothing():
    """Not even where FORCE_COLOR makes rich believe that it is one."""
    done = subprocess.run(
        [sys.executable, "-c", LOADS.format(work="time.sleep(0.3)")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "FORCE_COLOR": "1", "TTY_COMPATIBLE": "1"},
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_stages_of_a_conversion_are_named_and_then_it_goes_on_loading():
    work = 'bar.loading("dequantise", 0.5); time.sleep(0.3); bar.loading("verify", 1.0); '
    text = together(on_a_terminal(["-c", LOADS.format(work=work + "time.sleep(0.3)")])[1])
    _, _, converting = text.partition("converting the model: dequantise")
    assert "50%" in converting
    assert "loading the model" in converting
    assert "100%" not in converting


def test_the_command_draws_while_the_model_is_loaded(tiny_folder: Path):
    arguments = ["-m", "rationales", "explain", "the dog sat on the", "--model", str(tiny_folder)]
    code, written = on_a_terminal(arguments)
    text = together(written)
    assert code == 0
    drawn, _, after = text.rpartition(LINE)
    assert drawn.count("loading the model") >= 5
    assert "context" in after
    assert "loading" not in after
