"""Metrics against hand-computed cases, and against the libraries that know them."""

from __future__ import annotations

import builtins
import random
from statistics import fmean

import pytest

from rationales import metrics
from rationales.errors import MissingExtraError, RationalesError


@pytest.mark.parametrize(
    ("a", "b", "iou", "f1"),
    [
        ({1, 2, 3}, {2, 3, 4, 5}, 2 / 5, 4 / 7),
        ({1, 2}, {1, 2}, 1.0, 1.0),
        ({1}, {2}, 0.0, 0.0),
        ({1, 2, 3, 4}, {4}, 1 / 4, 2 / 5),
        (set(), {1}, 0.0, 0.0),
        (set(), set(), 1.0, 1.0),
        ([3, 1, 1], (1, 3), 1.0, 1.0),
    ],
)
def test_overlaps_are_those_of_a_hand(a, b, iou, f1):
    assert metrics.iou(a, b) == metrics.iou(b, a) == pytest.approx(iou)
    assert metrics.f1(a, b) == metrics.f1(b, a) == pytest.approx(f1)


def test_f1_is_the_harmonic_mean_of_precision_and_recall():
    a, b = {1, 2, 3, 4, 5}, {4, 5, 6}
    precision, recall = 2 / 5, 2 / 3
    assert metrics.f1(a, b) == pytest.approx(2 * precision * recall / (precision + recall))


def test_kappa_of_a_hand():
    # Both say yes 20 times, no 15 times; 5 and 10 times they differ: a textbook example.
    assert metrics.set_kappa(range(25), [*range(20), *range(25, 35)], range(50)) == (
        pytest.approx(0.4)
    )
    assert metrics.set_kappa({2, 3}, {1, 3}, range(4)) == pytest.approx(0.0)
    assert metrics.set_kappa({0, 1}, {0, 1}, range(2)) == 1.0
    assert metrics.set_kappa({0, 1}, {0, 1}, range(5)) == 1.0
    assert metrics.set_kappa({0}, {1}, range(2)) == pytest.approx(-1.0)
    assert metrics.set_kappa({0, 7}, {1, 8}, range(2)) == pytest.approx(-1.0)
    with pytest.raises(RationalesError, match="there are none"):
        metrics.set_kappa({0}, {1}, ())


def test_kappa_agrees_with_scikit_learn():
    sklearn = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    draw = random.Random(0)
    for _ in range(20):
        a = [draw.randrange(2) for _ in range(30)]
        b = [x if draw.random() < 0.6 else draw.randrange(2) for x in a]
        sets = ({i for i, x in enumerate(labels) if x} for labels in (a, b))
        expected = pytest.approx(sklearn.cohen_kappa_score(a, b))
        assert metrics.set_kappa(*sets, range(30)) == expected


def test_intervals_are_scipy_s():
    import numpy as np
    from scipy.stats import bootstrap

    values = [random.Random(n).random() for n in range(40)]
    found = metrics.estimate(values, seed=3)
    theirs = bootstrap(
        (np.array(values),),
        np.mean,
        n_resamples=metrics.RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(3),
    ).confidence_interval
    assert found.mean == fmean(values)
    assert (found.low, found.high) == (float(theirs.low), float(theirs.high))
    assert found.low < found.mean < found.high
    assert found == metrics.estimate(values, seed=3)
    assert found.examples == 40


def test_equal_values_have_no_interval_to_speak_of():
    assert metrics.estimate([2.0, 2.0]) == metrics.Estimate(2.0, 2.0, 2.0, 2)
    with pytest.raises(RationalesError, match="no mean"):
        metrics.estimate([])


def matched(tokenizer, text, span):
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    found = metrics.tokens_in_span(text, encoded["offset_mapping"], span)
    return found, [tuple(offset) for offset in encoded["offset_mapping"]]


def test_a_word_of_several_tokens_is_all_of_them_and_nothing_else(tiny_tokenizer):
    text = "The xylophonist sleeps."
    found, offsets = matched(tiny_tokenizer, text, (4, 15))
    assert len(found) > 1
    assert "".join(text[slice(*offsets[i])] for i in found).strip() == "xylophonist"
    assert found == tuple(range(found[0], found[-1] + 1))
    inside, _ = matched(tiny_tokenizer, text, (5, 6))
    assert len(inside) == 1
    assert inside[0] in found


def test_a_space_alone_is_nobody_s(tiny_tokenizer):
    text = "The  dog sleeps on"
    both, offsets = matched(tiny_tokenizer, text, (0, len(text)))
    assert matched(tiny_tokenizer, text, (3, 5))[0] == ()
    assert {i for i, (a, b) in enumerate(offsets) if text[a:b].strip()} == set(both)


