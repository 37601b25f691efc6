"""Studies with people: events, assignment, what a predictor may know, export, agreement."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from sklearn.metrics import cohen_kappa_score
from starlette.testclient import TestClient

from progresses import silent
from rationales import metrics
from rationales.annotation import results
from rationales.annotation.assignment import give_work, open_lists, open_work
from rationales.annotation.export import export
from rationales.annotation.log import Log
from rationales.annotation.model_lists import SOURCES, check_makers, make_lists
from rationales.annotation.people import PERSON, Annotator, ListId, normal
from rationales.annotation.study import KIND, LIST_KEY, Settings, Study, read_study, set_up
from rationales.cli import call as cli
from rationales.data import data_file
from rationales.errors import RationalesError
from rationales.experiments.language.annotations import (
    PASSAGES,
    in_words,
    passages,
    read_rows,
    split_words,
)
from rationales.experiments.language.reveal import show
from rationales.runs import Lines, RunFolder
from rationales.serve.annotate import create_app
from studies import Client, opened, passage, write_passages

TEXTS = [passage(number) for number in range(6)]


@pytest.fixture
def study(tmp_path: Path) -> Any:
    with opened(tmp_path, TEXTS, words=3, double=0.34) as made:
        yield made


@pytest.fixture
def http(study: Study) -> Any:
    with TestClient(create_app(study), base_url="http://127.0.0.1") as client:
        yield client


def joined(study: Study, http: Any, *roles: str) -> tuple[Annotator, Client]:
    """An annotator who has agreed."""
    annotator = study.add(roles)
    client = Client(http, annotator.token)
    client.send("agree")
    return annotator, client


def ranked(annotator: Annotator, words: list[int]) -> None:
    annotator.record("words", words=words)
    annotator.record("ranked", words=words)


def views(study: Study) -> Any:
    """All that a state says."""
    return (
        [(vars(a) | {"log": None, "current": None}) for a in study.annotators.values()],
        [open_work(study, a) for a in study.annotators.values()],
        study.synonyms,
        study.token,
        open_lists(study),
        [(a.id, *rest) for a, *rest in study.rationales()],
    )


# ---- events


def test_the_state_is_what_replaying_gives(study: Study):
    dice = random.Random(1)
    people = [
        study.add(("selector",)),
        study.add(("predictor",)),
        study.add(("predictor", "selector")),
    ]
    for step in range(400):
        who = dice.choice(people)
        work = open_work(study, who)
        if work is None:
            give_work(study, who)
        elif hasattr(work, "guesses"):
            right = dice.random() < 0.2
            guess = study.passages[work.passage].word(-1) if right else f"guess{step}"
            who.record("guess", revealed=len(work.guesses) + 1, guess=guess)
            if dice.random() < 0.2:
                study.judge(work.passage, guess, dice.random() < 0.7)
        elif dice.random() < 0.1:
            who.record("released")
        elif len(work.history) > 1 and dice.random() < 0.2:
            who.record("undo")
        elif len(work.words) == 3:
            who.record("ranked", words=work.words)
        else:
            others = [place for place in range(7) if place not in work.words]
            who.record("words", words=[*work.words, dice.choice(others)])
    again = read_study(study.folder)
    assert views(again) == views(study)
    assert any(play.guesses for _, play in study.plays())
    assert any(count is not None for *_, count in study.rationales())


def test_a_torn_line_is_dropped_and_a_damaged_one_named(study: Study):
    who = study.add(("selector",))
    give_work(study, who)
    with who.log.path.open("ab") as file:
        file.write(b'{"event": "words", "wor')
    assert views(read_study(study.folder)) == views(study)  # reading changes nothing
    assert who.log.path.read_bytes().endswith(b'"wor')
    assert views(Study(study.folder, repair=True)) == views(study)
    assert who.log.path.read_bytes().endswith(b"}\n")
    data = who.log.path.read_bytes().splitlines(keepends=True)
    who.log.path.write_bytes(data[0] + b'{"event": "dance", "time": ""}\n' + data[1])
    with pytest.raises(RationalesError, match=r"line 2 of .* is damaged"):
        read_study(study.folder)


def test_reading_a_study_writes_nothing(study: Study):
    full = with_model_lists(study)
    path = study.folder / "parts/lists.jsonl"
    data = path.read_bytes() + b'{"passage": "p1", "sou'
    path.write_bytes(data)
    assert read_study(study.folder).lists == full.lists
    assert path.read_bytes() == data


def test_an_event_that_cannot_be_written_did_not_happen(study: Study, http: Any, monkeypatch: Any):
    who, client = joined(study, http, "selector")
    seen = client.send("next")
    before = who.log.path.read_bytes()

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    answer = client.answer({"do": "words", "task": seen["task"], "words": [7, 1]})
    monkeypatch.undo()
    assert answer.status_code == 503
    assert "No space left" in answer.json()["error"]
    assert who.log.path.read_bytes() == before
    assert client.send() == seen


def test_every_event_is_on_the_disk_before_it_is_answered(study: Study, monkeypatch: Any):
    synced: list[bytes] = []
    sync = os.fsync
    log = Log(study.folder / "annotators/x.jsonl")

    def spy(number: int) -> None:
        synced.append(log.path.read_bytes())
        sync(number)

    monkeypatch.setattr(os, "fsync", spy)
    for number in range(3):
        log.append("guess", guess=str(number))
        assert log.path.stat().st_mode & 0o077 == 0  # logs have tokens
        assert f'"guess": "{number}"'.encode() in synced[-1]


# ---- who is given what


def test_nobody_is_given_the_same_and_two_rank_a_share(study: Study):
    people = [study.add(("selector",)) for _ in range(3)]
    while any(give_work(study, who) for who in people):
        open_now = [work.passage for who in people if (work := open_work(study, who))]
        assert len({*open_now} - study.doubled) == len(
            [p for p in open_now if p not in study.doubled]
        )
        for who in people:
            if open_work(study, who):
                ranked(who, [7, 0, 1])
    made = [passage for _, passage, _, _ in study.rationales()]
    assert {*made} == {*study.passages}
    assert sorted(p for p in {*made} if made.count(p) == 2) == sorted(study.doubled)
    assert len(study.doubled) == 2
    for who in people:
        own = [each.passage for each in who.selections]
        assert len(own) == len({*own})


def test_a_word_that_is_not_found_goes_to_another_predictor(study: Study):
    selector, first, second, third = (
        study.add((role,)) for role in ("selector", "predictor", "predictor", "predictor")
    )
    assert not give_work(study, first)  # there are no lists yet
    give_work(study, selector)
    ranked(selector, [7, 2, 4])
    [of] = open_lists(study)
    assert give_work(study, first)
    assert not give_work(study, second)  # somebody plays it
    for revealed in (1, 2, 3):
        first.record("guess", revealed=revealed, guess="no")
    assert open_lists(study) == [of]
    assert not give_work(study, first)  # not again
    assert give_work(study, second)
    second.record("guess", revealed=1, guess="no")
    second.record("guess", revealed=2, guess=f" {study.passages[of.passage].word(-1).upper()}! ")
    assert open_lists(study) == []
    assert not give_work(study, third)
    [(_, _, words, count)] = study.rationales()
    assert (words, count) == ((7, 2, 4), 2)
    # A synonym counts from then on, and the first play in which a word was found is taken.
    study.judge(of.passage, "No", True)
    assert [count for *_, count in study.rationales()] == [1]
    study.judge(of.passage, "no", False)
    assert [count for *_, count in study.rationales()] == [2]


def test_a_selector_does_not_guess_what_they_have_ranked(study: Study):
    both = study.add(("predictor", "selector"))
    for _ in study.passages:
        assert give_work(study, both)
        ranked(both, [7, 0, 1])
    assert len(open_lists(study)) == 6
    assert not give_work(study, both)


def test_released_work_goes_to_others_but_not_back(study: Study, http: Any):
    who, client = joined(study, http, "selector")
    organiser = Client(http, study.token)
    client.send("next")
    first = open_work(study, who).passage
    organiser.send("release", annotator=who.id)
    assert client.send()["show"] == "between"
    client.send("next")
    assert open_work(study, who).passage != first
    other, other_client = joined(study, http, "selector")
    other_client.send("next")
    assert open_work(study, other).passage == first


def test_deleting_leaves_nothing_of_an_annotator(study: Study, http: Any):
    who, client = joined(study, http, "selector")
    _, guesser = joined(study, http, "predictor")
    client.send("next")
    client.rank([7, 0, 1])
    guesser.send("next")
    guesser.guess("one")
    organiser = Client(http, study.token)
    organiser.send("delete", annotator=who.id)
    everything = b"".join(path.read_bytes() for path in study.folder.rglob("*") if path.is_file())
    assert who.name.encode() not in everything
    assert who.token.encode() not in everything
    assert client.answer(None).status_code == 401
    assert guesser.send()["show"] == "between"  # the list is gone, so its play is over
    assert [each["played"] for each in organiser.send()["annotators"]] == [0]
    assert views(read_study(study.folder)) == views(study)
    assert not [*study.plays()]
    assert organiser.answer({"do": "delete", "annotator": who.id}).status_code == 404


# ---- what a predictor may know


def with_model_lists(study: Study) -> Study:
    lines = Lines(study.folder / "parts/lists.jsonl", LIST_KEY)
    made_by = json.dumps({"baseline": "last-attention"})
    (study.folder / "parts/lists.json").write_text(made_by)
    for id in study.passages:
        for number, source in enumerate(SOURCES):
            lines.add({"passage": id, "source": source, "places": [7, number, number + 1]})
    return Study(study.folder)


def test_hidden_words_are_nowhere_in_what_a_predictor_receives(tmp_path: Path):
    with opened(tmp_path, TEXTS, words=3) as first:
        study = with_model_lists(first)
        http = TestClient(create_app(study), base_url="http://127.0.0.1")
        _, selector = joined(study, http, "selector")
        for _ in range(2):
            selector.send("next")
            selector.rank([7, 3, 5])
        words = {row.word(p): (id, p) for id, row in study.passages.items() for p in range(-1, 8)}
        sources = set()
        while open_lists(study):  # a predictor plays one list of a passage
            who, client = joined(study, http, "predictor")
            shown: set[str] = set()
            while client.send("next")["show"] == "guess":
                sources.add(open_work(study, who).of.source)
                play_asking_for_more(study, who, client, words, shown)
            received = b"".join(client.received)
            for secret in (b"target", *(id.encode() for id in study.passages)):
                assert secret not in received.replace(b"before the target", b"")
            for name in (*SOURCES, PERSON, "source"):
                assert f'"{name}"'.encode() not in received
        assert sources == {PERSON, *SOURCES}
        for path in ("/", "/annotate.js", "/annotate.css", "/page.css", "/viewer.css"):
            text = http.get(path).text
            assert not [word for word in words if word in text]


def play_asking_for_more(
    study: Study,
    who: Annotator,
    client: Client,
    words: dict[str, tuple[str, int]],
    shown: set[str],
) -> None:
    """Guess until the list ends, and try before each guess what could make the server say more."""
    play = open_work(study, who)
    study.judge(play.passage, "secretsynonym", True)
    for revealed, place in enumerate(study.words(play.of), start=1):
        shown.add(study.passages[play.passage].word(place))
        seen = client.send()
        assert len(seen["revealed"]) == revealed
        task = seen["task"]
        for body in (
            {"do": "guess", "task": task, "revealed": revealed + 1, "guess": "x"},
            {"do": "guess", "task": task, "revealed": revealed, "guess": "x y"},
            {"do": "guess", "task": task, "revealed": revealed, "guess": ["x"]},
            {"do": "guess", "task": task + 1, "revealed": revealed, "guess": "x"},
            {"do": "words", "task": task, "words": [1, 2]},
            {"do": "undo", "task": task},
            {"do": "finish", "task": task},
            {"do": "judge", "passage": play.passage, "guess": "x"},
            {"do": "delete", "annotator": who.id},
            {"do": "nothing"},
            {"x": 1},
        ):
            client.answer(body)
        client.answer(None, "/parts/passages.jsonl")
        before = b"".join(client.received)
        for word, (id, _) in words.items():
            assert word in shown or word.encode() not in before, (word, id)
        # Right or wrong, the answers have the same form.
        client.guess("secretsynonym" if revealed == 1 else f"wrong{revealed}")


def test_a_right_guess_is_answered_like_a_wrong_one(study: Study, http: Any):
    _, selector = joined(study, http, "selector")
    selector.send("next")
    selector.rank([7, 3, 5])
    answers = []
    for right in (True, False):
        who, client = joined(study, http, "predictor")
        client.send("next")
        if not right:
            study.judge("p0", "nothing", True)
        work = open_work(study, who)
        word = study.passages[work.passage].word(-1) if right else "wrong"
        seen = client.guess(word)
        answers.append(json.dumps(seen).replace(word, "…").replace(who.name, "…"))
        if right:
            who.record("released")
    assert answers[0] == answers[1]


def test_one_token_opens_nothing_of_another(study: Study, http: Any):
    _, first = joined(study, http, "selector")
    _, second = joined(study, http, "selector")
    one, two = first.send("next"), second.send("next")
    assert one["text"] != two["text"]
    assert one["text"].encode() not in b"".join(second.received)
    first.send("words", task=1, words=[7, 1])
    assert second.send()["chosen"] == [7]
    organiser = Client(http, study.token)
    assert organiser.send()["show"] == "organise"
    for do in ("add", "delete", "release", "judge"):
        assert first.answer({"do": do}).status_code == 422
    assert organiser.answer({"do": "next"}).status_code == 422
    for token in ("", "x", study.token[:-1], first.token + "x"):
        assert Client(http, token).answer(None).status_code == 401
    assert http.get("/work").status_code == 401
    assert http.get("/work", params={"token": study.token}).status_code == 401


def test_what_a_selector_may_send(study: Study, http: Any):
    _, client = joined(study, http, "selector")
    client.send("next")
    for words, said in (
        ([7, 8], "places of words before the target"),
        ([7, 1, 1], "none twice"),
        ([7, -1], "places of words"),
        ([7, True], "places of words"),
        ("7", "places of words"),
        ([1, 7], "the first word must be the one before the target"),
        ([], "the first word must be"),
        ([7, 1, 2, 3], "rank 3 words, not more"),
    ):
        answer = client.answer({"do": "words", "task": 1, "words": words})
        assert answer.status_code == 422
        assert said in answer.json()["error"]
    assert "there are 1" in client.answer({"do": "finish", "task": 1}).json()["error"]
    assert client.send("words", task=1, words=[7, 2])["undoable"]
    assert client.send("words", task=1, words=[7, 2, 4])["chosen"] == [7, 2, 4]
    assert client.send("undo", task=1)["chosen"] == [7, 2]
    client.send("words", task=1, words=[7, 2, 5])
    assert client.send("finish", task=1)["show"] == "between"
    # A late answer to the same request changes nothing.
    assert client.send("finish", task=1)["show"] == "between"
    assert client.send("words", task=1, words=[7])["finished"] == 1


def test_what_is_no_text_is_refused(study: Study, http: Any):
    selector, predictor = study.add(("selector",)), joined(study, http, "predictor")[1]
    give_work(study, selector)
    ranked(selector, [7, 0, 1])
    predictor.send("next")
    organiser = Client(http, study.token)
    for who, body in (
        (predictor, rb'{"do": "guess", "task": 1, "revealed": 1, "guess": "\ud800"}'),
        (organiser, rb'{"do": "judge", "passage": "p0", "guess": "\ud800x", "accepted": true}'),
        (organiser, b'{"do": "judge", "passage": "p0", "guess": null, "accepted": true}'),
    ):
        headers = {"Authorization": f"Bearer {who.token}", "Content-Type": "application/json"}
        assert http.post("/work", content=body, headers=headers).status_code == 422
    assert not any(study.synonyms.values())


def test_consent_comes_first_and_another_text_asks_again(tmp_path: Path):
    with opened(tmp_path, TEXTS, consent="You may <b>stop</b> at any time.") as study:
        http = TestClient(create_app(study), base_url="http://127.0.0.1")
        client = Client(http, study.add(("selector",)).token)
        assert client.send()["consent"] == "You may <b>stop</b> at any time."
        assert client.answer({"do": "next"}).status_code == 403
        assert client.send("agree")["show"] == "between"
    with opened(tmp_path, TEXTS, consent="Another text.") as study:
        http = TestClient(create_app(study), base_url="http://127.0.0.1")
        assert Client(http, client.token).send()["consent"] == "Another text."


def test_hosts(study: Study):
    for is_open, status in ((False, 403), (True, 200)):
        http = TestClient(create_app(study, is_open=is_open), base_url="http://lab.example")
        assert http.get("/").status_code == status
    # Behind a proxy: the host of the request must be that of the page.
    for origin, status in (("https://lab.example", 401), ("https://other.example", 403)):
        assert http.post("/work", headers={"Origin": origin}).status_code == status


# ---- what comes out


def play_released(study: Study, rows: dict[str, Any]) -> None:
    """Rank each passage's released words first, and guess the target when they are shown."""
    selector, predictor = study.add(("selector",)), study.add(("predictor",))
    while give_work(study, selector):
        row = rows[open_work(study, selector).passage]
        words = [row.words.index(span) for span in row.rationale]
        others = [place for place in range(len(row.words) - 1) if place not in words]
        ranked(selector, [*words, *others][: study.size(str(row.id))])
    while give_work(study, predictor):
        play = open_work(study, predictor)
        row = rows[play.passage]
        for revealed in range(1, len(study.words(play.of)) + 1):
            guess = row.word(-1) if revealed >= len(row.rationale) else "no"
            predictor.record("guess", revealed=revealed, guess=guess)


