"""What was proven of a rationale, and which documents it is from, in words."""

from __future__ import annotations

from collections.abc import Iterator

from rationales.render.marks import visible
from rationales.result import Explanation, Rationale


def source_line(explanation: Explanation, rationale: Rationale) -> str | None:
    """The messages and documents that a rationale has words of; None if there are none."""
    found = [
        f"{part.kind} {part.name!r}: {visible(text)}"
        for part, text in explanation.sources(rationale)
    ]
    return " · ".join(found) or None


def proof_line(rationale: Rationale) -> str | None:
    """What was proven of a rationale, in a line; None if nothing was."""
    return " · ".join(_facts(rationale)) or None


def _facts(rationale: Rationale) -> Iterator[str]:
    proof = rationale.proof
    if proof is None:
        return
    if proof.margin is not None:
        yield f"{proof.margin:.2f} nats ahead"
    if rationale.optimal:
        yield "no smaller one exists"
    elif rationale.minimal is not None:
        yield "minimal" if rationale.minimal else "not minimal"
        if proof.lower_bound:
            yield f"none of fewer than {_units(proof.lower_bound)} exists"
    if proof.without is not None and proof.without_sufficient:
        yield "the rest is sufficient too"
    elif proof.without is not None:
        yield f"without it the model says {visible(proof.without.prediction_text or '?')!r}"
    if proof.critical_units is not None:
        count = len(proof.critical_units)
        tried = "" if proof.critical_tried == "all" else " of its own"
        yield f"{_units(count) if count else 'no unit'}{tried} cannot go from the full context"
    if proof.suffix is not None:
        yield (
            f"the last {_units(proof.suffix)} alone would do"
            if proof.suffix
            else ("nothing but the required is needed")
        )
    if proof.more:
        yield "there are more disjoint ones"
    for verdict, what in (
        (proof.deleted_sufficient, "with the rest deleted"),
        (proof.without_adapter_sufficient, "without the adapter"),
    ):
        if verdict is not None:
            yield f"{'sufficient' if verdict else 'not sufficient'} {what}"


def _units(count: int) -> str:
    return "1 unit" if count == 1 else f"{count} units"
