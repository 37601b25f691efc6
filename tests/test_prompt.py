"""Conversations and documents: what is pinned, what is searched, which part is whose."""

from __future__ import annotations

import json
import os
from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest

from rationales.chat import render
from rationales.errors import RationalesError
from rationales.options import Options
from rationales.prompt import TEMPLATE, Conversation, Documents
from rationales.text import encode
from rationales.units import group

# Templates in the documented format of each family, shortened to what a conversation needs.
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TEMPLATES = {
    "chatml": CHATML,
    "default system": "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\nYou are helpful"
    "<|im_end|>\n' }}{% endif %}" + CHATML,
    "llama 3": "{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' "
    "+ m.content | trim + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    "mistral": "{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content + "
    "' [/INST]' }}{% elif m.role == 'assistant' %}{{ ' ' + m.content + '</s>' }}{% else %}"
    "{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}",
    "gemma": "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') "
    "}}{% endif %}{% for m in messages %}{{ '<start_of_turn>' + ('model' if m.role == 'assistant' "
    "else m.role) + '\n' + m.content | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
    "phi 3": "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}",
    "thinking": "{% for m in messages %}{% set said = m.content.split('</think>')[-1] if "
    "m.role == 'assistant' else m.content %}{{ '<|' + m.role + '|>' + said }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|><think>\n' }}{% endif %}",
    "tools": "{% for m in messages %}{% if m.role == 'tool' %}{{ '<|im_start|>user\n<tool_response>"
    "\n' + m.content + '\n</tool_response><|im_end|>\n' }}{% elif m.tool_calls %}"
    "{{ '<|im_start|>assistant\n<tool_call>' + m.tool_calls[0].name + '</tool_call><|im_end|>\n' }}"
    "{% else %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
}

CHAT = [
    {"role": "user", "content": "The Supreme Court on Tuesday ruled."},
    {"role": "assistant", "content": "It did; naïve café 🙂."},
    {"role": "user", "content": "東京は日本の首都です。\r\nWhen?"},
]
SYSTEM = {"role": "system", "content": "Be brief about the law."}
REFUSES_SYSTEM = ("mistral", "gemma")


@pytest.fixture(params=[*TEMPLATES])
def family(request: Any, tiny_tokenizer: Any) -> tuple[str, Any]:
    tokenizer = deepcopy(tiny_tokenizer)
    tokenizer.chat_template = TEMPLATES[request.param]
    return request.param, tokenizer


@pytest.fixture
def chat_tokenizer(tiny_tokenizer: Any) -> Any:
    tokenizer = deepcopy(tiny_tokenizer)
    tokenizer.chat_template = CHATML
    return tokenizer


def parts_of(passage: Any) -> list[str]:
    return ["".join(t.text for t in passage.tokens[p.start : p.end]) for p in passage.parts]


def test_just_what_the_template_adds_is_pinned(family):
    name, tokenizer = family
    messages = CHAT if name in REFUSES_SYSTEM else [SYSTEM, *CHAT]
    passage = encode(tokenizer, Conversation(tuple(messages)), Options())
    said = [message["content"] for message in messages]
    assert [part.name for part in passage.parts] == [message["role"] for message in messages]
    for text, content in zip(parts_of(passage), said, strict=True):
        assert content in text
    # What is not pinned is what people said, but for tokens that the template's words are in too.
    plain = "".join("\0" * len(t.text) if t.pinned else t.text for t in passage.tokens)
    for content in said:
        assert plain.count(content) == 1
    left = plain.replace("\0", "")
    for content in said:
        left = left.replace(content, "", 1)
    assert len(left) <= 8 * len(said), left
    assert "".join(t.text for t in passage.tokens) == tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True
    )


def test_a_message_can_be_pinned_and_units_are_messages(chat_tokenizer):
    messages = [{**SYSTEM, "pinned": True}, *CHAT]
    passage = encode(chat_tokenizer, Conversation(tuple(messages)), Options())
    system, *others = passage.parts
    assert all(token.pinned for token in passage.tokens[system.start : system.end])
    units = group(passage.tokens, "message", parts=passage.parts)
    assert [(u[0], u[-1] + 1) for u in units] == [(p.start, p.end) for p in others]


