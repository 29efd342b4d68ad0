"""What the exporter needs of a source model, whatever its format, and the one function that opens one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from foredraft.errors import CheckpointError
from foredraft_exporter.sources import catalog, hub
from foredraft_exporter.sources.fields import Fields
from foredraft_exporter.sources.origin import PICKLED, gguf_models, origin_of
from foredraft_exporter.weights.blocks import BlockFormat, Blocks


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """All about a model but its tensors.

    ``path`` is the folder or the GGUF file, of parts the first. ``config`` has Hugging Face keys, and its
    ``tie_word_embeddings`` is what the tensors say. ``generation`` has ``bos_token_id`` (int or None),
    ``eos_token_ids`` (list, the tokenizer's own first), ``add_bos`` (whether a raw prompt starts with BOS) and
    ``sampling`` (the model's own defaults). ``license`` may have ``id``, ``name``, ``link`` and ``files``. ``origins``
    says for ``tokenizer``, ``bos_token_id`` and ``chat_template`` which file, and which key, gave them.
    """

    name: str
    path: Path = field(compare=False)
    config: Fields
    generation: dict[str, Any]
    chat_template: str | None
    license: dict[str, Any]
    origins: dict[str, str] = field(compare=False)


class Checkpoint(Protocol):
    """A model's tensors under their Hugging Face names, read lazily and by rows."""

    @property
    def info(self) -> CheckpointInfo: ...

    def names(self) -> tuple[str, ...]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def read_rows(self, name: str, start: int, stop: int) -> NDArray[np.float32]:
        """Rows ``start .. stop-1`` (of a vector: elements) as float32."""
        ...

    def read(self, name: str) -> NDArray[np.float32]: ...

    def block_format(self, name: str) -> BlockFormat | None:
        """How the tensor is stored if it is in blocks that can be taken over bit-exactly, else None."""
        ...

    def blocks(self, name: str, start: int, stop: int) -> Blocks | None:
        """Rows ``start .. stop-1`` in the file's own numbers, or None where ``block_format`` is None."""
        ...

    def tokenizer_json(self) -> bytes: ...

    def release(self) -> None:
        """Gives back the memory of pages read so far."""
        ...


def open_checkpoint(source: str | Path) -> Checkpoint:
    """Opens a catalogue name, a path (folder or .gguf file) or a Hugging Face id; a path that exists wins.

    Raises ``CheckpointError`` naming the file at fault before any weight is read, or
    ``UnsupportedModelError``.
    """
    origin = origin_of(source)
    path = origin.path
    if path is None and origin.repository is not None:
        path = hub.download(origin.repository, origin.quantization)
    return _open_path(path or catalog.smollm2_gguf(), origin.name)


def _open_path(path: Path, name: str) -> Checkpoint:
    from foredraft_exporter.sources.gguf_file import GgufFile
    from foredraft_exporter.sources.safetensors_folder import SafetensorsFolder

    if path.suffix in PICKLED and path.is_file():
        raise pickled(path)
    if path.is_dir():
        ggufs = gguf_models(path)
        if not ggufs:
            return SafetensorsFolder(path.resolve(), name)
        if len(ggufs) > 1:
            found = ", ".join(p.name for p in ggufs)
            raise CheckpointError(f"{path}: holds {len(ggufs)} GGUF models ({found}); pass the one you want")
        path = ggufs[0]
    if path.suffix == ".gguf":
        return GgufFile(path, name)
    raise CheckpointError(f"{path}: expected a Hugging Face folder (config.json and *.safetensors) or a .gguf file")


def pickled(path: Path) -> CheckpointError:
    """The refusal of weights that can only be read by running code."""
    return CheckpointError(
        f"{path}: pickled weights are never read, since opening them runs code; expected safetensors or "
        "GGUF. "
        "Convert them in an environment you trust: "
        "`AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER, safe_serialization=True)`"
    )


def resolve_tying(info: CheckpointInfo, tensors: Mapping[str, Any], same: bool | None) -> CheckpointInfo:
    """Sets ``tie_word_embeddings`` to what the tensors say.

    ``tensors`` are the stored names; ``same`` says whether a stored ``lm_head.weight`` equals the embedding
    (None if there is none). Raises ``CheckpointError`` where the config contradicts the tensors.
    """
    key = "tie_word_embeddings"
    stored = "lm_head.weight" in tensors
    if info.config.get(key) is not None:
        tied = info.config.flag(key)
        if tied and stored and not same:
            raise CheckpointError(
                f"{info.config.where}: {key} is true, but the checkpoint stores an lm_head.weight that differs from "
                "model.embed_tokens.weight; set the flag to false if the stored head is meant, or remove lm_head.weight"
            )
        if not tied and not stored:
            raise CheckpointError(
                f"{info.config.where}: {key} is false, but the checkpoint has no lm_head.weight; set the flag to true "
                "if the head is the embedding, or add the missing tensor"
            )
    return replace(info, config=info.config.replaced(tie_word_embeddings=bool(same) or not stored))
