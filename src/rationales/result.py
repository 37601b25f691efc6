"""What a search found: steps, a rationale, and the explanation of a whole text.

These are values: frozen, comparable, and the same in Python and in JSON (``schema.json`` in this
package says what the JSON looks like). They hold no model and draw no pictures.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rationales.context import Token
from rationales.errors import MissingExtraError, RationalesError
from rationales.schema import faults

if TYPE_CHECKING:
    import pandas

SCHEMA_VERSION = 1
ROUNDING = 1e-6
"""A log-probability may be above 0 by this much, which is then taken for rounding."""


@dataclass(frozen=True)
class Candidate:
    """A token that could have been added at a step, and the target's log-probability with it.

    ``unit`` holds all its tokens if it is a larger unit (a word), of which ``index`` is the last.
    """

    index: int
    target_logprob: float
    unit: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Step:
    """The state after one token was added.

    ``index`` is None where none was added: nothing but pinned tokens is kept, or everything is.
    ``prediction_id`` is the model's most likely next token then; ``candidates`` are the best of
    those that were tried. ``unit`` holds all tokens that were added if they are several (a word),
    of which ``index`` is the last. ``asked_logprob`` is the log-probability of the alternative in a
    contrast.
    """

    index: int | None
    target_logprob: float
    prediction_id: int
    prediction_logprob: float | None = None
    prediction_text: str | None = None
    candidates: tuple[Candidate, ...] = ()
    unit: tuple[int, ...] | None = None
    asked_logprob: float | None = None


@dataclass(frozen=True, repr=False)
class Rationale:
    """The subset of the context found for one target.

    ``sufficient``: given only ``indices``, the model's most likely next token is the target (or
    another criterion holds, if one was asked for). ``predicted``: the target is the most likely
    token given the whole context (None: not asked), of which ``whole`` has the probabilities.
    ``stopped`` names what ended a search that did not reach sufficiency: ``"max-size"`` or
    ``"budget"``.

    ``units`` are the words or sentences that were kept, in the order added, if the search added
    such. ``minimal``: no unit can be taken away; ``optimal``: no smaller subset is sufficient; None
    where nobody has looked. ``alternatives`` are further rationales that share only what is
    required with this one and each other. ``span``: how many tokens the explained answer has.
    """

    target: int
    target_id: int
    indices: tuple[int, ...]
    sufficient: bool
    evaluations: int
    steps: tuple[Step, ...] = ()
    predicted: bool | None = None
    stopped: str | None = None
    target_text: str | None = None
    units: tuple[tuple[int, ...], ...] | None = None
    minimal: bool | None = None
    optimal: bool | None = None
    alternatives: tuple[Rationale, ...] = ()
    span: int = 1
    whole: Step | None = None
    tokens: tuple[Token, ...] = field(default=(), compare=False)

    def __repr__(self) -> str:
        """One line: the target, what was kept for it, the verdict."""
        target = self.target_id if self.target_text is None else _beginning(self.target_text)
        known = len(self.tokens) > max(self.indices, default=-1)
        kept = _beginning(self.text) if known else list(self.indices)
        verdict = "sufficient" if self.sufficient else "not sufficient"
        return f"<Rationale of {target!r}: {kept!r}, {_counted(len(self), 'token')}, {verdict}>"

    def __len__(self) -> int:
        return len(self.indices)

    def with_tokens(self, tokens: tuple[Token, ...]) -> Rationale:
        """This rationale and its alternatives, with the tokens of the text they belong to."""
        others = tuple(other.with_tokens(tokens) for other in self.alternatives)
        return replace(self, tokens=tokens, alternatives=others)

    @property
    def text(self) -> str:
        """The kept tokens in text order, with an ellipsis for each gap between them.

        In a translation, an arrow parts those of the source from those of the target.
        """
        if not self.tokens and self.indices:
            raise RationalesError("this rationale has no texts: it was searched on bare token ids")
        return " → ".join(self.texts)

    @property
    def texts(self) -> list[str]:
        """The text of the kept tokens of each side; one text if there are no sides."""
        return [_joined([self.tokens[i] for i in group]) for group in self.by_side]

    @property
    def by_side(self) -> list[list[int]]:
        """The kept indices in text order: in one list, or one of the source and one of the target.

        Which it is, the tokens tell: those of a translation have sides.
        """
        kept = sorted(self.indices)
        if not any(token.side for token in self.tokens):
            return [kept]
        return [[i for i in kept if self.tokens[i].side == side] for side in ("source", "target")]


@dataclass(frozen=True, repr=False)
class Explanation:
    """A text with a rationale for each of its targets.

    Behaves as the sequence of its rationales: ``explanation[3].text``, ``len(explanation)``.
    ``unexplainable`` are targets with nothing before them. ``complete`` is False if the run was
    interrupted and some targets are missing. ``adapter`` names the compatibility adapter that
    answered for incomplete contexts, if there was one. ``options`` are those that decide what a
    rationale is (``criterion``, ``unit``, ``fast`` …) as far as they are not the usual ones.
    """

    model: str
    method: str
    evaluation: str
    tokens: tuple[Token, ...]
    rationales: tuple[Rationale, ...]
    seconds: float
    unexplainable: tuple[int, ...] = ()
    complete: bool = True
    id: str | int | None = None
    adapter: str | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        attached = tuple(r.with_tokens(self.tokens) for r in self.rationales)
        object.__setattr__(self, "rationales", attached)
        # Milliseconds, here and not when written: what is read back equals what was saved.
        object.__setattr__(self, "seconds", round(self.seconds, 3))

    def __repr__(self) -> str:
        """One line: the text, what explained it, how many rationales of which size were found."""
        parts = [self.model, self.method, _counted(len(self), "target")]
        if self.rationales:
            parts.append(f"{sum(r.sufficient for r in self)} sufficient")
            parts.append(f"mean size {sum(map(len, self)) / len(self):.1f}")
        if not self.complete:
            parts.append("interrupted")
        about = " ".join(", ".join(parts).split())
        given = (t.text for t in self.tokens if not t.pinned and t.side != "target")
        return f"<Explanation of {_beginning(''.join(given))!r}: {about}>"

    def __len__(self) -> int:
        return len(self.rationales)

    def __getitem__(self, place: int) -> Rationale:
        return self.rationales[place]

    def __iter__(self) -> Iterator[Rationale]:
        return iter(self.rationales)

    @property
    def text(self) -> str:
        """The text of all tokens, pinned ones included."""
        return "".join(token.text for token in self.tokens)

    def show(self, steps: bool = False) -> None:
        """Print the explanation to the terminal or notebook, with the steps if asked."""
        from rationales.render.terminal import show

        show(self, steps=steps)

    def save(self, path: str | Path) -> None:
        """Write the explanation as JSON."""
        try:
            Path(path).write_text(self.to_json(indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise RationalesError(f"cannot write {path}: {error.strerror or error}") from error

    @classmethod
    def load(cls, path: str | Path) -> Explanation:
        """Read back what ``save`` or ``rationales explain --json`` wrote."""
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except RationalesError as error:
            raise RationalesError(f"{path} is {error}") from error
        except OSError as error:
            raise RationalesError(f"cannot read {path}: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise RationalesError(
                f"cannot read {path}: it is not UTF-8 text ({error.reason})"
            ) from error

    def to_json(self, indent: int | None = None) -> str:
        """The explanation as a JSON object; on one line unless an indent is given."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=indent)

    @classmethod
    def from_json(cls, text: str) -> Explanation:
        """The explanation in a JSON text."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:  # numbers of too many digits, too many [[[
            raise RationalesError(f"not an explanation: invalid JSON ({error})") from error
        return cls.from_dict(data)

    def to_dict(self) -> dict[str, Any]:
        """The explanation in plain dictionaries and lists, as in the JSON Schema."""
        data: dict[str, Any] = {"schema": SCHEMA_VERSION}
        if self.id is not None:
            data["id"] = self.id
        data |= {
            "model": self.model,
            **({"adapter": self.adapter} if self.adapter is not None else {}),
            "method": self.method,
            **({"options": self.options} if self.options else {}),
            "evaluation": self.evaluation,
            "tokens": [_token_to_dict(token) for token in self.tokens],
            "rationales": [_rationale_to_dict(rationale) for rationale in self.rationales],
        }
        if self.unexplainable:
            data["unexplainable"] = list(self.unexplainable)
        if not self.complete:
            data["complete"] = False
        return data | {"seconds": self.seconds}

    @classmethod
    def from_dict(cls, data: Any) -> Explanation:
        """The explanation in plain dictionaries; fields of later versions are ignored."""
        if not isinstance(data, dict) or data.get("schema") != SCHEMA_VERSION:
            found = data.get("schema") if isinstance(data, dict) else type(data).__name__
            raise RationalesError(
                f"not an explanation of schema {SCHEMA_VERSION}: found {found!r}; "
                "write one with Explanation.save or rationales explain --json"
            )
        try:
            for fault in faults(data):
                raise RationalesError(f"not a whole explanation: {fault}")
            explanation = cls(
                model=data["model"],
                method=data["method"],
                evaluation=data["evaluation"],
                tokens=tuple(_token_from_dict(token) for token in data["tokens"]),
                rationales=tuple(_rationale_from_dict(r) for r in data["rationales"]),
                seconds=data["seconds"],
                unexplainable=tuple(data.get("unexplainable", ())),
                complete=data.get("complete", True),
                id=data.get("id"),
                adapter=data.get("adapter"),
                options=dict(data.get("options", {})),
            )
            for fault in _contradictions(explanation):
                raise RationalesError(f"not a whole explanation: {fault}")
        except RecursionError as error:
            raise RationalesError("not an explanation: alternatives in alternatives …") from error
        return explanation

    def to_dataframe(self) -> pandas.DataFrame:
        """One row for each target: what it is, what was kept, and whether that is enough."""
        try:
            import pandas
        except ImportError as error:
            raise MissingExtraError("to_dataframe()", "dataframe") from error
        return pandas.DataFrame(
            {
                "target": [r.target for r in self],
                "target_text": [r.target_text for r in self],
                "size": [len(r) for r in self],
                "sufficient": [r.sufficient for r in self],
                "predicted": [r.predicted for r in self],
                "indices": [list(r.indices) for r in self],
                "rationale": [r.text for r in self],
                "target_logprob": [r.steps[-1].target_logprob if r.steps else None for r in self],
                "whole_target_logprob": [r.whole.target_logprob if r.whole else None for r in self],
                "evaluations": [r.evaluations for r in self],
            }
        )


def _beginning(text: str, most: int = 40) -> str:
    """The text, or as much of its beginning as fits."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _contradictions(explanation: Explanation) -> Iterator[str]:
    """What no schema can say: where an explanation does not agree with its own tokens."""
    count = len(explanation.tokens)
    for place, token in enumerate(explanation.tokens):
        if token.index != place:
            yield f"tokens[{place}].index must be {place}, not {token.index}"
    for place, index in enumerate(explanation.unexplainable):
        if index >= count:
            yield f"unexplainable[{place}] must be one of {count} tokens, not {index}"
    for place, rationale in enumerate(explanation.rationales):
        yield from _contradictions_in(rationale, f"rationales[{place}]", count)