def test_the_released_annotations_come_out_as_they_are(tmp_path: Path, monkeypatch: Any):
    try:
        released = data_file(PASSAGES)
    except RationalesError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(os, "fsync", lambda number: None)  # two thousand events
    rows = {str(row.id): row for row in read_rows(released)}
    given = [json.loads(line) for line in released.read_text(encoding="utf-8").splitlines()]
    with set_up(released, tmp_path / "study", Settings()) as folder:
        study = Study(folder.path)
        play_released(study, rows)
        export(study, tmp_path / "out")
    lines = (tmp_path / "out/annotations.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == given
    assert list(read_rows(tmp_path / "out/annotations.jsonl")) == list(rows.values())


def test_an_export_has_the_words_and_the_target_of_the_study(tmp_path: Path, tiny_tokenizer: Any):
    given = tmp_path / "p.jsonl"
    texts = ({"id": 1, "text": "He drank tea ."}, {"id": 2, "text": "She saw\u2028the dog . ."})
    texts[1]["words"] = [[0, 3], [4, 5], [5, 7], [8, 11], [12, 15]]
    given.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in texts))
    with set_up(given, tmp_path / "study", Settings()) as folder:
        study = Study(folder.path)
        rows = {id: replace(row, rationale=row.words[-2:-1]) for id, row in study.passages.items()}
        play_released(study, rows)
        export(study, tmp_path / "out")
    path = tmp_path / "out/annotations.jsonl"
    assert list(read_rows(path)) == [*rows.values()]
    assert ["words" in json.loads(line) for line in path.read_text().split("\n")[:-1]] == [0, 1]
    tea, dog = (tiny_tokenizer.decode(each.ids) for each in passages(tiny_tokenizer, path))
    for start, text, end in (("He drank", tea, "He drank tea"), ("She saw\u2028the", dog, "dog")):
        assert text.startswith(start)
        assert len(text) > len(start)
        assert end in text or end.startswith(text)


