"""One answer, whatever happens around it: other threads, other modes, models that change."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerFast

import rationales
from conftest import SENTENCES
from rationales import METHODS, Explainer, Explanation, Translator
from rationales.scoring.causal import CausalScorer
from rationales.scoring.seq2seq import Seq2SeqScorer

from tiny_models import build, build_translator

WORDS = " ".join(SENTENCES[:3]).split()
TEXTS = [" ".join(WORDS[start : start + 5 + start % 4]) for start in range(20)]
MANY = 4
"""Threads."""

FAMILIES = ("gpt2", "llama", "bloom", "falcon-alibi", "mpt", "marian", "t5")
"""Learned, rotary and ALiBi positions of two kinds, masked evaluation; encoder–decoders."""


def make_explainer(family: str, tokenizer: PreTrainedTokenizerFast, **changes: Any) -> Explainer:
    size = {"vocab_size": len(tokenizer)}
    if family in ("marian", "t5"):
        model = build_translator(family, **size, **changes)
        return Translator(Seq2SeqScorer(model), tokenizer, name=family, model=model)
    model = build(family, **size, **changes)
    return Explainer(CausalScorer(model), tokenizer, name=family, model=model)


def ask(explainer: Explainer, place: int, methods: list[str]) -> Explanation:
    """The explanation of one of the texts, by one of the methods."""
    method = methods[place % len(methods)]
    options: dict[str, Any] = {"method": method, "max_size": 4}
    if method == "integrated-gradients":
        options["ig_steps"] = 4
    if isinstance(explainer, Translator):
        return explainer.explain(TEXTS[place], max_length=3, **options)
    return explainer.explain(TEXTS[place], target="last", **options)


@dataclass(frozen=True)
class Found:
    """What must not depend on anything: the rationales, and their numbers but for rounding."""

    rationales: list[Any]
    logprobs: list[float]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Found)
            and self.rationales == other.rationales
            and self.logprobs == pytest.approx(other.logprobs, abs=1e-4)
        )


def found(explanation: Explanation) -> Found:
    return Found(
        [
            (r.target, r.indices, r.sufficient, r.predicted, [s.prediction_id for s in r.steps])
            for r in explanation
        ],
        [step.target_logprob for r in explanation for step in r.steps],
    )


def methods_of(explainer: Explainer) -> list[str]:
    unfit = {"attention-rollout"} if isinstance(explainer, Translator) else set()
    return [m for m in METHODS if m not in unfit]


def in_threads(work: Callable[[int], None]) -> None:
    """Run the work in several threads at once; what goes wrong in one is raised here."""
    errors: list[BaseException] = []
    ready = threading.Barrier(MANY)

    def run(number: int) -> None:
        try:
            ready.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(MANY)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def assert_threads_change_nothing(explainers: list[Explainer]) -> None:
    """Each thread explains all texts, from another one on; the methods are mixed."""
    methods = methods_of(explainers[0])
    expected = [found(ask(explainers[0], place, methods)) for place in range(len(TEXTS))]

    def work(number: int) -> None:
        for turn in range(len(TEXTS)):
            place = (turn + 5 * number) % len(TEXTS)
            explanation = ask(explainers[number % len(explainers)], place, methods)
            assert found(explanation) == expected[place], (number, place)

    in_threads(work)


@pytest.mark.parametrize("family", FAMILIES)
def test_threads_share_an_explainer(family: str, tiny_tokenizer: Any) -> None:
    assert_threads_change_nothing([make_explainer(family, tiny_tokenizer)])


def test_two_explainers_share_a_model(tiny_tokenizer: Any) -> None:
    model = build("llama", vocab_size=len(tiny_tokenizer))
    assert_threads_change_nothing([rationales.load(model, tiny_tokenizer) for _ in range(2)])


@pytest.mark.real_model
@pytest.mark.long
def test_threads_share_the_default_model() -> None:
    assert_threads_change_nothing([rationales.load()])


def test_others_may_run_the_model_meanwhile(tiny_tokenizer: Any) -> None:
    """A thread that calls the model itself gets the logits of all positions."""
    explainer = make_explainer("llama", tiny_tokenizer)
    model = explainer.model
    assert model is not None
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        expected = model(ids).logits
    stop = threading.Event()
    wrong: list[Any] = []

    def call() -> None:
        while not stop.is_set():
            with torch.no_grad():
                logits = model(ids).logits
            if logits.shape != expected.shape or not torch.allclose(logits, expected, atol=1e-4):
                wrong.append(logits.shape)

    thread = threading.Thread(target=call)
    thread.start()
    for place in range(len(TEXTS)):
        ask(explainer, place, ["greedy"])
    stop.set()
    thread.join()
    assert not wrong


# --- the model between and during calls


@pytest.mark.parametrize("family", ["gpt2", "llama", "marian"])
def test_a_model_in_training_mode_is_explained_as_in_evaluation_mode(
    family: str, tiny_tokenizer: Any
) -> None:
    dropout = {
        "gpt2": {"attn_pdrop": 0.5, "resid_pdrop": 0.5, "embd_pdrop": 0.5},
        "llama": {"attention_dropout": 0.5},
        "marian": {"dropout": 0.5, "attention_dropout": 0.5},
    }[family]
    explainer = make_explainer(family, tiny_tokenizer, **dropout)
    model = explainer.model
    assert model is not None
    methods = ["greedy", "gradient-norm", "last-attention"]
    expected = [found(ask(explainer, place, methods)) for place in range(6)]
    model.train()
    again = make_explainer(family, tiny_tokenizer, **dropout)
    again.model.train()  # type: ignore[union-attr]
    for other in (explainer, again):
        assert [found(ask(other, place, methods)) for place in range(6)] == expected
    assert all(module.training for module in model.modules())
    model.eval()
    assert [found(ask(explainer, place, methods)) for place in range(6)] == expected


def test_load_leaves_the_mode_as_it_was(tiny_tokenizer: Any) -> None:
    model = build("gpt2", vocab_size=len(tiny_tokenizer)).train()
    model.transformer.h[0].eval()
    before = [module.training for module in model.modules()]
    explainer = rationales.load(model, tiny_tokenizer)
    explainer.explain(TEXTS[0], target="last")
    assert [module.training for module in model.modules()] == before
    assert all(parameter.requires_grad for parameter in model.parameters())


def rescale(model: Any) -> None:
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.mul_(-0.7)  # torch counts no new version


def rescale_visibly(model: Any) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(-0.7)


def add_hook(model: Any) -> None:
    layer = (
        model.get_decoder().layers[0] if model.config.is_encoder_decoder else model.model.layers[0]
    )
    layer.register_forward_hook(lambda module, inputs, output: _negative(output))


def _negative(output: Any) -> Any:
    return (-output[0], *output[1:]) if isinstance(output, tuple) else -output


CHANGES = [rescale, rescale_visibly, add_hook]


@pytest.mark.parametrize("family", ["llama", "marian"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_model_gives_new_answers(
    family: str, change: Callable[[Any], None], tiny_tokenizer: Any
) -> None:
    explainer, fresh = (make_explainer(family, tiny_tokenizer) for _ in range(2))
    before = [found(ask(explainer, place, ["greedy"])) for place in range(4)]
    change(explainer.model)
    change(fresh.model)
    expected = [found(ask(fresh, place, ["greedy"])) for place in range(4)]
    assert [found(ask(explainer, place, ["greedy"])) for place in range(4)] == expected
    assert before != expected


@pytest.mark.parametrize("change", [rescale_visibly, add_hook])
def test_a_change_during_a_run_is_noticed(
    change: Callable[[Any], None], tiny_tokenizer: Any
) -> None:
    explainer = make_explainer("llama", tiny_tokenizer)
    scorer = explainer.scorer
    assert isinstance(scorer, CausalScorer)
    context = rationales.Context(tuple(range(2, 12)), 5, (9,))
    queries = [(context, context.keep((9, k, 3))) for k in (0, 1, 2)]
    run = scorer.fresh()
    run.score(queries)
    assert explainer.model is not None
    change(explainer.model)
    now = run.score(queries)
    plain = CausalScorer(explainer.model, share_prefixes=False).score(queries)
    assert [s.target_logprob for s in now] == pytest.approx(
        [s.target_logprob for s in plain], abs=1e-4
    )


def test_adapters_that_are_switched_are_noticed(tiny_tokenizer: Any) -> None:
    peft = pytest.importorskip("peft")
    model = build("llama", vocab_size=len(tiny_tokenizer))
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "k_proj", "v_proj"])
    adapted = peft.get_peft_model(model, config, adapter_name="one")
    adapted.add_adapter("two", config)
    generator = torch.Generator().manual_seed(3)
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator))
    scorer = CausalScorer(model)
    context = rationales.Context(tuple(range(2, 12)), 5, (9,))
    queries = [(context, context.keep((9, k, 3))) for k in (0, 1, 2)]

    def answers(from_: CausalScorer) -> list[float]:
        return [score.target_logprob for score in from_.score(queries)]

    run = scorer.fresh()
    one = answers(run)
    adapted.set_adapter("two")
    two = answers(run)
    with adapted.disable_adapter():
        none = answers(run)
        assert none == pytest.approx(answers(CausalScorer(model, share_prefixes=False)), abs=1e-4)
    assert two == pytest.approx(answers(CausalScorer(model, share_prefixes=False)), abs=1e-4)
    adapted.set_adapter("one")
    assert answers(run) == pytest.approx(one, abs=1e-4)
    assert all(a != pytest.approx(b, abs=1e-3) for a, b in ((one, two), (two, none), (one, none)))
