"""Translations explained: which words of the source, and of the translation so far, were needed.

source → translation (the model's own, or a given one) → contexts with two sides → searches
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rationales.arguments import check_tokenizer
from rationales.bitext import decoder_start, encode_source, make_pair, translation_ids
from rationales.context import Context, Token
from rationales.errors import RationalesError, given
from rationales.explainer import Explainer
from rationales.options import Input, OptionKeywords, Options, check_input
from rationales.prompt import Conversation, Documents, Given
from rationales.reading import end_ids
from rationales.scoring.protocol import fresh
from rationales.targets import find_targets
from rationales.text import Passage

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Translator(Explainer):
    """Explains translations by one encoder–decoder.

    ``explain`` takes the source; the tokens of an explanation are those of the source, then what
    the decoder starts with, then the translation, each with its side.
    """

    kind: ClassVar[Input] = "seq2seq"

    def translate(self, text: str, **keywords: Unpack[OptionKeywords]) -> str:
        """The model's translation of a text, by raw argmax.

        Keywords are the fields of ``Options`` that say how: ``src_lang``, ``tgt_lang``, ``prefix``,
        ``max_length``.
        """
        if not isinstance(text, str):
            raise RationalesError(f"give a text (str), not {given(text)}")
        check_tokenizer(self.tokenizer)
        options = Options().change(**keywords)
        check_input(options, self.kind)
        passage, _ = self._passage(text, options)
        return "".join(token.text for token in passage.tokens[passage.start :]).strip()

    def _passage(
        self, text: Given | Sequence[Token], options: Options
    ) -> tuple[Passage, list[int]]:
        if self.model is None:
            raise RationalesError("a translator needs its model: Translator(..., model=model)")
        if isinstance(text, Conversation | Documents):
            raise RationalesError("an encoder–decoder translates a text, not messages or documents")
        if not isinstance(text, str):
            passage = Passage.of(text)
            self._check_ids(passage.ids)
            self.check_length("source", passage.source)
            self.check_length("translation", len(passage.tokens) - passage.source - 1)
            return passage, find_targets(
                passage, "last" if options.target is None else options.target
            )
        source, pinned = encode_source(self.tokenizer, text, options)
        start = decoder_start(self.model, self.tokenizer, options.tgt_lang)
        self._check_ids(source)
        self.check_length("source", len(source))
        if options.continuation is None:
            [translation] = self.decode([source], start, options.max_length)
        else:
            translation = translation_ids(self.tokenizer, options.continuation, options)
            self._check_ids(translation)
        # The last token is only a target: the decoder does not see it.
        self.check_length("translation", len(start) + len(translation) - 1)
        passage = make_pair(self.tokenizer, source, pinned, start, translation)
        if options.target is None:
            return passage, list(range(passage.start, len(passage.tokens)))
        return passage, find_targets(passage, options.target, passage.start)

    def decode(
        self,
        sources: Sequence[Sequence[int]],
        start: Sequence[int],
        max_length: int | None = None,
    ) -> list[list[int]]:
        """The model's translations of token ids by raw argmax, without their end tokens.

        ``start`` is what the decoder starts with. The scorer itself decodes, all sources side by
        side: what it generates is what it is then found to predict.
        """
        scorer = fresh(self.scorer)
        limit = getattr(scorer, "max_positions", None)
        ends = end_ids(self.model, self.tokenizer)
        found: list[list[int]] = [[] for _ in sources]
        most = [2 * len(s) + 20 if max_length is None else max_length for s in sources]
        if limit is not None:
            most = [min(each, limit - len(start) + 1) for each in most]
        while unfinished := [n for n, said in enumerate(found) if len(said) < most[n]]:
            contexts = [
                Context((*sources[n], *start, *found[n]), target_id=0, source=len(sources[n]))
                for n in unfinished
            ]
            scores = scorer.score([(each, tuple(range(len(each.ids)))) for each in contexts])
            for n, score in zip(unfinished, scores, strict=True):
                if score.prediction_id in ends:
                    most[n] = 0
                else:
                    found[n].append(score.prediction_id)
        return found

    def _first_id(self, text: str) -> int:
        return translation_ids(self.tokenizer, text, Options())[0]
