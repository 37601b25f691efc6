"""A report on a run → one HTML page: figures and tables, and the viewer for the rows they list.

The page needs no network and, but for the viewer, no script. Whatever comes from the run is escaped
and shown on one line, with signs for what cannot be seen.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rationales.render import histogram
from rationales.render.marks import shortened, visible
from rationales.render.viewer import document, page_data, source
from rationales.runs.tally import (
    LEAST_CONTEXTS,
    LISTED,
    MOST_GROUPS,
    VERDICTS,
    Summary,
    Word,
    mean,
    quantile,
)

if TYPE_CHECKING:
    from rationales.runs.report import Listed, Report

_PERCENTILES = (10, 25, 50, 75, 90, 99)
_LISTS = {
    "longest": "Longest sufficient rationales",
    "farthest": "Farthest reach of sufficient rationales",
    "insufficient": "Not sufficient",
}


def page(report: Report) -> str:
    """The report as one HTML page."""
    sections = [_header(report)]
    if report.overall.rationales:
        sections += [_numbers(report), _verdicts(report), _words(report), _listed(report)]
    sections += [_errors(report), _row(report)]
    body = "\n".join(['<main class="report">', *filter(None, sections), "</main>"])
    return document(
        f"Report on {_plain(report.folder.name)}",
        body,
        page_data(report.explanations),
        source("report.js"),
        source("report.css"),
    )


# ---- sections


def _header(report: Report) -> str:
    """What was run, how far it is, and the figures that matter most."""
    setting, *others = report.settings or ["nothing is explained yet"]
    more = f" (and {_counted(len(others), 'other setting')})" if others else ""
    notice = ""
    if not report.finished:
        done = report.rows + report.failed
        notice = (
            f'\n<p class="notice">The run is not finished: {done:,} of {report.total:,} rows. '
            "The figures are of the rows that are done.</p>"
        )
    found = report.overall
    figures = {
        "rows explained": f"{report.rows:,}",
        "rows failed": f"{report.failed:,}",
        "rationales": f"{found.rationales:,}",
    }
    if found.rationales:
        figures |= {
            "sufficient": _percent(*found.checked("sufficient")),
            f"predicted{_of_checked(found)}": _percent(*found.checked("predicted")),
            f"mean size ({report.unit})": _decimal(mean(found.sizes)),
            "median reach (tokens)": _whole(quantile(found.reaches, 50)),
        }
    told = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in figures.items())
    return f"""<header>
<h1>Report on {_text(report.folder.name)}</h1>
<p>{_text(setting, 300)}{more}</p>{notice}
<dl class="key-figures">{told}</dl>
</header>"""


def _numbers(report: Report) -> str:
    """Sizes and reaches: a histogram each, and their means and quantiles."""
    found, yes, no = report.overall, report.parts["sufficient"], report.parts["not sufficient"]
    counted = ", ".join(f"{unit}s in {count:,} rationales" for unit, count in report.units.items())
    mixed = f" Units: {counted}." if len(report.units) > 1 else ""
    sides = (
        " In a translation, only kept tokens of the translation have a distance."
        if report.sides
        else ""
    )
    rows = {
        f"size ({report.unit})": found.sizes,
        "… if sufficient": yes.sizes,
        "… if not": no.sizes,
        "reach (tokens)": found.reaches,
        "context (tokens)": found.contexts,
    }
    table = _table(
        "Mean and percentiles",
        {"": "", "mean": "n", **{f"{p} %": "n" for p in _PERCENTILES}, "largest": "n"},
        [
            [
                name,
                _decimal(mean(counts)),
                *(_whole(quantile(counts, percent)) for percent in (*_PERCENTILES, 100)),
            ]
            for name, counts in rows.items()
            if counts
        ],
    )
    return f"""<section>
