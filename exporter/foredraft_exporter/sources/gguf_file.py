"""A GGUF file, or one in parts, as a checkpoint: its own numbers bit-exactly, in Hugging Face's names and row order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray

from foredraft.errors import CheckpointError, UnsupportedModelError
from foredraft_exporter.sources.checkpoint import CheckpointInfo, resolve_tying
from foredraft_exporter.sources.fields import Fields, is_unicode
from foredraft_exporter.sources.gguf_config import PERMUTED, config_from, hf_name
from foredraft_exporter.sources.gguf_header import GgufHeader, GgufTensor
from foredraft_exporter.sources.gguf_parts import read_parts
from foredraft_exporter.sources.tokenizer import generation_from, tokenizer_from
from foredraft_exporter.weights.blocks import BlockFormat, Blocks
from foredraft_plugins.block_linear.packing import BLOCK

_EXACT = {
    GGMLQuantizationType.Q4_0: BlockFormat(4, False),
    GGMLQuantizationType.Q4_1: BlockFormat(4, True),
    GGMLQuantizationType.Q8_0: BlockFormat(8, False),
}
_IGNORED = frozenset({"rope_freqs.weight"})
_COMPARE_BYTES = 1 << 24


class GgufFile:
    """A ``Checkpoint`` over one GGUF file or all its parts. Their headers are checked when it is opened."""

    def __init__(self, path: Path, name: str) -> None:
        """``path`` may be any of the parts.

        Raises ``CheckpointError`` or ``UnsupportedModelError``, naming the file and the fault.
        """
        self._files, header = read_parts(path)
        self._path = self._files[0].path
        self._metadata = header.metadata
        info = self._read_info(name, header)
        self._tensors = {hf: t for key, t in header.tensors.items() if (hf := self._name(key)) is not None}
        self._permuted = info.config["model_type"] in PERMUTED
        heads = info.config["num_attention_heads"], info.config["num_key_value_heads"]
        self._heads = dict(zip(("q_proj", "k_proj"), heads, strict=True))
        self.info: CheckpointInfo = resolve_tying(info, self._tensors, self._head_is_embedding())
        if self.info.config["tie_word_embeddings"]:
            self._tensors.pop("lm_head.weight", None)

    def names(self) -> tuple[str, ...]:
        return tuple(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        tensor = self._find(name)
        self._require_readable(name, tensor)
        return tensor.shape

    def read(self, name: str) -> NDArray[np.float32]:
        return self.read_rows(name, 0, self.shape(name)[0])

    def read_rows(self, name: str, start: int, stop: int) -> NDArray[np.float32]:
        shape, tensor = self.shape(name), self._find(name)
        if len(shape) == 1:
            values = _dequantized(tensor, self._raw(tensor))[0]
            return np.asarray(values[self._order(name, tensor, start, stop)])
        return _dequantized(tensor, self._raw(tensor)[self._order(name, tensor, start, stop)])

    def block_format(self, name: str) -> BlockFormat | None:
        tensor = self._find(name)
        return _EXACT.get(tensor.kind) if len(tensor.shape) == 2 else None

    def blocks(self, name: str, start: int, stop: int) -> Blocks | None:
        form = self.block_format(name)
        if form is None:
            return None
        tensor = self._find(name)
        rows = self._raw(tensor)[self._order(name, tensor, start, stop)]
        packed = rows.reshape(stop - start, tensor.shape[1] // BLOCK, -1)
        scale = _half(packed[..., 0:2])
        low = _half(packed[..., 2:4]) if form.has_min else None
        body = packed[..., 4 if form.has_min else 2 :]
        nibbles = form.bits == 4
        codes = np.concatenate([body & 15, body >> 4], axis=-1) if nibbles else body ^ np.uint8(128)
        if not (np.isfinite(scale).all() and (low is None or np.isfinite(low).all())):
            raise CheckpointError(
                f"{tensor.file.path}: tensor {name!r} has a scale that is not finite; download it again"
            )
        return Blocks(form.bits, codes.reshape(stop - start, -1), scale, low)

    def tokenizer_json(self) -> bytes:
        return tokenizer_from(self._metadata)

    def release(self) -> None:
        for file in self._files:
            file.release()

    def _read_info(self, name: str, header: GgufHeader) -> CheckpointInfo:
        metadata = header.metadata
        config = config_from(metadata, {key: tensor.shape for key, tensor in header.tensors.items()})
        if "rope_freqs.weight" in header.tensors:
            factors = self._frequency_factors(header.tensors["rope_freqs.weight"])
            config = config.replaced(rope_parameters={**config["rope_parameters"], **factors})
        return CheckpointInfo(
            name=name,
            path=self._path,
            config=config,
            generation=generation_from(metadata),
            chat_template=metadata.text_or_none("tokenizer.chat_template"),
            license=_license(metadata),
            origins={
                "tokenizer": f"{metadata.where}: tokenizer.ggml.tokens",
                "bos_token_id": f"{metadata.where}: tokenizer.ggml.bos_token_id",
                "chat_template": f"{metadata.where}: tokenizer.chat_template",
            },
        )

    def _name(self, gguf_name: str) -> str | None:
        name = hf_name(gguf_name)
        if name is None and gguf_name not in _IGNORED and not gguf_name.endswith("attn_rot_embd.inv_freq"):
            raise UnsupportedModelError(
                f"{self._path}: tensor {gguf_name!r} has no place in this architecture; the model is not supported"
            )
        return name

    def _find(self, name: str) -> GgufTensor:
        try:
            return self._tensors[name]
        except KeyError:
            raise CheckpointError(f"{self._path}: the checkpoint has no tensor {name!r}") from None

    def _raw(self, tensor: GgufTensor) -> NDArray[np.uint8]:
        """All rows as bytes [rows, row_bytes]; a view, nothing is read yet."""
        rows = tensor.nbytes // tensor.row_bytes
        return tensor.file.array(np.uint8, tensor.nbytes, tensor.offset).reshape(rows, tensor.row_bytes)

    def _order(self, name: str, tensor: GgufTensor, start: int, stop: int) -> slice | NDArray[np.int64]:
        """Which stored rows are rows ``start .. stop-1`` in half-split order.

        llama.cpp stores a head's row 2p + c where Hugging Face has row c * head_dim/2 + p (c = 0, 1).
        """
        heads = self._heads.get(name.split(".")[-2])
        if not self._permuted or heads is None:
            return slice(start, stop)
        half = tensor.shape[0] // heads // 2
        head, rest = np.divmod(np.arange(start, stop), 2 * half)
        c, p = np.divmod(rest, half)
        return np.asarray(head * 2 * half + 2 * p + c)

    def _head_is_embedding(self) -> bool | None:
        head, embedding = self._tensors.get("lm_head.weight"), self._tensors.get("model.embed_tokens.weight")
        if head is None or embedding is None:
            return None
        if (head.kind, head.shape) != (embedding.kind, embedding.shape):
            return False
        a, b, step = self._raw(head), self._raw(embedding), max(1, _COMPARE_BYTES // head.row_bytes)
        for at in range(0, len(a), step):
            if not np.array_equal(a[at : at + step], b[at : at + step]):
                return False
            self.release()
        return True

    def _frequency_factors(self, tensor: GgufTensor) -> dict[str, Any]:
        """Llama 3.1 scaling arrives as a divisor per frequency instead of as parameters."""
        self._require_readable("rope_freqs.weight", tensor)
        return {"rope_type": "factors", "factors": _dequantized(tensor, self._raw(tensor))[0].tolist()}

    def _require_readable(self, name: str, tensor: GgufTensor) -> None:
        if not _readable(tensor):
            raise CheckpointError(
                f"{tensor.file.path}: tensor {name!r} has type {tensor.kind.name}, which cannot be read; "
                "use a Q4_0, Q4_1, Q8_0, F16 or K-quant file"
            )


def _half(pairs: NDArray[np.uint8]) -> NDArray[np.float16]:
    return np.ascontiguousarray(pairs).view("<f2")[..., 0].astype(np.float16)


def _license(metadata: Fields) -> dict[str, Any]:
    """What the file says in words; that it says something else never stands in the way."""
    keys = {"id": "general.license", "name": "general.license.name", "link": "general.license.link"}
    found = {key: metadata.get(source) for key, source in keys.items()}
    return {key: value for key, value in found.items() if isinstance(value, str) and is_unicode(value)}


def _readable(tensor: GgufTensor) -> bool:
    try:
        _dequantized(tensor, np.zeros((1, tensor.row_bytes), np.uint8))
    except NotImplementedError:
        return False
    return True


def _dequantized(tensor: GgufTensor, rows: NDArray[np.uint8]) -> NDArray[np.float32]:
    if tensor.kind == GGMLQuantizationType.F32:
        return np.ascontiguousarray(rows).view("<f4").astype(np.float32)
    if tensor.kind == GGMLQuantizationType.F16:
        return np.ascontiguousarray(rows).view("<f2").astype(np.float32)
    return np.asarray(dequantize(np.ascontiguousarray(rows), tensor.kind), np.float32)
