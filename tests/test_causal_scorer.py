"""The causal scorer in itself: what it refuses, how it fills passes, and what it leaves behind."""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from transformers import LlamaForCausalLM
from transformers.models.falcon import modeling_falcon

from rationales import Context, RationalesError, Score, rationalize
from rationales.scoring import causal, logits, positions
from rationales.scoring.causal import CausalScorer
from rationales.scoring.protocol import Query

import oracle
from tiny_models import (
    FAMILIES,
    STRETCHED,
    SWITCH,
    TRANSLATORS,
    VOCABULARY,
    build,
    draw_weights,
    shared,
    shared_translator,
)


def context_of(length: int, target_id: int = 5) -> Context:
    rng = random.Random(length)
    return Context(tuple(rng.randrange(2, VOCABULARY) for _ in range(length)), target_id)


def some_queries(lengths: list[int]) -> list[Query]:
    """Each context with its last token, every other token, and all of it."""
    contexts = [context_of(length, target_id) for target_id, length in enumerate(lengths, start=2)]
    return [
        (context, kept)
        for context in contexts
        for n in [len(context.ids)]
        for kept in ((n - 1,), tuple(range(n))[(n - 1) % 2 :: 2], tuple(range(n)))
    ]


def assert_close(scores: list[Score], expected: list[Score]) -> None:
    assert [s.prediction_id for s in scores] == [s.prediction_id for s in expected]
    for mine, other in zip(scores, expected, strict=True):
        assert mine.target_logprob == pytest.approx(other.target_logprob, abs=1e-4)
        assert mine.prediction_logprob == pytest.approx(other.prediction_logprob, abs=1e-4)


def one_line(error: pytest.ExceptionInfo[RationalesError]) -> str:
    message = str(error.value)
    assert "\n" not in message
    return message


Pass = tuple[int, int, bool]
"""Rows, length, and whether nothing in them is masked."""


def watch(scorer: CausalScorer) -> list[Pass]:
    """The forward passes that the scorer makes from now on."""
    passes: list[Pass] = []
    original = scorer._next_token

    def next_token(ids: torch.Tensor, places: torch.Tensor, *rest: Any) -> torch.Tensor:
        passes.append((*ids.shape, bool(rest[0].all())))
        return original(ids, places, *rest)

    scorer._next_token = next_token
    return passes


# --- models that are refused


RECURRENT: dict[str, dict[str, Any]] = {
    "Mamba": {"state_size": 4, "num_hidden_layers": 2},
    "Rwkv": {"attention_hidden_size": 16, "num_hidden_layers": 2, "context_length": 64},
    "RecurrentGemma": {
        "intermediate_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
    },
    # A hybrid: one layer of Mamba, one of attention.
    "Jamba": {
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "num_experts": 1,
        "mamba_d_state": 4,
    },
}


