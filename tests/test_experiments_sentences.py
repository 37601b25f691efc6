"""Distractors and alignments at toy scale: numbers by hand, kills, refusals, commands."""

from __future__ import annotations

import json
from copy import copy
from dataclasses import replace
from pathlib import Path

import pytest

import rationales
from progresses import dies_when, silent, untimed
from rationales.cli import call as cli
from rationales.cli import experiment as commands
from rationales.context import Token
from rationales.data import sha256
from rationales.errors import RationalesError
from rationales.experiments import tables
from rationales.experiments.finding import KEY, SOURCE
from rationales.experiments.methods import OF_TRANSLATIONS, Settings
from rationales.experiments.toys import majority, repetition
from rationales.experiments.translation import alignments, distractors, pairs
from rationales.experiments.translation.alignments import Words
from rationales.experiments.translation.alignments_data import AlignedPair, read_folder
from rationales.experiments.translation.detokenization import detokenize
from rationales.experiments.translation.sentences import Rationales, Sentence
from rationales.metrics import Seam
from rationales.ranking import attribute
from rationales.runs import Lines
from rationales.translator import Translator

from tiny_models import draw_weights, recipe

FEW = ("greedy", "greedy-minimal", "last-attention", "random")
ARCHITECTURE = {
    "d_model": 16,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "max_position_embeddings": 128,
    "dropout": 0.0,
}
GOLD = "1-1 2-2 3p3\n1-1 2-4 3-3 2p2\n1-1 2-2 3-3\n"
TEXT = "the house .   ||| la maison .\ni see it   ||| je ne le vois\noh , no   ||| oh , non\n"


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder with small data files, of whose pairs four are held out."""
    folder = tmp_path / "data"
    hansards = folder / "alignments/en-fr-hansards"
    hansards.mkdir(parents=True)
    (hansards / "en-fr.txt").write_text(TEXT)
    (hansards / "gold.txt").write_text(GOLD)
    (folder / "tatoeba-fr-en").mkdir()
    words = [("la maison", "the house"), ("le chat", "the cat"), ("oh non", "oh no")]
    lines = [f"{e} {n}.\t{f} {n}." for f, e in words for n in ("un", "deux", "trois", "six")]
    (folder / "tatoeba-fr-en/en-fr.tsv").write_text("\n".join(lines) + "\n")
    monkeypatch.setenv("RATIONALES_DATA", str(folder))
    monkeypatch.setattr(pairs, "HELD_OUT", 4)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny model of Marian's architecture with wide random weights, and its pieces."""
    home = tmp_path_factory.mktemp("models") / "tiny-fr-en"
    texts = [TEXT.replace("|||", ""), "Le chat. The cat un deux."]
    fr_en = recipe("fr_en")
    tokenizer = fr_en.build_tokenizer(texts, 340, 128)
    model = draw_weights(fr_en.build_model(tokenizer, 0, **ARCHITECTURE))
    model.save_pretrained(home)
    tokenizer.save_pretrained(home)
    return home


@pytest.fixture(scope="module")
def translator(folder):
    return rationales.load(str(folder), kind="seq2seq")


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    """Translations of a random model have no end: here they have four tokens at most."""
    whole = Translator.decode

    def decode(self, sources, start, max_length=None):
        return whole(self, sources, start, 4)

    monkeypatch.setattr(Translator, "decode", decode)


def write(lines, method, rows, sentence="7", added=None):
    """Lines of the targets from 6 on: what each keeps; None: all of it is not enough."""
    for target, kept in enumerate(rows, start=6):
        lines.add(
            dict(zip(KEY, (f"{sentence}/{target}", False, method, added), strict=True))
            | {
                "indices": [0] if kept is None else kept,
                "sufficient": kept is not None,
                "predicted": None,
                "evaluations": 1,
            }
        )


SENTENCE = Sentence(tuple(Token(i, i, "", i in (4, 5)) for i in range(10)), 6, 5, id="7")
"""Four source tokens and an end, what the decoder starts with, four target tokens."""


