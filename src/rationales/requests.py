"""What is asked of an explainer, and how far it is."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

from rationales.context import Context, Part, Token
from rationales.errors import RationalesError
from rationales.options import Options
from rationales.prompt import Given
from rationales.result import Explanation, Proof, Rationale, Step
from rationales.text import Passage, Tokenizer, token_text


@dataclass(frozen=True)
class Request:
    """One text to explain, and what to ask of it; id and group come back with the answer."""

    text: Given | tuple[Token, ...]
    """The text, a conversation or documents; or all tokens of one that was explained before, of
    which ``target`` names some."""
    options: Options = field(default_factory=Options)
    id: str | int | None = None
    group: str | int | None = None
    within: tuple[int, ...] | None = None
    """The tokens that a rationale may have, by their indices; all that come before its target."""
    parts: tuple[Part, ...] = ()
    """The messages and documents that tokens explained before are of."""


@dataclass(frozen=True)
class Failure:
    """The answer to a request that could not be explained: what is wrong with it."""

    error: RationalesError
    id: str | int | None = None


@dataclass(frozen=True)
class Progress:
    """How far a run is: targets explained, targets known by now, subsets scored.

    ``level`` is what a search from coarse to fine adds at the moment: documents, sentences, words.
    """

    done: int = 0
    total: int = 0
    evaluations: int = 0
    level: str | None = None


class Interrupted(KeyboardInterrupt):
    """The run was interrupted; ``explanations`` hold the targets that were finished.

    They are those that were not handed out before: texts of which some target was finished.
    """

    def __init__(self, explanations: list[Explanation]) -> None:
        super().__init__("interrupted")
        self.explanations = explanations


@dataclass(eq=False)
class Job:
    """A request under way: its passage, the contexts of its targets, and what was found by now."""

    request: Request
    passage: Passage
    unexplainable: tuple[int, ...] = ()
    contexts: list[Context] = field(default_factory=list)
    found: list[Rationale] = field(default_factory=list)
    error: RationalesError | None = None
    started: float = field(default_factory=time.perf_counter)
    tokens_before: int | None = None
    """How many tokens the model had computed when it began, if the scorer counts them."""
    usage_before: Any = None
    """What had been asked of an endpoint when it began."""

    @property
    def over(self) -> bool:
        """Whether it can be answered: by an explanation, or by what went wrong."""
        return len(self.found) == len(self.contexts) or self.error is not None

    def add(self, found: Rationale, tokenizer: Tokenizer) -> None:
        """Add what was found, with the texts of targets and predictions."""

        def named(step: Step) -> Step:
            return replace(step, prediction_text=token_text(tokenizer, step.prediction_id))

        def proven(proof: Proof) -> Proof:
            return replace(proof, without=proof.without and named(proof.without))

        def with_texts(rationale: Rationale) -> Rationale:
            end = rationale.target + rationale.target_length
            target = "".join(t.text for t in self.passage.tokens[rationale.target : end])
            return replace(
                rationale,
                target_text=target or token_text(tokenizer, rationale.target_id),
                alternatives=tuple(map(with_texts, rationale.alternatives)),
                steps=tuple(map(named, rationale.steps)),
                full_context=rationale.full_context and named(rationale.full_context),
                proof=rationale.proof and proven(rationale.proof),
            )

        self.found.append(with_texts(found))
