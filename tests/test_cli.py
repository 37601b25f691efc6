"""The command line as a user meets it: output, pipes, exit codes, and one line for each mistake."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

from rationales import Explanation, cli

TEXT = "the dog sat on the"


def rows(out: str) -> list[list[object]]:
    return [[json.loads(cell) for cell in line.split("\t")] for line in out.splitlines()[1:]]


def test_a_pipe_gets_tab_separated_lines_and_nothing_else(run):
    code, out, err = run("explain", TEXT, "--generate", "3")
    assert code == 0
    assert err == ""
    assert out.splitlines()[0].split("\t")[0] == "target"
    assert len(rows(out)) == 3


def test_json_on_standard_output_follows_the_schema(run):
    code, out, _ = run("explain", TEXT, "--generate", "2", "--json", "-", "--steps", "2")
    assert code == 0
    schema = json.loads(resources.files("rationales").joinpath("schema.json").read_text())
    data = json.loads(out)
    jsonschema.validate(data, schema)
    assert len(data["rationales"]) == 2
    steps = [step for rationale in data["rationales"] for step in rationale["steps"]]
    assert any(len(step.get("candidates", [])) == 2 for step in steps)


def test_json_in_a_file_reads_back(run, tmp_path):
    path = tmp_path / "x.json"
    code, out, _ = run("explain", TEXT, "--target", "all", "--json", str(path))
    assert code == 0
    explanation = Explanation.load(path)
    # The first token has nothing before it; all others are explained.
    assert explanation.unexplainable == (0,)
    assert len(explanation) == len(explanation.tokens) - 1 == len(rows(out))
    assert path.stat().st_mode & 0o044, "the result is readable like any other file"
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_text_from_standard_input_and_from_a_file(run, tmp_path):
    direct = run("explain", TEXT)[1]
    assert run("explain", stdin=TEXT + "\n")[1] == direct
    path = tmp_path / "text.txt"
    path.write_text(TEXT + "\n", encoding="utf-8")
    assert run("explain", "--file", str(path))[1] == direct


def test_json_lines_in_and_out(run, tmp_path):
    path = tmp_path / "in.jsonl"
    lines = [
        {"text": TEXT, "id": "a", "target": "last"},
        {"text": "the cat saw the dog", "id": 2, "target": "dog", "method": "nearest-first"},
        {"text": "a b", "target": 0},
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    code, out, _ = run("explain", "--jsonl", str(path))
    assert code == 0
    answers = [Explanation.from_json(line) for line in out.splitlines()]
    assert [answer.id for answer in answers] == ["a", 2, None]
    assert [answer.method for answer in answers] == ["greedy", "nearest-first", "greedy"]
    assert answers[2].unexplainable == (0,)
    assert len(answers[2]) == 0


@pytest.mark.parametrize("method", ["greedy", "exhaustive", "random", "nearest-first"])
def test_every_plain_method_has_a_name(run, method):
    code, out, _ = run("explain", TEXT, "--generate", "2", "--method", method, "--max-size", "3")
    assert code == 0
    assert all(size <= 3 for _, _, size, *_ in rows(out))


def test_an_exhausted_budget_is_said_for_its_target(run):
    code, out, _ = run(
        *("explain", TEXT, "--generate", "3", "--method", "exhaustive"),
        *("--max-evaluations", "1", "--json", "-"),
    )
    assert code == 0
    rationales = json.loads(out)["rationales"]
    assert len(rationales) == 3
    assert all(r["sufficient"] or r["stopped"] == "budget" for r in rationales)
    assert any(not r["sufficient"] for r in rationales)


def test_steps_needs_no_number():
    assert cli._expand(["explain", "x", "--steps"]) == ["explain", "x", "--steps=0"]
    assert cli._expand(["explain", "--steps", "text"]) == ["explain", "--steps=0", "text"]
    assert cli._expand(["explain", "--steps", "3"]) == ["explain", "--steps", "3"]
    assert cli._expand(["explain", "--", "--steps"]) == ["explain", "--", "--steps"]


def test_documents_takes_what_a_shell_makes_of_a_pattern():
    a, b, c = (f"--documents={name}.txt" for name in "abc")
    given = ["explain", "--documents", "a.txt", "b.txt", "--question", "Why?", "--chat"]
    assert cli._expand(given) == ["explain", a, b, "--question", "Why?", "--chat"]
    given = ["explain", "--documents", "a.txt", "--documents", "b.txt", "c.txt", "--", "-x"]
    assert cli._expand(given) == ["explain", a, b, c, "--", "-x"]
    assert cli._expand(["explain", a, "--documents", "-"]) == ["explain", a, "--documents=-"]
    for given in (["explain", "--documents"], ["explain", "--documents", "--chat"]):
        assert cli._expand(given) == given


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["explain", ""], "empty"),
        (["explain", "  \n "], "empty"),
        (["explain"], "empty"),
        (["explain", TEXT, "--target", "zebra"], "'zebra' is not in the text"),
        (["explain", TEXT, "--target", "the#9"], "occurrence"),
        (["explain", TEXT, "--target", "99"], "no token 99"),
        (["explain", TEXT, "--method", "nope"], "unknown method 'nope'"),
        (["explain", TEXT, "--method", "greedy", "--absolute"], "--absolute goes with"),
        (["explain", TEXT, "--generate", "0"], "at least 1"),
        (["explain", TEXT, "--generate", "x"], "--generate"),
        (["explain", TEXT, "--batch-tokens", "0"], "--batch-tokens must be"),
        (["explain", TEXT, "--specials", "what"], "pinned or candidate"),
        (["explain", TEXT, "--chat"], "no chat template"),
        (["explain", TEXT, "--json", "no/such/folder/x.json"], "cannot write"),
        (["explain", TEXT, "--json", "."], "Is a directory"),
        (["explain", "--file", "no-such-file"], "cannot read no-such-file"),
        (["explain", TEXT, "--file", "x"], "not several"),
        (["explain", "--jsonl", "no-such-file"], "cannot read"),
        (["explain", "word " * 4000], "positions"),
        (["explain", TEXT, "--dtype", "int3"], "int3"),
        (["explain", TEXT, "--nope"], "--nope"),
        (["nope"], "nope"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(run, arguments, says):
    code, out, err = run(*arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert says in err


def test_an_unreachable_hub_is_said_within_ten_seconds(run, monkeypatch):
    started = time.monotonic()
    code, _, err = run("explain", TEXT, "--model", "nobody/no-such-model", model=False)
    assert code == 2
    assert err.count("\n") == 1
    assert "nobody/no-such-model" in err
    assert time.monotonic() - started < 10


def test_help_and_version(run):
    for arguments in (["--help"], ["explain", "--help"], ["model", "--help"], ["--version"]):
        code, out, err = run(*arguments, model=False)
        assert (code, err) == (0, "")
        assert out
    assert "Examples" in run("explain", "--help", model=False)[1]


def test_ctrl_c_keeps_the_finished_targets(tiny_folder, tmp_path):
    """A real process, a real signal: exit code 130 and whole JSON."""
    path = tmp_path / "x.json"
    code = (
        "import signal, sys, time\n"
        # Ignored signals are inherited: a shell's background jobs have this one ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from rationales.scoring.causal import CausalScorer\n"
        "plain, calls = CausalScorer.score, []\n"
        "def slow(self, queries):\n"
        "    calls.append(1)\n"
        "    if len(calls) > 4: print('slow', file=sys.stderr, flush=True); time.sleep(60)\n"
        "    return plain(self, queries)\n"
        "CausalScorer.score = slow\n"
        "from rationales.cli import main\n"
        "main()\n"
    )
    arguments = [
        "explain",
        "the dog sat on the mat and the cat",
        "--target",
        "all",
        "--model",
        str(tiny_folder),
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments, "--json", str(path)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.strip() == "slow":
            break
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    # The file is not whole: what was finished is beside it, and that is said.
    partial = tmp_path / "x.json.partial"
    assert err.endswith(f"1 answer is in {partial}\ninterrupted\n")
    assert not path.exists()
    explanation = Explanation.load(partial)
    assert not explanation.complete
    assert 0 < len(explanation) < len(explanation.tokens) - 1


def test_a_reader_that_goes_away_is_no_error(tiny_folder):
    command = f"'{sys.executable}' -m rationales explain 'the dog' --model '{tiny_folder}' | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr


def test_model_commands(run, monkeypatch, tmp_path):
    monkeypatch.setenv("RATIONALES_CACHE", str(tmp_path))
    code, out, _ = run("model", "list")
    assert code == 0
    assert out.startswith("smollm2-135m-instruct\t")
    code, _, err = run("model", "path")
    assert code == 2
    assert "rationales model get" in err
    code, _, err = run("model", "get", "--file", str(tmp_path / "no.gguf"))
    assert code == 2
    assert err.count("\n") == 1


def test_a_terminal_gets_the_text_highlighted(tiny_folder):
    """Under a pseudo-terminal the table is drawn, with colours."""
    import pty

    arguments = ["explain", TEXT, "--model", str(tiny_folder), "--steps"]
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "rationales", *arguments],
        stdout=slave,
        stderr=slave,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"},
    )
    os.close(slave)
    shown = b""
    while True:
        try:
            chunk = os.read(master, 4096)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        shown += chunk
    assert process.wait() == 0
    text = shown.decode()
    assert "context" in text
    assert "was reached" in text
    assert "\x1b[" in text


def test_the_folder_is_checked_before_the_model_is_loaded(run, tmp_path):
    """No time is spent on a model whose answer could not be written."""
    code, _, err = run(
        *("explain", TEXT, "--model", "nobody/nothing", "--json", str(Path("no/x.json"))),
        model=False,
    )
    assert code == 2
    assert "cannot write" in err


def test_a_warning_is_one_line():
    code = (
        "import sys, warnings\n"
        "from rationales import RationalesWarning, cli\n"
        "def warn(arguments):\n"
        "    warnings.warn('two\\nlines', RationalesWarning)\n"
        "    warnings.warn('for programmers', UserWarning)\n"
        "    return 0\n"
        "cli.call = warn\n"
        "cli.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = done.stderr.splitlines()
    assert first == "warning: two lines"
    assert second.endswith("UserWarning: for programmers")


def test_a_reader_that_goes_away_from_a_named_pipe_is_code_141(tiny_folder, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    lines = tmp_path / "in.jsonl"
    lines.write_text((json.dumps({"text": TEXT, "generate": 1}) + "\n") * 40)
    command = [sys.executable, "-m", "rationales", "explain", "--jsonl", str(lines)]
    process = subprocess.Popen(
        [*command, "--model", str(tiny_folder), "--json", str(fifo)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with fifo.open() as file:
        assert Explanation.from_json(file.readline()).text.startswith(TEXT)
    assert process.communicate(timeout=120) == ("", "")
    assert process.returncode == 141
