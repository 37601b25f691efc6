"""Options that commands share, in groups: each is a dataclass, whose fields are options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, make_dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_type_hints

import typer

from rationales.cli.command import field_docs, flag
from rationales.cli.progress import Bar
from rationales.cli.starting import uncollected
from rationales.errors import OptionError, RationalesError
from rationales.methods import METHODS
from rationales.options import NOT_FOR, Options, check_input, check_option_values

if TYPE_CHECKING:
    from rationales.explainer import Explainer
    from rationales.models.files import Kind

NO_ADAPTER = "none"
"""What ``--adapter`` is given to leave out the default model's adapter."""

WHAT, HOW, OUT = "What to explain", "How to search", "Output"
OF_MODEL = typer.Option(rich_help_panel="Model")
OF_ENDPOINT = typer.Option(rich_help_panel="Endpoint")

_OF_WHAT = {"generate", "continuation", "target", "chat", "specials", *NOT_FOR["causal"]}
_FLAGS = {"method": ("--method", "-m"), "penalty": ("--penalty", "--lambda")}
_METAVARS = {"language": "CODE", "instead_of": "TEXT", "beam": "B", "penalty": "L"}
_METAVARS |= dict.fromkeys(("generate", "disjoint", "max_evaluations", "ig_steps"), "N")


def option_group(kind: Literal["causal", "seq2seq"] | None = None) -> type:
    """The fields of ``Options`` that this kind of model reads, as a group of options; None: all."""
    hints, docs, made = get_type_hints(Options), field_docs(Options), []
    for each in fields(Options):
        # The first is --steps K, the second a list of pairs.
        if (kind and each.name in NOT_FOR[kind]) or each.name in ("keep_candidates", "units"):
            continue
        info = typer.Option(
            *_FLAGS.get(each.name, (flag(each.name),)),
            help=docs.get(each.name, "").replace("METHODS", f"one of {', '.join(METHODS)}"),
            metavar=_METAVARS.get(each.name),
            rich_help_panel=WHAT if each.name in _OF_WHAT else HOW,
        )
        made.append(
            (each.name, Annotated[_typed(hints[each.name]), info], field(default=each.default))
        )
    return make_dataclass(f"{kind or 'all'}_options", made, frozen=True)


@dataclass(frozen=True)
class Question:
    """What a command asks of its texts: the options that were given, for one kind of model."""

    kind: Kind
    given: Mapping[str, Any]

    @classmethod
    def of(cls, kind: Kind, group: Any, steps: int | None) -> Question:
        """The question of a group of options: those that differ from what they are if left out."""
        defaults = {each.name: each.default for each in fields(group)}
        given = {name: v for name, v in vars(group).items() if v != defaults[name]}
        if steps:
            given["keep_candidates"] = steps
        check_option_values(given)
        return cls(kind, given)

    def options(self, line: Mapping[str, Any] | None = None) -> Options:
        """The options of a text, checked before a model is loaded; its line of JSON comes first."""
        own = line or {}
        try:
            options = Options().change(**{**self.given, **own})
            check_input(options, self.kind)
        except OptionError as error:
            # Options are named as they were typed: by their flags, or by the keys of the line.
            said = error.named(lambda name: name if name in own else flag(name))
            raise RationalesError(said) from error
        return options


def _typed(hint: Any) -> Any:
    """The type by which typer reads an option of this type.

    Choices and targets are texts: ``Options`` says what is wrong with them.
    """
    members = {*(get_args(hint) or (hint,))} - {type(None)}
    if members in ({int}, {float}):
        return members.pop() | None
    return bool if hint is bool else str | None


@dataclass(frozen=True)
class Texts:
    """Where the text comes from: just one of these."""

    text: Annotated[str | None, typer.Argument()] = None
    """The text. If left out: --file, --jsonl, or standard input."""
    file: Annotated[str | None, typer.Option("--file", "-f", rich_help_panel=WHAT)] = None
    """Read the text from a file (- is standard input)."""
    jsonl: Annotated[str | None, typer.Option(rich_help_panel=WHAT)] = None
    """Many texts: lines such as {"text": "…", "id": 7, "target": "last"} (- is standard input).
    Answers are JSON lines too; {"line": 3, "error": "…"} for a line that fails."""

    @property
    def files(self) -> list[str]:
        """All files that are read."""
        return [path for path in (self.file, self.jsonl) if path is not None]


