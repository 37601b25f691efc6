"""What is of the wrong type: one clear line, before anything is loaded; a path is a name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast

import rationales
from conftest import train_tokenizer
from rationales import (
    Context,
    Explainer,
    Explanation,
    Failure,
    Options,
    RationalesError,
    Request,
    Score,
    TableScorer,
)

from tiny_models import build, build_translator

TEXT = "The law of the land"
CONTEXT = Context(ids=(3, 4), target_id=5, required=(1,))
TABLE = TableScorer(lambda kept: Score(-1.0, 5))


def failed(explainer: Explainer, request: Any) -> str:
    """What is wrong with a request that stands between two good ones, which are explained."""
    good = Request(TEXT, Options(target="last", max_size=1))
    before, failure, after = explainer.explain_all([good, request, good])
    assert isinstance(before, Explanation)
    assert isinstance(after, Explanation)
    assert isinstance(failure, Failure)
    return str(failure.error)


def refused(call: Callable[[], Any]) -> str:
    """What is said of a call that cannot be."""
    with pytest.raises(RationalesError) as error:
        call()
    assert "\n" not in str(error.value)
    return str(error.value)


# load ------------------------------------------------------------------------------------------


def test_a_path_is_loaded_like_its_name(tiny_folder: Path) -> None:
    by_path, by_name = rationales.load(tiny_folder), rationales.load(str(tiny_folder))
    assert by_path.name == by_name.name == str(tiny_folder)
    found, expected = by_path.explain(TEXT, generate=2), by_name.explain(TEXT, generate=2)
    assert found.rationales == expected.rationales


def test_an_adapter_may_be_a_path(tiny_folder: Path, tmp_path: Path) -> None:
    message = refused(lambda: rationales.load(tiny_folder, adapter=tmp_path))
    assert message == refused(lambda: rationales.load(tiny_folder, adapter=str(tmp_path)))
    assert message.startswith(f"{tmp_path} holds no adapter")
    explainer = rationales.load(tiny_folder, adapter=False)
    assert explainer.adapter is None


@pytest.fixture
def nothing_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is loaded before all arguments are checked is an error."""
    monkeypatch.setattr("rationales.loading.load_model", lambda *_, **__: pytest.fail("loaded"))


@pytest.mark.usefixtures("nothing_loads")
@pytest.mark.parametrize(
    ("model", "named"),
    [
        (42, "not 42"),
        (True, "not True"),
        (b"gpt2", "not b'gpt2'"),
        (["gpt2"], "not a value of type list"),
        (object(), "not a value of type object"),
        (SimpleNamespace(config=None), "not a value of type SimpleNamespace"),
        (GPT2LMHeadModel, "not the class GPT2LMHeadModel"),
        (torch.nn.Linear(2, 2), "not a value of type Linear"),
    ],
)
def test_what_is_no_model_is_refused(
    model: Any, named: str, tiny_tokenizer: PreTrainedTokenizerFast
) -> None:
    for tokenizer in (None, tiny_tokenizer):
        message = refused(lambda tokenizer=tokenizer: rationales.load(model, tokenizer))
        assert message.startswith("the model must be a name, a folder, or a model of transformers")
        assert message.endswith(named)


@pytest.mark.usefixtures("nothing_loads")
def test_what_is_no_tokenizer_is_refused(
    tiny_model: Any, tiny_tokenizer: PreTrainedTokenizerFast, tiny_folder: Path
) -> None:
    backend = tiny_tokenizer._tokenizer  # of tokenizers, not of transformers
    for wrong, named in [
        ("gpt2", "not 'gpt2'"),
        (tiny_folder, "not a value of type PosixPath"),
        (3, "not 3"),
        (backend, "not a value of type Tokenizer"),
        (type(tiny_tokenizer), f"not the class {type(tiny_tokenizer).__name__}"),
    ]:
        for model in (None, str(tiny_folder), tiny_model):
            message = refused(lambda model=model, wrong=wrong: rationales.load(model, wrong))
            assert "AutoTokenizer.from_pretrained(...)" in message
            assert message.endswith(named)
        assert message == refused(lambda wrong=wrong: Explainer(TABLE, wrong))
    # The two the wrong way round.
    assert "the model must be" in refused(lambda: rationales.load(tiny_tokenizer, tiny_model))