def test_the_last_message_of_the_assistant_is_the_answer(chat_tokenizer):
    passage = encode(chat_tokenizer, Conversation(tuple(CHAT[:2])), Options())
    answer = "".join(token.text for token in passage.tokens[passage.start :])
    assert answer == CHAT[1]["content"]
    assert [part.name for part in passage.parts] == ["user"]
    with pytest.raises(RationalesError, match="ends with an answer"):
        encode(chat_tokenizer, Conversation(tuple(CHAT[:2])), Options(continuation=" No"))


def test_calls_of_tools_are_pinned_and_what_tools_say_is_searched(tiny_tokenizer):
    tokenizer = deepcopy(tiny_tokenizer)
    tokenizer.chat_template = TEMPLATES["tools"]
    messages = (
        CHAT[0],
        {"role": "assistant", "content": None, "tool_calls": [{"name": "search"}]},
        {"role": "tool", "content": "The law is the law."},
    )
    passage = encode(tokenizer, Conversation(messages), Options())
    assert [part.name for part in passage.parts] == ["user", "tool"]
    assert "The law is the law." in parts_of(passage)[1]


def test_what_the_assistant_has_thought_is_left_out_with_the_template(tiny_tokenizer):
    tokenizer = deepcopy(tiny_tokenizer)
    tokenizer.chat_template = TEMPLATES["thinking"]
    thinks = {"role": "assistant", "content": "<think>The law?</think>The land."}
    passage = encode(tokenizer, Conversation((CHAT[0], thinks, CHAT[0])), Options())
    assert "The land." in parts_of(passage)[1]
    assert "law" not in parts_of(passage)[1]


@pytest.mark.parametrize(
    ("messages", "template", "said"),
    [
        ([], "chatml", "at least one message"),
        (["hello"], "chatml", "message 1 must be an object"),
        ([{"content": "x"}], "chatml", "message 1 must be an object"),
        ([{"role": "user", "content": 3}], "chatml", "content of message 1 must be a text"),
        ([{"role": "user", "content": " "}], "chatml", "says nothing"),
        ([SYSTEM, *CHAT], "gemma", "refuses the conversation: System role not supported"),
        ([SYSTEM, *CHAT], "mistral", "refuses the conversation: Only user and assistant"),
    ],
)
def test_conversations_that_are_wrong_are_one_line(messages, template, said, tiny_tokenizer):
    tokenizer = deepcopy(tiny_tokenizer)
    tokenizer.chat_template = TEMPLATES[template]
    with pytest.raises(RationalesError, match=said):
        encode(tokenizer, Conversation(tuple(messages)), Options())


@pytest.mark.parametrize("change", ["m.content | replace('The', 'A')", "'nothing'"])
def test_templates_that_change_messages_are_refused(change, tiny_tokenizer):
    tokenizer = deepcopy(tiny_tokenizer)
    tokenizer.chat_template = "{% for m in messages %}{{ " + change + " }}{% endfor %}"
    with pytest.raises(
        RationalesError, match="leaves out, repeats or rewrites message 1, of the role 'user'"
    ):
        encode(tokenizer, Conversation(tuple(CHAT)), Options())


DOCUMENTS = (
    "The Supreme Court ruled.\n\nOn Tuesday the law was the law.",
    {"title": "Land", "text": "The land is 42 km long."},
    {"id": "c7", "text": "Nothing else."},
)


def test_a_template_that_repeats_a_message_is_refused(chat_tokenizer):
    chat_tokenizer.chat_template = CHATML + "{{ 'Asked: ' + messages[-1].content }}"
    with pytest.raises(RationalesError, match="repeats or rewrites message 3"):
        render(chat_tokenizer, Conversation(tuple(CHAT)))


