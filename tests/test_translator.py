"""Translations explained, on tiny encoder–decoders: tokens with sides, and the command."""

from __future__ import annotations

import io
import json
import threading
import time
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from rich.console import Console
from tokenizers import processors
from transformers import (
    MBart50Tokenizer,
    MBartTokenizer,
    NllbTokenizer,
    PreTrainedTokenizerFast,
    T5Tokenizer,
)

import rationales
from conftest import EOS, train_tokenizer
from rationales import Explanation, Options, RationalesError, Translator, rationalize
from rationales.bitext import decoder_start, encode_source, language_id, translation_ids
from rationales.models.loading import packaged_translator
from rationales.render.terminal import show
from rationales.scoring.seq2seq import Seq2SeqScorer
from rationales.units import group

import seq2seq_oracle as oracle
from tiny_models import build_translator

SOURCE = "The Supreme Court ruled on Tuesday."


def make_tokenizer() -> PreTrainedTokenizerFast:
    """The tiny tokenizer, which puts an end token after a text, and nothing before it."""
    tokenizer: Any = train_tokenizer()
    tokenizer.add_special_tokens({"pad_token": "<pad>"})
    end = tokenizer.eos_token_id
    tokenizer.backend_tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single=f"$A {EOS}", special_tokens=[(EOS, end)]),
        ]
    )
    return tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return make_tokenizer()


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> Any:
    pad, end = tokenizer.pad_token_id, tokenizer.eos_token_id
    return build_translator(
        "marian",
        vocab_size=len(tokenizer),
        pad_token_id=pad,
        eos_token_id=end,
        decoder_start_token_id=pad,
    )


@pytest.fixture(scope="module")
def translator(model: Any, tokenizer: Any) -> Any:
    return rationales.load(model, tokenizer)


@pytest.fixture(scope="module")
def folder(model: Any, tokenizer: Any, tmp_path_factory: Any) -> Path:
    path: Path = tmp_path_factory.mktemp("models") / "translator"
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def one_line(error: pytest.ExceptionInfo[RationalesError]) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


# --- what is explained


def test_an_encoder_decoder_gives_a_translator(translator: Any) -> None:
    assert isinstance(translator, Translator)
    assert isinstance(translator.scorer, Seq2SeqScorer)


def test_the_translation_is_the_raw_argmax(translator: Any, model: Any, tokenizer: Any) -> None:
    explanation = translator.explain(SOURCE, max_length=6)
    source = list(tokenizer(SOURCE)["input_ids"])
    said = [tokenizer.pad_token_id]
    for _ in range(6):
        said.append(int(oracle.ordinary(model, source, said).argmax()))
    assert [t.id for t in explanation.tokens] == source + said
    assert [r.target for r in explanation] == list(range(len(source) + 1, len(source) + 7))
    assert all(r.predicted and r.sufficient for r in explanation)
    assert explanation.evaluation == "sparse"


