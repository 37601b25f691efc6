"""Subsets against the equations of their distributions; masked passes against evaluation."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product
from typing import get_args

import pytest
import torch
from scipy import stats

from rationales.compat import inputs, subsets
from rationales.compat.inputs import MaskedPass, attention_mask, check_model
from rationales.compat.options import DistributionName
from rationales.compat.rows import generator
from rationales.compat.subsets import DISTRIBUTIONS, mixture
from rationales.context import causal_context
from rationales.errors import RationalesError
from rationales.scoring.causal import CausalScorer
from rationales.scoring.positions import NextToken

from tiny_models import FAMILIES, VOCABULARY, WINDOWED, build, shared

T = 4
DRAWS = 20_000
UNLIKELY = 1e-4
"""How often a sampler that is right would fail; the seeds are fixed, so it does not."""

EQUATIONS = {
    "uniform": lambda k: 2**-T,
    "uniform-length": lambda k: 1 / (T * math.comb(T, k)) if k else 0.0,
    "inverse-length": lambda k: (1 / T) ** k * (1 - 1 / T) ** (T - k),
    "log-uniform-length": lambda k: (
        math.log(1 + 1 / k) / math.log(T + 1) / math.comb(T, k) if k else 0.0
    ),
}
HEADS = 3


def rng(number: int = 0) -> torch.Generator:
    return generator(7, "test", number)


def assert_follows(counts: Counter, probabilities: dict) -> None:
    """Chi-square of observed counts; what has probability 0 must never be seen."""
    assert math.isclose(sum(probabilities.values()), 1)
    assert all(probabilities[outcome] > 0 for outcome in counts)
    possible = [outcome for outcome, p in probabilities.items() if p > 0]
    total = sum(counts.values())
    seen = [counts[outcome] for outcome in possible]
    expected = [total * probabilities[outcome] for outcome in possible]
    assert stats.chisquare(seen, expected).pvalue > UNLIKELY


def test_the_names_of_the_options_are_those_of_the_functions():
    assert tuple(DISTRIBUTIONS) == get_args(DistributionName)
    assert set(EQUATIONS) == set(DISTRIBUTIONS)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_every_subset_is_as_likely_as_the_equation_says(name):
    kept = DISTRIBUTIONS[name](DRAWS, T, HEADS, rng())
    assert kept.dtype == torch.bool
    assert kept.shape == (DRAWS, HEADS if name == "inverse-length" else 1, T)
    probabilities = {s: EQUATIONS[name](sum(s)) for s in product((0, 1), repeat=T)}
    for head in kept.int().unbind(dim=1):
        assert_follows(Counter(map(tuple, head.tolist())), probabilities)


def test_the_subsets_of_heads_are_independent():
    kept = DISTRIBUTIONS["inverse-length"](DRAWS, 2, 2, rng()).flatten(1).int()
    probabilities = dict.fromkeys(product((0, 1), repeat=4), 2 ** (-4))  # 1/T is ½ for two tokens
    assert_follows(Counter(map(tuple, kept.tolist())), probabilities)


@pytest.mark.parametrize("length", [2, 128])
def test_sizes_of_long_sequences_follow_their_equations(length):
    sizes = DISTRIBUTIONS["uniform-length"](DRAWS, length, 1, rng()).sum(-1).flatten()
    assert_follows(Counter(sizes.tolist()), dict.fromkeys(range(1, length + 1), 1 / length))
    sizes = DISTRIBUTIONS["log-uniform-length"](DRAWS, length, 1, rng()).sum(-1).flatten()
    whole = math.log(length + 1)
    expected = {k: math.log(1 + 1 / k) / whole for k in range(1, length + 1)}
    assert_follows(Counter(sizes.tolist()), expected)


def test_a_sequence_of_one_token_is_kept_where_a_size_is_drawn():
    assert DISTRIBUTIONS["uniform-length"](50, 1, 1, rng()).all()
    assert DISTRIBUTIONS["log-uniform-length"](50, 1, 1, rng()).all()


def test_a_size_is_drawn_and_then_any_place():
    kept = DISTRIBUTIONS["log-uniform-length"](DRAWS, 50, 1, rng())[:, 0].float()
    mean = sum(math.log(1 + 1 / k) / math.log(51) * k / 50 for k in range(1, 51))
    assert torch.allclose(kept.mean(0), torch.full((50,), mean), atol=0.015)


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_a_mixture_is_incomplete_with_its_probability(probability):
    draw = mixture(lambda rows, length, heads, _: torch.zeros(rows, 1, length).bool(), probability)
    kept = draw(DRAWS, 6, 1, rng())
    assert (kept.all(-1) | ~kept.any(-1)).all()
    incomplete = int((~kept.any(-1)).sum())
    if probability in (0.0, 1.0):
        assert incomplete == probability * DRAWS
    else:
        assert stats.binomtest(incomplete, DRAWS, probability).pvalue > UNLIKELY


def test_pinned_tokens_are_kept_and_no_part_of_the_draw():
    kept = mixture(subsets.uniform_length, 1.0, pinned=2)(DRAWS, T + 2, 1, rng())
    assert kept[..., :2].all()
    probabilities = {s: EQUATIONS["uniform-length"](sum(s)) for s in product((0, 1), repeat=T)}
    assert_follows(Counter(map(tuple, kept[:, 0, 2:].int().tolist())), probabilities)


def test_the_same_generator_gives_the_same_subsets():
    for draw in DISTRIBUTIONS.values():
        assert torch.equal(draw(5, 9, 2, rng(1)), draw(5, 9, 2, rng(1)))
        assert not torch.equal(draw(50, 9, 2, rng(1)), draw(50, 9, 2, rng(2)))


def test_a_query_sees_itself_and_what_is_kept_before_it():
    keep = subsets.inverse_length(3, 7, 2, rng())
    mask = attention_mask(keep)
    assert mask.shape == (3, 2, 7, 7)
    for row, head, i, j in product(range(3), range(2), range(7), range(7)):
        sees = j == i or (j < i and bool(keep[row, head, j]))
        assert (mask[row, head, i, j] == 0) == sees
        assert sees or mask[row, head, i, j] == torch.finfo(torch.float32).min


def rows_of(count: int, length: int) -> torch.Tensor:
    return torch.randint(2, VOCABULARY, (count, length), generator=rng(3))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_masked_pass_gives_the_logits_of_sparse_evaluation(family):
    """All targets of a row at once, against one evaluation for each target of its own subset."""
    model, length = shared(family), 11
    ids = rows_of(2, length)
    keep = subsets.uniform(2, length, 1, rng(4))
    with torch.no_grad():
        trained = MaskedPass(model)(model, ids, keep).log_softmax(-1)
    next_token = NextToken(model)
    scorer = CausalScorer(model)
    spread = 0.0
    for row, i in product(range(2), range(length - 1)):
        seen = [j for j in range(i + 1) if j == i or keep[row, 0, j]]
        target = int(ids[row, i + 1])
        context = causal_context(tuple(ids[row].tolist()), i + 1, frozenset())
        score = scorer.score([(context, tuple(seen))])[0]
        assert score.target_logprob == pytest.approx(float(trained[row, i, target]), abs=2e-4)
        if FAMILIES[family].evaluation == "sparse":
            places = torch.tensor([seen])
            sparse = next_token(ids[row : row + 1, seen], places, torch.ones_like(places))
            assert torch.allclose(sparse[0].log_softmax(-1), trained[row, i], atol=2e-4)
        spread = max(spread, float(trained[row, i].max() - trained[row, i].min()))
    assert spread > 1  # a model that predicts nothing agrees with everything


@pytest.mark.parametrize("family", FAMILIES)
def test_dropped_tokens_influence_nothing(family):
    model, length, dropped = shared(family), 10, [1, 4, 5, 8]
    ids = rows_of(1, length)
    changed = ids.clone()
    changed[0, dropped] = (changed[0, dropped] + 5) % VOCABULARY
    keep = torch.ones(1, 1, length, dtype=torch.bool)
    keep[..., dropped] = False
    others = [i for i in range(length) if i not in dropped]
    masked_pass = MaskedPass(model)
    with torch.no_grad():
        before, after = (masked_pass(model, some, keep) for some in (ids, changed))
        full, full_after = (masked_pass(model, some, None) for some in (ids, changed))
    # A dropped token still sees itself: its own prediction changes, and no other.
    # To the last bit, but for experts: how many tokens share one decides how they are summed.
    tolerance = 1e-5 if family == "mixtral" else 0.0
    assert torch.allclose(before[:, others], after[:, others], atol=tolerance, rtol=0)
    assert not torch.allclose(before[:, dropped], after[:, dropped], atol=1e-3)
    assert not torch.allclose(full[:, others], full_after[:, others], atol=1e-3)


def test_heads_have_subsets_of_their_own():
    model, length = shared("gpt2"), 8
    ids = rows_of(1, length)
    masked_pass = MaskedPass(model)
    assert masked_pass.heads == 4
    none, one = torch.zeros(2, 1, masked_pass.heads, length, dtype=torch.bool)
    one = one.clone()
    one[:, 2, 3] = True  # one head sees the fourth token
    with torch.no_grad():
        without, with_it = (masked_pass(model, ids, keep) for keep in (none, one))
    assert torch.equal(without[:, :4], with_it[:, :4])
    assert not torch.allclose(without[:, 4:], with_it[:, 4:], atol=1e-3)


def test_all_kept_is_the_ordinary_forward_pass():
    model, ids = shared("llama"), rows_of(2, 9)
    everything = torch.ones(2, 1, 9, dtype=torch.bool)
    with torch.no_grad():
        plain = model(input_ids=ids).logits
        assert torch.allclose(MaskedPass(model)(model, ids, everything), plain, atol=1e-4)
        assert torch.allclose(MaskedPass(model)(model, ids, None), plain, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_models_pass_their_check(family):
    check_model(shared(family), 16)


def test_rows_longer_than_the_model_are_refused():
    with pytest.raises(RationalesError, match=r"--length 65 is more than the 64 positions") as e:
        check_model(shared("gpt2"), 65)
    assert "\n" not in str(e.value)
    family, window = WINDOWED["mistral"]
    with pytest.raises(RationalesError, match=r"attention window of the model \(4 tokens\)"):
        check_model(build(family, **window), 5)
    check_model(build(family, **window), 4)


def test_a_model_that_does_not_follow_the_mask_is_refused(monkeypatch):
    deaf = build("llama")
    forward = deaf.model.forward

    def without_mask(*args, attention_mask=None, **rest):
        four = attention_mask is not None and attention_mask.dim() == 4
        flat = None if four else attention_mask
        return forward(*args, attention_mask=flat, **rest)

    monkeypatch.setattr(deaf.model, "forward", without_mask)
    with pytest.raises(RationalesError, match="llama models cannot be trained"):
        inputs.check_model(deaf, 12)
