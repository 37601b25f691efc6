"""Do a model here and the same model behind an endpoint keep the same sentences?

    python benchmarks/endpoint.py --out endpoint.jsonl

The endpoint is llama.cpp's server (the wheel ``xllamacpp``) with the default model's GGUF file, on
this machine. The model here has the same weights in float32, no adapter, and deleted evaluation:
what differs is llama.cpp's arithmetic, in which 8-bit activations meet the 4-bit weights. Cases are
those of ``facts.py``: sentences of WikiText-2, a made-up fact among them, and a question about it.
Nothing is rejected. A line for each case goes to the file, and cases that are there are not done
again. Where the sets differ, both models are asked about both of them.
"""

import argparse
import json
import os
import tempfile
from itertools import islice
from pathlib import Path

import xllamacpp
from facts import Case, draw_cases

import rationales
from rationales.models.default import installed_gguf


def start_server() -> tuple[xllamacpp.Server, str]:
    """A server with the default model's file, and its address."""
    file = installed_gguf()
    if file is None:
        raise SystemExit("the default model is not here yet: run `rationales model get`")
    settings = xllamacpp.CommonParams()
    settings.model.path = str(file)
    settings.port, settings.n_ctx, settings.n_parallel = 0, 4096, 2
    settings.verbosity = -1
    server = xllamacpp.Server(settings)
    return server, f"{server.listening_address}/v1"


def compare(
    case: Case, here: rationales.Explainer, there: rationales.Explainer
) -> dict[str, object]:
    """What the two keep for the last word of a case's answer."""
    prompt = case.prompt()
    found, tokens = {}, {}
    for name, explainer in (("here", here), ("endpoint", there)):
        options = {"evaluation": "deleted"} if name == "here" else {}
        explanation = explainer.explain(
            documents=list(prompt.documents),
            question=prompt.question,
            template=prompt.template,
            continuation=case.answer,
            target=case.target,
            unit="sentence",
            **options,
        )
        [found[name]] = explanation.rationales[:1]
        tokens[name] = explanation.tokens
    row: dict[str, object] = {
        "id": case.id,
        "sentences": len(case.sentences),
        "same": {*found["here"].indices} == {*found["endpoint"].indices},
        "sufficient": {name: each.sufficient for name, each in found.items()},
        "logprob": {name: each.steps[-1].target_logprob for name, each in found.items()},
        "units": {name: len(each.units or ()) for name, each in found.items()},
    }
    if not row["same"]:
        row["margins"] = {
            f"of {whose} set, {by}": _margin(explainer, tokens[whose], rationale, by)
            for whose, rationale in found.items()
            for by, explainer in (("here", here), ("endpoint", there))
        }
    return row


def _margin(explainer: rationales.Explainer, tokens: object, rationale: object, by: str) -> object:
    """How far the target is ahead of the most likely token given a set: below 0, behind it."""
    given = {"evaluation": "deleted"} if by == "here" else {}
    told = explainer.predict(tokens, rationale.target, rationale.indices, **given)
    assert told.prediction_logprob is not None
    behind = told.target_logprob - told.prediction_logprob
    return {"sufficient": told.sufficient, "behind": round(behind, 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cases", type=int, default=30)
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    done = {}
    if given.out.exists():
        done = {row["id"]: row for row in map(json.loads, given.out.read_text().splitlines())}
    here = rationales.load(adapter=False)
    os.environ["RATIONALES_CACHE"] = tempfile.mkdtemp()  # answers of another server do not count
    server, url = start_server()
    there = rationales.load(endpoint=url)
    with given.out.open("a") as file:
        for case in islice(draw_cases(here, given.tokens, given.seed, two=False), given.cases):
            if case.id not in done:
                done[case.id] = compare(case, here, there)
                file.write(json.dumps(done[case.id]) + "\n")
                file.flush()
    rows = list(done.values())
    same = sum(bool(row["same"]) for row in rows)
    print(f"{same} of {len(rows)} sets are the same ({same / len(rows):.0%})")
    for row in rows:
        if not row["same"]:
            print(json.dumps(row))
    del server


if __name__ == "__main__":
    main()
