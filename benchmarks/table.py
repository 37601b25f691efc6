"""The tables of the benchmark, computed from its lines alone."""

from collections.abc import Iterable
from pathlib import Path
from statistics import fmean, median

from published import tokens_of

from rationales.scoring.protocol import PASS_TOKENS

Line = dict


def write_tables(out: Path, lines: list[Line], caps: dict[str, int]) -> str:
    """The tables as text, which is also written to ``table.md``."""
    runs = [line | _derived(line) for line in lines if line["kind"] == "run"]
    length = max((line["context"] + 1 for line in runs if line["setting"] == "b"), default=0)
    parts = [_short(runs, "a", "(a) the last word of Lambada passages")]
    parts += [_short(runs, "b", f"(b) all targets of texts of {length} tokens")]
    parts += [_long(runs, setting, cap) for setting, cap in caps.items()]
    parts += [_short(runs, "d", "(d) the last word of other Lambada passages, one call each")]
    parts += [_ratios(runs), _work(runs, caps)]
    parts += [_growth(runs, caps), _coarse(runs, caps), _same(lines), _recheck(runs)]
    parts += [_memory(lines), _peers(lines, runs)]
    text = "\n\n".join(part for part in parts if part) + "\n"
    (out / "table.md").write_text(text, encoding="utf-8")
    return text


def _derived(line: Line) -> Line:
    """What follows from the passes of a line; nothing, if they were not counted then."""
    if "passes" not in line:
        return {}
    return {
        "cost": PASS_TOKENS * line["passes"] + line["tokens"],
        "other_cpu_seconds": line["cpu_seconds"] - line["model_cpu_seconds"],
    }


def _short(runs: list[Line], setting: str, title: str) -> str:
    """A setting in which the published algorithm runs to the end."""
    found = _by_method(runs, setting)
    if not found:
        return ""
    rows = []
    for method, own in found.items():
        against, mine = _paired(found.get("published", {}), own)
        rows.append(
            [
                method,
                str(len(own)),
                f"{_sum(own, 'seconds'):.1f}",
                _share(mine, against, "seconds"),
                _number(_sum(own, "tokens")),
                _share(mine, against, "tokens"),
                *_sizes(found.get("exact", {}), own),
            ]
        )
    return _table(
        f"{title}: {max(map(len, found.values()))} targets",
        ["", "targets", "s", "s / published", "tokens", "tokens / published", *_SIZES],
        rows,
        "Sums over all targets. Ratios: over the targets that both have.",
    )


def _long(runs: list[Line], setting: str, cap: int) -> str:
    """A setting in which the published algorithm is stopped after ``cap`` steps."""
    found = _by_method(runs, setting)
    if not found:
        return ""
    published, exact = found.get("published", {}), found.get("exact", {})
    whole = {key: _extrapolated(published[key], exact[key]) for key in published if key in exact}
    bounded = any(not exact[key]["sufficient"] for key in whole)
    rows = []
    for method, own in found.items():
        capped = method in ("published", "exact capped")
        against, mine = _paired(published if capped else whole, own)
        ratio = [_share(mine, against, "seconds"), _share(mine, against, "tokens")]
        rows.append(
            [
                f"{method}, {cap} steps" if method == "published" else method,
                str(len(own)),
                f"{_sum(own, 'seconds') / len(own):.1f}",
                _number(_sum(own, "tokens"), len(own)),
                *([*ratio, "", ""] if capped else ["", "", *ratio]),
                *([f"{_mean_size(own):.2f}", "", "", ""] if capped else _sizes(exact, own)),
            ]
        )
    if whole:
        less = "≥ " if bounded else ""
        rows.append(
            [
                "published, to the end (extrapolated)",
                str(len(whole)),
                f"{less}{_sum(whole, 'seconds') / len(whole):.1f}",
                less + _number(_sum(whole, "tokens"), len(whole)),
                *[""] * 8,
            ]
        )
    note = (
        f"Means a target. The published algorithm is stopped after {cap} steps; `exact capped` is "
        "the exact search stopped there too, so the first two ratios are measured. The other two "
        "compare with the published algorithm run to the end, which is extrapolated: its tokens "
        "by arithmetic, for the number of steps that exact greedy really takes, times its measured "
        "seconds a token."
    )
    if bounded:
        note += " Some exact searches gave up at their size limit: there it is a lower bound."
    return _table(
        f"(c) one target in a context of {setting[1:]} tokens",
        [
            "",
            "targets",
            "s",
            "tokens",
            "s / published, same steps",
            "tokens / published, same steps",
            "s / published, extrapolated",
            "tokens / published, extrapolated",
            *_SIZES,
        ],
        rows,
        note,
    )


