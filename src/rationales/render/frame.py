"""An explanation as columns of a data frame, a row for each target."""

from __future__ import annotations

from typing import Any

from rationales.result import Explanation, Proof


def columns(explanation: Explanation) -> dict[str, list[Any]]:
    """The columns by their names; those of proofs only if a rationale was certified."""
    found: dict[str, list[Any]] = {
        "target": [r.target for r in explanation],
        "target_text": [r.target_text for r in explanation],
        "size": [len(r) for r in explanation],
        "sufficient": [r.sufficient for r in explanation],
        "predicted": [r.predicted for r in explanation],
        "indices": [list(r.indices) for r in explanation],
        "rationale": [r.text for r in explanation],
        "target_logprob": [r.steps[-1].target_logprob if r.steps else None for r in explanation],
        "full_context_logprob": [
            r.full_context.target_logprob if r.full_context else None for r in explanation
        ],
        "evaluations": [r.evaluations for r in explanation],
    }
    return found | _proven(explanation) if any(r.proof for r in explanation) else found


def _proven(explanation: Explanation) -> dict[str, list[Any]]:
    """What was proven; None where it was not asked."""
    proofs = [r.proof or Proof() for r in explanation]
    return {
        "margin": [p.margin for p in proofs],
        "minimal": [r.minimal for r in explanation],
        "optimal": [r.optimal for r in explanation],
        "lower_bound": [p.lower_bound for p in proofs],
        "without_prediction": [p.without.prediction_text if p.without else None for p in proofs],
        "without_sufficient": [p.without_sufficient for p in proofs],
        "without_drop": [r.without_drop for r in explanation],
        "critical_units": [
            None if p.critical_units is None else [list(unit) for unit in p.critical_units]
            for p in proofs
        ],
        "critical_tried": [p.critical_tried for p in proofs],
        "suffix": [p.suffix for p in proofs],
        "alternatives": [[each.text for each in r.alternatives] for r in explanation],
        "more": [p.more for p in proofs],
        "stable": [p.stable for p in proofs],
        "deleted_sufficient": [p.deleted_sufficient for p in proofs],
        "without_adapter_sufficient": [p.without_adapter_sufficient for p in proofs],
        "proof_evaluations": [r.proof.evaluations if r.proof else None for r in explanation],
    }
