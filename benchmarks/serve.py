"""The live server against plain Python: how much a page adds, and how it bears many clients.

    python benchmarks/serve.py            # the default model; a few minutes
    python benchmarks/serve.py --load     # also: 50 clients at once, 500 requests, memory

Ratios within one run; nothing else should run beside it.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import threading
import time

import httpx

import rationales

TEXT = "The Supreme Court on Tuesday"
LONG = (
    "The committee met again on Monday to discuss the plan for the new bridge over the river. "
    "Several members asked how long the work would take and who would pay for it, and the mayor "
    "said that the city would know more by the end of the"
)
RUNS = 5
BARS = {"score": 2.0, "first target": 1.5}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--load", action="store_true")
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument(
        "--model", help="a folder, for a quick trial; the default model if left out"
    )
    arguments = parser.parse_args()
    explainer = rationales.load(arguments.model)
    command = [sys.executable, "-m", "rationales", "serve", "--port", "0"]
    command += ["--model", arguments.model] if arguments.model else []
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        address = server.stdout.readline().strip()
        with httpx.Client(base_url=address, timeout=600) as client:
            client.get("/healthz")
            compare_scores(client, explainer)
            compare_first_targets(client, explainer)
            if arguments.load:
                load(address, server.pid, explainer, arguments.requests)
    finally:
        server.terminate()
        print(f"exit code after SIGTERM: {server.wait(60)}")


def compare_scores(client: httpx.Client, explainer: rationales.Explainer) -> None:
    """POST /score beside one forward pass of the same context."""
    import torch

    explanation = explainer.explain(LONG, target="last", max_size=1, criterion="none")
    target = explanation[0].target
    tokens = plain(explanation)
    ids = torch.tensor([[token.id for token in explanation.tokens[:target]]])
    body = {"tokens": tokens, "target": target, "keep": list(range(target))}
    scorer = explainer.scorer
    model = getattr(scorer, "base", scorer).model

    def forward() -> None:
        with torch.inference_mode():
            model(ids, attention_mask=torch.ones_like(ids), use_cache=False, logits_to_keep=1)

    ratio(
        f"score, {target} tokens",
        "score",
        lambda: client.post("/score", json=body).raise_for_status(),
        forward,
        "one forward pass",
    )


def compare_first_targets(client: httpx.Client, explainer: rationales.Explainer) -> None:
    """The first rationale on the page beside ``explain`` for that target alone."""

    def first(options: dict) -> None:
        with client.stream("POST", "/explain", json={"text": TEXT, "options": options}) as answer:
            for line in answer.iter_lines():
                if line == "event: rationale":
                    return

    def python() -> None:
        explainer.explain(TEXT, generate=1)

    ratio("first target, asked alone", "first target", lambda: first({"generate": 1}), python)
    time.sleep(1)
    ratio("first target of eight", "first target", lambda: first({}), python)


def ratio(what, bar, ours, theirs, name="explain in Python") -> None:
    """Print the medians of both, taken in turns, and their ratio."""
    times = {"ours": [], "theirs": []}
    for number in range(RUNS + 1):
        for key, function in (("ours", ours), ("theirs", theirs)):
            began = time.perf_counter()
            function()
            if number:  # the first is not counted
                times[key].append(time.perf_counter() - began)
            time.sleep(0.2)
    one, other = (statistics.median(times[key]) for key in ("ours", "theirs"))
    print(f"{what}: {one:.3f} s, {name}: {other:.3f} s, ratio {one / other:.2f} (bar {BARS[bar]})")


def load(address: str, pid: int, explainer: rationales.Explainer, requests: int) -> None:
    """50 clients at once: no answer lost, none wrong, memory flat."""
    rng = random.Random(0)
    texts = [LONG[:end] for end in range(20, 60) if LONG[end] == " "]
    wanted = {text: explainer.explain(text, generate=1) for text in texts}
    todo = [
        (rng.choice(["explain", "explain", "score", "models"]), rng.choice(texts))
        for _ in range(requests)
    ]
    lock, wrong, done, memory = threading.Lock(), [], [], []

    def client() -> None:
        with httpx.Client(base_url=address, timeout=1200) as session:
            session.get("/healthz")
            while True:
                with lock:
                    if not todo:
                        return
                    kind, text = todo.pop()
                try:
                    right = ask(session, kind, text, wanted[text])
                except Exception as error:
                    right, kind = False, f"{kind}: {error}"
                with lock:
                    done.append(kind)
                    if not right:
                        wrong.append(kind)
                    if len(done) % 50 == 0:
                        memory.append(resident(pid))

    began = time.perf_counter()
    threads = [threading.Thread(target=client) for _ in range(50)]
    for thread in threads:
        thread.start()
    slowest = 0.0
    while any(thread.is_alive() for thread in threads):
        asked = time.perf_counter()
        httpx.get(f"{address}/healthz", timeout=60)
        slowest = max(slowest, time.perf_counter() - asked)
        time.sleep(0.5)
    print(
        f"load: {len(done)} of {requests} answered in {time.perf_counter() - began:.0f} s, "
        f"{len(wrong)} wrong {wrong[:3]}, slowest /healthz {slowest:.2f} s"
    )
    print(f"memory in MB after each 50 requests: {[round(each) for each in memory]}")


def ask(session: httpx.Client, kind: str, text: str, wanted: rationales.Explanation) -> bool:
    """Whether a request is answered as Python answers it."""
    if kind == "models":
        return session.get("/models").status_code == 200
    if kind == "score":
        rationale = wanted[0]
        body = {
            "tokens": plain(wanted),
            "target": rationale.target,
            "keep": list(rationale.indices),
        }
        found = session.post("/score", json=body).raise_for_status().json()
        return found["sufficient"] == rationale.sufficient
    data = ""
    with session.stream(
        "POST", "/explain", json={"text": text, "options": {"generate": 1}}
    ) as answer:
        for line in answer.iter_lines():
            data = line if line.startswith("data: ") else data
    explanation = json.loads(data.removeprefix("data: "))["explanation"]
    return rationales.Explanation.from_dict(explanation) == wanted


def plain(explanation: rationales.Explanation) -> list[dict]:
    """The tokens of an explanation as a request has them."""
    return [
        {"id": token.id, "text": token.text, "pinned": token.pinned} for token in explanation.tokens
    ]


def resident(pid: int) -> float:
    """The memory of a process, in MB."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))


if __name__ == "__main__":
    main()
