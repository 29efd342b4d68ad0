"""A TreeAttention node of a graph: its attributes, the tensors it takes, its launches. Knows nothing of TensorRT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from foredraft_plugins.library import DOMAIN
from foredraft_plugins.tree_attention.gpu.images import AttentionShape, PluginError
from foredraft_plugins.tree_attention.gpu.interface import DTYPES
from foredraft_plugins.tree_attention.gpu.launches import Buffers, Launch, attention, workspace_size

__all__ = ["INPUTS", "NAME", "NAMESPACE", "VERSION", "Node"]

NAME, VERSION, NAMESPACE = "TreeAttention", "1", DOMAIN
INPUTS = ("qkv", "key", "value", "slots", "positions", "n_past", "mask", "cos", "sin")

_TYPES = ("T", "T", "T", "i32", "i32", "i32", "i32", "f32", "f32", "T", "T", "T")
"""Of the inputs, then of the outputs; T is fp16 or bf16."""
_INTEGERS = ("num_heads", "kv_num_heads", "head_dim", "rotary_dim")


@dataclass(frozen=True, slots=True)
class Node:
    """`name` in the graph, `scale` of the scores. Its checks raise PluginError that names the node."""

    name: str
    shape: AttentionShape
    scale: float

    @classmethod
    def example(cls) -> Node:
        """Some node: its fields show the names and types of every node's."""
        return cls("", AttentionShape(1, 1, 64, 64), 0.125)

    @classmethod
    def from_fields(cls, name: str, fields: Mapping[str, Any]) -> Node:
        """The node of the attributes in a graph, or of `fields` as stored in an engine; `name` where none is stored."""
        stored = fields.get("node")
        name = name if stored is None else bytes(np.asarray(stored)).rstrip(b"\0").decode()
        if missing := [field for field in (*_INTEGERS, "scale") if field not in fields]:
            raise PluginError(f"{_called(name)}: attribute {missing[0]} is missing")
        numbers = {field: np.asarray(fields[field]).reshape(-1)[0] for field in (*_INTEGERS, "scale")}
        try:
            shape = AttentionShape(*(int(numbers[field]) for field in _INTEGERS))
        except PluginError as error:
            raise PluginError(f"{_called(name)}: {error}") from error
        return cls(name, shape, float(numbers["scale"]))

    def fields(self) -> dict[str, np.ndarray]:
        """What `from_fields` reads: i32 [1] each, scale f32 [1], the node's name as bytes."""
        integers = {name: np.array([value], np.int32) for name, value in asdict(self.shape).items()}
        # One zero more: an empty array is no field.
        name = np.frombuffer(self.name.encode() + b"\0", "S1")
        return {**integers, "scale": np.array([self.scale], np.float32), "node": name}

    def supports(self, types: Sequence[str]) -> bool:
        """Whether the first tensors (inputs, then outputs) may be of these types: fp16, bf16, f32, i32."""
        return types[0] in DTYPES and all(
            kind == (types[0] if wanted == "T" else wanted) for kind, wanted in zip(types, _TYPES, strict=False)
        )

    def check_types(self, types: Sequence[str]) -> None:
        """Refuses inputs that are missing or of other types."""
        if len(types) != len(INPUTS):
            raise PluginError(f"{_called(self.name)}: {len(types)} inputs, expected {', '.join(INPUTS)}")
        if not self.supports(types):
            got = ", ".join(f"{name} {kind}" for name, kind in zip(INPUTS, types, strict=True))
            raise PluginError(
                f"{_called(self.name)}: got {got}; expected qkv, key and value all fp16 or all bf16, cos and sin f32, "
                f"the others i32"
            )

    def check_shapes(self, shapes: Sequence[Sequence[int]]) -> None:
        """Refuses inputs of other shapes; -1 is a size that is not known yet."""
        sizes = {"qkv_width": self.shape.qkv_width, "HK": self.shape.kv_num_heads, "HD": self.shape.head_dim, "1": 1}
        expected = ["T qkv_width", "S HK HD", "S HK HD", "T", "T", "1", "T W", "C half", "C half"]
        if self.shape.rotary_dim:
            sizes["half"] = self.shape.rotary_dim // 2
        for name, shape, dims in zip(INPUTS, shapes, expected, strict=True):
            letters = dims.split()
            fits = len(shape) == len(letters) and all(
                size < 0 or sizes.setdefault(letter, size) == size for letter, size in zip(letters, shape, strict=True)
            )
            if not fits:
                wanted = ", ".join(str(sizes.get(letter, letter)) for letter in letters)
                raise PluginError(
                    f"{_called(self.name)}: {name} has shape {list(shape)}, expected [{wanted}] for {self.shape}"
                )

    def workspace_size(self, shapes: Sequence[Sequence[int]]) -> int:
        """Bytes for inputs of these shapes, or any smaller ones."""
        return workspace_size(self.shape, shapes[0][0], shapes[1][0])

    def launches(
        self, shapes: Sequence[Sequence[int]], read: Sequence[int], written: Sequence[int], workspace: int
    ) -> list[Launch]:
        """The kernels of one forward on inputs of these shapes at the addresses `read`, outputs at `written`.

        Raises PluginError if the caches are not updated in place.
        """
        self.check_shapes(shapes)
        for output, name in ((1, "key"), (2, "value")):
            if written[output] != read[output]:
                raise PluginError(
                    f"{_called(self.name)}: {name}_out is not the memory of {name}: bind both to the same address, and "
                    f"build the engine with ALIASED_PLUGIN_IO_10_03"
                )
        size = dict(zip(INPUTS, shapes, strict=True))
        return attention(
            self.shape,
            Buffers(**dict(zip(INPUTS, read, strict=True)), out=written[0], workspace=workspace),
            tokens=size["qkv"][0],
            cache_rows=size["key"][0],
            words=size["mask"][1],
            angles=size["cos"][0],
            scale=self.scale,
        )


def _called(name: str) -> str:
    return f"node {name!r} ({NAMESPACE}::{NAME})"
