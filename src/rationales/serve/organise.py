"""The organiser's page of a study: progress, annotators and their links, guesses to judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from starlette.exceptions import HTTPException

from rationales.annotation.assignment import open_lists, open_work
from rationales.annotation.people import ROLES, Annotator, Selection, normal
from rationales.annotation.study import Study


def overview(study: Study) -> dict[str, Any]:
    """What the organiser sees: progress, annotators with their links, guesses to judge."""
    ranked, found = Counter[str](), set()
    for _, passage, _, count in study.rationales():
        ranked[passage] += 1
        if count is not None:
            found.add(passage)
    guesses = Counter[tuple[str, str]]()
    for _, play in study.plays():
        guesses.update({(play.passage, normal(each.guess)) for each in play.guesses})
    targets = {id: normal(row.word(-1)) for id, row in study.passages.items()}
    judged = [
        {
            "passage": id,
            "target": study.passages[id].word(-1),
            "guess": guess,
            "plays": count,
            "accepted": guess in study.synonyms[id],
        }
        for (id, guess), count in sorted(guesses.items())
        if guess and guess != targets[id]
    ]
    return {
        "show": "organise",
        "progress": {
            "passages": len(study.passages),
            "ranked": len(ranked),
            "ranked by two": sum(count > 1 for count in ranked.values()),
            "to be ranked by two": len(study.doubled),
            "found": len(found),
            "lists that wait for a predictor": len(open_lists(study)),
            "lists of the model": len(study.lists),
        },
        "annotators": [_about(study, each) for each in study.annotators.values()],
        "guesses": judged,
    }


def _about(study: Study, each: Annotator) -> dict[str, Any]:
    work = open_work(study, each)
    return {
        "id": each.id,
        "name": each.name,
        "roles": each.roles,
        "token": each.token,
        "agreed": each.agreed == study.consent_digest,
        "ranked": sum(selection.finished is not None for selection in each.selections),
        "played": sum(who is each and study.is_over(play) for who, play in study.plays()),
        "open": "" if work is None else "ranking" if isinstance(work, Selection) else "guessing",
        "last": each.last,
    }


def _add(study: Study, body: dict[str, Any]) -> None:
    roles = body.get("roles")
    if not isinstance(roles, list) or not roles or not {*map(str, roles)} <= {*ROLES}:
        raise HTTPException(422, f"roles must be a list of {' and '.join(ROLES)}")
    study.add(role for role in reversed(ROLES) if role in roles)  # guess first: fewer lists wait


def _delete(study: Study, body: dict[str, Any]) -> None:
    study.delete(_annotator(study, body).id)


def _release(study: Study, body: dict[str, Any]) -> None:
    annotator = _annotator(study, body)
    if open_work(study, annotator) is not None:
        annotator.record("released")


def _judge(study: Study, body: dict[str, Any]) -> None:
    passage, guess = body.get("passage"), body.get("guess")
    if not isinstance(passage, str) or not isinstance(guess, str):
        raise HTTPException(422, "passage and guess must be texts")
    if passage not in study.passages or not normal(guess):
        raise HTTPException(422, "give a passage of the study, and a guess")
    accepted = body.get("accepted") is True
    if accepted != (normal(guess) in study.synonyms[passage]):
        study.judge(passage, guess, accepted)


def _annotator(study: Study, body: dict[str, Any]) -> Annotator:
    found = study.annotators.get(str(body.get("annotator")))
    if found is None:
        raise HTTPException(404, "there is no such annotator: the data may be deleted already")
    return found


ACTIONS: dict[str, Callable[[Study, dict[str, Any]], None]] = {
    "add": _add,
    "delete": _delete,
    "release": _release,
    "judge": _judge,
}
"""What the organiser can do."""