def test_a_translation_ends_without_its_end_token(
    translator: Any, model: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [t.id for t in translator.explain(SOURCE, max_length=6, max_size=1).tokens]
    source = len(tokenizer(SOURCE)["input_ids"])
    monkeypatch.setattr(model.generation_config, "eos_token_id", said[source + 4])
    ended = translator.explain(SOURCE, max_length=6, max_size=1)
    first = said.index(said[source + 4], source + 1)
    assert [t.id for t in ended.tokens] == said[:first]


def test_tokens_have_sides_and_specials_are_pinned(translator: Any, tokenizer: Any) -> None:
    explanation = translator.explain(SOURCE, continuation="The law.", max_size=2)
    source = len(tokenizer(SOURCE)["input_ids"])
    sides = [t.side for t in explanation.tokens]
    assert sides == ["source"] * source + ["target"] * (len(sides) - source)
    assert [t.index for t in explanation.tokens] == list(range(len(sides)))
    assert [t.index for t in explanation.tokens if t.pinned] == [source - 1, source]
    target = "".join(t.text for t in explanation.tokens[source + 1 :])
    assert target == "The law."
    assert "".join(t.text for t in explanation.tokens[: source - 1]) == SOURCE
    # The first token of a translation needs none of it; later ones need the one before.
    assert all(source + 1 <= r.indices[0] == r.target - 1 for r in explanation.rationales[1:])


def test_rationales_are_those_of_the_paper(translator: Any, model: Any, tokenizer: Any) -> None:
    explanation = translator.explain(SOURCE, continuation="The law")
    ids = [t.id for t in explanation.tokens]
    source = len(tokenizer(SOURCE)["input_ids"])
    for rationale in explanation:
        found = oracle.greedy(
            model,
            ids[:source],
            ids[source : rationale.target],
            rationale.target_id,
            (source - 1, source),
        )
        assert rationale.indices == found.indices
        assert rationale.sufficient == found.sufficient


def test_targets_are_tokens_of_the_translation(translator: Any) -> None:
    everything = translator.explain(SOURCE, max_length=3, max_size=1)
    [last] = translator.explain(SOURCE, max_length=3, max_size=1, target="last")
    assert last.target == everything[-1].target
    assert len(translator.explain(SOURCE, max_length=3, max_size=1, target="all")) == 3
    with pytest.raises(RationalesError, match="none of the translation") as error:
        translator.explain(SOURCE, max_length=3, target=0)
    one_line(error)
    with pytest.raises(RationalesError, match="not in the text"):
        translator.explain(SOURCE, max_length=3, target="Supreme")
    whole = len(everything.tokens)
    for target in ([-1, -3], "-3:", f"0:{whole}"):
        found = translator.explain(SOURCE, max_length=3, max_size=1, target=target)
        expected = [whole - 3, whole - 1] if isinstance(target, list) else range(whole - 3, whole)
        assert [rationale.target for rationale in found] == list(expected)
    for target in ([0, -1], "0:2"):
        with pytest.raises(RationalesError, match=r"none of the translation|can be explained"):
            translator.explain(SOURCE, max_length=3, target=target)


def test_special_tokens_of_the_source_can_be_candidates(translator: Any, tokenizer: Any) -> None:
    source = len(tokenizer(SOURCE)["input_ids"])
    explanation = translator.explain(SOURCE, continuation="The law", specials="candidate")
    assert [t.index for t in explanation.tokens if t.pinned] == [source]
    assert all(r.steps for r in explanation)


def test_units_are_of_one_side_each(translator: Any) -> None:
    explanation = translator.explain(SOURCE, continuation="The law", unit="word")
    for rationale in explanation:
        for unit in rationale.units:
            assert len({explanation.tokens[i].side for i in unit}) == 1
    # Even if nothing pinned stands between the two.
    tokens = [
        rationales.Token(0, 0, "not", side="source"),
        rationales.Token(1, 0, "able", side="target"),
    ]
    assert group(tokens, "word") == ((0,), (1,))
    assert group(tokens, "sentence") == ((0,), (1,))


@pytest.mark.parametrize(
    "options",
    [
        {"fast": True},
        {"minimal": True},
        {"method": "beam", "beam": 2},
        {"method": "soft"},
        {"method": "exhaustive", "max_size": 2},
        {"method": "random"},
        {"method": "nearest-first"},
        {"method": "gradient-norm"},
        {"method": "gradient-x-embedding", "absolute": True},
        {"method": "integrated-gradients", "ig_steps": 3},
        {"method": "last-attention"},
        {"method": "all-attention", "unit": "word"},
        {"unit": "sentence"},
        {"coarse_to_fine": True},
        {"span": True},
        {"disjoint": 2},
        {"criterion": "top-k=3"},
        {"instead_of": " dog"},
    ],
    ids=str,
)
def test_every_search_works_on_both_sides(translator: Any, options: dict[str, Any]) -> None:
    explanation = translator.explain("The law of the", continuation="the land", **options)
    assert len(explanation) == (1 if options.get("span") else len(explanation.rationales))
    assert explanation.complete


def test_rollout_is_refused(translator: Any) -> None:
    with pytest.raises(RationalesError, match="attention-rollout") as error:
        translator.explain(SOURCE, method="attention-rollout", max_length=2)
    one_line(error)


def test_several_sources_run_side_by_side(translator: Any) -> None:
    sources = [SOURCE, "The dog sleeps."]
    together = translator.explain(sources, max_length=3)
    for explanation, source in zip(together, sources, strict=True):
        alone = translator.explain(source, max_length=3)
        assert [r.indices for r in explanation] == [r.indices for r in alone]
        assert explanation.tokens == alone.tokens


def test_bare_contexts_work_too(translator: Any) -> None:
    context = rationales.Context((5, 6, 7, 1, 2, 9), 8, required=(5,), pinned=(3, 4), source=4)
    assert rationalize(context, translator.scorer).indices[0] == 5


# --- prefixes and languages


def test_a_prefix_is_pinned(translator: Any, tokenizer: Any) -> None:
    prefix = "The quick brown fox: "
    explanation = translator.explain(SOURCE, prefix=prefix, continuation="law", max_size=1)
    pinned = "".join(t.text for t in explanation.tokens if t.pinned and t.side == "source")
    assert pinned in (prefix.rstrip() + EOS, prefix + EOS)
    source = [t for t in explanation.tokens if t.side == "source"]
    assert "".join(t.text for t in source) == prefix + SOURCE + EOS


VOCABULARY: list[tuple[str, float]] = [
    *((special, 0.0) for special in ("<s>", "<pad>", "</s>", "<unk>")),
    ("▁the", -1.0),
    ("▁dog", -1.5),
    ("▁", -2.0),
    *((letter, -3.0) for letter in "abcdefghijklmnopqrstuvwxyz.:"),
]


def test_the_instruction_of_a_t5_is_pinned() -> None:
    tokenizer: Any = T5Tokenizer(vocab=VOCABULARY)
    ids, pinned = encode_source(tokenizer, "the dog", Options(prefix="do: "))
    pieces = tokenizer.convert_ids_to_tokens(ids)
    assert pieces[-3:] == ["▁the", "▁dog", "</s>"]
    assert pinned == {*range(len(ids))} - {len(ids) - 3, len(ids) - 2}


@pytest.mark.parametrize(
    ("kind", "start", "source"),
    [
        (MBartTokenizer, ["ro_RO"], ["▁the", "</s>", "de_DE"]),
        (MBart50Tokenizer, ["</s>", "ro_RO"], ["de_DE", "▁the", "</s>"]),
    ],
)
def test_languages_are_pinned_where_the_family_puts_them(
    kind: Any, start: list[str], source: list[str]
) -> None:
    tokenizer: Any = kind(vocab=VOCABULARY)
    model = build_translator(
        "mbart", vocab_size=len(tokenizer), eos_token_id=2, decoder_start_token_id=2, pad_token_id=1
    )
    options = Options(src_lang="de_DE", tgt_lang="ro_RO")
    ids, pinned = encode_source(tokenizer, "the", options)
    assert tokenizer.convert_ids_to_tokens(ids) == source
    assert pinned == {i for i, piece in enumerate(source) if piece != "▁the"}
    first = decoder_start(model, tokenizer, "ro_RO")
    assert tokenizer.convert_ids_to_tokens(first) == start
    translator = rationales.load(model, tokenizer)
    explanation = translator.explain("the dog", options, continuation="the dog", max_size=2)
    target = [t for t in explanation.tokens if t.side == "target"]
    assert [t.pinned for t in target] == [True] * len(start) + [False] * 2
    assert len(explanation) == 2


def test_languages_of_one_call_are_not_those_of_the_next() -> None:
    tokenizer = MBartTokenizer(vocab=VOCABULARY, src_lang="en_XX", tgt_lang="ro_RO")
    before = encode_source(tokenizer, "▁dog", Options())
    other = encode_source(tokenizer, "▁dog", Options(src_lang="de_DE"))
    translation_ids(tokenizer, "▁dog", Options(tgt_lang="de_DE"))
    assert (tokenizer.src_lang, tokenizer.tgt_lang) == ("en_XX", "ro_RO")
    assert encode_source(tokenizer, "▁dog", Options()) == before != other


def test_a_tokenizer_is_used_by_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a source's tokens are must not depend on a translation that is tokenised meanwhile."""
    tokenizer = MBartTokenizer(vocab=VOCABULARY, src_lang="en_XX", tgt_lang="ro_RO")
    original, inside, met = MBartTokenizer.__call__, threading.Semaphore(1), []

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        if not inside.acquire(blocking=False):
            met.append(threading.get_ident())
            return original(self, *arguments, **named)
        time.sleep(0.01)
        try:
            return original(self, *arguments, **named)
        finally:
            inside.release()

    monkeypatch.setattr(MBartTokenizer, "__call__", call)
    work = [
        lambda: encode_source(tokenizer, "▁dog", Options()),
        lambda: translation_ids(tokenizer, "▁dog", Options()),
    ]
    threads = [threading.Thread(target=each) for each in work * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not met


def test_languages_that_are_missing_or_unknown_are_said(model: Any, tokenizer: Any) -> None:
    many: Any = NllbTokenizer()
    assert many.convert_ids_to_tokens(language_id(many, "fra_Latn")) == "fra_Latn"
    with pytest.raises(RationalesError, match="does not know the language 'fr'") as error:
        language_id(many, "fr")
    one_line(error)
    with pytest.raises(RationalesError, match="give tgt_lang") as error:
        decoder_start(model, many, None)
    one_line(error)
    with pytest.raises(RationalesError, match="no languages to choose from") as error:
        encode_source(tokenizer, "x", Options(src_lang="fr"))
    one_line(error)
    with pytest.raises(RationalesError, match="does not know the language"):
        encode_source(MBartTokenizer(vocab=VOCABULARY), "x", Options(src_lang="▁dog"))


# --- bad input


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("", {}, "the source is empty"),
        (" \n", {}, "the source is empty"),
        ("\ud800", {}, "not valid Unicode"),
        ("word " * 70, {}, "the source has"),
        (SOURCE, {"continuation": "word " * 70}, "the translation has"),
        (SOURCE, {"chat": True}, "leave out chat"),
        (SOURCE, {"generate": 3}, "leave out generate"),
        (SOURCE, {"max_length": 0}, "max_length must be at least 1"),
        (SOURCE, {"max_length": "x"}, "max_length must be a whole number"),
    ],
)
def test_bad_input_is_one_line(translator: Any, text: str, options: Any, says: str) -> None:
    with pytest.raises(RationalesError, match=says) as error:
        translator.explain(text, **options)
    one_line(error)


