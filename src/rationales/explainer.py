"""Texts in, explanations out: the whole pipeline behind ``explain``.

    text ─► passage ─► contexts ─► rationalize (searches side by side) ─► explanations

``rationalize`` is the one door to the driver: texts, translations and experiments go through it.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from rationales.arguments import check_context, check_scorer, checked_options, text_list
from rationales.context import Context, Token
from rationales.errors import RationalesError
from rationales.options import OptionKeywords, Options, ShownAs, check_input
from rationales.prompt import prompt_of
from rationales.ranking import Importances
from rationales.reading import Reader
from rationales.requests import Failure, Interrupted, Job, Progress, Request
from rationales.result import Cost, Endpoint, Explanation, Prediction, Rationale
from rationales.scoring.protocol import SubsetScorer, fresh
from rationales.scoring.span import merged, single_tokens
from rationales.search.base import Asking, Search
from rationales.search.choose import make_searches
from rationales.search.criterion import make_criterion
from rationales.search.driver import run
from rationales.stability import with_stability
from rationales.text import Tokenizer, token_text

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from typing_extensions import Unpack

K = TypeVar("K", bound=Hashable)
OnScored = Callable[[int, str | None], None]


class Explainer(Reader):
    """Explains texts with one scorer.

    The tokenizer is needed for texts, and not by ``rationalize``. ``model`` is needed only by
    methods that look inside it; a black box has none. ``folder`` is where its weights were read
    from, if they were.
    """

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
        super().__init__(scorer, tokenizer, model)
        self.name = name
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
        on_scored: OnScored | None = None,
    ) -> Iterator[tuple[K, Rationale]]:
        """The rationale of each context with its key, as it is found; all run side by side.

        ``start`` gives rationales that were found before, which ``minimal`` prunes: nothing is
        searched again. ``on_scored`` hears how many subsets were scored, and at which level.
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
        on_scored: OnScored | None = None,
        first_soon: bool = True,
    ) -> Iterator[tuple[K, Rationale | RationalesError]]:
        """What ``rationalize`` finds, or what is wrong with a context; the others go on."""
        own = options if callable(options) else lambda key: options
        contexts = ((key, self._shown(context, own(key))) for key, context in contexts)
        importances = Importances(self.model, getattr(self.scorer, "batch_tokens", None))
        scorer = fresh(self.scorer)
        attention = getattr(scorer, "attention", None)
        searches = make_searches(contexts, options, importances, start, attention)
        guarded = ((key, context, _guarded(search)) for key, context, search in searches)
        yield from run(guarded, scorer, on_evaluations=on_scored, first_soon=first_soon)

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
        level: str | None = None

        def tell(**more: int) -> None:
            counts.update(more)
            if on_progress is not None:
                on_progress(Progress(**counts, level=level))

        def tell_scored(count: int, at: str | None) -> None:
            nonlocal level
            level = at
            tell(evaluations=count)

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
                yield job if isinstance(job, Failure) else self._explanation(job)

        try:
            for job, found in self._found(
                contexts(),
                lambda job: job.request.options,
                on_scored=tell_scored,
                first_soon=first_soon,
            ):
                try:
                    self._add(job, found)
                except RationalesError as error:
                    job.error = job.error or error
                tell(done=1)
                yield from finished()
            yield from finished()  # what is left had no target that can be explained
        except KeyboardInterrupt as error:
            begun = [job for job in jobs if isinstance(job, Job) and job.error is None]
            partly = [self._explanation(job) for job in begun if job.found or job.over]
            raise Interrupted(partly) from error

    def _add(self, job: Job, found: Rationale | RationalesError) -> None:
        """Add what was found for a target, with what is known only of texts; raise an error."""
        if isinstance(found, RationalesError):
            raise found
        if found.proof is not None:
            found = with_stability(job, found, self.scorer, self.without_adapter().scorer)
        job.add(found, self.tokenizer)

    def grow(
        self, request: Request, on_progress: Callable[[Progress], None] | None = None
    ) -> Iterator[Explanation]:
        """The explanation of one text as it grows: with no rationale, then with one more each time.

        The last one is complete. What is wrong with the request is raised.
        """
        job = self._begin(request)
        evaluations = 0

        def tell(count: int = 0, level: str | None = None) -> None:
            nonlocal evaluations
            evaluations += count
            if on_progress is not None:
                on_progress(Progress(len(job.found), len(job.contexts), evaluations, level))

        tell()
        yield self._explanation(job)
        contexts = enumerate(job.contexts)
        for _, rationale in self.rationalize(contexts, job.request.options, on_scored=tell):
            self._add(job, rationale)
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
        evaluation: ShownAs | None = None,
    ) -> Prediction:
        """What the model predicts in the place of a token from some of the tokens before it.

        The text may be given by the tokens of its explanation. ``target`` is the index of the
        token, ``keep`` are those of the others. Pinned tokens and the one before the target are
        kept in any case. With a ``length``, the target is this many tokens: it has the
        log-probability of all of them, and the prediction is the first that differs, if one does.
        """
        options = Options(
            target=target, criterion=criterion, instead_of=instead_of, evaluation=evaluation
        )
        passage, [target] = self._passage(text, options)
        extra_ids = self._alternative(passage, [target], options)
        if not 1 <= length <= len(passage.tokens) - target:
            raise RationalesError(f"there are no {length} tokens from token {target}, the target")
        span_ids = passage.ids[target + 1 : target + length]
        context = replace(passage.context(target), extra_ids=extra_ids, span_ids=span_ids)
        context = self._shown(context, options)
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

    def _explanation(self, job: Job) -> Explanation:
        """What was found for a request, complete or not."""
        evaluation = getattr(self.scorer, "evaluation", lambda context: "black-box")
        ways = {"deleted" if each.deletes else evaluation(each) for each in job.contexts}
        seconds = time.perf_counter() - job.started
        return Explanation(
            model=self.name,
            method=job.request.options.method,
            evaluation="+".join(sorted(ways, reverse=True)) or "none",
            tokens=job.passage.tokens,
            parts=job.passage.parts,
            rationales=tuple(sorted(job.found, key=lambda found: found.target)),
            seconds=seconds,
            unexplainable=job.unexplainable,
            complete=len(job.found) == len(job.contexts),
            id=job.request.id,
            group=job.request.group,
            adapter=self.adapter,
            options=job.request.options.shaping()
            | ({} if job.request.within is None else {"within": list(job.request.within)}),
            cost=self._cost(job, seconds)
            if job.request.options.certify or job.usage_before is not None
            else None,
            endpoint=self._endpoint(job),
        )

    def _endpoint(self, job: Job) -> Endpoint | None:
        """How an endpoint was asked; None: there is none."""
        return None

    def _cost(self, job: Job, seconds: float) -> Cost:
        """What a request has taken so far."""
        tokens = getattr(self.scorer, "tokens", 0) - (job.tokens_before or 0)
        asked: dict[str, int] = {}
        if job.usage_before is not None:
            used = getattr(self.scorer, "usage", job.usage_before) - job.usage_before
            asked = {n: getattr(used, n) for n in ("requests", "prompt_tokens", "cached")}
        return Cost(
            subsets=sum(r.evaluations + (r.proof.evaluations if r.proof else 0) for r in job.found),
            model_tokens=None if job.tokens_before is None else tokens,
            seconds=round(seconds, 3),
            **asked,
        )

    def without_adapter(self) -> Explainer:
        """The explainer of the same model without its adapter."""
        from rationales.scoring.adapted import AdaptedScorer

        if not isinstance(self.scorer, AdaptedScorer):
            return self
        base = self.scorer.base
        return Explainer(base, self.tokenizer, name=self.name, model=base.model)


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


def _guarded(search: Search) -> Asking[Rationale | RationalesError]:
    """The search, with an error as its result."""
    try:
        return (yield from search)
    except RationalesError as error:
        return error
