"""The masked pass of encoder–decoders: per head, exact, and nothing of what is dropped gets in."""

from __future__ import annotations

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration, MarianConfig, MarianMTModel

from rationales.compat.rows import generator
from rationales.compat.seq2seq import Kept, Seq2SeqPass, WordDropout, check_seq2seq
from rationales.context import seq2seq_context
from rationales.errors import RationalesError
from rationales.scoring.seq2seq import Seq2SeqScorer

PAD, END, VOCABULARY, HEADS = 0, 1, 40, 4
SIZES = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 32,
    "pad_token_id": PAD,
    "eos_token_id": END,
    "decoder_start_token_id": PAD,
    "forced_eos_token_id": None,
    # Wide enough that the place of a token matters.
    "init_std": 0.4,
}


@pytest.fixture(params=["marian-sdpa", "marian-eager", "bart-sdpa"])
def model(request):
    family, attention = request.param.split("-")
    torch.manual_seed(0)
    config, kind = (
        (MarianConfig(**SIZES), MarianMTModel)
        if family == "marian"
        else (BartConfig(**SIZES), BartForConditionalGeneration)
    )
    config._attn_implementation = attention
    return kind(config).eval()


SOURCE = torch.tensor([[5, 9, 13, 17, 21, END]])
INPUTS = torch.tensor([[PAD, 6, 10, 14, 18]])
KEPT_SOURCE, KEPT_TARGET = (1, 3, 5), (0, 2)


def kept(indices, length, heads=1):
    mask = torch.zeros(1, heads, length, dtype=torch.bool)
    mask[..., list(indices)] = True
    return mask


def logprobs(model, source, inputs, keep):
    with torch.no_grad():
        return Seq2SeqPass(model)(model, source, inputs, keep).log_softmax(-1)


@pytest.mark.parametrize("heads", [1, HEADS])
@pytest.mark.parametrize("source", [KEPT_SOURCE, (0,), (2, 4)])
def test_every_target_is_what_a_sparse_evaluation_says(model, heads, source):
    keep = Kept(kept(source, 6, heads), kept(KEPT_TARGET, 5, heads))
    found = logprobs(model, SOURCE, INPUTS, keep)[0]
    ids = (*SOURCE[0].tolist(), *INPUTS[0].tolist(), 22)
    queries = []
    for place in range(5):
        seen = {*source, *(6 + i for i in KEPT_TARGET if i < place), 6 + place}
        queries.append(
            (seq2seq_context(ids, 7 + place, frozenset({6}), 6), tuple(sorted(seen | {6})))
        )
    for evaluation in ("sparse", "masked"):
        scores = Seq2SeqScorer(model, evaluation=evaluation).score(queries)
        for place, score in enumerate(scores):
            target = queries[place][0].target_id
            assert float(found[place, target]) == pytest.approx(score.target_logprob, abs=1e-4)
            assert int(found[place].argmax()) == score.prediction_id


def test_what_is_dropped_changes_nothing(model):
    keep = Kept(kept(KEPT_SOURCE, 6, HEADS), kept(KEPT_TARGET, 5, HEADS))
    before = logprobs(model, SOURCE, INPUTS, keep)
    source, inputs = SOURCE.clone(), INPUTS.clone()
    source[0, [0, 2, 4]] = 33
    inputs[0, [1, 3]] = 34
    after = logprobs(model, source, inputs, keep)
    # A target right after a dropped token sees that token, which is required.
    assert torch.allclose(before[0, [0, 2, 4]], after[0, [0, 2, 4]], atol=1e-5)
    assert not torch.allclose(before[0, [1, 3]], after[0, [1, 3]], atol=1e-3)
    source[0, 1] = 35
    assert not torch.allclose(before[0, 4], logprobs(model, source, inputs, keep)[0, 4], atol=1e-3)