def test_crossovers_are_those_of_a_hand(tmp_path):
    lines = Lines(tmp_path / "lines.jsonl", KEY)
    write(lines, "greedy", [[0, 2], [6, 1], [7, 0, 6, 3], None])
    [method] = Settings(methods=("greedy",)).compared
    seam = Seam(source=2, border=5, target=8)
    pair = distractors.Concatenated(**vars(SENTENCE), seam=seam)
    rationales = Rationales([pair], {"7": [True, True, False, True]}, lines)
    found = distractors.measured(pair, rationales.each(pair, method, SENTENCE.targets))
    # The last is not sufficient: it has all of S₁ (2) and of T₁ (2), and 7 tokens.
    assert {name: total / number for name, (total, number) in found.items()} == {
        "mean_source": (1 + 0 + 1 + 2) / 4,
        "mean_target": (1 + 2) / 2,
        "rate_source": 3 / 4,
        "rate_target": 1.0,
        "length": (2 + 2 + 4 + 7) / 4,
        "sufficient": 3 / 4,
    }
    settings = distractors.Settings(methods=("greedy",))
    whole, still, no_longer = distractors.tabulate(rationales, settings)
    assert [table["targets"] for table in (whole, still, no_longer)] == [4, 3, 1]
    cells = no_longer["rows"][0]["cells"]
    assert cells["mean_source"]["mean"] == 1.0
    assert cells["length"]["mean"] == 4.0
    assert still["rows"][0]["cells"]["mean_target"]["mean"] == 2.0
    assert whole["rows"][0]["paper"] == {
        "mean_source": 0.12,
        "mean_target": 0.12,
        "rate_source": 0.09,
        "rate_target": 0.02,
    }


def test_alignments_are_those_of_a_hand(tmp_path):
    lines = Lines(tmp_path / "lines.jsonl", KEY)
    write(lines, "greedy", [[0], [6, 2], [7, 1], None])
    write(lines, "greedy", [[0], [6, 2], [7, 1], [8, 3]], added=SOURCE)
    sure, possible = {(0, 0)}, {(0, 0), (1, 0), (2, 1)}
    pair = AlignedPair(("a", "b", "c"), ("x", "y", "z"), frozenset(sure), frozenset(possible))
    # Source words of one, two and one sub-words; target words of two, one and one.
    each = Words(
        **vars(SENTENCE),
        pair=pair,
        source_tokens=((0,), (1, 2), (3,)),
        target_tokens=((6, 7), (8,), (9,)),
    )
    [method] = Settings(methods=("greedy",)).compared
    rationales = Rationales([each], {"7": [True, False, True, True]}, lines)
    found = alignments.measured(each, rationales.each(each, method, SENTENCE.targets))
    assert {name: total / number for name, (total, number) in found.items()} == pytest.approx(
        {
            "length": (2 + 1 + 3) / 3,
            "tokens": (1 + 2 + 2 + 7) / 4,
            "sufficient": 3 / 4,
            "aer": (0 + 1 + 3) / (3 + 1 + 3),
            "aer_paper": (1 + 1 + 3) / (3 + 1 + 3),
            "iou": (1 + 0) / 2,
            "f1": (1 + 0) / 2,
            "top1": (1 + 0) / 2,
        }
    )
    settings = alignments.Settings(methods=("greedy",))
    whole, known = alignments.tabulate(rationales, settings, paper_aer=True)
    # The first word has a sub-word that is not predicted: of it, nothing counts.
    assert known["targets"] == 2
    cells = known["rows"][0]["cells"]
    assert cells["length"]["mean"] == 2.0
    assert cells["iou"]["mean"] == 0.0
    assert cells["aer"]["mean"] == 1.0
    assert whole["rows"][0]["paper"]["top1"] == 0.64
    assert "AER, sure links not possible" in tables.markdown(whole)
    [without, _] = alignments.tabulate(rationales, settings)
    assert "aer_paper" not in without["rows"][0]["cells"]


@pytest.mark.parametrize(
    ("name", "experiment"),
    [
        ("majority", majority),
        ("the", repetition),
        ("distractors", distractors),
        ("alignments", alignments),
    ],
)
def test_committed_results_give_the_committed_tables(name, experiment):
    folder = Path(__file__).parent.parent / "docs/results" / name
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert experiment.report(results) == (folder / "table.md").read_text(encoding="utf-8")


