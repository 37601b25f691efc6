"""What all tests share: no network, one thread, a tiny tokenizer and a tiny explainer."""

from __future__ import annotations

import copy
import os
import sys
import tempfile

# Before transformers is imported: a test that would download fails instead.
os.environ["HF_HUB_OFFLINE"] = "1"

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from rationales import Explainer, cli
from rationales.cache import cache_folder
from rationales.scoring import verdicts
from rationales.scoring.causal import CausalScorer

from tiny_models import build

# How long an example takes says nothing: machines are busy, and the first text of all is slow.
# The suite tries the same examples each time; --long tries others.
settings.register_profile("long", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("suite", settings.get_profile("long"), derandomize=True)
settings.load_profile("suite")

# Two threads on busy cores wait for each other longer than a tiny model computes.
torch.set_num_threads(1)

# A cache of the tests' own, with the user's converted model. A file stands where the folder of
# verdicts would be, so nothing is remembered: every self-test runs, in child processes too.
_CACHE = tempfile.TemporaryDirectory()
if (_users_models := cache_folder() / "models").is_dir():
    Path(_CACHE.name, "models").symlink_to(_users_models.resolve())
Path(_CACHE.name, verdicts.FOLDER).touch()
os.environ["RATIONALES_CACHE"] = _CACHE.name

BOS, EOS = "<s>", "</s>"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests that take minutes, too")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--long"):
        settings.load_profile("long")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--long"):
        skip = pytest.mark.skip(reason="takes minutes: run with --long")
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(skip)


SENTENCES = (
    "The Supreme Court on Tuesday ruled that the law of the land is the law.",
    "The quick brown fox jumps over the lazy dog, and the dog sleeps on.",
    "When my flight landed in Thailand, I took a taxi from the airport to the city of Bangkok.",
    "Die Größe der Straße überraschte die Königin; naïve café, señor, Ærø, Łódź.",
    "Москва слезам не верит. 東京は日本の首都です。 🙂 Ça va? 1, 2, 3, 42.",
)


def train_tokenizer(bos: bool = False) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of a few hundred tokens; with ``bos``, it puts one in front.

    It can encode any text, and splits characters that it has not seen into their bytes.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    if bos:
        tokenizer.post_processor = processors.Sequence(
            [
                processors.ByteLevel(trim_offsets=False),
                processors.TemplateProcessing(
                    single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
                ),
            ]
        )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=BOS, eos_token=EOS)


@pytest.fixture(scope="session")
def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer that adds nothing to a text."""
    return train_tokenizer()


@pytest.fixture(scope="session")
def tiny_tokenizer_with_bos() -> PreTrainedTokenizerFast:
    """A tokenizer that puts a special token before a text."""
    return train_tokenizer(bos=True)


@pytest.fixture(scope="session")
def tiny_model(tiny_tokenizer: PreTrainedTokenizerFast) -> Any:
    """A GPT-2 for the tiny tokenizers; tests leave it as it is."""
    return build("gpt2", vocab_size=len(tiny_tokenizer))


@pytest.fixture
def tiny_explainer(tiny_model: Any, tiny_tokenizer: PreTrainedTokenizerFast) -> Explainer:
    """An explainer of texts with the tiny model."""
    return Explainer(CausalScorer(tiny_model), tiny_tokenizer, name="tiny", model=tiny_model)


@pytest.fixture
def chat_explainer(tiny_model: Any, tiny_tokenizer: PreTrainedTokenizerFast) -> Explainer:
    """An explainer of texts and of chats, whose template knows three roles."""
    tokenizer = copy.deepcopy(tiny_tokenizer)
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant'] %}"
        "{{ raise_exception('unknown role') }}{% endif %}"
        "{{ '<' + m.role + '>' + m.content + '\\n' }}{% endfor %}{{ '<assistant>' }}"
    )
    return Explainer(CausalScorer(tiny_model), tokenizer, name="tiny", model=tiny_model)


@pytest.fixture
def tiny_explainer_with_bos(
    tiny_model: Any, tiny_tokenizer_with_bos: PreTrainedTokenizerFast
) -> Explainer:
    """An explainer whose texts begin with a special token."""
    scorer = CausalScorer(tiny_model)
    return Explainer(scorer, tiny_tokenizer_with_bos, name="tiny", model=tiny_model)


@pytest.fixture(scope="session")
def tiny_folder(tiny_model: Any, tiny_tokenizer: Any, tmp_path_factory: Any) -> Path:
    """A folder with a tiny model and its tokenizer, as a user would have one."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model.save_pretrained(folder)
    tiny_tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def run(capsys: Any, monkeypatch: Any, tiny_folder: Path) -> Any:
    """Runs a command in this process: (exit code, standard output, standard error)."""

    def _run(*arguments: str, stdin: str | None = None, model: bool = True) -> tuple[int, str, str]:
        # Without a terminal and without input, standard input is at its end.
        of_model = ["--model", str(tiny_folder)] if model and arguments[0] == "explain" else []
        with tempfile.TemporaryFile("w+", encoding="utf-8") as given:
            given.write(stdin or "")
            given.seek(0)
            monkeypatch.setattr(sys, "stdin", given)
            code = cli.call([*arguments, *of_model])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return _run
