"""Tokenised words → ordinary text, with the characters of each word.

The French of the Hansards is cut and expanded: "je ne ai pas parlé à le ministre de les Finances".
A model that was trained on ordinary text should read "Je n'ai pas parlé au ministre des Finances".
Two words that become one ("à le" → "au") have the same characters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from rationales.metrics import Span

Language = Literal["de", "en", "fr"]

CONTRACTED = {("à", "le"): "au", ("à", "les"): "aux", ("de", "le"): "du", ("de", "les"): "des"}
ELIDED = {
    word: f"{word[:-1]}'"
    for word in (
        *("ce", "de", "je", "le", "me", "ne", "que", "se", "te"),
        *("jusque", "lorsque", "puisque", "quelque", "quoique"),
    )
}
# The corpus writes "le" for every "l'", and "se" for every "s'", even in "s'il".
_VOWEL = re.compile(r"[aàâeéèêëiîïoôuùûœæ]|y$", re.IGNORECASE)
_MUTE_H = re.compile(r"h(abi|eure|ésit|érit|ier|ist|iver|omm|on\.|onn|onor|or|ôpit|ôtel|um)", re.I)
_NO_ELISION = re.compile(r"(onz|oui$)", re.IGNORECASE)
# After "de les", a noun would be plural; after "de le", these are verbs more often than nouns.
_VERB_AFTER_LES = re.compile(r"\w(er|ir|re)$")
_VERBS_AFTER_LE = {"croire", "dire", "faire", "lire", "mettre", "prendre", "rendre", "voir"}
_CLINGS_LEFT = {
    "de": frozenset(",.;:?!)…") | {"..."},
    "en": frozenset(",.;:?!)%…") | {"..."},
    "fr": frozenset(",.)…") | {"..."},
}
_CLINGS_RIGHT = frozenset("($")


class Detokenized(NamedTuple):
    """A text, and the characters of each of the words that it was made of."""

    text: str
    spans: tuple[Span, ...]


def detokenize(words: Sequence[str], language: Language) -> Detokenized:
    """The words as a text that begins with a capital."""
    shown = _shortened(words) if language == "fr" else [(word, 1) for word in words]
    text, spans, quotes = "", list[Span](), 0
    before = ""
    for index, (form, count) in enumerate(shown):
        after = shown[index + 1][0] if index + 1 < len(shown) else ""
        text += " " if _is_apart(before, form, after, language, quotes) else ""
        quotes += form == '"'
        spans += [(len(text), len(text) + len(form))] * count
        text += form
        # A hyphen that is joined to the word before it is joined to the next one too.
        before = "joined-" if form == "-" and text.endswith(f"{before}-") and before else form
    return Detokenized(_capital(text), tuple(spans))


def _shortened(words: Sequence[str]) -> list[tuple[str, int]]:
    """The forms that French words take beside each other, and how many words each stands for."""
    forms: list[tuple[str, int]] = []
    index = 0
    while index < len(words):
        word, lower = words[index], words[index].lower()
        after, later = (words[index + n] if index + n < len(words) else "" for n in (1, 2))
        before = words[index - 1] if index else ""
        pair = (lower, after)
        if pair in CONTRACTED and not _elides(after, later, word) and not _is_verb(after, later):
            forms.append((_like(word, CONTRACTED[pair]), 2))
        elif _elides(word, after, before):
            forms.append((_like(word, ELIDED[lower]), 1))
        else:
            forms.append((word, 1))
        index += forms[-1][1]
    return forms


def _elides(word: str, after: str, before: str) -> bool:
    """Whether a word loses its last vowel before the next one: "le ami" → "l'ami"."""
    lower = word.lower()
    if lower not in ELIDED or before == "-":  # "est-ce à dire", "puis-je intervenir"
        return False
    if lower == "quelque":
        return after.lower() in ("un", "une")
    begins = _VOWEL.match(after) or _MUTE_H.match(after)
    return bool(begins) and not _NO_ELISION.match(after)


def _is_verb(article: str, after: str) -> bool:
    """Whether "de le" is before a verb, where "le" is "him" or "it" and stays: "de le faire"."""
    return bool(_VERB_AFTER_LES.search(after)) if article == "les" else after in _VERBS_AFTER_LE


def _is_apart(before: str, form: str, after: str, language: Language, quotes: int) -> bool:
    """Whether there is a space between a form and the one before it."""
    if not before or before in _CLINGS_RIGHT or before == "joined-" or before.endswith("'"):
        return False
    if form in _CLINGS_LEFT[language] or form.startswith("'"):
        return False
    if form == "-":
        return not (before[-1].isalnum() and after[:1].isalnum())
    if '"' in (before, form):  # the first of two opens, the second closes
        return quotes % 2 == 0
    return True


def _like(given: str, word: str) -> str:
    """The word, with a capital if the given one has it."""
    return _capital(word) if given[:1].isupper() else word


def _capital(text: str) -> str:
    """The text with a capital in front; unchanged if its letter has no capital of its own ("ß")."""
    capital = text[:1].upper()
    return capital + text[1:] if capital.lower() == text[:1] else text