@pytest.mark.parametrize("character", ["ß", "é", "東", "🙂", "🦩", "Ω"])
def test_characters_of_several_bytes_belong_to_each_of_their_tokens(tiny_tokenizer, character):
    text = f"on {character} the dog"
    ids = tiny_tokenizer(text, add_special_tokens=False)["input_ids"]
    found, _ = matched(tiny_tokenizer, text, (3, 4))
    # What is left of the text without these tokens has none of the character.
    rest = [id for place, id in enumerate(ids) if place not in found]
    assert tiny_tokenizer.decode(rest).split() == ["on", "the", "dog"]
    assert len(found) >= 1
    if character == "🦩":  # not in the texts that the tokenizer learned from
        assert len(found) > 1
    before, _ = matched(tiny_tokenizer, text, (0, 2))
    after, _ = matched(tiny_tokenizer, text, (5, 8))
    assert not {*before} & {*found}
    assert not {*after} & {*found}


def test_intervals_without_scipy_name_the_extra(monkeypatch):
    real = builtins.__import__

    def without_scipy(name, *rest, **others):
        if name.startswith("scipy"):
            raise ImportError(name)
        return real(name, *rest, **others)

    monkeypatch.setattr(builtins, "__import__", without_scipy)
    with pytest.raises(MissingExtraError, match="experiments"):
        metrics.estimate([1.0, 2.0])


def error_rate(found, sure, possible, **rest):
    errors = metrics.alignment_errors(found, sure, possible, **rest)
    return errors.total / errors.number if errors.number else 0


def test_alignment_error_of_a_hand():
    sure, possible = {(0, 0), (1, 1)}, {(0, 0), (1, 1), (1, 2), (2, 2)}
    # All sure links and nothing else, or possible ones besides: no error.
    assert error_rate(sure, sure, possible) == 0
    assert error_rate(sure | {(1, 2)}, sure, possible) == 0
    # Two of A = 3 are sure, none of the third: 1 - (2 + 2) / (3 + 2).
    assert error_rate(sure | {(5, 5)}, sure, possible) == pytest.approx(1 / 5)
    # One sure, one possible, one wrong: 1 - (1 + 2) / (3 + 2).
    found = {(0, 0), (2, 2), (3, 0)}
    assert error_rate(found, sure, possible) == pytest.approx(2 / 5)
    # Whether the possible ones are given with the sure ones or without.
    assert error_rate(found, sure, possible - sure) == pytest.approx(2 / 5)
    assert error_rate(set(), sure, possible) == 1
    assert error_rate(found, set(), set()) == 1
    assert error_rate(set(), set(), set()) == 0


def test_the_papers_variant_counts_no_sure_link_as_possible():
    sure, possible = {1, 2}, {1, 2, 3}
    assert error_rate(sure, sure, possible, paper=True) == pytest.approx(1 / 2)
    # 1 - (1 sure + 1 that is only possible) / (3 + 2)
    assert error_rate({1, 3, 9}, sure, possible, paper=True) == pytest.approx(3 / 5)
    assert error_rate({1, 3, 9}, sure, possible) == pytest.approx(2 / 5)


def test_crossovers_of_a_hand():
    # S1 = 0 1 2, S2 = 3 4 5, T1 = 6 7, T2 = 8 9 10
    seam = metrics.Seam(source=3, border=6, target=8)
    assert metrics.crossovers({0, 2, 4, 5, 6}, 7, seam) == metrics.Crossovers(2, None)
    assert metrics.crossovers({0, 2}, 6, seam) == metrics.Crossovers(0, None)
    # The first target of T2: nothing of T2 is before it.
    assert metrics.crossovers({3, 4, 6}, 8, seam) == metrics.Crossovers(0, 1)
    assert metrics.crossovers({0, 1, 4, 6, 7, 8, 9}, 10, seam) == metrics.Crossovers(2, 2)


def test_totals_are_resampled_as_wholes():
    """The mean is that of all the numbers; the interval is that of sentences, not of words."""
    groups = [[1.0, 1.0, 1.0], [0.0], [1.0, 0.0]] * 8
    found = metrics.estimate([metrics.Total.of(group) for group in groups])
    assert found.mean == pytest.approx(4 / 6)
    assert found.examples == 24
    alone = metrics.estimate([value for group in groups for value in group])
    assert alone.mean == pytest.approx(found.mean)
    assert found.high - found.low > alone.high - alone.low
    single = metrics.estimate([metrics.Total(value, 1) for value in (1.0, 2.0, 4.0)])
    assert single == metrics.estimate([1.0, 2.0, 4.0])
    same = metrics.estimate([metrics.Total(1, 2), metrics.Total(2, 4), metrics.Total(0, 0)])
    assert (same.low, same.mean, same.high) == (0.5, 0.5, 0.5)
    with pytest.raises(RationalesError, match="no mean of no values"):
        metrics.estimate([metrics.Total(0, 0)])


def test_the_errors_of_an_alignment_add_up():
    sure, possible = {1}, {1, 2}
    assert metrics.alignment_errors({1, 2, 3}, sure, possible) == (1, 4)
    assert metrics.alignment_errors({1, 2, 3}, sure, possible, paper=True) == (2, 4)