def _contradictions_in(rationale: Rationale, where: str, count: int) -> Iterator[str]:
    """Where a rationale names tokens that its target cannot have seen, or chances above 1."""
    if rationale.target >= count:
        yield f"{where}.target must be one of {count} tokens, not {rationale.target}"
    elif rationale.target + rationale.span > count:
        most = count - rationale.target
        yield f"{where}.span must be at most {most}, as the text ends there, not {rationale.span}"
    named: list[tuple[str, Sequence[int]]] = [("indices", rationale.indices)]
    named += [(f"units[{place}]", unit) for place, unit in enumerate(rationale.units or ())]
    chances: list[tuple[str, float | None]] = []
    steps = [(f"steps[{place}]", step) for place, step in enumerate(rationale.steps)]
    steps += [("whole", rationale.whole)] if rationale.whole is not None else []
    for where_step, step in steps:
        parts: list[tuple[str, Step | Candidate]] = [(where_step, step)]
        parts += [(f"{where_step}.candidates[{n}]", c) for n, c in enumerate(step.candidates)]
        for name, part in parts:
            named.append((f"{name}.index", () if part.index is None else (part.index,)))
            named.append((f"{name}.unit", part.unit or ()))
            chances.append((f"{name}.target_logprob", part.target_logprob))
        chances.append((f"{where_step}.prediction_logprob", step.prediction_logprob))
        chances.append((f"{where_step}.asked_logprob", step.asked_logprob))
    for name, indices in named:
        for index in indices:
            if index >= rationale.target:
                yield f"{where}.{name} must be before the target {rationale.target}, not {index}"
    for name, logprob in chances:
        if logprob is not None and logprob > ROUNDING:
            yield f"{where}.{name} must be at most 0, not {logprob}"
    for place, other in enumerate(rationale.alternatives):
        yield from _contradictions_in(other, f"{where}.alternatives[{place}]", count)