def test_the_files_of_an_export(study: Study, tiny_tokenizer: Any, tmp_path: Path):
    rows = {
        id: replace(row, rationale=(row.words[7], row.words[2]))
        for id, row in study.passages.items()
    }
    play_released(study, rows)
    [selector, predictor] = study.annotators.values()
    study.judge("p1", "=no", True)
    counts = export(study, tmp_path / "out")
    assert counts["annotations.jsonl"] == 6
    assert counts["selections.csv"] == counts["guesses.csv"] == 18
    own = (tmp_path / f"out/annotators/{predictor.name}.jsonl").read_text().splitlines()
    first = json.loads(own[0])
    assert [guess["revealed"] for guess in first["guesses"]] == [1, 2, 3]
    assert {
        "role": "predictor",
        "source": "person",
        "selector": selector.name,
    }.items() <= first.items()
    with (tmp_path / "out/guesses.csv").open(newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert {row["right"] for row in table if row["guess"].startswith("target")} == {"1"}
    assert {row["right"] for row in table if row["guess"] == "no"} == {"0", "1"}
    assert json.loads((tmp_path / "out/synonyms.json").read_text()) == {"p1": ["no"]}
    # What is exported is what `experiment lambada --annotations` reads.
    read = passages(tiny_tokenizer, tmp_path / "out/annotations.jsonl")
    assert [each.id for each in read] == [*study.passages]
    assert all(each.before <= each.human for each in read)
    study.delete(predictor.id)
    export(study, tmp_path / "out")
    assert not (tmp_path / f"out/annotators/{predictor.name}.jsonl").exists()
    assert (tmp_path / "out/annotations.jsonl").read_text() == ""


def test_an_export_does_not_replace_a_study(study: Study, tmp_path: Path, capsys: Any):
    study.add(("selector",))
    before = {path: path.read_bytes() for path in study.folder.rglob("*") if path.is_file()}
    folder = str(study.folder)
    assert cli(["annotate", "export", folder, "--out", folder]) == 2
    assert f"{folder} is a study: give export another --out" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in before} == before
    (tmp_path / "organiser.jsonl").touch()  # a study without its run.json
    with pytest.raises(RationalesError, match="is a study"):
        export(study, tmp_path)


