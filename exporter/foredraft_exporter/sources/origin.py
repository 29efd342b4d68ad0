"""What a source's name means: a path, an entry of the catalogue or a repository; and what its model is called.

Reads no file and no network.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from foredraft_exporter.sources import catalog
from foredraft_exporter.sources.gguf_names import by_model, model_name

PICKLED = frozenset({".bin", ".pth", ".pt", ".ckpt", ".pkl"})
_HUB_ID = re.compile(r"([A-Za-z0-9][\w.-]*/[\w.-]+)(?::([\w.-]+))?")


@dataclass(frozen=True, slots=True)
class Origin:
    """``name`` is the model's. ``path`` exists; without one the model is in ``repository`` (``org/model``), there in
    the GGUF named ``quantization`` if that is said, or, without both, the catalogue's own.
    """

    name: str
    path: Path | None = None
    repository: str | None = None
    quantization: str | None = None


def origin_of(source: str | Path) -> Origin:
    """A path that exists wins; raises ``CheckpointError`` for what is nothing of all this."""
    path = Path(source).expanduser()
    if path.exists():
        return Origin(_name(path), path)
    entry = catalog.find(str(source))
    if entry is not None:
        return Origin(entry.name, repository=entry.repository)
    found = _HUB_ID.fullmatch(str(source))
    if found is None or not looks_like_hub_id(str(source)):
        raise catalog.unknown(str(source))
    return Origin(found[1].rpartition("/")[2], None, found[1], found[2])


def looks_like_hub_id(name: str) -> bool:
    """``organisation/model``, maybe ``:quantization``, and nothing that was clearly meant as a path."""
    return _HUB_ID.fullmatch(name) is not None and Path(name).suffix not in (PICKLED | {".gguf", ".safetensors"})


def gguf_models(folder: Path) -> list[Path]:
    """One file of each GGUF model in a folder that is no Hugging Face folder with weights of its own."""
    weights = any(folder.glob("*.safetensors")) or (folder / "model.safetensors.index.json").exists()
    if weights and (folder / "config.json").exists():
        return []
    return list(by_model(folder.glob("*.gguf")))


def _name(path: Path) -> str:
    """Its own name; but of what lies in the cache of the hub that of its repository, not a commit's hash.

    Links in the folders above are followed, a link itself is not: its name was chosen, and that of what it leads to in
    the cache is a hash again.
    """
    absolute = Path(os.path.abspath(path))  # noqa: PTH100 - Path.resolve would follow the link
    real = absolute.parent.resolve() / absolute.name
    for above, folder in zip(real.parts, real.parts[1:-1], strict=False):
        if above.startswith("models--") and folder == "snapshots":
            return above.split("--")[-1]
    ggufs = gguf_models(path) if path.is_dir() else []
    if path.is_dir() and not ggufs:
        return absolute.name
    return model_name(ggufs[0] if ggufs else absolute)
