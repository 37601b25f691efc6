"""Agreement, Lambada and efficiency at toy scale: tables, kills, refusals, report, commands."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import fields, replace
from pathlib import Path

import pytest

from progresses import dies_when, silent, untimed
from rationales import Explainer, rationalize
from rationales.cli import call as cli
from rationales.cli import experiment as commands
from rationales.compat.adapter import WEIGHTS
from rationales.context import Context
from rationales.errors import RationalesError
from rationales.experiments import report, tables
from rationales.experiments.finding import KEY
from rationales.experiments.language import agreement, efficiency, lambada, reveal, templates
from rationales.experiments.language.annotations import in_words, read_rows
from rationales.experiments.language.templates import Example
from rationales.experiments.methods import Settings
from rationales.runs import Lines
from rationales.scoring.adapted import AdaptedScorer
from rationales.scoring.causal import CausalScorer

from tiny_models import build

SKIP_ALL = [word for name in commands.EXPERIMENTS for word in ("--skip", name)]
FEW = ("greedy", "greedy-minimal", "gradient-x-embedding", "random")


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder with small data files."""
    folder = tmp_path / "data"
    (folder / "wikitext2").mkdir(parents=True)
    template = "The [B] sleeps. (The fox is lazy). It is the [A]"
    (folder / "analogy_templates.json").write_text(json.dumps({"animals": template}))
    (folder / "questions-words.txt").write_text(": animals\ndog law dog land\n")
    (folder / "wikitext2/valid.raw").write_text("The quick brown fox jumps over it. " * 40)
    texts = ["The fox saw the dog", "The law of the land is on", "A naïve café owner slept"]
    lines = [
        {"lambadaIndex": n, "text": text, "rationale": [[4, 7], span_before_last(text)]}
        for n, text in enumerate(texts)
    ]
    (folder / "annotated_lambada.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    monkeypatch.setenv("RATIONALES_DATA", str(folder))
    return folder


def span_before_last(text):
    words = [match.span() for match in re.finditer(r"\S+", text)]
    return list(words[-2])


@pytest.fixture
def completes(monkeypatch, tiny_explainer):
    """Three filled templates whose last word the tiny model predicts, and one that it does not."""
    found = []
    for number in range(4):
        ids = tuple((number * 37 + place * 11) % 390 + 2 for place in range(9))
        [score] = tiny_explainer.scorer.score([(Context(ids, 0), tuple(range(9)))])
        target = score.prediction_id if number else (score.prediction_id + 1) % 390
        ids = (*ids, target)
        found.append(Example(f"toy/{number}", ids, 0, 1, frozenset({3, 4}), ids))
    monkeypatch.setattr(templates, "examples", lambda tokenizer: found)
    return found


@pytest.fixture
def made_up(tmp_path):
    """Lines of two examples and three methods, made up so that a hand can check the table."""
    lines = Lines(tmp_path / "lines.jsonl", KEY)
    rows = {
        "greedy": ([[9, 1], [9, 1, 4, 5]], [True, True]),
        "gradient-x-embedding": ([[9, 1, 3], list(range(10))], [True, False]),
        "gradient-x-embedding-absolute": ([[9, 2, 3, 4], [9, 1, 2]], [True, True]),
    }
    for method, (indices, sufficient) in rows.items():
        for number, (kept, enough) in enumerate(zip(indices, sufficient, strict=True)):
            lines.add(
                dict(zip(KEY, (f"e{number}", False, method, None), strict=True))
                | {"indices": kept, "sufficient": enough, "predicted": True, "evaluations": 1}
            )
    return lines


def test_the_table_of_made_up_lines_is_that_of_a_hand(made_up):
    about = {"size": 10, "antecedent": 1, "distractor": [3, 4]}
    found = {
        "settings": {"adapter": None, "seed": 0},
        "examples": [{"example": f"e{number}", **about} for number in range(2)],
        "optima": {
            "e0": {"optimum": 2, "at_least": 2},
            "e1": {"optimum": None, "at_least": 3},
        },
    }
    methods = Settings(methods=("greedy", "gradient-x-embedding")).compared
    [table] = agreement.tabulate(found, made_up, methods)
    assert tables.markdown(table) == "\n".join(
        [
            "### Without an adapter (2 examples)",
            "",
            "| method | length | paper | ratio | ratio, all sampled, ≤ | ante | paper | no D "
            "| paper | sufficient |",
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
            "| greedy | **3.0** (2.0–4.0) | 13.1 | **1.00** | **1.17** (1.00–1.33) | **1.00** "
            "| 1.00 | 0.50 (0.00–1.00) | 0.30 | 1.00 |",  # no D is as good below: not in bold
            "| gradient × embedding (absolute) | 3.5 (3.0–4.0) | 41.1 | 2.00 | 1.50 (1.00–2.00) "
            "| 0.50 (0.00–1.00) | 0.99 | 0.50 (0.00–1.00) | 0.00 | 1.00 |",
        ]
    )
    # The order in which lines were written makes no difference, as in a run that was killed.
    made_up.path.write_text("".join(made_up.path.read_text().splitlines(keepends=True)[::-1]))
    assert agreement.tabulate(found, Lines(made_up.path, KEY), methods) == [table]
    signed = next(row for row in table["rows"] if row["method"] == "gradient-x-embedding")
    # The second of its rationales is not sufficient: it counts as the whole context of ten.
    assert signed["cells"]["length"]["mean"] == 6.5
    assert signed["cells"]["sufficient"]["mean"] == 0.5
    assert signed["cells"]["ante"]["mean"] == 1.0
    assert signed["cells"]["no_d"]["mean"] == 0.0
    assert not signed["shown"]


def test_with_an_adapter_there_are_two_tables_and_only_the_first_has_ratios(tmp_path):
    lines = Lines(tmp_path / "lines.jsonl", KEY)
    for adapter, kept in ((True, [9, 1]), (False, [9, 1, 3])):
        lines.add(
            dict(zip(KEY, ("e", adapter, "greedy", None), strict=True))
            | {"indices": kept, "sufficient": True, "predicted": True, "evaluations": 1}
        )
    found = {
        "settings": {"adapter": "a", "seed": 0},
        "examples": [{"example": "e", "size": 10, "antecedent": 1, "distractor": [3]}],
        "optima": {"e": {"optimum": 2, "at_least": 2}},
    }
    adapted, bare = agreement.tabulate(found, lines, Settings(methods=("greedy",)).compared)
    assert adapted["rows"][0]["cells"]["ratio"]["mean"] == 1.0
    assert adapted["rows"][0]["paper"]["length"] == 7.1
    assert bare["rows"][0]["cells"]["length"]["mean"] == 3.0
    assert bare["rows"][0]["paper"]["length"] == 13.1
    assert "ratio" not in bare["rows"][0]["cells"]


def test_overlaps_of_made_up_lines():
    about = {"items": list(range(10)), "human": [9, 1, 5], "before": [9]}
    line = {"indices": [9, 1, 2], "sufficient": True, "added": None}
    values = lambda **changes: lambada.measure(line | changes, about)  # noqa: E731
    assert values()["iou"] == pytest.approx(2 / 4)
    assert values()["f1"] == pytest.approx(4 / 6)
    assert values()["iou_without"] == pytest.approx(1 / 3)
    assert values()["f1_without"] == pytest.approx(2 / 4)
    assert values()["kappa"] == pytest.approx((0.8 - (9 + 49) / 100) / (1 - (9 + 49) / 100))
    whole = values(sufficient=False)
    assert whole["length"] == 10
    assert whole["iou"] == pytest.approx(3 / 10)
    first = values(sufficient=False, added=5)
    assert first["length"] == 3


def test_agreement_runs_dies_and_goes_on(data, completes, tiny_explainer, tmp_path):
    settings = agreement.Settings(methods=FEW, exhaustive_size=2)
    out, broken = tmp_path / "whole", tmp_path / "broken"
    results = agreement.run(out, tiny_explainer, settings, overwrite=False, progress=silent)
    assert {path.name for path in out.iterdir()} == {
        "run.json",
        ".lock",
        "results.json",
        "table.md",
        "parts",
        "matrix.html",
        *(f"{name}.{kind}" for name in ("agreement", "matrix") for kind in ("png", "svg")),
    }
    assert sorted(about["example"] for about in results["examples"]) == ["toy/1", "toy/2", "toy/3"]
    assert len(results["optima"]) == 3
    table = (out / "table.md").read_text(encoding="utf-8")
    assert "whose last word the model itself predicts" in table
    assert "of 3" in table
    assert str(tmp_path) not in table
    assert len((out / "parts/lines.jsonl").read_text().splitlines()) == 3 * 5

    for what, after in (("predicting", 2), ("random", 4), ("exhaustive", 1), ("drawing", 0)):
        with pytest.raises(KeyboardInterrupt):
            agreement.run(
                broken, tiny_explainer, settings, overwrite=False, progress=dies_when(what, after)
            )
        assert (broken / "parts/examples.jsonl").exists()
    again = agreement.run(broken, tiny_explainer, settings, overwrite=False, progress=silent)
    assert again == results
    for name in ("table.md", "results.json", "agreement.svg"):
        assert (broken / name).read_bytes() == (out / name).read_bytes()
    for name in ("examples", "lines", "exhaustive"):
        lines, others = (untimed(each / f"parts/{name}.jsonl") for each in (out, broken))
        assert lines == others

    other = replace(settings, seed=1)
    with pytest.raises(RationalesError, match="its seed is 0, not 1"):
        agreement.run(broken, tiny_explainer, other, overwrite=False, progress=silent)
    (data / "questions-words.txt").write_text(": animals\ndog law land law\n")
    with pytest.raises(RationalesError, match=r"another run \(its .*\.(txt|tsv) is"):
        agreement.run(broken, tiny_explainer, settings, overwrite=False, progress=silent)
    agreement.run(broken, tiny_explainer, other, overwrite=True, progress=silent)


def test_with_an_adapter_everything_is_judged_twice(data, completes, tiny_explainer, tmp_path):
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / WEIGHTS).write_bytes(b"one")
    twin = build("gpt2", vocab_size=400, n_layer=1)
    scorer = AdaptedScorer(tiny_explainer.scorer, CausalScorer(twin))
    tokenizer = tiny_explainer.tokenizer
    explainer = Explainer(scorer, tokenizer, name="toy", model=twin, adapter="adapter")
    settings = agreement.Settings(methods=("greedy", "last-attention"), exhaustive_size=0, limit=2)

    def run(out="run"):
        return agreement.run(
            tmp_path / out,
            explainer,
            settings,
            adapter=str(adapter),
            overwrite=False,
            progress=silent,
        )

    results = run()
    assert [table["title"] for table in results["tables"]] == [
        "With the compatibility adapter",
        "Without an adapter",
    ]
    assert (tmp_path / "run/agreement-bare.svg").exists()
    lines = Lines(tmp_path / "run/parts/lines.jsonl", KEY)
    assert len(lines) == 2 * 2 * 2
    [example] = {e.id: e for e in completes if e.id == results["examples"][0]["example"]}.values()
    for adapted, judge in ((True, scorer), (False, tiny_explainer.scorer)):
        wanted = rationalize(example.context, judge)
        line = lines[example.id, adapted, "greedy", None]
        assert tuple(line["indices"]) == wanted.indices
        assert line["sufficient"] == wanted.sufficient
    (adapter / WEIGHTS).write_bytes(b"another")
    with pytest.raises(RationalesError, match="its adapter_sha256 is"):
        run()


