"""Runs over corpora: formats, bad rows, identity, kills of the run and of its workers."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import rationales
from deadly import Deadly
from rationales.errors import RationalesError
from rationales.options import Options
from rationales.runs import corpus as corpora
from rationales.runs.corpus import Execute, Outcome, run_corpus
from rationales.runs.rows import Columns, Corpus, Source

WORDS = [
    "The",
    "Supreme",
    "Court",
    "on",
    "Tuesday",
    "ruled",
    "that",
    "the",
    "law",
    "of",
    "the",
    "land",
    "is",
    "the",
    "law",
]
RAY = pytest.param(
    "ray",
    marks=pytest.mark.skipif(
        "not __import__('importlib').util.find_spec('ray')", reason="needs the extra ray"
    ),
)


def texts(count: int) -> list[dict[str, Any]]:
    """Rows whose texts differ, all short."""
    rng = random.Random(5)
    return [
        {"id": f"r{n}", "text": " ".join(rng.sample(WORDS, 5)), "target": "last"}
        for n in range(count)
    ]


def write(path: Path, rows: list[Any]) -> Path:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def found(folder: Path | Outcome) -> dict[Any, dict[str, Any]]:
    """The lines of a run by their ids, each there once, without times."""
    folder = folder.folder if isinstance(folder, Outcome) else folder
    lines = [
        json.loads(x)
        for p in sorted(folder.glob("part-*.jsonl"))
        for x in p.read_text().splitlines()
    ]
    by_id = {line["id"]: line for line in lines}
    assert len(by_id) == len(lines), "a row is there twice"
    for line in lines:
        line.pop("seconds")
    return by_id


@pytest.fixture
def sixteen(monkeypatch):
    """Batches of sixteen rows."""
    monkeypatch.setattr(corpora, "_BATCH_ROWS", 16)


@pytest.fixture
def explain(tiny_explainer, tmp_path, sixteen):
    """Runs over rows, by this process."""

    def _run(rows: list[Any], out: str = "run", **options: Any) -> Outcome:
        path = write(tmp_path / f"{out}.jsonl", rows)
        return rationales.run(path, tmp_path / out, tiny_explainer, **options)

    return _run


def test_every_row_has_its_line_and_a_second_run_does_nothing(explain, monkeypatch):
    rows = texts(40)
    outcome = explain(rows)
    assert [*found(outcome)] == [row["id"] for row in rows]
    assert (outcome.state.total, outcome.state.done, outcome.state.failed) == (40, 40, 0)
    assert [each.id for each in outcome] == [row["id"] for row in rows]
    before = (outcome.folder / "part-00000.jsonl").read_bytes()
    monkeypatch.setattr(rationales.Explainer, "explain_all", None)
    assert explain(rows).state.new == 0
    assert (outcome.folder / "part-00000.jsonl").read_bytes() == before


def test_parts_have_so_many_lines(explain, monkeypatch):
    monkeypatch.setattr("rationales.runs.parts._PART_LINES", 16)
    outcome = explain(texts(40))
    sizes = [len(path.read_text().splitlines()) for path in sorted(outcome.folder.glob("part-*"))]
    assert sizes == [16, 16, 8]
    assert explain(texts(40)).state.new == 0


BAD = [
    ('{"id": "n", "text": 3}', "expected a text in the column 'text', found a value of type int"),
    ('{"id": "none"}', "expected a text in the column 'text', found nothing"),
    ('{"id": "e", "text": " "}', "the text is empty"),
    ("nonsense", "not JSON"),
    ("[1]", "expected an object"),
    ('{"id": "r0", "text": "The law"}', "the id 'r0' is that of row 1 too"),
    ('{"id": [1], "text": "The law"}', "the id must be a string or a whole number"),
    ('{"id": "o", "text": "The law", "max_size": 0}', "max_size"),
    ('{"id": "m", "text": "The law", "method": "magic"}', "unknown method"),
    ('{"id": "s", "text": "\\ud800"}', "not valid Unicode"),
    (json.dumps({"id": "l", "text": "law " * 400}), "positions"),
]


def test_bad_rows_fail_with_their_line_numbers_and_the_rest_is_done(explain):
    rows = [*texts(5), *[bad for bad, _ in BAD], *[{"text": "The law of"}]]
    outcome = explain(rows)
    assert [*found(outcome)] == ["r0", "r1", "r2", "r3", "r4", len(rows)]
    failed = {each["line"]: each for each in outcome.failed}
    assert [*sorted(failed)] == [*range(6, 6 + len(BAD))]
    for number, (_, said) in enumerate(BAD, start=6):
        assert said in failed[number]["error"]
        assert failed[number]["attempts"] == 1


def test_failed_rows_are_tried_again_only_if_asked(explain, monkeypatch):
    rows = [*texts(3), {"id": "x", "text": "The law of the land"}]
    with monkeypatch.context() as broken:
        broken.setattr(
            rationales.Explainer,
            "check_length",
            lambda *_, **__: (_ for _ in ()).throw(RationalesError("no room")),
        )
        outcome = explain(rows)
    assert outcome.state.failed == 4
    assert explain(rows).state.failed == 4
    again = explain(rows, retry_failed=True)
    assert (again.state.done, again.state.failed) == (4, 0)
    assert again.failed == []


def test_limit_goes_on_and_a_sample_is_the_same_each_time(explain):
    rows = texts(40)
    assert [*found(explain(rows, limit=20))] == [f"r{n}" for n in range(20)]
    whole = explain(rows)
    assert len(found(whole)) == 40
    assert found(whole) == found(explain(rows, "unbroken"))
    sample = explain(rows, "sample", sample=7, seed=3)
    assert len(found(sample)) == 7
    assert [*found(sample)] == [*found(explain(rows, "again", sample=7, seed=3))]
    assert [*found(sample)] != [*found(explain(rows, "other", sample=7, seed=4))]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"fast": True}, "its fast is None, not True"),
        ({"sample": 3}, "its sample is None, not 3"),
        ({"columns": Columns(group="g")}, "its group is None, not g"),
    ],
)
def test_another_run_in_the_folder_is_refused_in_one_line(explain, change, said):
    explain(texts(4))
    with pytest.raises(RationalesError, match=said):
        explain(texts(4), **change)
    with pytest.raises(RationalesError, match="its input_sha256 is"):
        explain(texts(5))


def test_columns_of_csv_and_parquet_are_read_alike(tiny_explainer, tmp_path):
    rows = [
        {"name": "a", "says": "The Supreme Court", "kind": "x", "target": "last", "minimal": True},
        {
            "name": "b",
            "says": 'The law, "of"\nthe land',
            "kind": "y",
            "target": "-1",
            "minimal": False,
        },
    ]
    columns = Columns("says", "name", "kind")
    with (tmp_path / "in.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
    paths = [tmp_path / "in.csv", write(tmp_path / "in.jsonl", rows)]
    if pyarrow := pytest.importorskip("pyarrow"):
        from pyarrow import ipc, parquet

        table = pyarrow.Table.from_pylist(rows)
        parquet.write_table(table, tmp_path / "in.parquet")
        saved = tmp_path / "data" / "train"
        saved.mkdir(parents=True)
        for number, part in enumerate((table[:1], table[1:])):
            with ipc.new_stream(saved / f"data-{number}.arrow", table.schema) as stream:
                stream.write_table(part)
        files = [{"filename": f"data-{number}.arrow"} for number in range(2)]
        (saved / "state.json").write_text(json.dumps({"_data_files": files}))
        paths += [tmp_path / "in.parquet", saved]
        with pytest.raises(RationalesError, match="holds the splits train"):
            Source(tmp_path / "data")
    runs = [
        found(rationales.run(path, tmp_path / f"out{n}", tiny_explainer, columns=columns))
        for n, path in enumerate(paths)
    ]
    assert [*runs[0]] == ["a", "b"]
    assert [line["group"] for line in runs[0].values()] == ["x", "y"]
    assert runs[0]["a"]["options"] == {"minimal": True}
    assert all(run == runs[0] for run in runs)


@pytest.mark.parametrize("column", ["text", "question"])
def test_a_column_called_question_is_one_like_others(column, tiny_explainer, tmp_path):
    (tmp_path / "in.csv").write_text("id,text,question\nr0,The law,The land\n")
    corpus = Corpus(Source(tmp_path / "in.csv"), lambda own: Options(**own), Columns(column))
    assert corpus.unread() == [{"text": "question", "question": "text"}[column]]
    outcome = rationales.run(
        tmp_path / "in.csv", tmp_path / "out", tiny_explainer, columns=Columns(column)
    )
    assert [*found(outcome)] == ["r0"]


def test_rows_of_a_csv_file_that_are_wrong(tiny_explainer, tmp_path):
    (tmp_path / "in.csv").write_bytes(
        b"text,max_size\nThe law,\nThe \xff,\nThe law,few\nThe law,1,2\n"
    )
    outcome = rationales.run(tmp_path / "in.csv", tmp_path / "out", tiny_explainer)
    assert [*found(outcome)] == [1]
    assert [each["error"] for each in outcome.failed] == [
        "not UTF-8 text",
        "the column 'max_size' holds 'few', which it cannot",
        "more cells than columns",
    ]


@pytest.mark.parametrize("name", ["missing.jsonl", "text.docx", "folder"])
def test_what_cannot_be_read_is_one_line(name, tmp_path):
    (tmp_path / "text.docx").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(RationalesError):
        Source(tmp_path / name)


def test_a_torn_line_and_a_torn_batch_are_done_again(explain):
    rows = texts(40)
    whole = found(explain(rows, "whole"))
    outcome = explain(rows)
    part = outcome.folder / "part-00000.jsonl"
    lines = part.read_bytes().splitlines(keepends=True)
    for cut in (39, 36, 17, 16, 3):
        part.write_bytes(b"".join(lines[:cut]) + lines[cut][: len(lines[cut]) // 2])
        again = explain(rows)
        assert again.state.new == 40 - cut // 16 * 16
        assert found(again) == whole


def test_a_damaged_line_is_named(explain):
    outcome = explain(texts(3))
    part = outcome.folder / "part-00000.jsonl"
    part.write_bytes(b"{}\n" + part.read_bytes())
    with pytest.raises(RationalesError, match=r"line 1 of .* is damaged"):
        explain(texts(3))


def test_a_full_disk_leaves_whole_lines(explain, monkeypatch):
    rows = texts(40)
    real, written = os.fsync, []

    def full(file: int) -> None:
        written.append(file)
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        real(file)

    with monkeypatch.context() as small:
        small.setattr(os, "fsync", full)
        with pytest.raises(RationalesError, match="no space left on the disk; what was finished"):
            explain(rows)
    again = explain(rows)
    assert again.state.new == 24
    assert found(again) == found(explain(rows, "whole"))


# Workers


def loaded(rows: list[Any], tmp_path: Path, tiny_folder: Path, out: str, execute: Execute) -> Any:
    """A run by workers whose model can be killed by a text; and what it said of faults."""
    faults: list[str] = []
    path = write(tmp_path / f"{out}.jsonl", rows)
    marks = tmp_path / f"{out}-marks"
    marks.mkdir(exist_ok=True)
    loading = Deadly(str(tiny_folder), "causal", {}, str(marks))
    given = Corpus(Source(path), lambda own: Options().change(**own))
    outcome = run_corpus(given, tmp_path / out, loading, execute, asked={}, on_fault=faults.append)
    return outcome, faults


@pytest.fixture
def whole(tiny_folder, tmp_path):
    """The lines of an unbroken run over rows, by this process."""

    def _run(rows: list[Any]) -> dict[Any, dict[str, Any]]:
        path = write(tmp_path / "whole.jsonl", rows)
        return found(rationales.run(path, tmp_path / "whole", rationales.load(tiny_folder)))

    return _run


@pytest.fixture
def executors(monkeypatch, sixteen):
    """An executor by its name; Ray's workers find the tests' modules."""
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return {"workers": Execute(workers=2), "ray": Execute(workers=2, ray="local", attempts=2)}


@pytest.mark.parametrize("executor", ["workers", pytest.param("ray", marks=pytest.mark.long)])
def test_rows_that_kill_their_worker_fail_and_the_others_are_done(
    executor, executors, tmp_path, tiny_folder, whole
):
    rows = texts(36)
    rows[3]["text"] += " ONCE"
    rows[20]["text"] += " KILL"
    rows[25]["text"] += " BUG"
    outcome, faults = loaded(rows, tmp_path, tiny_folder, "deadly", executors[executor])
    unbroken = whole(rows)
    lines = found(outcome)
    assert {*lines} == {*unbroken} - {"r20", "r25"}
    attempts = executors[executor].attempts
    for id in ("r3", "r35") if attempts == 3 else ("r35",):
        assert lines[id] == unbroken[id]  # its batch was answered again as it was
    died = f"its worker died {attempts} times"
    failed = {each["id"]: each for each in outcome.failed}
    assert {*failed} == {"r20", "r25"}
    assert failed["r20"]["error"].startswith(died)
    assert failed["r20"]["attempts"] == attempts
    assert failed["r25"]["error"] == "ZeroDivisionError: a bug"
    assert any("died" in fault and "16 rows, attempt 1" in fault for fault in faults)
    assert len(faults) == 1 + attempts
    log = (outcome.folder / "run.log").read_text()
    assert all(fault in log for fault in faults)


def test_workers_that_cannot_load_their_model_say_why(tmp_path, tiny_folder):
    path = write(tmp_path / "in.jsonl", texts(2))
    with pytest.raises(RationalesError, match="nowhere"):
        rationales.run(path, tmp_path / "out", "./nowhere", execute=Execute(workers=2))
    with pytest.raises(RationalesError, match="workers load the model themselves"):
        rationales.run(
            path, tmp_path / "out", rationales.load(tiny_folder), execute=Execute(workers=2)
        )


# The command, and kills of all of it


def command(*arguments: Any) -> list[str]:
    return [sys.executable, "-m", "rationales", "run", *map(str, arguments)]


def started(arguments: list[str], out: Path, lines: int, **how: Any) -> subprocess.Popen[bytes]:
    """A run that has written so many lines."""
    process = subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # A shell that runs the tests in the background ignores it, and so would the run.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **how,
    )
    end = time.monotonic() + 120
    while sum(path.read_bytes().count(b"\n") for path in out.glob("part-*")) < lines:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)
    return process


def members(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """What a run has started; but for Ray's agents, which look for their raylet once a minute."""
    children = psutil.Process(process.pid).children(recursive=True)
    return [each for each in children if "Agent" not in each.name()]


