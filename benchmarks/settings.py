"""The texts of the benchmark: token ids, a target that the model predicts, what is pinned.

(a) the last word of Lambada passages, its first token;
(b) all targets of texts of 64 tokens, prompt included. The model writes them itself, by argmax:
    in a text by somebody else most tokens are not what the model predicts, and a rationale of such
    a token is the whole context or nothing, which says little about a search;
(c) Lambada targets again, with Wikipedia before the passage so that the context has exactly 256,
    512 or 1,024 tokens. A target is taken if the model predicts it in all of these contexts, so
    that the same targets show how the cost grows;
(d) other Lambada targets than those of (a), for one call each.

Only texts whose tokens come out the same when the text is tokenised again are taken: the package is
given texts, the published algorithm token ids.
"""

import json
import random
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace

import rationales
from rationales.compat.text import read_text
from rationales.data import data_file
from rationales.text import encode

PROMPTS = (
    "The city council announced on Monday that",  # news
    "To make a simple tomato soup, first",  # a recipe
    "Once upon a time there was a girl who",  # a story
    "Water boils at a lower temperature when",  # science
    "Dear Anna, thank you very much for",  # a letter
    "The history of the railway began in",  # from here on: if one of those ends too early
    "The most important thing about a garden is",
    "In the middle of the night, the old man",
    "A good way to learn a language is",
)


@dataclass(frozen=True)
class Amounts:
    """How many items the settings have."""

    passages: int
    """Of (a), and as many of (d)."""
    texts: int
    text_tokens: int
    targets: dict[int, int]
    """Context lengths of (c), and how many targets each has."""
    largest: int | None = None
    """Passages with a larger greedy rationale are left out: one can take minutes."""

    def at_most(self, limit: int) -> "Amounts":
        """As these, with at most that many passages, texts and targets a length."""
        return replace(
            self,
            passages=min(limit, self.passages),
            texts=min(limit, self.texts),
            targets={length: min(limit, targets) for length, targets in self.targets.items()},
        )


FULL = Amounts(passages=20, texts=5, text_tokens=64, targets={256: 3, 512: 3, 1024: 2})
QUICK = Amounts(passages=4, texts=1, text_tokens=48, targets={256: 1}, largest=8)


@dataclass(frozen=True)
class Item:
    """One target: the text's tokens, its index among them, and the tokens that are always kept."""

    id: str
    setting: str
    text: str
    ids: tuple[int, ...]
    target: int
    pinned: tuple[int, ...] = ()
    prompt: str = ""
    """The beginning of the text that the model did not write, in (b)."""

    def to_dict(self) -> dict:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict) -> "Item":
        return cls(**data | {"ids": tuple(data["ids"]), "pinned": tuple(data["pinned"])})

    @property
    def begins_with(self) -> int:
        """How many tokens the model sees before anything is added."""
        pinned = [i for i in self.pinned if i < self.target]
        return len({*pinned, self.target - 1})


def make_items(
    setting: str, explainer: rationales.Explainer, seed: int, amounts: Amounts
) -> list[Item]:
    """The items of setting a, b, c or d."""
    if setting == "a":
        return list(lambada(explainer, "a", amounts, seed))
    if setting == "b":
        return list(own_texts(explainer, amounts.texts, amounts.text_tokens))
    if setting == "c":
        return list(long_contexts(explainer, amounts.targets, seed))
    if setting == "d":
        taken = {item.ids for item in lambada(explainer, "a", amounts, seed)}
        return list(lambada(explainer, "d", amounts, seed + 2, taken))
    raise SystemExit(f"there is no setting {setting!r}: choose from a, b, c, d")


def lambada(
    explainer: rationales.Explainer,
    setting: str,
    amounts: Amounts,
    seed: int,
    taken: Collection[tuple[int, ...]] = (),
) -> Iterator[Item]:
    """(a), (d): passages whose last word the model begins to predict, in a seeded order."""
    found = 0
    for before, word in _passages(seed):
        item = _item(explainer, f"{setting}-{found}", setting, before, word)
        if item is None or item.ids in taken or not _predicted(explainer, item):
            continue
        if amounts.largest is not None and not _at_most(explainer, item, amounts.largest):
            continue
        yield item
        found += 1
        if found == amounts.passages:
            return


