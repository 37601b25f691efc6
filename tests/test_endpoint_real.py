"""llama.cpp's own server with the default model's file: what the scripted one is told, it does."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rationales
from rationales.models.default import installed_gguf

pytestmark = [
    pytest.mark.real_model,
    pytest.mark.skipif(
        importlib.util.find_spec("xllamacpp") is None,
        reason="there is no wheel of xllamacpp for this platform",
    ),
    pytest.mark.skipif(installed_gguf() is None, reason="the default model's wheel is not here"),
]

TEXT = "Bob has a dog. Anna lives in Paris. Anna lives in the city of"


@pytest.fixture(scope="module")
def url(tmp_path_factory: Any) -> Iterator[str]:
    import xllamacpp

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RATIONALES_CACHE", str(tmp_path_factory.mktemp("cache")))
        settings = xllamacpp.CommonParams()
        settings.model.path = str(installed_gguf())
        settings.port, settings.n_ctx, settings.n_parallel = 0, 2048, 2
        settings.cpuparams.n_threads = 2
        settings.verbosity = -1
        server = xllamacpp.Server(settings)
        yield f"{server.listening_address}/v1"
        del server


def test_a_text_is_continued_and_its_target_forced(url: str) -> None:
    explainer = rationales.load(endpoint=url)
    explanation = explainer.explain(TEXT, continuation=" Paris", unit="sentence")
    [found] = explanation
    assert explanation.endpoint is not None
    assert explanation.endpoint.way == "forced"
    assert explanation.endpoint.below_last == 0
    assert explanation.evaluation == "deleted"
    assert found.sufficient
    assert "Anna lives in Paris." in found.text
    assert explanation.text == f"{TEXT} Paris"
    logprobs = [step.target_logprob for step in found.steps]
    assert logprobs[-1] > logprobs[0]
    # A target that no model would say is forced all the same, and its log-probability told.
    odd = explainer.explain(TEXT, continuation=" xylophone", unit="sentence", max_size=1)[0]
    assert not odd.sufficient
    assert odd.full_context is not None
    assert -40 < odd.full_context.target_logprob < -8


@pytest.mark.parametrize("path", ["", "/chat/completions"])
def test_a_chat_by_its_template_and_by_its_messages(url: str, path: str) -> None:
    explainer = rationales.load(endpoint=url + path)
    messages = [{"role": "user", "content": "I like tea. The capital of France is Paris. Bye."}]
    explanation = explainer.explain(messages=messages, generate=1, unit="sentence")
    [found] = explanation
    assert explanation.endpoint is not None
    assert explanation.endpoint.way == "forced"
    assert found.sufficient
    assert found.predicted
    assert [part.name for part in explanation.parts][-1] == "user"


def test_the_two_ways_into_a_chat_agree(url: str) -> None:
    """The server's own rendering, and messages that it renders: the same log-probability."""
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    by_template, by_messages = (
        rationales.load(endpoint=url + path).explain(messages=messages, generate=1)[0]
        for path in ("", "/chat/completions")
    )
    assert by_template.full_context is not None
    assert by_messages.full_context is not None
    assert by_template.target_text == by_messages.target_text
    told = by_messages.full_context.target_logprob
    assert by_template.full_context.target_logprob == pytest.approx(told, abs=1e-2)


def test_the_probe_shows_what_it_can_do(url: str, run: Any, tmp_path: Path) -> None:
    code, out, err = run("endpoint", "probe", url, model=False)
    assert code == 0, err
    found = json.loads(out)
    assert found["server"] == "llama.cpp"
    assert found["way"] == "forced"
    assert found["alternatives"] == 20
    assert found["takes_ids"] is found["applies_template"] is found["deterministic"] is True
    assert (found["echoes"], found["at_once"]) == (False, 2)
