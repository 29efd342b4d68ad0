"""Where a graph's weights lie: inside one safetensors file that external data points into. Knows no values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorLocation:
    """One tensor's place: ``dtype`` is a safetensors name (F32, F16, BF16, U8, I8), ``offset`` counts from the file's
    start.
    """

    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class WeightsFile:
    """A weights file as a graph sees it.

    ``location`` is its path relative to the graph files' folder, with forward slashes. ``bits`` says for every matrix
    how it is stored: 4 or 8 (as ``NAME.codes``, ``NAME.scale`` and maybe ``NAME.min``), or 16 or 32 (floats, as
    ``NAME``). ``layout`` says how codes lie: in ``tiles`` (plugins' block_linear/packing.py), or in ``rows``: 8 bits
    as i8 [n, k] with a scale for each row, 4 bits as u8 [n, k / 2], the first of two signed numbers in the low half,
    with a scale and maybe an offset (``NAME.offset``, to be added) for each 32.
    """

    location: str
    tensors: Mapping[str, TensorLocation]
    bits: Mapping[str, int]
    layout: str = "tiles"
