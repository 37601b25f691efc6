"""What a search found: steps, a rationale, and the explanation of a whole text.

These are values: frozen, comparable, hashable. Their fields are the one definition of the JSON
format: ``schema.py`` reads and writes them, and ``schema.json`` is generated from them. They hold
no model and draw no pictures.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge, MinLen

from rationales.context import DESCRIBED, Part, Token
from rationales.errors import MissingExtraError, RationalesError, cannot

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


class _NullIsImpossible:
    """In JSON, null stands for the log-probability −∞, which JSON has no number for."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema as core

        return core.no_info_before_validator_function(
            lambda value: -math.inf if value is None else value,
            core.float_schema(),
            serialization=core.plain_serializer_function_ser_schema(
                lambda value: None if value == -math.inf else value
            ),
        )

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"type": ["number", "null"]}


Logprob = Annotated[float, _NullIsImpossible()]
Index = Annotated[int, Ge(0)]
Stopped = Literal["max-size", "budget"]
Unit = Annotated[tuple[Index, ...], MinLen(1)]


@dataclass(frozen=True)
class Candidate:
    """A token or unit that could have been added at a step, and what it would have led to."""

    index: Index
    """The index of the token; of a larger unit, of its last token."""
    target_logprob: Logprob
    """The target's log-probability with it, in nats; null: the target is impossible."""
    unit: Unit | None = None
    """All tokens of the unit, if it has several (a word)."""
    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED


@dataclass(frozen=True)
class Step:
    """The state after one token or unit was added."""

    index: Index | None
    """The index of the token that was added; of a larger unit, of its last token. Null if none was
    added: only pinned tokens are kept, or the full context is."""
    target_logprob: Logprob
    """The target's log-probability then, in nats; null: the target is impossible."""
    prediction_id: Index
    """The id of the model's most likely next token then."""
    prediction_logprob: float | None = None
    """The log-probability of that token, if the scorer tells it."""
    prediction_text: str | None = None
    """The text of that token."""
    candidates: tuple[Candidate, ...] = ()
    """The best of those that were tried, if they were recorded."""
    unit: Unit | None = None
    """All tokens that were added, if they are several (a word)."""
    contrast_logprob: Annotated[float | None, _NullIsImpossible()] = None
    """In a contrast: the log-probability of the alternative; null: it is impossible."""
    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED


@dataclass(frozen=True)
class Prediction:
    """What the model predicts from a subset of the context, which a user has put together."""

    target_logprob: Logprob
    """The target's log-probability, in nats; null: the target is impossible."""
    prediction_id: Index
    """The id of the model's most likely next token."""
    prediction_logprob: float | None = None
    """The log-probability of that token, if the scorer tells it."""
    prediction_text: str | None = None
    """The text of that token."""
    rank: Annotated[int, Ge(1)] | None = None
    """The rank of the target, 1 for the most likely token, if the scorer tells it."""
    sufficient: bool = False
    """Whether the target is the most likely token."""


@dataclass(frozen=True)
class Proof:
    """What was found out about a rationale by asking the model; what was not asked is null.

    Sizes are in units beside those that are required.
    """

    margin: float | None = None
    """How far the target is ahead of the most likely other token given the rationale, in nats; of
    several tokens, the least."""
    lower_bound: Index | None = None
    """No subset of fewer units is sufficient: all were tried. If it is the rationale's own size, no
    rationale is smaller."""
    without: Step | None = None
    """The prediction from everything but the rationale. How much less likely the target is then, is
    the difference to that of ``full_context``."""
    without_sufficient: bool | None = None
    """Whether everything but the rationale is sufficient too."""
    critical_units: tuple[Unit, ...] | None = None
    """The units without each of which the full context is not sufficient."""
    critical_tried: Literal["all", "rationale"] | None = None
    """Which units were tried as critical ones: all; or those of the rationale, in long contexts and
    where tokens are excluded from the search."""
    suffix: Index | None = None
    """How many of the most recent units are sufficient by themselves: the fewest that are."""
    more: bool | None = None
    """Whether a search finds one more rationale that is disjoint from all that are listed."""
    stable: bool | None = None
    """Whether the rationale is sufficient too in all of the following ways that were tried."""
    deleted_sufficient: bool | None = None
    """Whether the rationale is sufficient too if what is left out is deleted, without gaps."""
    without_adapter_sufficient: bool | None = None
    """Whether it is sufficient too for the model without its adapter."""
    evaluations: Index = 0
    """How many subsets were asked for by the proof; those that the search had asked for are counted
    again."""
    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED


@dataclass(frozen=True)
class Cost:
    """What an explanation took: its targets share forward passes, so it is one for all of them.

    Texts that are explained side by side share them too: of these, each has the cost of all that
    was done from its beginning to its end.
    """

    subsets: Index
    """How many subsets were scored, for searches and proofs of all its targets."""
    model_tokens: Index | None = None
    """How many tokens the forward passes of the model have computed, if the scorer counts them."""
    seconds: Annotated[float, Ge(0)] = 0.0
    """How long it took."""
    requests: Index | None = None
    """How many requests were sent to an endpoint, retries included."""
    prompt_tokens: Index | None = None
    """How many prompt tokens the endpoint has counted."""
    cached: Index | None = None
    """How many answers were stored already, and not asked for."""
    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED


@dataclass(frozen=True)
class Endpoint:
    """How a model behind an endpoint was asked."""

    way: Literal["forced", "prompt", "top-k", "text"]
    """How the target's log-probability was learnt: the target was forced; it ended the prompt; it
    was looked for among the alternatives; or only the answer's text was compared."""
    alternatives: Index = 0
    """How many alternatives the endpoint tells with their log-probabilities."""
    scores: Index = 0
    """How many subsets were scored."""
    below_last: Index = 0
    """How often a target was none of the alternatives, and counted as just below the last."""
    repeat: Annotated[int, Ge(1)] = 1
    """How many times each request was sent."""
    agreement: Annotated[float, Ge(0)] | None = None
    """The share of repeats that agree with the majority, if there were several."""
    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED


@dataclass(frozen=True, repr=False)
class Rationale:
    """The subset of the context found for one target."""

    target: Index
    """The index of the target's first token."""
    target_id: Index
    """The id of that token."""
    indices: tuple[Index, ...]
    """The kept tokens in the order in which they were added, pinned ones left out."""
    sufficient: bool
    """Whether, given only these tokens, the target is the model's most likely next token (or the
    criterion that was asked for is met)."""
    evaluations: Index
    """How many subsets the search asked for; a second stage (pruning, a finer level) counts those
    that it asks for again."""
    steps: tuple[Step, ...] = ()
    """How the rationale grew, one step for each token or unit added."""
    predicted: bool | None = None
    """Whether the target is the most likely token given the full context; null: not known."""
    stopped: Stopped | None = None
    """What ended a search that did not reach sufficiency, if not the end of the context; or that
    was not yet at its end (budget): then it is the best found so far."""
    target_text: str | None = None
    """The text of the target."""
    units: tuple[Unit, ...] | None = None
    """The words or sentences that were kept, in the order added, if the search added such."""
    minimal: bool | None = None
    """Whether no single unit can be dropped; null: not known."""
    optimal: bool | None = None
    """Whether no smaller subset is sufficient; null: not known."""
    alternatives: tuple[Rationale, ...] = ()
    """Further rationales, which share only required tokens with this one and each other."""
    target_length: Annotated[int, Ge(1)] = 1
    """How many tokens the target has."""
    full_context: Step | None = None
    """The prediction given the full context."""
    proof: Proof | None = None
    """What else was asked of the model about the rationale, if it was certified."""
    tokens: tuple[Token, ...] = field(default=(), compare=False)
    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    def __repr__(self) -> str:
        """One line: the target, what was kept for it, the verdict."""
        target = self.target_id if self.target_text is None else _beginning(self.target_text)
        known = len(self.tokens) > max(self.indices, default=-1)
        kept = _beginning(self.text) if known else list(self.indices)
        verdict = "sufficient" if self.sufficient else "not sufficient"
        return f"<Rationale of {target!r}: {kept!r}, {_counted(len(self), 'token')}, {verdict}>"

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def without_drop(self) -> float | None:
        """How much less likely the target is without the rationale than given everything, in nats.

        None if that was not asked; infinite if the target is impossible without it.
        """
        if self.proof is None or self.proof.without is None or self.full_context is None:
            return None
        full, without = self.full_context.target_logprob, self.proof.without.target_logprob
        return 0.0 if full == without else full - without

    def with_tokens(self, tokens: tuple[Token, ...]) -> Rationale:
        """This rationale and its alternatives, with the tokens of the text they belong to."""
        others = tuple(other.with_tokens(tokens) for other in self.alternatives)
        return replace(self, tokens=tokens, alternatives=others)

    @property
    def text(self) -> str:
        """The kept tokens in text order, with an ellipsis for each gap between them.

        In a translation, an arrow parts those of the source from those of the target.
        """
        if not self.tokens and self.indices:
            raise RationalesError("this rationale has no texts: it was searched on bare token ids")
        return " → ".join(self.texts)

    @property
    def texts(self) -> list[str]:
        """The text of the kept tokens of each side; one text if there are no sides."""
        return [_joined([self.tokens[i] for i in group]) for group in self.by_side]

    @property
    def by_side(self) -> list[list[int]]:
        """The kept indices in text order: in one list, or one of the source and one of the target.

        Which it is, the tokens tell: those of a translation have sides.
        """
        kept = sorted(self.indices)
        if not any(token.side for token in self.tokens):
            return [kept]
        return [[i for i in kept if self.tokens[i].side == side] for side in ("source", "target")]


