"""The server: its answers, its limits, its faults, and who may ask."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace

import httpx
import pytest

from rationales import Explanation
from rationales.render import viewer
from rationales.scoring.causal import CausalScorer
from rationales.serve.app import Limits

from serving import SMALL, events, parsed, served

TEXT = "The Supreme Court on Tuesday"


@pytest.fixture
def server(chat_explainer):
    with served({"tiny": chat_explainer}, limits=SMALL) as address:
        yield address


@pytest.fixture
def client(server):
    with httpx.Client(base_url=server, timeout=30) as client:
        client.get("/healthz")  # which gives it its cookie
        yield client


def explained(client: httpx.Client, **body) -> Explanation:
    """The explanation that a request ends in."""
    name, data = events(client, body)[-1]
    assert name == "done", data
    return Explanation.from_dict(data["explanation"])


def bare(explanation: Explanation) -> list[dict]:
    return [
        {"id": t.id, "text": t.text} | ({"pinned": True} if t.pinned else {})
        for t in explanation.tokens
    ]


# --- Answers ---------------------------------------------------------------------------------


def test_an_explanation_is_that_of_python(client, tiny_explainer):
    assert explained(client, text=TEXT, options={"generate": 4}) == tiny_explainer.explain(
        TEXT, generate=4
    )


def test_targets_come_one_by_one(client):
    told = events(client, {"text": TEXT, "options": {"generate": 4}})
    names = [name for name, _ in told]
    assert names[0] == "started"
    assert names.count("rationale") == 4
    assert names.index("text") < names.index("rationale")
    assert names[-1] == "done"
    item = next(data for name, data in told if name == "text")
    assert item["explanation"].get("rationales", []) == []
    assert sum(len(unit) for unit in item["units"]["word"]) == len(item["explanation"]["tokens"])
    final = told[-1][1]["explanation"]
    found = [data for name, data in told if name == "rationale"]
    assert sorted(found, key=lambda each: each["target"]) == final["rationales"]
    progress = [data for name, data in told if name == "progress"]
    assert progress[-1]["done"] == progress[-1]["total"] == 4


def test_a_score_is_that_of_the_scorer(client, tiny_explainer):
    explanation = tiny_explainer.explain(TEXT, target="last")
    target = explanation[0].target
    rationale = explanation[0]
    found = client.post(
        "/score",
        json={"tokens": bare(explanation), "target": target, "keep": list(rationale.indices)},
    ).json()
    last = rationale.steps[-1]
    assert found["target_logprob"] == pytest.approx(last.target_logprob, abs=1e-4)
    assert found["prediction_id"] == last.prediction_id
    assert found["sufficient"] == rationale.sufficient
    assert (found["rank"] == 1) == rationale.sufficient


def test_the_token_before_the_target_is_always_kept(client, tiny_explainer):
    explanation = tiny_explainer.explain(TEXT, target="last")
    target = explanation[0].target
    body = {"tokens": bare(explanation), "target": target}
    without = client.post("/score", json={**body, "keep": []}).json()
    with_it = client.post("/score", json={**body, "keep": [target - 1]}).json()
    assert without["target_logprob"] == pytest.approx(with_it["target_logprob"], abs=1e-5)


def test_a_search_within_some_tokens_keeps_no_others(client, tiny_explainer):
    explanation = tiny_explainer.explain(TEXT, generate=6)
    rationale = max(explanation, key=len)
    left_out = rationale.indices[-1]
    within = [i for i in range(rationale.target) if i != left_out]
    found = explained(
        client, tokens=bare(explanation), target=rationale.target, within=within, options={}
    )
    assert left_out not in found[0].indices
    assert found[0].target == rationale.target
    # Whether the target is predicted is about all of the context, not about what is searched.
    assert found[0].predicted == rationale.predicted
    assert found[0].full_context.target_logprob == pytest.approx(
        rationale.full_context.target_logprob, abs=1e-4
    )


DOCUMENTS = [
    "The Supreme Court ruled.",
    {"title": "Law", "text": "The law of the land. It rained."},
]
ABOUT = {"documents": DOCUMENTS, "question": "Who ruled?"}
CHAT = [
    {"role": "system", "content": "Be brief.", "pinned": True},
    {"role": "user", "content": "Who ruled on Tuesday?"},
]


@pytest.mark.parametrize(
    "asked",
    [
        ABOUT,
        {**ABOUT, "template": "{question} {documents}\n", "search_question": True},
        {"messages": CHAT},
        {"messages": [*CHAT, {"role": "assistant", "content": "The Court"}]},
    ],
)
def test_documents_and_messages_are_explained_as_in_python(client, chat_explainer, asked):
    options = {} if asked.get("messages", [{}])[-1].get("role") == "assistant" else {"generate": 2}
    found = explained(client, **asked, options=options)
    assert found.parts
    assert found == chat_explainer.explain(**asked, **options)
    rationale = max(found, key=len)
    body = {"tokens": bare(found), "target": rationale.target, "keep": list(rationale.indices)}
    assert client.post("/score", json=body).json()["sufficient"] == rationale.sufficient


def test_a_search_among_tokens_knows_their_documents(client, chat_explainer):
    found = explained(client, **ABOUT, options={"generate": 1, "unit": "document"})
    parts = found.to_dict()["parts"]
    body = {"tokens": bare(found), "parts": parts, "target": found[0].target}
    again = explained(client, **body, options={"unit": "document"})
    assert again.parts == found.parts
    assert again[0].units == found[0].units


def test_a_target_of_several_tokens_is_scored_and_searched_as_a_whole(client, chat_explainer):
    found = explained(client, **ABOUT, options={"generate": 3, "span": True})
    rationale = found[0]
    body = {"tokens": bare(found), "target": rationale.target, "length": 3}
    score = client.post("/score", json={**body, "keep": list(rationale.indices)}).json()
    assert score["target_logprob"] == pytest.approx(rationale.steps[-1].target_logprob, abs=1e-4)
    assert score["sufficient"] == rationale.sufficient
    first = client.post("/score", json={**body, "length": 1, "keep": []}).json()
    whole = client.post("/score", json={**body, "keep": []}).json()
    assert whole["target_logprob"] < first["target_logprob"]
    again = explained(client, **body, parts=found.to_dict()["parts"], options={"span": True})
    assert again[0].indices == rationale.indices
    for length in (0, 4, "a"):
        wrong = client.post("/score", json={**body, "length": length, "keep": []})
        assert wrong.status_code == 422


def test_a_certified_rationale_comes_with_its_proof_in_words(client):
    told = events(client, {**ABOUT, "options": {"generate": 2, "certify": True}})
    item = told[-1][1]
    explanation = Explanation.from_dict(item["explanation"])
    proven = {str(r.target): viewer.proofs(r, "token") for r in explanation if r.proof}
    assert proven
    assert item["proofs"] == proven
    names = [name for name, _ in told if name in ("proof", "rationale")]
    assert names.index("proof") < names.index("rationale")
    said = {str(data["target"]): data["facts"] for name, data in told if name == "proof"}
    assert said.keys() == proven.keys()


def test_the_page_and_what_it_needs(client):
    for path, kind in (
        ("/", "text/html"),
        ("/page.js", "text/javascript"),
        ("/viewer.js", "text/javascript"),
        ("/page.css", "text/css"),
        ("/viewer.css", "text/css"),
    ):
        answer = client.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert client.get("/healthz").json() == {"status": "ok", "running": 0, "waiting": 0}
    [model] = client.get("/models").json()
    assert model["name"] == "tiny"
    assert model["kind"] == "causal"
    assert "greedy" in model["methods"]


def test_a_page_to_download(client, tiny_explainer):
    given = tiny_explainer.explain(TEXT, generate=2).to_dict()
    answer = client.post("/html", json={"explanations": [given]})
    assert answer.status_code == 200
    assert answer.text.startswith("<!doctype html>")
    assert client.post("/html", json={"explanations": [{}]}).status_code == 422


# --- Limits and wrong input --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({}, 422, "text must be a string"),
        ({"text": 3}, 422, "text must be a string"),
        ({"text": TEXT, "model": "../../etc/passwd"}, 404, "no model"),
        ({"text": TEXT, "option": {}}, 422, "unknown field"),
        ({"text": TEXT, "options": {"generat": 3}}, 422, "unknown option"),
        ({"text": TEXT, "options": {"generate": 65}}, 422, "at most 64"),
        ({"text": TEXT, "options": {"beam": 9}}, 422, "at most 8"),
        ({"text": TEXT, "options": {"method": "magic"}}, 422, "magic"),
        ({"text": TEXT, "options": {"unit": "page"}}, 422, "unit"),
        ({"text": TEXT, "options": {"method": "exhaustive", "max_evaluations": 0}}, 422, "at most"),
        ({"text": TEXT, "options": []}, 422, "JSON object"),
        ({"text": "a" * 2001}, 413, "2,001 characters"),
        ({"text": "Court " * 61}, 413, "tokens, and this server takes 60"),
        ({"tokens": [], "target": 1}, 422, "tokens"),
        ({"tokens": [{"id": 1, "text": "a"}], "target": 1}, 422, "target"),
        ({"tokens": [{"id": 1, "text": "a"}] * 61, "target": 1}, 413, "61 tokens"),
        ({"text": TEXT, "options": {"continuation": " Court" * 60}}, 413, "tokens, and this"),
        ({"text": TEXT * 4, "options": {"target": "all", "span": True}}, 413, "option span"),
        ({"tokens": [{"id": -1, "text": "a"}] * 3, "target": 2}, 422, "id"),
        ({"tokens": [{"id": 1, "text": "a"}] * 3, "target": 2, "within": [5]}, 422, "within"),
        ({"tokens": [{"id": 1, "text": "a"}] * 3, "target": 2, "text": "a"}, 422, "not both"),
        ({"tokens": [{"id": 1, "text": "a"}] * 3, "target": 2, **ABOUT}, 422, "not both"),
        ({"tokens": [{"id": 1, "text": "a"}] * 3, "target": 2, "parts": [3]}, 422, "parts"),
        (
            {
                "tokens": [{"id": 1, "text": "a"}] * 3,
                "target": 2,
                "parts": [{"kind": "document", "name": "1", "start": 1, "end": 4}],
            },
            422,
            "the part from token 1 to 4",
        ),
        ({"text": TEXT, **ABOUT}, 422, "give one of a text, messages and documents"),
        ({"text": TEXT, "question": "Who?"}, 422, "about documents"),
        ({"documents": DOCUMENTS, "messages": CHAT}, 422, "give one of"),
        ({"documents": "a"}, 422, "documents must be a list"),
        ({"documents": []}, 422, "at least one document"),
        ({"documents": ["a", " "]}, 422, "document 2 is empty"),
        ({"documents": [{"title": "a"}]}, 422, "document 1 must be a text"),
        ({**ABOUT, "question": 3}, 422, "question must be a text"),
        ({**ABOUT, "template": "{documents}"}, 422, "{question} in no place"),
        ({**ABOUT, "search_question": "no"}, 422, "true or false"),
        ({**ABOUT, "target": 3}, 422, "go with tokens"),
        ({"documents": ["a" * 1000, "b" * 1000]}, 413, "2,002 characters"),
        ({"documents": ["Court " * 40, "Court " * 40]}, 413, "tokens, and this server takes 60"),
        ({"messages": []}, 422, "at least one message"),
        ({"messages": [{"content": "a"}]}, 422, "message 1 must be an object"),
        ({"messages": [{"role": "user", "content": 3}]}, 422, "content of message 1"),
        ({"messages": [{"role": "user", "content": "Court " * 61}]}, 413, "tokens, and this"),
        ({"messages": [{"role": "clown", "content": "a"}]}, 422, "chat template refuses"),
    ],
)
def test_wrong_requests_are_refused_in_a_sentence(client, body, status, said):
    answer = client.post("/explain", json=body)
    assert answer.status_code == status, answer.text
    assert said in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


def test_at_the_limits_requests_are_answered(client):
    text = ("Court" + " Court" * 500)[:2000]
    assert client.post("/explain", json={"text": text}).status_code == 413  # tokens, not characters
    told = events(client, {"text": TEXT, "options": {"generate": 20, "max_size": 1}})
    assert told[-1][0] == "done"
    name, data = events(client, {"text": TEXT, "options": {"generate": 21, "max_size": 1}})[-1]
    assert (name, "21 targets" in data["error"]) == ("failed", True)


def test_a_large_body_is_refused(client):
    body = json.dumps({"text": TEXT, "options": {}}).encode()
    for size, status in ((20_000, 200), (20_001, 413)):
        answer = client.post(
            "/explain",
            content=body + b" " * (size - len(body)),
            headers={"Content-Type": "application/json"},
        )
        assert answer.status_code == status


@pytest.mark.parametrize("content", [b"{", b"[1]", b"\xff", b"[" * 10_000])
def test_what_is_no_json_object_is_refused(client, content):
    answer = client.post("/explain", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert "JSON" in answer.json()["error"]


@pytest.mark.parametrize(
    "content", [rb'{"text": "\ud800"}', rb'{"documents": [{"text": "a", "title": "\ud800"}]}']
)
def test_what_is_no_unicode_is_refused(client, content):
    answer = client.post("/explain", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert "Unicode" in answer.json()["error"]


def test_source_tokens_are_for_translations_and_come_first(client):
    for sides in (["source"] * 3, ["target", "source", "target"]):
        tokens = [{"id": 1, "text": "a", "side": side} for side in sides]
        answer = client.post("/score", json={"tokens": tokens, "target": 2, "keep": []})
        assert answer.status_code == 422
        assert "source tokens" in answer.json()["error"]


def test_a_score_is_judged_by_the_criterion_that_is_given(client, tiny_explainer):
    explanation = tiny_explainer.explain(TEXT, generate=6)
    rationale = max(explanation, key=len)
    body = {"tokens": bare(explanation), "target": rationale.target, "keep": []}
    plain = client.post("/score", json=body).json()
    assert not plain["sufficient"]
    asked = {**body, "criterion": f"top-k={plain['rank']}"}
    assert client.post("/score", json=asked).json()["sufficient"]
    everything = {**body, "keep": list(range(rationale.target)), "criterion": "ratio=1"}
    assert client.post("/score", json=everything).json()["sufficient"]
    assert client.post("/score", json={**body, "criterion": "magic"}).status_code == 422


def test_a_score_with_the_rest_deleted(client, tiny_explainer):
    explanation = tiny_explainer.explain(TEXT, generate=6)
    target = explanation[-1].target
    body = {"tokens": bare(explanation), "target": target, "keep": [0], "evaluation": "deleted"}
    expected = tiny_explainer.predict(explanation.tokens, target, [0], evaluation="deleted")
    found = client.post("/score", json=body).json()
    assert found["target_logprob"] == pytest.approx(expected.target_logprob)
    gaps = client.post("/score", json={**body, "evaluation": None}).json()
    assert found["target_logprob"] != pytest.approx(gaps["target_logprob"])


def test_a_token_id_that_the_model_lacks(client):
    tokens = [{"id": 10**6, "text": "a"}] * 3
    assert (
        client.post("/score", json={"tokens": tokens, "target": 2, "keep": []}).status_code == 422
    )
    name, data = events(client, {"tokens": tokens, "target": 2})[-1]
    assert name == "failed"
    assert "1000000" in data["error"]


def test_a_client_that_sends_slowly_is_given_up(server):
    host, port = server.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.settimeout(10)
        connection.sendall(
            f"POST /explain HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            "Content-Length: 100\r\n\r\n{".encode()
        )
        assert b" 408 " in connection.recv(1000)


# --- Who may ask -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "localhost:1"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Content-Type": "text/plain"}, 415),
        ({"Host": "["}, 403),
        ({"Origin": "http://["}, 403),
        ({"Cookie": "a/b=1; x y=2"}, 200),
    ],
)
def test_other_hosts_and_origins_are_refused(client, headers, status):
    body = json.dumps({"text": TEXT, "options": {"generate": 1}})
    answer = client.post(
        "/explain", content=body, headers={"Content-Type": "application/json"} | headers
    )
    assert answer.status_code == status


def test_a_token_is_needed_where_one_is_set(tiny_explainer):
    with (
        served({"tiny": tiny_explainer}, token="secret") as address,
        httpx.Client(base_url=address) as client,
    ):
        assert client.get("/models").status_code == 401
        assert client.get("/?token=wrong").status_code == 401
        bearer = {"Authorization": "Bearer secret"}
        assert client.get("/models", headers=bearer).status_code == 200
        answer = client.get("/?token=secret")
        assert answer.status_code == 303
        assert "HttpOnly" in answer.headers["set-cookie"]
        assert client.get("/models").status_code == 200  # by the cookie


# --- Many clients, and faults --------------------------------------------------------------------


class Held:
    """A scorer whose passes wait until they are let go."""

    def __init__(self, scorer):
        self.scorer = scorer
        self.go = threading.Event()
        self.calls = 0

    def fresh(self):
        return self

    def __getattr__(self, name):
        return getattr(self.scorer, name)

    def score(self, queries):
        self.calls += 1
        assert self.go.wait(20)
        return self.scorer.score(queries)


@pytest.fixture
def held(tiny_explainer):
    tiny_explainer.scorer = Held(tiny_explainer.scorer)
    return tiny_explainer.scorer


def asking(address: str, told: list, **options) -> threading.Thread:
    """A client of its own that asks in a thread."""

    def ask() -> None:
        with httpx.Client(base_url=address, timeout=60) as client:
            client.get("/healthz")
            told.extend(events(client, {"text": TEXT, "options": {"generate": 2, **options}}))

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def wait_until(condition) -> None:
    for _ in range(400):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it did not happen within eight seconds")


def test_requests_wait_with_their_position_and_too_many_are_refused(tiny_explainer, held):
    limits = replace(SMALL, at_once=1)
    with served({"tiny": tiny_explainer}, limits=limits) as address:
        told: list[list] = [[] for _ in range(4)]
        threads = []
        for number, each in enumerate(told):
            threads.append(asking(address, each))
            state = {"status": "ok", "running": 1, "waiting": number}
            wait_until(lambda s=state: httpx.get(f"{address}/healthz").json() == s)
        answer = httpx.post(f"{address}/explain", json={"text": TEXT})
        assert answer.status_code == 503
        assert httpx.get(f"{address}/models").status_code == 200  # the page stays answerable
        held.go.set()
        for thread in threads:
            thread.join()
        assert all(each[-1][0] == "done" for each in told)
        assert next(name for name, _ in told[0]) == "started"
        positions = [data["position"] for name, data in told[3] if name == "queued"]
        assert positions == [3, 2, 1]


def test_a_client_with_many_requests_does_not_hold_up_others(tiny_explainer, held):
    limits = replace(SMALL, at_once=1, waiting=10)
    with (
        served({"tiny": tiny_explainer}, limits=limits) as address,
        httpx.Client(base_url=address, timeout=60) as greedy,
    ):
        greedy.get("/healthz")
        order: list[str] = []

        def ask(client: httpx.Client, name: str) -> None:
            events(client, {"text": TEXT, "options": {"generate": 1}})
            order.append(name)

        threads = [threading.Thread(target=ask, args=(greedy, f"many {n}")) for n in range(3)]
        for number, thread in enumerate(threads):
            thread.start()
            wait_until(lambda n=number: httpx.get(f"{address}/healthz").json()["waiting"] == n)
        answer = greedy.post("/explain", json={"text": TEXT})
        assert answer.status_code == 429
        told: list = []
        other = asking(address, told, max_size=1)
        wait_until(lambda: httpx.get(f"{address}/healthz").json()["waiting"] == 3)
        held.go.set()
        other.join()
        for thread in threads:
            thread.join()
        positions = [data["position"] for name, data in told if name == "queued"]
        assert positions[0] == 2  # behind one request of the other client, not behind two


def test_one_request_of_a_client_runs_at_a_time(tiny_explainer, held):
    with (
        served({"tiny": tiny_explainer}, limits=replace(SMALL, at_once=2)) as address,
        httpx.Client(base_url=address, timeout=60) as many,
    ):
        many.get("/healthz")
        body = {"text": TEXT, "options": {"generate": 1}}
        threads = [threading.Thread(target=events, args=(many, body)) for _ in range(2)]
        for thread in threads:
            thread.start()
        wait_until(lambda: httpx.get(f"{address}/healthz").json()["waiting"] == 1)
        told: list = []
        other = asking(address, told)
        wait_until(lambda: httpx.get(f"{address}/healthz").json()["running"] == 2)
        held.go.set()
        for thread in (*threads, other):
            thread.join()
        assert [name for name, _ in told][:1] == ["started"]


def test_a_fault_in_a_score_is_one_sentence(tiny_explainer, monkeypatch):
    def broken(self, queries):
        raise RuntimeError("shapes cannot be multiplied\nmore")

    explanation = tiny_explainer.explain(TEXT, target="last")
    body = {"tokens": bare(explanation), "target": explanation[0].target, "keep": []}
    with served({"tiny": tiny_explainer}) as address:
        with monkeypatch.context() as patch:
            patch.setattr(CausalScorer, "score", broken)
            answer = httpx.post(f"{address}/score", json=body)
            assert answer.status_code == 500
            assert answer.json() == {"error": "the model failed: shapes cannot be multiplied"}
            assert "content-security-policy" in answer.headers
        assert httpx.post(f"{address}/score", json=body).status_code == 200


def test_probabilities_that_are_nan_fail_one_request(tiny_explainer, tiny_model):
    weight = tiny_model.lm_head.weight.data
    before = weight.clone()
    with served({"tiny": tiny_explainer}) as address, httpx.Client(base_url=address) as client:
        try:
            weight.fill_(float("nan"))
            name, data = events(client, {"text": TEXT})[-1]
            assert name == "failed"
            assert "NaN" in data["error"]
        finally:
            weight.copy_(before)
        assert events(client, {"text": TEXT, "options": {"generate": 1}})[-1][0] == "done"


def test_work_stops_when_its_client_has_gone(tiny_explainer, held):
    with (
        served({"tiny": tiny_explainer}) as address,
        httpx.Client(base_url=address, timeout=60) as client,
    ):
        with client.stream("POST", "/explain", json={"text": TEXT}) as answer:
            assert next(parsed(answer.iter_text()))[0] == "started"
            wait_until(lambda: held.calls == 1)
        time.sleep(0.2)
        held.go.set()
        wait_until(lambda: httpx.get(f"{address}/healthz").json()["running"] == 0)
        assert held.calls <= 2


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied\nmore"), "the model failed: mat1"),
        (MemoryError(), "the model failed"),
    ],
)
def test_a_fault_fails_one_request_only(tiny_explainer, monkeypatch, error, said):
    def broken(self, queries):
        raise error

    with (
        served({"tiny": tiny_explainer}) as address,
        httpx.Client(base_url=address, timeout=60) as client,
    ):
        with monkeypatch.context() as patch:
            patch.setattr(CausalScorer, "score", broken)
            name, data = events(client, {"text": TEXT})[-1]
            assert name == "failed"
            assert said in data["error"]
            assert "\n" not in data["error"]
        assert events(client, {"text": TEXT, "options": {"generate": 1}})[-1][0] == "done"


def test_mixed_requests_of_many_clients_are_answered_as_one_by_one(tiny_explainer):
    texts = ["The quick brown fox", "The law of the land", "When my flight landed", TEXT]
    wanted = {
        (text, method): tiny_explainer.explain(text, generate=3, method=method)
        for text in texts
        for method in ("greedy", "gradient-norm")
    }
    answers: list[bool] = []

    def client(number: int) -> None:
        with httpx.Client(base_url=address, timeout=120) as client:
            for (text, method), expected in list(wanted.items())[number % 4 :][:3]:
                found = explained(client, text=text, options={"generate": 3, "method": method})
                answers.append(found == expected)
                rationale = expected[0]
                score = client.post(
                    "/score",
                    json={
                        "tokens": bare(expected),
                        "target": rationale.target,
                        "keep": list(rationale.indices),
                    },
                ).json()
                answers.append(score["sufficient"] == rationale.sufficient)

    with served({"tiny": tiny_explainer}, limits=Limits(waiting=200)) as address:
        threads = [threading.Thread(target=client, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(answers) == 8 * 6
    assert all(answers)


# --- The process ---------------------------------------------------------------------------------


@pytest.fixture
def process(tiny_folder):
    command = [sys.executable, "-m", "rationales", "serve", "--port", "0", "--model", tiny_folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        try:
            yield started, started.stdout.readline().strip()
        finally:
            started.kill()


def test_sigterm_ends_the_server_in_order(process):
    started, address = process
    told: list = []
    # Every subset of many tokens: more than can be tried before the signal.
    options = {"generate": 30, "method": "exhaustive"}
    body = {"text": "The quick brown fox jumps over the lazy dog, and the dog", "options": options}

    def ask() -> None:
        with httpx.Client(base_url=address, timeout=60) as client:
            told.extend(events(client, body))

    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(lambda: httpx.get(f"{address}/healthz").json()["running"] == 1)
    started.send_signal(signal.SIGTERM)
    assert started.wait(30) == 0
    thread.join(10)
    assert told[-1][0] in ("done", "failed")
    if told[-1][0] == "failed":
        assert "stopping" in told[-1][1]["error"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "192.0.2.1"], "cannot listen on 192.0.2.1"),
        (["--model", "no/such/folder/here"], "no/such/folder/here"),
        (["--port", "70000"], "port"),
    ],
)
def test_what_cannot_be_served_is_one_line(run, arguments, said):
    code, out, error = run("serve", "--port", "0", *arguments, model=False)
    assert (code, out) == (2, "")
    assert said in error
    assert len(error.splitlines()) == 1
