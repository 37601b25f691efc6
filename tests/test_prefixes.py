"""Shared prefixes: what is stored, what is computed first, and that no answer changes."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import DynamicCache

from rationales import Context, RationalesError, Score
from rationales.context import causal_context
from rationales.scoring.adapted import AdaptedScorer
from rationales.scoring.causal import CausalScorer
from rationales.scoring.prefixes import PrefixStore, fill
from rationales.scoring.protocol import Query

from tiny_models import FAMILIES, STRETCHED, SWITCH, VOCABULARY, build, shared

SHARING = [
    "gpt2", "llama", "gpt-neox", "opt", "qwen2", "qwen3", "mixtral", "gemma", "falcon-rotary",
    "phi3", "gptj", "stablelm", "olmo2",
]  # fmt: skip
"""Families without windows and ALiBi: their prefixes are shared."""

every_family = pytest.mark.parametrize("family", FAMILIES)
TOLERANCE = 1e-4


# --- the store


LAYERS, HEADS, SIZE = 2, 3, 4
TOKEN_BYTES = LAYERS * HEADS * (SIZE + SIZE + 1) * 4  # the values are one number longer


def small_store(tokens: int) -> PrefixStore:
    """A store with room for so many tokens, and the empty one."""
    keys, values = torch.ones(LAYERS, HEADS, SIZE), torch.ones(LAYERS, HEADS, SIZE + 1)
    store = PrefixStore(keys, values, max_bytes=TOKEN_BYTES * (tokens + 1) + 1)
    store.begin()
    return store


def nbytes(store: PrefixStore) -> int:
    """How many bytes are taken."""
    return sum(slab.nbytes for slab in store._slabs)


def states(*numbers: int) -> DynamicCache:
    """A cache of one row, with a token for each number, filled with it; layers differ by 1000."""
    line = torch.tensor(numbers, dtype=torch.float)[None, None, :, None]
    return DynamicCache(
        [
            (
                (line + 1000 * layer).expand(1, HEADS, -1, SIZE),
                (-line - 1000 * layer).expand(1, HEADS, -1, SIZE + 1),
            )
            for layer in range(LAYERS)
        ]
    )


def chain(store: PrefixStore, *tokens: int) -> list[int]:
    """The serial numbers of these tokens, each stored after the one before, as far as possible."""
    serials = [0]
    for position, token in enumerate(tokens):
        state = store.add(serials[-1], position, token)
        if state is None:
            break
        store.write(states(token), [(0, 0, state.slot)])
        serials.append(state.serial)
    return serials[1:]


def found(store: PrefixStore, *tokens: int) -> int:
    """How many of these tokens are found, from the first one on."""
    before = 0
    for position, token in enumerate(tokens):
        state = store.find(before, position, token)
        if state is None:
            return position
        before = state.serial
    return len(tokens)


def test_what_is_written_is_read_where_it_belongs() -> None:
    store = small_store(100)
    a, b, c = (store.add(0, 0, token) for token in (7, 8, 9))
    assert a is not None
    assert b is not None
    assert c is not None
    store.write(states(70, 80, 90), [(0, 1, b.slot), (0, 0, a.slot), (0, 2, c.slot)])
    cache = store.read([[0, a.slot], [c.slot, b.slot]])
    assert cache.get_seq_length() == 2
    for layer in range(LAYERS):
        keys, values = cache.layers[layer].keys, cache.layers[layer].values
        assert keys.shape == (2, HEADS, 2, SIZE)
        assert values.shape == (2, HEADS, 2, SIZE + 1)
        expected = torch.tensor([[0, 70], [90, 80]]) + 1000 * layer
        expected[0, 0] = 0  # padding is empty
        assert torch.equal(keys[:, 0, :, 0], expected.float())
        assert torch.equal(values[:, -1, :, -1], -expected.float())


def test_a_path_is_found_as_far_as_it_is_stored() -> None:
    store = small_store(100)
    chain(store, 5, 6, 7)
    assert found(store, 5, 6, 7, 8) == 3
    assert found(store, 5, 9, 7) == 1
    assert found(store, 6, 7) == 0  # the same tokens elsewhere
    assert store.find(0, 1, 5) is None


def test_what_was_used_longest_ago_makes_room() -> None:
    store = small_store(3)
    for token in (1, 2, 3):
        store.begin()
        chain(store, token)
    store.begin()
    assert found(store, 1) == 1  # used again, so that 2 is the oldest
    chain(store, 4)
    assert [found(store, token) for token in (1, 2, 3, 4)] == [1, 0, 1, 1]
    assert len(store) == 3


def test_a_call_drops_nothing_that_it_has_used() -> None:
    store = small_store(3)
    assert len(chain(store, 1, 2, 3, 4)) == 3
    assert store.add(0, 9, 9) is None
    assert found(store, 1, 2, 3) == 3
    store.begin()
    assert found(store, 1) == 1
    assert len(chain(store, 7, 8, 9)) == 2
    assert found(store, 1, 2) == 1


def test_what_followed_a_dropped_token_is_not_found_and_is_dropped_in_its_turn() -> None:
    store = small_store(4)
    chain(store, 1, 2, 3)
    store.begin()
    chain(store, 8, 9)  # drops 1: now 2 and 3 hang in the air
    assert found(store, 1, 2, 3) == 0
    store.begin()
    chain(store, 1)  # and do not come back with another 1
    assert found(store, 1, 2, 3) == 1
    for token in range(20, 24):
        chain(store, token)
        store.begin()
    assert len(store) == 4
    assert all(store.find(0, 0, token) for token in range(20, 24))


@pytest.mark.parametrize("tokens", [3, 6, 40])
def test_what_is_found_is_always_what_this_path_has_stored(tokens: int) -> None:
    store, rng = small_store(tokens), random.Random(tokens)
    written: dict[tuple[int, ...], int] = {}
    hits = 0
    for number in range(1, 400):
        store.begin()
        path = tuple(rng.randrange(2) for _ in range(rng.randrange(1, 6)))
        before = 0
        for depth, token in enumerate(path, start=1):
            state = store.find(before, depth, token)
            if state is not None:
                hits += 1
                value = store.read([[state.slot]]).layers[0].keys[0, 0, 0, 0]
                assert value == written[path[:depth]]
            else:
                state = store.add(before, depth, token)
                if state is None:
                    break
                written[path[:depth]] = number
                store.write(states(number), [(0, 0, state.slot)])
            before = state.serial
    assert hits > 100


@pytest.mark.parametrize("tokens", [-1, 0, 1, 2, 63, 64, 65, 200])
def test_the_bytes_are_bounded_and_taken_as_they_are_needed(tokens: int) -> None:
    store = small_store(tokens)
    assert nbytes(store) == TOKEN_BYTES
    for token in range(300):
        store.begin()
        chain(store, token)
        assert nbytes(store) <= max(TOKEN_BYTES, store.max_bytes)
        assert nbytes(store) <= TOKEN_BYTES * max(65, 2 * (token + 2))
    assert len(store) == max(0, tokens)
    assert (len(store.empty()), nbytes(store.empty())) == (0, TOKEN_BYTES)


def test_the_bound_rises_for_a_long_text_until_memory_runs_out() -> None:
    store = small_store(5)
    store.begin(longest=300)
    chain(store, *range(300))
    assert len(store) == 300
    store.halve()
    bound = store.max_bytes
    store.begin(longest=1000)
    assert store.max_bytes == store.empty().max_bytes == bound


def test_layers_that_differ_are_not_stored() -> None:
    cache = states(1, 2)
    assert PrefixStore.like(cache) is not None
    cache.layers[1].keys = cache.layers[1].keys[:, :1]
    assert PrefixStore.like(cache) is None


# --- the rows


def filled(
    paths: list[tuple[int, ...]], stored: set[int], most_tokens: int = 4096, most_queries: int = 999
) -> list[tuple[list[int], list[int], list[int]]]:
    """The rows of these paths: new tokens, stored ones, which paths end there."""
    rows = fill(paths, stored, most_tokens, most_queries)
    return [(row.nodes, row.past, sorted(w for w, _ in row.ends)) for row in rows]


def test_what_paths_have_in_common_is_computed_once() -> None:
    paths = [(1, 2, 3), (1, 2, 4), (1, 5)]
    [(new, past, asked)] = filled(paths, set())
    assert sorted(new) == [1, 2, 3, 4, 5]
    assert (past, asked) == ([], [0, 1, 2])
    [(new, past, asked)] = filled(paths, {1, 2})
    assert (sorted(new), past) == ([3, 4, 5], [1, 2])
    # The last token of a path is computed even if it is stored.
    [(new, past, _)] = filled([(1, 2), (1, 2, 3)], {1, 2})
    assert (sorted(new), past) == ([2, 3], [1, 2])


def test_contexts_that_contain_each_other_are_one_row() -> None:
    paths = [tuple(range(length)) for length in range(1, 600)]
    assert filled(paths, set()) == [(list(range(599)), [], list(range(599)))]


def test_a_template_is_in_few_rows() -> None:
    template = tuple(range(100))
    paths = [(*template, 1000 + k, 2000 + k) for k in range(100)]
    rows = filled(paths, set())
    assert len(rows) == 3
    assert all(new.count(0) == 1 for new, _, _ in rows)
    rows = filled(paths, set(template))
    assert sum(len(new) for new, _, _ in rows) == 200
    assert all(past == list(template) for _, past, _ in rows)


def test_a_row_has_its_limits() -> None:
    paths = [(0, 10 + k) for k in range(40)]
    assert [len(asked) for _, _, asked in filled(paths, {0}, most_queries=15)] == [15, 15, 10]
    assert all(len(new) + len(past) <= 9 for new, past, _ in filled(paths, {0}, most_tokens=9))
    long = [tuple(range(50)), (0, 99)]
    assert [len(new) for new, _, _ in filled(long, set(), most_tokens=10)] == [2, 50]


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=30),
    st.integers(0, 6),
    st.integers(1, 40),
    st.integers(1, 8),
)
def test_every_path_ends_once_after_all_it_needs(
    drawn: list[list[int]], depth: int, most_tokens: int, most_queries: int
) -> None:
    nodes: dict[tuple[int, ...], int] = {}
    for line in drawn:
        for n in range(1, len(line) + 1):
            nodes.setdefault(tuple(line[:n]), len(nodes))
    parents = {node: nodes.get(prefix[:-1], -1) for prefix, node in nodes.items()}
    paths = [tuple(nodes[tuple(line[:n])] for n in range(1, len(line) + 1)) for line in drawn]
    stored = {node for prefix, node in nodes.items() if len(prefix) <= depth}
    rows = fill(paths, stored, most_tokens, most_queries)
    assert sorted(which for row in rows for which, _ in row.ends) == list(range(len(paths)))
    for new, past, asked in rows:
        assert len(new) == len({*new})
        assert {*past} <= stored
        there: set[int] = {-1}
        for node in (*past, *new):
            assert parents[node] in there
            there.add(node)
        assert all(new[column] == paths[which][-1] for which, column in asked)
        assert len(asked) <= most_queries
        assert len(asked) == 1 or len(new) + len(past) <= most_tokens


# --- the scores


def text_of(seed: int, length: int) -> tuple[int, ...]:
    rng = random.Random(seed)
    return tuple(rng.randrange(2, VOCABULARY) for _ in range(length))


def steps(
    seed: int, texts: int = 2, length: int = 16, pinned: frozenset[int] = frozenset()
) -> list[list[Query]]:
    """What searches for several targets of several texts would ask, step by step."""
    rng = random.Random(seed)
    contexts = [
        causal_context(text_of(seed + n, length), target, pinned)
        for n in range(texts)
        for target in (length // 2, length - 2, length - 1)
    ]
    kept = {context: context.required for context in contexts}
    asked: list[list[Query]] = [[(c, c.keep(c.everything)) for c in contexts]]
    asked.append([(context, context.keep(kept[context])) for context in contexts])
    for _ in range(4):
        asked.append(
            [
                (context, context.keep((*kept[context], k)))
                for context in contexts
                for k in context.candidates
                if k not in kept[context]
            ]
        )
        for context in contexts:
            left = [k for k in context.candidates if k not in kept[context]]
            kept[context] = (*kept[context], *rng.sample(left, min(1, len(left))))
    return asked


def assert_close(scores: list[Score], expected: list[Score]) -> None:
    for mine, other in zip(scores, expected, strict=True):
        assert mine.target_logprob == pytest.approx(other.target_logprob, abs=TOLERANCE, rel=0)
        assert mine.prediction_logprob == pytest.approx(
            other.prediction_logprob, abs=TOLERANCE, rel=0
        )
        assert mine.prediction_id == other.prediction_id


def assert_same_scores(scorer: CausalScorer, asked: list[list[Query]]) -> CausalScorer:
    """Every step is scored as without sharing; the scorer that did it so."""
    plain = CausalScorer(scorer.model, share_prefixes=False)
    assert not plain.shares_prefixes
    for queries in asked:
        assert_close(scorer.score(queries), plain.score(queries))
    return plain


@every_family
def test_prefixes_are_shared_where_that_is_exact(family: str) -> None:
    assert CausalScorer(shared(family)).shares_prefixes == (family in SHARING)


@every_family
@pytest.mark.parametrize("pinned", [frozenset(), frozenset({0, 1, 4})], ids=["free", "pinned"])
def test_sharing_changes_no_score(family: str, pinned: frozenset[int]) -> None:
    scorer = CausalScorer(shared(family)).fresh()
    plain = assert_same_scores(scorer, steps(seed=1, pinned=pinned))
    if family in SHARING:
        assert scorer.tokens < (0.5 if pinned else 0.8) * plain.tokens
    else:
        assert scorer.tokens == plain.tokens


@pytest.mark.parametrize("family", ["gpt2", "llama", "gptj"])
@pytest.mark.parametrize("batch_tokens", [1, 7, 40])
def test_sharing_in_small_passes(family: str, batch_tokens: int) -> None:
    scorer = CausalScorer(shared(family), batch_tokens=batch_tokens).fresh()
    passes: list[tuple[int, int, int, int]] = []
    original = scorer._next_token

    def next_token(
        ids: torch.Tensor, places: torch.Tensor, mask: Any, cache: Any = None, at: Any = None
    ) -> Any:
        asked = len(ids) if at is None else len(at)
        passes.append((*ids.shape, mask.shape[-1], asked))
        return original(ids, places, mask, cache, at)

    scorer._next_token = next_token  # type: ignore[assignment]
    assert_same_scores(scorer, steps(seed=2, texts=1))
    assert all(asked == 1 or rows * length <= batch_tokens for rows, _, length, asked in passes)
    assert scorer.tokens == sum(rows * new for rows, new, _, _ in passes)


@pytest.mark.parametrize("family", ["gpt2", "llama", "opt"])
@pytest.mark.parametrize("tokens", [0, 1, 5, 30, 120])
def test_sharing_with_little_room(family: str, tokens: int) -> None:
    scorer = CausalScorer(shared(family)).fresh()
    store = scorer._prefixes
    assert store is not None
    store.max_bytes, store.grows = nbytes(store) * (tokens + 1), False
    plain = assert_same_scores(scorer, steps(seed=3))
    assert len(store) == tokens  # the pressure was there
    assert scorer.tokens <= plain.tokens


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_eager_attention_shares_too(family: str) -> None:
    scorer = CausalScorer(build(family, attn_implementation="eager")).fresh()
    assert scorer.shares_prefixes
    assert_same_scores(scorer, steps(seed=4))


@pytest.mark.parametrize("family", ["dynamic", "longrope"])
def test_beyond_the_switch_nothing_is_shared(family: str) -> None:
    name, changes = STRETCHED[family]
    model = build(name, **changes)
    scorer = CausalScorer(model).fresh()
    assert scorer.shares_prefixes
    assert_same_scores(scorer, steps(seed=5, length=SWITCH))
    before = scorer.tokens
    plain = assert_same_scores(scorer, steps(seed=6, length=4 * SWITCH))
    assert scorer.tokens - before == plain.tokens
    assert_same_scores(scorer, steps(seed=5, length=SWITCH))


def test_the_order_and_the_cut_of_the_questions_do_not_matter() -> None:
    queries = [query for step in steps(seed=7) for query in step]
    expected = CausalScorer(shared("llama"), share_prefixes=False).score(queries)
    scorer = CausalScorer(shared("llama")).fresh()
    for seed in range(3):
        order = random.Random(seed).sample(range(len(queries)), len(queries))
        for cut in (len(queries), 50, 1):
            chosen = order[:100] if cut == 1 else order
            for start in range(0, len(chosen), cut):
                some = chosen[start : start + cut]
                answers = scorer.score([queries[place] for place in some])
                assert_close(answers, [expected[place] for place in some])


def test_the_same_subset_for_every_target() -> None:
    queries = [(Context(text_of(8, 9), target), (0, 3, 8)) for target in range(VOCABULARY)]
    scorer = CausalScorer(shared("gpt2")).fresh()
    assert_same_scores(scorer, [queries, queries])


@pytest.mark.parametrize("family", ["gpt2", "llama", "opt"])
def test_a_wrong_past_would_be_noticed(family: str) -> None:
    scorer = CausalScorer(shared(family)).fresh()
    [*_, before, last] = steps(seed=9)
    scorer.score(before)
    assert scorer._prefixes is not None
    for each in scorer._prefixes._slabs:  # every token gets the states of another one
        each[1:] = each[1:].roll(1, dims=0)
    wrong = scorer.score(last)
    right = CausalScorer(shared(family), share_prefixes=False).score(last)
    differences = [
        abs(w.target_logprob - r.target_logprob) for w, r in zip(wrong, right, strict=True)
    ]
    assert max(differences) > 0.1


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_the_self_test_notices_a_wrong_past(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = PrefixStore.read

    def read(self: PrefixStore, slots: list[list[int]]) -> DynamicCache:
        cache = original(self, slots)
        for layer in cache.layers:  # the tokens of the past in another order, padding included
            layer.keys = layer.keys.flip(2)
        return cache

    monkeypatch.setattr(PrefixStore, "read", read)
    scorer = CausalScorer(shared(family)).fresh()
    assert not scorer.shares_prefixes
    assert_same_scores(scorer, steps(seed=10, texts=1))


def test_an_error_in_the_self_test_turns_sharing_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("no such cache")

    monkeypatch.setattr(PrefixStore, "read", fail)
    assert not CausalScorer(shared("gpt2")).shares_prefixes


# --- when nothing is shared, and when something goes wrong


def test_a_text_that_grows_is_computed_token_by_token() -> None:
    text = text_of(11, 12)
    scorer = CausalScorer(shared("gpt2")).fresh()
    asked = [[(Context(text[:n], 5), tuple(range(n)))] for n in range(8, 13)]
    plain = assert_same_scores(scorer, asked)
    assert plain.tokens == 8 + 9 + 10 + 11 + 12
    assert scorer.tokens == 12
    assert scorer.score([]) == []


def test_what_follows_a_text_that_grew_is_not_what_else_was_asked_after_it() -> None:
    """The cache of the last text is handed on once: the pass that takes it adds to it."""
    text, other = text_of(11, 12), text_of(13, 12)
    scorer = CausalScorer(shared("gpt2")).fresh()
    whole = [(Context(text[:8], 5), tuple(range(8)))]
    beyond = [(Context((*text[:8], *other[8:]), 5), (*range(8), 9, 11))]
    again = [(Context((*text[:8], *other[8:]), 5), (*range(8), 10, 11))]
    assert_same_scores(scorer, [whole, beyond, again, whole])


def test_few_rows_are_equally_long() -> None:
    paths = [(0, n) for n in range(1, 131)]
    rows = fill(paths, {0}, 4096, 4096)
    assert [len(row.nodes) for row in rows] == [66, 64]


def test_whole_contexts_of_a_text_are_computed_once() -> None:
    text = text_of(12, 40)
    queries = [(Context(text[:n], text[n]), tuple(range(n))) for n in range(1, 40)]
    scorer = CausalScorer(shared("gpt2")).fresh()
    plain = assert_same_scores(scorer, [queries])
    assert plain.tokens == 39 * 40 // 2
    assert scorer.tokens == 39


def test_other_weights_have_other_states() -> None:
    model = build("llama")
    scorer = CausalScorer(model).fresh()
    asked = steps(seed=13)
    assert_same_scores(scorer, asked)
    with torch.no_grad():
        model.model.layers[0].self_attn.k_proj.weight.mul_(1.5)
    assert_same_scores(scorer, asked)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interruption_leaves_nothing_wrong_behind(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer = CausalScorer(shared("llama")).fresh()
    asked = steps(seed=14)

    def interrupted(*_: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(PrefixStore, "write", interrupted)
        with pytest.raises(error):
            scorer.score(asked[2])
    assert_same_scores(scorer, asked)


def test_running_out_of_memory_drops_what_is_stored_first() -> None:
    scorer = CausalScorer(shared("llama"), batch_tokens=1).fresh()  # one row a pass
    asked = steps(seed=15, texts=1)
    for queries in asked[:4]:
        scorer.score(queries)
    assert scorer._prefixes is not None
    bound = scorer._prefixes.max_bytes
    original = scorer._next_token

    def next_token(*inputs: Any) -> torch.Tensor:
        if len(scorer._prefixes or ()) > 10:
            raise MemoryError
        return original(*inputs)

    scorer._next_token = next_token  # type: ignore[assignment]
    assert_same_scores(scorer, asked[4:5])
    assert scorer._prefixes.max_bytes < bound

    def never(*_: Any) -> torch.Tensor:
        raise MemoryError

    scorer._next_token = never  # type: ignore[assignment]
    with pytest.raises(RationalesError, match="out of memory on a single subset"):
        scorer.score(asked[4])


def test_tokens_of_both_models_are_counted() -> None:
    scorer = AdaptedScorer(CausalScorer(build("gpt2")), CausalScorer(build("llama")))
    context = Context((5, 6, 7), 8, (2,))
    scorer.score([(context, (0, 1, 2)), (context, (2,))])
    assert (scorer.base.tokens, scorer.adapted.tokens, scorer.tokens) == (3, 1, 4)
