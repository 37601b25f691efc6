"""Models of the hub: from its local cache if they are complete there, else fetched.

An unreachable hub is an error within ten seconds. Only the files that are needed are fetched.
"""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import Any

from rationales.errors import RationalesError, first_line
from rationales.models.files import Kind, check_config, file_names, missing_files, needed_files

HUB_SECONDS = 8.0


def from_hub(name: str, allow_pickle: bool, kind: Kind | None, revision: str | None) -> Path:
    """The folder of a hub's model: from its local cache if it is complete there, else fetched."""
    from huggingface_hub import hf_hub_download, snapshot_download

    folder = snapshot(name, revision)
    missing = missing_files(file_names(folder), allow_pickle) if folder else ""
    if folder and not missing:
        return folder
    try:
        names = _ask_hub(name, revision)
        if "config.json" in names:  # first: a model of another kind is not fetched in vain
            config = hf_hub_download(name, "config.json", revision=revision)
            check_config(Path(config).parent, name, kind)
        if lacking := missing_files(names, allow_pickle):
            raise RationalesError(f"{name} {lacking}")
        needed = needed_files(names)
        return Path(snapshot_download(name, revision=revision, allow_patterns=needed))
    except Exception as error:
        if missing:  # nearer to the cause than a hub that cannot be reached
            raise RationalesError(f"the cached copy of {name} {missing}") from error
        if isinstance(error, RationalesError):
            raise
        raise RationalesError(_told(name, revision, error)) from error


def snapshot(name: str, revision: str | None = None) -> Path | None:
    """The folder of a model in the hub's local cache, complete or not; None if there is none."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, "config.json", revision=revision)
    except HFValidationError as error:
        raise RationalesError(
            f"{name[:80]!r} is neither a folder nor a hub id: ids read like owner/name"
        ) from error
    return Path(found).parent if isinstance(found, str) else None


def _ask_hub(name: str, revision: str | None) -> set[str]:
    """The names of the files that the hub has for a model, or an exception within ten seconds.

    The client's timeout counts connecting and reading apart, begins again with each address of the
    host, and does not cover the look-up of the host. So a thread asks, and waiting is bounded.
    """
    from huggingface_hub import HfApi

    answer: Future[Any] = Future()

    def ask() -> None:
        try:
            answer.set_result(HfApi().model_info(name, revision=revision, timeout=HUB_SECONDS))
        except Exception as error:
            answer.set_exception(error)

    Thread(target=ask, daemon=True).start()
    files = answer.result(timeout=HUB_SECONDS).siblings or ()
    return {file.rfilename for file in files if "/" not in file.rfilename}


def _told(name: str, revision: str | None, error: Exception) -> str:
    """The one line that a user reads in place of an exception of the hub's client."""
    from huggingface_hub import errors

    match error:
        case errors.OfflineModeIsEnabled():
            return f"{name} is not on this machine and HF_HUB_OFFLINE is set: unset it"
        case errors.GatedRepoError():
            return f"{name} is gated: accept its terms on the hub, then log in with `hf auth login`"
        case errors.RepositoryNotFoundError():
            return f"the hub has no public model {name}: check the name, log in, or give a folder"
        case errors.RevisionNotFoundError():
            return f"{name} has no revision {revision!r}: give a branch, a tag or a commit of it"
        case errors.HfHubHTTPError():
            return f"the hub answered {error.response.status_code} for {name}: try again later"
        case OSError(errno=int(), strerror=str(reason)):
            return f"{name} cannot be stored ({reason}): set HF_HOME to another folder"
    return (
        f"{name} is not on this machine and the hub cannot be reached ({first_line(error)}): "
        "go online, or give a folder"
    )
