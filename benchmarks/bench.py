"""The searches of this package against the published algorithm, in one run, as ratios.

    make bench
    python benchmarks/bench.py --quick
    python benchmarks/bench.py --settings a,c --limit 2 --out FOLDER

Texts: ``settings.py``. The published algorithm: ``published.py``. What is checked: ``checks.py``.
The tables: ``table.py``, into FOLDER/table.md. Every finished piece is a line of
FOLDER/lines.jsonl, and a run that was stopped goes on from there when it is started again.

The published algorithm explains one target after another. The package explains all targets of (a)
and of (b) in one call, as a user would; its time is shared out equally. In (c) and (d) it is given
one target at a time too. In (a) and (b) its calls come in the middle of the published algorithm's,
in (c) and (d) beside them, target by target, so that neither has the machine at a better time of
day. Nothing is stored from one call to the next.

``--quick`` is for daily use: about five minutes on two cores with the default model. Its passages
are easy ones, so its ratios are not those of a whole run.

Peers run in their own environment (``peers.py``), on items written here and read back:

    python benchmarks/bench.py --out FOLDER --write-items items.json
    PEERS/bin/python benchmarks/peers.py items.json peers.jsonl
    python benchmarks/bench.py --out FOLDER --peers peers.jsonl

Data come from the folder that RATIONALES_DATA names.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import published
from checks import Models, difference, is_sufficient
from measure import Work, machine, measured, peak_gigabytes
from settings import FULL, QUICK, Item, make_items
from table import write_tables

import rationales
from rationales.context import causal_context
from rationales.errors import RationalesError
from rationales.models.loading import model_path
from rationales.requests import Request
from rationales.search.driver import run
from rationales.search.ordered import ordered

METHODS = {
    "exact": {},
    "fast": {"fast": True},
    "fast+minimal": {"fast": True, "minimal": True},
    "coarse-to-fine": {"coarse_to_fine": True, "fast": True},
}
CAPS = {"c256": 12, "c512": 8, "c1024": 4}
"""Steps of the published algorithm in (c), and of the exact one that is compared with it."""
EXACT_LIMIT = 24
"""In (c), exact greedy gives up at this size: its cost grows with the square of it."""
ALONE = ("exact", "fast")
"""The methods that (d) compares with the published algorithm, one target a call."""
PEER_ITEMS = 5


class Bench:
    """A model, its items and the lines that were written so far."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.out = Path(arguments.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.explainer = rationales.load(
            arguments.model, adapter=False if arguments.adapter == "none" else arguments.adapter
        )
        self.models = Models(self.explainer.scorer)
        path = self.out / "lines.jsonl"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        self.lines = [json.loads(line) for line in text.splitlines()]

    def write(self, **line: object) -> None:
        self.lines.append(line)
        with (self.out / "lines.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def forget(self, which: Callable[[dict], bool]) -> None:
        """Drop lines, so that what they say is measured again."""
        self.lines = [line for line in self.lines if not which(line)]
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in self.lines)
        (self.out / "lines.jsonl").write_text(text, encoding="utf-8")

    def done(self, kind: str, method: str, item: str) -> dict | None:
        for line in self.lines:
            if (line["kind"], line["method"], line["item"]) == (kind, method, item):
                return line
        return None

    def items(self, settings: Iterable[str]) -> list[Item]:
        """The items of these settings: as written down by an earlier run, or made now."""
        path = self.out / "items.json"
        how = {
            "model": Path(self.arguments.model).name if self.arguments.model else "default",
            "adapter": self.explainer.adapter,
            "seed": self.arguments.seed,
            "limit": self.arguments.limit,
            "quick": self.arguments.quick,
        }
        known = json.loads(path.read_text()) if path.exists() else {"run": how, "settings": {}}
        if known["run"] != how:
            raise SystemExit(f"{self.out} holds a run with {known['run']}: choose another --out")
        amounts = QUICK if self.arguments.quick else FULL
        if self.arguments.limit is not None:
            amounts = amounts.at_most(self.arguments.limit)
        for setting in settings:
            if setting not in known["settings"]:
                made = make_items(setting, self.explainer, self.arguments.seed, amounts)
                known["settings"][setting] = [item.to_dict() for item in made]
                path.write_text(json.dumps(known, ensure_ascii=False) + "\n")
        return [Item.from_dict(each) for s in settings for each in known["settings"][s]]

    # --- runs

    def run_published(self, item: Item) -> None:
        if self.done("run", "published", item.id):
            return
        with measured(self.models) as work:
            found = self.published(item, CAPS.get(item.setting))
        _check_tokens(work, found.tokens)
        self.record(item, "published", work, found)

    def published(self, item: Item, max_steps: int | None) -> published.Published:
        return published.greedy(
            self.models.subsets,
            item.ids,
            item.target,
            whole=self.models.whole,
            pinned=item.pinned,
            max_steps=max_steps,
        )

    def run_ours(self, items: list[Item], method: str, **changes: object) -> None:
        """All items in one call; what it took is shared out equally."""
        if not items or all(self.done("run", method, item.id) for item in items):
            return
        try:
            options = rationales.Options().change(**METHODS[method.split(" ")[0]] | changes)
        except RationalesError as error:
            print(f"{method} is left out: {error}", flush=True)
            return
        requests = [Request(text, options.change(**which)) for text, which in _asked(items)]
        before = self.explainer.scorer.tokens
        with measured(self.models) as work:
            answers = list(self.explainer.explain_all(requests))
        _check_tokens(work, self.explainer.scorer.tokens - before)
        for answer in answers:
            if isinstance(answer, rationales.Failure):
                raise answer.error
        found = {
            (tuple(token.id for token in explanation.tokens), rationale.target): rationale
            for explanation in answers
            for rationale in explanation
        }
        for item in items:
            self.record(item, method, work, found[item.ids, item.target], shared=len(items))

    def record(self, item: Item, method: str, work: Work, found, shared: int = 1) -> None:
        """One line, with the sufficiency of what was found rechecked (not timed)."""
        work = work.shared(shared)
        rechecked = is_sufficient(self.models, item, found.indices) if found.sufficient else None
        self.write(
            kind="run",
            setting=item.setting,
            method=method,
            item=item.id,
            context=item.target,
            begins_with=item.begins_with,
            **vars(work),
            shared=shared,
            indices=list(found.indices),
            sufficient=found.sufficient,
            rechecked=rechecked,
        )
        print(
            f"{item.id:9} {method:15} {work.seconds:8.2f} s, "
            f"{100 * work.model_seconds / work.seconds:.0f} % in the model: "
            f"{work.tokens:7,.0f} tokens in {work.passes:6.2f} passes; size {len(found.indices):3}"
            f"{'' if found.sufficient else '  not sufficient'}",
            flush=True,
        )

    def warm_up(self, item: Item) -> None:
        """Everything once, a step or two: allocations and kernels are not for the first to pay."""
        self.published(item, 1)
        self.explainer.explain(item.text, target=item.target, max_size=2)

    def run(self, items: list[Item], methods: list[str]) -> None:
        for setting in ("a", "b"):
            group = [item for item in items if item.setting == setting]
            half = len(group) // 2
            for item in group[:half] if "published" in methods else []:
                self.run_published(item)
            for method in ("exact", "fast", "fast+minimal"):
                if method in methods:
                    self.run_ours(group, method)
            for item in group[half:] if "published" in methods else []:
                self.run_published(item)
        for item in (item for item in items if item.setting in CAPS):
            if "published" in methods:
                self.run_published(item)
            for method in METHODS:
                if method == "exact" and method in methods:
                    self.run_ours([item], "exact capped", max_size=_capped_size(item))
                    self.run_ours([item], "exact", max_size=EXACT_LIMIT)
                elif method in methods:
                    self.run_ours([item], method)
        for item in (item for item in items if item.setting == "d"):
            if "published" in methods:
                self.run_published(item)
            for method in ALONE:
                if method in methods:
                    self.run_ours([item], method)

    # --- checks

    def compare(self, items: list[Item]) -> None:
        """The exact search's rationales against the published ones; each difference is a line."""
        for item in items:
            exact = "exact capped" if item.setting in CAPS else "exact"
            lines = [self.done("run", method, item.id) for method in ("published", exact)]
            if None in lines or self.done("same", exact, item.id):
                continue
            found = difference(self.models, item, *(line["indices"] for line in lines))
            self.write(
                kind="same", setting=item.setting, method=exact, item=item.id, difference=found
            )

    def measure_memory(self, items: list[Item], methods: list[str]) -> None:
        """Peak memory of a process that explains one target of the longest context."""
        long = [item for item in items if item.setting in CAPS]
        if not long:
            return
        item = max(long, key=lambda item: item.target)
        for method in methods:
            if not self.done("run", method, item.id) or self.done("memory", method, item.id):
                continue
            options = {k: v for k, v in vars(self.arguments).items() if v is not None}
            passed = ("out", "settings", "model", "adapter", "seed", "limit")
            command = [sys.executable, __file__, "--memory", method, item.id]
            command += [f"--{name}={options[name]}" for name in passed if name in options]
            child = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
            if child.returncode:
                print(f"the memory of {method} could not be measured", flush=True)
                continue
            gb = float(child.stdout.split()[-1])
            self.write(
                kind="memory", setting=item.setting, method=method, item=item.id, gigabytes=gb
            )

    def explain_for_memory(self, method: str, items: list[Item]) -> None:
        """One item explained in this process, whose peak is then printed."""
        [item] = (item for item in items if item.id == self.arguments.memory[1])
        if method == "published":
            self.published(item, CAPS[item.setting])
        else:
            limits = {"max_size": _capped_size(item)} if method == "exact" else {}
            self.explainer.explain(item.text, target=item.target, **METHODS[method], **limits)
        print(peak_gigabytes())

    # --- peers

    def write_items(self, path: str) -> None:
        """The first Lambada targets and where the model is, for ``peers.py``."""
        items = [item.to_dict() for item in self.items(["a"])[:PEER_ITEMS]]
        folder = str(model_path(self.arguments.model).resolve())
        Path(path).write_text(json.dumps({"model": folder, "items": items}, indent=1) + "\n")

    def complete_peers(self, path: str) -> None:
        """Each peer's order, completed to sufficiency by the scorer of this package."""
        items = {item.id: item for item in self.items(["a"])}
        self.forget(lambda line: line["kind"] == "peer")
        answers = [json.loads(line) for line in Path(path).read_text().splitlines()]
        searches = []
        for place, answer in enumerate(answers):
            if answer.get("error"):
                answer["size"] = None
                continue
            item = items[answer["item"]]
            context = causal_context(item.ids, item.target, frozenset(item.pinned))
            order = [(i,) for i in answer["order"] if (i,) in context.choices]
            searches.append((place, context, ordered(context, order)))
        for place, rationale in run(searches, self.explainer.scorer):
            answers[place]["size"] = len(rationale) if rationale.sufficient else None
        for answer in answers:
            self.write(
                kind="peer", setting="a", **{k: v for k, v in answer.items() if k != "order"}
            )


