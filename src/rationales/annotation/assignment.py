"""Which work an annotator is given next, so that no two have the same at a time.

- A selector: first the passages that nobody ranks, then those that two selectors rank.
- A predictor: a list that nobody plays, in an order of the annotator's own, in which selectors'
  and the model's lists are mixed. A selector's list is given to another predictor until the word is
  found; a model's list is played once.
- Nobody is given a passage that they have seen in any role.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from itertools import chain

from rationales.annotation.people import (
    PERSON,
    PREDICTOR,
    SELECTOR,
    Annotator,
    ListId,
    Play,
    Selection,
)
from rationales.annotation.study import Study


def open_work(study: Study, annotator: Annotator) -> Selection | Play | None:
    """What an annotator has begun and not finished."""
    work = annotator.current
    if isinstance(work, Selection):
        return None if work.finished else work
    return None if work is None or study.is_over(work) else work


def give_work(study: Study, annotator: Annotator) -> bool:
    """Give an annotator the next work, unless there is some; whether there is any."""
    if open_work(study, annotator) is not None:
        return True
    work = next_work(study, annotator)
    if isinstance(work, ListId):
        maker = {} if work.selector is None else {"selector": work.selector}
        annotator.record("play", passage=work.passage, source=work.source, **maker)
    elif work is not None:
        first = len(study.passages[work].words) - 2
        annotator.record("select", passage=work, words=[first])
    return work is not None


def next_work(study: Study, annotator: Annotator) -> str | ListId | None:
    """The passage to rank or the list to guess from that an annotator is given next."""
    find = {SELECTOR: next_passage, PREDICTOR: next_list}
    found = (find[role](study, annotator) for role in annotator.roles)
    return next((work for work in found if work is not None), None)


def next_passage(study: Study, annotator: Annotator) -> str | None:
    """The passage that a selector ranks next."""
    taken = Counter(s.passage for each in study.annotators.values() for s in each.selections)
    new = [passage for passage in study.order if passage not in annotator.met]
    once = (passage for passage in new if not taken[passage])
    twice = (passage for passage in new if passage in study.doubled and taken[passage] < 2)
    return next(chain(once, twice), None)


def next_list(study: Study, annotator: Annotator) -> ListId | None:
    """The list that a predictor guesses from next."""
    new = [of for of in open_lists(study) if of.passage not in annotator.met]

    def shuffled(of: ListId) -> bytes:
        key = (study.settings.seed, annotator.id, of.passage, of.source, of.selector)
        return hashlib.sha256(repr(key).encode()).digest()

    return min(new, key=shuffled, default=None)


def open_lists(study: Study) -> list[ListId]:
    """The lists that a predictor is needed for."""
    closed: set[ListId] = set()
    for _, play in study.plays():
        is_found = play.found(study.right(play.passage)) is not None
        if play.of.source != PERSON or is_found or not study.is_over(play):
            closed.add(play.of)
    made = [ListId(passage, PERSON, maker.id) for maker, passage, _, _ in study.rationales()]
    return [of for of in (*made, *study.lists) if of not in closed]