<h2>Size and reach</h2>
<p>Size: how many {report.unit} a rationale keeps, the required one before the target
included.{mixed} Reach: how many tokens lie from the target back to the farthest kept token.{sides}
Context: how many tokens a rationale could keep. Where a search ended without a sufficient subset,
size and reach are those of the subset it ended with.</p>
<div class="beside">
{_figure(f"Size of rationales, in {report.unit}", yes.sizes, no.sizes)}
{_figure("Reach of rationales, in tokens", yes.reaches, no.reaches)}
</div>
{table}
</section>"""


def _verdicts(report: Report) -> str:
    """Which share is sufficient, predicted, minimal, optimal: overall, by these, and by group."""
    headings = {
        "": "name",
        "rationales": "n",
        **dict.fromkeys(VERDICTS, "n"),
        "mean size": "n",
        "median size": "n",
        "median reach": "n",
        "mean context": "n",
    }
    parts = {"all": report.overall} | report.parts
    checked = _table(
        "All rationales, and parts of them",
        headings,
        [_summary_row(name, part) for name, part in parts.items() if part.rationales],
    )
    groups = ""
    if report.groups:
        rows = [
            _summary_row("(no group)" if name is None else _text(str(name)), part)
            for name, part in report.groups.items()
        ]
        groups = "\n" + _table("By group", headings, rows)
    elif report.too_many_groups:
        groups = f"\n<p>There are more than {MOST_GROUPS} groups: they are not compared here.</p>"
    return f"""<section>
<h2>Verdicts</h2>
<p>Sufficient: given only the rationale, the model has the target as its first choice (or meets the
criterion that was asked for). Predicted: so it does given the full context. Minimal: no single unit
can be dropped. Optimal: no smaller subset is sufficient. Shares are of the rationales for which it
was checked. A search confirms that a rationale is minimal or optimal, and seldom finds that it is
not: for these two, compare how many were checked with how many rationales there are.</p>
{checked}{groups}
</section>"""


def _of_checked(part: Summary) -> str:
    """How many were checked for what the model predicts, if not all."""
    checked = part.checked("predicted")[1]
    return f" (of {checked:,} checked)" if checked < part.rationales else ""


def _summary_row(name: str, part: Summary) -> list[str]:
    """The cells of one part of the rationales."""
    shares = []
    for verdict in VERDICTS:
        true, checked = part.checked(verdict)
        word = " checked" * (checked < part.rationales)
        told = f"{_percent(true, checked)}<small>{true:,} of {checked:,}{word}</small>"
        shares.append(told if checked else "<small>not checked</small>")
    return [
        name,
        f"{part.rationales:,}",
        *shares,
        _decimal(mean(part.sizes)),
        _whole(quantile(part.sizes, 50)),
        _whole(quantile(part.reaches, 50)),
        _decimal(mean(part.contexts)),
    ]


def _words(report: Report) -> str:
    """The words that rationales keep, with how often they could have."""
    if not report.words_by_count:
        return ""
    headings = {"word": "name", "in rationales": "n", "in contexts": "n", "share": "n"}

    def table(caption: str, words: Iterable[Word]) -> str:
        rows = [
            [_text(text, 40), f"{kept:,}", f"{contexts:,}", _percent(kept, contexts)]
            for text, kept, contexts in words
        ]
        return _table(caption, headings, rows)

    return f"""<section>
<h2>Words that rationales keep</h2>
<p>In rationales: how many keep the word. In contexts: how many could have. A frequent word is in
many rationales because it is in many contexts: compare its share with the share over all words,
{100 * (report.word_share or 0):.1f} %. Words in fewer than {LEAST_CONTEXTS} contexts are left out,
and so is the word directly before a target, which is required. Upper and lower case are the same.
The largest share is that with the highest lower end of a 95 % interval.</p>
<div class="beside">
{table("Largest share", report.words_by_share)}
{table("In most rationales", report.words_by_count)}
</div>
</section>"""


def _listed(report: Report) -> str:
    """The rows worth a look, with links to the viewer."""
    headings = {
        "row": "name",
        **({"group": "name"} if report.groups else {}),
        "target": "name",
        "size": "n",
        "reach": "n",
        "predicted": "",
        "rationale": "long",
    }
    tables = []
    for name, title in _LISTS.items():
        if rows := report.lists[name]:
            if name == "insufficient":
                title += f": {_counted(report.parts['not sufficient'].rationales, 'rationale')}"
            cells = [_listed_row(report, each) for each in rows]
            tables.append(_table(title, headings, cells, wide=True))
    listed = "\n".join(tables)
    return f"""<section>