def test_options_of_translations_are_not_for_language_models(tiny_explainer: Any) -> None:
    with pytest.raises(RationalesError, match="leave out tgt_lang: it is for translation"):
        tiny_explainer.explain("the dog", tgt_lang="fr")


def test_a_model_of_the_other_kind_is_refused(model: Any, tokenizer: Any, tiny_model: Any) -> None:
    with pytest.raises(RationalesError, match="is an encoder–decoder") as error:
        rationales.load(model, tokenizer, kind="causal")
    one_line(error)
    with pytest.raises(RationalesError, match="is a causal language model") as error:
        rationales.load(tiny_model, tokenizer, kind="seq2seq")
    one_line(error)
    with pytest.raises(RationalesError, match="leave out the adapter"):
        rationales.load(model, tokenizer, adapter="some")


# --- JSON and the terminal


def test_json_has_sides_and_reads_back(translator: Any, tmp_path: Path) -> None:
    explanation = translator.explain(SOURCE, max_length=3)
    schema = json.loads(resources.files("rationales").joinpath("schema.json").read_text())
    jsonschema.validate(explanation.to_dict(), schema)
    assert explanation.to_dict()["tokens"][0]["side"] == "source"
    explanation.save(tmp_path / "x.json")
    assert Explanation.load(tmp_path / "x.json") == explanation


