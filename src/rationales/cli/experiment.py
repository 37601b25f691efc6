"""``rationales experiment``: the paper's tables and figures, one command each.

The options of a command are the fields of its experiment's ``Settings``, read when the command is
used: so ``--help`` imports no experiment but its own.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from rationales.cli.arguments import CausalModel, Model
from rationales.cli.command import add_late, command
from rationales.cli.progress import Bar
from rationales.errors import RationalesError

app = typer.Typer(add_completion=False, no_args_is_help=True)
EXAMPLE = "Example: rationales experiment {0} --out runs/{0}"


@dataclass(frozen=True)
class Given:
    """What every experiment is given beside its settings."""

    out: Annotated[Path, typer.Option(metavar="DIR")]
    """The folder of the run. The same command again goes on where it stopped."""
    overwrite: bool = False
    """Replace a run of other settings that the folder holds."""


@dataclass(frozen=True)
class Text(Given):
    """The text of ``the``."""

    text: Path | None = None
    """An English text to learn from; WikiText-2 in RATIONALES_DATA if left out."""


@dataclass(frozen=True)
class Language(Given):
    """Which language model is explained."""

    model: str | None = None
    """A Hugging Face id, a folder or a .gguf file; the default model if left out."""
    adapter: str | None = None
    """The folder of a compatibility adapter, or none; the default model's own if left out."""


@dataclass(frozen=True)
class Annotations(Language):
    """A language model, and the annotations of ``lambada``."""

    annotations: Annotated[Path | None, typer.Option(metavar="FILE")] = None
    """Annotated passages of your own, such as rationales annotate export writes; the released
    ones in RATIONALES_DATA if left out."""


@dataclass(frozen=True)
class Exhaustive(Language):
    """A language model, and whether to search exhaustively."""

    exhaustive: Annotated[bool, typer.Option("--exhaustive/--no-exhaustive")] = True
    """Search all small subsets too (hours)."""


@dataclass(frozen=True)
class Translation(Given):
    """Which translation model is explained, and on which data."""

    model: str | None = None
    """A translation model: a Hugging Face id or a folder; the packaged one if left out."""
    folder: Annotated[Path | None, typer.Option("--data", metavar="DIR")] = None
    """The folder of the data, in the format of --format; that of RATIONALES_DATA if left out."""


@dataclass(frozen=True)
class Alignments(Translation):
    """A translation model, data, and a column of the table of ``alignments``."""

    paper_aer: bool = False
    """Add the error rate of the paper, in which sure links are not possible ones."""


@dataclass(frozen=True)
class Every(Exhaustive):
    """The options of ``all``."""

    limit: int | None = None
    """Only N examples of each experiment, drawn at random."""
    methods: tuple[str, ...] | None = None
    """Only these methods, separated by commas: greedy,all-attention."""
    translator: str | None = None
    """The translation model of distractors and alignments; the packaged one if left out."""
    skip: tuple[str, ...] = ()
    """Leave one out (majority, the, agreement, lambada, reveal, efficiency, distractors or
    alignments); may be repeated."""
    seed: int = 0
    """Seed of everything that is random."""