@pytest.mark.parametrize("family", RECURRENT)
def test_recurrent_models_are_refused(family: str) -> None:
    config = getattr(transformers, f"{family}Config")(
        vocab_size=VOCABULARY,
        hidden_size=16,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
        **RECURRENT[family],
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    with pytest.raises(RationalesError, match="recurrent state") as error:
        CausalScorer(model)
    assert "BlackBoxScorer" in one_line(error)
    assert config.model_type in str(error.value)


class Leaking(transformers.GPT2LMHeadModel):
    """A model that does not look at its mask."""

    def forward(
        self, input_ids: Any, attention_mask: Any = None, position_ids: Any = None, **rest: Any
    ) -> Any:
        ones = torch.ones_like(input_ids)
        return super().forward(input_ids, attention_mask=ones, position_ids=position_ids, **rest)


class Closing(transformers.OPTForCausalLM):
    """A model that counts what the mask keeps, and takes no positions that could say otherwise."""

    def forward(self, input_ids: Any, attention_mask: Any = None, use_cache: bool = False) -> Any:
        return super().forward(input_ids, attention_mask=attention_mask, use_cache=use_cache)


@pytest.mark.parametrize(
    ("family", "kind", "why"),
    [
        ("gpt2", Leaking, "still reads tokens that the attention mask drops"),
        ("opt", Closing, "moves kept tokens together when others are dropped"),
    ],
)
def test_models_that_no_mask_describes_are_refused(family: str, kind: Any, why: str) -> None:
    model = draw_weights(kind(shared(family).config))
    with pytest.raises(RationalesError, match=why) as error:
        CausalScorer(model)
    assert "BlackBoxScorer" in one_line(error)


def test_a_model_without_positions_that_masks_well_is_masked() -> None:
    # MPT: its ALiBi goes by index, so a mask leaves every kept token where it was.
    scorer = CausalScorer(shared("mpt"))
    assert not scorer._next_token.controls_positions
    assert scorer.evaluation(context_of(3)) == "masked"


def test_the_evaluation_can_be_chosen() -> None:
    for evaluation in ("sparse", "masked"):
        scorer = CausalScorer(shared("gpt2"), evaluation=evaluation)
        assert scorer.evaluation(context_of(6)) == evaluation
    queries = some_queries([1, 4, 7, 7])
    expected = CausalScorer(shared("gpt2"), evaluation="sparse").score(queries)
    assert_close(CausalScorer(shared("gpt2"), evaluation="masked").score(queries), expected)


def test_batch_tokens_must_be_positive() -> None:
    with pytest.raises(RationalesError, match="at least 1, not 0"):
        CausalScorer(shared("gpt2"), batch_tokens=0)


# --- questions that have no answer


@pytest.mark.parametrize("evaluation", ["sparse", "masked"])
@pytest.mark.parametrize("kept", [(), (0,), (0, 1)])
def test_the_token_before_the_target_must_be_kept(evaluation: Any, kept: tuple[int, ...]) -> None:
    scorer = CausalScorer(shared("gpt2"), evaluation=evaluation)
    good: Query = (context_of(3), (0, 1, 2)[-max(1, len(kept)) :])
    with pytest.raises(RationalesError, match="the token before the target") as error:
        scorer.score([good, (context_of(3), kept)])
    one_line(error)


def test_a_context_that_requires_nothing_is_explained_in_one_line() -> None:
    with pytest.raises(RationalesError, match="make it required"):
        rationalize(context_of(4), CausalScorer(shared("gpt2")))


def test_no_questions_no_answers() -> None:
    assert CausalScorer(shared("gpt2")).score([]) == []


# --- damaged weights


def test_nan_weights_are_refused_at_once() -> None:
    model = build("llama")
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[3, 3] = torch.nan
    with pytest.raises(RationalesError, match="NaN") as error:
        CausalScorer(model)
    assert "llama" in one_line(error)


def test_nan_that_comes_later_is_an_error_and_no_answer() -> None:
    model = build("llama")
    scorer = CausalScorer(model)
    scorer.score(some_queries([4]))
    with torch.no_grad():
        model.lm_head.weight[9] = torch.nan  # one logit of all, and not the target's
    with pytest.raises(RationalesError, match="NaN") as error:
        scorer.score(some_queries([4]))
    one_line(error)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_logits_that_overflow_are_an_error_and_no_answer(bad: float) -> None:
    scorer = CausalScorer(shared("gpt2"))
    original = scorer._next_token

    def overflowing(*inputs: Any) -> torch.Tensor:
        logits = original(*inputs)
        logits[-1, 7] = bad
        return logits

    scorer._next_token = overflowing
    with pytest.raises(RationalesError, match="NaN"):
        scorer.score(some_queries([4]))


# --- how passes are filled


@pytest.mark.parametrize("batch_tokens", [1, 6, 40, 4096])
def test_passes_stay_within_the_budget_and_hold_no_padding(batch_tokens: int) -> None:
    queries = some_queries([2, 5, 5, 5, 9, 9, 3])
    scorer = CausalScorer(shared("gpt2"), batch_tokens=batch_tokens, share_prefixes=False)
    expected = [scorer.score([query])[0] for query in queries]
    passes = watch(scorer)
    assert_close(scorer.score(queries), expected)
    assert all(unmasked for _, _, unmasked in passes)
    assert all(rows == 1 or rows * length <= batch_tokens for rows, length, _ in passes)
    assert sum(rows for rows, _, _ in passes) == len(queries)
    assert sum(rows * length for rows, length, _ in passes) == sum(len(k) for _, k in queries)
    if batch_tokens == 4096:  # one pass for each size
        assert len(passes) == len({len(kept) for _, kept in queries})


def test_logits_bound_the_rows_of_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logits, "LOGITS_AT_ONCE", 3 * VOCABULARY)
    scorer = CausalScorer(shared("gpt2"), share_prefixes=False)
    passes = watch(scorer)
    rng = random.Random(0)
    texts = [tuple(rng.randrange(2, VOCABULARY) for _ in range(3)) for _ in range(8)]
    scorer.score([(Context(text, 5), (0, 1, 2)) for text in texts])
    assert [rows for rows, _, _ in passes] == [3, 3, 2]


