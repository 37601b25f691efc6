"""A report on a run → one HTML page: figures and tables, and the viewer for the rows they list.

The page needs no network and, but for the viewer, no script. Whatever comes from the run is escaped
and shown on one line, with signs for what cannot be seen.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rationales.render.marks import shortened, visible
from rationales.render.viewer import document, page_data, source
from rationales.runs.tally import LEAST_CONTEXTS, MOST_GROUPS, VERDICTS, Summary, mean, quantile

if TYPE_CHECKING:
    from rationales.runs.report import Listed, Report

_PERCENTILES = (10, 25, 50, 75, 90, 99)
_MOST_BARS, _FEWEST_BARS = 24, 8
_TOPS = (1, 2, 5, 10, 20, 30, 40, 50, 60, 80, 100)
"""Where the vertical axis of a histogram may end, in per cent."""
_TOP, _BOTTOM = 14, 176
"""Where the bars of a histogram end and begin, in pixels."""
_LEFT = 9.0
"""Where the first bar begins, in per cent of the width."""
_LISTS = {
    "longest": ("Longest rationales", "The rows whose rationales have the most {unit}."),
    "farthest": ("Farthest reach", "The rows whose rationales reach farthest back."),
    "insufficient": (
        "Not sufficient",
        "Rows in which a search ended without a sufficient subset: first those whose target the "
        "model predicts from the full context, then by size.",
    ),
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
            "predicted": _percent(*found.checked("predicted")),
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
    mixed = ", ".join(f"{unit}s in {count:,}" for unit, count in report.units.items())
    size = f"Sizes count kept units: {mixed}." if len(report.units) > 1 else ""
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
        "Mean and percentiles over all rationales. Context: tokens before the target that a "
        "rationale may keep.",
        {"": "", "mean": "n", **{f"{p} %": "n" for p in _PERCENTILES}, "largest": "n"},
        [
            [
                name,
                _decimal(mean(counts)),
                *(_whole(quantile(counts, p)) for p in (*_PERCENTILES, 100)),
            ]
            for name, counts in rows.items()
            if counts
        ],
    )
    return f"""<section>
<h2>Size and reach</h2>
<p>Size: how many {report.unit} a rationale keeps, the required one before the target included.
{size} Reach: how many tokens lie from the target back to the farthest kept token.{sides}
Where a search ended without a sufficient subset, both are those of the subset it ended with.</p>
<div class="figures">
{_histogram(f"Size of rationales, in {report.unit}", yes.sizes, no.sizes)}
{_histogram("Reach of rationales, in tokens", yes.reaches, no.reaches)}
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
        "Shares are of the rationales for which it was checked.",
        headings,
        [_summary_row(name, part) for name, part in parts.items() if part.rationales],
    )
    groups = ""
    if report.groups:
        rows = [
            _summary_row("(no group)" if name is None else _text(str(name)), part)
            for name, part in report.groups.items()
        ]
        groups = "\n<h3>By group</h3>\n" + _table("The same by group.", headings, rows)
    elif report.too_many_groups:
        groups = f"\n<p>There are more than {MOST_GROUPS} groups: they are not compared here.</p>"
    return f"""<section>
<h2>Verdicts</h2>
<p>Sufficient: given only the rationale, the model has the target as its first choice (or meets the
criterion that was asked for). Predicted: so it does given the full context. Minimal: no single unit
can be dropped. Optimal: no smaller subset is sufficient.</p>
{checked}{groups}
</section>"""


def _summary_row(name: str, part: Summary) -> list[str]:
    """The cells of one part of the rationales."""
    shares = []
    for verdict in VERDICTS:
        true, checked = part.checked(verdict)
        told = f"{_percent(true, checked)}<small>{true:,} of {checked:,}</small>"
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
    if not report.words:
        return ""
    table = _table(
        "In rationales: how many keep the word. In contexts: how many could have. Sorted by the "
        "lower end of the share's 95 % interval.",
        {"word": "name", "in rationales": "n", "in contexts": "n", "share": "n"},
        [
            [
                _text(word.text, 40),
                f"{word.kept:,}",
                f"{word.contexts:,}",
                _percent(word.kept, word.contexts),
            ]
            for word in report.words
        ],
    )
    return f"""<section>
<h2>Words that rationales keep</h2>
<p>A frequent word is in many rationales because it is in many contexts: compare its share with the
share over all words, {100 * (report.word_share or 0):.1f} %. Words in fewer than {LEAST_CONTEXTS}
contexts are left out. The word directly before a target is not counted: every rationale keeps
it.</p>
{table}
</section>"""


def _listed(report: Report) -> str:
    """The rows worth a look, with links to the viewer."""
    tables = []
    for name, (title, about) in _LISTS.items():
        if not (rows := report.lists[name]):
            continue
        told = about.format(unit=report.unit)
        if name == "insufficient":
            all = report.parts["not sufficient"].rationales
            told += f" {_counted(all, 'rationale')} in all."
        headings = {
            "row": "name",
            **({"group": "name"} if report.groups else {}),
            "target": "name",
            "size": "n",
            "reach": "n",
            "sufficient": "",
            "rationale": "long",
        }
        cells = [_listed_row(report, each) for each in rows]
        tables.append(f"<h3>{title}</h3>\n{_table(told, headings, cells, wide=True)}")
    listed = "\n".join(tables)
    return f"""<section>
<h2>Rows to look at</h2>
<p>Choose a row to see it in the viewer at the end of this page.</p>
{listed}
</section>"""