@dataclass(frozen=True)
class Experiment:
    """An experiment as a command: its help, where its module is, and what it is given."""

    help: str
    path: str
    given: type[Given] = Given

    @property
    def module(self) -> Any:
        """The module, with ``Settings``, ``run`` and ``report``, imported when it is needed."""
        return import_module(f"rationales.experiments.{self.path}")

    def check_data(self) -> None:
        """Raise if a data file of the experiment is missing."""
        from rationales.data import data_file

        for name in getattr(self.module, "DATA", ()):
            data_file(name)

    def within(self, every: Every, name: str) -> tuple[Given, Any]:
        """What this experiment is given within ``all``, and its settings."""
        from rationales.experiments.methods import LABELS, split_names

        made, values = self.module.Settings, asdict(every) | {"out": every.out / name}
        if issubclass(self.given, Translation):
            values["model"] = every.translator
        known = {*getattr(made, "known", ())}
        if not known <= {*LABELS}:
            values["methods"] = None  # efficiency has methods of its own
        elif every.methods is not None:  # a name that no experiment knows is left, and refused
            names = split_names(every.methods)
            values["methods"] = tuple(n for n in names if n in known or n not in LABELS)
        given, settings = (
            kind(**{f.name: v for f in fields(kind) if (v := values.get(f.name)) is not None})
            for kind in (self.given, made)
        )
        return given, settings

    def run(self, given: Given, settings: Any) -> None:
        """Run the experiment and print its tables."""
        from rationales.runs import PARTS, seconds_in

        keywords = asdict(given)
        if not keywords.pop("exhaustive", True):
            settings = replace(settings, exhaustive_size=0)
        if not any(map(keywords.get, ("text", "folder", "annotations"))):
            self.check_data()  # otherwise the user's own data are read
        if "model" in keywords:
            name = keywords.pop("model")
            keywords["explainer"] = (
                CausalModel(name, adapter=keywords.get("adapter")).load("causal")
                if isinstance(given, Language)
                else Model(name).load("seq2seq")
            )
        with Bar() as bar:
            results = self.module.run(settings=settings, progress=bar.update, **keywords)
        typer.echo(self.module.report(results).rstrip("\n"))
        for name, what in (("lines", "rationales"), ("exhaustive", "exhaustive search")):
            if seconds := seconds_in(given.out.expanduser() / PARTS / f"{name}.jsonl"):
                typer.echo(f"{what}: {seconds / 60:.1f} minutes, over all runs", err=True)
        typer.echo(f"table, data and figures are in {given.out}", err=True)


EXPERIMENTS = {
    "majority": Experiment(
        "Calibration on the majority language, with and without word dropout (fifteen minutes).",
        "toys.majority",
    ),
    "the": Experiment(
        'How probable "the" is after "the" alone, before and after fine-tuning (fifteen minutes).',
        "toys.repetition",
        Text,
    ),
    "agreement": Experiment(
        "Long-range agreement: antecedents and distractors, every method, with and without "
        "adapter.",
        "language.agreement",
        Exhaustive,
    ),
    "lambada": Experiment(
        "Annotated Lambada: rationales against human annotations, every method.",
        "language.lambada",
        Annotations,
    ),
    "reveal": Experiment(
        "The model guesses the last word from an annotator's words, shown one by one.",
        "language.reveal",
        Language,
    ),
    "efficiency": Experiment(
        "The cost of a rationale in seconds and tokens, and how it grows with the context.",
        "language.efficiency",
        Exhaustive,
    ),
    "distractors": Experiment(
        "Two sentences translated as one: do rationales stay with their own sentence?",
        "translation.distractors",
        Translation,
    ),
    "alignments": Experiment(
        "Gold word alignments: are a rationale's source words those of the human alignment?",
        "translation.alignments",
        Alignments,
    ),
}
"""The experiments, in the order in which ``rationales experiment all`` runs them."""


def everything(every: Every) -> None:
    """Everything there is, each in a folder of its own, and one report.html over all of it."""
    from rationales.experiments import report
    from rationales.models.loading import packaged_translator

    for name in every.skip:
        if name not in EXPERIMENTS:
            known = ", ".join(EXPERIMENTS)
            raise RationalesError(f"there is no experiment {name!r} to skip: choose from {known}")
    planned: dict[str, tuple[Given, Any]] = {}
    for name, experiment in EXPERIMENTS.items():
        if name in every.skip:
            continue
        is_translation = issubclass(experiment.given, Translation)
        try:
            experiment.check_data()
            if is_translation and every.translator is None:
                packaged_translator()
            planned[name] = experiment.within(every, name)
        except RationalesError as error:
            if not is_translation:
                raise
            typer.echo(f"{name} is skipped: {error}", err=True)
    if not planned:
        raise RationalesError("all experiments are skipped: leave one in")
    for number, (name, (given, settings)) in enumerate(planned.items(), start=1):
        typer.echo(f"{name} ({number} of {len(planned)})", err=True)
        EXPERIMENTS[name].run(given, settings)
    typer.echo(f"the report is {report.write(every.out, list(planned))}", err=True)


def _app(name: str) -> typer.Typer:
    """The command of an experiment, which imports its module."""
    experiment, made = EXPERIMENTS[name], typer.Typer(add_completion=False)
    run = command(experiment.run, given=experiment.given, settings=experiment.module.Settings)
    made.command(epilog=EXAMPLE.format(name))(run)
    return made


for _name, _experiment in EXPERIMENTS.items():
    add_late(app, _name, _experiment.help, partial(_app, _name))
app.command("all", epilog=EXAMPLE.format("all"))(command(everything))