def _asked(items: list[Item]) -> list[tuple[str, dict]]:
    """The texts to explain and how their targets are named: a text of (b) is asked for once."""
    asked: dict[tuple[str, str | int], tuple[str, dict]] = {}
    for item in items:
        if item.prompt:
            rest = item.text[len(item.prompt) :]
            asked[item.text, ""] = item.prompt, {"continuation": rest}
        else:
            asked[item.text, item.target] = item.text, {"target": item.target}
    return list(asked.values())


def _check_tokens(work: Work, expected: int) -> None:
    """An error if the hooks did not see every pass: then the other columns are wrong too."""
    if work.tokens != expected:
        raise SystemExit(
            f"{work.tokens} tokens went through the models' hooks and {expected} were computed: "
            "some pass does not call the model, see measure.py"
        )


def _capped_size(item: Item) -> int:
    """The size of a rationale after as many steps as the published algorithm is given."""
    begins_empty = item.target - 1 in item.pinned
    return CAPS[item.setting] + (0 if begins_empty else 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", help="the folder of lines and tables; with --quick, a new one")
    parser.add_argument("--quick", action="store_true", help="few items, five minutes")
    parser.add_argument("--settings", default="a,b,c,d")
    parser.add_argument("--methods", default=",".join(["published", *METHODS]))
    parser.add_argument("--again", default="", help="methods whose lines are measured anew")
    parser.add_argument(
        "--limit", type=int, help="passages (a, d), texts (b), targets a length (c)"
    )
    parser.add_argument("--model", help="a folder or a name; the default model if left out")
    parser.add_argument("--adapter", help="a folder, or none; the packaged one if left out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write-items", metavar="FILE", help="write the items of peers.py and end")
    parser.add_argument("--peers", metavar="FILE", help="read what peers.py wrote")
    parser.add_argument("--memory", nargs=2, metavar=("METHOD", "ITEM"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.out is None and not arguments.quick:
        parser.error("give --out, the folder of lines and tables, or --quick")
    arguments.out = arguments.out or tempfile.mkdtemp(prefix="bench-")
    bench = Bench(arguments)
    if arguments.write_items:
        bench.write_items(arguments.write_items)
        return
    if arguments.peers:
        bench.complete_peers(arguments.peers)
    else:
        items = bench.items(arguments.settings.split(","))
        if arguments.memory:
            bench.explain_for_memory(arguments.memory[0], items)
            return
        methods = arguments.methods.split(",")
        again = arguments.again.split(",")
        bench.forget(lambda line: line["kind"] != "peer" and line["method"].split(" ")[0] in again)
        (bench.out / "machine.json").write_text(json.dumps(machine(), indent=1) + "\n")
        bench.warm_up(items[0])
        bench.run(items, methods)
        if not arguments.quick:  # a process a method
            bench.measure_memory(items, methods)
        bench.compare(items)
    print(write_tables(bench.out, bench.lines, CAPS))
    print(f"Lines and tables: {bench.out}")


if __name__ == "__main__":
    main()