def own_texts(explainer: rationales.Explainer, how_many: int, length: int) -> Iterator[Item]:
    """(b): every token that the model wrote."""
    texts = 0
    for prompt in PROMPTS:
        passage = encode(explainer.tokenizer, prompt, rationales.Options())
        ids = list(passage.ids)
        end = getattr(explainer.tokenizer, "eos_token_id", None)
        while len(ids) < length and ids[-1] != end:
            ids.append(_prediction(explainer, tuple(ids)))
        text = _text(explainer, ids)
        rest = rationales.Options(continuation=text[len(prompt) :] or " ")
        again = encode(explainer.tokenizer, prompt, rest)
        if ids[-1] == end or not text.startswith(prompt) or again.ids != tuple(ids):
            continue
        pinned = tuple(sorted(passage.pinned))
        for target in range(len(passage.ids), length):
            yield Item(f"b-{texts}-{target}", "b", text, tuple(ids), target, pinned, prompt)
        texts += 1
        if texts == how_many:
            return


def long_contexts(
    explainer: rationales.Explainer, targets: dict[int, int], seed: int
) -> Iterator[Item]:
    """(c): the same targets with more and more text before them."""
    room = getattr(explainer.scorer, "max_positions", None) or max(targets)
    lengths = [length for length in targets if length <= room]
    wiki = read_text(data_file("wikitext2/valid.raw")).text
    paragraphs = [p for p in wiki.split("\n") if len(p) > 200]
    rng, found = random.Random(seed), 0
    for before, word in _passages(seed + 1):
        end = rng.randrange(len(paragraphs) // 4, len(paragraphs))
        filler = "\n".join(paragraphs[max(0, end - 40) : end]) + "\n\n"
        items = []
        for length in lengths:
            name = f"c{length}"
            item = _filled(explainer, f"{name}-{found}", name, filler, before, word, length)
            if item is None or not _predicted(explainer, item):
                break
            items.append(item)
        if len(items) < len(lengths):
            continue
        yield from (item for item in items if found < targets[item.target])
        found += 1
        if found >= max(targets[length] for length in lengths):
            return


def _passages(seed: int) -> Iterator[tuple[str, str]]:
    lines = data_file("lambada_openai_test.jsonl").read_text(encoding="utf-8").splitlines()
    random.Random(seed).shuffle(lines)
    for line in lines:
        passage = json.loads(line)
        yield passage["context"], passage["continuation"]


def _item(explainer, id: str, setting: str, before: str, word: str) -> Item | None:
    """The word's first token after the text before it; None if the tokens do not part there."""
    context = encode(explainer.tokenizer, before, rationales.Options())
    both = encode(explainer.tokenizer, f"{before} {word}", rationales.Options())
    target = len(context.ids)
    if both.ids[:target] != context.ids or len(both.ids) == target:
        return None
    return _checked(explainer, id, setting, both.ids[: target + 1], both.pinned)


def _filled(explainer, id, setting, filler, before, word, length) -> Item | None:
    """As ``_item``, with the end of the filler before it so that the target's index is length."""
    item = _item(explainer, id, setting, filler + before, word)
    if item is None or item.target < length:
        return None
    surplus, start = item.target - length, len(item.pinned)
    ids = (*item.ids[:start], *item.ids[start + surplus :])
    return _checked(explainer, id, setting, ids, frozenset(item.pinned))


def _checked(explainer, id, setting, ids, pinned) -> Item | None:
    """The item of which the last token is the target; None if its text has other tokens."""
    text = _text(explainer, ids)
    again = encode(explainer.tokenizer, text, rationales.Options())
    if again.ids != tuple(ids) or again.pinned != pinned:
        return None
    return Item(id, setting, text, tuple(ids), len(ids) - 1, tuple(sorted(pinned)))


def _predicted(explainer: rationales.Explainer, item: Item) -> bool:
    return _prediction(explainer, item.ids[: item.target]) == item.ids[item.target]


def _at_most(explainer: rationales.Explainer, item: Item, size: int) -> bool:
    """Whether exact search finds a rationale of at most this many tokens."""
    [rationale] = explainer.explain(item.text, target=item.target, max_size=size)
    return rationale.sufficient


def _prediction(explainer: rationales.Explainer, ids: tuple[int, ...]) -> int:
    """The model's argmax after these tokens: the scorer's own, as in the package."""
    context = rationales.Context(ids, 0, (len(ids) - 1,))
    [score] = explainer.scorer.score([(context, tuple(range(len(ids))))])
    return score.prediction_id


def _text(explainer: rationales.Explainer, ids) -> str:
    return explainer.tokenizer.decode(
        list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