def test_a_template_whose_end_depends_on_the_messages_is_refused(chat_tokenizer):
    chat_tokenizer.chat_template = (
        CHATML + "{% if 'ruled' in messages[0].content %}{{ '<think>' }}{% endif %}"
    )
    with pytest.raises(RationalesError, match="ends differently depending on what the messages"):
        render(chat_tokenizer, Conversation(tuple(CHAT)))


def test_a_template_that_takes_a_document_apart_is_refused(chat_tokenizer):
    chat_tokenizer.chat_template = (
        "{% for m in messages %}{% set said = m.content.split('</think>') %}"
        "{{ 'Thought: ' + said[0].split('<think>')[-1] + ' Said: ' + said[-1] }}{% endfor %}"
    )
    given = Documents(("<think>The court.</think> It ruled.",), template="{documents}")
    with pytest.raises(RationalesError, match="takes the text apart: leave out chat"):
        render(chat_tokenizer, given, chat=True)


def test_a_thought_of_the_answer_is_not_left_out_silently(chat_tokenizer):
    last = {"role": "assistant", "content": "4", "reasoning_content": "I add."}
    with pytest.raises(RationalesError, match="the last message has reasoning_content"):
        render(chat_tokenizer, Conversation((CHAT[0], last)))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"generate": 3}, "ends with an answer: leave out generate"),
        ({"specials": "candidate"}, "leave out specials"),
    ],
)
def test_options_that_a_conversation_with_an_answer_does_not_read(options, said, chat_tokenizer):
    with pytest.raises(RationalesError, match=said):
        encode(chat_tokenizer, Conversation(tuple(CHAT[:2])), Options(**options))


def test_documents_are_parts_and_the_rest_is_pinned(tiny_tokenizer):
    given = Documents(DOCUMENTS, "How long is the land?")
    assert render(tiny_tokenizer, given).text.endswith("Question: How long is the land?\nAnswer:")
    passage = encode(tiny_tokenizer, given, Options())
    kinds = [(part.kind, part.name) for part in passage.parts]
    assert kinds == [
        ("document", "1"),
        ("document", "Land"),
        ("document", "c7"),
        ("question", "question"),
    ]
    assert "42 km" in parts_of(passage)[1]
    question = passage.parts[-1]
    assert all(token.pinned for token in passage.tokens[question.start : question.end])
    searched = encode(tiny_tokenizer, Documents(DOCUMENTS, "How?", None, True), Options())
    question = searched.parts[-1]
    assert not any(token.pinned for token in searched.tokens[question.start : question.end])
    units = group(passage.tokens, "document", parts=passage.parts)
    assert len(units) == 3
    paragraphs = group(passage.tokens, "paragraph", parts=passage.parts)
    assert len(paragraphs) == 4


def test_a_template_of_the_users_and_a_chat_around_it(chat_tokenizer):
    template = "Read: {documents} -- {question} Be brief."
    given = Documents(DOCUMENTS, "How long?", template)
    plain = encode(chat_tokenizer, given, Options())
    assert "".join(t.text for t in plain.tokens).startswith("Read: The Supreme")
    wrapped = encode(chat_tokenizer, given, Options(chat=True))
    assert parts_of(wrapped)[1].strip() == parts_of(plain)[1].strip()
    assert "".join(t.text for t in wrapped.tokens).endswith("<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("strip", "first", "last"),
    [("lstrip", "The court.", "It ruled. "), ("rstrip", " The court.", "It ruled.")],
)
def test_documents_keep_their_places_where_the_template_strips_one_side(
    strip, first, last, chat_tokenizer
):
    chat_tokenizer.chat_template = CHATML.replace("m.content", f"m.content.{strip}()")
    given = Documents((" The court.", "It ruled. "), template="{documents}")
    prompt = render(chat_tokenizer, given, chat=True)
    assert [prompt.text[s.start : s.end] for s in prompt.stretches] == [first, last]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (((), "Q"), "at least one document"),
        (((" ",), "Q"), "document 1 is empty: leave it out"),
        ((("a", {"text": "", "title": "T"}), "Q"), r"document 2 \('T'\) is empty"),
        ((("a",), 3), "the question must be a text, not 3"),
        ((("a",), "Q", 3), "the template must be a text, not 3"),
        ((("a",), "Q", False), "the template must be a text, not False"),
        ((({"text": "a", "title": ["T"]},), "Q"), "the title of document 1 must be a text"),
        ((("a", 3), "Q"), "document 2 must be a text or an object"),
        ((({"title": "t"},), "Q"), "document 1 must be a text or an object"),
        (
            (("a",), "Q", "{documents}"),
            "has {question} in no place: write it once, where the quest",
        ),
        (
            (("a",), "Q", "{question}"),
            "has {documents} in no place: write it once, where the docum",
        ),
        ((("a",), "Q", ""), "has {documents} in no place"),
        ((("a",), "Q", "{documents} {documents} {question}"), "has {documents} in 2 places"),
        ((("a",), "", TEMPLATE), "there is no question: give one"),
    ],
)
def test_documents_that_are_wrong_are_one_line(given, said):
    with pytest.raises(RationalesError, match=said):
        Documents(*given)