def all_gone(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=15)
    return all(each.status() == psutil.STATUS_ZOMBIE for each in alive)


HOW = {"local": [], "workers": ["--workers", "2"], "ray": ["--workers", "2", "--ray", "local"]}


def kill_and_resume(how: list[str], folder: Path, tiny_folder: Path, rows: int, lines: int) -> Path:
    """The folder of a run that was killed after so many lines, and went on."""
    path = write(folder / "in.jsonl", texts(rows))
    out = folder / "out"
    arguments = command(path, "--out", out, "--model", tiny_folder, *how)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = started(arguments, out, lines, env=environment)
    children = members(process)
    process.kill()
    process.communicate()
    assert all_gone(children)
    assert len(found(out)) < rows
    done = subprocess.run(arguments, capture_output=True, env=environment, text=True)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.parametrize("executor", ["local", "workers", RAY])
def test_a_run_that_is_killed_goes_on_to_the_same_lines(executor, whole, tmp_path, tiny_folder):
    out = kill_and_resume(HOW[executor], tmp_path, tiny_folder, 200, 16)
    assert found(out) == whole(texts(200))


@pytest.mark.long
@pytest.mark.parametrize("moment", range(20))
def test_kills_at_random_moments(moment, whole, tmp_path, tiny_folder):
    rng = random.Random(moment)
    executor = [*HOW][moment % 3]
    out = kill_and_resume(HOW[executor], tmp_path, tiny_folder, 600, rng.randrange(1, 500))
    assert found(out) == whole(texts(600))