@pytest.mark.usefixtures("nothing_loads")
@pytest.mark.parametrize(
    ("name", "wrong", "says"),
    [
        ("adapter", 3, "adapter must be a folder, or False for none, not 3"),
        ("merge", "no", "merge must be true or false, not 'no'"),
        ("dtype", torch.float32, "float32, bfloat16, float16 or auto, not a value of type"),
        ("device", torch.device("cpu"), "device must be cpu, cuda, mps or xpu, or one such"),
        ("device", 0, "or one such as cuda:1, not 0"),
        ("batch_tokens", "64", "batch_tokens must be a whole number, not '64'"),
        ("batch_tokens", 2.5, "batch_tokens must be a whole number, not 2.5"),
        ("batch_tokens", True, "batch_tokens must be a whole number, not True"),
        ("kind", "decoder", "kind must be causal or seq2seq, not 'decoder'"),
        ("kind", ["causal"], "kind must be causal or seq2seq, not a value of type list"),
    ],
)
def test_other_arguments_are_checked(name: str, wrong: Any, says: str) -> None:
    assert says in refused(lambda: rationales.load("some/model", **{name: wrong}))


# The tokenizer of another model ----------------------------------------------------------------


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(
    tiny_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    small = build("gpt2", vocab_size=300)
    says = "the tokenizer given has 400 tokens and its model 300: give the model's own tokenizer"
    assert refused(lambda: rationales.load(small, tiny_tokenizer)) == says
    small.save_pretrained(tmp_path)
    tiny_tokenizer.save_pretrained(tmp_path)
    assert "put the model's own tokenizer into the folder" in refused(
        lambda: rationales.load(tmp_path)
    )


def test_the_folder_of_one_model_and_the_tokenizer_of_another(tiny_folder: Path) -> None:
    words = Tokenizer(WordLevel({f"word{n}": n for n in range(500)}, "word0"))
    larger = PreTrainedTokenizerFast(tokenizer_object=words)
    message = refused(lambda: rationales.load(tiny_folder, larger))
    assert message.startswith("the tokenizer given has 500 tokens and its model 400: ")


def test_a_model_with_padded_embeddings_is_not_refused(
    tiny_tokenizer: PreTrainedTokenizerFast,
) -> None:
    padded = build("gpt2", vocab_size=512)
    assert len(rationales.load(padded, tiny_tokenizer).explain(TEXT, generate=1)) == 1


def test_tokens_that_were_added_count_only_where_they_are_used(tiny_model: Any) -> None:
    tokenizer = train_tokenizer()
    tokenizer.add_tokens(["<image>"])
    assert len(tokenizer) > tiny_model.get_input_embeddings().weight.shape[0]
    explainer = rationales.load(tiny_model, tokenizer)
    assert len(explainer.explain(TEXT, generate=1)) == 1
    for words in ({"target": "last"}, {"target": "law"}):
        message = refused(lambda words=words: explainer.explain("<image> of the law", **words))
        assert (
            "the tokenizer gives '<image>' the id 400, and the model has embeddings for" in message
        )
    assert "the id 400" in refused(lambda: explainer.explain(TEXT, continuation="<image>"))
    assert "the id 400" in refused(lambda: explainer.explain("an <image>"))
    assert "the id 400" in refused(lambda: explainer.explain(TEXT, instead_of="<image>"))
    translator = rationales.load(build_translator("marian", vocab_size=400), tokenizer)
    assert "the id 400" in refused(lambda: translator.explain("an <image>"))
    assert "the id 400" in refused(lambda: translator.explain(TEXT, continuation="<image>"))


# explain ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (None, "None"),
        (42, "42"),
        (b"The law", "b'The law'"),
        (bytearray(b"The law"), "a value of type bytearray"),
        ({"text": "The law"}, "a value of type dict"),
        ({"The law", "The dog"}, "a value of type set"),
        (Path("law.txt"), "a value of type PosixPath"),
        (Request("The law"), "a value of type Request"),
    ],
)
def test_what_is_no_text_is_refused(tiny_explainer: Explainer, text: Any, named: str) -> None:
    message = refused(lambda: tiny_explainer.explain(text))
    assert message == f"give a text (str) or a list of texts, not {named}"


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([TEXT, None], "at place 1 it has None"),
        ([[TEXT], [TEXT]], "at place 0 it has a value of type list"),
        ([TEXT, TEXT, 3], "at place 2 it has 3"),
        ([{"role": "user", "content": TEXT}], "at place 0 it has a value of type dict"),
    ],
)
def test_a_list_of_other_things_is_refused(
    tiny_explainer: Explainer, texts: Any, said: str
) -> None:
    assert refused(lambda: tiny_explainer.explain(texts)).endswith(said)


