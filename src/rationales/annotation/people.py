"""What annotators have done: each one's state is what replaying their events gives.

joined    the pseudonym, the roles, and the token of the link
agreed    to the consent text with this digest
select    a passage was given to a selector          play     a list was given to a predictor
words     the selector's words so far                guess    from so many words, this word
undo      back to the words before                   released the organiser took the work back
ranked    the ranking is finished
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from dataclasses import dataclass, field

from rationales.annotation.log import Event, Log
from rationales.experiments.language.annotations import after_marks

SELECTOR, PREDICTOR = "selector", "predictor"
ROLES = (SELECTOR, PREDICTOR)
PERSON = "person"
"""The source of a list that a selector has made."""


@dataclass
class Selection:
    """A passage that a selector ranks, or has ranked."""

    passage: str
    begun: str
    history: list[tuple[int, ...]] = field(default_factory=list)
    """The words after each change, as places in the passage."""
    finished: str | None = None
    """When it was finished."""

    @property
    def words(self) -> tuple[int, ...]:
        """The words, best first."""
        return self.history[-1] if self.history else ()


@dataclass(frozen=True)
class ListId:
    """Which list of words: a selector's, or a model's."""

    passage: str
    source: str
    selector: str | None = None
    """The id of the annotator who made it."""


@dataclass(frozen=True)
class Guess:
    """What a predictor guessed from a number of words."""

    revealed: int
    guess: str
    time: str


@dataclass
class Play:
    """A list that a predictor guesses from, or has guessed from."""

    of: ListId
    begun: str
    guesses: list[Guess] = field(default_factory=list)

    @property
    def passage(self) -> str:
        """The id of the passage."""
        return self.of.passage

    def found(self, right: Collection[str]) -> int | None:
        """The number of words from which one of these words was first guessed, or None."""
        hits = (each.revealed for each in self.guesses if normal(each.guess) in right)
        return next(hits, None)


class Annotator:
    """One annotator, and all that they have done."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.id = log.path.stem
        self.name, self.token, self.joined, self.agreed, self.last = "", "", "", "", ""
        self.roles: tuple[str, ...] = ()
        self.selections: list[Selection] = []
        self.plays: list[Play] = []
        self.met: set[str] = set()
        """The passages that this annotator has seen in any role: none is given twice."""
        self.tasks = 0
        """How many passages were given, in any role."""
        self.current: Selection | Play | None = None
        """The last work, finished or not, unless it was released."""

    def record(self, name: str, /, **what: object) -> None:
        """Write an event, and let it happen."""
        self.apply(self.log.append(name, **what))

    def apply(self, event: Event) -> None:
        """Let an event happen."""
        self.last = event["time"]
        work = self.current
        match event["event"]:
            case "joined":
                self.name, self.token, self.joined = event["name"], event["token"], event["time"]
                self.roles = tuple(event["roles"])
            case "agreed":
                self.agreed = event["consent"]
            case "select":
                selection = Selection(event["passage"], event["time"])
                selection.history.append(tuple(event["words"]))
                self.selections.append(selection)
                self._begin(selection)
            case "play":
                of = ListId(event["passage"], event["source"], event.get("selector"))
                self.plays.append(Play(of, event["time"]))
                self._begin(self.plays[-1])
            case "words" if isinstance(work, Selection):
                work.history.append(tuple(event["words"]))
            case "undo" if isinstance(work, Selection):
                work.history.pop()
            case "ranked" if isinstance(work, Selection):
                work.finished = event["time"]
            case "guess" if isinstance(work, Play):
                work.guesses.append(Guess(event["revealed"], event["guess"], event["time"]))
            case "released":
                self.selections = [each for each in self.selections if each is not work]
                self.plays = [each for each in self.plays if each is not work]
                self.current = None
            case _:
                raise KeyError(event["event"])

    def _begin(self, work: Selection | Play) -> None:
        self.current = work
        self.met.add(work.passage)
        self.tasks += 1


def normal(word: str) -> str:
    """A guess as it is compared: no case, no punctuation or spaces around it."""
    folded = unicodedata.normalize("NFKC", word).casefold()
    kept = [place for place, letter in enumerate(folded) if letter.isalnum()]
    return folded[kept[0] : after_marks(folded, kept[-1] + 1)] if kept else ""