def test_a_model_that_completes_nothing_is_one_line(data, completes, tiny_explainer, tmp_path):
    del completes[1:]
    with pytest.raises(RationalesError, match="completes none of the 1 templates"):
        agreement.run(
            tmp_path / "run",
            tiny_explainer,
            agreement.Settings(),
            overwrite=False,
            progress=silent,
        )


def test_lambada_runs_dies_and_goes_on_and_is_in_the_report(data, tiny_explainer, tmp_path):
    settings = lambada.Settings(methods=FEW)
    out, broken = tmp_path / "lambada", tmp_path / "broken"
    results = lambada.run(out, tiny_explainer, settings, overwrite=False, progress=silent)
    figures = ("lambada", "lambada-first-five", "passages")
    assert {path.name for path in out.iterdir()} == {
        "run.json",
        ".lock",
        "results.json",
        "table.md",
        "parts",
        *(f"{name}.{kind}" for name in figures for kind in ("png", "svg")),
    }
    first = results["first"][0]["rows"]
    assert {row["method"] for row in first} == {
        m.name for m in Settings(methods=FEW).compared if not m.after
    }
    assert all(row["examples"] == 3 for row in first)
    text = (out / "table.md").read_text(encoding="utf-8")
    assert "annotation a passage" in text
    assert "Passages that the model predicts" in text
    assert "Last words of a single token" in text
    passage = "The law of the land"
    for kept in ("results.json", "parts/lines.jsonl", "parts/examples.jsonl"):
        assert passage not in (out / kept).read_text()

    for after in (3, 9):
        with pytest.raises(KeyboardInterrupt):
            lambada.run(
                broken, tiny_explainer, settings, overwrite=False, progress=dies_when("", after)
            )
    again = lambada.run(broken, tiny_explainer, settings, overwrite=False, progress=silent)
    assert again == results
    assert (broken / "table.md").read_bytes() == (out / "table.md").read_bytes()

    page = report.write(tmp_path, ["lambada"]).read_text(encoding="utf-8")
    assert page.count("<svg") == len(figures)
    assert "<table>" in page
    assert "Annotated Lambada" in page
    assert not re.search(r'(src|href)="(?!#)', page)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    for used in re.findall(r'(?:href="#|url\(#)([^")]+)', page):
        assert used in ids
    with pytest.raises(RationalesError, match="run rationales experiment agreement"):
        report.write(tmp_path, ["agreement"])


