"""The whole pipeline behind two verbs: ``load`` a model, ``explain`` a text.

text → passage → contexts → searches, run side by side by the driver → explanations
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, overload

from rationales.arguments import (
    check_context,
    check_load,
    check_request,
    check_scorer,
    check_tokenizer,
    checked_options,
    path_to_str,
    text_list,
)
from rationales.context import Context, Subset
from rationales.errors import OptionError, RationalesError
from rationales.jobs import Failure, Interrupted, Job, Progress, Request
from rationales.methods import BASELINES, Means, make_search
from rationales.models.files import check_vocabulary, embedded
from rationales.option_rules import check_input
from rationales.options import Options
from rationales.result import Explanation, Rationale, Step
from rationales.scoring.protocol import Score, SubsetScorer
from rationales.scoring.span import SpanScorer
from rationales.search.base import Search
from rationales.search.driver import run
from rationales.text import (
    Passage,
    Tokenizer,
    alternative_id,
    check_unicode,
    encode,
    find_targets,
    make_tokens,
    token_text,
)
from rationales.units import group

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from rationales.models.files import Kind
    from rationales.ranking import Ranker

K = TypeVar("K", bound=Hashable)
DEFAULT_ADAPTER = "smollm2-135m-instruct-compat"


def load(
    model: str | Path | PreTrainedModel | None = None,
    tokenizer: Tokenizer | None = None,
    *,
    adapter: str | Path | None = None,
    dtype: str | None = None,
    device: str | None = None,
    batch_tokens: int | None = None,
    allow_pickle: bool = False,
    progress: Callable[[str, float], None] | None = None,
    kind: Kind | None = None,
) -> Explainer:
    """An explainer for a model: a name, a folder, a model you already have, or the default one.

    For an encoder–decoder it is a ``Translator``: it translates a text and explains the
    translation. ``kind`` ("causal" or "seq2seq") makes the other kind of model an error; the
    default model of the second kind is the packaged translation model.

    With a model object, its tokenizer has to be given too. ``adapter`` is the folder of a
    compatibility adapter, which answers for incomplete contexts; the default model comes with one,
    which ``"none"`` leaves out. ``batch_tokens`` bounds the tokens of a
    forward pass, and with it the memory. ``progress`` is told the stage and the fraction done while
    the default model is converted.
    """
    model, adapter = path_to_str(model), path_to_str(adapter)
    check_load(model, tokenizer, adapter, dtype, device, batch_tokens, kind)
    if model is None or isinstance(model, str):
        from rationales.models import is_default, load_model

        of_default = is_default(model) and kind != "seq2seq"
        if adapter is None and of_default and _packaged_adapter().is_dir():
            adapter = DEFAULT_ADAPTER
        loaded = load_model(
            model,
            dtype=dtype,
            device=device,
            allow_pickle=allow_pickle,
            progress=progress,
            kind=kind,
        )
        network, name = loaded.model, loaded.name
        tokenizer = loaded.tokenizer if tokenizer is None else tokenizer
    else:
        network = model
        name = getattr(model.config, "_name_or_path", "") or type(model).__name__
    if tokenizer is None:
        raise RationalesError("a model object needs its tokenizer: load(model=..., tokenizer=...)")
    check_vocabulary(network, tokenizer, "the tokenizer given", "give the model's own tokenizer")
    from rationales.scoring.causal import CausalScorer
    from rationales.scoring.logits import DEFAULT_BATCH_TOKENS

    batch_tokens = DEFAULT_BATCH_TOKENS if batch_tokens is None else batch_tokens
    translates = bool(getattr(network.config, "is_encoder_decoder", False))
    if kind is not None and translates != (kind == "seq2seq"):
        found = "an encoder–decoder" if translates else "a causal language model"
        raise RationalesError(f"{name} is {found}: give a model of the kind {kind}")
    if translates:
        from rationales.scoring.seq2seq import Seq2SeqScorer
        from rationales.translator import Translator

        if adapter is not None and adapter != "none":
            raise RationalesError("adapters are for causal language models: leave out the adapter")
        return Translator(
            Seq2SeqScorer(network, batch_tokens=batch_tokens), tokenizer, name=name, model=network
        )
    scorer = CausalScorer(network, batch_tokens=batch_tokens)
    if adapter is None or adapter == "none":
        return Explainer(scorer, tokenizer, name=name, model=network)
    from rationales.compat.adapter import load_adapter
    from rationales.scoring.adapted import AdaptedScorer

    folder = _packaged_adapter() if adapter == DEFAULT_ADAPTER else Path(adapter)
    adapted = load_adapter(network, folder)
    return Explainer(
        AdaptedScorer(scorer, CausalScorer(adapted, batch_tokens=batch_tokens, like=scorer)),
        tokenizer,
        name=name,
        model=adapted,  # the baselines' order and its judge are the same weights
        adapter=folder.name,
    )


class Explainer:
    """Explains texts with one scorer.

    ``model`` is needed only by methods that look inside it; a black box has none.
    """

    _kind: ClassVar[Kind] = "causal"
    """The kind of model, for which some options have no meaning."""

    def __init__(
        self,
        scorer: SubsetScorer,
        tokenizer: Tokenizer,
        *,
        name: str = "black box",
        model: PreTrainedModel | None = None,
        adapter: str | None = None,
    ) -> None:
        check_scorer(scorer)
        check_tokenizer(tokenizer)
        self.scorer = scorer
        self.tokenizer = tokenizer
        self.name = name
        self.model = model
        self.adapter = adapter

    @overload
    def explain(self, text: str, options: Options = ..., **changes: Any) -> Explanation: ...
    @overload
    def explain(
        self, text: Iterable[str], options: Options = ..., **changes: Any
    ) -> list[Explanation]: ...
    def explain(
        self, text: str | Iterable[str], options: Options | None = None, **changes: Any
    ) -> Explanation | list[Explanation]:
        """The explanation of a text; of a list of texts, a list of explanations.

        Keywords are the fields of ``Options``: ``explain("…", target="last", max_size=4)``.
        """
        options = checked_options(options).change(**changes)
        texts = text_list(text)
        explanations: list[Explanation] = []
        try:
            for answer in self.explain_all(Request(each, options) for each in texts):
                if isinstance(answer, Failure):
                    if not isinstance(text, str):
                        which = f"text {len(explanations) + 1} of {len(texts)}"
                        answer.error.args = (f"{which}: {answer.error}",)
                    raise answer.error
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

        ``start`` gives rationales that were found before, which ``minimal`` then prunes: nothing is
        searched again. ``on_scored`` hears how many subsets were scored.
        """
        rankers: dict[Options, Ranker | None] = {}

        def searches() -> Iterator[tuple[K, Context, Search]]:
            for key, context in contexts:
                own = options if isinstance(options, Options) else options(key)
                if own not in rankers:
                    rankers[own] = self._ranker(own)
                begun = None if start is None else start(key)
                yield key, context, make_search(context, own, Means(rankers[own]), begun)

        return run(searches(), SpanScorer(self.scorer), on_evaluations=on_scored)

    def explain_all(
        self,
        requests: Iterable[Request | Failure],
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Iterator[Explanation | Failure]:
        """The answers to all requests, in order, each as soon as it is finished.

        Targets of many texts run side by side. A request that cannot be explained is answered by
        a ``Failure``, and the others go on; a ``Failure`` among the requests is its own answer.
        An interrupt raises ``Interrupted``, which holds what is finished and not yet handed out.
        """
        jobs: deque[Job | Failure] = deque()  # those begun and not yet handed out, in order
        progress = Progress()

        def tell(done: int = 0, total: int = 0, evaluations: int = 0) -> None:
            nonlocal progress
            progress = Progress(
                progress.done + done, progress.total + total, progress.evaluations + evaluations
            )
            if on_progress is not None:
                on_progress(progress)

        def searches() -> Iterator[tuple[Job, Context, Generator[list[Subset], list[Score], None]]]:
            for request in requests:
                if isinstance(request, Failure):
                    jobs.append(request)
                    continue
                try:
                    job = self._begin(request)
                except RationalesError as error:
                    jobs.append(Failure(error, getattr(request, "id", None)))
                    continue
                jobs.append(job)
                tell(total=len(job.targets))
                for target in job.targets:
                    if job.error is not None:
                        break
                    context = job.context(target)
                    job.evaluations.add(self._evaluation(context))
                    yield job, context, job.search(context)

        def finished() -> Iterator[Explanation | Failure]:
            while jobs and (isinstance(jobs[0], Failure) or jobs[0].over):
                yield self._end(jobs.popleft())

        try:
            for _ in run(
                searches(), SpanScorer(self.scorer), on_evaluations=lambda n: tell(evaluations=n)
            ):
                tell(done=1)
                yield from finished()
            yield from finished()  # what is left had no target that can be explained
        except KeyboardInterrupt as error:
            begun = [job for job in jobs if isinstance(job, Job) and (job.found or job.over)]
            raise Interrupted(
                [self._explanation(job) for job in begun if job.error is None]
            ) from error

    def _begin(self, request: Request) -> Job:
        """The text tokenised and continued, its targets found, its search chosen."""
        check_request(request)
        options = request.options
        for value in (request.id, *vars(options).values()):
            if isinstance(value, str):
                check_unicode(value)
        check_input(options, self._kind)
        passage, targets = self._passage(request.text, options)
        unexplainable = tuple(t for t in targets if t == 0)
        targets = [t for t in targets if t > 0]
        if options.span and targets and targets[-1] - targets[0] >= len(targets):
            raise OptionError(
                "{span} takes tokens that follow each other, and {target} names others: "
                "leave out {span}, or give a range such as 3:7"
            )
        span = passage.ids[targets[0] + 1 : targets[-1] + 1] if options.span and targets else ()
        return Job(
            request,
            passage,
            targets=targets[:1] if options.span else targets,
            unexplainable=unexplainable,
            means=self._means(passage, options),
            units=group(passage.tokens, options.unit, options.value("language"))
            if options.unit != "token"
            else None,
            asked=self._asked(passage, targets, options),
            span=span,
        )

    def _passage(self, text: str, options: Options) -> tuple[Passage, list[int]]:
        """The text with its continuation, and which of its tokens are to be explained."""
        passage = encode(self.tokenizer, text, options)
        self._check_ids(passage.ids)
        if options.target is not None:
            targets = find_targets(passage, options.target)
        else:
            if options.continuation is None:
                passage = self._generate(passage, options.value("generate"))
            targets = list(range(passage.start, len(passage.tokens)))
        self._check_length(len(passage.tokens))
        return passage, targets

    def _means(self, passage: Passage, options: Options) -> Means:
        """What the search of these options needs besides the scorer."""
        language = options.value("language")
        levels = (
            [group(passage.tokens, unit, language) for unit in ("sentence", "word", "token")]
            if options.coarse_to_fine
            else ()
        )
        return Means(self._ranker(options), levels)

    def _asked(self, passage: Passage, targets: Sequence[int], options: Options) -> tuple[int, ...]:
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
        return alternative_id(self.tokenizer, text)

    def _generate(self, passage: Passage, how_many: int) -> Passage:
        """The passage with the model's own continuation, by raw argmax.

        The scorer itself decodes: what it generates is what it predicts. ``generate()`` would obey
        penalties and suppressed tokens, and give targets that the model does not predict.
        """
        ids = list(passage.ids)
        self._check_length(len(ids) + how_many)
        ends = end_ids(self.model, self.tokenizer)
        for _ in range(how_many):
            context = Context(tuple(ids), target_id=0)
            [score] = self.scorer.score([(context, tuple(range(len(ids))))])
            ids.append(score.prediction_id)
            if score.prediction_id in ends:
                break
        return Passage(make_tokens(self.tokenizer, ids, passage.pinned), passage.start)

    def _check_ids(self, ids: Iterable[int]) -> None:
        """Raise if the tokenizer gives an id for which the model has no embedding."""
        rows = None if self.model is None else embedded(self.model)
        for id in ids:
            if rows is not None and id >= rows:
                raise RationalesError(
                    f"the tokenizer gives {token_text(self.tokenizer, id)!r} the id {id}, and the "
                    f"model has embeddings for {rows} tokens: give the model's own tokenizer"
                )

    def _check_length(self, tokens: int) -> None:
        limit = getattr(self.scorer, "max_positions", None)
        if limit is not None and tokens - 1 > limit:  # the last token is only a target
            raise RationalesError(
                f"the text has {tokens} tokens with its continuation, and the model has positions "
                f"for {limit}: shorten the text"
            )

    def _ranker(self, options: Options) -> Ranker | None:
        if options.method not in BASELINES:
            return None
        from rationales.ranking import RankingOptions, make_ranker

        batch_tokens = getattr(self.scorer, "batch_tokens", None)
        wanted = RankingOptions(options.absolute, options.value("seed"), options.ig_steps)
        if batch_tokens is not None:
            wanted = replace(wanted, batch_tokens=batch_tokens)
        return make_ranker(options.method, self.model, wanted)

    def _evaluation(self, context: Context) -> str:
        evaluation = getattr(self.scorer, "evaluation", None)
        return evaluation(context) if evaluation is not None else "black-box"

    def _end(self, job: Job | Failure) -> Explanation | Failure:
        """The answer to a request that is over."""
        if isinstance(job, Failure):
            return job
        if job.error is not None:
            return Failure(job.error, job.request.id)
        return self._explanation(job)

    def _explanation(self, job: Job) -> Explanation:
        """What was found for a request, be it all or not."""
        return Explanation(
            model=self.name,
            method=job.request.options.method,
            evaluation="+".join(sorted(job.evaluations, reverse=True)) or "none",
            tokens=job.passage.tokens,
            rationales=tuple(
                self._with_texts(rationale, job.passage)
                for rationale in sorted(job.found, key=lambda r: r.target)
            ),
            seconds=time.perf_counter() - job.started,
            unexplainable=job.unexplainable,
            complete=job.finished,
            id=job.request.id,
            adapter=self.adapter,
            options=job.request.options.shaping(),
        )

    def _with_texts(self, rationale: Rationale, passage: Passage) -> Rationale:
        answer = passage.tokens[rationale.target : rationale.target + rationale.span]
        others = tuple(self._with_texts(other, passage) for other in rationale.alternatives)

        def named(step: Step) -> Step:
            return replace(step, prediction_text=token_text(self.tokenizer, step.prediction_id))

        return replace(
            rationale,
            target_text="".join(token.text for token in answer)
            or token_text(self.tokenizer, rationale.target_id),
            alternatives=others,
            steps=tuple(map(named, rationale.steps)),
            whole=None if rationale.whole is None else named(rationale.whole),
        )


def _packaged_adapter() -> Path:
    """The folder of the default model's compatibility adapter, which is part of the package."""
    return Path(__file__).parent / "adapters" / DEFAULT_ADAPTER


def end_ids(model: PreTrainedModel | None, tokenizer: Tokenizer) -> set[int]:
    """The ids after which a text is over."""
    found: set[int] = set()
    for source in (getattr(model, "generation_config", None), tokenizer):
        ids = getattr(source, "eos_token_id", None)
        found.update([ids] if isinstance(ids, int) else ids or ())
    return found


def rationalize(
    context: Context, scorer: SubsetScorer, options: Options | None = None, **changes: Any
) -> Rationale:
    """The rationale of one context under any scorer: the pipeline without text.

    Keywords are the fields of ``Options``; methods that look inside a model are not for this one.
    """
    check_context(context)
    check_scorer(scorer)
    options = checked_options(options).change(**changes)
    check_input(options, "ids")
    ranker: Ranker | None = None
    if options.method in BASELINES:
        from rationales.ranking import RankingOptions, make_ranker

        ranker = make_ranker(options.method, None, RankingOptions(seed=options.value("seed")))
    search = make_search(context, options, Means(ranker))
    [(_, rationale)] = run([(0, context, search)], SpanScorer(scorer))
    return rationale