@pytest.mark.long
@pytest.mark.parametrize("victim", ["worker", "actor", "node"])
def test_a_worker_that_is_killed_is_replaced(victim, whole, tmp_path, tiny_folder):
    path, out = write(tmp_path / "in.jsonl", texts(400)), tmp_path / "out"
    cluster, how = None, HOW["workers" if victim == "worker" else "ray"]
    if victim == "node":
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        second = cluster.add_node(num_cpus=1)
        how = ["--ray", cluster.address, "--workers", "2"]
    try:
        arguments = command(path, "--out", out, "--model", tiny_folder, *how)
        process = started(arguments, out, 16, env=os.environ | {"OMP_NUM_THREADS": "1"})
        if cluster is not None:
            cluster.remove_node(second, allow_graceful=False)
        else:
            names = {"actor": "ray::_Actor", "worker": "python"}
            [first, *_] = [
                each
                for each in members(process)
                if (each.name().startswith(names[victim]) and "spawn_main" in str(each.cmdline()))
                or each.name().startswith("ray::_Actor")
            ]
            first.kill()
        _, said = process.communicate()
    finally:
        if cluster is not None:
            cluster.shutdown()
    assert process.returncode == 0, said
    assert b" died (" in said
    assert " died (" in (out / "run.log").read_text()
    assert found(out) == whole(texts(400))


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_stopped_leaves_no_process(sent, code, tmp_path, tiny_folder):
    path = write(tmp_path / "in.jsonl", texts(2000))
    out = tmp_path / "out"
    arguments = command(path, "--out", out, "--model", tiny_folder, "--workers", "2")
    process = started(arguments, out, 16)
    second = subprocess.run(arguments, capture_output=True, text=True)
    assert second.returncode == 2
    assert second.stderr.count("\n") == 1
    assert "another process is writing to" in second.stderr
    status = subprocess.run(
        command("status", out), capture_output=True, text=True, check=True
    ).stdout
    assert status.startswith("running · ")
    children = members(process)
    assert len(children) >= 2
    os.killpg(process.pid, sent)
    _, said = process.communicate()
    assert process.returncode == code
    assert b"stopped: the same command goes on" in said
    assert b"Traceback" not in said
    assert all_gone(children)
    assert found(out)


