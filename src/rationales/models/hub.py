"""Models of the hub: from its local cache if they are whole there, else fetched.

An unreachable hub is said within ten seconds. Only the files that are needed are fetched.
"""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any

from rationales.errors import RationalesError, first_line
from rationales.models.files import PICKLED, WEIGHTS, Kind, check_config, file_names, lacking_files

HUB_SECONDS = 8.0


def from_hub(name: str, allow_pickle: bool, kind: Kind | None = "causal") -> Path:
    """The folder of a hub's model: from its local cache if it is whole there, else fetched."""
    folder = snapshot(name)
    lacking = lacking_files(file_names(folder), allow_pickle) if folder else ""
    if folder and not lacking:
        return folder
    try:
        return _download(name, allow_pickle, kind)
    except RationalesError as error:
        if lacking:  # nearer to the cause than a hub that cannot be reached
            raise RationalesError(f"the cached copy of {name} {lacking}") from error
        raise


def snapshot(name: str) -> Path | None:
    """The folder of a model in the hub's local cache, be it complete or not."""
    from huggingface_hub import constants, try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, "config.json", cache_dir=constants.HF_HUB_CACHE)
    except HFValidationError as error:
        raise RationalesError(
            f"{name!r} is neither a folder nor a hub id: ids read like owner/name"
        ) from error
    return Path(found).parent if isinstance(found, str) else None


def _download(name: str, allow_pickle: bool, kind: Kind | None) -> Path:
    """The folder of a model fetched from the hub: its config first, the rest if that will do."""
    from huggingface_hub import hf_hub_download, snapshot_download

    names = _ask_hub(name)
    try:
        if "config.json" in names:
            check_config(Path(hf_hub_download(name, "config.json")).parent, name, kind)
        if lacking := lacking_files(names, allow_pickle):
            raise RationalesError(f"{name} {lacking}")
        weights = WEIGHTS if any(map(WEIGHTS.fullmatch, names)) else PICKLED
        beside = {".json", ".txt", ".model", ".spm", ".jinja"}
        wanted = [n for n in names if weights.fullmatch(n) or Path(n).suffix in beside]
        return Path(snapshot_download(name, allow_patterns=wanted))
    except RationalesError:
        raise
    except Exception as error:
        raise _hub_error(name, error) from error


def _ask_hub(name: str) -> set[str]:
    """The names of the files that the hub has for a model, or an error within ten seconds.

    The client does not retry this call, but its timeout counts connecting and reading apart, begins
    anew with each address of the host, and does not cover looking the host up: so a thread asks,
    and the wait for it is bounded.
    """
    from huggingface_hub import HfApi

    answers: list[Any] = []

    def ask() -> None:
        try:
            answers.append(HfApi().model_info(name, timeout=HUB_SECONDS))
        except Exception as error:
            answers.append(error)

    thread = Thread(target=ask, daemon=True)
    thread.start()
    thread.join(HUB_SECONDS)
    answer = answers[0] if answers else TimeoutError(f"no answer in {HUB_SECONDS:.0f} seconds")
    if isinstance(answer, Exception):
        raise _hub_error(name, answer) from answer
    return {file.rfilename for file in answer.siblings or () if "/" not in file.rfilename}


def _hub_error(name: str, error: Exception) -> RationalesError:
    """What a user reads in place of an exception of the hub's client."""
    from huggingface_hub import errors

    if isinstance(error, errors.OfflineModeIsEnabled):
        text = f"{name} is not on this machine and HF_HUB_OFFLINE is set: unset it or give a folder"
    elif isinstance(error, errors.GatedRepoError):
        text = f"{name} is gated: accept its terms on the hub, then log in with `hf auth login`"
    elif isinstance(error, errors.RepositoryNotFoundError):
        text = f"the hub has no public model {name}: check the name, log in, or give a folder"
    elif isinstance(error, errors.HfHubHTTPError):
        text = f"the hub answered {error.response.status_code} for {name}: try again later"
    elif isinstance(error, OSError) and error.errno is not None and error.strerror:
        text = f"{name} cannot be stored ({error.strerror}): set HF_HOME to another folder"
    else:
        text = (
            f"{name} is not on this machine and the hub cannot be reached ({first_line(error)}): "
            "go online, or give a folder"
        )
    return RationalesError(text)
