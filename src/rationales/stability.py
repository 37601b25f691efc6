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

    whole, verdicts = found.full_context, dict[str, bool]()
    if can_delete(scorer) and proof.evaluations < budget:
        query = (replace(context, deletes=True), kept)
        verdicts["deleted_sufficient"] = is_sufficient(scorer, query)
    if base is not scorer and proof.evaluations + len(verdicts) < budget:
        verdicts["without_adapter_sufficient"] = is_sufficient(base, (context, kept))
    proof = replace(
        proof,
        **verdicts,
        stable=all(verdicts.values()) if verdicts else None,
        evaluations=proof.evaluations + len(verdicts),
    )
    return replace(found, proof=proof)
