"""Requests → contexts: a text is tokenised and continued, its targets are found.

request ─► Passage (text, continuation) ─► targets ─► a Context for each ─► Job
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from rationales.arguments import check_scorer, check_tokenizer, checked_options
from rationales.context import Context, Token
from rationales.errors import OptionError, RationalesError, given
from rationales.options import Input, Options, check_input
from rationales.prompt import Given
from rationales.requests import Job, Request
from rationales.scoring.protocol import SubsetScorer, can_delete, fresh
from rationales.targets import find_targets
from rationales.text import (
    Passage,
    Tokenizer,
    check_unicode,
    continuation_ids,
    encode,
    make_tokens,
    token_text,
)
from rationales.units import group, make_levels

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_ANSWER_TOKENS = 32
"""An answer to a conversation or to a question ends by itself, or after this many tokens."""


class Reader:
    """Reads requests for one scorer: what every explainer begins with."""

    kind: ClassVar[Input] = "causal"
    """The kind of model, for which some options have no meaning."""

    def __init__(
        self, scorer: SubsetScorer, tokenizer: Tokenizer | None, model: PreTrainedModel | None
    ) -> None:
        check_scorer(scorer)
        if tokenizer is not None:
            check_tokenizer(tokenizer)
        self.scorer = scorer
        self.tokenizer: Tokenizer = tokenizer
        self.model = model

    def _begin(self, request: Request) -> Job:
        """The text tokenised and continued, its targets found, their contexts made."""
        if not isinstance(request, Request):
            raise RationalesError(f"give requests, as in Request(text), not {given(request)}")
        if not isinstance(request.text, Given | tuple):
            raise RationalesError(f"the text of a request must be a str, not {given(request.text)}")
        check_tokenizer(self.tokenizer)
        options = checked_options(request.options)
        for value in (request.id, request.group, *vars(options).values()):
            if isinstance(value, str):
                check_unicode(value)
        check_input(options, self.kind)
        usage_before = getattr(self.scorer, "usage", None)
        passage, targets = self._passage(request.text, options)
        passage = replace(passage, parts=passage.parts or request.parts)
        job = Job(request, passage, tuple(t for t in targets if t == 0))
        job.tokens_before = getattr(self.scorer, "tokens", None)
        job.usage_before = usage_before
        targets = [t for t in targets if t > 0]
        extra_ids = self._alternative(passage, targets, options)
        span_ids: tuple[int, ...] = ()
        if options.span and targets:
            if targets[-1] - targets[0] >= len(targets):
                raise OptionError(
                    "{span} takes tokens that follow each other, and {target} names others: "
                    "leave out {span}, or give a range such as 3:7"
                )
            span_ids = passage.ids[targets[0] + 1 : targets[-1] + 1]
            targets = targets[:1]
        language = options.value("language")
        split = partial(group, passage.tokens, language=language, parts=passage.parts)
        levels = make_levels(split, options.finest) if options.coarse_to_fine else {}
        is_chat = any(part.kind == "message" for part in passage.parts)
        names = tuple("message" if is_chat and each == "document" else each for each in levels)
        spans = options.units and [
            (passage.place(start), passage.place(end)) for start, end in options.units
        ]
        units = split(options.unit, pattern=options.unit_pattern, spans=spans)
        for target in targets:
            context = replace(
                passage.context(target),
                extra_ids=extra_ids,
                span_ids=span_ids,
                levels=tuple(levels.values()),
                level_names=names,
            )
            if request.within is not None:
                excluded = {*range(target)} - {*request.within, *context.required, *context.pinned}
                context = replace(context, excluded=tuple(sorted(excluded)))
            if any(map(options.is_given, ("unit", "unit_pattern", "units"))):
                context = context.grouped(units)
            job.contexts.append(self._shown(context, options))
        return job

    def _passage(
        self, text: Given | Sequence[Token], options: Options
    ) -> tuple[Passage, list[int]]:
        """The text with its continuation, and which of its tokens are to be explained."""
        if isinstance(text, Given):
            passage = encode(self.tokenizer, text, options)
        else:
            passage = Passage.of(text)
        if passage.source:
            raise RationalesError("a language model has no source tokens: leave out their side")
        self._check_ids(passage.ids)
        # A target of a plain text names tokens of the text, unless there is an answer to it.
        answers = options.generate is not None or passage.start < len(passage.tokens)
        if options.target is not None and not (answers or passage.parts):
            targets = find_targets(passage, options.target)
        else:
            if passage.start == len(passage.tokens):
                most = options.value("generate") if not passage.parts else options.generate
                passage = self._generate(passage, most or self._longest_answer(passage))
                if most is None:
                    self._check_answer(passage, options)
            # What ends an answer is no part of what it says.
            is_whole = options.target in (None, "all")
            is_said = options.target == "last" or (options.span and is_whole)
            answer = self._without_end(passage) if is_said else passage
            targets = [*range(passage.start, len(answer.tokens))]
            if options.target is not None:
                targets = find_targets(answer, options.target, passage.start)
        self.check_length("text with its continuation", len(passage.tokens), seen=-1)
        return passage, targets

    def _check_answer(self, passage: Passage, options: Options) -> None:
        """Raise if the answer ends at once: that is hardly what was asked about."""
        if {*passage.ids[passage.start :]} <= end_ids(self.model, self.tokenizer):
            bare = not options.chat and all(part.kind != "message" for part in passage.parts)
            hint = "give {chat}, if the model has a chat template, or " if bare else "give "
            raise OptionError(
                f"the model answers nothing, its text ends at once: {hint}a {{continuation}}; "
                "{generate} 1 explains why it ends"
            )

    def _without_end(self, passage: Passage) -> Passage:
        """The passage without the token that ends its answer, if the answer says anything else."""
        is_ended = passage.ids[-1] in end_ids(self.model, self.tokenizer)
        if not is_ended or len(passage.tokens) - passage.start < 2:
            return passage
        return replace(passage, tokens=passage.tokens[:-1])

    def _longest_answer(self, passage: Passage) -> int:
        """How many tokens an answer has at most that ends by itself, or where positions end."""
        limit = getattr(self.scorer, "max_positions", None)
        left = _ANSWER_TOKENS if limit is None else limit - len(passage.tokens) + 1
        return max(1, min(_ANSWER_TOKENS, left))

    def _alternative(
        self, passage: Passage, targets: Sequence[int], options: Options
    ) -> tuple[int, ...]:
        """The id of the alternative that the targets have to beat, if there is one."""
        if options.instead_of is None:
            return ()
        alternative = self._first_id(options.instead_of)
        self._check_ids([alternative])
        for target in targets:
            if passage.ids[target] == alternative:
                raise RationalesError(
                    f"the alternative {options.instead_of!r} begins with the same token as the "
                    f"target {passage.tokens[target].text!r}: give one that differs in its first"
                )
        return (alternative,)

    def _first_id(self, text: str) -> int:
        """The id of the first token of a text that might have come instead of a target."""
        ids = continuation_ids(self.tokenizer, "\n", text)
        if not ids:
            raise RationalesError(f"the tokenizer makes no token of the alternative {text!r}")
        return ids[0]

    def _generate(self, passage: Passage, count: int) -> Passage:
        """The passage with the model's own continuation of at most ``count`` tokens, by raw argmax.

        The scorer itself decodes: what it generates is what it predicts. ``generate()`` would obey
        penalties and suppressed tokens, and give targets that the model does not predict.
        """
        ids = list(passage.ids)
        self.check_length("text with its continuation", len(ids) + count, seen=-1)
        ends = end_ids(self.model, self.tokenizer)
        scorer = fresh(self.scorer)
        for _ in range(count):
            context = Context(tuple(ids), target_id=0)
            [score] = scorer.score([(context, tuple(range(len(ids))))])
            ids.append(score.prediction_id)
            if score.prediction_id in ends:
                break
        return replace(passage, tokens=make_tokens(self.tokenizer, ids, passage.pinned))

    def _check_ids(self, ids: Iterable[int]) -> None:
        """Raise if the tokenizer gives an id for which the model has no embedding."""
        from rationales.models.files import embedded

        rows = None if self.model is None else embedded(self.model)
        for id in ids:
            if rows is not None and id >= rows:
                raise RationalesError(
                    f"the tokenizer gives {token_text(self.tokenizer, id)!r} the id {id}, and the "
                    f"model has embeddings for {rows} tokens: give the model's own tokenizer"
                )

    def _shown(self, context: Context, options: Options) -> Context:
        """The context, as its subsets are to be shown to the model."""
        if options.evaluation is None or context.deletes:
            return context
        if not can_delete(self.scorer):
            raise OptionError(
                "{evaluation} deleted is for models of transformers and black boxes, not for a "
                "{scorer}: leave it out",
                scorer=type(self.scorer).__name__,
            )
        return replace(context, deletes=True)

    def check_length(self, what: str, tokens: int, seen: int = 0) -> None:
        """Raise if the model has too few positions for this many tokens.

        ``seen`` is −1 where the last token is only a target, which the model does not see.
        """
        limit = getattr(self.scorer, "max_positions", None)
        if limit is not None and tokens + seen > limit:
            raise RationalesError(
                f"the {what} has {tokens} tokens, and the model has positions for {limit}: "
                f"shorten it by at least {tokens + seen - limit} tokens"
            )


def end_ids(model: PreTrainedModel | None, tokenizer: Tokenizer) -> set[int]:
    """The ids after which a text is over."""
    found: set[int] = set()
    for source in (getattr(model, "generation_config", None), tokenizer):
        ids = getattr(source, "eos_token_id", None)
        found.update([ids] if isinstance(ids, int) else ids or ())
    return found