def test_a_pipe_is_kept_in_the_folder(run, tmp_path, tiny_folder):
    rows = "".join(json.dumps(row) + "\n" for row in texts(3))
    arguments = ["run", "-", "--out", str(tmp_path / "out"), "--model", str(tiny_folder)]
    code, out, err = run(*arguments, stdin=rows)
    assert (code, err) == (0, "")
    assert out == f"3 rows in {tmp_path / 'out'}\n"
    assert (tmp_path / "out" / "input.jsonl").read_text() == rows
    assert run(*arguments, stdin=rows)[0] == 0
    code, _, err = run(*arguments, stdin=rows * 2)
    assert code == 2
    assert "its input_sha256 is" in err
    assert not [*(tmp_path / "out").glob(".piped*")]


def test_the_command_says_what_failed_and_what_is_not_read(run, tmp_path, tiny_folder):
    rows = [*texts(2), {"text": "The law", "taget": "last", "id": 0}, {"text": 1}]
    path = write(tmp_path / "in.jsonl", rows[::-1][1:] + rows[-1:])
    model = ["--model", str(tiny_folder)]
    code, _, err = run("run", str(path), "--out", str(tmp_path / "out"), *model)
    assert code == 3
    assert "columns that are not read: taget" in err
    assert "1 row failed" in err
    assert run("run", "status", str(tmp_path / "out"))[1].startswith(
        "finished · 3/4 rows · 1 failed"
    )
    assert run("run", "status", str(tmp_path))[0] == 2
    assert run("run", str(path))[0] == 2
    assert run("run", str(path), "more", "--out", "x")[0] == 2


