"""The spacing of WikiText undone: ``role @-@ playing , `` becomes ``role-playing,``.

Its corpora are split into words: punctuation stands alone, and what was inside a word is marked
with ``@``. A model that is trained on such text learns the spacing before it learns anything else.
"""

from __future__ import annotations

import re

_MARK = re.compile(r" @([-,.])@(?: |$)")
_HEADING = re.compile(r"\s*= .* =\s*")
_PAIRED = re.compile(r"""(?<![^\s("'\[])(["'])(?!\S)""")
_SUFFIX = re.compile(r" (n't|'(?:s|S|re|ve|ll|d|m|t|n)\b)|(?<=\b[A-Z]) ('(?=\w))")  # and O'Neill
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"([(\[{]) +"), r"\1"),
    (re.compile(r" +([)\]}])"), r"\1"),
    (re.compile(r" +([,.;:!?%…])(?=[\s)\]}\"',.;:!?]|$)"), r"\1"),
    (re.compile(r"(?<=\d): (?=\d\d(?!\d))"), ":"),  # the time, 10:30
    (re.compile(r"([$£€¥]) (?=\d)"), r"\1"),
    (re.compile(r" ([/°]) ?(?=\S)"), r"\1"),
    (re.compile(r'(?<=[.!?]) "$'), '"'),  # of a quotation that began in another line
    (re.compile(r" {2,}"), " "),
)


def is_tokenised(text: str) -> bool:
    """Whether a text has the marks ``@-@``, ``@,@`` or ``@.@`` of WikiText's spacing."""
    return _MARK.search(text) is not None


def detokenise(text: str) -> str:
    """A text in WikiText's spacing as it is usually written; headings are left out.

    What was one line is one line; blank lines are left out, too.
    """
    lines = (line.strip() for line in text.split("\n") if not _HEADING.fullmatch(line))
    return "\n".join(_line(line) for line in lines if line) + "\n"


def _line(line: str) -> str:
    line = _MARK.sub(r"\1", line)
    line = _SUFFIX.sub(r"\1\2", line)
    line = _quotes(line)
    for pattern, replacement in _RULES:
        line = pattern.sub(replacement, line)
    return line.strip()


def _quotes(line: str) -> str:
    """Straight quotes that stand alone, moved to what they open or close: they take turns."""
    is_open = {'"': False, "'": False}
    done, rest = "", line
    while match := _PAIRED.search(rest):
        mark, before, after = match[1], rest[: match.start()], rest[match.end() :]
        done += before
        if is_open[mark]:
            done, rest = done.rstrip(" ") + mark, after
            is_open[mark] = False
        elif mark == "'" and done.endswith("s "):  # the players ' choice
            done, rest = done[:-1] + mark, after
        else:
            done, rest = done + mark, after.lstrip(" ")
            is_open[mark] = True
    return done + rest
