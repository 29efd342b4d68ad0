"""Adapters of exits and the file that holds them. Knows nothing of how they were found.

The file is safetensors, float32, with ``H`` the model's hidden size and any rank ``R``:

    exits.{layer}.weight     [H, H]
    exits.{layer}.bias       [H]
    exits.{layer}.up         [R, H]   up, up_bias and down: all three or none
    exits.{layer}.up_bias    [R]
    exits.{layer}.down       [H, R]
    exits.{layer}.down_bias  [H]      optional, with down

Its metadata has ``format`` = ``foredraft-exits`` and ``model``, the model's fingerprint.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ml_dtypes import bfloat16  # with which numpy, and so safetensors, knows the type
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from foredraft.disk_space import naming_full_disk
from foredraft.errors import CheckpointError
from foredraft_exporter.exits.fingerprint import METADATA_KEY

Float32 = NDArray[np.float32]
FORMAT = "foredraft-exits"
_NAME = re.compile(r"exits\.([1-9][0-9]{0,4})\.(weight|bias|up|up_bias|down|down_bias)")
_NEEDED = ({"weight", "bias"}, {"weight", "bias", "up", "up_bias", "down"})


@dataclass(frozen=True, slots=True)
class Correction:
    """``down @ silu(up @ x + up_bias)``: ``up`` [R, H], ``up_bias`` [R], ``down`` [H, R], float32."""

    up: Float32
    up_bias: Float32
    down: Float32


@dataclass(frozen=True, slots=True)
class Adapter:
    """``weight @ x + bias`` and maybe a correction: ``weight`` [H, H], ``bias`` [H], float32."""

    weight: Float32
    bias: Float32
    correction: Correction | None = None

    @property
    def hidden_size(self) -> int:
        return len(self.bias)

    @property
    def rank(self) -> int:
        """Width of the correction; 0 without one."""
        return 0 if self.correction is None else len(self.correction.up_bias)

    @property
    def elements(self) -> int:
        """Weights that a draft reads."""
        return self.hidden_size * (self.hidden_size + 2 * self.rank)

    def __call__(self, hidden: Float32) -> Float32:
        """``hidden`` [T, H], the residual stream at the exit -> what the final norm reads instead, [T, H]."""
        out = hidden @ self.weight.T + self.bias
        if self.correction is not None:
            up = hidden @ self.correction.up.T + self.correction.up_bias
            with np.errstate(over="ignore"):
                out += (up / (1 + np.exp(-up))) @ self.correction.down.T
        return out

    def tensors(self) -> dict[str, Float32]:
        """Under the file's names, without the prefix ``exits.{layer}.``."""
        parts = {"weight": self.weight, "bias": self.bias}
        if self.correction is not None:
            c = self.correction
            parts |= {"up": c.up, "up_bias": c.up_bias, "down": c.down}
        return parts


def write_adapters(path: Path, adapters: Mapping[int, Adapter], model: str) -> None:
    """Write a file for the model with fingerprint ``model``; it appears complete or not at all."""
    tensors = {
        f"exits.{exit_}.{name}": np.ascontiguousarray(values, np.float32)
        for exit_, adapter in adapters.items()
        for name, values in adapter.tensors().items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    try:
        with naming_full_disk(path):
            partial.write_bytes(save(tensors, {"format": FORMAT, METADATA_KEY: model}))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_adapters(path: Path, *, model: str, hidden_size: int) -> dict[int, Adapter]:
    """The adapters of a file by exit.

    Raises CheckpointError, in one line, for a file that is damaged, of another model or another width, or that has
    a tensor with no place here or with values that are not finite.
    """
    tensors, metadata = _read(path)
    if metadata.get("format") != FORMAT or METADATA_KEY not in metadata:
        raise CheckpointError(
            f"{path}: not a file of exit adapters (its metadata does not say {FORMAT}); make one with: "
            "foredraft exits fit"
        )
    if metadata[METADATA_KEY] != model:
        raise CheckpointError(
            f"{path}: adapters of another model (fingerprint {metadata[METADATA_KEY][:12]}, this one has "
            f"{model[:12]}); fit them again with: foredraft exits fit"
        )
    parts: dict[int, dict[str, NDArray[np.generic]]] = {}
    for name, values in tensors.items():
        found = _NAME.fullmatch(name)
        if found is None:
            raise CheckpointError(f"{path}: tensor {name[:100]!r} is no part of an adapter")
        parts.setdefault(int(found[1]), {})[found[2]] = values
    return {exit_: make_adapter(parts[exit_], hidden_size, f"{path}: exit {exit_}") for exit_ in sorted(parts)}


def make_adapter(parts: Mapping[str, NDArray[np.generic]], hidden_size: int, where: str) -> Adapter:
    """An adapter from the tensors that a file has for it; raises CheckpointError as ``read_adapters`` does."""
    if set(parts) - {"down_bias"} not in _NEEDED or ("down_bias" in parts and "down" not in parts):
        raise CheckpointError(
            f"{where}: has {', '.join(sorted(parts))}; expected weight and bias, or these and a correction"
        )
    h, rank = hidden_size, len(parts["up_bias"]) if "up_bias" in parts and parts["up_bias"].ndim else 0
    shapes = {"weight": (h, h), "bias": (h,), "up": (rank, h), "up_bias": (rank,), "down": (h, rank), "down_bias": (h,)}
    wide: dict[str, Float32] = {}
    for name, values in parts.items():
        if values.shape != shapes[name]:
            raise CheckpointError(
                f"{where}: {name} has shape {list(values.shape)}, expected {list(shapes[name])} "
                f"for a model of width {h}"
            )
        if values.dtype.kind != "f" and values.dtype != bfloat16:
            raise CheckpointError(f"{where}: {name} has dtype {values.dtype}, expected a floating-point one")
        if not np.isfinite(values).all():
            raise CheckpointError(f"{where}: {name} has values that are not finite (NaN or infinity)")
        wide[name] = np.asarray(values, np.float32)
    correction = Correction(wide["up"], wide["up_bias"], wide["down"]) if "up" in wide else None
    bias = wide["bias"] + wide["down_bias"] if "down_bias" in wide else wide["bias"]
    return Adapter(wide["weight"], bias, correction)


def read_tensors(path: Path) -> dict[str, NDArray[np.generic]]:
    """Every tensor of a safetensors file; raises CheckpointError naming the file."""
    return _read(path)[0]


def _read(path: Path) -> tuple[dict[str, NDArray[np.generic]], dict[str, str]]:
    try:
        with safe_open(path, framework="numpy") as file:
            return {name: _tensor(file, path, name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (SafetensorError, ValueError) as error:
        raise CheckpointError(f"{path}: not a safetensors file that can be read ({error})") from error


def _tensor(file: Any, path: Path, name: str) -> NDArray[np.generic]:
    try:
        tensor: NDArray[np.generic] = file.get_tensor(name)
    except (TypeError, AttributeError) as error:  # numpy has no such type
        dtype = file.get_slice(name).get_dtype()
        raise CheckpointError(
            f"{path}: tensor {name[:100]!r} has dtype {dtype}, expected F16, BF16, F32 or F64; save it again as float32"
        ) from error
    return tensor
