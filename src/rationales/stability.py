"""Whether a rationale is still sufficient if the model is asked in another way."""

from __future__ import annotations

from dataclasses import replace

from rationales.context import Context
from rationales.requests import Job
from rationales.result import Rationale
from rationales.scoring.protocol import SubsetScorer, fresh
from rationales.scoring.span import merged, single_tokens
from rationales.search.criterion import make_criterion


def with_stability(
    job: Job, found: Rationale, scorer: SubsetScorer, base: SubsetScorer
) -> Rationale:
    """The rationale with whether it is sufficient without gaps, and without the adapter.

    ``base`` scores without the adapter; it is ``scorer`` itself if there is none.
    """
    assert found.proof is not None
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

    proof = replace(
        found.proof,
        deleted_sufficient=is_sufficient(scorer, closed, tuple(range(len(kept)))),
        without_adapter_sufficient=(None if base is scorer else is_sufficient(base, context, kept)),
    )
    return replace(found, proof=proof)