@pytest.mark.parametrize(
    "texts",
    [tuple, iter, numpy.array, lambda texts: dict.fromkeys(texts).keys()],
    ids=["tuple", "iterator", "array", "keys"],
)
def test_any_iterable_of_texts_will_do(tiny_explainer: Explainer, texts: Any) -> None:
    wanted = [TEXT, "the dog"]
    found = tiny_explainer.explain(texts(wanted), generate=1)
    assert [each.text[: len(text)] for each, text in zip(found, wanted, strict=True)] == wanted


def test_no_texts_are_no_explanations(tiny_explainer: Explainer) -> None:
    assert tiny_explainer.explain([]) == []
    assert tiny_explainer.explain(iter(())) == []


@pytest.mark.parametrize("options", [{"generate": 1}, "fast", 3, False, Options])
def test_what_is_no_options_is_refused(tiny_explainer: Explainer, options: Any) -> None:
    for call in (
        lambda: tiny_explainer.explain(TEXT, options),
        lambda: tiny_explainer.explain([], options),
        lambda: rationales.rationalize(CONTEXT, TABLE, options),
    ):
        assert refused(call).startswith("options must be Options(...), not ")
    message = failed(tiny_explainer, Request(TEXT, options))
    assert message.startswith("options must be Options(...), not ")


@pytest.mark.parametrize("text", [None, 42, b"The law", ["The law"]])
def test_the_text_of_a_request_is_checked(tiny_explainer: Explainer, text: Any) -> None:
    message = failed(tiny_explainer, Request(text))
    assert message.startswith("the text of a request must be a str, not ")


def test_what_is_no_request_is_refused(tiny_explainer: Explainer) -> None:
    message = failed(tiny_explainer, TEXT)
    assert message.startswith("give requests, as in Request(text), not 'The law")


def test_a_translator_is_as_careful() -> None:
    tokenizer = train_tokenizer()
    model = build_translator("marian", vocab_size=len(tokenizer))
    translator = rationales.load(model, tokenizer)
    assert "list of texts, not None" in refused(lambda: translator.explain(None))  # type: ignore[call-overload]
    assert "must be a str, not 3" in failed(translator, Request(3))  # type: ignore[arg-type]


# Scorers and contexts --------------------------------------------------------------------------


def test_what_is_no_scorer_is_refused(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    for wrong in (None, len, TableScorer, "table", 3):
        says = "the scorer must have a method score, as BlackBoxScorer has, not "
        assert refused(lambda wrong=wrong: Explainer(wrong, tiny_tokenizer)).startswith(says)
        assert refused(lambda wrong=wrong: rationales.rationalize(CONTEXT, wrong)).startswith(says)


def test_what_is_no_context_is_refused() -> None:
    message = refused(lambda: rationales.rationalize(TEXT, TABLE))  # type: ignore[arg-type]
    assert message.startswith("give a Context, not 'The law")
