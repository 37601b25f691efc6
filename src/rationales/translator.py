"""Translations explained: which words of the source, and of the translation so far, were needed.

source → translation (the model's own, or a given one) → contexts with two sides → searches
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from rationales.bitext import decoder_start, encode_source, make_pair, translation_ids
from rationales.context import Context
from rationales.errors import RationalesError
from rationales.explainer import Explainer, end_ids
from rationales.models import Kind
from rationales.options import Options
from rationales.scoring.protocol import fresh
from rationales.text import Passage, find_targets


class Translator(Explainer):
    """Explains translations by one encoder–decoder.

    ``explain`` takes the source; the tokens of an explanation are those of the source, then what
    the decoder starts with, then the translation, each with its side.
    """

    _kind: ClassVar[Kind] = "seq2seq"

    def _passage(self, text: str, options: Options) -> tuple[Passage, list[int]]:
        if self.model is None:
            raise RationalesError("a translator needs its model: Translator(..., model=model)")
        source, pinned = encode_source(self.tokenizer, text, options)
        start = decoder_start(self.model, self.tokenizer, options.tgt_lang)
        self._check_ids(source)
        self.check_length("source", len(source))
        if options.continuation is None:
            [translation] = self.translate([source], start, options.max_length)
        else:
            translation = translation_ids(self.tokenizer, options.continuation, options)
            self._check_ids(translation)
        # The last token is only a target: the decoder does not see it.
        self.check_length("translation", len(start) + len(translation) - 1)
        passage = make_pair(self.tokenizer, source, pinned, start, translation)
        if options.target is None:
            return passage, list(range(passage.start, len(passage.tokens)))
        return passage, _targets(passage, options.target)

    def translate(
        self,
        sources: Sequence[Sequence[int]],
        start: Sequence[int],
        max_length: int | None = None,
    ) -> list[list[int]]:
        """The model's translations by raw argmax, in ids and without their end tokens.

        ``start`` is what the decoder starts with. The scorer itself decodes, all sources side by
        side: what it says is what it is then found to predict.
        """
        scorer = fresh(self.scorer)
        limit = getattr(scorer, "max_positions", None)
        ends = end_ids(self.model, self.tokenizer)
        found: list[list[int]] = [[] for _ in sources]
        open_ends = set(range(len(sources)))
        while open_ends:
            for place in sorted(open_ends):
                most = 2 * len(sources[place]) + 20 if max_length is None else max_length
                if limit is not None:
                    most = min(most, limit - len(start) + 1)
                if len(found[place]) >= most:
                    open_ends.discard(place)
            places = sorted(open_ends)
            contexts = [
                Context((*sources[n], *start, *found[n]), target_id=0, source=len(sources[n]))
                for n in places
            ]
            queries = [(context, tuple(range(len(context.ids)))) for context in contexts]
            for place, score in zip(places, scorer.score(queries), strict=True):
                if score.prediction_id in ends:
                    open_ends.discard(place)
                else:
                    found[place].append(score.prediction_id)
        return found

    def check_length(self, what: str, tokens: int) -> None:
        """Raise if a side of so many tokens has more than the model has positions for."""
        limit = getattr(self.scorer, "max_positions", None)
        if limit is not None and tokens > limit:
            raise RationalesError(
                f"the {what} has {tokens} tokens, and the model has positions for {limit}: "
                "shorten the text"
            )

    def _first_id(self, text: str) -> int:
        return translation_ids(self.tokenizer, text, Options())[0]


def _targets(passage: Passage, target: str | int | Sequence[int]) -> list[int]:
    """The indices of the translation that a target names."""
    # To the finder, everything but the translation is out of bounds, as pinned tokens are.
    hidden = tuple(replace(t, pinned=t.pinned or t.side == "source") for t in passage.tokens)
    found = find_targets(replace(passage, tokens=hidden), target)
    for index in found:
        if index < passage.start:
            raise RationalesError(
                f"token {index} is none of the translation, whose tokens are "
                f"{passage.start} … {len(passage.tokens) - 1}"
            )
    return found
