"""Texts in, explanations out: the whole pipeline behind ``explain``.

    text ─► passage ─► contexts ─► rationalize (searches side by side) ─► explanations

``rationalize`` is the one door to the driver: texts, translations and experiments go through it.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, overload

from rationales.arguments import (
    check_context,
    check_scorer,
    check_tokenizer,
    checked_options,
    text_list,
)
from rationales.context import Context, Token
from rationales.errors import OptionError, RationalesError, given
from rationales.options import Input, OptionKeywords, Options, check_input
from rationales.prompt import Given, prompt_of
from rationales.ranking import Importances
from rationales.requests import Failure, Interrupted, Job, Progress, Request
from rationales.result import Explanation, Prediction, Rationale
from rationales.scoring.protocol import SubsetScorer, fresh
from rationales.scoring.span import merged, single_tokens
from rationales.search.base import Asking, Search
from rationales.search.choose import make_searches
from rationales.search.criterion import make_criterion
from rationales.search.driver import run
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
    from typing_extensions import Unpack

K = TypeVar("K", bound=Hashable)

_ANSWER_TOKENS = 32
"""An answer to a conversation or to a question is generated up to its end, or to so many tokens."""


class Explainer:
    """Explains texts with one scorer.

    The tokenizer is needed for texts, and not by ``rationalize``. ``model`` is needed only by
    methods that look inside it; a black box has none. ``folder`` is where its weights were read
    from, if they were.
    """

    kind: ClassVar[Input] = "causal"
    """The kind of model, for which some options have no meaning."""

    def __init__(
        self,
        scorer: SubsetScorer,
        tokenizer: Tokenizer | None = None,
        *,
        name: str = "black box",
        model: PreTrainedModel | None = None,
        adapter: str | None = None,
        folder: Path | None = None,
    ) -> None:
        check_scorer(scorer)
        if tokenizer is not None:
            check_tokenizer(tokenizer)
        self.scorer = scorer
        self.tokenizer: Tokenizer = tokenizer
        self.name = name
        self.model = model
        self.adapter = adapter
        self.folder = folder

    @overload
    def explain(  # type: ignore[overload-overlap]  # a str is an iterable of str
        self, text: str, options: Options | None = None, **keywords: Unpack[OptionKeywords]
    ) -> Explanation: ...
    @overload
    def explain(
        self,
        text: Iterable[str],
        options: Options | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> list[Explanation]: ...
    @overload
    def explain(
        self,
        text: None = None,
        options: Options | None = None,
        *,
        messages: Iterable[Mapping[str, Any]] = ...,
        documents: Iterable[str | Mapping[str, Any]] = ...,
        question: str = ...,
        template: str | None = ...,
        search_question: bool = ...,
        **keywords: Unpack[OptionKeywords],
    ) -> Explanation: ...
    def explain(
        self,
        text: str | Iterable[str] | None = None,
        options: Options | None = None,
        *,
        messages: Iterable[Mapping[str, Any]] | None = None,
        documents: Iterable[str | Mapping[str, Any]] | None = None,
        question: str = "",
        template: str | None = None,
        search_question: bool = False,
        **keywords: Unpack[OptionKeywords],
    ) -> Explanation | list[Explanation]:
        """The explanation of a text; of a list of texts, a list of explanations.

        Keywords are the fields of ``Options``: ``explain("…", target="last", max_size=4)``. Instead
        of a text, give ``messages`` (``{"role": …, "content": …}``) or ``documents`` (texts, or
        ``{"text": …, "title": …}``) with a ``question``, and a prompt ``template`` with
        ``{documents}`` and ``{question}`` if you like. What is explained then is the model's
        answer, of which ``target`` names a part. The question is pinned unless it is searched too.
        """
        options = checked_options(options).change(**keywords)
        asked = prompt_of(text, messages, documents, question, template, search_question)
        if asked is not None:
            [answer] = self.explain_all([Request(asked, options)])
            if isinstance(answer, Failure):
                raise answer.error
            return answer
        texts = text_list(text)
        explanations: list[Explanation] = []
        try:
            for answer in self.explain_all(Request(each, options) for each in texts):
                if isinstance(answer, Failure):
                    if isinstance(text, str):
                        raise answer.error
                    which = f"text {len(explanations) + 1} of {len(texts)}"
                    raise RationalesError(f"{which}: {answer.error}") from answer.error
                explanations.append(answer)
        except Interrupted as interrupted:
            raise Interrupted(explanations + interrupted.explanations) from interrupted
        return explanations[0] if isinstance(text, str) else explanations

    def rationalize(
        self,
        contexts: Iterable[tuple[K, Context]],
        options: Options | Callable[[K], Options],
        *,
        start: Callable[[K], Rationale] | None = None,
        on_scored: Callable[[int], None] | None = None,
    ) -> Iterator[tuple[K, Rationale]]:
        """The rationale of each context with its key, as it is found; all run side by side.

        ``start`` gives rationales that were found before, which ``minimal`` prunes: nothing is
        searched again. ``on_scored`` hears how many subsets were scored.
        """
        for key, found in self._found(contexts, options, start, on_scored):
            if isinstance(found, RationalesError):
                raise found
            yield key, found

    def _found(
        self,
        contexts: Iterable[tuple[K, Context]],
        options: Options | Callable[[K], Options],
        start: Callable[[K], Rationale] | None = None,
        on_scored: Callable[[int], None] | None = None,
        first_soon: bool = True,
    ) -> Iterator[tuple[K, Rationale | RationalesError]]:
        """What ``rationalize`` finds, or what is wrong with a context; the others go on."""
        importances = Importances(self.model, getattr(self.scorer, "batch_tokens", None))
        searches = make_searches(contexts, options, importances, start)
        guarded = ((key, context, _guarded(search)) for key, context, search in searches)
        yield from run(guarded, self.scorer, on_evaluations=on_scored, first_soon=first_soon)

    def explain_all(
        self,
        requests: Iterable[Request | Failure],
        on_progress: Callable[[Progress], None] | None = None,
        *,
        first_soon: bool = True,
    ) -> Iterator[Explanation | Failure]:
        """The answers to all requests, in order, each as soon as it is finished.

        Targets of many texts run side by side. A request that cannot be explained is answered by
        a ``Failure``, and the others go on; a ``Failure`` among the requests is its own answer.
        An interrupt raises ``Interrupted``, which holds what is finished and not yet handed out.
        Without ``first_soon``, more targets are begun at once: the last answer comes sooner, and
        the first one later.
        """
        jobs: deque[Job | Failure] = deque()  # those begun and not yet handed out, in order
        counts = Counter[str]()

        def tell(**more: int) -> None:
            counts.update(more)
            if on_progress is not None:
                on_progress(Progress(**counts))

        def contexts() -> Iterator[tuple[Job, Context]]:
            for request in requests:
                try:
                    jobs.append(request if isinstance(request, Failure) else self._begin(request))
                except RationalesError as error:
                    jobs.append(Failure(error, getattr(request, "id", None)))
                if isinstance(job := jobs[-1], Job):
                    tell(total=len(job.contexts))
                    for context in job.contexts:
                        if job.error is None:
                            yield job, context

        def finished() -> Iterator[Explanation | Failure]:
            while jobs and (isinstance(jobs[0], Failure) or jobs[0].over):
                job = jobs.popleft()
                if isinstance(job, Job) and job.error is not None:
                    job = Failure(job.error, job.request.id)
                if isinstance(job, Job) and job.request.options.certify:
                    job.found = [self._with_stability(job, each) for each in job.found]
                yield job if isinstance(job, Failure) else self._explanation(job)

        try:
            for job, found in self._found(
                contexts(),
                lambda job: job.request.options,
                on_scored=lambda count: tell(evaluations=count),
                first_soon=first_soon,
            ):
                if isinstance(found, Rationale):
                    job.add(found, self.tokenizer)
                else:
                    job.error = job.error or found
                tell(done=1)
                yield from finished()
            yield from finished()  # what is left had no target that can be explained
        except KeyboardInterrupt as error:
            begun = [job for job in jobs if isinstance(job, Job) and job.error is None]
            partly = [self._explanation(job) for job in begun if job.found or job.over]
            raise Interrupted(partly) from error

    def _with_stability(self, job: Job, found: Rationale) -> Rationale:
        """The rationale with whether it is sufficient without gaps, and without the adapter."""
        if found.proof is None:
            return found
        [context] = [each for each in job.contexts if len(each.ids) == found.target]
        kept = context.keep(found.indices)
        closed = Context(
            ids=tuple(context.ids[index] for index in kept),
            target_id=context.target_id,
            extra_ids=context.extra_ids,
            span_ids=context.span_ids,
            source=sum(index < context.source for index in kept),
        )

        def is_sufficient(scorer: SubsetScorer, about: Context, kept: tuple[int, ...]) -> bool:
            queries = [(about, kept), (context, context.keep(context.everything))]
            score, full = merged(queries, fresh(scorer).score(single_tokens(queries)))
            return make_criterion(job.request.options.criterion, about, full).met(score)

        base = self.without_adapter().scorer
        proof = replace(
            found.proof,
            deleted_sufficient=is_sufficient(self.scorer, closed, tuple(range(len(kept)))),
            without_adapter_sufficient=(
                None if base is self.scorer else is_sufficient(base, context, kept)
            ),
        )
        return replace(found, proof=proof)

    def grow(
        self, request: Request, on_progress: Callable[[Progress], None] | None = None
    ) -> Iterator[Explanation]:
        """The explanation of one text as it grows: with no rationale, then with one more each time.

        The last one is complete. What is wrong with the request is raised.
        """
        job = self._begin(request)
        evaluations = 0

        def tell(count: int = 0) -> None:
            nonlocal evaluations
            evaluations += count
            if on_progress is not None:
                on_progress(Progress(len(job.found), len(job.contexts), evaluations))

        tell()
        yield self._explanation(job)
        contexts = enumerate(job.contexts)
        for _, rationale in self.rationalize(contexts, job.request.options, on_scored=tell):
            job.add(rationale, self.tokenizer)
            tell()
            yield self._explanation(job)

    def predict(
        self,
        text: str | Sequence[Token],
        target: int,
        keep: Iterable[int],
        *,
        length: int = 1,
        criterion: str = "argmax",
        instead_of: str | None = None,
    ) -> Prediction:
        """What the model predicts in the place of a token from some of the tokens before it.

        The text may be given by the tokens of its explanation. ``target`` is the index of the
        token, ``keep`` are those of the others. Pinned tokens and the one before the target are
        kept in any case. With a ``length``, the target is this many tokens: it has the
        log-probability of all of them, and the prediction is the first that differs, if one does.
        """
        options = Options(target=target, criterion=criterion, instead_of=instead_of)
        passage, [target] = self._passage(text, options)
        extra_ids = self._alternative(passage, [target], options)
        if not 1 <= length <= len(passage.tokens) - target:
            raise RationalesError(f"there are no {length} tokens from token {target}, the target")
        span_ids = passage.ids[target + 1 : target + length]
        context = replace(passage.context(target), extra_ids=extra_ids, span_ids=span_ids)
        kept = {*keep}
        if not kept <= {*range(target)}:
            raise RationalesError(f"what is kept must come before token {target}, the target")
        queries = [(context, context.keep({*kept, *context.required}))]
        if criterion.startswith("ratio"):  # of what the full context gives
            queries.append((context, context.keep(context.everything)))
        score, *full = merged(queries, fresh(self.scorer).score(single_tokens(queries)))
        return Prediction(
            target_logprob=score.target_logprob,
            prediction_id=score.prediction_id,
            prediction_logprob=score.prediction_logprob,
            prediction_text=token_text(self.tokenizer, score.prediction_id),
            rank=score.rank if length == 1 else None,
            sufficient=make_criterion(criterion, context, full[0] if full else score).met(score),
        )

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
        passage, targets = self._passage(request.text, options)
        passage = replace(passage, parts=passage.parts or request.parts)
        job = Job(request, passage, tuple(t for t in targets if t == 0))
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
        levels = make_levels(split, options.finest) if options.coarse_to_fine else ()
        units = split(options.unit, pattern=options.unit_pattern, spans=options.units)
        for target in targets:
            context = replace(
                passage.context(target), extra_ids=extra_ids, span_ids=span_ids, levels=levels
            )
            if request.within is not None:
                excluded = {*range(target)} - {*request.within, *context.required, *context.pinned}
                context = replace(context, excluded=tuple(sorted(excluded)))
            if any(map(options.is_given, ("unit", "unit_pattern", "units"))):
                context = context.grouped(units)
            job.contexts.append(context)
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
                passage = self._generate(passage, most or _ANSWER_TOKENS)
            targets = [*range(passage.start, len(passage.tokens))]
            if options.target is not None:
                targets = find_targets(passage, options.target, passage.start)
        self.check_length("text with its continuation", len(passage.tokens), seen=-1)
        return passage, targets

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

    def _explanation(self, job: Job) -> Explanation:
        """What was found for a request, complete or not."""
        evaluation = getattr(self.scorer, "evaluation", lambda context: "black-box")
        return Explanation(
            model=self.name,
            method=job.request.options.method,
            evaluation="+".join(sorted({*map(evaluation, job.contexts)}, reverse=True)) or "none",
            tokens=job.passage.tokens,
            parts=job.passage.parts,
            rationales=tuple(sorted(job.found, key=lambda found: found.target)),
            seconds=time.perf_counter() - job.started,
            unexplainable=job.unexplainable,
            complete=len(job.found) == len(job.contexts),
            id=job.request.id,
            group=job.request.group,
            adapter=self.adapter,
            options=job.request.options.shaping()
            | ({} if job.request.within is None else {"within": list(job.request.within)}),
        )

    def without_adapter(self) -> Explainer:
        """The explainer of the same model without its adapter."""
        from rationales.scoring.adapted import AdaptedScorer

        if not isinstance(self.scorer, AdaptedScorer):
            return self
        base = self.scorer.base
        return Explainer(base, self.tokenizer, name=self.name, model=base.model)

    def check_length(self, what: str, tokens: int, seen: int = 0) -> None:
        """Raise if the model has too few positions for this many tokens.

        ``seen`` is −1 where the last token is only a target, which the model does not see.
        """
        limit = getattr(self.scorer, "max_positions", None)
        if limit is not None and tokens + seen > limit:
            raise RationalesError(
                f"the {what} has {tokens} tokens, and the model has positions for {limit}: "
                "shorten the text"
            )


def rationalize(
    context: Context,
    scorer: SubsetScorer,
    options: Options | None = None,
    **keywords: Unpack[OptionKeywords],
) -> Rationale:
    """The rationale of one context under any scorer: the pipeline without text.

    Keywords are the fields of ``Options``; methods that look inside a model are not for this one.
    """
    check_context(context)
    check_scorer(scorer)
    options = checked_options(options).change(**keywords)
    check_input(options, "ids")
    [(_, rationale)] = Explainer(scorer).rationalize([(0, context)], options)
    return rationale


def end_ids(model: PreTrainedModel | None, tokenizer: Tokenizer) -> set[int]:
    """The ids after which a text is over."""
    found: set[int] = set()
    for source in (getattr(model, "generation_config", None), tokenizer):
        ids = getattr(source, "eos_token_id", None)
        found.update([ids] if isinstance(ids, int) else ids or ())
    return found


def _guarded(search: Search) -> Asking[Rationale | RationalesError]:
    """The search, with an error as its result."""
    try:
        return (yield from search)
    except RationalesError as error:
        return error