def _extrapolated(published: Line, exact: Line) -> Line:
    """What the published algorithm would have taken for as many steps as exact greedy took."""
    if published["sufficient"]:
        return published
    # A rationale holds the token before the target, unless that is pinned.
    steps = len(exact["indices"]) - (exact["context"] - 1 in exact["indices"])
    tokens = tokens_of(exact["context"], steps, exact["begins_with"])
    return {"tokens": tokens, "seconds": published["seconds"] / published["tokens"] * tokens}


def _ratios(runs: list[Line]) -> str:
    """(d): each method against the others, on the targets that both have."""
    found = _by_method(runs, "d")
    rows = []
    for one, other in (("fast", "exact"), ("exact", "published"), ("fast", "published")):
        against, mine = _paired(found.get(other, {}), found.get(one, {}))
        if not mine:
            continue
        middle = median(mine[key]["seconds"] / against[key]["seconds"] for key in mine)
        both = [key for key in mine if mine[key]["sufficient"] and against[key]["sufficient"]]
        sizes = [{key: lines[key] for key in both} for lines in (against, mine)]
        rows.append(
            [
                f"{one} / {other}",
                str(len(mine)),
                _share(mine, against, "seconds"),
                f"{middle:.3f}",
                *(_share(mine, against, field) for field in ("tokens", "passes", "cost")),
                f"{_size_ratio(*sizes)} ({len(both)})" if both else "",
            ]
        )
    head = ["", "targets", "s", "s, median of ratios", "tokens", "passes", "cost", "size"]
    return _table("(d) one target a call: ratios", head, rows) if rows else ""


def _work(runs: list[Line], caps: dict[str, int]) -> str:
    """What the methods ask of the model in each setting, and how much time is not the model's."""
    rows = []
    for setting in ("a", "b", *caps, "d"):
        found = _by_method(runs, setting)
        for method, own in found.items():
            capped = setting in caps and method not in ("published", "exact capped")
            against, mine = _paired({} if capped else found.get("published", {}), own)
            rows.append(
                [
                    f"({setting}) {method}",
                    f"{_sum(own, 'seconds') / len(own):.2f}",
                    _number(_sum(own, "tokens"), len(own)),
                    _number(_sum(own, "passes"), len(own), digits=2),
                    _quotient(own, "tokens", "passes"),
                    _number(_sum(own, "cost"), len(own)),
                    _share(mine, against, "cost"),
                    _quotient(own, "model_seconds", "seconds", percent=True),
                    _quotient(own, "other_cpu_seconds", "cpu_seconds", percent=True),
                ]
            )
    head = ["", "s", "tokens", "passes", "tokens a pass", "cost", "cost / published"]
    return (
        _table(
            "The work of the model",
            [*head, "time in the model", "processor time outside the model"],
            rows,
            f"Means a target. Cost: {PASS_TOKENS} × passes + tokens. Processor time: of all "
            "threads.",
        )
        if rows
        else ""
    )


