"""A Hugging Face folder: config, tokenizer and one or many safetensors shards. Runs no code of the folder."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foredraft.errors import CheckpointError
from foredraft_exporter.sources.checkpoint import CheckpointInfo, pickled, resolve_tying
from foredraft_exporter.sources.fields import read_fields
from foredraft_exporter.sources.folder_info import read_info
from foredraft_exporter.sources.mapped import MappedFile
from foredraft_exporter.sources.origin import PICKLED
from foredraft_exporter.sources.safetensors_header import read_header
from foredraft_exporter.weights.blocks import BlockFormat, Blocks
from foredraft_graphs.weights_file import TensorLocation

_COMPARE_BYTES = 1 << 24
_LONGEST_NAME = 200
_READ_AS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}


class SafetensorsFolder:
    """A ``Checkpoint`` over a folder. All shards' headers are checked when it is opened."""

    def __init__(self, folder: Path, name: str) -> None:
        """Raises ``CheckpointError`` naming the file that is missing, damaged, a pointer or refused."""
        info, self._tokenizer = read_info(folder, name)
        self._tensors: dict[str, tuple[MappedFile, TensorLocation]] = {}
        for path, expected in _shards(folder).items():
            self._add_shard(path, expected)
        self.info: CheckpointInfo = resolve_tying(info, self._tensors, self._head_is_embedding())
        if self.info.config["tie_word_embeddings"]:
            self._tensors.pop("lm_head.weight", None)

    def names(self) -> tuple[str, ...]:
        return tuple(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        file, place = self._find(name)
        if place.dtype not in _READ_AS:
            raise CheckpointError(
                f"{file.path}: tensor {name!r} has dtype {place.dtype}, expected {', '.join(_READ_AS)}; "
                "export from an unquantized checkpoint"
            )
        return place.shape

    def read(self, name: str) -> NDArray[np.float32]:
        shape = self.shape(name)
        return self.read_rows(name, 0, shape[0] if shape else 1)

    def read_rows(self, name: str, start: int, stop: int) -> NDArray[np.float32]:
        row_shape = self.shape(name)[1:]
        file, place = self._find(name)
        row = int(np.prod(row_shape, dtype=np.int64))
        dtype = _READ_AS[place.dtype]
        itemsize = np.dtype(dtype).itemsize
        raw = file.array(dtype, (stop - start) * row, place.offset + start * row * itemsize)
        rows = (raw.astype(np.uint32) << 16).view(np.float32) if place.dtype == "BF16" else raw.astype(np.float32)
        return rows.reshape(stop - start, *row_shape)

    def block_format(self, name: str) -> BlockFormat | None:
        return None

    def blocks(self, name: str, start: int, stop: int) -> Blocks | None:
        return None

    def tokenizer_json(self) -> bytes:
        return self._tokenizer

    def release(self) -> None:
        for file in {id(file): file for file, _ in self._tensors.values()}.values():
            file.release()

    def _find(self, name: str) -> tuple[MappedFile, TensorLocation]:
        try:
            return self._tensors[name]
        except KeyError:
            raise CheckpointError(f"{self.info.path}: the checkpoint has no tensor {name!r}") from None

    def _add_shard(self, path: Path, expected: set[str]) -> None:
        file = MappedFile(path)
        header = read_header(file)
        absent = sorted(expected - header.keys())
        if absent:
            raise CheckpointError(
                f"{path}: lacks {len(absent)} tensors that the index places in it ({absent[0]!r} first); "
                "index and shards are of different versions, download both again"
            )
        twice = sorted(header.keys() & self._tensors.keys())
        if twice:
            raise CheckpointError(f"{path}: tensor {twice[0]!r} is also in {self._tensors[twice[0]][0].path.name}")
        self._tensors.update((name, (file, place)) for name, place in header.items())

    def _head_is_embedding(self) -> bool | None:
        """Whether a stored head repeats the embedding's bytes; None if there is none to compare."""
        head, embedding = self._tensors.get("lm_head.weight"), self._tensors.get("model.embed_tokens.weight")
        if head is None or embedding is None:
            return None
        (file_a, a), (file_b, b) = head, embedding
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return False
        for at in range(0, a.nbytes, _COMPARE_BYTES):
            count = min(_COMPARE_BYTES, a.nbytes - at)
            if file_a.bytes(a.offset + at, count) != file_b.bytes(b.offset + at, count):
                return False
            file_a.release()
            file_b.release()
        return True


def _shards(folder: Path) -> dict[Path, set[str]]:
    """The files that hold the weights, each with the tensors that an index promises to be in it."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        return _indexed(folder, index)
    files = [p for p in sorted(folder.glob("*.safetensors")) if not p.name.startswith("consolidated")]
    if (folder / "model.safetensors") in files:
        return {folder / "model.safetensors": set()}
    if not files:
        unsafe = sorted(p for p in folder.iterdir() if p.suffix in PICKLED and p.name != "training_args.bin")
        if unsafe:
            raise pickled(unsafe[0])
        raise CheckpointError(f"{folder}: holds no *.safetensors; expected model.safetensors or shards with an index")
    counted = [re.fullmatch(r".*-(\d+)-of-(\d+)\.safetensors", p.name) for p in files]
    total = int(counted[0].group(2)) if counted[0] else len(files)
    numbers = {int(match.group(1)) for match in counted if match}
    missing = sorted(set(range(1, total + 1)) - numbers) if counted[0] else []
    if missing:
        pattern = files[0].name.replace(f"-{counted[0].group(1)}-", "-{}-") if counted[0] else ""
        name = pattern.format(str(missing[0]).zfill(5))
        raise CheckpointError(f"{folder / name}: missing shard ({len(files)} of {total} are there); download it again")
    if not counted[0] and len(files) > 1:
        listed = ", ".join(p.name for p in files)
        raise CheckpointError(f"{folder}: several safetensors files and no {index.name}: {listed}")
    return {path: set() for path in files}


def _indexed(folder: Path, index: Path) -> dict[Path, set[str]]:
    fields = read_fields(index)
    if not fields.get("weight_map"):
        raise fields.fault("weight_map", "an object with the file of each tensor")
    weight_map = fields.object("weight_map")
    placed = [(name, weight_map.text(name)) for name in weight_map]
    shards: dict[Path, set[str]] = {}
    for name, file in placed:
        if Path(file).name != file or "\\" in file or not file.endswith(".safetensors") or len(file) > _LONGEST_NAME:
            raise weight_map.fault(name, "the name of a *.safetensors file beside it")
        shards.setdefault(folder / file, set()).add(name)
    missing = [path for path in sorted(shards) if not path.exists()]
    if missing:
        raise CheckpointError(
            f"{missing[0]}: missing shard ({len(shards) - len(missing)} of {len(shards)} are there); download it again"
        )
    return dict(sorted(shards.items()))
