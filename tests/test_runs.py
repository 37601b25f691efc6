"""Run folders: identity, resuming, overwriting, versions; and lines that survive a kill."""

from __future__ import annotations

import errno
import json
import multiprocessing
from collections import Counter

import pytest

from rationales.errors import RationalesError, RationalesWarning
from rationales.runs import RUN, Lines, Pace, RunFolder, seconds_in, versions

KIND = "experiment x"


def test_a_run_goes_on_and_parts_are_computed_once(tmp_path):
    folder = RunFolder(tmp_path / "run", KIND)
    with folder.opened({"seed": 1, "sizes": (1, 2)}):
        assert folder.part("a", lambda: {"n": (1, 2)}) == {"n": [1, 2]}
    with folder.opened({"seed": 1, "sizes": [1, 2]}):
        assert folder.part("a", lambda: 1 / 0) == {"n": [1, 2]}
    found = json.loads((folder.path / RUN).read_text())
    assert found["kind"] == KIND
    assert found["versions"] == versions()


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({"seed": 1}, {"seed": 2}, "its seed is 1, not 2"),
        ({"seed": 1}, {}, "its seed is 1, not None"),
        ({"data": {"a": 1, "b": 2}}, {"data": {"a": 1, "b": 3}}, "its b is 2, not 3"),
        ({"data": ["a"]}, {"data": ["b"]}, "its data differs"),
        ({"data": 1}, {"data": {"b": 3}}, "its data differs"),
    ],
)
def test_another_identity_is_refused_and_named(before, now, said, tmp_path):
    with RunFolder(tmp_path, KIND).opened(before):
        pass
    with pytest.raises(RationalesError, match=said), RunFolder(tmp_path, KIND).opened(now):
        pass
    other = RunFolder(tmp_path, "compat train")
    with (
        pytest.raises(RationalesError, match="holds a run of experiment x"),
        other.opened(before, overwrite=True),
    ):
        pass


def test_overwrite_removes_what_the_former_run_wrote_and_nothing_else(tmp_path):
    folder = RunFolder(tmp_path, KIND)
    with folder.opened({"seed": 1}):
        folder.write("table.md", "old")
        folder.write("old.svg", "<svg/>")
        (tmp_path / "weights").write_text("old")
        folder.record(["weights"])
        folder.lines(("a",)).add({"a": 1})
    (tmp_path / "notes.txt").write_text("of the user")
    with folder.opened({"seed": 2}, overwrite=True):
        folder.write("table.md", "new")
        assert len(folder.lines(("a",))) == 0
    assert {f.name for f in tmp_path.iterdir()} == {RUN, ".lock", "table.md", "notes.txt"}
    assert json.loads((tmp_path / RUN).read_text())["files"] == ["table.md"]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["thesis.tex", "parts", "compat.json"])
def test_a_folder_of_other_things_is_refused(name, overwrite, tmp_path):
    (tmp_path / name).write_text("important")
    with (
        pytest.raises(RationalesError, match="has other files"),
        RunFolder(tmp_path, KIND).opened({}, overwrite),
    ):
        pass
    assert (tmp_path / name).read_text() == "important"


def test_another_name_of_the_same_weights_goes_on(tmp_path):
    with RunFolder(tmp_path, KIND).opened({"weights": "abc"}, names={"model": "mine"}):
        pass
    with RunFolder(tmp_path, KIND).opened({"weights": "abc"}, names={"model": "renamed"}):
        pass
    assert json.loads((tmp_path / RUN).read_text())["names"] == {"model": "mine"}


@pytest.mark.parametrize("content", ["no json", "[]", "{}"])
def test_a_damaged_record_is_one_line(content, tmp_path):
    (tmp_path / RUN).write_text(content)
    with (
        pytest.raises(RationalesError, match=r"cannot read .*: give another --out"),
        RunFolder(tmp_path, KIND).opened({}, overwrite=True),
    ):
        pass


@pytest.mark.parametrize("recorded", [{}, {"rationales": "0.0.1"}])
def test_other_versions_warn_and_do_not_refuse(recorded, tmp_path):
    folder = RunFolder(tmp_path, KIND)
    with folder.opened({}):
        pass
    found = json.loads((tmp_path / RUN).read_text())
    (tmp_path / RUN).write_text(json.dumps(found | {"versions": recorded}))
    with (
        pytest.warns(RationalesWarning, match="begun with other versions: .*rationales"),
        folder.opened({}),
    ):
        pass