@dataclass(frozen=True)
class Prompts(Texts):
    """Where the text comes from, if it may be a conversation, or documents and a question."""

    messages: Annotated[str | None, typer.Option(metavar="FILE", rich_help_panel=WHAT)] = None
    """A conversation: a JSON file such as [{"role": "user", "content": "…"}]. What the chat
    template adds is pinned, and so is a message with "pinned": true."""
    documents: Annotated[tuple[str, ...], typer.Option(metavar="FILE …", rich_help_panel=WHAT)] = ()
    """Documents: text files, or .jsonl files of {"text": …, "title": …}; may be repeated."""
    question: Annotated[str, typer.Option(rich_help_panel=WHAT)] = ""
    """The question about the documents, which is pinned."""
    template: Annotated[str | None, typer.Option(metavar="FILE", rich_help_panel=WHAT)] = None
    """The prompt: a text file with {documents} and {question} in it."""
    search_question: Annotated[bool, typer.Option(rich_help_panel=WHAT)] = False
    """Search in the question too."""

    @property
    def files(self) -> list[str]:
        more = [path for path in (self.messages, self.template) if path is not None]
        return [*super().files, *self.documents, *more]


@dataclass(frozen=True)
class Model:
    """Which model, and how it is run."""

    model: Annotated[str | None, OF_MODEL] = None
    """A Hugging Face id, a local folder or a .gguf file; the default model if left out."""
    revision: Annotated[str | None, OF_MODEL] = None
    """A branch, tag or commit of the Hugging Face id."""
    dtype: Annotated[str | None, OF_MODEL] = None
    """float32, bfloat16, float16 or auto; float32 on a CPU if left out."""
    device: Annotated[str | None, OF_MODEL] = None
    """cpu, cuda, cuda:1, mps …; a GPU if there is one."""
    batch_tokens: Annotated[int | None, OF_MODEL] = None
    """At most this many tokens in a forward pass: bounds the memory."""
    allow_pickle: Annotated[bool, OF_MODEL] = False
    """Load pickled weights too. They can run code: only from sources you trust."""

    @property
    def options(self) -> dict[str, Any]:
        """What ``load`` is given beside the name."""
        given = {name: value for name, value in vars(self).items() if name != "model"}
        return given | {"adapter": False} if given.get("adapter") == NO_ADAPTER else given

    def check(self) -> None:
        """Raise for what is known to be wrong before anything is loaded."""
        from rationales.compat.adapter import check_adapter
        from rationales.loading import adapter_folder
        from rationales.models.loading import check_arguments

        check_arguments(self.model, **self.options)
        if isinstance(adapter := self.options.get("adapter"), str):
            check_adapter(adapter_folder(adapter))

    def load(self, kind: Kind) -> Explainer:
        """The explainer of this model, which must be of that kind, with a spinner meanwhile."""
        from rationales.loading import load

        with Bar() as bar, uncollected():
            bar.update("loading the model", 0, None)
            return load(self.model, kind=kind, progress=bar.loading, **self.options)


@dataclass(frozen=True)
class CausalModel(Model):
    """Which language model, with its adapter."""

    adapter: Annotated[str | None, OF_MODEL] = None
    """The folder of a compatibility adapter for the model; none leaves out the one that the default
    model comes with."""
    endpoint: Annotated[str | None, OF_ENDPOINT] = None
    """Instead of a model here: the address of a server that speaks the OpenAI protocol, such as
    http://127.0.0.1:8080/v1. A key is read from the environment: RATIONALES_ENDPOINT_KEY."""
    endpoint_model: Annotated[str | None, OF_ENDPOINT] = None
    """Which of the endpoint's models, if it has several."""
    budget: Annotated[int | None, typer.Option(metavar="N", rich_help_panel="Endpoint")] = None
    """Send at most this many requests, and report the best found so far."""
    repeat: Annotated[int | None, typer.Option(metavar="N", rich_help_panel="Endpoint")] = None
    """Send each request this many times and take the majority, if the endpoint is not
    deterministic."""


@dataclass(frozen=True)
class Printing:
    """What is put out, and where."""

    steps: Annotated[int | None, typer.Option(metavar="[K]", rich_help_panel=OUT)] = None
    """Show how each rationale grew; with a number, the K best candidates of each step."""
    json_path: Annotated[
        str | None, typer.Option("--json", metavar="FILE", rich_help_panel=OUT)
    ] = None
    """Write JSON (- is standard output)."""
    html: Annotated[str | None, typer.Option(metavar="FILE", rich_help_panel=OUT)] = None
    """Write an HTML page in which words can be clicked; it opens offline."""
    plot: Annotated[str | None, typer.Option(metavar="FILE", rich_help_panel=OUT)] = None
    """Draw a figure of one text: a .png, .svg or .pdf file."""
    plot_kind: Annotated[
        Literal["matrix", "steps", "candidates"], typer.Option(rich_help_panel=OUT)
    ] = "matrix"
    """What is drawn: targets and what was kept for them (matrix); how a rationale grew (steps); the
    candidates of a step, with --steps K (candidates)."""
    format: Annotated[
        Literal["table", "tsv", "json"] | None,
        typer.Option(metavar="FORMAT", rich_help_panel=OUT),
    ] = None
    """What is printed: table, tsv (tab-separated lines) or json. If left out: a table in a
    terminal, tsv in a pipe, JSON lines for --jsonl unless --json has a file."""
