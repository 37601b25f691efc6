"""A study: its passages, its annotators, the lists of words, and which guesses are right.

DIR/run.json               settings, and the digest of the passages
DIR/parts/passages.jsonl   the passages
DIR/parts/lists.jsonl      words in the orders of the model, if it takes part
DIR/parts/lists.json       which model and baseline made them
DIR/consent.txt            what annotators agree to
DIR/organiser.jsonl        events of the organiser
DIR/annotators/ID.jsonl    events of one annotator; deleted with the file
"""

from __future__ import annotations

import hashlib
import json
import random
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le

from rationales.annotation.log import Event, Log, whole_lines
from rationales.annotation.people import PERSON, Annotator, ListId, Play, normal
from rationales.checking import check_fields
from rationales.errors import RationalesError, cannot
from rationales.experiments.language.annotations import Row, read_rows
from rationales.runs import RunFolder
from rationales.runs.folder import RUN
from rationales.runs.lines import damaged

COMMAND = "rationales annotate"
KIND = "annotate"
CONSENT = "consent.txt"
ORGANISER = "organiser.jsonl"
MADE_BY = "parts/lists.json"
LIST_KEY = ("passage", "source")
_NAMES = (
    "avocet bittern bunting chough coot curlew dipper dotterel dunlin dunnock eider egret fulmar "
    "gannet godwit grebe heron hobby hoopoe kestrel kite lapwing linnet martin merlin nightjar "
    "nuthatch oriole osprey petrel pipit plover puffin raven redstart rook shrike siskin snipe "
    "swift teal tern thrush wagtail warbler whimbrel wigeon wren"
)
"""Pseudonyms: with a number behind it, nobody's name."""


@dataclass(frozen=True)
class Settings:
    """The settings of a study."""

    words: Annotated[int, Ge(1)] = 15
    """How many words a selector ranks."""
    double: Annotated[float, Ge(0), Le(1)] = 0.15
    """The share of passages that two selectors rank."""
    seed: Annotated[int, Ge(0)] = 0
    """Seed of the order in which passages are given, and of which are given twice."""

    def __post_init__(self) -> None:
        check_fields(self)


class Study:
    """The state of a study: what replaying all its logs gives."""

    def __init__(self, folder: Path, repair: bool = False) -> None:
        """Read a study; with ``repair``, drop torn lines, for the process that holds the lock."""
        self.folder = folder
        known = _identity(folder)
        self.settings = Settings(**{name: known[name] for name in asdict(Settings())})
        rows = read_rows(folder / "parts/passages.jsonl")
        self.passages = {str(row.id): row for row in rows}
        self.lists = {
            ListId(line["passage"], line["source"]): tuple(line["places"])
            for line in whole_lines(folder / "parts/lists.jsonl", (*LIST_KEY, "places"))
        }
        self.baseline: str = makers(folder).get("baseline", "")
        """The baseline of which lists were made."""
        self.consent = _read_text(folder / CONSENT) if (folder / CONSENT).exists() else ""
        self.synonyms: dict[str, set[str]] = {id: set() for id in self.passages}
        self.token = ""
        self.log = Log(folder / ORGANISER)
        self.annotators: dict[str, Annotator] = {}
        logs = [self.log, *map(Log, (folder / "annotators").glob("*.jsonl"))]
        people = [Annotator(log) for log in logs[1:]]
        for log, apply in zip(logs, (self._apply, *(p.apply for p in people)), strict=True):
            if repair:
                log.repair()
            _replay(log, apply)
        for each in sorted(people, key=lambda each: each.joined):
            if each.token:  # or it was not finished joining
                self.annotators[each.id] = each
        shuffled = random.Random(self.settings.seed).sample([*self.passages], len(self.passages))
        self.order = shuffled
        """The passages in the order in which they are given."""
        self.doubled = {*shuffled[: round(self.settings.double * len(shuffled))]}
        """The passages that two selectors rank."""

    @property
    def consent_digest(self) -> str:
        """What an annotator agrees to, in short: another text is to be agreed to again."""
        return hashlib.sha256(self.consent.encode()).hexdigest()[:16]

    def size(self, passage: str) -> int:
        """How many words of a passage are ranked."""
        return min(self.settings.words, len(self.passages[passage].words) - 1)

    def words(self, of: ListId) -> tuple[int, ...] | None:
        """The words of a list, best first; None if its selector's data were deleted."""
        if of.source != PERSON:
            return self.lists.get(of)
        maker = self.annotators.get(of.selector or "")
        finished = (each for each in maker.selections if each.finished) if maker else iter(())
        return next((each.words for each in finished if each.passage == of.passage), None)

    def is_over(self, play: Play) -> bool:
        """Whether a predictor has guessed from all words of a list, or the list is gone."""
        words = self.words(play.of)
        return words is None or len(play.guesses) >= len(words)

    def right(self, passage: str) -> set[str]:
        """The guesses that count: the target, and the synonyms that were accepted."""
        return {normal(self.passages[passage].word(-1)), *self.synonyms[passage]}

    def plays(self) -> Iterator[tuple[Annotator, Play]]:
        """All plays of lists that are there, in the order in which they began."""
        every = [(each, play) for each in self.annotators.values() for play in each.plays]
        for annotator, play in sorted(every, key=lambda pair: pair[1].begun):
            if self.words(play.of) is not None:
                yield annotator, play

    def rationales(self) -> Iterator[tuple[Annotator, str, tuple[int, ...], int | None]]:
        """Each finished ranking: its selector, passage, words, and from how many it was guessed.

        Counted is the first play in which the word was found; None if there is none.
        """
        found: dict[ListId, int] = {}
        for _, play in self.plays():
            count = play.found(self.right(play.passage))
            if count is not None:
                found.setdefault(play.of, count)
        rankings = [(s.finished, a, s) for a in self.annotators.values() for s in a.selections]
        for time, maker, each in sorted(rankings, key=lambda ranking: ranking[0] or ""):
            if time is not None:
                of = ListId(each.passage, PERSON, maker.id)
                yield maker, each.passage, each.words, found.get(of)

    def open(self) -> None:
        """Give the organiser a token, unless there is one."""
        if not self.token:
            self._record("opened", token=secrets.token_urlsafe(24))

    def add(self, roles: Iterable[str]) -> Annotator:
        """A new annotator, with a pseudonym and a token of their own."""
        known = {each.name for each in self.annotators.values()}
        name = next(n for n in iter(_pseudonym, "") if n not in known)
        annotator = Annotator(Log(self.folder / f"annotators/{secrets.token_hex(6)}.jsonl"))
        annotator.record("joined", name=name, roles=[*roles], token=secrets.token_urlsafe(24))
        self.annotators[annotator.id] = annotator
        return annotator

    def delete(self, annotator: str) -> None:
        """Delete all data of an annotator; guesses from their lists count no more."""
        self.annotators[annotator].log.delete()
        del self.annotators[annotator]

    def judge(self, passage: str, guess: str, accepted: bool) -> None:
        """Accept a guess as a synonym of the target of a passage, or no more."""
        self._record("accepted" if accepted else "withdrawn", passage=passage, guess=normal(guess))

    def _record(self, name: str, **what: object) -> None:
        self._apply(self.log.append(name, **what))

    def _apply(self, event: Event) -> None:
        """Let an event of the organiser happen."""
        match event["event"]:
            case "opened":
                self.token = event["token"]
            case "accepted":
                self.synonyms[event["passage"]].add(event["guess"])
            case "withdrawn":
                self.synonyms[event["passage"]].discard(event["guess"])
            case _:
                raise KeyError(event["event"])