@pytest.mark.parametrize("share", [True, False])
def test_only_the_last_logits_are_computed(share: bool) -> None:
    computed: list[int] = []
    model = shared("llama")
    scorer = CausalScorer(model, share_prefixes=share)

    def note(module: Any, inputs: Any, output: torch.Tensor) -> None:
        computed.append(output.shape[:-1].numel())

    with model.get_output_embeddings().register_forward_hook(note):
        queries = some_queries([4, 6])
        scorer.score(queries)
    assert sum(computed) == len(queries)


def test_a_last_layer_that_is_no_module_answers_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = some_queries([4, 6, 6])
    expected = CausalScorer(build("llama")).score(queries)
    model = build("llama")
    monkeypatch.setattr(model, "get_output_embeddings", lambda: None)
    for mine, other in zip(CausalScorer(model).score(queries), expected, strict=True):
        assert mine.target_logprob == pytest.approx(other.target_logprob, abs=1e-5)


# --- running out of memory


OUT_OF_MEMORY: dict[str, Callable[[], Exception]] = {
    "a graphics card": lambda: torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 1 GiB"
    ),
    "an Apple graphics card": lambda: RuntimeError("MPS backend out of memory (allocated: 1 GB)"),
    "a processor": lambda: RuntimeError(
        "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: "
        "you tried to allocate 1073741824 bytes."
    ),
    "Windows": lambda: RuntimeError(
        "DefaultCPUAllocator: not enough memory: you tried to allocate"
    ),
    "Python": MemoryError,
}


def limit_memory(scorer: CausalScorer, tokens: int, error: Callable[[], Exception]) -> None:
    """From now on, passes of more than so many tokens fail."""
    original = scorer._next_token

    def next_token(ids: torch.Tensor, *rest: Any) -> torch.Tensor:
        if ids.numel() > tokens:
            raise error()
        return original(ids, *rest)

    scorer._next_token = next_token


@pytest.mark.parametrize("where", OUT_OF_MEMORY)
@pytest.mark.parametrize(
    ("evaluation", "share"), [("sparse", True), ("sparse", False), ("masked", False)]
)
def test_running_out_of_memory_makes_smaller_passes(
    where: str, evaluation: Any, share: bool
) -> None:
    queries = some_queries([6, 9, 9, 9, 2, 6, 6, 9])
    scorer = CausalScorer(shared("gpt2"), evaluation=evaluation, share_prefixes=share)
    expected = scorer.score(queries)
    limit_memory(scorer, 20, OUT_OF_MEMORY[where])
    assert_close(scorer.score(queries), expected)
    assert scorer.batch_tokens < causal.DEFAULT_BATCH_TOKENS
    passes = watch(scorer)  # what was learned stays: nothing fails again
    assert_close(scorer.score(queries), expected)
    assert all(rows * length <= 20 for rows, length, _ in passes)


def test_a_single_subset_that_does_not_fit_is_an_error() -> None:
    scorer = CausalScorer(shared("gpt2"))
    limit_memory(scorer, 5, MemoryError)
    with pytest.raises(RationalesError, match="single subset of 9 tokens") as error:
        scorer.score(some_queries([4, 9]))
    assert "smaller model" in one_line(error)


def test_another_error_is_passed_on() -> None:
    scorer = CausalScorer(shared("gpt2"))
    mistake = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    limit_memory(scorer, 0, lambda: mistake)
    with pytest.raises(RuntimeError, match="mat1 and mat2") as error:
        scorer.score(some_queries([4, 4]))
    assert error.value is mistake
    assert scorer.batch_tokens == causal.DEFAULT_BATCH_TOKENS


# --- what is left behind


@pytest.mark.parametrize("family", ["bloom", "falcon-alibi"])
@pytest.mark.parametrize("fails", [False, True])
def test_the_bias_of_the_model_is_put_back(family: str, fails: bool) -> None:
    model, text = build(family), context_of(7).ids
    before, function = oracle.ordinary(model, text), modeling_falcon.build_alibi_tensor
    scorer = CausalScorer(model)

    def fail(*_: Any) -> None:
        raise RuntimeError("in the middle of a pass")

    if fails:
        with (
            model.register_forward_hook(fail),
            pytest.raises(RuntimeError, match="in the middle"),
        ):
            scorer.score(some_queries([7]))
    else:
        scorer.score(some_queries([7]))
    assert modeling_falcon.build_alibi_tensor is function
    assert not any("build_alibi_tensor" in vars(module) for module in model.modules())
    assert torch.equal(oracle.ordinary(model, text), before)


