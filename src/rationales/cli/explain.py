"""``rationales explain``: a text in, the rationale of each target out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from rationales.cli.output import Output
from rationales.cli.progress import Bar
from rationales.errors import RationalesError
from rationales.explainer import Explainer, Interrupted, Progress, Request, load
from rationales.methods import METHODS, check_method
from rationales.options import DEFAULT_MAX_EVALUATIONS, Options

EXAMPLES = """
[bold]Examples[/bold]\n
  rationales explain "The Supreme Court on Tuesday"\n
  rationales explain "The capital of Japan is Tokyo" --target last --steps 3\n
  rationales explain "What is the capital of France?" --chat --generate 12\n
  rationales explain "I live in France. I speak" --continuation " French" --model gpt2\n
  rationales explain "The capital of Japan is Tokyo" --target last --instead-of " Osaka"\n
  rationales explain --file report.txt --target last --unit word --fast --minimal\n
  rationales explain --file long.txt --target last --coarse-to-fine\n
  rationales explain --jsonl texts.jsonl --json rationales.jsonl
"""

_WHAT, _HOW, _MODEL, _OUT = "What to explain", "How to search", "Model", "Output"


def explain(  # a command's parameters are its options: they become dataclasses at once
    text: Annotated[
        str | None,
        typer.Argument(help="The text. Left out: --file, --jsonl, or standard input."),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            "-f",
            help="Read the text from a file (- is standard input).",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    jsonl: Annotated[
        str | None,
        typer.Option(
            help='Many texts: lines such as {"text": "…", "id": 7, "target": "last"} '
            "(- is standard input). Answers are JSON lines too.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    generate: Annotated[
        int,
        typer.Option(
            help="Explain this many tokens of the model's own continuation.", rich_help_panel=_WHAT
        ),
    ] = Options.generate,
    continuation: Annotated[
        str | None,
        typer.Option(
            help="Explain this continuation instead of the model's own.", rich_help_panel=_WHAT
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="Explain tokens of the text itself: all, last, an index (negative from "
            "the end) or a word (its last occurrence; WORD#2: its second).",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    chat: Annotated[
        bool,
        typer.Option(
            "--chat",
            help="Wrap the text in the model's chat template, whose own tokens are always kept.",
            rich_help_panel=_WHAT,
        ),
    ] = False,
    specials: Annotated[
        str,
        typer.Option(
            help="Special tokens that the tokenizer adds: pinned (always kept, not "
            "counted) or candidate.",
            rich_help_panel=_WHAT,
        ),
    ] = Options.specials,
    method: Annotated[
        str,
        typer.Option("--method", "-m", help=f"One of {', '.join(METHODS)}.", rich_help_panel=_HOW),
    ] = Options.method,
    fast: Annotated[
        bool,
        typer.Option(
            "--fast",
            help="Greedy search that scores a shortlist in most steps: several times faster, "
            "sometimes a token longer.",
            rich_help_panel=_HOW,
        ),
    ] = False,
    minimal: Annotated[
        bool,
        typer.Option(
            "--minimal",
            help="Then drop what is not needed, until nothing can go.",
            rich_help_panel=_HOW,
        ),
    ] = False,
    beam: Annotated[
        int | None,
        typer.Option(
            metavar="B",
            help="Keep the B best subsets of each size (the method beam): never longer than "
            "greedy.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    unit: Annotated[
        str,
        typer.Option(help="Add a token, a word or a sentence at a time.", rich_help_panel=_HOW),
    ] = Options.unit,
    coarse_to_fine: Annotated[
        bool,
        typer.Option(
            "--coarse-to-fine",
            help="For long texts: sentences first, then words in them, then tokens.",
            rich_help_panel=_HOW,
        ),
    ] = False,
    criterion: Annotated[
        str,
        typer.Option(
            help="When a subset is enough: argmax, top-k=K, prob=P or ratio=R (of the "
            "probability given everything).",
            rich_help_panel=_HOW,
        ),
    ] = Options.criterion,
    instead_of: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Enough is what makes the target more likely than this: why Tokyo, and not "
            '" Osaka"? Its first token counts.',
            rich_help_panel=_HOW,
        ),
    ] = None,
    disjoint: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Up to N rationales for each target, without a token in common.",
            rich_help_panel=_HOW,
        ),
    ] = Options.disjoint,
    span: Annotated[
        bool,
        typer.Option(
            "--span",
            help="One rationale for all the tokens of the target or continuation together.",
            rich_help_panel=_HOW,
        ),
    ] = False,
    penalty: Annotated[
        float,
        typer.Option(
            "--lambda",
            metavar="L",
            help="What a token costs in the method soft, in nats.",
            rich_help_panel=_HOW,
        ),
    ] = Options.penalty,
    max_size: Annotated[
        int | None,
        typer.Option(
            help="Stop at rationales of this many tokens (or units).", rich_help_panel=_HOW
        ),
    ] = None,
    max_evaluations: Annotated[
        int,
        typer.Option(help="Budget of exhaustive search, for each target.", rich_help_panel=_HOW),
    ] = DEFAULT_MAX_EVALUATIONS,
    absolute: Annotated[
        bool,
        typer.Option(
            "--absolute", help="Order signed baselines by absolute value.", rich_help_panel=_HOW
        ),
    ] = False,
    seed: Annotated[
        int, typer.Option(help="Seed of the random control.", rich_help_panel=_HOW)
    ] = 0,
    ig_steps: Annotated[
        int, typer.Option(help="Steps of integrated gradients.", rich_help_panel=_HOW)
    ] = Options.ig_steps,
    model: Annotated[
        str | None,
        typer.Option(
            help="A Hugging Face id, a local folder or a .gguf file; the default model if "
            "left out.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    adapter: Annotated[
        str | None,
        typer.Option(
            help="The folder of a compatibility adapter for the model; none leaves out the one "
            "that the default model comes with.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            help="float32, bfloat16, float16 or auto; float32 on a CPU if left out.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="cpu, cuda, cuda:1, mps …; a GPU if there is one.", rich_help_panel=_MODEL
        ),
    ] = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            help="Tokens in a forward pass at most: bounds the memory.", rich_help_panel=_MODEL
        ),
    ] = None,
    allow_pickle: Annotated[
        bool,
        typer.Option(
            "--allow-pickle",
            help="Load pickled weights too. They can run code: only from people you trust.",
            rich_help_panel=_MODEL,
        ),
    ] = False,
    steps: Annotated[
        int | None,
        typer.Option(
            metavar="[K]",
            help="Show how each rationale grew; with a number, the K best candidates of each step.",
            rich_help_panel=_OUT,
        ),
    ] = None,
    json_path: Annotated[
        str | None,
        typer.Option(
            "--json",
            metavar="FILE",
            help="Write JSON (- is standard output).",
            rich_help_panel=_OUT,
        ),
    ] = None,
) -> None:
    """Show which words of the context a language model needed for what it says."""
    if beam is not None and method not in ("greedy", "beam"):
        raise RationalesError(f"--beam is a method of its own: leave out --method {method}")
    method = check_method("beam" if beam is not None else method)
    options = Options(
        generate=generate,
        continuation=continuation,
        target=target,
        chat=chat,
        specials=cast(Literal["pinned", "candidate"], specials),  # Options checks it
        method=method,
        fast=fast,
        minimal=minimal,
        beam=Options.beam if beam is None else beam,
        penalty=penalty,
        unit=cast(Literal["token", "word", "sentence"], unit),  # and this
        coarse_to_fine=coarse_to_fine,
        criterion=criterion,
        instead_of=instead_of,
        disjoint=disjoint,
        span=span,
        max_size=max_size,
        max_evaluations=max_evaluations,
        absolute=absolute,
        keep_candidates=steps or 0,
        seed=seed,
        ig_steps=ig_steps,
    )
    requests = _requests(_Source(text, file, jsonl), options)
    with Output(json_path, lines=jsonl is not None, steps=steps is not None) as output:
        with Bar() as bar:
            bar.update("loading the model", 0, None)
            explainer = load(
                model,
                adapter=adapter,
                dtype=dtype,
                device=device,
                batch_tokens=batch_tokens,
                allow_pickle=allow_pickle,
                progress=bar.stage,
            )
        _run(explainer, requests, output)


@dataclass(frozen=True)
class _Source:
    """Where the text comes from: just one of these."""

    text: str | None
    file: str | None
    jsonl: str | None


def _requests(source: _Source, options: Options) -> Iterator[Request]:
    """The texts to explain; the first is read now, so that a missing file is known at once."""
    given = [value for value in (source.text, source.file, source.jsonl) if value is not None]
    if len(given) > 1:
        raise RationalesError("give one of a text, --file and --jsonl, not several")
    if source.jsonl is not None:
        return _from_lines(_read(source.jsonl), options)
    if source.text is not None:
        text = source.text
    elif source.file is not None:
        text = _read(source.file)
    elif not sys.stdin.isatty():
        text = _read("-")
    else:
        raise RationalesError('give a text: rationales explain "The Supreme Court on Tuesday"')
    # A file ends with a line break that is not part of the text.
    text = text if source.text is not None else text.rstrip("\r\n")
    if not text.strip():
        raise RationalesError("the text is empty: give at least one word")
    return iter([Request(text, options)])


def _read(path: str) -> str:
    try:
        if path == "-":
            return sys.stdin.read()
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise RationalesError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise RationalesError(
            f"cannot read {path}: it is not UTF-8 text ({error.reason})"
        ) from error


def _from_lines(text: str, options: Options) -> Iterator[Request]:
    """One request a line; every line is checked before the first is run."""
    requests = []
    # Not splitlines: a text may hold other line separators, which JSON leaves as they are.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict) or not isinstance(row.get("text"), str):
                raise RationalesError('expected an object with a "text"')
            if not isinstance(row.get("id"), str | int | None):
                raise RationalesError("the id must be a string or a whole number")
            own = {name: value for name, value in row.items() if name not in ("text", "id")}
            changed = options.change(**own)
            check_method(changed.method)
            requests.append(Request(row["text"], changed, row.get("id")))
        except (json.JSONDecodeError, TypeError, RationalesError) as error:
            raise RationalesError(f"line {number} of the JSON lines: {error}") from error
    if not requests:
        raise RationalesError("the JSON lines hold no text")
    return iter(requests)


def _run(explainer: Explainer, requests: Iterator[Request], output: Output) -> None:
    """Explain all requests; an interrupt still puts out what is finished."""
    with Bar() as bar:
        try:
            for explanation in explainer.explain_all(requests, on_progress=_teller(bar)):
                bar.stop()
                output.write(explanation)
        except Interrupted as interrupted:
            bar.stop()
            for explanation in interrupted.explanations:
                output.write(explanation)
            raise


def _teller(bar: Bar) -> Callable[[Progress], None]:
    def tell(progress: Progress) -> None:
        note = f"{progress.done}/{progress.total} targets · {progress.evaluations:,} subsets"
        bar.update("explaining", progress.done, progress.total, note)

    return tell
