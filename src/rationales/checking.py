"""Values against the types of a dataclass, and what is wrong with them in plain words.

A dataclass says what its fields take: types, ``Literal`` choices, bounds such as ``Ge(1)`` from
``annotated_types``. Pydantic checks them; this module turns what it finds into one line. Pydantic
is imported when something is checked, not before: ``rationales --help`` does without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, get_type_hints

from rationales.errors import OptionError, given

if TYPE_CHECKING:
    from pydantic import ConfigDict, TypeAdapter, ValidationError
    from pydantic_core import ErrorDetails

_WORDS = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "string_type": "a text",
    "float_type": "a number",
    "finite_number": "a finite number",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
    "dataclass_type": "an object",
    "none_required": "null",
    "path_type": "a path",
    "too_short": "a list that is not empty",
    "callable_type": "a function",
    "predicate_failed": "one of the known values",
    "greater_than_equal": "at least {ge:g}",
    "greater_than": "more than {gt:g}",
    "less_than_equal": "at most {le:g}",
    "less_than": "less than {lt:g}",
    "literal_error": "{expected}",
}
"""What was expected, by the type of Pydantic's error."""


@dataclass(frozen=True)
class Expected:
    """In an annotation: how a message names what a field takes, where its type is no answer."""

    words: str


def check_values(of: type, values: Mapping[str, Any]) -> None:
    """Raise ``OptionError`` for the first value that its field of a class cannot have.

    The class is a dataclass or a ``TypedDict``.
    """
    from pydantic import ValidationError

    for name, value in values.items():
        try:
            _adapter(of, name).validate_python(value, strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            if first["type"] == "string_unicode":  # where the text is read, the place is named
                continue
            metadata = getattr(_hints(of)[name], "__metadata__", ())
            expected = next((each.words for each in metadata if isinstance(each, Expected)), None)
            if first["type"] == "string_too_short":
                what = f"is empty: give {expected or 'a text'}, or leave it out"
                raise OptionError(f"{{{name}}} {what}") from error
            template = f"{{{name}}} must be {expected or described(first)}, not {{value}}"
            raise OptionError(template, value=given(value)) from error


def check_fields(instance: Any) -> None:
    """Raise ``OptionError`` for the first field of a dataclass whose value its type excludes."""
    values = {field.name: getattr(instance, field.name) for field in fields(instance)}
    check_values(type(instance), values)


def located(error: ValidationError, data: Any) -> str:
    """What is wrong with JSON data, in one line: the field, what was expected, what was found."""
    first = error.errors()[0]
    where, value = "", data
    for key in first["loc"]:
        try:
            value = value[key]
        except (LookupError, TypeError):
            if first["type"] == "missing":
                where = f"{where}.{key}" if where else str(key)
            break  # the rest names a member of a union
        where += f"[{key}]" if isinstance(key, int) else f".{key}" if where else str(key)
    if first["type"] == "missing":
        return f"{where} is missing"
    same = [each for each in error.errors() if _path(each) == _path(first)]
    expected = " or ".join(dict.fromkeys(described(each) for each in same))
    return f"{where} must be {expected}, not {given(value)}"


def described(error: ErrorDetails) -> str:
    """What was expected instead, as the end of "must be …"."""
    words = _WORDS.get(error["type"])
    return words.format(**error.get("ctx", {})).replace("'", "") if words else error["msg"]


def _path(error: ErrorDetails) -> Sequence[int | str]:
    """Where an error is, without the member of a union that it speaks of."""
    loc = error["loc"]
    return loc[:-1] if loc and loc[-1] in ("str", "int", "float", "bool") else loc


@cache
def _hints(of: type) -> dict[str, Any]:
    return get_type_hints(of, include_extras=True)


@cache
def _adapter(of: type, name: str) -> TypeAdapter[Any]:
    """What checks a field."""
    from pydantic import TypeAdapter

    hint = _hints(of)[name]
    finite: ConfigDict = {"allow_inf_nan": False}  # a dataclass has a configuration of its own
    return TypeAdapter(hint, config=None if is_dataclass(hint) else finite)
