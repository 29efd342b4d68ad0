"""Hugging Face ids -> a local folder, through huggingface_hub and its cache. Safetensors only, no code."""

from __future__ import annotations

from pathlib import Path

from foredraft.errors import CheckpointError

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


def download(repository: str) -> Path:
    """The folder of ``repository`` (``org/model``), downloaded or from the cache.

    Raises ``CheckpointError`` in one line: not found, gated, or not reachable.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        return Path(snapshot_download(repository, allow_patterns=_WANTED, ignore_patterns=_UNWANTED))
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