def test_no_cell_is_a_formula(study: Study, tmp_path: Path):
    selector, predictor = study.add(("selector",)), study.add(("predictor",))
    give_work(study, selector)
    ranked(selector, [7, 0, 1])
    give_work(study, predictor)
    predictor.record("guess", revealed=1, guess="=HYPERLINK(1)")
    export(study, tmp_path / "out")
    assert "'=HYPERLINK(1)" in (tmp_path / "out/guesses.csv").read_text()


def test_agreement_is_that_of_scikit_learn(study: Study):
    dice = random.Random(3)
    people = [study.add(("selector",)) for _ in range(2)]
    with pytest.raises(RationalesError, match="ranked by two selectors"):
        results.agreement(study)
    for who in people:
        while give_work(study, who):
            ranked(who, [7, *dice.sample(range(7), 2)])
    made: dict[str, list[tuple[int, ...]]] = {}
    for _, id, words, _ in study.rationales():
        made.setdefault(id, []).append(words)
    kappas = [
        cohen_kappa_score(*([place in words for place in range(8)] for words in pair))
        for pair in made.values()
        if len(pair) == 2
    ]
    assert len(kappas) == 2
    table = results.agreement(study)
    rows = {row["method"]: row["cells"] for row in table["rows"]}
    assert rows["ranking"]["kappa"]["mean"] == pytest.approx(sum(kappas) / 2)
    assert rows["rationale"]["kappa"] is None  # nobody has guessed yet
    for words in made.values():
        if len(words) == 2:
            assert metrics.f1(*words) == pytest.approx(len({*words[0]} & {*words[1]}) / 3)


