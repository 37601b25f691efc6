"""``rationales experiment distractors`` and ``alignments``: the paper's tables on translation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rationales.cli.experiment_options import (
    Limit,
    MaxSize,
    Methods,
    Out,
    Overwrite,
    Seed,
    Steps,
    method_names,
    run_experiment,
)

Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="A translation model: a Hugging Face id or a folder; the packaged one if not.",
    ),
]


def distractors(
    out: Out,
    model: Model = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="A folder with the sentences; Tatoeba's in RATIONALES_DATA if not.",
        ),
    ] = None,
    format: Annotated[
        str,
        typer.Option("--format", help="How they are written: tatoeba (en-fr.tsv) or iwslt14."),
    ] = "tatoeba",
    limit: Limit = None,
    methods: Methods = None,
    ig_steps: Steps = 50,
    max_size: MaxSize = 20,
    seed: Seed = 0,
    overwrite: Overwrite = False,
) -> None:
    """Two sentences translated as one: do rationales stay with their own sentence?"""
    from rationales.experiments.translation import distractors as experiment

    settings = experiment.Settings(
        limit, method_names(methods), seed, ig_steps, max_size or None, format
    )
    run_experiment(experiment, out, settings, model, overwrite, kind="seq2seq", folder=data)


def alignments(
    out: Out,
    model: Model = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="A folder of aligned sentences; the Hansards in RATIONALES_DATA if not.",
        ),
    ] = None,
    format: Annotated[
        str,
        typer.Option("--format", help="How they are written: hansards, europarl or rwth."),
    ] = "hansards",
    paper_aer: Annotated[
        bool,
        typer.Option(
            "--paper-aer", help="Also the error rate with sure links that are not possible ones."
        ),
    ] = False,
    limit: Limit = None,
    methods: Methods = None,
    ig_steps: Steps = 50,
    max_size: MaxSize = 20,
    seed: Seed = 0,
    overwrite: Overwrite = False,
) -> None:
    """Gold word alignments: are a rationale's source words those that people align?"""
    from rationales.experiments.translation import alignments as experiment

    settings = experiment.Settings(
        limit, method_names(methods), seed, ig_steps, max_size or None, format
    )
    run_experiment(
        experiment,
        out,
        settings,
        model,
        overwrite,
        kind="seq2seq",
        folder=data,
        paper_aer=paper_aer,
    )