def test_two_sentences_have_one_end_and_meet_where_the_first_one_ends(translator):
    tokenizer = translator.tokenizer
    sources = [tokenizer(text)["input_ids"] for text in ("la maison", "oh non.")]
    end = frozenset({len(sources[0]) - 1}), frozenset({len(sources[1]) - 1})
    sentence = distractors.join(
        translator, "0", (sources[0], end[0], [5, 6]), (sources[1], end[1], [7])
    )
    seam = sentence.seam
    assert list(sentence.ids[: sentence.source]) == tokenizer("la maison oh non.")["input_ids"]
    assert sentence.ids[sentence.start :] == (5, 6, 7)
    assert seam == Seam(len(sources[0]) - 1, sentence.source, sentence.start + 2)
    assert sentence.pinned == {sentence.source - 1, sentence.source}
    first = sentence.contexts[sentence.name(sentence.start)]
    assert first.required == ()
    assert first.target_id == 5


def test_contracted_words_have_the_same_tokens(translator):
    pair = AlignedPair(("parler", "à", "le", "ami"), ("talk",))
    french, english = (detokenize(side, "fr") for side in (pair.source, pair.target))
    each = alignments.in_words(translator, "1", pair, ("fr", "en"))
    assert french.text == "Parler à l'ami"
    assert english.text == "Talk"
    covered = [index for own in each.source_tokens for index in own]
    assert sorted(covered) == list(range(each.source - 1))
    au = alignments.in_words(
        translator, "1", AlignedPair(("à", "le", "chat"), ("cat",)), ("fr", "en")
    )
    assert au.source_tokens[0] == au.source_tokens[1]
    kept = dict.fromkeys(au.targets, au.source_tokens[0])
    assert au.source_words(kept) == {0: {0, 1}}


def runs(experiment, settings, translator, out, progress=silent, overwrite=False):
    return experiment.run(out, translator, settings, overwrite=overwrite, progress=progress)


@pytest.mark.parametrize(
    ("experiment", "settings", "figures", "kills", "file"),
    [
        (
            distractors,
            distractors.Settings(methods=FEW, ig_steps=3, max_size=5),
            ("distractors", "distractors-predicted"),
            (("translating", 0), ("predicting", 1), ("last", 3), ("random", 9), ("drawing", 0)),
            "tatoeba-fr-en/en-fr.tsv",
        ),
        (
            alignments,
            alignments.Settings(methods=FEW, ig_steps=3, max_size=5),
            ("alignments", "alignments-predicted", "alignment"),
            (("predicting", 1), ("greedy", 5), ("random", 60), ("drawing", 0)),
            "alignments/en-fr-hansards/gold.txt",
        ),
    ],
)
def test_a_run_dies_goes_on_and_ends_alike(
    data, translator, tmp_path, experiment, settings, figures, kills, file
):
    out, broken = tmp_path / "whole", tmp_path / "broken"
    results = runs(experiment, settings, translator, out)
    assert {path.name for path in out.iterdir()} == {
        ".lock",
        "run.json",
        "results.json",
        "table.md",
        "parts",
        *(f"{name}.{kind}" for name in figures for kind in ("png", "svg")),
    }
    text = (out / "table.md").read_text(encoding="utf-8")
    assert "paper" in text
    assert str(tmp_path) not in text
    assert len({row["method"] for row in results["tables"][0]["rows"]}) == len(FEW)
    for what, after in kills:
        with pytest.raises(KeyboardInterrupt):
            runs(experiment, settings, translator, broken, dies_when(what, after))
    assert runs(experiment, settings, translator, broken) == results
    assert (broken / "table.md").read_bytes() == (out / "table.md").read_bytes()
    assert untimed(broken / "parts/lines.jsonl") == untimed(out / "parts/lines.jsonl")

    with pytest.raises(RationalesError, match="its seed is 0, not 1"):
        runs(experiment, replace(settings, seed=1), translator, broken)
    (data / file).write_text((data / file).read_text().replace("3p3", "3-3").replace("six", "dix"))
    with pytest.raises(RationalesError, match=r"another run \(its .*\.(txt|tsv) is"):
        runs(experiment, settings, translator, broken)


