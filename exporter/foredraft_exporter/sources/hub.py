"""Hugging Face ids -> a local folder or GGUF file, through huggingface_hub and its cache. No pickles, no code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from foredraft.disk_space import naming_full_disk
from foredraft.errors import CheckpointError
from foredraft_exporter.sources.gguf_names import by_model, model_name

_WANTED = [
    "*.safetensors",
    "*.safetensors.index.json",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.*",
    "README.md",
    "LICENSE*",
    "NOTICE*",
    "USE_POLICY*",
]
_UNWANTED = ["consolidated*", "original/*", "*/*"]


def download(repository: str, quantization: str | None = None) -> Path:
    """The folder of ``repository`` (``org/model``), or a file of the GGUF model there, downloaded or from the cache.

    Safetensors win, unless a ``quantization`` (``Q4_1``) names a GGUF model. Raises ``CheckpointError`` in one line:
    not found, gated, not reachable, or several GGUF models of which none is named.
    """
    folder = None
    if quantization is None:
        folder = _snapshot(repository, allow_patterns=_WANTED, ignore_patterns=_UNWANTED)
        if any(folder.glob("*.safetensors")):
            return folder
    models = by_model(Path(name) for name in _files(repository) if name.endswith(".gguf"))
    if folder is not None and not models:
        return folder
    first = _choose(repository, models, quantization)
    return _snapshot(repository, allow_patterns=[file.as_posix() for file in models[first]]) / first


def _choose(repository: str, models: Iterable[Path], quantization: str | None) -> Path:
    names = {first: model_name(first) for first in models}
    tag = (quantization or "").lower()
    fitting = [
        first
        for first, name in names.items()
        if not tag or name.lower().endswith((f"-{tag}", f".{tag}")) or tag in (name.lower(), first.parent.name.lower())
    ]
    if len(fitting) == 1:
        return fitting[0]
    listed = ", ".join(names.values()) or "none"
    wanted = f"; {quantization} names {len(fitting)} of them" if quantization else ""
    raise CheckpointError(
        f"{repository}: GGUF models there: {listed}{wanted}; name one by its end, such as {repository}:Q4_K_M"
    )


def _files(repository: str) -> list[str]:
    """The names of all files there; without the network, of those in the cache."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    with _told(repository):
        try:
            return HfApi().list_repo_files(repository)
        except (GatedRepoError, RepositoryNotFoundError):
            raise
        except Exception:  # of its HTTP library, which differs between its versions
            folder = _snapshot(repository, local_files_only=True)
            return [path.relative_to(folder).as_posix() for path in folder.rglob("*.gguf")]


def _snapshot(repository: str, **options: Any) -> Path:
    from huggingface_hub import snapshot_download

    with _told(repository):
        return Path(snapshot_download(repository, **options))


@contextmanager
def _told(repository: str) -> Iterator[None]:
    """What the hub's library raises, as a ``CheckpointError`` of one line."""
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        with naming_full_disk(Path(HF_HUB_CACHE)):
            yield
    except GatedRepoError as error:
        raise CheckpointError(
            f"{repository}: is gated; accept its licence on https://huggingface.co/{repository}, run "
            "`hf auth login`, and try again"
        ) from error
    except RepositoryNotFoundError as error:
        raise CheckpointError(
            f"{repository}: Hugging Face has no such model, or it is private; check the spelling, or "
            "pass a folder that holds it"
        ) from error
    except (LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, OSError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(
            f"{repository}: cannot be downloaded from Hugging Face ({type(error).__name__}: {reason[:120]}); "
            "if this machine is offline, pass a folder that holds it"
        ) from error