def test_sources_side_by_side(tmp_path: Path):
    with opened(tmp_path, TEXTS, words=3) as first:
        study = with_model_lists(first)
        with pytest.raises(RationalesError, match="no list is played"):
            results.game(study)
        people = [study.add(("predictor",)) for _ in range(4)]
        for who in people:
            while give_work(study, who):
                play = open_work(study, who)
                target = study.passages[play.passage].word(-1)
                needed = {"greedy": 1, "minimal": 2, "baseline": 3, "random": 4}[play.of.source]
                for revealed in (1, 2, 3):
                    guess = target if revealed >= needed else "no"
                    who.record("guess", revealed=revealed, guess=guess)
        table = results.game(study)
        cells = {row["method"]: row["cells"] for row in table["rows"]}
    assert "baseline last-attention (6 lists)" in json.dumps(table)
    assert [cells[source]["at_least"]["mean"] for source in SOURCES] == [1, 2, 3, 4]
    assert [cells[source]["found"]["mean"] for source in SOURCES] == [1, 1, 1, 0]
    assert cells["random"]["count"] is None
    played = [play.of for who in people for play in who.plays]
    assert len(played) == len({*played}) == 24


def _last(tried: tuple[Any, list[int]]) -> float:
    return tried[0]["logprobs"][-1]