@pytest.mark.parametrize("family", ["bloom", "falcon-alibi"])
def test_threads_do_not_see_each_others_positions(family: str) -> None:
    queries = [some_queries([length]) for length in (4, 7, 11, 15)]
    expected = [CausalScorer(shared(family)).score(each) for each in queries]
    found: dict[int, list[list[Score]]] = {}

    def work(which: int) -> None:
        # A new scorer each time: what it takes for the original must not be another's patch.
        found[which] = [CausalScorer(shared(family)).score(queries[which]) for _ in range(10)]

    threads = [threading.Thread(target=work, args=(which,)) for which in range(len(queries))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for which, answers in found.items():
        for scores in answers:
            assert_close(scores, expected[which])
    assert len(found) == len(queries)


def test_gradients_can_be_taken_after_scoring() -> None:
    family, changes = STRETCHED["dynamic"]
    model = build(family, **changes)
    CausalScorer(model).score(some_queries([2 * SWITCH, 4]))
    model(torch.tensor([context_of(2 * SWITCH).ids])).logits.sum().backward()
    assert model.model.embed_tokens.weight.grad is not None


def test_scoring_takes_no_gradients_and_turns_dropout_off() -> None:
    model = build("gpt2", attn_pdrop=0.5, resid_pdrop=0.5, embd_pdrop=0.5)
    queries = some_queries([5, 8])
    expected = CausalScorer(model).score(queries)
    model.train()
    model.transformer.h[1].eval()
    scorer = CausalScorer(model)
    assert_close(scorer.score(queries), expected)
    asleep = {name for name, module in model.named_modules() if not module.training}
    assert asleep == {
        name for name, _ in model.named_modules() if name.startswith("transformer.h.1")
    }
    assert all(parameter.grad is None for parameter in model.parameters())


# --- what configurations say


@pytest.mark.parametrize(
    ("family", "expected"), [("gpt2", 64), ("llama", 64), ("mpt", 64), ("bloom", None)]
)
def test_positions_that_a_model_has(family: str, expected: int | None) -> None:
    assert CausalScorer(shared(family)).max_positions == expected


def test_dynamic_rope_has_positions_beyond_the_original_ones() -> None:
    family, changes = STRETCHED["dynamic"]
    model = build(family, **changes)
    assert positions.max_positions(model) == 4 * SWITCH
    assert positions.rope_switch(model) == SWITCH
    # A field that only other kinds of RoPE go by must not hide where this one changes.
    model.config.rope_parameters["original_max_position_embeddings"] = 2 * SWITCH
    assert positions.rope_switch(model) == SWITCH


def test_only_kinds_of_rope_that_change_with_the_length_have_a_switch() -> None:
    assert positions.rope_switch(shared("llama")) is None
    assert positions.rope_switch(shared("gpt2")) is None


def test_windows_are_read_where_a_layer_uses_them() -> None:
    assert positions.window(shared("mistral")) == 32
    assert positions.window(shared("gpt-neo")) == 32
    assert positions.window(build("gpt-neo", attention_types=[[["global"], 2]])) is None
    assert positions.window(shared("gemma2")) == 32
    assert positions.window(build("gemma2", layer_types=["full_attention"] * 2)) is None
    assert positions.window(shared("qwen2")) is None


def test_a_model_that_fails_in_the_self_test_is_refused_in_one_line(tiny_model, monkeypatch):
    def fail(**_: object) -> None:
        raise AttributeError("no such thing\nat all")

    monkeypatch.setattr(tiny_model, "forward", fail)
    with pytest.raises(RationalesError, match="BlackBoxScorer") as caught:
        CausalScorer(tiny_model)
    assert "\n" not in str(caught.value)


# --- the self-test


def test_the_families_that_are_trusted_are_those_of_the_exactness_tests() -> None:
    causal = {shared(name).config.model_type for name in FAMILIES}
    translating = {shared_translator(name).config.model_type for name in TRANSLATORS}
    assert causal | translating == positions.EXACT_FAMILIES
    assert all(positions.is_covered(shared(name)) for name in FAMILIES)


class Unknown(LlamaForCausalLM):
    """A model by somebody else: what it is called says nothing about its code."""


class HiddenWindow(LlamaForCausalLM):
    """Sees the last sixteen tokens, by index; no field of its configuration says so."""

    def forward(self, input_ids: Any, attention_mask: Any = None, **rest: Any) -> Any:
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask.clone()
        if mask.dim() == 2:
            mask[:, :-16] = 0
        return super().forward(input_ids, attention_mask=mask, **rest)


class FewPositions(LlamaForCausalLM):
    """Takes every position beyond sixteen for the sixteenth, if it is given any."""

    def forward(self, input_ids: Any, position_ids: Any = None, **rest: Any) -> Any:
        if position_ids is not None:
            position_ids = position_ids.clamp(max=16)
        return super().forward(input_ids, position_ids=position_ids, **rest)


def strange(kind: Any, **changes: Any) -> Any:
    config = copy.deepcopy(shared("llama").config)
    for name, value in changes.items():
        setattr(config, name, value)
    return draw_weights(kind(config))


def test_an_unknown_family_is_masked_beyond_what_was_tested() -> None:
    model = strange(Unknown, max_position_embeddings=256)
    scorer = CausalScorer(model)
    assert scorer.evaluation(context_of(128)) == "sparse"
    assert scorer.evaluation(context_of(129)) == "masked"
    known = CausalScorer(build("llama", max_position_embeddings=256))
    assert known.evaluation(context_of(200)) == "sparse"
    queries = [(context_of(140), (0, 5, 77, 139)), (context_of(140), (5, 139))]
    assert_close(scorer.score(queries), known.score(queries))


def test_a_window_that_nobody_named_is_found() -> None:
    model = strange(HiddenWindow)
    scorer = CausalScorer(model)
    assert scorer.evaluation(context_of(40)) == "masked"


def test_positions_that_go_wrong_after_sixteen_tokens_are_found() -> None:
    with pytest.raises(RationalesError, match="counts positions in a way of its own") as error:
        CausalScorer(strange(FewPositions))
    one_line(error)


@pytest.mark.parametrize("family", ["gpt2", "llama", "bloom", "mpt"])
def test_loading_takes_few_passes(family: str) -> None:
    model, passes = shared(family), []
    with model.register_forward_pre_hook(lambda *_: passes.append(1)):
        scorer = CausalScorer(model)
        assert len(passes) <= 8
        passes.clear()
        CausalScorer(model, like=scorer)
        assert not passes


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma3", "mixtral"])
def test_half_precision_tells_rounding_from_faults(family: str, dtype: torch.dtype) -> None:
    model = copy.deepcopy(shared(family)).to(dtype)
    scorer = CausalScorer(model)
    assert scorer.evaluation(context_of(20)) == "sparse"
    original = scorer._next_token

    def closed_up(ids: Any, places: Any, mask: Any, *rest: Any) -> torch.Tensor:
        return original(ids, torch.arange(ids.shape[1]).expand_as(ids), mask, *rest)

    closed_up.controls_positions = True  # type: ignore[attr-defined]
    scorer._next_token = closed_up  # type: ignore[assignment]
    assert not scorer._self_test()


@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen3"])
@pytest.mark.parametrize("said", [(), (3, 9), tuple(range(3, 43))])
def test_attention_is_that_of_the_ordinary_forward_pass(family: str, said: tuple[int, ...]) -> None:
    model = build(family)
    scorer = CausalScorer(model).fresh()
    ids = tuple(range(5, 17))
    context = Context(ids, target_id=said[0] if said else 4, span_ids=said[1:])
    assert scorer.attention(context) is None  # nothing is computed only for it
    scorer.score([(context, tuple(range(len(ids))))])
    found = scorer.attention(context)
    assert found is not None
    model.set_attn_implementation("eager")
    with torch.no_grad():
        # Of a long target, the first 32 tokens are looked at.
        text = torch.tensor([[*ids, *said[:-1][:31]]])
        layers = model(text, output_attentions=True).attentions
    weights = torch.stack([layer[0, :, len(ids) - 1 :] for layer in layers])
    expected = weights.amax(dim=1).mean(dim=(0, 1))[: len(ids)]
    expected[0] = 0
    assert found == pytest.approx(expected.tolist(), abs=1e-5)


def test_attention_leaves_the_model_as_it_was() -> None:
    model = build("llama")
    before = model.config._attn_implementation
    scorer = CausalScorer(model).fresh()
    context = Context((5, 6, 7, 8), target_id=4)
    first = scorer.score([(context, (0, 1, 2, 3))])
    scorer.attention(context)
    assert model.config._attn_implementation == before
    assert scorer.score([(context, (0, 1, 2, 3))]) == pytest.approx(first)


def test_a_model_that_tells_no_attention_proposes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = CausalScorer(build("gpt2")).fresh()
    context = Context((5, 6, 7, 8), target_id=4)
    scorer.score([(context, (0, 1, 2, 3))])
    monkeypatch.setattr(scorer._next_token, "attention", lambda *_: None)
    assert scorer.attention(context) is None
