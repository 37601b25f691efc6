"""Five messages in the chat formats of several families: just what the template adds is pinned."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

import pytest

from rationales import Explainer
from rationales.errors import RationalesError
from rationales.scoring.causal import CausalScorer
from rationales.units import group

from tiny_models import build

# Written from each family's documented format, shortened to what a conversation needs. The special
# tokens are tokens of their own, as in the tokenizers of these families.
_CHATML = "'<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n'"
_CHATML_END = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
TEMPLATES = {
    "chatml": "{% for m in messages %}{{ " + _CHATML + " }}{% endfor %}" + _CHATML_END,
    # What tools say stands in the user's turn; earlier thoughts are left out, those since the
    # last question are kept, and may come in a field of their own.
    "qwen 3": "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}"
    "{% set ns.thought = '' %}{% set ns.said = m.content or '' %}{% if m.role == 'assistant' %}"
    "{% if m.reasoning_content is string %}{% set ns.thought = m.reasoning_content %}"
    "{% elif '</think>' in ns.said %}"
    "{% set ns.thought = ns.said.split('</think>')[0].split('<think>')[-1].strip('\n') %}"
    "{% set ns.said = ns.said.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "{{ '<|im_start|>assistant\n' }}{% if loop.index0 > ns.last and ns.thought %}"
    "{{ '<think>\n' + ns.thought.strip('\n') + '\n</think>\n\n' }}{% endif %}{{ ns.said }}"
    "{% for call in m.tool_calls or [] %}{{ '\n<tool_call>\n' + call.name + '\n</tool_call>' }}"
    "{% endfor %}{{ '<|im_end|>\n' }}{% elif m.role == 'tool' %}"
    "{{ '<|im_start|>user\n<tool_response>\n' + m.content + '\n</tool_response><|im_end|>\n' }}"
    "{% else %}{{ " + _CHATML + " }}{% endif %}{% endfor %}" + _CHATML_END,
    "llama 3": "{{ '<|begin_of_text|>' }}{% for m in messages %}{{ '<|start_header_id|>' + "
    "('ipython' if m.role == 'tool' else m.role) + '<|end_header_id|>\n\n' }}"
    "{% for call in m.tool_calls or [] %}{{ call.name }}{% endfor %}"
    "{{ (m.content or '') | trim + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    "mistral": "{{ '<s>' }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + "
    "m.content + '[/INST]' }}{% elif m.role == 'tool' %}{{ '[TOOL_RESULTS] {\"content\": ' + "
    "m.content + '}[/TOOL_RESULTS]' }}{% elif m.tool_calls %}{{ '[TOOL_CALLS] ' + "
    "m.tool_calls[0].name + '</s>' }}{% elif m.role == 'assistant' %}{{ ' ' + m.content + '</s>' }}"
    "{% else %}{{ raise_exception('Only user, assistant and tool roles are supported') }}"
    "{% endif %}{% endfor %}",
    "gemma": "{{ '<bos>' }}{% for m in messages %}{% if m.role not in ('user', 'assistant') %}"
    "{{ raise_exception('System role not supported') }}{% endif %}{{ '<start_of_turn>' + ('model' "
    "if m.role == 'assistant' else m.role) + '\n' + m.content | trim + '<end_of_turn>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
    "phi 3": "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}",
    # The system prompt stands without a frame; earlier thoughts are left out.
    "deepseek r1": "{{ '<s>' }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}"
    "{% elif m.role == 'user' %}{{ '<|User|>' + m.content }}{% else %}{{ '<|Assistant|>' + "
    "m.content.split('</think>')[-1] + '<|end_of_sentence|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|Assistant|><think>\n' }}{% endif %}",
    "command r": "{{ '<bos>' }}{% for m in messages %}{{ '<|START_OF_TURN_TOKEN|>' + {'user': "
    "'<|USER_TOKEN|>', 'system': '<|SYSTEM_TOKEN|>', 'assistant': '<|CHATBOT_TOKEN|>'}[m.role] + "
    "m.content.strip() + '<|END_OF_TURN_TOKEN|>' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}",
    # Thoughts come in a field of their own, in a channel of their own.
    "harmony": "{% for m in messages %}{% if m.thinking %}{{ '<|start|>assistant<|channel|>analysis"
    "<|message|>' + m.thinking + '<|end|>' }}{% endif %}{% if m.role == 'tool' %}{{ '<|start|>"
    "functions.search to=assistant<|channel|>commentary<|message|>' + m.content + '<|end|>' }}"
    "{% elif m.role == 'assistant' %}{{ '<|start|>assistant<|channel|>final<|message|>' + "
    "m.content + '<|end|>' }}{% else %}{{ '<|start|>' + m.role + '<|message|>' + m.content + "
    "'<|end|>' }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}",
}  # fmt: skip
_ROLES = ["<|system|>", "<|user|>", "<|assistant|>"]
SPECIALS = sorted(
    {*re.findall(r"<\|?/?\w+\|?>|\[/?[A-Z_]+\]", "".join(TEMPLATES.values())), *_ROLES}
)

SYSTEM = {"role": "system", "content": "Be brief about the law."}
ASKS = {"role": "user", "content": "The Supreme Court on Tuesday ruled."}
SAYS = {"role": "assistant", "content": "It did; naïve café 🙂."}
AGAIN = {"role": "user", "content": "東京は日本の首都です。\r\nWhen?"}
LAST = {"role": "user", "content": "So what, then?"}
CALLS = {"role": "assistant", "content": "", "tool_calls": [{"name": "search"}]}
TOOL = {"role": "tool", "content": "The land is 42 km long."}
THINKS = {"role": "assistant", "content": "<think>The dog?</think>The fox."}
NO = {"role": "assistant", "content": "No."}

FIVE = [SYSTEM, ASKS, SAYS, AGAIN, LAST]
NO_SYSTEM = [ASKS, SAYS, AGAIN, NO, LAST]
TOOLS = [SYSTEM, ASKS, CALLS, TOOL, LAST]
THOUGHT_BEFORE = [SYSTEM, ASKS, THINKS, AGAIN, LAST]
THINKS_NOW = [ASKS, SAYS, LAST, THINKS, TOOL]
AS_SHOWN = THINKS | {"content": "<think>\nThe dog?\n</think>\n\nThe fox."}
APART = {"role": "assistant", "content": "The fox."}
CHATS: list[tuple[str, list[dict[str, Any]], dict[int, list[str]]]] = [
    *((name, FIVE, {}) for name in TEMPLATES if name not in ("mistral", "gemma")),
    ("mistral", NO_SYSTEM, {}),
    ("gemma", NO_SYSTEM, {}),
    ("qwen 3", TOOLS, {}),
    ("llama 3", TOOLS, {}),
    ("harmony", TOOLS, {}),
    ("mistral", [ASKS, CALLS, TOOL, SAYS, LAST], {}),
    ("chatml", THOUGHT_BEFORE, {}),  # a template that knows no thoughts
    ("qwen 3", THOUGHT_BEFORE, {2: ["The fox."]}),
    ("deepseek r1", THOUGHT_BEFORE, {2: ["The fox."]}),
    ("qwen 3", THINKS_NOW, {3: ["The dog?", "The fox."]}),
    ("qwen 3", [ASKS, SAYS, LAST, AS_SHOWN, TOOL], {}),  # nothing is the template's own
    (
        "qwen 3",
        [ASKS, SAYS, LAST, APART | {"reasoning_content": "The dog?"}, TOOL],
        {3: ["The dog?", "The fox."]},
    ),
    (
        "harmony",
        [SYSTEM, ASKS, APART | {"thinking": "The dog?"}, TOOL, LAST],
        {2: ["The dog?", "The fox."]},
    ),
]
"""Conversations of five messages, and what is left of those that the template does not leave be."""


@pytest.fixture(scope="module")
def explainer(tiny_tokenizer: Any) -> Explainer:
    tokenizer = deepcopy(tiny_tokenizer)
    tokenizer.add_tokens(SPECIALS, special_tokens=True)
    model = build("gpt2", vocab_size=len(tokenizer), n_positions=512)
    return Explainer(CausalScorer(model), tokenizer, name="tiny", model=model)


@pytest.mark.parametrize(("family", "messages", "left"), CHATS)
def test_just_the_tokens_that_the_template_adds_are_pinned(
    family: str, messages: list[dict[str, Any]], left: dict[int, list[str]], explainer: Explainer
) -> None:
    assert len(messages) == 5
    tokenizer = explainer.tokenizer
    tokenizer.chat_template = TEMPLATES[family]
    found = explainer.explain(messages=messages, unit="message", generate=1)
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    *before, _ = found.tokens
    assert "".join(token.text for token in before) == prompt
    said, position = [], 0
    for n, message in enumerate(messages):
        for text in left.get(n, [message["content"]] if message["content"] else []):
            position = prompt.index(text, position)
            said.append((message["role"], text, position, position + len(text)))
            position += len(text)
    # Where tokens begin and end is the tokenizer's own word.
    offsets = tokenizer(prompt, add_special_tokens=False, return_offsets_mapping=True)
    own = {
        index
        for index, (start, end) in enumerate(offsets["offset_mapping"])
        if any(start < stop and begin < end for _, _, begin, stop in said)
    }
    assert {token.index for token in before if not token.pinned} == own
    assert [part.name.split(" ")[0] for part in found.parts] == [role for role, *_ in said]
    for part, (_, text, *_) in zip(found.parts, said, strict=True):
        shown = "".join(token.text for token in found.tokens[part.start : part.end])
        assert shown.strip() == text.strip()
        assert {*range(part.start, part.end)} <= own
    units = group(before, "message", parts=found.parts)
    assert [(unit[0], unit[-1] + 1) for unit in units] == [(p.start, p.end) for p in found.parts]
    assert {*(found[0].units or ())} <= {*units}


@pytest.mark.parametrize(
    ("family", "messages", "said"),
    [
        ("gemma", FIVE, "refuses the conversation: System role not supported"),
        ("mistral", FIVE, "refuses the conversation: Only user, assistant and tool roles"),
        ("command r", TOOLS, "refuses the conversation: .*tool"),
        ("deepseek r1", [ASKS | {"role": "user"}, {"role": "tool", "content": None}], "refuses"),
    ],
)
def test_roles_that_a_template_refuses_are_one_line(
    family: str, messages: list[dict[str, Any]], said: str, explainer: Explainer
) -> None:
    explainer.tokenizer.chat_template = TEMPLATES[family]
    with pytest.raises(RationalesError, match=said) as error:
        explainer.explain(messages=messages)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("family", "answer", "prompt_ends", "first"),
    [
        ("chatml", "The land is.", "<|im_start|>assistant\n", "The"),
        ("mistral", "The land is.", "[/INST]", " "),  # as the template writes answers
        ("deepseek r1", "The land is.", "<|Assistant|>", "The"),  # one without a thought
        ("deepseek r1", "<think>\nThe dog?\n</think>The land.", "<think>\n", "The"),
        ("harmony", "The land is.", "<|channel|>final<|message|>", "The"),
    ],
)
def test_an_answer_that_is_given_stands_where_the_template_writes_it(
    family: str, answer: str, prompt_ends: str, first: str, explainer: Explainer
) -> None:
    explainer.tokenizer.chat_template = TEMPLATES[family]
    said = {"role": "assistant", "content": answer}
    found = explainer.explain(messages=[ASKS, said], max_size=1)
    start = found[0].target
    prompt = "".join(token.text for token in found.tokens[:start])
    assert prompt.endswith(prompt_ends)
    assert found.tokens[start - 1].pinned
    assert found.tokens[start].text == first
    text = "".join(token.text for token in found.tokens)
    if "</think>" not in answer:
        rendered = explainer.tokenizer.apply_chat_template([ASKS, said], tokenize=False)
        assert rendered.startswith(text)
    assert text.count("<think>") == answer.count("<think>")


@pytest.mark.parametrize("spaces", ["", " ", "\n"])
def test_the_template_decides_about_spaces_before_an_answer(
    spaces: str, explainer: Explainer
) -> None:
    trims = TEMPLATES["mistral"].replace("{{ ' ' + m.content", "{{ ' ' + m.content | trim")
    explainer.tokenizer.chat_template = trims
    said = {"role": "assistant", "content": f"{spaces}The land is."}
    found = explainer.explain(messages=[ASKS, said], max_size=1)
    assert "".join(token.text for token in found.tokens).endswith("[/INST] The land is.")


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ({"role": "assistant", "content": " "}, "the assistant's, says nothing: leave it out"),
        (CALLS, "says nothing: add what the tool says"),
    ],
)
def test_a_last_message_that_says_nothing_is_refused(
    last: dict[str, Any], said: str, explainer: Explainer
) -> None:
    explainer.tokenizer.chat_template = TEMPLATES["qwen 3"]
    with pytest.raises(RationalesError, match=said):
        explainer.explain(messages=[ASKS, last])


def test_roles_that_a_template_leaves_out_are_one_line(explainer: Explainer) -> None:
    explainer.tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"
    )
    said = "leaves out, repeats or rewrites message 2, of the role 'tool'"
    with pytest.raises(RationalesError, match=said):
        explainer.explain(messages=[ASKS, TOOL])
    explainer.tokenizer.chat_template = None
    with pytest.raises(RationalesError, match="no chat template: give a text, not messages"):
        explainer.explain(messages=[ASKS])