def test_the_lists_of_a_model(tmp_path: Path, tiny_explainer: Any):
    texts = [
        "The quick brown fox, jumps over the lazy dog and the dog sleeps",
        'The law of the land is the "law',
        "The fox saw",
    ]
    rows = list(read_rows(write_passages(tmp_path / "p.jsonl", texts)))
    lines = Lines(tmp_path / "lists.jsonl", LIST_KEY)
    make_lists(tiny_explainer, rows, lines, 4, "last-attention", 0, silent)
    for row in rows:
        count = len(row.words) - 1
        for source in SOURCES:
            places = lines[str(row.id), source]["places"]
            assert places[0] == count - 1
            assert len(places) == len({*places}) == min(4, count)
            assert {*places} <= {*range(count)}
    [each] = [in_words(tiny_explainer.tokenizer, row) for row in rows[:1]]
    grown = [len(each.words) - 1]
    while len(grown) < 4:  # greedy, by hand
        tried = [[*grown, place] for place in range(len(each.words)) if place not in grown]
        grown = max(zip(show(tiny_explainer, each, tried), tried, strict=True), key=_last)[1]
    assert lines["p0", "greedy"]["places"] == grown
    before = lines.path.read_text()
    make_lists(tiny_explainer, rows, lines, 4, "last-attention", 0, silent)
    assert lines.path.read_text() == before


def test_lists_are_of_one_model_and_one_baseline(study: Study, tiny_explainer: Any):
    folder = RunFolder(study.folder, KIND)
    lines = folder.lines(LIST_KEY, "lists")
    for baseline in ("random", "last-attention"):  # as long as there are no lists
        check_makers(folder, tiny_explainer, baseline, lines)
    lines.add({"passage": "p0", "source": "greedy", "places": [7]})
    check_makers(folder, tiny_explainer, "last-attention", lines)
    with pytest.raises(RationalesError, match="the baseline last-attention, not random"):
        check_makers(folder, tiny_explainer, "random", lines)
    path = study.folder / "parts/lists.json"
    known = json.loads(path.read_text())
    path.write_text(json.dumps(known | {"model_fingerprint": "0"}))
    with pytest.raises(RationalesError, match="other weights of"):
        check_makers(folder, tiny_explainer, "last-attention", lines)


