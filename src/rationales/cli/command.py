"""Dataclasses → commands: the fields are the options, the docstrings under them the help."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from copy import copy
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand
from typer.models import ParameterInfo


def command(function: Callable[..., None], **made: type) -> Callable[..., None]:
    """The function as a command: a parameter that is a dataclass stands for its fields.

    A field is an option: its name is the flag, the docstring under it the help, its type and its
    default those of the option. ``Annotated[…, typer.Option(…)]`` says what differs from that.
    ``made`` are the dataclasses of parameters that were made at run time.
    """
    groups: dict[str, Any] = get_type_hints(function, include_extras=True) | made
    groups.pop("return", None)
    parameters: list[inspect.Parameter] = []
    names: dict[str, list[str]] = {}
    for group, kind in groups.items():
        hints, docs = get_type_hints(kind, include_extras=True), field_docs(kind)
        # A field that is a dataclass itself keeps its default: it is no option.
        options = [f for f in fields(kind) if f.init and not is_dataclass(hints[f.name])]
        names[group] = [each.name for each in options]
        parameters += [
            inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if each.default is MISSING else each.default,
                annotation=_annotation(hints[each.name], each, docs.get(each.name)),
            )
            for each in options
        ]

    def run(**given: Any) -> None:
        values = {n: tuple(v) if isinstance(v, list) else v for n, v in given.items()}
        function(
            **{
                group: kind(**{name: values[name] for name in names[group]})
                for group, kind in groups.items()
            }
        )

    run.__name__, run.__doc__ = function.__name__, function.__doc__
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def add_late(app: typer.Typer, name: str, about: str, make: Callable[[], typer.Typer]) -> None:
    """Add a command, or a group of them, that is made when it is used: so ``--help`` is quick."""

    class Late(TyperCommand):
        def make_context(self, *arguments: Any, **more: Any) -> Any:
            made = typer.main.get_command(make())
            made.help = about
            return made.make_context(*arguments, **more)

    app.command(name, cls=Late, help=about)(lambda: None)


def flag(name: str) -> str:
    """How an option is typed on the command line."""
    return "the K of --steps" if name == "keep_candidates" else f"--{name.replace('_', '-')}"


def field_docs(kind: type) -> dict[str, str]:
    """The docstrings under the fields of a class and of its bases, each as one line of help.

    Empty where there is no source to read, as in a frozen application.
    """
    docs: dict[str, str] = {}
    for each in reversed(kind.__mro__[:-1]):
        for node, after in pairwise(_class_bodies(each.__module__).get(each.__qualname__, ())):
            match node, after:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    docs[name] = " ".join(text.replace("``", "").split())
    return docs


@cache
def _class_bodies(module: str) -> dict[str, list[ast.stmt]]:
    """The statements of each class of a module, by its name."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):
        return {}
    return {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}


def _annotation(hint: Any, each: Field[Any], help_text: str | None) -> Any:
    """The type of a field as typer understands it, with the help that its docstring gives."""
    hint, *extras = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    given = next((copy(e) for e in extras if isinstance(e, ParameterInfo)), None)
    info = given if given is not None else typer.Option()
    if info.help is None:
        info.help = help_text
    # The first flag that typer.Option is given is, to typer, its default.
    if each.default is False and not info.param_decls and not isinstance(info.default, str):
        info.param_decls = (flag(each.name),)  # without a --no-…
    return Annotated[_plain(hint), info]


def _plain(hint: Any) -> Any:
    """A type as typer takes it: no annotations inside it, and a list for a tuple of any length."""
    arguments = get_args(hint)
    if get_origin(hint) is Annotated:
        return _plain(arguments[0])
    if get_origin(hint) in (Union, UnionType):
        # What may be a text or a path is a path: typer takes one type.
        one = [_plain(each) for each in arguments if each is not str or Path not in arguments]
        return Union[tuple(one)]  # noqa: UP007  # of a tuple
    if get_origin(hint) is tuple and arguments[1:] == (...,):
        return list[_plain(arguments[0])]  # type: ignore[misc]  # a type that is known here only
    return hint
