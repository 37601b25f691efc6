"""Whether a rationale is still sufficient if the model is asked in another way."""

from __future__ import annotations

from dataclasses import replace

from rationales.requests import Job
from rationales.result import Proof, Rationale
from rationales.scoring.protocol import Query, SubsetScorer, can_delete, fresh
from rationales.scoring.span import merged, single_tokens
from rationales.search.certify import budget_of
from rationales.search.criterion import make_criterion


def with_stability(
    job: Job, found: Rationale, scorer: SubsetScorer, base: SubsetScorer
) -> Rationale:
    """The rationale with whether it is sufficient without gaps, and without the adapter.

    ``base`` scores without the adapter; it is ``scorer`` itself if there is none.
    """
    proof = found.proof or Proof()
    budget = budget_of(job.request.options)
    [context] = [each for each in job.contexts if len(each.ids) == found.target]
    kept = context.keep(found.indices)

    def is_sufficient(scorer: SubsetScorer, query: Query) -> bool:
        [score] = merged([query], fresh(scorer).score(single_tokens([query])))
        # With or without the adapter, the model itself answers for the full context.
        full = replace(score, target_logprob=whole.target_logprob) if whole else score
        return make_criterion(job.request.options.criterion, context, full).met(score)

    whole = found.full_context
    deleted = without_adapter = None
    if can_delete(scorer) and not context.deletes and proof.evaluations < budget:
        deleted = is_sufficient(scorer, (replace(context, deletes=True), kept))
    if base is not scorer and proof.evaluations + 1 < budget:
        without_adapter = is_sufficient(base, (context, kept))
    verdicts = [each for each in (deleted, without_adapter) if each is not None]
    proof = replace(
        proof,
        deleted_sufficient=deleted,
        without_adapter_sufficient=without_adapter,
        stable=all(verdicts) if verdicts else None,
        evaluations=proof.evaluations + len(verdicts),
    )
    return replace(found, proof=proof)