def test_answers_are_explained_and_targets_are_of_the_answer(tiny_explainer):
    asked = {"documents": ["The law is the law.", "The land."], "question": "How?"}
    whole = tiny_explainer.explain(**asked, continuation=" 42 km long.", max_size=2)
    assert [each.target for each in whole] == [*range(whole[0].target, len(whole.tokens))]
    part = tiny_explainer.explain(
        **asked, continuation=" 42 km long.", target="42 km", span=True, max_size=2
    )
    [one] = part
    assert one.target_text.strip() == "42 km"
    assert {kind for kind, _ in [(p.kind, t) for p, t in part.sources(one)]} <= {"document"}
    with pytest.raises(
        RationalesError, match=r"'The Supreme Court' is not in the answer, '42 km long\."
    ):
        tiny_explainer.explain(**asked, continuation=" 42 km long.", target="The Supreme Court")
    own = tiny_explainer.explain(**asked, generate=2, max_size=1)
    assert len(own) == 2
    with pytest.raises(RationalesError, match=r"token 2 is none .*; 2#1 names the word"):
        tiny_explainer.explain(**asked, continuation=" 2 km long.", target="2")


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({}, "give a text"),
        ({"text": "a", "documents": ["b"]}, "give one of"),
        ({"question": "why?"}, "about documents"),
        ({"documents": ["a"], "search_question": True}, "there is no question to search"),
        ({"documents": "a text"}, "give a list of documents"),
        ({"documents": 5}, "give a list of documents, not 5"),
        ({"messages": 5}, "give a list of messages, not 5"),
        ({"messages": [{"role": "user", "content": "a", "pinned": "no"}]}, "true or false"),
    ],
)
def test_calls_that_contradict_themselves(keywords, said, tiny_explainer):
    with pytest.raises(RationalesError, match=said):
        tiny_explainer.explain(**keywords)


def test_coarse_to_fine_starts_at_what_the_text_has_and_ends_where_asked(tiny_explainer):
    texts = ["The law. The land is.", "The fox.\n\nThe dog sleeps."]
    asked = {"documents": texts, "question": "How?", "generate": 1}
    for finest in ("document", "paragraph", "sentence", "word", "token"):
        found = tiny_explainer.explain(**asked, coarse_to_fine=True, finest=finest)
        [rationale] = found
        assert rationale.sufficient
        units = {*group(found.tokens, finest, parts=found.parts)}
        assert {*(rationale.units or [(i,) for i in rationale.indices])} <= units
    with pytest.raises(RationalesError, match="finest is where coarse_to_fine ends"):
        tiny_explainer.explain("The law", finest="word")


def test_an_answer_that_ends_at_once_is_told(tiny_explainer, monkeypatch):
    asked = {"documents": ["The law is the law."], "question": "How?"}
    vocabulary = {*range(len(tiny_explainer.tokenizer))}
    monkeypatch.setattr("rationales.reading.end_ids", lambda *_: vocabulary)
    with pytest.raises(RationalesError, match=r"answers nothing.* give chat, .* or a continuation"):
        tiny_explainer.explain(**asked)
    assert len(tiny_explainer.explain(**asked, generate=1, max_size=1)) == 1