def test_the_first_source_token_is_that_of_the_order(data, translator, tmp_path):
    methods = ("greedy", "integrated-gradients", "all-attention", "nearest-first")
    settings = alignments.Settings(limit=2, methods=methods, ig_steps=3, max_size=2)
    runs(alignments, settings, translator, tmp_path / "run")
    lines = Lines(tmp_path / "run/parts/lines.jsonl", KEY)
    pairs = read_folder(data / "alignments/en-fr-hansards", "hansards")
    went_on = 0
    for number, pair in enumerate(pairs, start=1):
        each = alignments.in_words(translator, str(number), pair, ("fr", "en"))
        for name, context in each.contexts.items():
            if (name, False, "greedy", SOURCE) not in lines:
                continue
            for method in settings.compared:
                before = lines[name, False, method.name, None]["indices"]
                after = lines[name, False, method.name, SOURCE]["indices"]
                assert after[: len(before)] == before
                assert len(after) - len(before) <= 1
                went_on += len(after) > len(before)
                first = next(index for index in after if index < each.source)
                if method.name == "greedy":
                    continue
                [importances] = attribute([context], method.row, translator.model, ig_steps=3)
                if method.options.absolute:
                    importances = [abs(value) for value in importances]
                free = [i for i in range(each.source) if i not in each.pinned]
                best = max(importances[i] for i in free)
                assert importances[first] == pytest.approx(best, abs=1e-5)
    assert went_on


def test_all_methods_of_translations_run_but_no_rollout(data, translator, tmp_path):
    settings = distractors.Settings(limit=1, ig_steps=2, max_size=2)
    results = runs(distractors, settings, translator, tmp_path / "run")
    rows = {row["row"] for row in results["tables"][0]["rows"]}
    assert rows == {*OF_TRANSLATIONS} - {"greedy-fast"}
    with pytest.raises(RationalesError, match="unknown method 'attention-rollout'"):
        runs(distractors, replace(settings, methods=("attention-rollout",)), translator, "x")
    assert not Path("x").exists()


def test_a_sentence_that_is_too_long_is_one_line(translator):
    pair = AlignedPair(("le", "chat") * 70, ("the", "cat"))
    with pytest.raises(RationalesError, match=r"source of sentence 3 has .* positions for 128"):
        alignments.in_words(translator, "3", pair, ("fr", "en"))


def test_other_data_are_read_as_they_are_found(translator, tmp_path):
    home = tmp_path / "europarl"
    home.mkdir()
    (home / "test.de").write_text("\ufeffdas Haus .\n", encoding="utf-8")
    (home / "test.en").write_text("the house .\n")
    (home / "de-en.ref.wa").write_text("1 0 0\n1 1 1 P\n")
    settings = alignments.Settings(methods=("random",), max_size=2, format="europarl")
    results = alignments.run(
        tmp_path / "run", translator, settings, folder=home, overwrite=False, progress=silent
    )
    assert results["sentences"] == 1
    assert results["unaligned"] == 1
    assert set(results["settings"]["data_sha256"]) == {"test.de", "test.en", "de-en.ref.wa"}
    assert not (tmp_path / "run/alignment.svg").exists()  # there is no greedy rationale to draw


def test_the_command_reads_the_files_of_aachen(folder, tmp_path, capsys):
    home = tmp_path / "aachen"
    home.mkdir()
    for name, text in {"de": "das Haus\n", "en": "the house\n"}.items():
        (home / name).write_text(text)
    (home / "alignmentDeEn").write_text("SENT: 0\nS 0 0\nS 1 1\n\n")
    run = ["experiment", "alignments", "--data", str(home), "--model", str(folder)]
    run += ["--methods", "nearest-first", "--out", str(tmp_path / "run")]
    assert cli([*run, "--format", "rwth"]) == 0
    assert "nearest first" in capsys.readouterr().out
    assert_one_line([*run, "--format", "europarl", "--overwrite"], "test.de", capsys)


def test_the_command_reads_the_sentences_of_iwslt14(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("RATIONALES_DATA", raising=False)
    (tmp_path / "test.de").write_text("das h@@ aus .\nein h@@ aus .\n")
    run = ["experiment", "distractors", "--data", str(tmp_path), "--model", str(folder)]
    run += ["--methods", "nearest-first", "--format", "iwslt14", "--out", str(tmp_path / "run")]
    assert cli(run) == 0
    assert "1 pairs of test sentences (IWSLT14)" in capsys.readouterr().out
    identity = json.loads((tmp_path / "run/run.json").read_text())["identity"]
    assert identity["format"] == "iwslt14"
    assert set(identity["data_sha256"]) == {"test.de"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["distractors", "--limit", "0"], "limit must be at least 1"),
        (["distractors", "--methods", "attention-rollout"], "unknown method 'attention-rollout'"),
        (["distractors", "--format", "hansards"], "is not one of 'tatoeba', 'iwslt14'"),
        (["distractors", "--format", "iwslt14"], "give --data DIR"),
        (["distractors", "--data", "nowhere"], "cannot read nowhere/en-fr.tsv"),
        (["alignments", "--format", "moses"], "'moses' is not one of 'hansards'"),
        (["alignments", "--format", "rwth"], "give --data DIR"),
        (["alignments", "--data", "nowhere"], "cannot read nowhere/en-fr.txt"),
    ],
)
def test_bad_input_is_one_line(arguments, message, data, folder, tmp_path, capsys):
    run = ["experiment", *arguments, "--model", str(folder), "--out", str(tmp_path / "run")]
    assert_one_line(run, message, capsys)


