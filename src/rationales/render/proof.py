"""What was proven of a rationale, and which documents it is from, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rationales.context import Part
from rationales.render.marks import shortened, visible
from rationales.result import Explanation, Rationale
from rationales.ties import TIE

_MOST_NAMED = 4
"""Critical units that are named at most; more are counted."""

_MOST_CELLS = 60
"""Of what a rationale has of a message or a document, this much is told."""


def source_line(explanation: Explanation, rationale: Rationale) -> str | None:
    """The messages and documents that a rationale has words of; None if there are none."""
    found = (
        f"{_name(part, explanation.parts)}: {shortened(visible(text), _MOST_CELLS)}"
        for part, text in explanation.sources(rationale)
    )
    return " · ".join(found) or None


def _name(part: Part, parts: Sequence[Part]) -> str:
    """What a part is called, and which it is of those that are called so."""
    alike = [each for each in parts if (each.kind, each.name) == (part.kind, part.name)]
    which = f" ({alike.index(part) + 1} of {len(alike)})" if len(alike) > 1 else ""
    return f"{part.kind} {part.name!r}{which}"


def unit_of(explanation: Explanation) -> str:
    """What the search of an explanation added at a time, in a word."""
    options = explanation.options
    if "units" in options or "unit_pattern" in options:
        return "unit"
    return str(options.get("unit") or options.get("finest") or "token")


def facts(rationale: Rationale, unit: str = "unit") -> Iterator[str]:
    """What was proven of a rationale, one thing at a time."""
    proof = rationale.proof
    if proof is None:
        return
    # What is required is counted with the rest here: a reader sees one rationale.
    required = int(rationale.target - 1 in rationale.indices)
    if proof.margin is not None:
        ahead = proof.margin > -TIE
        where = "ahead of the runner-up" if ahead else "behind the most likely token"
        yield f"{abs(proof.margin):.2f} nats {where}"
    if rationale.optimal:
        yield f"smallest: no set of fewer {unit}s is sufficient"
    elif rationale.minimal is not None:
        can = "no" if rationale.minimal else "not minimal: a"
        yield f"{'minimal: ' * rationale.minimal}{can} single {unit} can be left out"
    if proof.lower_bound and not rationale.optimal:
        yield f"no set of fewer than {_count(proof.lower_bound + required, unit)} is sufficient"
    if proof.without is not None:
        said = visible(proof.without.prediction_text or "?")
        what = "is sufficient too" if proof.without_sufficient else f"predicts {said!r}"
        yield f"everything else {what}{_drop(rationale.without_drop)}"
    if proof.critical_units is not None:
        yield _critical(rationale, proof.critical_units, unit)
    if proof.suffix is not None:
        yield _suffix(proof.suffix, required, unit)
    if rationale.alternatives:
        yield f"{_count(len(rationale.alternatives), 'disjoint rationale')} beside it"
    if proof.more is not None:
        yield f"{'one' if proof.more else 'no'} more disjoint rationale was found"
    if proof.stable is not None:
        yield _stable(rationale)
    yield f"proof: {_count(proof.evaluations, 'subset')} scored"


def _drop(drop: float | None) -> str:
    """How much less likely the target is, in brackets."""
    if drop is None:
        return ""
    if math.isinf(drop):
        return f" (the target is impossible{' given all' if drop < 0 else ''})"
    return f" (target {abs(drop):.2f} nats {'less' if drop >= 0 else 'more'} likely)"


def _critical(rationale: Rationale, units: tuple[tuple[int, ...], ...], unit: str) -> str:
    """Which single units the full context cannot do without."""
    proof = rationale.proof
    own = " of the rationale" if proof and proof.critical_tried == "rationale" else ""
    if not units:
        return f"the full context needs no single {unit}{own}"
    if len(units) > _MOST_NAMED or not rationale.tokens:
        return f"the full context needs each of {_count(len(units), unit)}{own}"
    texts = ("".join(rationale.tokens[i].text for i in each).strip() for each in units)
    return f"the full context needs {', '.join(repr(visible(text)) for text in texts)}"


def _suffix(size: int, required: int, unit: str) -> str:
    """How much of the recent context is sufficient."""
    if size + required == 0:
        return "the pinned tokens alone are sufficient"
    if size + required == 1:
        return f"the last {unit} alone is sufficient"
    return f"the last {_count(size + required, unit)} alone are sufficient"


def _stable(rationale: Rationale) -> str:
    """Whether it is sufficient too if the model is asked in other ways."""
    proof = rationale.proof
    ways = {
        "if the rest is deleted": proof and proof.deleted_sufficient,
        "without the adapter": proof and proof.without_adapter_sufficient,
    }
    failed = [way for way, verdict in ways.items() if verdict is False]
    if failed:
        return f"not stable: not sufficient {' and '.join(failed)}"
    passed = [way for way, verdict in ways.items() if verdict]
    return f"stable: sufficient too {' and '.join(passed)}"


def _count(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count} {what}s"
