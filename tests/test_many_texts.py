"""Many texts: answers in order as they finish, an answer for each line, and no answer lost."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

from rationales import (
    Explainer,
    Explanation,
    Failure,
    Interrupted,
    Options,
    Progress,
    RationalesError,
    Request,
    Score,
)
from rationales.scoring.protocol import Query

TEXT = "the dog sat on the"


class Reluctant:
    """A scorer under which no subset is sufficient; it fails if a text holds the poison."""

    max_positions = 50

    def __init__(self, poison: int | None = None) -> None:
        self.poison = poison
        self.scored = 0

    def score(self, queries: Sequence[Query]) -> list[Score]:
        self.scored += len(queries)
        if any(self.poison in context.ids for context, _ in queries):
            raise RationalesError("the model's probabilities are NaN")
        return [Score(-1.0, 0) for _ in queries]


# Answers as they finish -----------------------------------------------------------------------


def test_of_300_equal_texts_the_first_is_answered_early(tiny_tokenizer):
    scorer = Reluctant()
    explainer = Explainer(scorer, tiny_tokenizer)
    begun: list[int] = []

    def requests():
        for number in range(300):
            begun.append(number)
            yield Request(f"{TEXT} {number % 10} cat", Options(target="last"), number)

    at = [(a.id, scorer.scored, len(begun)) for a in explainer.explain_all(requests())]
    assert [id for id, _, _ in at] == list(range(300))
    assert at[0][1] <= 0.05 * scorer.scored
    assert at[0][2] <= 0.05 * 300


# Failures -------------------------------------------------------------------------------------


def test_a_request_that_fails_is_answered_and_the_others_go_on(tiny_tokenizer):
    [poison] = tiny_tokenizer("Q", add_special_tokens=False)["input_ids"]
    explainer = Explainer(Reluctant(poison), tiny_tokenizer)
    last = Options(target="last")
    requests = [
        Failure(RationalesError("not even a text"), "a"),
        Request(TEXT, last, "b"),
        Request("", last, "c"),
        Request("long " * 100, last, "d"),
        Request(TEXT, Options(target="zebra"), "e"),
        Request("\ud800", last, "f"),
        Request(TEXT, Options(target="last", instead_of="\ud800"), "g"),
        Request(TEXT, Options(target="last", prefix="x"), "h"),
        Request("the Q dog", last, "i"),
        Request(TEXT, Options(target="last", criterion="top-k=2"), "j"),  # no ranks here
        Request(TEXT, Options(target="last", method="last-attention"), "k"),  # no model either
        Request("a b c", last, "l"),
    ]
    answers = list(explainer.explain_all(requests))
    assert [answer.id for answer in answers] == list("abcdefghijkl")
    said = {a.id: str(a.error) for a in answers if isinstance(a, Failure)}
    assert sorted(said) == list("acdefghijk")
    words = ("not even", "empty", "positions", "zebra", "Unicode", "Unicode", "prefix", "NaN")
    for id, word in zip("acdefghi", words, strict=True):
        assert word in said[id]
    assert all("\n" not in message for message in said.values())
    for answer in answers:
        if isinstance(answer, Explanation):
            assert answer.complete
            assert len(answer) == 1


def test_failures_are_answered_as_they_come(tiny_tokenizer):
    [poison] = tiny_tokenizer("Q", add_special_tokens=False)["input_ids"]
    explainer, begun = Explainer(Reluctant(poison), tiny_tokenizer), []

    def requests():
        for number in range(100):
            begun.append(number)
            yield Request("the Q sat", Options(target="last"), number)

    answers = explainer.explain_all(requests())
    assert isinstance(next(answers), Failure)
    assert len(begun) < 50
    assert [answer.id for answer in answers] == list(range(1, 100))


def test_the_errors_of_a_ranker_are_those_of_its_text(tiny_explainer, monkeypatch):
    def attribute(contexts, *_):
        return [[0.0 if len(c.ids) < 6 else float("nan")] * len(c.ids) for c in contexts]

    monkeypatch.setattr("rationales.ranking.importances.attribute", attribute)
    options = Options(target="last", method="nearest-first")
    texts = ["the dog", "the law of the land is the law", "the fox"]
    answers = list(tiny_explainer.explain_all(Request(text, options) for text in texts))
    assert [type(answer) for answer in answers] == [Explanation, Failure, Explanation]


def test_a_list_of_texts_raises_the_first_failure_and_names_its_text(tiny_explainer):
    with pytest.raises(RationalesError, match=r"^text 2 of 3: the text is empty"):
        tiny_explainer.explain([TEXT, "", "the dog"], target="last")
    with pytest.raises(RationalesError, match=r"^the text is empty"):
        tiny_explainer.explain("", target="last")


def test_an_interrupt_of_a_list_holds_what_was_finished_before(tiny_tokenizer):
    explainer = Explainer(Reluctant(), tiny_tokenizer)
    answered: list[Explanation] = []

    def interrupt(progress: Progress) -> None:
        if progress.done == 30:
            raise KeyboardInterrupt

    requests = (Request(TEXT, Options(target="last"), number) for number in range(300))
    with pytest.raises(Interrupted) as interrupted:
        answered.extend(explainer.explain_all(requests, on_progress=interrupt))
    partial = interrupted.value.explanations
    assert [e.id for e in (*answered, *partial)] == list(range(30))
    assert all(len(e) == 1 for e in partial), "none without a rationale"

    many = Explainer(Reluctant(), tiny_tokenizer)
    plain = many.explain_all
    many.explain_all = lambda requests: plain(requests, on_progress=interrupt)
    with pytest.raises(Interrupted) as interrupted:
        many.explain([TEXT] * 300, target="last")
    assert len(interrupted.value.explanations) == 30


# JSON lines -----------------------------------------------------------------------------------

BAD = {
    "not JSON": b"{",
    "expected an object": b"[1]",
    'with a "text"': b'{"text": 5, "id": 1}',
    "not UTF-8": b'{"text": "\xff"}',
    "Unicode": b'{"text": "x", "id": "\\ud800"}',
    "the id must": b'{"text": "x", "id": 1.5}',
    "whole number": b'{"text": "x", "id": true}',
    "target must": b'{"text": "x", "target": 3.5}',
    "chat must": b'{"text": "x", "chat": 1}',
    "unknown option 'colour'": b'{"text": "x", "colour": 1}',
    "max_size must": b'{"text": "x", "max_size": "a"}',
    "leave out generate": b'{"text": "x", "generate": 2, "continuation": "y"}',
    "unknown method": b'{"text": "x", "method": "magic"}',
    "empty": b'{"text": " "}',
    "positions": b'{"text": "' + b"word " * 4000 + b'"}',
    "is not in the text": b'{"text": "x", "id": 7, "target": "zebra"}',
    "recursion": b'{"text": ' + b"[" * 100_000 + b"}",
    "digits": b'{"text": "x", "seed": ' + b"1" * 5000 + b"}",
}
GOOD = b'{"text": "the dog sat", "id": "good", "target": "last"}'


def failure_schema() -> dict:
    schema = json.loads(resources.files("rationales").joinpath("schema.json").read_text())
    return {"$ref": "#/$defs/Failure", "$defs": schema["$defs"]}


def test_every_line_gets_an_answer_in_order(run, tmp_path):
    path = tmp_path / "in.jsonl"
    lines = [line for bad in BAD.values() for line in (bad, b"  ", GOOD)]
    path.write_bytes(b"\xef\xbb\xbf\n" + b"\r\n".join(lines))
    code, out, err = run("explain", "--jsonl", str(path))
    assert code == 3
    first = "line 2: not JSON (Expecting property name enclosed in double quotes, character 2)"
    assert err == f"{len(BAD)} of {2 * len(BAD)} lines failed; the first: {first}\n"
    answers = [json.loads(line) for line in out.splitlines()]
    assert len(answers) == 2 * len(BAD)
    for number, (says, bad, good) in enumerate(zip(BAD, answers[::2], answers[1::2], strict=True)):
        jsonschema.validate(bad, failure_schema())
        assert says in bad["error"]
        assert bad["line"] == 2 + 3 * number
        assert Explanation.from_dict(good).id == "good"
    assert {a["id"] for a in answers[::2] if "id" in a} == {1, 7}


@pytest.mark.parametrize("given", [b"", b"\n \n"])
def test_no_lines_are_an_error_before_a_model_is_loaded(run, tmp_path, given):
    path = tmp_path / "in.jsonl"
    path.write_bytes(given)
    code, out, err = run("explain", "--jsonl", str(path), "--model", "nobody/none", model=False)
    assert (code, out) == (2, "")
    assert err == "error: the JSON lines hold no text\n"


def start(*arguments, **more) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "rationales", *map(str, arguments)],
        stdout=more.pop("stdout", subprocess.PIPE),
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        # Ignored signals are inherited: a shell's background jobs have this one ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        **more,
    )


def test_a_pipe_that_stays_open_is_answered_and_ctrl_c_keeps_what_is_finished(
    tiny_folder, tmp_path
):
    out = tmp_path / "out.jsonl"
    out.write_text("old\n")
    arguments = ("explain", "--jsonl", "-", "--model", tiny_folder)
    process = start(*arguments, "--json", out, "--format", "json", stdin=subprocess.PIPE, bufsize=0)
    assert process.stdin is not None
    assert process.stdout is not None
    for line in (GOOD, b"{", GOOD):
        process.stdin.write(line + b"\n")
        assert json.loads(process.stdout.readline())
    assert out.read_text() == "old\n", "the old file stays until the new one is whole"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.decode() == f"3 answers are in {out}.partial\ninterrupted\n"
    assert out.read_text() == "old\n"
    kept = [json.loads(line) for line in Path(f"{out}.partial").read_text().splitlines()]
    assert ["error" in line for line in kept] == [False, True, False]
    # What is kept is not lost by the next run.
    process = start(*arguments, "--json", out, stdin=subprocess.PIPE)
    _, err = process.communicate(GOOD, timeout=60)
    assert process.returncode == 2
    assert f"{out}.partial is there already" in err.decode()


# Files ----------------------------------------------------------------------------------------


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_bytes(GOOD + b"\n" + GOOD + b"\n")
    return path


@pytest.mark.parametrize("name", ["in.jsonl", "./in.jsonl", "soft", "hard", "whole"])
def test_the_input_is_never_written(run, lines, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path("soft").symlink_to("in.jsonl")
    os.link("in.jsonl", "hard")
    os.link("in.jsonl", "whole.partial")
    before = sorted(os.listdir())
    for reading in ("--jsonl", "--file"):
        code, out, err = run(
            *("explain", reading, "in.jsonl", "--json", name, "--model", "nobody/none"),
            model=False,
        )
        assert (code, out) == (2, "")
        assert "give --json another place" in err
        assert err.count("\n") == 1
    assert lines.read_bytes() == GOOD + b"\n" + GOOD + b"\n"
    assert sorted(os.listdir()) == before


def test_the_input_is_never_written_through_standard_input_or_output(lines, tiny_folder):
    for place in ("-", "/dev/stdin"):
        with lines.open("rb") as file:
            arguments = ("explain", "--jsonl", place, "--json", lines, "--model", tiny_folder)
            process = start(*arguments, stdin=file)
            _, err = process.communicate(timeout=60)
        assert process.returncode == 2
        assert "which --json would write" in err.decode()
    with lines.open("ab") as file:
        process = start("explain", "--jsonl", lines, "--model", tiny_folder, stdout=file)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "standard output goes to the file" in err.decode()
    assert lines.read_bytes() == GOOD + b"\n" + GOOD + b"\n"


def test_a_link_stays_and_what_it_leads_to_is_replaced(run, lines, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "real.jsonl").write_text("old")
    link = tmp_path / "link.jsonl"
    link.symlink_to("folder/real.jsonl")
    dangling = tmp_path / "dangling.jsonl"
    dangling.symlink_to("folder/new.jsonl")
    for path in (link, dangling):
        assert run("explain", "--jsonl", str(lines), "--json", str(path))[0] == 0
        assert path.is_symlink()
        assert len(path.read_text().splitlines()) == 2
    assert sorted(p.name for p in folder.iterdir()) == ["new.jsonl", "real.jsonl"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("format", ["table", "tsv", "json"])
def test_a_full_disk_behind_standard_output_is_one_line(tiny_folder, lines, format):
    with open("/dev/full", "wb") as full:
        arguments = ("explain", "--jsonl", lines, "--model", tiny_folder, "--format", format)
        process = start(*arguments, stdout=full, stdin=subprocess.DEVNULL)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.decode() == "error: cannot write to standard output: No space left on device\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_device_is_one_line(run):
    code, _, err = run("explain", TEXT, "--json", "/dev/full")
    assert code == 2
    assert err == "error: cannot write /dev/full: No space left on device\n"


def test_a_full_disk_keeps_the_answers_that_are_whole(lines, tiny_folder, tmp_path):
    """A real limit on the size of files: the second answer is written in part, then refused."""
    out = tmp_path / "out.jsonl"
    arguments = ["explain", "--jsonl", str(lines), "--model", str(tiny_folder), "--json"]
    assert subprocess.run([sys.executable, "-m", "rationales", *arguments, out]).returncode == 0
    room = len(out.read_bytes().splitlines(keepends=True)[0]) + 100
    done = subprocess.run(
        [sys.executable, "-m", "rationales", *arguments, out],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    partial = f"{out}.partial"
    assert done.stderr == f"1 answer is in {partial}\nerror: cannot write {out}: File too large\n"
    assert [Explanation.from_json(x).id for x in Path(partial).read_text().splitlines()] == ["good"]
    assert len(out.read_text().splitlines()) == 2, "what was there before is still there"


def test_nothing_stays_of_a_run_without_an_answer(run, tmp_path):
    path = tmp_path / "x.json"
    assert run("explain", TEXT, "--target", "zebra", "--json", str(path))[0] == 2
    assert list(tmp_path.iterdir()) == []


# Formats --------------------------------------------------------------------------------------


def test_the_format_is_chosen(run, lines, tmp_path):
    plain = run("explain", TEXT)[1]
    assert run("explain", TEXT, "--format", "tsv")[1] == plain
    assert "context" in run("explain", TEXT, "--format", "table")[1]
    as_json = run("explain", TEXT, "--format", "json")[1]
    assert (
        Explanation.from_json(as_json).text
        == Explanation.from_json(run("explain", TEXT, "--json", "-")[1]).text
    )
    # A file may be written besides.
    path = tmp_path / "x.json"
    assert run("explain", TEXT, "--format", "tsv", "--json", str(path))[1] == plain
    assert Explanation.load(path)
    for bad in (("--format", "xml"), ("--format", "tsv", "--json", "-")):
        code, out, err = run("explain", TEXT, *bad, "--model", "nobody/none", model=False)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "--format" in err


def test_several_texts_in_every_format(run, lines):
    lines.write_bytes(GOOD + b"\n{\n" + GOOD.replace(b'"good"', b"7") + b"\n")
    code, out, err = run("explain", "--jsonl", str(lines), "--format", "tsv")
    assert code == 3
    header, *rows = [line.split("\t") for line in out.splitlines()]
    assert header[:3] == ["line", "id", "target"]
    assert [row[:2] for row in rows] == [["1", '"good"'], ["3", "7"]]
    assert err.splitlines()[0].startswith("error: line 2: not JSON")
    assert err.splitlines()[1].startswith("1 of 3 lines failed; the first: line 2:")
    code, out, _ = run("explain", "--jsonl", str(lines), "--format", "table")
    assert code == 3
    assert "line 1 · id good" in out
    assert "line 3 · id 7" in out
    code, out, _ = run("explain", "--jsonl", str(lines), "--format", "json")
    assert (code, len(out.splitlines())) == (3, 3)


def test_a_pager_that_is_quit_is_no_error(lines, tiny_folder):
    lines.write_bytes((GOOD + b"\n") * 40)
    for format in ("table", "tsv", "json"):
        command = (
            f"'{sys.executable}' -m rationales explain --jsonl '{lines}' "
            f"--model '{tiny_folder}' --format {format} | head -1; echo ${{PIPESTATUS[0]}}"
        )
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
        assert done.stderr == ""
        assert done.stdout.splitlines()[-1] == "141"


def test_the_help_names_the_exit_codes(run):
    for command in ("explain", "translate"):
        assert "Exit codes" in run(command, "--help", model=False)[1]