def test_a_run_that_replaces_another_leaves_none_of_its_figures_in_the_report(
    data, tiny_explainer, tmp_path
):
    out = tmp_path / "lambada"
    for methods, overwrite in ((FEW, False), (("random",), True)):
        settings = lambada.Settings(methods=methods)
        lambada.run(out, tiny_explainer, settings, overwrite=overwrite, progress=silent)
    (out / "mine.svg").write_text("<svg>of the user's own</svg>")
    page = report.write(tmp_path, ["lambada"]).read_text(encoding="utf-8")
    # Without greedy, no passages are drawn.
    assert re.findall("<figcaption>(.*?)</figcaption>", page) == ["lambada-first-five", "lambada"]


def test_efficiency_times_every_way_and_keeps_what_it_timed(
    data, completes, tiny_explainer, tmp_path
):
    settings = efficiency.Settings(
        limit=2, exhaustive_size=2, exhaustive_examples=1, lengths=(6, 12), contexts=1, size=3
    )
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        efficiency.run(
            out, tiny_explainer, settings, overwrite=False, progress=dies_when("greedy", 4)
        )
    before = (out / "parts/lines.jsonl").read_text()
    assert before
    results = efficiency.run(out, tiny_explainer, settings, overwrite=False, progress=silent)
    assert (out / "parts/lines.jsonl").read_text().startswith(before)
    rows = {row["method"]: row for row in results["tables"][0]["rows"]}
    assert {name: row["examples"] for name, row in rows.items()} == {
        "masked": 2,
        "sparse": 2,
        "shared": 2,
        "fast": 2,
        "exhaustive": 1,
    }
    cells = {name: row["cells"] for name, row in rows.items()}
    assert cells["masked"]["tokens"]["mean"] > cells["sparse"]["tokens"]["mean"]
    assert cells["sparse"]["tokens"]["mean"] >= cells["shared"]["tokens"]["mean"]
    # The same search, whatever the model is shown.
    for name in ("evaluations", "length"):
        assert cells["masked"][name]["mean"] == cells["sparse"][name]["mean"]
    growth = {each["way"]: each for each in results["growth"]}
    assert [p["length"] for p in growth["sparse"]["points"]] == [6, 12]
    assert growth["masked"]["tokens_power"] > growth["sparse"]["tokens_power"]
    text = (out / "table.md").read_text(encoding="utf-8")
    assert "| >60 |" in text
    assert "times faster than masked" in text
    assert (
        efficiency.run(out, tiny_explainer, settings, overwrite=False, progress=silent) == results
    )