def _growth(runs: list[Line], caps: dict[str, int]) -> str:
    """Seconds and tokens of each method by the length of the context, on the same targets."""
    settings = [s for s in caps if _by_method(runs, s)]
    if len(settings) < 2:
        return ""
    targets = set.intersection(
        *({line["item"].split("-")[1] for line in runs if line["setting"] == s} for s in settings)
    )
    rows = []
    for method in _by_method(runs, settings[0]):
        if method in ("published", "exact capped"):
            continue
        cells = [method]
        for setting in settings:
            own = {
                key: line
                for key, line in _by_method(runs, setting).get(method, {}).items()
                if key.split("-")[1] in targets
            }
            cells.append(
                f"{_sum(own, 'seconds') / len(own):.1f} s, {_number(_sum(own, 'tokens'), len(own))}"
                if own
                else ""
            )
        rows.append(cells)
    return _table(
        f"How the cost grows: the same {len(targets)} targets",
        ["seconds, tokens a target", *(s[1:] for s in settings)],
        rows,
    )


def _coarse(runs: list[Line], caps: dict[str, int]) -> str:
    rows = []
    for setting in caps:
        found = _by_method(runs, setting)
        fast, coarse = _paired(found.get("fast", {}), found.get("coarse-to-fine", {}))
        if fast:
            rows.append([setting[1:], _share(coarse, fast, "seconds"), _size_ratio(fast, coarse)])
    return _table("Coarse-to-fine against fast", ["context", "s", "size"], rows) if rows else ""


def _same(lines: list[Line]) -> str:
    same = [line for line in lines if line["kind"] == "same"]
    if not same:
        return ""
    different = [line for line in same if line["difference"]]
    ties = sum(line["difference"]["tie"] for line in different)
    text = (
        f"### Exact against published\n\n{len(same) - len(different)} of {len(same)} rationales "
        f"are identical, {ties} first differ between choices within 1e-4 nats in float64, "
        f"{len(different) - ties} differ."
    )
    for line in different:
        what = line["difference"]
        verdict = "a tie" if what["tie"] else "NOT a tie"
        text += f"\n- {line['item']}: {what['what']}; {what['nats']:.2e} nats apart: {verdict}"
    return text


def _recheck(runs: list[Line]) -> str:
    """The share of rationales reported as sufficient that are, one by one, by method."""
    rows = []
    for method in dict.fromkeys(line["method"] for line in runs):
        own = [line for line in runs if line["method"] == method]
        said = [line for line in own if line["sufficient"]]
        held = [line for line in said if line["rechecked"]]
        failed = ", ".join(line["item"] for line in said if not line["rechecked"])
        share = f"{100 * len(held) / len(said):.2f} %" if said else "–"
        rows.append([method, str(len(own)), str(len(said)), str(len(held)), share, failed])
    return _table(
        "Sufficiency, rechecked one by one in float32 with a full-length mask",
        ["", "rationales", "said sufficient", "confirmed", "share", "not confirmed"],
        rows,
    )


def _memory(lines: list[Line]) -> str:
    rows = [
        [line["method"], line["setting"][1:], f"{line['gigabytes']:.2f}"]
        for line in lines
        if line["kind"] == "memory"
    ]
    return (
        _table("Peak memory of one process, default budget", ["", "context", "GB"], rows)
        if rows
        else ""
    )