def test_a_target_that_shares_a_token_with_the_word_before(tmp_path: Path, tiny_tokenizer: Any):
    (tmp_path / "p.jsonl").write_text(
        '{"id": 7, "text": "The fox saw the", "words": [[0, 3], [4, 7], [12, 14], [14, 15]]}'
    )
    [row] = read_rows(tmp_path / "p.jsonl")
    with pytest.raises(RationalesError, match="passage 7: 'th' and the target 'e' are one token"):
        in_words(tiny_tokenizer, row)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '"You," he said--"no one\'s" (yes)—it\'s',
            ["You", "he", "said", "no", "one's", "yes", "it's"],
        ),
        (
            "Cl-clear... um… 3.5% eatin' x_y _z_ 東京 naïve",
            ["Cl-clear", "um", "3.5", "eatin", "x_y", "z", "東京", "naïve"],
        ),
        ("<b>hi</b>", ["b>hi</b"]),
        ("… — !", []),
        ("हिन्दी, भाषा।", ["हिन्दी", "भाषा"]),
    ],
)
def test_words(text: str, words: list[str]):
    assert [text[start:end] for start, end in split_words(text)] == words


def test_guesses_are_compared_without_case_and_marks():
    assert normal(" “Scratches!” ") == normal("scratches") == "scratches"
    assert normal("don't") != normal("dont")
    assert normal("…") == normal("❤️") == ""
    assert normal("«हिन्दी!»") == "हिन्दी"