def test_units_of_the_users_own(tiny_explainer):
    text = "The Supreme Court, on Tuesday, ruled that"
    found = tiny_explainer.explain(text, generate=1, unit_pattern=r"[^,]+,")
    kept = ["".join(found.tokens[i].text for i in u) for u in found[0].units or ()]
    assert "".join(kept).strip()
    spans = tiny_explainer.explain(text, generate=1, units=[(0, 18), (18, 30)])
    assert spans[0].units is not None
    assert type(spans).from_json(spans.to_json()) == spans
    for units, said in (
        ([(0, 5), (3, 8)], "must not overlap"),
        ([(5, 5)], "go from one character to a later one"),
        ([], "units must be a list of"),
        ([(0, 5000)], "units end at character 5000, and the text has"),
    ):
        with pytest.raises(RationalesError, match=said):
            tiny_explainer.explain(text, units=units)
    for pattern, said in (
        ("(", "unit_pattern is no regular expression: missing"),
        ("(?P<{>x)", "unit_pattern is no regular expression: bad"),
        ("a{99999999999999999999}", "unit_pattern is no regular expression: the repetition"),
        ("(" * 5000 + ")" * 5000, "unit_pattern is no regular expression"),
        ("[^.]*", "unit_pattern matches the empty text"),
    ):
        with pytest.raises(RationalesError, match=said):
            tiny_explainer.explain(text, unit_pattern=pattern)


def test_units_of_the_users_own_do_not_count_the_template(tiny_tokenizer):
    """A token that a document shares with the template has characters of both."""
    tokenizer = deepcopy(tiny_tokenizer)
    tokenizer.add_tokens([".\n\n", "\n\nThe"])
    documents = ("The law.", "It is 5.", "The dog", "The fox")
    passage = encode(tokenizer, Documents(documents), Options())
    assert passage.added == ((8, 2), (16, 2), (23, 2))
    borders = [0, 8, 16, 23, 30]
    spans = [(passage.place(start), passage.place(end)) for start, end in pairwise(borders)]
    units = group(passage.tokens, "token", parts=passage.parts, spans=spans)
    assert ["".join(passage.tokens[i].text for i in unit).strip() for unit in units] == [*documents]


def test_the_end_of_an_answer_is_not_the_last_that_it_says(tiny_explainer, monkeypatch):
    text = "The quick brown fox jumps over the lazy"
    first, last = tiny_explainer.explain(text, generate=2, max_size=1).tokens[-2:]
    assert first.id != last.id
    monkeypatch.setattr("rationales.reading.end_ids", lambda *_: {last.id})

    def targets(**options):
        found = tiny_explainer.explain(text, generate=2, max_size=1, **options)
        return [(each.target, each.target_length) for each in found]

    assert targets() == [(first.index, 1), (last.index, 1)]
    assert targets(target="last") == [(first.index, 1)]
    assert targets(target="-1") == [(last.index, 1)]
    assert targets(span=True) == targets(span=True, target="all") == [(first.index, 1)]
    monkeypatch.setattr("rationales.reading.end_ids", lambda *_: {first.id})  # nothing else is said
    assert targets(target="last") == targets(span=True) == [(first.index, 1)]


def test_files_that_are_read_are_not_written(run, tmp_path):
    messages = tmp_path / "chat.json"
    messages.write_text(json.dumps(CHAT))
    (tmp_path / "law.txt").write_text("The law.")
    (tmp_path / "template.txt").write_text("{documents}")
    law, template = str(tmp_path / "law.txt"), str(tmp_path / "template.txt")
    for read in (
        ["--messages", str(messages)],
        ["--documents", law],
        ["--documents", law, "--template", template],
    ):
        for option in ("--json", "--html", "--plot"):
            code, _, err = run("explain", *read, option, read[-1], "--generate", "1")
            assert (code, err.count("\n")) == (2, 1)
            assert "give --json another place" in err or "read or written already" in err
    assert json.loads(messages.read_text()) == CHAT
    assert (tmp_path / "law.txt").read_text() == "The law."