@contextmanager
def set_up(
    passages: Path, out: Path, settings: Settings, consent: Path | None = None
) -> Iterator[RunFolder]:
    """A context with the folder of this study, set up or found, for this process alone."""
    rows = list(read_rows(passages))
    check_passages(rows, passages.name)
    stored = "".join(json.dumps(_stored(row), ensure_ascii=False) + "\n" for row in rows)
    said = None if consent is None else _read_text(consent)
    folder = RunFolder(out, KIND)
    digest = hashlib.sha256(stored.encode()).hexdigest()
    with folder.opened(asdict(settings) | {"passages_sha256": digest}):
        if not (folder.parts / "passages.jsonl").exists():
            folder.write("parts/passages.jsonl", stored)
        if said is not None:
            folder.write(CONSENT, said)
        yield folder


def check_passages(rows: list[Row], name: str) -> None:
    """Raise if the passages cannot be annotated."""
    if not rows:
        raise RationalesError(f"{name} holds no passages: give a line for each")
    ids, texts = [str(row.id) for row in rows], [row.text for row in rows]
    for what, values in (("the id", ids), ("the text", texts)):
        value, count = Counter(values).most_common(1)[0]
        if count > 1:
            raise RationalesError(f"{name} has {what} {value[:60]!r} twice: leave one out")
    for row in rows:
        if len(row.words) < 2:
            raise RationalesError(f"passage {row.id} of {name} needs a last word and one before it")
        if not normal(row.word(-1)):
            raise RationalesError(
                f"the target {row.word(-1)!r} of passage {row.id} of {name} has no letter or "
                "digit, so nobody could guess it: leave the passage out"
            )


def read_study(folder: Path) -> Study:
    """The study in a folder, to be looked at; it may go on meanwhile."""
    RunFolder(folder, KIND).check(COMMAND)
    return Study(folder)


def makers(folder: Path) -> dict[str, Any]:
    """Which model and baseline made the lists of a study; nothing if there are none."""
    path = folder / MADE_BY
    found: dict[str, Any] = json.loads(_read_text(path)) if path.exists() else {}
    return found


def _stored(row: Row) -> dict[str, object]:
    return {row.key: row.id, "text": row.text, "words": row.words}


def _identity(folder: Path) -> dict[str, Any]:
    known: dict[str, Any] = json.loads(_read_text(folder / RUN))["identity"]
    return known


def _replay(log: Log, apply: Callable[[Event], None]) -> None:
    for number, event in enumerate(log.read(), start=1):
        try:
            apply(event)
        except (KeyError, IndexError, TypeError) as error:
            raise damaged(log.path, number) from error


def _pseudonym() -> str:
    return f"{secrets.choice(_NAMES.split())}-{secrets.randbelow(90) + 10}"


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise cannot("read", path, error) from error