def _joined(tokens: Sequence[Token]) -> str:
    """The texts of these tokens, with an ellipsis for each gap between them."""
    pieces: list[str] = []
    for before, token in zip([None, *tokens], tokens, strict=False):
        if before is not None and token.index != before.index + 1:
            pieces.append(" …" if token.text[:1].isspace() else " … ")
        pieces.append(token.text)
    return "".join(pieces).strip()


def _token_to_dict(token: Token) -> dict[str, Any]:
    data: dict[str, Any] = {"index": token.index, "id": token.id, "text": token.text}
    if token.pinned:
        data["pinned"] = True
    return data | {"side": token.side} if token.side else data


def _token_from_dict(data: dict[str, Any]) -> Token:
    pinned, side = data.get("pinned", False), data.get("side")
    return Token(data["index"], data["id"], data["text"], pinned, side)


def _rationale_to_dict(rationale: Rationale) -> dict[str, Any]:
    data: dict[str, Any] = {
        "target": rationale.target,
        "target_id": rationale.target_id,
        "target_text": rationale.target_text,
        "predicted": rationale.predicted,
        "indices": list(rationale.indices),
        "sufficient": rationale.sufficient,
        "evaluations": rationale.evaluations,
        "steps": [_step_to_dict(step) for step in rationale.steps],
    }
    if rationale.whole is not None:
        data["whole"] = _step_to_dict(rationale.whole)
    if rationale.stopped:
        data["stopped"] = rationale.stopped
    if rationale.units is not None:
        data["units"] = [list(unit) for unit in rationale.units]
    for name in ("minimal", "optimal"):
        if getattr(rationale, name) is not None:
            data[name] = getattr(rationale, name)
    if rationale.span > 1:
        data["span"] = rationale.span
    if rationale.alternatives:
        data["alternatives"] = [_rationale_to_dict(other) for other in rationale.alternatives]
    return data