# ---- the command


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "holds no passages"),
        ('{"text": "one"}', "needs a last word and one before it"),
        ('{"text": "a b"}\n{"text": "a b"}', "the text 'a b' twice"),
        ('{"id": 1, "text": "a b"}\n{"id": "1", "text": "a c"}', "the id '1' twice"),
        ('{"id": 1}', "line 1 of p.jsonl is not a passage"),
        ("nonsense", "line 1 of p.jsonl is not a passage"),
        ('{"text": "a b", "words": [[0, 9]]}', "line 1 of p.jsonl: the span [0, 9] is not within"),
        ('{"text": "ab c", "words": [[0, 2], [1, 2], [3, 4]]}', "[0, 2] and [1, 2] overlap"),
        ('{"text": "ab c", "words": [[3, 4], [0, 2]]}', "out of order"),
        ('{"id": 5, "text": "a :-)", "words": [[0, 1], [2, 5]]}', "':-)' of passage 5"),
        ('{"text": "a \\ud800 b"}', "line 1 of p.jsonl: the text is not valid Unicode"),
    ],
)
def test_passages_that_cannot_be_annotated(lines: str, message: str, tmp_path: Path, capsys: Any):
    (tmp_path / "p.jsonl").write_text(lines)
    assert cli(["annotate", str(tmp_path / "p.jsonl"), "--out", str(tmp_path / "study")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_commands_on_a_study(study: Study, tmp_path: Path, capsys: Any):
    folder = str(study.folder)
    for arguments, message in (
        (["annotate", "p.jsonl"], "give --out a folder"),
        (["annotate", "p.jsonl", "q.jsonl"], "export, agreement, results"),
        (["annotate", "export", str(tmp_path)], "holds no run"),
        (["annotate", "export", "--out", folder], "rationales annotate export study"),
        (["annotate", "agreement", folder, "--out", "x"], "--out is not for annotate agreement"),
        (["annotate", "results", folder, "--out", "x"], "--out is not for annotate results"),
        (["annotate", "export", folder, "--words", "3"], "--words is not for annotate export"),
        (["annotate", "export", folder, "--model", "x"], "--model is not for annotate export"),
        (["annotate", "p.jsonl", "--out", folder, "--model", "x"], "--model is for --play"),
        (["annotate", "p.jsonl", "--out", folder, "--baseline", "x"], "--baseline is for --play"),
        (["annotate", "agreement", folder], "ranked by two selectors"),
        (["annotate", "results", folder], "played to its end"),
        (["annotate", "nowhere.jsonl", "--out", folder], "cannot read nowhere.jsonl"),
        (["annotate", str(tmp_path / "passages.jsonl"), "--out", folder], "another process"),
    ):
        assert cli(arguments) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    play_released(study, {i: replace(r, rationale=r.words[7:8]) for i, r in study.passages.items()})
    other = study.add(("selector",))
    while give_work(study, other):
        ranked(other, [7, 5, 6])
    assert cli(["annotate", "agreement", folder]) == 0
    assert "| all ranked words |" in capsys.readouterr().out
    assert cli(["annotate", "results", folder]) == 0
    assert "a person's words (6 lists)" in capsys.readouterr().out
    assert cli(["annotate", "export", folder, "--out", str(tmp_path / "out")]) == 0
    assert "6 lines in" in capsys.readouterr().out
    assert (tmp_path / "out/annotations.jsonl").exists()


def test_an_address_that_others_can_open_is_printed(tmp_path: Path, monkeypatch: Any, capsys: Any):
    monkeypatch.setattr("rationales.serve.server.serve", lambda app, listening: None)
    given = write_passages(tmp_path / "p.jsonl", TEXTS)
    start = ["annotate", str(given), "--out", str(tmp_path / "study"), "--port", "0"]
    for host, printed in (("0.0.0.0", socket.gethostname()), ("127.0.0.1", "127.0.0.1")):
        assert cli([*start, "--host", host]) == 0
        said = capsys.readouterr()
        assert said.out.startswith(f"http://{printed}:")
        assert ("annotators can open too" in said.err) == (host == "0.0.0.0")


# ---- a server that is killed


@pytest.mark.parametrize(
    "kills", [pytest.param(1, id="once"), pytest.param(10, id="ten", marks=pytest.mark.long)]
)
def test_no_acknowledged_event_is_lost_when_the_server_is_killed(kills: int, tmp_path: Path):
    dice = random.Random()
    given = write_passages(tmp_path / "p.jsonl", [passage(n, 60) for n in range(40)])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = "from rationales.cli import main; main()"
    start = [sys.executable, "-c", code, "annotate", str(given), "--out", str(tmp_path / "study")]
    tokens: dict[str, str] = {}
    acknowledged: dict[str, list[list[int]]] = {"one": [], "two": []}
    for _ in range(kills):
        server = subprocess.Popen([*start, "--port", str(port)], stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        address, _, organiser = server.stdout.readline().strip().partition("/#")
        with httpx.Client(base_url=address, timeout=20) as http:
            boss = Client(http, organiser)
            for name in acknowledged:
                if name not in tokens:
                    tokens[name] = boss.send("add", roles=["selector"])["annotators"][-1]["token"]
                    who = Client(http, tokens[name])
                    who.send("agree")
            for name, token in tokens.items():
                seen = Client(http, token).send()
                if acknowledged[name] and seen["show"] == "select":
                    known, now = acknowledged[name][-1], seen["chosen"]
                    # One event may be there that was not acknowledged, or a new passage.
                    assert now[: len(known)] == known or len(now) <= 2
        with ThreadPoolExecutor() as pool:
            workers = [
                pool.submit(_work_until_it_dies, address, tokens[name], acknowledged[name])
                for name in acknowledged
            ]
            time.sleep(dice.uniform(0.3, 1.2))
            server.send_signal(signal.SIGKILL)
        for worker in workers:
            worker.result()  # an answer that is an error raises
        server.wait()
        server.stdout.close()
        study = read_study(tmp_path / "study")
        by_token = {each.token: each for each in study.annotators.values()}
        for name, token in tokens.items():
            written = [[*w] for s in by_token[token].selections for w in s.history[1:]]
            acks = acknowledged[name]
            assert acks
            # At most one event more is there than was acknowledged, for each kill.
            rest = iter(written)
            assert all(each in rest for each in acks)
            assert len(written) <= len(acks) + kills


def _work_until_it_dies(address: str, token: str, acknowledged: list[list[int]]) -> None:
    """Rank words, and note each list of words that the server has acknowledged."""
    dice = random.Random()
    try:
        with httpx.Client(base_url=address, timeout=20) as http:
            client = Client(http, token)
            while True:
                seen = client.send()
                if seen["show"] != "select":
                    seen = client.send("next")
                while len(seen["chosen"]) < seen["size"]:
                    free = [p for p in range(60) if p not in seen["chosen"]]
                    words = [*seen["chosen"], dice.choice(free)]
                    seen = client.send("words", task=seen["task"], words=words)
                    acknowledged.append(words)
                client.send("finish", task=seen["task"])
    except httpx.TransportError:
        return


def test_a_list_is_known_by_its_passage_source_and_selector():
    assert ListId("p", "greedy") == ListId("p", "greedy", None) != ListId("p", PERSON, "a")
