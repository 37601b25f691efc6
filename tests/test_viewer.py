"""The viewer's page, from Python's side: its data, its policy, its size, its safety."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rationales import Explanation, RationalesError
from rationales.context import Part
from rationales.render import viewer
from rationales.render.proof import facts

from shown import (
    HOSTILE,
    court,
    documents,
    explanation,
    hostile,
    long,
    pair,
    rationale,
    tokens_of,
)


def data_in(page: str) -> dict[str, object]:
    [text] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    data: dict[str, object] = json.loads(text)
    return data


def test_page_data_holds_explanation_words_sentences_and_gold():
    translation, gold = pair()
    data = viewer.page_data([court(), translation], titles=["one", "two"], gold=[None, gold])
    one, two = data["items"]
    assert (one["title"], two["title"]) == ("one", "two")
    assert one["explanation"] == court().to_dict()
    assert Explanation.from_dict(two["explanation"]) == translation
    assert (4, 5) in one["units"]["word"]  # " Tues", "day"
    assert [len(unit) for unit in one["units"]["sentence"]] == [11]
    assert "gold" not in one
    assert [0, 9] in two["gold"]["sure"]
    assert json.loads(json.dumps(data)) == json.loads(viewer.as_json(data))


def test_page_data_holds_proofs_in_words_and_units_within_parts():
    shown = documents()
    tokens = [replace(token, pinned=False) for token in shown.tokens]
    unpinned = replace(shown, tokens=tuple(tokens), parts=(Part("document", "1", 0, 3),))
    [item, other] = viewer.page_data([shown, unpinned])["items"]
    assert item["proofs"] == {str(shown[0].target): [[*facts(shown[0], "token")]]}
    assert not any({2, 3} <= {*unit} for unit in other["units"]["sentence"])
    assert viewer.page_data([court()])["items"][0]["proofs"] == {}


def test_titles_tell_items_apart():
    found = viewer.page_data([court(), court("beam"), pair()[0]])["items"]
    text = "The Supreme Court on Tuesday ruled that the law."
    titles = [f"greedy · {text}", f"beam · {text}", "Je pense que tu as raison."]
    assert [each["title"] for each in found] == titles
    named = explanation(court().tokens, court().rationales, id=7)
    assert viewer.page_data([named])["items"][0]["title"] == "7"


def test_as_many_titles_as_explanations():
    with pytest.raises(RationalesError, match="titles must have one entry for each explanation"):
        viewer.page_data([court()], titles=["one", "two"])


def test_policy_allows_the_one_script_and_the_one_style():
    page = court().to_html()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for tag in ("script", "style"):
        [text] = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)


def test_nothing_of_a_text_is_markup():
    page = hostile().to_html()
    for text in HOSTILE[:3]:
        assert text not in page
    assert page.count("<script") == 2
    [item] = data_in(page)["items"]
    assert [token["text"] for token in item["explanation"]["tokens"][:-1]] == [*HOSTILE]


def test_halves_of_characters_can_be_written(tmp_path):
    tokens = tokens_of(["\ud83d", " b"])
    broken = explanation(tokens, [rationale(tokens, 1, [0])])
    broken.to_html(tmp_path / "x.html")
    assert data_in((tmp_path / "x.html").read_text(encoding="utf-8"))


def test_to_html_writes_what_it_returns(tmp_path):
    path = tmp_path / "x.html"
    assert court().to_html(path) == path.read_text(encoding="utf-8")
    with pytest.raises(RationalesError, match="missing"):
        court().to_html(tmp_path / "missing" / "x.html")


def test_several_explanations_are_one_page():
    page = viewer.page([court(), long(20)], title="a <b> c")
    assert "<title>a &lt;b&gt; c</title>" in page
    assert len(data_in(page)["items"]) == 2


def test_a_notebook_shows_a_sandboxed_frame():
    frame = court()._repr_html_()
    match = re.fullmatch(r'<iframe srcdoc="([^"]*)" sandbox="([^"]*)" [^<>]*></iframe>', frame)
    assert match[2] == "allow-scripts allow-downloads"
    assert html.unescape(match[1]) == court().to_html()


def test_sizes():
    script, style = viewer.source("viewer.js"), viewer.source("viewer.css")
    assert len((script + style).encode()) < 72_000
    assert len(long(100).to_html().encode()) < 200_000


def test_results_import_no_viewer():
    code = "import sys, rationales; assert 'rationales.render.viewer' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_script_makes_text_nodes_only():
    script = viewer.source("viewer.js")
    for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert unsafe not in script
    assert Path(viewer.__file__).with_name("viewer.css").exists()