def made_up(sizes: int = 3) -> Explanation:
    """A source of so many tokens, a decoder start and two target tokens."""
    tokens = [rationales.Token(i, i, f" source{i}", side="source") for i in range(sizes)]
    tokens += [
        rationales.Token(sizes, 0, "</s>", True, "source"),
        rationales.Token(sizes + 1, 1, "<pad>", True, "target"),
        rationales.Token(sizes + 2, 2, "I", False, "target"),
        rationales.Token(sizes + 3, 3, " think", False, "target"),
    ]
    found = (
        rationales.Rationale(sizes + 2, 2, (1,), True, 3, target_text="I"),
        rationales.Rationale(sizes + 3, 3, (sizes + 2, 0, 2), False, 3, target_text=" think"),
    )
    return Explanation("m", "greedy", "sparse", tuple(tokens), found, 0.1)


def printed(explanation: Explanation, width: int) -> str:
    file = io.StringIO()
    show(explanation, console=Console(width=width, file=file))
    return file.getvalue()


def test_a_rationale_reads_from_source_to_target() -> None:
    first, second = made_up()
    assert second.texts == ["source0 … source2", "I"]
    assert second.text == "source0 … source2 → I"
    assert first.text == "source1 → "


def test_the_terminal_shows_a_matrix() -> None:
    lines = [line.split() for line in printed(made_up(), 80).splitlines()]
    assert lines[1] == ["translation:", "I", "think"]
    assert lines[2] == ["target", "size", "source0", "source1", "source2", "after"]
    assert lines[3] == ["✓", "I", "1", "·", "■", "·"]
    assert lines[4] == ["✗", "think", "3", "■", "·", "■", "I"]
    assert lines[5] == ["■", "kept", "·", "dropped", "✓", "sufficient", "✗", "not", "reached"]