def test_documents_are_called_by_their_files(run, tmp_path):
    names = ["a/law.txt", "b/law.txt", "b/land.txt"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("The law.")
    files = [str(tmp_path / name) for name in names]
    code, out, _ = run("explain", "--documents", *files, "--generate", "1", "--json", "-")
    assert code == 0
    assert [part["name"] for part in json.loads(out)["parts"]] == [*files[:2], "land.txt"]
    bytes_of_latin1 = os.fsdecode(b"caf\xe9.txt")
    (tmp_path / bytes_of_latin1).write_text("The law.")
    code, out, _ = run(
        *("explain", "--documents", str(tmp_path / bytes_of_latin1), "--generate", "1"),
        *("--json", "-"),
    )
    assert code == 0
    assert json.loads(out)["parts"][0]["name"] == "caf\N{REPLACEMENT CHARACTER}.txt"


def test_a_line_that_fails_keeps_its_id(run):
    code, out, _ = run("explain", "--jsonl", "-", stdin='{"id": 7, "documents": "x"}\n')
    assert code == 3
    assert json.loads(out)["id"] == 7


def test_the_command_takes_conversations_and_documents(run, tmp_path, tiny_folder):
    (tmp_path / "a.txt").write_text("The law is the law.\n")
    rows = [{"title": "Land", "text": "The land."}, {"id": "c", "text": "The dog."}]
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "template.txt").write_text("{documents} So {question}")
    files = ["--documents", str(tmp_path / "a.txt"), "--documents", str(tmp_path / "b.jsonl")]
    more = ["--question", "what?", "--template", str(tmp_path / "template.txt")]
    code, out, _ = run("explain", *files, *more, "--generate", "1", "--json", "-")
    assert code == 0
    found = json.loads(out)
    assert [(p["kind"], p["name"]) for p in found["parts"]] == [
        ("document", "a.txt"),
        ("document", "Land"),
        ("document", "c"),
        ("question", "question"),
    ]
    code, out, _ = run("explain", *files, *more, "--generate", "1", "--format", "table")
    assert code == 0
    (tmp_path / "bad.json").write_text("{}")
    (tmp_path / "deep.json").write_text("[" * 200_000)
    (tmp_path / "deep.jsonl").write_text("\n" + "[" * 200_000)
    (tmp_path / "lines.jsonl").write_text('{"text": "The\u2028law\u0085is"}\n', encoding="utf-8")
    code, _, _ = run("explain", "--documents", str(tmp_path / "lines.jsonl"), "--generate", "1")
    assert code == 0
    for arguments, said in (
        (["--messages", str(tmp_path / "bad.json")], "must hold a list of messages"),
        (["--messages", str(tmp_path / "a.txt")], "is no JSON"),
        (["--messages", str(tmp_path / "none.json")], "cannot read"),
        (["--question", "what?"], "about documents"),
        (["a text", *files], "give one of a text"),
        (["--jsonl", str(tmp_path / "b.jsonl"), "--question", "Q"], "into the lines of --jsonl"),
        (["--messages", str(tmp_path / "deep.json")], "is no JSON"),
        (["--documents", str(tmp_path / "deep.jsonl")], "line 2 of"),
    ):
        code, _, err = run("explain", *arguments)
        assert code == 2
        assert said in err
        assert err.count("\n") == 1