@pytest.mark.parametrize("side", ["source", "target"])
def test_each_head_has_a_subset_of_its_own(model, side):
    """A token that one head keeps gets in through that head, and through no other one."""
    nothing = Kept(kept((5,), 6, HEADS), kept((0,), 5, HEADS))
    before = logprobs(model, SOURCE, INPUTS, nothing)[0, 4]
    through = []
    for head in range(HEADS):
        keep = Kept(nothing.source.clone(), nothing.target.clone())
        getattr(keep, side)[0, head, 2] = True
        through.append(logprobs(model, SOURCE, INPUTS, keep)[0, 4])
    for head, one in enumerate(through):
        assert not torch.allclose(one, before, atol=1e-3)
        assert not torch.allclose(one, through[head - 1], atol=1e-3)
    # If the values of that head are nothing, what it sees does not matter.
    width = 32 // HEADS
    with torch.no_grad():
        for layer in (*model.get_encoder().layers, *model.get_decoder().layers):
            for name in ("self_attn", "encoder_attn"):
                if (attention := getattr(layer, name, None)) is not None:
                    attention.v_proj.weight[:width] = 0
                    attention.v_proj.bias[:width] = 0
    keep = Kept(nothing.source.clone(), nothing.target.clone())
    getattr(keep, side)[0, 0, 2] = True
    same = logprobs(model, SOURCE, INPUTS, keep)[0, 4]
    assert torch.allclose(same, logprobs(model, SOURCE, INPUTS, nothing)[0, 4], atol=1e-5)


def test_everything_is_the_ordinary_pass_also_with_pads(model):
    source = torch.tensor([[5, 9, END, PAD, PAD], [5, 9, 13, 17, END]])
    inputs = torch.tensor([[PAD, 6, 10], [PAD, 6, 10]])
    lengths = torch.tensor([3, 5])
    whole = Kept(
        (torch.arange(5) < lengths[:, None])[:, None], torch.ones(2, 1, 3, dtype=torch.bool)
    )
    with torch.no_grad():
        alone = model(input_ids=source[:1, :3], decoder_input_ids=inputs[:1]).logits
    for keep in (None, whole):
        found = logprobs(model, source, inputs, keep)
        assert torch.allclose(found[:1], alone.log_softmax(-1), atol=1e-4)
    check_seq2seq(model)


def test_draws_depend_on_the_length_of_each_row():
    lengths, targets = torch.tensor([3, 11] * 2000), torch.tensor([6, 2] * 2000)
    drawn = WordDropout(mixture=1.0).draw(lengths, targets, HEADS, generator(0, "test", 0))
    assert drawn.source.shape == (4000, HEADS, 11)
    assert drawn.target.shape == (4000, HEADS, 6)
    short, long = drawn.source[::2].float(), drawn.source[1::2].float()
    assert short[..., 2].all()  # the end of the source
    assert long[..., 10].all()
    assert not short[..., 3:].any()
    assert float(short[..., :2].mean()) == pytest.approx(1 / 2, abs=0.02)
    assert float(long[..., :10].mean()) == pytest.approx(1 / 10, abs=0.01)
    assert drawn.target[..., 0].all()  # what the decoder starts with
    assert float(drawn.target[::2, :, 1:].float().mean()) == pytest.approx(1 / 5, abs=0.01)
    assert drawn.target[1::2, :, 1].all()  # one of one
    # Heads are drawn by themselves.
    assert (drawn.source[:, 0] != drawn.source[:, 1]).any()


def test_the_mixture_leaves_pairs_complete_on_both_sides():
    lengths = torch.full((4000,), 9)
    drawn = WordDropout().draw(lengths, lengths, HEADS, generator(1, "test", 0))
    source, target = (side.all(-1).all(-1) for side in drawn)
    assert torch.equal(source, target)
    assert float(source.float().mean()) == pytest.approx(0.5, abs=0.03)
    none = WordDropout(mixture=0.0).draw(lengths, lengths, HEADS, generator(1, "test", 0))
    assert none.source.all()
    again = WordDropout().draw(lengths, lengths, HEADS, generator(1, "test", 0))
    assert torch.equal(drawn.source, again.source)


def test_every_distribution_can_be_drawn():
    lengths = torch.tensor([2, 5, 1])
    for name in ("uniform", "uniform-length", "log-uniform-length", "inverse-length"):
        drawn = WordDropout(name).draw(lengths, lengths, 2, generator(0, "test", 0))
        assert drawn.source.shape == drawn.target.shape == (3, 2, 5)
    for bad in ({"distribution": "x"}, {"mixture": 2.0}):
        with pytest.raises(RationalesError, match=next(iter(bad))):
            WordDropout(**bad)


def test_only_encoder_decoders_with_as_many_heads():
    config = MarianConfig(**{**SIZES, "decoder_attention_heads": 2})
    with pytest.raises(RationalesError, match="different numbers of attention heads"):
        Seq2SeqPass(MarianMTModel(config))