@pytest.mark.parametrize("experiment", [agreement, lambada, efficiency, reveal])
def test_committed_lines_give_the_committed_tables(experiment, tmp_path):
    folder = Path(__file__).parent.parent / "docs/results" / experiment.__name__.split(".")[-1]
    found = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    path = Path(shutil.copy(folder / "parts/lines.jsonl", tmp_path))
    names = {field.name for field in fields(experiment.Settings)}
    given = {n: tuple(v) if isinstance(v, list) else v for n, v in found["settings"].items()}
    settings = experiment.Settings(**{name: given[name] for name in names})
    if experiment is reveal:
        made = reveal.tabulate(found, Lines(path, reveal.KEY))
    elif experiment is efficiency:
        made = efficiency.tabulate(Lines(path, efficiency.KEY), settings)
    else:
        made = experiment.tabulate(found, Lines(path, KEY), settings.compared)
    results = found | ({"tables": made} if experiment is agreement else made)
    assert json.loads(json.dumps(results)) == found
    assert experiment.report(results) == (folder / "table.md").read_text(encoding="utf-8")


def test_reveal_runs_dies_and_goes_on(data, tiny_explainer, tmp_path):
    settings = reveal.Settings(words=4)
    out, broken = tmp_path / "reveal", tmp_path / "broken"
    results = reveal.run(out, tiny_explainer, settings, overwrite=False, progress=silent)
    lines = Lines(out / "parts/lines.jsonl", reveal.KEY)
    assert len(lines) == 3 * 4
    rows = {str(row.id): row for row in read_rows(data / "annotated_lambada.jsonl")}
    for line in lines:
        shown = in_words(tiny_explainer.tokenizer, rows[line["example"]])
        assert line["places"][0] == len(shown.words) - 1
        assert line["listed"] == len(shown.chosen)
        context = shown.context
        said = []
        for size in range(1, len(line["places"]) + 1):  # one at a time, by hand
            kept = {i for place in line["places"][:size] for i in shown.words[place]}
            answer = (context.target_id, *context.span_ids)
            ids, end = (*context.ids, *answer), len(context.ids)
            kept = context.keep({*kept, *context.required})
            said.append(
                all(
                    tiny_explainer.scorer.score(
                        [(Context(ids[: end + n], token), (*kept, *range(end, end + n)))]
                    )[0].prediction_id
                    == token
                    for n, token in enumerate(answer)
                )
            )
        assert line["found"] == (said.index(True) + 1 if any(said) else None)
    assert "**Censored**" in (out / "table.md").read_text(encoding="utf-8")
    for after in (2, 7):
        with pytest.raises(KeyboardInterrupt):
            reveal.run(
                broken, tiny_explainer, settings, overwrite=False, progress=dies_when("", after)
            )
    again = reveal.run(broken, tiny_explainer, settings, overwrite=False, progress=silent)
    assert again == results
    assert (broken / "table.md").read_bytes() == (out / "table.md").read_bytes()


