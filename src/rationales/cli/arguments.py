"""Options that commands have in common, in groups: each group is a dataclass.

``command`` makes a function of such groups a command whose options are the fields of them all.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer
from typer.models import ParameterInfo

from rationales.errors import OptionError, RationalesError
from rationales.methods import METHODS
from rationales.option_rules import check_input
from rationales.options import DEFAULTS, Options, check_values
from rationales.ranking.factory import IG_STEPS, TRANSLATION_IG_STEPS, check_installed

if TYPE_CHECKING:
    from rationales.explainer import Explainer
    from rationales.models.files import Kind

WHAT, HOW, MODEL, OUT = "What to explain", "How to search", "Model", "Output"

TARGETS = (
    "all, last, an index (negative from the end), a range such as 3:7 (without token 7) or a list "
    "such as 3,7, or a word (its last occurrence; WORD#2: its second; 2024#1: a word that is a "
    "number)."
)
"""The end of a sentence: what a target may be."""


def command(function: Callable[..., None]) -> Callable[..., None]:
    """The function as a command: a parameter that is a dataclass stands for its fields.

    A field is an option: its name is the flag, the docstring under it the help, its type and its
    default those of the option. ``Annotated[…, typer.Option(…)]`` says what differs from that.
    """
    groups: dict[str, tuple[Any, list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    for name, kind in get_type_hints(function, include_extras=True).items():
        if name == "return":
            continue
        assert is_dataclass(kind)
        assert isinstance(kind, type)
        hints, docs = get_type_hints(kind, include_extras=True), field_docs(kind)
        # A field that is a dataclass itself keeps its default: it is no option.
        names = [f.name for f in fields(kind) if f.init and not is_dataclass(hints[f.name])]
        groups[name] = kind, names
        parameters += [
            inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=_default(each),
                annotation=_annotation(hints[each.name], each, docs.get(each.name)),
            )
            for each in fields(kind)
            if each.name in names
        ]

    def run(**given: Any) -> None:
        values = {n: tuple(v) if isinstance(v, list) else v for n, v in given.items()}
        function(
            **{
                name: kind(**{field: values[field] for field in names})
                for name, (kind, names) in groups.items()
            }
        )

    run.__name__, run.__doc__ = function.__name__, function.__doc__
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


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


def _default(each: Field[Any]) -> Any:
    """The default of an option, as typer wants it: a list for many values, or that it has none."""
    default = each.default
    if each.default_factory is not MISSING:
        default = each.default_factory()
    if default is MISSING:
        return inspect.Parameter.empty
    return list(default) if isinstance(default, tuple) else default


def _annotation(hint: Any, each: Field[Any], help_text: str | None) -> Any:
    """The type of a field as typer understands it, with the help that its docstring gives."""
    hint, *extras = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    given = next((copy(e) for e in extras if isinstance(e, ParameterInfo)), None)
    info = given if given is not None else typer.Option()
    if info.help is None:
        info.help = help_text
    if each.default is False and not info.param_decls:
        info.param_decls = (f"--{each.name.replace('_', '-')}",)  # without a --no-…
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


@dataclass(frozen=True)
class Texts:
    """Where the text comes from: just one of these."""

    text: Annotated[
        str | None,
        typer.Argument(help="The text. Left out: --file, --jsonl, or standard input."),
    ] = None
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            "-f",
            help="Read the text from a file (- is standard input).",
            rich_help_panel=WHAT,
        ),
    ] = None
    jsonl: Annotated[
        str | None,
        typer.Option(
            help='Many texts: lines such as {"text": "…", "id": 7, "target": "last"} '
            '(- is standard input). Answers are JSON lines too; {"line": 3, "error": "…"} for '
            "a line that fails.",
            rich_help_panel=WHAT,
        ),
    ] = None


@dataclass(frozen=True)
class Searching:
    """How rationales are searched for."""

    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            "-m",
            help=f"One of {', '.join(METHODS)}; greedy if left out.",
            rich_help_panel=HOW,
        ),
    ] = None
    fast: Annotated[
        bool,
        typer.Option(
            "--fast",
            help="Greedy search that scores a shortlist in most steps, and ends minimal: for "
            "long contexts and long rationales, where it is several times faster.",
            rich_help_panel=HOW,
        ),
    ] = False
    minimal: Annotated[
        bool,
        typer.Option(
            "--minimal",
            help="Then drop what is not needed, until nothing can go.",
            rich_help_panel=HOW,
        ),
    ] = False
    beam: Annotated[
        int | None,
        typer.Option(
            metavar="B",
            help="Keep the B best subsets of each size (the method beam, for which it is "
            f"{DEFAULTS['beam']} if left out): never longer than greedy.",
            rich_help_panel=HOW,
        ),
    ] = None
    unit: Annotated[
        str,
        typer.Option(help="Add a token, a word or a sentence at a time.", rich_help_panel=HOW),
    ] = Options.unit
    coarse_to_fine: Annotated[
        bool,
        typer.Option(
            "--coarse-to-fine",
            help="For long texts: sentences first, then words in them, then tokens.",
            rich_help_panel=HOW,
        ),
    ] = False
    language: Annotated[
        str | None,
        typer.Option(
            metavar="CODE",
            help="The language of the text, such as de, by which --unit sentence and "
            f"--coarse-to-fine find sentences; {DEFAULTS['language']} if left out.",
            rich_help_panel=HOW,
        ),
    ] = None
    criterion: Annotated[
        str,
        typer.Option(
            help="When a subset is enough: argmax, top-k=K, prob=P or ratio=R (of the "
            "probability given everything).",
            rich_help_panel=HOW,
        ),
    ] = Options.criterion
    instead_of: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Enough is what makes the target more likely than this: why she, and not "
            '" he"? Its first token counts.',
            rich_help_panel=HOW,
        ),
    ] = None
    disjoint: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Up to N rationales for each target, without a token in common.",
            rich_help_panel=HOW,
        ),
    ] = Options.disjoint
    span: Annotated[
        bool,
        typer.Option(
            "--span",
            help="One rationale for all the tokens of the target or continuation together.",
            rich_help_panel=HOW,
        ),
    ] = False
    penalty: Annotated[
        float | None,
        typer.Option(
            metavar="L",
            help=f"What a token costs in the method soft, in nats; {DEFAULTS['penalty']} if left "
            "out. --lambda is another name for it.",
            rich_help_panel=HOW,
        ),
    ] = None
    lambda_: Annotated[float | None, typer.Option("--lambda", hidden=True)] = None
    max_size: Annotated[
        int | None,
        typer.Option(
            help="Stop at rationales of this many tokens (or units).", rich_help_panel=HOW
        ),
    ] = None
    max_evaluations: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Subsets that exhaustive search tries for each target at most; "
            f"{DEFAULTS['max_evaluations']:,} if left out, 0: no limit.",
            rich_help_panel=HOW,
        ),
    ] = None
    absolute: Annotated[
        bool,
        typer.Option(
            "--absolute",
            help="Order gradient-x-embedding and integrated-gradients by absolute value.",
            rich_help_panel=HOW,
        ),
    ] = False
    seed: Annotated[
        int | None,
        typer.Option(
            help=f"Seed of the method random; {DEFAULTS['seed']} if left out.", rich_help_panel=HOW
        ),
    ] = None
    ig_steps: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help=f"Steps of integrated-gradients; {IG_STEPS} if left out, "
            f"{TRANSLATION_IG_STEPS} for a translation.",
            rich_help_panel=HOW,
        ),
    ] = None


@dataclass(frozen=True)
class Asked:
    """What a command asks of its texts: the options that were given, for one kind of model."""

    kind: Kind
    given: Mapping[str, Any]
    typed: Mapping[str, str] = field(default_factory=dict)
    """The flags of options that have two."""

    def options(self, line: Mapping[str, Any] | None = None) -> Options:
        """The options of a text, all that can be known checked; its line of JSON comes first.

        What is wrong is said of the names that were typed: flags, and the keys of the line.
        """
        line = line or {}
        try:
            options = Options().change(**{**self.given, **line})
            check_input(options, self.kind)
            check_installed(options.method)
        except OptionError as error:
            raise RationalesError(
                error.named(lambda name: name if name in line else self._flag(name))
            ) from error
        return options

    def check(self) -> None:
        """Raise if a flag has a value that is wrong whatever the lines of JSON say."""
        try:
            check_values(self.given)
        except OptionError as error:
            raise RationalesError(error.named(self._flag)) from error

    def _flag(self, name: str) -> str:
        return self.typed.get(name) or flag(name)


def asked(kind: Kind, printing: Printing, *groups: Any) -> Asked:
    """What these groups of options ask for: the fields that are not as they are if left out."""
    given: dict[str, Any] = {
        each.name: value
        for group in groups
        for each in fields(group)
        if (value := getattr(group, each.name)) != each.default
    }
    typed: dict[str, str] = {}
    if "lambda_" in given:
        if "penalty" in given:
            raise RationalesError("--penalty and --lambda are the same option: leave out one")
        given["penalty"], typed = given.pop("lambda_"), {"penalty": "--lambda"}
    if printing.steps:
        given["keep_candidates"] = printing.steps
    found = Asked(kind, given, typed)
    found.check()
    return found


def flag(name: str) -> str:
    """How an option is typed on the command line."""
    return "the K of --steps" if name == "keep_candidates" else f"--{name.replace('_', '-')}"


@dataclass(frozen=True)
class Model:
    """Which model, and how it is run."""

    model: Annotated[
        str | None,
        typer.Option(
            help="A Hugging Face id, a local folder or a .gguf file; the default model if "
            "left out.",
            rich_help_panel=MODEL,
        ),
    ] = None
    dtype: Annotated[
        str | None,
        typer.Option(
            help="float32, bfloat16, float16 or auto; float32 on a CPU if left out.",
            rich_help_panel=MODEL,
        ),
    ] = None
    device: Annotated[
        str | None,
        typer.Option(
            help="cpu, cuda, cuda:1, mps …; a GPU if there is one.", rich_help_panel=MODEL
        ),
    ] = None
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            help="Tokens in a forward pass at most: bounds the memory.", rich_help_panel=MODEL
        ),
    ] = None
    allow_pickle: Annotated[
        bool,
        typer.Option(
            "--allow-pickle",
            help="Load pickled weights too. They can run code: only from people you trust.",
            rich_help_panel=MODEL,
        ),
    ] = False

    def check(self, adapter: str | None = None) -> None:
        """Raise for what can be known to be wrong before anything is loaded."""
        from rationales.compat.adapter import check_adapter
        from rationales.explainer import DEFAULT_ADAPTER
        from rationales.models import check_arguments

        if self.batch_tokens is not None and self.batch_tokens < 1:
            raise OptionError(
                "{batch_tokens} must be at least 1, not {value}", value=self.batch_tokens
            )
        check_arguments(self.model, self.dtype, self.device)
        if adapter not in (None, "none", DEFAULT_ADAPTER):
            check_adapter(adapter)

    def load(
        self,
        kind: Kind,
        adapter: str | None = None,
        progress: Callable[[str, float], None] | None = None,
    ) -> Explainer:
        """The explainer of this model, which must be of that kind."""
        from rationales.explainer import load

        return load(
            self.model,
            adapter=adapter,
            dtype=self.dtype,
            device=self.device,
            batch_tokens=self.batch_tokens,
            allow_pickle=self.allow_pickle,
            progress=progress,
            kind=kind,
        )


@dataclass(frozen=True)
class Printing:
    """What is put out, and where."""

    steps: Annotated[
        int | None,
        typer.Option(
            metavar="[K]",
            help="Show how each rationale grew; with a number, the K best candidates of each step.",
            rich_help_panel=OUT,
        ),
    ] = None
    json_path: Annotated[
        str | None,
        typer.Option(
            "--json",
            metavar="FILE",
            help="Write JSON (- is standard output).",
            rich_help_panel=OUT,
        ),
    ] = None
    format: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="What is printed: table, tsv (tab-separated lines) or json. Left out: a table in "
            "a terminal, tsv in a pipe, JSON lines for --jsonl unless --json has a file.",
            rich_help_panel=OUT,
        ),
    ] = None