def test_one_process_at_a_time_and_the_lock_file_stays(tmp_path):
    with RunFolder(tmp_path, KIND).opened({}):
        with (
            pytest.raises(RationalesError, match="another process is writing"),
            RunFolder(tmp_path, KIND).opened({}),
        ):
            pass
        before = (tmp_path / ".lock").stat().st_ino
    with RunFolder(tmp_path, KIND).opened({}):
        assert (tmp_path / ".lock").stat().st_ino == before


def _hold(path, ready, leave):
    with RunFolder(path, KIND).opened({}):
        ready.set()
        leave.wait(30)


def test_the_lock_holds_between_processes_and_ends_with_one(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready, leave = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(tmp_path, ready, leave))
    process.start()
    assert ready.wait(60)
    with (
        pytest.raises(RationalesError, match="another process"),
        RunFolder(tmp_path, KIND).opened({}),
    ):
        pass
    process.kill()
    process.join()
    with RunFolder(tmp_path, KIND).opened({}):
        pass


def test_a_file_is_whole_or_not_there(tmp_path):
    folder = RunFolder(tmp_path, KIND)
    with folder.opened({}):
        with pytest.raises(ZeroDivisionError), folder.writing("table.md") as path:
            path.write_text(str(1 / 0))
        with (
            pytest.raises(RationalesError, match=r"cannot write .*no space left"),
            folder.writing("table.md"),
        ):
            raise OSError(errno.ENOSPC, "No space left on device")
    assert {f.name for f in tmp_path.iterdir()} == {RUN, ".lock"}


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(RationalesError, match=r"cannot write run\.json"),
        RunFolder(tmp_path / "file" / "run", KIND).opened({}),
    ):
        pass


def test_lines_are_found_again_and_a_torn_one_is_dropped(tmp_path):
    path = tmp_path / "parts" / "lines.jsonl"
    lines = Lines(path, ("example", "method"))
    lines.add({"example": "ä", "method": "greedy", "n": 1})
    lines.add({"example": "ä", "method": "random", "n": 2})
    whole = path.read_bytes()
    for torn in (b'{"example": "b"', b"\xff\xfe", b'{"example": "b", "method": "x"}'):
        path.write_bytes(whole + torn)
        again = Lines(path, ("example", "method"))
        assert list(again) == list(lines)
        assert path.read_bytes() == whole
        assert ("ä", "random") in again
        assert again["ä", "random"]["n"] == 2
        assert len(again) == 2


@pytest.mark.parametrize("damage", ['{"example": 1}\n', "no json\n", "[1]\n"])
def test_a_damaged_line_is_one_line(damage, tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_text('{"example": 1, "method": 2}\n' + damage)
    with pytest.raises(RationalesError, match=r"line 2 of .* is damaged"):
        Lines(path, ("example", "method"))


def test_lines_that_cannot_be_written_are_one_line(tmp_path):
    (tmp_path / "parts").write_text("a file, not a folder")
    with pytest.raises(RationalesError, match="cannot write"):
        Lines(tmp_path / "parts" / "lines.jsonl", ("a",)).add({"a": 1})


def test_the_time_left_is_that_of_the_kinds_that_are_left():
    pace = Pace(Counter(["slow", "slow", "fast"]), total=4)
    assert pace.done == 1
    assert pace.note == ""
    pace._since -= 100
    assert pace.finish("slow") == pytest.approx(100, abs=1)
    assert pace.done == 2
    assert pace.note == "3 min left"  # one slow piece, and one of a kind nobody has seen
    pace._since -= 1
    pace.finish("fast")
    assert pace.note == "2 min left"
    pace.finish("slow")
    assert pace.note == ""
    long = Pace(Counter(["x", "x"]), total=2)
    long._since -= 7200
    long.finish("x")
    assert long.note == "2.0 h left"
    short = Pace(Counter(["x", "x"]), total=2)
    short._since -= 10
    short.finish("x")
    assert short.note == "10 s left"


def test_the_time_of_all_runs_is_that_of_their_lines(tmp_path):
    path = tmp_path / "lines.jsonl"
    assert seconds_in(path) == 0
    lines = Lines(path, ("a",))
    for a in range(3):
        lines.add({"a": a, "seconds": 1.5})
    lines.add({"a": 3})
    assert seconds_in(path) == 4.5
