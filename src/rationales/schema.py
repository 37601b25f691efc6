"""Explanations as JSON: written, read and checked by the types of their fields.

``python -m rationales.schema`` prints the JSON Schema that is in ``schema.json``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from rationales.checking import located
from rationales.context import Part, Token
from rationales.errors import RationalesError
from rationales.result import Candidate, Explanation, Prediction, Proof, Rationale, Step
from rationales.ties import ROUNDING

VERSION = 2
_RENAMED = {"asked_logprob": "contrast_logprob", "whole": "full_context", "span": "target_length"}
"""Fields of schema 1 that have another name in schema 2."""

_FAILURE = {
    "description": "The answer to a line of --jsonl that could not be explained.",
    "type": "object",
    "properties": {
        "id": {"type": ["string", "integer"], "description": "The id that came with the text."},
        "line": {"type": "integer", "minimum": 1, "description": "The number of the line."},
        "error": {"type": "string", "description": "What is wrong with it."},
    },
    "required": ["line", "error"],
}


def to_dict(explanation: Explanation) -> dict[str, Any]:
    """The explanation in plain dictionaries and lists; fields with their default are left out."""
    bare = tuple(rationale.with_tokens(()) for rationale in explanation)
    data = _plain(Explanation, replace(explanation, rationales=()))
    return {"schema": VERSION, **data, "rationales": _plain(tuple[Rationale, ...], bare)}


def from_dict(data: Any) -> Explanation:
    """The explanation in plain dictionaries of schema 2 or 1; unknown fields are ignored."""
    version = data.get("schema") if isinstance(data, dict) else None
    if version not in (1, VERSION) or isinstance(version, bool | float):
        found = repr(version) if isinstance(data, dict) else type(data).__name__
        raise RationalesError(
            f"not an explanation of schema {VERSION}: found {found}; "
            "write one with Explanation.save or rationales explain --json"
        )
    try:
        data = _renamed(data) if version == 1 else data
        text = json.dumps(data, allow_nan=False)
        explanation: Explanation = _adapter(Explanation).validate_json(text, strict=True)
    except ValidationError as error:
        raise RationalesError(f"not a whole explanation: {located(error, data)}") from error
    except RecursionError as error:
        raise RationalesError("not a whole explanation: alternatives in alternatives …") from error
    except (ValueError, TypeError) as error:  # NaN, infinity, what is no JSON
        raise RationalesError(f"not a whole explanation: {error}") from error
    for fault in _contradictions(explanation):
        raise RationalesError(f"not a whole explanation: {fault}")
    return explanation


def read_tokens(data: Any) -> tuple[Token, ...]:
    """The tokens in a list of plain dictionaries, whose indices are their places."""
    try:
        placed = [{**each, "index": place} for place, each in enumerate(data)]
        tokens: tuple[Token, ...] = _adapter(tuple[Token, ...]).validate_json(json.dumps(placed))
    except ValidationError as error:
        raise RationalesError(f"not a list of tokens: {located(error, placed)}") from error
    except (ValueError, TypeError) as error:
        raise RationalesError("tokens must be a list of objects such as {id, text}") from error
    return tokens


def read_parts(data: Any, count: int) -> tuple[Part, ...]:
    """The messages and documents of a text, in a list of plain dictionaries."""
    try:
        parts: tuple[Part, ...] = _adapter(tuple[Part, ...]).validate_json(json.dumps(data))
    except ValidationError as error:
        raise RationalesError(f"not a list of parts: {located(error, data)}") from error
    before = 0
    for part in parts:
        if not before <= part.start < part.end <= count:
            raise RationalesError(
                f"the part from token {part.start} to {part.end} must begin at {before} or later "
                f"and end at {count} at most: give parts in order"
            )
        before = part.end
    return parts


def to_plain(value: Prediction) -> dict[str, Any]:
    """A prediction in a plain dictionary; what is not known is left out."""
    plain: dict[str, Any] = _adapter(Prediction).dump_python(value, mode="json", exclude_none=True)
    return {"target_logprob": None, **plain}


def json_schema() -> dict[str, Any]:
    """The JSON Schema of an explanation, as it is in ``schema.json``."""
    schema = TypeAdapter(Explanation).json_schema()
    del schema["$defs"]["Rationale"]["properties"]["tokens"]  # those of the explanation
    schema["$defs"]["Failure"] = _FAILURE
    version = {"const": VERSION, "description": "The version of this format."}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "properties": {"schema": version, **schema["properties"]},
        "required": ["schema", *schema["required"]],
    }


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """What reads and writes values of a type as JSON."""
    return TypeAdapter(kind)


def _plain(kind: Any, value: Any) -> Any:
    return _adapter(kind).dump_python(value, mode="json", exclude_defaults=True)


def _renamed(data: Any) -> Any:
    """Data of schema 1 with the field names of schema 2."""
    if isinstance(data, list):
        return [_renamed(each) for each in data]
    if isinstance(data, dict):
        return {
            _RENAMED.get(name, name): value if name == "options" else _renamed(value)
            for name, value in data.items()
        }
    return data


def _contradictions(explanation: Explanation) -> Iterator[str]:
    """What no schema can say: where an explanation does not agree with its own tokens."""
    count = len(explanation.tokens)
    for place, token in enumerate(explanation.tokens):
        if token.index != place:
            yield f"tokens[{place}].index must be {place}, not {token.index}"
    end = f"the end of the {count} tokens"
    yield from _misplaced("unexplainable", explanation.unexplainable, count, end)
    yield from _contradictions_in("rationales", explanation.rationales, count, count)


def _contradictions_in(name: str, value: Any, target: int, count: int) -> Iterator[str]:
    """Where rationales name tokens that their target cannot have seen, or probabilities above 1."""
    if name.endswith("_logprob") and value is not None and not value <= ROUNDING:
        yield f"{name} must be at most 0, not {value}"
    elif name.endswith((".index", ".indices", ".unit")) or "units[" in name:
        indices = value if isinstance(value, tuple) else () if value is None else (value,)
        yield from _misplaced(name, indices, target, f"the target {target}")
    elif isinstance(value, tuple):
        for place, each in enumerate(value):
            yield from _contradictions_in(f"{name}[{place}]", each, target, count)
    elif isinstance(value, Rationale | Step | Candidate | Proof):
        if isinstance(value, Rationale):
            target = value.target
            if target + value.target_length > count:
                yield f"{name}.target and its length must end within the {count} tokens"
        for field, each in vars(value).items():
            if field != "tokens":  # those of the explanation
                yield from _contradictions_in(f"{name}.{field}", each, target, count)


def _misplaced(name: str, indices: Sequence[int], end: int, what: str) -> Iterator[str]:
    """Whether a field holds an index twice, or one that is not before the end."""
    if len(set(indices)) < len(indices):
        yield f"{name} must not hold an index twice"
    for index in indices:
        if index >= end:
            yield f"{name} must be before {what}, not {index}"


if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))  # noqa: T201
