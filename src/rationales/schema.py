"""Plain values against ``schema.json``: the one definition of what is written and read.

Only what that schema uses of JSON Schema is understood. A whole number is an ``int`` here, never
``3.0`` or ``true``; and a number is finite, as JSON has no others.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any

from rationales.errors import given

_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "object": ((dict,), "an object"),
    "array": ((list,), "a list"),
    "string": ((str,), "a text"),
    "boolean": ((bool,), "true or false"),
    "integer": ((int,), "a whole number"),
    "number": ((int, float), "a number"),
    "null": ((type(None),), "null"),
}


def faults(data: Any) -> Iterator[str]:
    """What is wrong with an explanation in plain values, each with its field; nothing if valid."""
    return _faults(data, _schema(), "")


@cache
def _schema() -> dict[str, Any]:
    text = resources.files("rationales").joinpath("schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def _faults(value: Any, rule: dict[str, Any], where: str) -> Iterator[str]:
    """What is wrong with the value of a field, and with those in it."""
    if "$ref" in rule:
        rule = _schema()["$defs"][rule["$ref"].removeprefix("#/$defs/")] | rule
    if (expected := _expected(value, rule)) is not None:
        yield f"{where} must be {expected}, not {given(value)}"
    elif isinstance(value, dict):
        for name in rule.get("required", ()):
            if name not in value:
                yield f"{_field(where, name)} is missing"
        for name, inner in rule.get("properties", {}).items():
            if name in value:
                yield from _faults(value[name], inner, _field(where, name))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _faults(item, rule.get("items", {}), f"{where}[{place}]")
        if rule.get("uniqueItems") and len(set(map(repr, value))) < len(value):
            yield f"{where} must not hold anything twice"


def _expected(value: Any, rule: dict[str, Any]) -> str | None:
    """What a value itself should be and is not, whatever is in it; None if it is as it should."""
    if "const" in rule and (value != rule["const"] or isinstance(value, bool)):
        return repr(rule["const"])
    if "enum" in rule and value not in rule["enum"]:
        return "one of " + ", ".join(rule["enum"])
    kinds = rule.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is(value, kind) for kind in kinds):
        return " or ".join(_TYPES[kind][1] for kind in kinds)
    if isinstance(value, int | float):
        if "minimum" in rule and value < rule["minimum"]:
            return f"at least {rule['minimum']}"
        if "exclusiveMinimum" in rule and value <= rule["exclusiveMinimum"]:
            return f"more than {rule['exclusiveMinimum']}"
    if isinstance(value, list) and len(value) < rule.get("minItems", 0):
        return "a list that is not empty"
    return None


def _is(value: Any, kind: str) -> bool:
    """Whether a value is of a kind that JSON Schema names."""
    types, _ = _TYPES[kind]
    if not isinstance(value, types) or (isinstance(value, bool) and kind != "boolean"):
        return False
    try:
        return not isinstance(value, int | float) or kind == "integer" or math.isfinite(value)
    except OverflowError:  # a whole number that no float can hold
        return False


def _field(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