def test_a_matrix_has_probabilities_where_there_is_room() -> None:
    steps = {r: rationales.Step(None, -0.1, r.target_id, -0.1) for r in made_up()}
    told = tuple(replace(r, steps=(step,), full_context=step) for r, step in steps.items())
    explanation = replace(made_up(), rationales=told)
    assert printed(explanation, 80).count("90.5%") == 4
    narrow = printed(explanation, 48)
    assert "90.5%" not in narrow
    assert "source0 source1 source2" in narrow


def test_the_translation_is_a_sentence_above_a_table_too() -> None:
    wide = printed(made_up(60), 80)
    assert "■" not in wide
    assert "translation: I think\n" in wide
    assert " → " in wide  # parts the source from the translation


def test_long_sources_are_written_downwards_or_as_a_text() -> None:
    downwards = printed(made_up(12), 80).splitlines()
    last = next(line.strip() for line in downwards if line.strip().startswith("target"))
    assert last.split() == ["target", "size", *"012345678901", "after"]
    assert max(map(len, downwards)) <= 80
    assert "■" not in printed(made_up(60), 80)
    assert "think" in printed(made_up(60), 80)


# --- the command


def test_the_command_translates(run: Any, folder: Path) -> None:
    arguments = ("translate", SOURCE, "--max-length", "3", "--model", str(folder))
    code, out, err = run(*arguments)
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 4
    assert "→" in out
    code, out, _ = run(*arguments, "--json", "-", "--steps", "2", "--unit", "word")
    data = json.loads(out)
    assert code == 0
    assert {token["side"] for token in data["tokens"]} == {"source", "target"}
    assert len(data["rationales"]) == 3


