"""Models behind an endpoint: the ways of asking, on a server that is told what to answer."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import rationales
from rationales import Explanation, RationalesError
from rationales.endpoints import client as client_module
from rationales.errors import BudgetError

from endpoint_server import NEEDED, TEXT, Server, serving

KEYWORDS: dict[str, Any] = {"generate": 1, "unit": "sentence"}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("RATIONALES_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(client_module.KEY, raising=False)
    monkeypatch.delenv(client_module.OPENAI_KEY, raising=False)


@pytest.fixture(params=["llama.cpp", "vllm", "completions", "openai", "ollama", "text"])
def any_server(request: Any) -> Iterator[Server]:
    with serving(request.param) as server:
        yield server


@pytest.fixture
def llama() -> Iterator[Server]:
    with serving("llama.cpp") as server:
        yield server


CHATS = ("openai", "ollama", "text")
"""The kinds that are asked by messages."""

WAYS = {
    "llama.cpp": "forced",
    "vllm": "prompt",
    "completions": "top-k",
    "openai": "top-k",
    "ollama": "top-k",
    "text": "text",
}


def test_every_protocol_finds_the_two_sentences_that_are_needed(any_server: Server) -> None:
    explainer = rationales.load(endpoint=any_server.url)
    explanation = explainer.explain(TEXT, **KEYWORDS)
    [found] = explanation
    is_chat = any_server.kind in CHATS
    # A message has no sentence that the answer continues: none of it is required.
    assert found.text == (NEEDED.removesuffix(" … We are in") if is_chat else NEEDED)
    assert (found.target_text, found.sufficient, found.predicted) == (" Paris", True, True)
    assert explanation.evaluation == "deleted"
    assert explanation.endpoint is not None
    assert explanation.endpoint.way == WAYS[any_server.kind]
    assert explanation.cost is not None
    assert explanation.cost.requests == len(any_server.asked) - _probes(any_server)
    assert explanation.cost.prompt_tokens
    assert explanation.method == ("deletion" if any_server.kind == "text" else "greedy")
    assert Explanation.from_json(explanation.to_json()) == explanation
    if any_server.kind == "text":
        assert found.steps == ()
        assert found.minimal
    else:
        assert found.steps[-1].target_logprob == pytest.approx(-0.40, abs=0.1)
    # Nothing is asked twice, by another process neither.
    before = len(any_server.asked)
    again = rationales.load(endpoint=any_server.url).explain(TEXT, **KEYWORDS)
    assert again == explanation
    assert len(any_server.asked) == before
    assert again.cost is not None
    assert again.cost.requests == 0
    assert again.cost.cached


def _probes(server: Server) -> int:
    """How many of the requests were made to find out what it can do."""
    said = ("The capital of France is", "What is the capital of France?")
    return sum(any(text in json.dumps(each) for text in said) for each in server.asked)


def test_a_target_outside_the_alternatives_is_counted(any_server: Server) -> None:
    explanation = rationales.load(endpoint=any_server.url).explain(TEXT, **KEYWORDS)
    assert explanation.endpoint is not None
    is_short = any_server.kind in ("completions", "openai", "ollama")
    assert (explanation.endpoint.below_last > 0) == is_short


def test_the_tokens_of_an_answer_one_by_one_and_together(any_server: Server) -> None:
    explainer = rationales.load(endpoint=any_server.url)
    messages = [{"role": "user", "content": TEXT}]
    if any_server.kind == "completions":
        with pytest.raises(RationalesError, match="answers no chats"):
            explainer.explain(messages=messages)
        return
    each = explainer.explain(messages=messages, generate=2, unit="sentence")
    assert [r.target_text for r in each] == [" Paris", "."]
    assert each[0].text == "I live in France. … The capital is old."
    assert each[0].sufficient
    if any_server.kind in CHATS:
        # It cannot continue an answer: it has to say " Paris" by itself again.
        assert {*each[1].indices} == {*each[0].indices}
    else:
        assert len(each[1]) <= 1
    whole = explainer.explain(messages=messages, generate=2, unit="sentence", span=True)
    assert whole[0].target_text == " Paris."
    assert whole[0].text == each[0].text


def test_a_given_continuation_and_a_contrast(any_server: Server) -> None:
    explainer = rationales.load(endpoint=any_server.url)
    if any_server.kind == "text":
        with pytest.raises(RationalesError, match="instead_of needs log-probabilities"):
            explainer.explain(TEXT, continuation=" Paris", instead_of=" Rome")
        with pytest.raises(RationalesError, match="beam needs log-probabilities"):
            explainer.explain(TEXT, method="beam")
        return
    found = explainer.explain(TEXT, continuation=" Paris", instead_of=" Rome", unit="sentence")
    assert found[0].sufficient
    assert "France" in found[0].text or "capital" in found[0].text
    assert found[0].steps[-1].contrast_logprob is not None


def test_documents_and_a_question(any_server: Server) -> None:
    explainer = rationales.load(endpoint=any_server.url)
    found = explainer.explain(
        documents=["I live in France.", "Bananas are yellow.", "The capital is old."],
        question="Where am I?",
        generate=1,
        unit="document",
    )
    assert " ".join(found[0].text.split()) == "I live in France. … The capital is old."
    assert [part.name for part, _ in found.sources(found[0])] == ["1", "3"]


def test_predictions_of_words_that_a_user_puts_together(any_server: Server) -> None:
    explainer = rationales.load(endpoint=any_server.url)
    explanation = explainer.explain(TEXT, **KEYWORDS)
    [found] = explanation
    fresh = rationales.load(endpoint=any_server.url)
    kept = fresh.predict(explanation.tokens, found.target, found.indices)
    assert kept.sufficient
    without = fresh.predict(explanation.tokens, found.target, [])
    assert not without.sufficient
    assert without.prediction_text is not None
    assert without.prediction_text.strip() == "Lyon"


# --- budgets and repeats


@pytest.mark.parametrize("budget", [1, 2, 4, 7, 9, 12])
def test_never_more_requests_than_the_budget(any_server: Server, budget: int) -> None:
    found = None
    with suppress(BudgetError):
        explainer = rationales.load(endpoint=any_server.url, budget=budget)
        [found] = explainer.explain(TEXT, **KEYWORDS)
    if found is not None:
        assert found.sufficient or found.stopped == "budget"
        if found.stopped == "budget":
            assert found.minimal is None
    assert len(any_server.asked) <= budget


def test_repeats_outvote_a_moody_server() -> None:
    with serving("openai") as server:
        server.is_moody = True
        explainer = rationales.load(endpoint=server.url, repeat=3)
        explanation = explainer.explain(TEXT, continuation=" Paris", unit="sentence")
        assert explanation[0].text == "I live in France. … The capital is old."
        assert explanation.endpoint is not None
        assert explanation.endpoint.agreement is not None
        assert 0.5 < explanation.endpoint.agreement < 1


# --- what goes wrong


@pytest.fixture
def no_pause(monkeypatch: Any) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr(client_module, "sleep", slept.append)
    return slept


@pytest.mark.parametrize("fault", ["429 7", "500", "truncated", "reset", "nan", "html"])
def test_what_passes_by_is_tried_again(llama: Server, no_pause: list[float], fault: str) -> None:
    explainer = rationales.load(endpoint=llama.url)
    llama.faults = ["", fault, fault, "", fault]
    [found] = explainer.explain(TEXT, **KEYWORDS)
    assert found.text == NEEDED
    assert len(no_pause) == 3
    if fault == "429 7":
        assert no_pause == [7.0, 7.0, 7.0]


def test_a_time_out_is_tried_again(llama: Server, no_pause: list[float], monkeypatch: Any) -> None:
    monkeypatch.setattr(client_module, "_ANSWER", 1.0)
    explainer = rationales.load(endpoint=llama.url)
    llama.faults = ["timeout"]
    assert explainer.explain(TEXT, **KEYWORDS)[0].text == NEEDED
    assert len(no_pause) == 1


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("429", "failed 5 times: status 429: slow down"),
        ("500", "failed 5 times: status 500: oh"),
        ("nan", "it holds NaN"),
        ("truncated", "no answer that can be read"),
        ("reset", "failed 5 times"),
        ("html", "speaks something else than the OpenAI protocol"),
        ("model", "answered by the model 'impostor', not by 'fake-1'"),
    ],
)
def test_what_does_not_pass_is_one_line_and_no_result(
    llama: Server, no_pause: list[float], fault: str, said: str
) -> None:
    explainer = rationales.load(endpoint=llama.url)
    llama.faults = [fault] * 200
    with pytest.raises(RationalesError) as error:
        explainer.explain(TEXT, **KEYWORDS)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    # What was wrong is not stored: it works as soon as the server does.
    llama.faults = []
    assert explainer.explain(TEXT, **KEYWORDS)[0].text == NEEDED


def test_addresses_that_are_wrong(llama: Server, no_pause: list[float]) -> None:
    for url, said in {
        "127.0.0.1:80": "an address such as",
        "ftp://x/v1": "an address such as",
        "http://me:secret@127.0.0.1/v1": "put the key into the environment",
        "http://127.0.0.1:1/v1": "nothing answers at http://127.0.0.1:1/v1",
    }.items():
        with pytest.raises(RationalesError, match=said) as error:
            rationales.load(endpoint=url)
        assert "secret" not in str(error.value)
    with pytest.raises(RationalesError, match="does not know the model 'other': it has fake"):
        rationales.load(endpoint=llama.url, endpoint_model="other")
    llama.models = ["a", "b"]
    with pytest.raises(RationalesError, match="several models: name one of a, b"):
        rationales.load(endpoint=llama.url)
    with pytest.raises(RationalesError, match="leave out dtype"):
        rationales.load(endpoint=llama.url, dtype="float32")
    with pytest.raises(RationalesError, match="budget is for an endpoint"):
        rationales.load(budget=3)


def test_a_target_in_a_text_that_an_endpoint_only_answers() -> None:
    with serving("openai") as server:
        explainer = rationales.load(endpoint=server.url)
        with pytest.raises(RationalesError, match="answers chats only"):
            explainer.explain(TEXT, target="last")
        with pytest.raises(RationalesError, match="more alternatives than the 20"):
            explainer.explain(TEXT, criterion="top-k=21")


# --- from the command line


def test_explain_says_that_parts_are_deleted_and_what_it_took(llama: Server, run: Any) -> None:
    flags = ("--endpoint", llama.url, "--unit", "sentence", "--generate", "1", "--format", "table")
    code, out, err = run("explain", TEXT, *flags, model=False)
    assert code == 0, err
    said = " ".join(out.split())
    assert "fake at http://127.0.0.1" in said
    assert "What is not kept was deleted" in said
    assert "requests, 0 stored answers" in said
    assert "The budget is spent" not in said
    code, out, err = run("explain", f"Hello. {TEXT}", *flags, "--budget", "4", model=False)
    assert code == 0, err
    assert "The budget is spent: what is shown is the best found so far." in " ".join(out.split())
    code, _, err = run("explain", TEXT, "--endpoint", llama.url, "--model", "gpt2", model=False)
    assert (code, err.count("\n")) == (2, 1)
    assert "--endpoint has its model: leave out --model; --endpoint-model names one" in err


def test_a_corpus_and_its_resumption_by_the_answers(
    llama: Server, run: Any, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"text": f"{n}. {TEXT}"}) + "\n" for n in range(3)))
    flags = ("--endpoint", llama.url, "--unit", "sentence", "--generate", "1")
    code, _, err = run("run", str(rows), "--out", str(tmp_path / "a"), *flags, model=False)
    assert code == 0, err
    before = len(llama.asked)
    code, _, err = run("run", str(rows), "--out", str(tmp_path / "b"), *flags, model=False)
    assert code == 0, err
    assert len(llama.asked) == before
    first, second = (
        [json.loads(line) for line in (tmp_path / n / "part-00000.jsonl").read_text().splitlines()]
        for n in "ab"
    )
    assert [row["rationales"] for row in first] == [row["rationales"] for row in second]


def test_after_a_kill_only_what_was_in_flight_is_asked_again(llama: Server, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rationales", "explain", TEXT, "--endpoint", llama.url]
    command += ["--unit", "sentence", "--generate", "1"]
    llama.hold_after = 6
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while len(llama.asked) <= 6 and process.poll() is None:
            threading.Event().wait(0.02)
        process.kill()
    answered = [*map(json.dumps, llama.asked[:6])]
    in_flight = len(llama.asked) - 6
    assert in_flight >= 1
    llama.hold_after = None
    llama.release.set()
    begun = len(llama.asked)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "France" in done.stdout
    again = [*map(json.dumps, llama.asked[begun:])]
    assert not {*again} & {*answered}


def test_the_live_page_serves_an_endpoint(llama: Server) -> None:
    pytest.importorskip("starlette", reason="the extra serve is not installed")
    import httpx

    from rationales.serve.models import load_models

    from serving import events, served

    explainers = load_models([], None, lambda stage, done: None, endpoints=[llama.url])
    [name] = explainers
    with served(explainers) as address, httpx.Client(base_url=address) as client:
        body = {"text": TEXT, "options": {"generate": 1, "unit": "sentence"}}
        told = dict(events(client, body))
        assert told["done"]["explanation"]["model"] == name
        assert told["done"]["explanation"]["evaluation"] == "deleted"


# --- secrets


def test_the_key_is_sent_and_nowhere_else(
    llama: Server, run: Any, tmp_path: Path, monkeypatch: Any, no_pause: list[float]
) -> None:
    secret = "sk-very-secret-0123456789"
    llama.key = secret
    code, _, err = run("explain", TEXT, "--endpoint", llama.url, model=False)
    assert code == 2
    assert "wants a key (401): put it into the environment variable RATIONALES_ENDPOINT_KEY" in err
    monkeypatch.setenv(client_module.KEY, secret)
    page, saved = tmp_path / "x.html", tmp_path / "x.json"
    files = ("--html", str(page), "--json", str(saved))
    code, out, err = run(
        "explain", TEXT, "--endpoint", llama.url, "--generate", "1", *files, model=False
    )
    assert code == 0, err
    said = [out, err]
    llama.key = "another"
    code, out, err = run("explain", "Other.", "--endpoint", llama.url, model=False)
    assert code == 2
    assert "refuses the key in RATIONALES_ENDPOINT_KEY" in err
    said += [out, err]
    assert f"Bearer {secret}" in str(llama.headers)
    stored = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert len(stored) >= 3
    assert not any(secret.encode() in each for each in stored)
    assert not any(secret in each for each in said)


def test_openais_key_is_for_openai_only(llama: Server, monkeypatch: Any) -> None:
    monkeypatch.setenv(client_module.OPENAI_KEY, "sk-openai")
    rationales.load(endpoint=llama.url)
    assert "sk-openai" not in str(llama.headers)