def _rationale_from_dict(data: dict[str, Any]) -> Rationale:
    return Rationale(
        target=data["target"],
        target_id=data["target_id"],
        indices=tuple(data["indices"]),
        sufficient=data["sufficient"],
        evaluations=data["evaluations"],
        steps=tuple(_step_from_dict(step) for step in data["steps"]),
        predicted=data.get("predicted"),
        stopped=data.get("stopped"),
        target_text=data.get("target_text"),
        units=None if (units := data.get("units")) is None else tuple(map(tuple, units)),
        minimal=data.get("minimal"),
        optimal=data.get("optimal"),
        alternatives=tuple(_rationale_from_dict(other) for other in data.get("alternatives", ())),
        span=data.get("span", 1),
        whole=None if (whole := data.get("whole")) is None else _step_from_dict(whole),
    )


def _step_to_dict(step: Step) -> dict[str, Any]:
    data: dict[str, Any] = {
        "index": step.index,
        "target_logprob": _logprob_to_json(step.target_logprob),
        "prediction_id": step.prediction_id,
        "prediction_text": step.prediction_text,
        "prediction_logprob": step.prediction_logprob,
    }
    if step.unit is not None:
        data["unit"] = list(step.unit)
    if step.asked_logprob is not None:
        data["asked_logprob"] = _logprob_to_json(step.asked_logprob)
    if step.candidates:
        data["candidates"] = [_candidate_to_dict(candidate) for candidate in step.candidates]
    return data


def _candidate_to_dict(candidate: Candidate) -> dict[str, Any]:
    return {
        "index": candidate.index,
        "target_logprob": _logprob_to_json(candidate.target_logprob),
        **({"unit": list(candidate.unit)} if candidate.unit is not None else {}),
    }


def _step_from_dict(data: dict[str, Any]) -> Step:
    return Step(
        index=data["index"],
        target_logprob=_logprob_from_json(data["target_logprob"]),
        prediction_id=data["prediction_id"],
        prediction_logprob=data.get("prediction_logprob"),
        prediction_text=data.get("prediction_text"),
        candidates=tuple(
            Candidate(c["index"], _logprob_from_json(c["target_logprob"]), _unit(c))
            for c in data.get("candidates", ())
        ),
        unit=_unit(data),
        asked_logprob=(
            _logprob_from_json(data["asked_logprob"]) if "asked_logprob" in data else None
        ),
    )


def _unit(data: dict[str, Any]) -> tuple[int, ...] | None:
    return tuple(data["unit"]) if "unit" in data else None


def _logprob_to_json(logprob: float) -> float | None:
    """The log-probability; None for that of an impossible token, as JSON has no infinity."""
    return None if logprob == -math.inf else logprob


def _logprob_from_json(logprob: float | None) -> float:
    return -math.inf if logprob is None else logprob


def read_explanations(lines: Sequence[str]) -> list[Explanation]:
    """The explanations in JSON lines, blank lines skipped."""
    return [Explanation.from_json(line) for line in lines if line.strip()]