def _listed_row(report: Report, listed: Listed) -> list[str]:
    """The cells of one rationale, the first of them a link to the viewer."""
    explanation, rationale = report.explanations[listed.item], listed.rationale
    link = f'<a href="#item={listed.item}&amp;target={rationale.target}">'
    group = [_text("" if explanation.group is None else str(explanation.group))]
    verdict = '<span class="good">✓ yes</span>'
    return [
        f"{link}{_text(str(explanation.id))}</a>",
        *(group if report.groups else []),
        _text(rationale.target_text or ""),
        f"{listed.size:,}",
        _whole(listed.reach),
        verdict if rationale.sufficient else '<span class="bad">✗ no</span>',
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
    told = "Errors that differ only in numbers and quoted texts are counted together."
    headings = {"error": "long", "rows": "n", "lines of the input (ids)": "name"}
    return f"""<section>
<h2>Failed</h2>
<p>{_counted(report.failed, "row")} failed. No other figure on this page counts them.</p>
{_table(told, headings, rows, wide=True)}
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


def _histogram(title: str, yes: Counter[int], no: Counter[int]) -> str:
    """Bars of how many rationales have each number, those that are not sufficient on top."""
    both = yes + no
    if not both:
        return f"<figure><figcaption>{title}</figcaption><p>Nothing is kept.</p></figure>"
    bins = _bins(both)
    counts = [tuple(_within(each, *edges) for each in (yes, no)) for edges in bins]
    names = [_bin_name(*edges) for edges in bins]
    total = both.total()
    most = max(100 * sum(pair) / total for pair in counts)
    top = next(each for each in _TOPS if each >= most)
    slot = (100 - _LEFT) / max(len(bins), _FEWEST_BARS)
    parts = []
    for level in (0, top / 2, top):
        y = _BOTTOM - level / top * (_BOTTOM - _TOP)
        parts.append(f'<line x1="{_LEFT}%" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 1}%" y="{y + 4:.1f}" text-anchor="end">{level:g} %</text>')
    every = -(-len(bins) // 8)
    for place, ((sufficient, others), name) in enumerate(zip(counts, names, strict=True)):
        x, base = _LEFT + place * slot, float(_BOTTOM)
        told = f"{name}: {sufficient + others:,} ({_percent(sufficient + others, total)})"
        told += f", {others:,} of them not sufficient" * bool(others)
        rects = ""
        for kind, count in (("yes", sufficient), ("no", others)):
            height = 100 * count / total / top * (_BOTTOM - _TOP)
            base -= height
            if count:
                rects += (
                    f'<rect class="{kind}" x="{x + 0.1 * slot:.2f}%" width="{0.8 * slot:.2f}%" '
                    f'y="{base:.1f}" height="{height:.1f}"/>'
                )
        parts.append(f"<g><title>{told}</title>{rects}</g>")
        if place % every == 0:
            at = f'x="{x + slot / 2:.2f}%" y="{_BOTTOM + 18}"'
            parts.append(f'<text {at} text-anchor="middle">{name}</text>')
    table = _table(
        f"{title}: how many rationales.",
        {"": "", "sufficient": "n", "not sufficient": "n"},
        [[name, f"{y:,}", f"{n:,}"] for name, (y, n) in zip(names, counts, strict=True)],
    )
    described = (
        f"{title}: mean {_decimal(mean(both))}, median {_whole(quantile(both, 50))}, "
        f"largest {max(both):,}. The numbers follow as a table."
    )
    key = "".join(
        f'<span><svg aria-hidden="true"><rect class="{kind}" x="1" y="1" width="11" height="11"/>'
        f"</svg>{name}</span>"
        for kind, name in (("yes", "sufficient"), ("no", "not sufficient"))
    )
    return f"""<figure>
<figcaption>{title}</figcaption>
<svg class="histogram" role="img" aria-label="{described}">{"".join(parts)}</svg>
<p class="key"><span>share of {total:,} rationales</span>{key if no else ""}</p>
<details><summary>The numbers</summary>{table}</details>
</figure>"""


def _bins(counts: Counter[int]) -> list[tuple[int, int | None]]:
    """First and last number of each bar; the last bar has no end if few numbers lie far out."""
    low, high, most = min(counts), quantile(counts, 99) or 0, max(counts)
    # Without a far end, the bars show everything.
    high = most if most - low < _MOST_BARS or most <= 1.25 * high else high
    widths = (step * 10**power for power in range(12) for step in (1, 2, 5))
    width = next(each for each in widths if (high - low) // each + 2 <= _MOST_BARS + 1)
    first = low if width == 1 else low // width * width
    bins: list[tuple[int, int | None]] = [
        (start, start + width - 1) for start in range(first, high + 1, width)
    ]
    if most > (bins[-1][1] or 0):
        bins.append(((bins[-1][1] or 0) + 1, None))
    return bins


def _within(counts: Counter[int], first: int, last: int | None) -> int:
    """How many of the counted numbers lie in a bar."""
    return sum(c for n, c in counts.items() if n >= first and (last is None or n <= last))


def _bin_name(first: int, last: int | None) -> str:
    if last is None:
        return f"≥ {first:,}"
    return f"{first:,}" if first == last else f"{first:,}–{last:,}"


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
<table><caption>{caption}</caption>
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
