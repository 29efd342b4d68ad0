"""Tuned-lens translators (Belrose et al., arXiv 2303.08112) as adapters.

A tuned lens reads layer e out as ``unembed(norm(h + (A h + b)))``: translator e belongs to the residual stream after e
layers (translator 0 to the embedding), which is this project's exit e. So ``W = I + A``. Its own package saves
translators as ``params.pt``, a pickle, which is never opened here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foredraft.errors import CheckpointError
from foredraft_exporter.exits.adapters import Adapter, make_adapter, read_tensors

_NAME = re.compile(r"(?:layer_translators\.|lens\.|translators\.)?([0-9]{1,5})\.(weight|bias)")
_PICKLED = (".pt", ".pth", ".bin", ".ckpt")
_CONVERT = (
    'convert it where you trust it: python -c "import torch, safetensors.torch as s; '
    "s.save_file(torch.load('params.pt', weights_only=True), 'params.safetensors')\""
)


def read_lens(folder: Path, exits: Sequence[int], hidden_size: int) -> dict[int, Adapter]:
    """The translators of ``exits`` in a folder (or one file) of safetensors.

    Tensors are ``{layer}.weight`` [H, H] and ``{layer}.bias`` [H] (may lack), in floating point, maybe under
    ``layer_translators.``, ``translators.`` or ``lens.``. Raises CheckpointError, in one line: nothing there,
    pickled, an exit without translator, another width, not finite.
    """
    parts = _parts(folder)
    adapters = {}
    for exit_ in exits:
        if "weight" not in parts.get(exit_, {}):
            known = ", ".join(str(layer) for layer in sorted(parts))
            raise CheckpointError(
                f"{folder}: has no translator for exit {exit_}; it has them for layers {known or 'none'}"
            )
        found = {"bias": np.zeros(hidden_size, np.float32), **parts[exit_]}
        residual = make_adapter(found, hidden_size, f"{folder}: translator {exit_}")
        adapters[exit_] = Adapter(residual.weight + np.eye(hidden_size, dtype=np.float32), residual.bias)
    return adapters


def _parts(folder: Path) -> dict[int, dict[str, NDArray[np.generic]]]:
    parts: dict[int, dict[str, NDArray[np.generic]]] = {}
    for file in _files(folder):
        for name, values in read_tensors(file).items():
            found = _NAME.fullmatch(name)
            if found is None:
                raise CheckpointError(f"{file}: tensor {name[:100]!r}; expected names such as 4.weight and 4.bias")
            parts.setdefault(int(found[1]), {})[found[2]] = values
    return parts


def _files(folder: Path) -> list[Path]:
    if folder.suffix in _PICKLED:
        raise CheckpointError(f"{folder}: pickled, which is never read, since opening it runs code; {_CONVERT}")
    if not folder.is_dir():
        if folder.is_file():
            return [folder]
        raise CheckpointError(f"{folder}: no such folder; expected one with a lens's *.safetensors")
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        pickled = next((p for p in sorted(folder.iterdir()) if p.suffix in _PICKLED), None)
        if pickled is not None:
            raise CheckpointError(f"{pickled}: pickled, which is never read, since opening it runs code; {_CONVERT}")
        raise CheckpointError(f"{folder}: has no *.safetensors; expected a tuned lens's translators")
    return files