def assert_one_line(arguments, message, capsys):
    assert cli(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize("name", ["distractors", "alignments"])
def test_no_model_and_a_language_model_are_one_line(
    name, data, tiny_folder, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("rationales.models.loading.TRANSLATORS", tmp_path)
    run = ["experiment", name, "--out", str(tmp_path / "run")]
    assert_one_line(run, "this installation has no translation model: give one", capsys)
    assert_one_line([*run, "--model", str(tiny_folder)], "not an encoder–decoder", capsys)
    monkeypatch.setenv("RATIONALES_DATA", str(tmp_path))
    assert_one_line(run, "set RATIONALES_DATA to that folder", capsys)
    assert not (tmp_path / "run").exists()


def test_the_commands_print_their_tables_with_the_packaged_model(
    data, folder, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("rationales.models.loading.TRANSLATORS", tmp_path)
    (tmp_path / "fr-en").symlink_to(folder)
    skipped = [word for name in list(commands.EXPERIMENTS)[:-2] for word in ("--skip", name)]
    run = ["experiment", "all", *skipped, "--limit", "1"]
    run += ["--methods", "greedy,attention-rollout", "--out", str(tmp_path / "all")]
    assert cli(run) == 0
    said = capsys.readouterr()
    assert "# Translation with distractors" in said.out
    assert "# Translation against gold alignments" in said.out
    assert "fr-en" in said.out
    page = (tmp_path / "all/report.html").read_text(encoding="utf-8")
    assert '<section id="alignments">' in page
    more = ["experiment", "alignments", "--limit", "1", "--methods", "greedy", "--paper-aer"]
    assert cli([*more, "--out", str(tmp_path / "all/alignments")]) == 0  # nothing is done again
    assert "sure links not possible" in capsys.readouterr().out


def test_all_says_why_translations_are_skipped(data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("rationales.models.loading.TRANSLATORS", tmp_path)
    skipped = [word for name in list(commands.EXPERIMENTS)[:-2] for word in ("--skip", name)]
    assert cli(["experiment", "all", *skipped, "--out", str(tmp_path / "all")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("distractors is skipped: this installation has no translation model")
    assert said[1].startswith("alignments is skipped: ")
    assert said[2].startswith("error: all experiments are skipped")
    (data / "tatoeba-fr-en/en-fr.tsv").unlink()
    cli(["experiment", "all", *skipped, "--out", str(tmp_path / "all")])
    assert "distractors is skipped: tatoeba-fr-en/en-fr.tsv is not in" in capsys.readouterr().err


def test_what_is_held_out_is_what_a_model_was_not_trained_on(data, translator, tmp_path):
    file = data / "tatoeba-fr-en/en-fr.tsv"
    usual = pairs.held_out(translator, file)
    assert len(usual) == 4
    record = {
        "settings": {"seed": 5},
        "data": {"sha256": sha256(file)},
        "trained": {"settings": {"seed": 3, "held_out": 2}},
    }
    (tmp_path / pairs.RECORD).write_text(json.dumps(record))
    translator = copy(translator)
    translator.folder = tmp_path
    assert len(pairs.held_out(translator, file)) == 2
    # Where the weights were read from counts, not the name.
    translator.name, translator.folder = "fr-en", tmp_path / "fr-en"
    assert pairs.held_out(translator, file) == usual
    translator.folder = tmp_path
    file.write_text(file.read_text() + "A dog.\tUn chien.\n")
    with pytest.raises(RationalesError, match="held-out pairs would leak"):
        pairs.held_out(translator, file)
