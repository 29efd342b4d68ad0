"""Where a graph's weights lie: inside one safetensors file that external data points into. Knows no values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorLocation:
    """One tensor's place: ``dtype`` is a safetensors name (F32, F16, U8), ``offset`` counts from the file's start."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class WeightsFile:
    """A weights file as a graph sees it.

    ``location`` is its path relative to the graph files' folder, with forward slashes. ``bits`` says for every matrix
    how it is stored: 4 or 8 (as ``NAME.codes``, ``NAME.scale`` and maybe ``NAME.min``) or 32 (as ``NAME``).
    """

    location: str
    tensors: Mapping[str, TensorLocation]
    bits: Mapping[str, int]