def test_what_a_censored_list_counts():
    line = {"order": "person", "listed": 3, "places": [9, 1, 2], "logprobs": [-3.0, -2.0, -1.0]}
    values = reveal.measure(line | {"found": None}, 3)
    assert values == {"ever": 0.0, "at_least": 4.0, "sooner": 0.0, "logprob": -2.0}
    found = reveal.measure(line | {"found": 2}, 3)
    assert (found["ever"], found["count"], found["at_least"], found["sooner"]) == (1, 2, 2, 1)
    longer = {"order": "greedy", "listed": 3, "places": [*range(5)], "logprobs": [], "found": 5}
    assert reveal.measure(longer, 15) == {"ever": 1, "at_least": 5, "sooner": 0, "count": 5}
    assert reveal.measure(longer, 3) == {"ever": 0, "at_least": 4, "sooner": 0}


def test_lambada_takes_annotations_of_your_own(data, tiny_explainer, tmp_path, monkeypatch, capsys):
    own = tmp_path / "own.jsonl"
    row = {"id": "mine", "text": "The fox saw it", "rationale": [[8, 11]]}
    own.write_text(json.dumps(row))
    monkeypatch.setattr("rationales.loading.load", lambda *_, **__: tiny_explainer)
    monkeypatch.delenv("RATIONALES_DATA")
    run = ["experiment", "lambada", "--methods", "greedy", "--out", str(tmp_path / "run")]
    assert cli([*run, "--annotations", str(own)]) == 0
    assert "1 passages" in capsys.readouterr().out
    known = json.loads((tmp_path / "run/run.json").read_text())
    assert list(known["identity"]["data_sha256"]) == ["own.jsonl"]
    own.write_text(json.dumps(row | {"id": "other"}))
    assert cli([*run, "--annotations", str(own)]) == 2
    assert "another run" in capsys.readouterr().err