def test_prompts_that_are_wrong_are_one_line_of_the_command(
    run, chat_tokenizer, tmp_path, tiny_model, capsys
):
    def file(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    law = ["--documents", file("law.txt", "The law."), "--question", "How?"]
    gemma = tmp_path / "gemma"
    tiny_model.save_pretrained(gemma)
    chat_tokenizer.chat_template = TEMPLATES["gemma"]
    chat_tokenizer.save_pretrained(gemma)
    chat = file("chat.json", json.dumps([SYSTEM, *CHAT]))
    capsys.readouterr()  # the bar of what was saved
    for arguments, said in (
        (["--documents", file("empty.txt", " \n")], "document 1 ('empty.txt') is empty"),
        ([*law, "--template", file("t.txt", "Read this.")], "has {documents} in no place"),
        ([*law, "--template", file("q.txt", "{documents}")], "has {question} in no place"),
        (
            [*law, "--continuation", " 42 km", "--target", "7 km"],
            "the target '7 km' is not in the answer, '42 km'",
        ),
        (
            ["--documents", file("long.txt", "The law. " * 40), "--question", "How?"],
            "and the model has positions for 64: shorten it by at least",
        ),
        (["--messages", chat, "--model", str(gemma)], "refuses the conversation: System role"),
        (["--messages", chat], "no chat template: give a text, not messages"),
    ):
        code, out, err = run("explain", *arguments, model="--model" not in arguments)
        assert (code, out) == (2, "")
        assert said in err
        assert err.count("\n") == 1
    overlapping = json.dumps({"text": "The law is", "units": [[0, 5], [3, 8]]}) + "\n"
    code, out, _ = run("explain", "--jsonl", "-", stdin=overlapping)
    assert code == 3
    assert "units must not overlap: one ends at 5, the next begins at 3" in out


def test_how_much_is_too_long_is_said_exactly(tiny_explainer):
    asked = {"documents": ["The law. " * 40], "question": "How?", "continuation": " So"}
    with pytest.raises(RationalesError) as error:
        tiny_explainer.explain(**asked)
    words = str(error.value).split()
    has, over = int(words[words.index("has") + 1]), int(words[words.index("least") + 1])
    assert has - over - 1 == 64  # the last token is only a target
    assert len(tiny_explainer.tokenizer("The law. " * 40)["input_ids"]) > over


def test_an_answer_ends_where_the_positions_end(tiny_explainer):
    text = "The law. " * 40
    ids = tiny_explainer.tokenizer(text)["input_ids"][:62]
    document = tiny_explainer.tokenizer.decode(ids)
    found = tiny_explainer.explain(documents=[document], max_size=1)
    assert len(found.tokens) <= 65
    with pytest.raises(RationalesError, match="shorten it by at least"):
        tiny_explainer.explain(documents=[document], generate=32)


def test_lines_of_json_hold_conversations_and_documents(run, chat_tokenizer, tmp_path, tiny_model):
    tiny_model.save_pretrained(tmp_path / "model")
    chat_tokenizer.save_pretrained(tmp_path / "model")
    lines = [
        {"id": 1, "messages": [{"role": "user", "content": "The law"}]},
        {"id": 2, "documents": ["The law", "The land"], "question": "So"},
        {"id": 3, "documents": "The law"},
        {"id": 4, "text": "The law", "messages": []},
    ]
    given = "".join(json.dumps({**line, "generate": 1}) + "\n" for line in lines)
    model = ["--model", str(tmp_path / "model")]
    code, out, _ = run("explain", "--jsonl", "-", *model, stdin=given, model=False)
    assert code == 3
    answers = [json.loads(line) for line in out.splitlines()]
    assert [part["kind"] for part in answers[0]["parts"]] == ["message"]
    assert [part["kind"] for part in answers[1]["parts"]] == ["document", "document", "question"]
    assert answers[2]["error"] == "documents must be a list"
    assert "give one of" in answers[3]["error"]
    (tmp_path / "in.jsonl").write_text(given)
    arguments = [str(tmp_path / "in.jsonl"), "--out", str(tmp_path / "out"), *model]
    assert run("run", *arguments)[0] == 3
    found = [*(tmp_path / "out" / "part-00000.jsonl").read_text().splitlines()]
    assert [json.loads(line)["parts"] for line in found] == [a["parts"] for a in answers[:2]]


def test_a_document_whose_id_is_zero_has_its_name() -> None:
    prompt = Documents(({"id": 0, "text": "a"}, {"id": "", "text": "b"}), "c").render()
    assert [stretch.name for stretch in prompt.stretches[:2]] == ["0", "2"]