<h2>Rows to look at</h2>
<p>Choose a row to see it in the viewer at the end of this page. A list has at most {LISTED} rows.
Of those that are not sufficient, the ones whose target the model predicts from the full context
come first.</p>
{listed}
</section>"""


def _listed_row(report: Report, listed: Listed) -> list[str]:
    """The cells of one rationale, the first of them a link to the viewer."""
    explanation, rationale = report.explanations[listed.item], listed.rationale
    link = f'<a href="#item={listed.item}&amp;target={rationale.target}">'
    group = [_text("" if explanation.group is None else str(explanation.group))]
    signs = {True: '<span class="good">✓ yes</span>', False: '<span class="bad">✗ no</span>'}
    return [
        f"{link}{_text(str(explanation.id))}</a>",
        *(group if report.groups else []),
        _text(rationale.target_text or ""),
        f"{listed.size:,}",
        _whole(listed.reach),
        "–" if rationale.predicted is None else signs[rationale.predicted],
        _text(rationale.text, 220),
    ]


def _errors(report: Report) -> str:
    """The rows that failed, by what is wrong with them."""
    if not report.errors:
        return ""
    rows = []
    for errors in report.errors[:50]:
        some = ", ".join(
            f"{_text(str(line))} ({_text(str(id), 24)})" for id, line in errors.examples
        )
        rest = errors.rows - len(errors.examples)
        more = f" and {rest:,} more" if rest else ""
        rows.append([_text(errors.error, 300), f"{errors.rows:,}", some + more])
    headings = {"error": "long", "rows": "n", "lines of the input (ids)": "name"}
    return f"""<section>
<h2>Failed</h2>
<p>{_counted(report.failed, "row")} failed. No other figure on this page counts them. Errors that
differ only in numbers and quoted texts are counted together.</p>
{_table("Errors", headings, rows, wide=True)}
</section>"""


def _row(report: Report) -> str:
    """Where the viewer shows a row."""
    if not report.explanations:
        return ""
    return """<section id="row" aria-labelledby="row-heading">
<h2 id="row-heading" tabindex="-1">Row by row</h2>
<div id="viewer"><p>The viewer needs JavaScript; all figures and tables above do without.</p></div>
</section>"""


# ---- figures and tables


def _figure(title: str, yes: Counter[int], no: Counter[int]) -> str:
    """A histogram with its key, and its numbers as a table."""
    both = yes + no
    if not both:
        return f"<figure><figcaption>{title}</figcaption><p>Nothing is kept.</p></figure>"
    bars = histogram.bars(yes, no)
    described = (
        f"{title}: mean {_decimal(mean(both))}, median {_whole(quantile(both, 50))}, "
        f"largest {max(both):,}. The numbers follow as a table."
    )
    key = "".join(
        f'<span><svg aria-hidden="true"><rect class="{kind}" x="1" y="1" width="11" height="11"/>'
        f"</svg>{name}</span>"
        for kind, name in (("yes", "sufficient"), ("no", "not sufficient"))
    )
    table = _table(
        title,
        {"": "", "sufficient": "n", "not sufficient": "n"},
        [[bar.name, f"{bar.sufficient:,}", f"{bar.others:,}"] for bar in bars],
    )
    return f"""<figure>
<figcaption>{title}</figcaption>
{histogram.svg(bars, described)}
<p class="key"><span>share of {_counted(both.total(), "rationale")}</span>{key if no else ""}</p>
<details><summary>The numbers</summary>{table}</details>
</figure>"""


def _table(
    caption: str,
    headings: Mapping[str, str],
    rows: Iterable[Sequence[str]],
    wide: bool = False,
) -> str:
    """A table of markup that scrolls sideways by itself; headings map names to their classes."""
    classes = [f' class="{each}"' if each else "" for each in headings.values()]
    head = "".join(
        f'<th scope="col"{each}>{name}</th>' if name else "<td></td>"
        for name, each in zip(headings, classes, strict=True)
    )
    body = "\n".join(
        f'<tr><th scope="row"{classes[0]}>{first}</th>'
        + "".join(f"<td{each}>{cell}</td>" for cell, each in zip(cells, classes[1:], strict=True))
        + "</tr>"
        for first, *cells in rows
    )
    return f"""<div class="table{" wide" * wide}" role="region" aria-label="{caption}" tabindex="0">
<table><caption><span>{caption}</span></caption>
<thead><tr>{head}</tr></thead>
<tbody>
{body}
</tbody></table></div>"""


# ---- texts


def _text(text: str, most: int = 60) -> str:
    """A text of the run as markup: escaped, on one line, and not turning what is around it."""
    return f"<bdi>{html.escape(shortened(_plain(text), most))}</bdi>"


def _plain(text: str) -> str:
    return visible(text).strip(" ") or "␣"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


def _decimal(number: float | None) -> str:
    return "–" if number is None else f"{number:,.1f}"


def _whole(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"