@dataclass(frozen=True, repr=False)
class Explanation:
    """A text with a rationale for each of its targets.

    Behaves as the sequence of its rationales: ``explanation[3].text``, ``len(explanation)``.
    """

    model: str
    """The name of the model: a Hugging Face id, a folder, or what a black box was called."""
    method: str
    """The search or the baseline that found the rationales: greedy, exhaustive …"""
    evaluation: str
    """How subsets were evaluated: sparse (kept tokens alone, at their original positions), masked
    (the full context under a mask), black-box, or several of these joined by +; or deleted (kept
    tokens alone, moved together)."""
    tokens: tuple[Token, ...]
    """All tokens of the text, in order; of a translation, first the source, then the target."""
    rationales: tuple[Rationale, ...]
    """One rationale for each target, in text order."""
    seconds: Annotated[float, Ge(0)] = field(compare=False)
    """How long the explanation took."""
    unexplainable: tuple[Index, ...] = ()
    """Targets with nothing before them."""
    complete: bool = True
    """False if the run was interrupted and rationales are missing."""
    id: str | int | None = None
    """The id that came with the text."""
    parts: tuple[Part, ...] = ()
    """The messages and documents of the prompt, in order."""
    group: str | int | None = None
    """The group that came with the text, by which a report over many compares."""
    adapter: str | None = None
    """The compatibility adapter that answered for incomplete contexts."""
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    """The options that decide what a rationale is (criterion, unit, fast …), if not the default."""
    cost: Cost | None = field(default=None, compare=False)
    """What the explanation took, if it was certified, or if an endpoint was asked."""
    endpoint: Endpoint | None = field(default=None, compare=False)
    """How an endpoint was asked, if one was."""
    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    def __post_init__(self) -> None:
        attached = tuple(r.with_tokens(self.tokens) for r in self.rationales)
        object.__setattr__(self, "rationales", attached)
        # Milliseconds, here and not when written: what is read back equals what was saved.
        object.__setattr__(self, "seconds", round(self.seconds, 3))

    def __repr__(self) -> str:
        """One line: the text, what explained it, how many rationales of which size were found."""
        parts = [self.model, self.method, _counted(len(self), "target")]
        if self.rationales:
            parts.append(f"{sum(r.sufficient for r in self)} sufficient")
            parts.append(f"mean size {sum(map(len, self)) / len(self):.1f}")
        if not self.complete:
            parts.append("interrupted")
        about = " ".join(", ".join(parts).split())
        given = (t.text for t in self.tokens if not t.pinned and t.side != "target")
        return f"<Explanation of {_beginning(''.join(given))!r}: {about}>"

    def sources(self, rationale: Rationale) -> list[tuple[Part, str]]:
        """The messages and documents that a rationale has words of, and these words."""
        found = []
        for part in self.parts:
            mine = [i for i in sorted(rationale.indices) if part.start <= i < part.end]
            if mine:
                found.append((part, _joined([self.tokens[i] for i in mine])))
        return found

    def __len__(self) -> int:
        return len(self.rationales)

    def __getitem__(self, place: int) -> Rationale:
        return self.rationales[place]

    def __iter__(self) -> Iterator[Rationale]:
        return iter(self.rationales)

    @property
    def text(self) -> str:
        """The text of all tokens, pinned ones included."""
        return "".join(token.text for token in self.tokens)

    def show(self, steps: bool = False) -> None:
        """Print the explanation to the terminal or notebook, with the steps if asked."""
        from rationales.render.terminal import show

        show(self, steps=steps)

    def plot(
        self, path: str | Path | None = None, *, kind: str = "matrix", target: int | None = None
    ) -> Figure:
        """A matplotlib figure of the explanation; written if a .png, .svg or .pdf file is given.

        ``kind`` is ``matrix`` (targets × context), ``steps`` (the target's probability after each
        step) or ``candidates`` (one step of greedy search, with what was tried). ``target`` is the
        index of one target; without it, a matrix has all of them, and other kinds show the last.
        """
        from rationales.render.plots import plot

        return plot(self, path, kind, target)

    def save(self, path: str | Path) -> None:
        """Write the explanation as JSON."""
        try:
            Path(path).write_text(self.to_json(indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise cannot("write", path, error) from error

    def to_html(self, path: str | Path | None = None) -> str:
        """The explanation as one HTML page that needs nothing else; with a path, also written."""
        from rationales.render.viewer import page

        text = page([self])
        if path is not None:
            try:
                Path(path).write_text(text, encoding="utf-8", newline="\n")
            except OSError as error:
                raise cannot("write", path, error) from error
        return text

    def _repr_html_(self) -> str:
        """What a notebook shows: the page in a frame."""
        from rationales.render.viewer import frame

        return frame(self)

    @classmethod
    def load(cls, path: str | Path) -> Explanation:
        """Read back what ``save`` or ``rationales explain --json`` wrote."""
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except RationalesError as error:
            raise RationalesError(f"{path} is {error}") from error
        except (OSError, UnicodeDecodeError) as error:
            raise cannot("read", path, error) from error

    def to_json(self, indent: int | None = None) -> str:
        """The explanation as a JSON object; on one line unless an indent is given."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=indent)

    @classmethod
    def from_json(cls, text: str) -> Explanation:
        """The explanation in a JSON text."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:  # numbers of too many digits, too many [[[
            raise RationalesError(f"not an explanation: invalid JSON ({error})") from error
        return cls.from_dict(data)

    def to_dict(self) -> dict[str, Any]:
        """The explanation in plain dictionaries and lists; defaults are left out."""
        from rationales.schema import to_dict

        return to_dict(self)

    @classmethod
    def from_dict(cls, data: Any) -> Explanation:
        """The explanation in plain dictionaries of schema 2 or 1; unknown fields are ignored."""
        from rationales.schema import from_dict

        return from_dict(data)

    def to_dataframe(self) -> pandas.DataFrame:
        """One row for each target: what it is, what was kept, and whether that is sufficient.

        Certified rationales have what was proven of them in further columns.
        """
        try:
            import pandas
        except ImportError as error:
            raise MissingExtraError("to_dataframe()", "dataframe") from error
        from rationales.render.frame import columns

        return pandas.DataFrame(columns(self))


def _beginning(text: str, most: int = 40) -> str:
    """The text, or as much of its beginning as fits."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _joined(tokens: Sequence[Token]) -> str:
    """The texts of these tokens, with an ellipsis for each gap between them."""
    pieces: list[str] = []
    for before, token in zip([None, *tokens], tokens, strict=False):
        if before is not None and token.index != before.index + 1:
            pieces.append(" …" if token.text[:1].isspace() else " … ")
        pieces.append(token.text)
    return "".join(pieces).strip()