def test_all_rationales_as_a_table(run, tmp_path, tiny_folder):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    rows = [{"text": "The law of the land", "id": "a"}, {"text": "The Supreme Court", "id": 7}]
    path = write(tmp_path / "in.jsonl", rows)
    model = ["--model", str(tiny_folder), "--generate", "2", "--parquet"]
    assert run("run", str(path), "--out", str(tmp_path / "out"), *model)[0] == 0
    table = pandas.read_parquet(tmp_path / "out" / "rationales.parquet")
    assert [*table["id"]] == ["a", "a", "7", "7"]
    assert [*table["size"]] == [
        len(r["indices"]) for x in found(tmp_path / "out").values() for r in x["rationales"]
    ]


def test_batches_are_by_rows_and_by_length(sixteen, monkeypatch):
    class Rows:
        def __init__(self, lengths):
            from rationales.requests import Request
            from rationales.runs.rows import Row

            self.rows = [Row(n, Request("x" * length)) for n, length in enumerate(lengths)]

    sizes = [len(batch) for batch in corpora._grouped(Rows([10] * 40).rows)]
    assert sizes == [16, 16, 8]
    monkeypatch.setattr(corpora, "_BATCH_CHARACTERS", 32_768)
    assert [len(b) for b in corpora._grouped(Rows([20_000] * 3 + [10]).rows)] == [1, 1, 2]


def test_a_worker_that_dies_idle_gets_no_two_batches():
    """Slot 0 dies with nothing to do, then slot 1 with two rows: both rows are answered."""
    from rationales.requests import Request
    from rationales.runs.workers import Answered, Batch, Died, Execution, Ready

    happens = [(0, Ready({})), (1, Ready({})), (0, Died("x")), (0, Ready({})), (1, Died("y"))]
    given: dict[int, list[Any]] = {0: [], 1: []}

    class Pool:
        size = 2

        def start(self, slot):
            pass

        def submit(self, slot, batch):
            given[slot].append(batch)

        def wait(self, seconds):
            if happens:
                # Both are ready at once: slot 1 gets the first batch.
                return [happens.pop(0), happens.pop(0)] if len(happens) == 5 else [happens.pop(0)]
            return [(0, Answered(["{}"]))]

        def close(self):
            pass

    faults: list[str] = []
    execution = Execution(Pool(), 2, lambda identity: None, faults.append)
    both = Batch((Request("a", id=1), Request("b", id=2)))
    answered = [each for each in execution.run([both]) if each is not None]
    assert [[request.id for request in batch.requests] for batch, _ in answered] == [[1], [2]]
    assert [batch.requests[0].id for batch in given[0]] == [1, 2]
    assert "without a row" in faults[0]