def test_the_command_takes_json_lines(run: Any, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    lines = [{"text": SOURCE, "id": 1, "continuation": "the law"}, {"text": "dog", "max_length": 2}]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    code, out, _ = run("translate", "--jsonl", str(path), "--model", str(folder))
    assert code == 0
    assert [json.loads(line).get("id") for line in out.splitlines()] == [1, None]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["translate", SOURCE], "no translation model: give one with --model"),
        (["translate", "", "--model", "FOLDER"], "empty"),
        (["translate", "word " * 90, "--model", "FOLDER"], "positions for 64"),
        (
            ["translate", SOURCE, "--model", "CAUSAL"],
            "not an encoder–decoder: `rationales expl",
        ),
        (
            ["explain", SOURCE, "--model", "FOLDER"],
            "not a causal language model: `rational",
        ),
        (["translate", SOURCE, "--model", "FOLDER", "--tgt-lang", "fr"], "no languages"),
        (["translate", SOURCE, "--model", "FOLDER", "--chat"], "--chat"),
        (
            ["translate", SOURCE, "--beam", "2", "--method", "random"],
            "--beam goes with the method beam",
        ),
    ],
)
def test_mistakes_are_one_line(
    run: Any, folder: Path, tiny_folder: Path, monkeypatch: Any, arguments: list[str], says: str
) -> None:
    monkeypatch.setattr("rationales.models.loading.TRANSLATORS", folder / "none")
    places = {"FOLDER": str(folder), "CAUSAL": str(tiny_folder)}
    code, out, err = run(*(places.get(a, a) for a in arguments), model=False)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert says in err


def test_the_help_has_examples(run: Any) -> None:
    code, out, _ = run("translate", "--help", model=False)
    assert code == 0
    assert "Examples" in out
    assert "--tgt-lang" in out


def test_the_commands_share_their_options(run: Any) -> None:
    """Options are declared once, in groups: the other command takes and passes on the same."""
    text = "the dog sat on the"
    searching = ("--max-size", "3", "--unit", "word", "--criterion", "top-k=5", "--disjoint", "2")
    code, out, err = run("explain", text, *searching, "--target", "last", "--json", "-", "--steps")
    assert (code, err) == (0, "")
    options = json.loads(out)["options"]
    expected = {"unit": "word", "criterion": "top-k=5", "disjoint": 2, "max_size": 3}
    assert options == expected
    code, out, _ = run("explain", text, "--beam", "2", "--generate", "2", "--batch-tokens", "64")
    assert code == 0
    assert len(out.splitlines()) == 3
    code, out, _ = run("explain", text, "--method", "soft", "--lambda", "2", "--json", "-")
    assert json.loads(out)["options"] == {"penalty": 2.0}
    code, out, err = run("explain", text, "--method", "random", "--beam", "2")
    assert (code, out) == (2, "")
    assert "--beam goes with the method beam, not random" in err


def test_a_t5_in_a_folder_is_loaded(tmp_path: Path) -> None:
    tokenizer: Any = T5Tokenizer(vocab=VOCABULARY)
    model = build_translator("t5", vocab_size=len(tokenizer))
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    translator = rationales.load(str(tmp_path))
    assert isinstance(translator, Translator)
    explanation = translator.explain("the dog", prefix="do: ", continuation="the", fast=True)
    assert explanation.evaluation == "masked"
    assert [t.text for t in explanation.tokens if t.side == "target"][-1] == "the"


def test_the_packaged_model_translates_with_the_words_it_needs() -> None:
    explanation = rationales.load(kind="seq2seq").explain("Je pense que tu as raison.")
    assert "".join(each.target_text for each in explanation) == "I think you're right."
    assert all(each.sufficient and each.predicted for each in explanation)
    for target, source in ((" think", " pense"), (" right", " raison")):
        [rationale] = [each for each in explanation if each.target_text == target]
        texts = [explanation.tokens[i].text for i in rationale.indices]
        assert source in texts
        assert len(rationale) <= 3


def test_the_packaged_model_is_small_and_tells_how_it_was_made() -> None:
    folder = packaged_translator()
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 20_000_000
    record = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    assert record["command"].startswith("rationales experiment translation ")
    assert max(each["score"] for each in record["bleu"]) >= 46
