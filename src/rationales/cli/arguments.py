"""Options that commands have in common, in groups: each group is a dataclass.

``command`` makes a function of such groups a command whose options are the fields of them all.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_type_hints

import typer

from rationales.errors import RationalesError
from rationales.methods import METHODS, check_method
from rationales.options import DEFAULT_MAX_EVALUATIONS, Options

if TYPE_CHECKING:
    from rationales.explainer import Explainer
    from rationales.model_files import Kind

WHAT, HOW, MODEL, OUT = "What to explain", "How to search", "Model", "Output"


def command(function: Callable[..., None]) -> Callable[..., None]:
    """The function as a command: a parameter that is a dataclass stands for its fields."""
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for name, kind in get_type_hints(function, include_extras=True).items():
        if name == "return":
            continue
        assert is_dataclass(kind)
        groups[name] = kind
        hints = get_type_hints(kind, include_extras=True)
        parameters += [
            inspect.Parameter(
                field.name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=field.default,
                annotation=hints[field.name],
            )
            for field in fields(kind)
        ]

    def run(**given: Any) -> None:
        function(
            **{
                name: kind(**{field.name: given[field.name] for field in fields(kind)})
                for name, kind in groups.items()
            }
        )

    run.__name__, run.__doc__ = function.__name__, function.__doc__
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


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
            "(- is standard input). Answers are JSON lines too.",
            rich_help_panel=WHAT,
        ),
    ] = None


@dataclass(frozen=True)
class Searching:
    """How rationales are searched for."""

    method: Annotated[
        str,
        typer.Option("--method", "-m", help=f"One of {', '.join(METHODS)}.", rich_help_panel=HOW),
    ] = Options.method
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
            help="Keep the B best subsets of each size (the method beam): never longer than "
            "greedy.",
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
            help="Enough is what makes the target more likely than this: why Tokyo, and not "
            '" Osaka"? Its first token counts.',
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
        float,
        typer.Option(
            "--lambda",
            metavar="L",
            help="What a token costs in the method soft, in nats.",
            rich_help_panel=HOW,
        ),
    ] = Options.penalty
    max_size: Annotated[
        int | None,
        typer.Option(
            help="Stop at rationales of this many tokens (or units).", rich_help_panel=HOW
        ),
    ] = None
    max_evaluations: Annotated[
        int,
        typer.Option(help="Budget of exhaustive search, for each target.", rich_help_panel=HOW),
    ] = DEFAULT_MAX_EVALUATIONS
    absolute: Annotated[
        bool,
        typer.Option(
            "--absolute", help="Order signed baselines by absolute value.", rich_help_panel=HOW
        ),
    ] = False
    seed: Annotated[int, typer.Option(help="Seed of the random control.", rich_help_panel=HOW)] = 0
    ig_steps: Annotated[
        int | None,
        typer.Option(
            help="Steps of integrated gradients; 100 if left out, 50 for a translation.",
            rich_help_panel=HOW,
        ),
    ] = None

    def options(self, **more: Any) -> Options:
        """These and other options, put together and checked."""
        if self.beam is not None and self.method not in ("greedy", "beam"):
            raise RationalesError(
                f"--beam is a method of its own: leave out --method {self.method}"
            )
        if self.ig_steps is not None:
            more["ig_steps"] = self.ig_steps
        return Options(
            method=check_method("beam" if self.beam is not None else self.method),
            fast=self.fast,
            minimal=self.minimal,
            beam=Options.beam if self.beam is None else self.beam,
            penalty=self.penalty,
            unit=cast(Literal["token", "word", "sentence"], self.unit),  # Options checks it
            coarse_to_fine=self.coarse_to_fine,
            criterion=self.criterion,
            instead_of=self.instead_of,
            disjoint=self.disjoint,
            span=self.span,
            max_size=self.max_size,
            max_evaluations=self.max_evaluations,
            absolute=self.absolute,
            seed=self.seed,
            **more,
        )


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
