"""What may be kept, and what has to be predicted.

A context is one flat index space over the tokens before a target. A *subset* of it is a tuple of
indices. Some indices are always kept: the *required* ones are part of every rationale (a decoder
predicts from the token before the target, so that one is required), the *pinned* ones are not
(a beginning-of-sequence token, the tokens of a chat template).

A *unit* is a group of indices that a search adds together: a word, a sentence. Searches add units,
scorers see tokens. Without units, every token is one of its own.

For an encoder–decoder, the source tokens come first and the target prefix after them, in the same
index space: a search adds whichever token of either side helps most.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from rationales.errors import RationalesError

DESCRIBED = {"use_attribute_docstrings": True}
"""The docstring under a field is its description in the JSON Schema."""

Subset = tuple[int, ...]
"""Indices of the kept tokens, in the order in which they were added; pinned ones left out."""


@dataclass(frozen=True)
class Token:
    """One token of a text: its place, its id, and the characters it stands for."""

    index: Annotated[int, Ge(0)]
    """Its place in the text, from 0."""
    id: Annotated[int, Ge(0)]
    """Its id in the model's vocabulary."""
    text: str
    """The characters it stands for; empty for a later byte of a split character."""
    pinned: bool = False
    """Whether it is always kept and never counted: a special token, or one of a chat template."""
    side: Literal["source", "target"] | None = None
    """Which text of a translation it belongs to; null for a language model, which has only one."""
    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED


@dataclass(frozen=True)
class Part:
    """What somebody wrote in a prompt: a message, a document, the question."""

    kind: Literal["message", "document", "question"]
    """What it is."""
    name: str
    """The role of a message; the title, the id or the number of a document."""
    start: Annotated[int, Ge(0)]
    """The index of its first token."""
    end: Annotated[int, Ge(0)]
    """The index after its last token."""
    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED


@dataclass(frozen=True)
class Context:
    """The tokens before a target, the target, and which of the tokens are always kept."""

    ids: tuple[int, ...]
    target_id: int
    required: Subset = ()
    pinned: tuple[int, ...] = ()
    units: tuple[Subset, ...] | None = None
    """What a search may add, in text order; None: every token that is not always kept."""
    levels: tuple[tuple[Subset, ...], ...] = ()
    """Units from coarse to fine (sentences, words, tokens), for coarse-to-fine search."""
    level_names: tuple[str, ...] = ()
    """What the units of each level are called, if it is known."""
    extra_ids: tuple[int, ...] = ()
    """Ids whose log-probabilities are scored beside the target's: the alternative of a contrast."""
    span_ids: tuple[int, ...] = ()
    """Ids of the target's further tokens, after ``target_id``, if it has several."""
    source: int = 0
    """How many of the indices, the first ones, are source tokens; none for a language model."""
    excluded: Subset = ()
    """Indices that no search may add, although they are part of the full context."""
    deletes: bool = False
    """Whether what is left out of a subset is deleted: the kept tokens move together."""

    def __post_init__(self) -> None:
        if not 0 <= self.source <= len(self.ids):
            raise RationalesError(
                f"{self.source} source tokens in a context of {len(self.ids)} tokens"
            )
        if self.level_names and len(self.level_names) != len(self.levels):
            raise RationalesError(
                f"{len(self.level_names)} names for {len(self.levels)} levels: give one for each"
            )
        always = (*self.required, *self.pinned)
        if len(set(always)) != len(always):
            raise RationalesError(f"required and pinned indices overlap or repeat: {always}")
        grouped = [index for unit in self.units or () for index in unit]
        if len({*grouped, *always}) != len(grouped) + len(always) or () in (self.units or ()):
            raise RationalesError("units must be disjoint, not empty, and free of kept indices")
        for what, indices in (
            (f"required and pinned indices {always}", always),
            ("units", grouped),
        ):
            if indices and not 0 <= min(indices) <= max(indices) < len(self.ids):
                raise RationalesError(f"{what} must lie in the context of {len(self.ids)} tokens")

    @cached_property
    def choices(self) -> tuple[Subset, ...]:
        """The units that a search may add, in text order; single tokens if there are no others."""
        if self.units is not None:
            return self.units
        others = {*self.required, *self.pinned, *self.excluded}
        return tuple((i,) for i in range(len(self.ids)) if i not in others)

    @cached_property
    def candidates(self) -> Subset:
        """The indices that a search may add: those of all its choices, in order."""
        return tuple(sorted(index for unit in self.choices for index in unit))

    @cached_property
    def everything(self) -> Subset:
        """The full context: all that a subset may have, and what is excluded from the search."""
        return tuple(sorted({*self.required, *self.candidates, *self.excluded}))

    def grouped(
        self, units: Iterable[Iterable[int]], within: Iterable[int] | None = None
    ) -> Context:
        """This context with units for a search to add; a unit that is required in part is so whole.

        Indices that are not ``within`` (all, if left out) are never kept, required ones excepted.
        """
        allowed = {*(range(len(self.ids)) if within is None else within)}
        allowed -= {*self.pinned, *self.excluded}
        clipped = [tuple(i for i in unit if i in allowed) for unit in units]
        needed = {*self.required}
        required = {i for unit in clipped if needed & {*unit} for i in unit} | needed
        return replace(
            self,
            required=tuple(sorted(required)),
            units=tuple(unit for unit in clipped if unit and not needed & {*unit}),
        )

    def keep(self, subset: Iterable[int]) -> tuple[int, ...]:
        """The indices that the model sees for this subset: with the pinned ones, in text order."""
        return tuple(sorted({*subset, *self.pinned}))


def causal_context(ids: tuple[int, ...], target: int, pinned: frozenset[int]) -> Context:
    """The context of the token at index ``target`` in a language model's text.

    The token before the target is required, unless it is pinned: then it is kept anyway.
    """
    if not 0 < target < len(ids):
        raise RationalesError(f"token {target} has nothing before it, or is not in the text")
    return Context(
        ids=ids[:target],
        target_id=ids[target],
        required=() if target - 1 in pinned else (target - 1,),
        pinned=tuple(sorted(i for i in pinned if i < target)),
    )


def seq2seq_context(
    ids: tuple[int, ...], target: int, pinned: frozenset[int], source: int
) -> Context:
    """The context of the token at index ``target`` in a translation.

    ``ids`` are the ``source`` tokens of the source, then the decoder's start, then the translation.
    The target token before is required, unless it is pinned, as the decoder's start is.
    """
    if not 0 <= source < target < len(ids):
        raise RationalesError(
            f"token {target} is none of the translation: its tokens come after {source} source "
            "tokens and the decoder's start"
        )
    return replace(causal_context(ids, target, pinned), source=source)