def _peers(lines: list[Line], runs: list[Line]) -> str:
    """Peers on the first Lambada targets, ours on the same ones."""
    peers = [line for line in lines if line["kind"] == "peer"]
    if not peers:
        return ""
    asked = {line["item"] for line in peers if line["item"]}
    rows = []
    for method, own in _by_method(runs, "a").items():
        mine = {key: line for key, line in own.items() if key in asked}
        if mine:
            seconds = _sum(mine, "seconds") / len(mine)
            rows.append([method, str(len(mine)), f"{seconds:.1f}", f"{_mean_size(mine):.2f}", ""])
    for method in dict.fromkeys(line["method"] for line in peers):
        own = [line for line in peers if line["method"] == method]
        good = [line for line in own if not line.get("error")]
        sized = [line["size"] for line in good if line["size"] is not None]
        notes = dict.fromkeys(line.get(field) or "" for line in own for field in ("note", "error"))
        if len(sized) < len(good):
            notes[f"{len(good) - len(sized)} not sufficient even when complete"] = None
        rows.append(
            [
                method,
                str(len(good)),
                f"{fmean(line['seconds'] for line in good):.1f}" if good else "–",
                f"{fmean(sized):.2f}" if sized else "–",
                "; ".join(note for note in notes if note),
            ]
        )
    return _table(
        "Peers, on the first targets of (a)",
        ["", "targets", "s a target", "mean size", ""],
        rows,
        "A peer's size: its order completed to sufficiency by our scorer (that time not counted).",
    )


# --- cells

_SIZES = ["mean size", "sufficient", "size / exact", "mean of ratios"]


def _by_method(runs: list[Line], setting: str) -> dict[str, dict[str, Line]]:
    found: dict[str, dict[str, Line]] = {}
    order = ("published", "exact capped", "exact", "fast", "fast+minimal", "coarse-to-fine")
    for method in order:
        for line in runs:
            if (line["setting"], line["method"]) == (setting, method):
                found.setdefault(method, {})[line["item"]] = line
    return found


def _paired(one: dict[str, Line], other: dict[str, Line]) -> tuple[dict, dict]:
    """Both, on the items that both have."""
    both = [key for key in other if key in one]
    return {key: one[key] for key in both}, {key: other[key] for key in both}


def _sizes(exact: dict[str, Line], own: dict[str, Line]) -> list[str]:
    """The mean size, how many suffice, and sizes against exact greedy's where both suffice."""
    theirs, mine = _paired(exact, own)
    both = [key for key in mine if mine[key]["sufficient"] and theirs[key]["sufficient"]]
    sufficient = f"{sum(line['sufficient'] for line in own.values())} of {len(own)}"
    if not both:
        return [f"{_mean_size(own):.2f}", sufficient, "", ""]
    ratios = [_size(mine[key]) / _size(theirs[key]) for key in both]
    ratio = _size_ratio({k: theirs[k] for k in both}, {k: mine[k] for k in both})
    return [f"{_mean_size(own):.2f}", sufficient, f"{ratio} ({len(both)})", f"{fmean(ratios):.3f}"]


def _size_ratio(one: dict[str, Line], other: dict[str, Line]) -> str:
    return f"{_mean_size(other) / _mean_size(one):.3f}"


def _size(line: Line) -> int:
    return max(1, len(line["indices"]))


def _mean_size(lines: dict[str, Line]) -> float:
    return fmean(_size(line) for line in lines.values())


def _sum(lines: dict[str, Line], field: str) -> float | None:
    """The sum of a field; None if a line, from an older run, has none."""
    values = [line.get(field) for line in lines.values()]
    return None if None in values else sum(values)


def _number(value: float | None, by: int = 1, digits: int = 0) -> str:
    return "–" if value is None else f"{value / by:,.{digits}f}"


def _quotient(lines: dict[str, Line], one: str, other: str, percent: bool = False) -> str:
    above, below = _sum(lines, one), _sum(lines, other)
    if above is None or not below:
        return "–"
    return f"{100 * above / below:.1f} %" if percent else f"{above / below:.0f}"


def _share(own: dict[str, Line], against: dict[str, Line], field: str) -> str:
    if not own or not against:
        return ""
    mine, theirs = _sum(own, field), _sum(against, field)
    return "–" if mine is None or not theirs else f"{mine / theirs:.3f}"


def _table(title: str, head: list[str], rows: Iterable[list[str]], note: str = "") -> str:
    body = [head, ["---"] * len(head), *rows]
    text = f"### {title}\n\n" + "\n".join("| " + " | ".join(row) + " |" for row in body)
    return f"{text}\n\n{note}" if note else text