def test_growth_is_a_power():
    lines = {n: [{"seconds": 2.0 * n, "tokens": 3 * n * n}] for n in (4, 8, 16)}
    found = efficiency.growth(lines)
    assert found["seconds_power"] == pytest.approx(1.0)
    assert found["tokens_power"] == pytest.approx(2.0)
    assert efficiency.growth({4: lines[4]})["seconds_power"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["agreement", "--methods", "nonsense"], "unknown method 'nonsense'"),
        (["agreement", "--methods", ","], "no methods"),
        (["agreement", "--limit", "0"], "limit must be at least 1"),
        (["agreement", "--exhaustive-size", "-1"], "exhaustive-size must be at least 0"),
        (["agreement", "--adapter", "nowhere"], "nowhere"),
        (["lambada", "--limit", "-3"], "limit must be at least 1"),
        (["efficiency", "--methods", "greedy"], "unknown method 'greedy': choose from masked"),
        (["all", "--skip", "nothing"], "no experiment 'nothing'"),
        (["efficiency", "--methods", ","], "no methods"),
        (["all", *SKIP_ALL], "all experiments"),
    ],
)
def test_bad_input_is_one_line(arguments, message, data, tiny_folder, tmp_path, capsys):
    model = [] if arguments[0] == "all" else ["--model", str(tiny_folder)]
    assert cli(["experiment", *arguments, *model, "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1


@pytest.fixture(scope="session")
def tiny_folder(tiny_model, tiny_tokenizer, tmp_path_factory):
    """The tiny model in a folder."""
    folder = tmp_path_factory.mktemp("tiny")
    tiny_model.save_pretrained(folder)
    tiny_tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", ["agreement", "lambada", "reveal", "efficiency", "all"])
def test_missing_data_are_known_before_anything_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("RATIONALES_DATA", str(tmp_path))
    assert cli(["experiment", name, "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert "set RATIONALES_DATA to that folder" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", [*commands.EXPERIMENTS, "all"])
def test_each_command_has_an_example_in_its_help(name, capsys):
    assert cli(["experiment", name, "--help"]) == 0
    assert f"rationales experiment {name}" in " ".join(capsys.readouterr().out.split())


def test_the_command_prints_the_table_and_the_report_gathers_all(
    data, completes, tiny_explainer, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("rationales.loading.load", lambda *_, **__: tiny_explainer)
    skipped = ("majority", "the", "reveal", "efficiency", "distractors", "alignments")
    arguments = [word for name in skipped for word in ("--skip", name)]
    run = ["experiment", "all", *arguments, "--methods", "greedy,random", "--limit", "2"]
    assert cli([*run, "--no-exhaustive", "--out", str(tmp_path / "all")]) == 0
    said = capsys.readouterr()
    assert "# Long-range agreement" in said.out
    assert "# Annotated Lambada" in said.out
    assert "agreement (1 of 2)" in said.err
    page = (tmp_path / "all/report.html").read_text(encoding="utf-8")
    assert '<section id="agreement">' in page
    assert '<section id="lambada">' in page
    assert cli([*run, "--seed", "4", "--out", str(tmp_path / "all")]) == 2
    assert "holds another run" in capsys.readouterr().err
