"""The explainer of a model behind an endpoint: what is left out of a prompt is deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rationales.arguments import checked_options
from rationales.context import Context, Token
from rationales.endpoints.client import Client
from rationales.endpoints.pieces import Pieces, ServerTokens
from rationales.endpoints.probe import Capabilities, probe
from rationales.errors import OptionError, RationalesError
from rationales.explainer import Explainer
from rationales.options import Options
from rationales.prompt import Conversation, Given
from rationales.requests import Job, Request
from rationales.result import Endpoint
from rationales.scoring.endpoint import EndpointScorer
from rationales.search.criterion import parse
from rationales.text import Passage, make_tokens

_UNSCORED = ("deletion", "exhaustive")
"""The methods that need no scores."""


class EndpointExplainer(Explainer):
    """Explains texts with a model behind an endpoint."""

    scorer: EndpointScorer
    tokenizer: Pieces | ServerTokens

    def __init__(self, scorer: EndpointScorer) -> None:
        model = scorer.able.model
        if model.endswith(".gguf"):  # llama.cpp tells the whole path
            model = model.rpartition("/")[2]
        super().__init__(scorer, scorer.vocabulary, name=f"{model} at {scorer.client.url}")

    @property
    def able(self) -> Capabilities:
        """What the endpoint can do."""
        return self.scorer.able

    def _begin(self, request: Request) -> Job:
        options = self._fitting(request.text, checked_options(request.options))
        return super()._begin(replace(request, options=options))

    def _fitting(self, text: Given | Sequence[Token], options: Options) -> Options:
        """The options, with what the endpoint needs; an error if it cannot answer them."""
        able = self.able
        is_chat = options.chat or isinstance(text, Conversation)
        if is_chat and not able.chat:
            raise RationalesError(
                "this endpoint answers no chats, it continues texts: give a text, without a chat"
            )
        if isinstance(text, str) and not able.completions and not is_chat:
            if options.target is not None:
                raise OptionError(
                    "this endpoint answers chats only, and {target} of a plain text is a part of "
                    "the text itself: give {chat} too, for a part of the answer, or {continuation}"
                )
            options = options.change(chat=True)
        elif not is_chat and not able.completions:
            options = options.change(chat=True)  # documents
        kind, level = parse(options.criterion)
        if kind == "top-k" and level > able.alternatives > 0:
            raise OptionError(
                "{criterion} top-k={level:g} needs more alternatives than the {told} that this "
                "endpoint tells: give at most that many",
                level=level,
                told=able.alternatives,
            )
        return self._unscored(options) if able.way == "text" else options

    def _unscored(self, options: Options) -> Options:
        """The options for an endpoint that tells no log-probabilities."""
        for name in ("criterion", "instead_of", "certify"):
            if options.is_given(name):
                raise OptionError(
                    f"{{{name}}} needs log-probabilities, and this endpoint tells none: leave it "
                    "out; what can be asked is whether the answer stays the same"
                )
        if options.__dict__["_given_method"] is None and options.beam is None:
            return options.change(method="deletion")
        if options.method not in _UNSCORED:
            raise OptionError(
                "the {method} {name} needs log-probabilities, and this endpoint tells none: give "
                "{methods}",
                name=options.method,
                methods=" or ".join(_UNSCORED),
            )
        return options

    def _passage(
        self, text: Given | Sequence[Token], options: Options
    ) -> tuple[Passage, list[int]]:
        if isinstance(self.tokenizer, Pieces) and not isinstance(text, Given):
            for token in text:
                self.tokenizer.add(token.text)
        return super()._passage(text, options)

    def _generate(self, passage: Passage, count: int) -> Passage:
        """The passage with what the endpoint says next, in one request."""
        self.check_length("text with its continuation", len(passage.ids) + count, seen=-1)
        new = self.scorer.generate(passage.ids, count)
        if not new:
            raise RationalesError(
                "the endpoint's answer is empty: give another text, or the answer to explain"
            )
        ids = [*passage.ids, *new]
        return replace(passage, tokens=make_tokens(self.tokenizer, ids, passage.pinned))

    def _shown(self, context: Context, options: Options) -> Context:
        """The context, of which what is left out is deleted.

        An endpoint that answers messages is told what it has said so far, or says it again: in a
        conversation, the answer is kept.
        """
        if context.deletes:
            return context
        start = self.tokenizer.answer_start(context.ids)
        if start is not None:
            said = {*range(start, len(context.ids))}
            units = None
            if context.units is not None:
                clipped = (tuple(i for i in unit if i not in said) for unit in context.units)
                units = tuple(unit for unit in clipped if unit)
            context = replace(
                context,
                pinned=tuple(sorted({*context.pinned, *said})),
                required=tuple(i for i in context.required if i not in said),
                units=units,
            )
        return replace(context, deletes=True)

    def _endpoint(self, job: Job) -> Endpoint | None:
        used = self.scorer.usage - job.usage_before
        return Endpoint(
            way=self.able.way,
            alternatives=self.able.alternatives,
            scores=used.scores,
            below_last=used.below_last,
            repeat=self.scorer.repeat,
            agreement=used.agreeing / used.repeats if used.repeats else None,
        )


def load_endpoint(
    url: str, model: str | None = None, *, budget: int | None = None, repeat: int = 1
) -> EndpointExplainer:
    """The explainer of a model behind an endpoint, which is probed."""
    client = Client(url, model, budget=budget)
    able = probe(client)
    client.at_once = min(16, able.at_once)
    if able.takes_ids:
        tokens: Pieces | ServerTokens = ServerTokens(client, able.server == "vLLM")
    else:
        tokens = Pieces()
    return EndpointExplainer(EndpointScorer(client, able, tokens, repeat))
