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

if TYPE_CHECKING:
    import pandas

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Candidate:
    """A token that could have been added at a step, and the target's log-probability with it."""

    index: int
    target_logprob: float


@dataclass(frozen=True)
class Step:
    """The state after one token was added.

    ``index`` is None for the step in which nothing but pinned tokens is kept. ``prediction_id`` is
    the model's most likely next token then; ``candidates`` are the best of those that were tried.
    """

    index: int | None
    target_logprob: float
    prediction_id: int
    prediction_logprob: float | None = None
    prediction_text: str | None = None
    candidates: tuple[Candidate, ...] = ()


@dataclass(frozen=True)
class Rationale:
    """The subset of the context found for one target.

    ``sufficient``: given only ``indices``, the model's most likely next token is the target.
    ``predicted``: so it is given the whole context (None: not asked). ``stopped`` names what ended
    a search that did not reach sufficiency: ``"max-size"`` or ``"budget"``.
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
    tokens: tuple[Token, ...] = field(default=(), repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def text(self) -> str:
        """The kept tokens in text order, with an ellipsis for each gap between them."""
        if not self.tokens and self.indices:
            raise RationalesError("this rationale has no texts: it was searched on bare token ids")
        pieces: list[str] = []
        for before, index in zip([None, *sorted(self.indices)], sorted(self.indices), strict=False):
            if before is not None and index != before + 1:
                pieces.append(" …" if self.tokens[index].text[:1].isspace() else " … ")
            pieces.append(self.tokens[index].text)
        return "".join(pieces).strip()


@dataclass(frozen=True)
class Explanation:
    """A text with a rationale for each of its targets.

    Behaves as the sequence of its rationales: ``explanation[3].text``, ``len(explanation)``.
    ``unexplainable`` are targets with nothing before them. ``complete`` is False if the run was
    interrupted and some targets are missing. ``adapter`` names the compatibility adapter that
    answered for incomplete contexts, if there was one.
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

    def __post_init__(self) -> None:
        attached = tuple(replace(r, tokens=self.tokens) for r in self.rationales)
        object.__setattr__(self, "rationales", attached)
        # Milliseconds, here and not when written: what is read back equals what was saved.
        object.__setattr__(self, "seconds", round(self.seconds, 3))

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
        except json.JSONDecodeError as error:
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
            return cls(
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
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise RationalesError(
                f"not a whole explanation: {error!r} is missing or wrong"
            ) from error

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
                "evaluations": [r.evaluations for r in self],
            }
        )


def _token_to_dict(token: Token) -> dict[str, Any]:
    data: dict[str, Any] = {"index": token.index, "id": token.id, "text": token.text}
    return data | {"pinned": True} if token.pinned else data


def _token_from_dict(data: dict[str, Any]) -> Token:
    return Token(data["index"], data["id"], data["text"], data.get("pinned", False))


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
    return data | ({"stopped": rationale.stopped} if rationale.stopped else {})


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
    )


def _step_to_dict(step: Step) -> dict[str, Any]:
    data: dict[str, Any] = {
        "index": step.index,
        "target_logprob": _logprob_to_json(step.target_logprob),
        "prediction_id": step.prediction_id,
        "prediction_text": step.prediction_text,
        "prediction_logprob": step.prediction_logprob,
    }
    if step.candidates:
        data["candidates"] = [
            {"index": c.index, "target_logprob": _logprob_to_json(c.target_logprob)}
            for c in step.candidates
        ]
    return data


def _step_from_dict(data: dict[str, Any]) -> Step:
    return Step(
        index=data["index"],
        target_logprob=_logprob_from_json(data["target_logprob"]),
        prediction_id=data["prediction_id"],
        prediction_logprob=data.get("prediction_logprob"),
        prediction_text=data.get("prediction_text"),
        candidates=tuple(
            Candidate(c["index"], _logprob_from_json(c["target_logprob"]))
            for c in data.get("candidates", ())
        ),
    )


def _logprob_to_json(logprob: float) -> float | None:
    """The log-probability; None for that of an impossible token, as JSON has no infinity."""
    return None if logprob == -math.inf else logprob


def _logprob_from_json(logprob: float | None) -> float:
    return -math.inf if logprob is None else logprob


def read_explanations(lines: Sequence[str]) -> list[Explanation]:
    """The explanations in JSON lines, blank lines skipped."""
    return [Explanation.from_json(line) for line in lines if line.strip()]
