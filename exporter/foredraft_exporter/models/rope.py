"""Rotary tables: the settings in a config, read in both spellings, to cosines and sines. Computed in float64.

Sources: RoPE arXiv 2104.09864; NTK-aware and YaRN arXiv 2309.00071; Llama 3.1 scaling as in Meta's reference
code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foredraft.errors import UnsupportedModelError
from foredraft_graphs.decoder import Decoder

_KEYS: dict[str, frozenset[str]] = {
    "default": frozenset(),
    "linear": frozenset({"factor"}),
    "dynamic": frozenset({"factor"}),
    "llama3": frozenset({"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}),
    "yarn": frozenset(
        {"factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale"}
        | {"mscale_all_dim", "truncate"}
    ),
    "factors": frozenset({"factors"}),
}
_REQUIRED: dict[str, tuple[str, ...]] = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor",),
    "factors": ("factors",),
}


def rope_settings(config: Mapping[str, Any], default_theta: float = 10000.0) -> dict[str, Any]:
    """One spelling of ``rope_parameters`` (transformers 5) and ``rope_scaling`` + ``rope_theta`` (before).

    The result always has ``rope_type`` and ``rope_theta``. Raises ``UnsupportedModelError`` for a type or a
    key that is not understood, or one that lacks what its type needs.
    """
    found = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    rope = {key: value for key, value in found.items() if value is not None}
    legacy = rope.pop("type", None)
    kind = rope.setdefault("rope_type", legacy or "default")
    rope.setdefault("rope_theta", config.get("rope_theta") or default_theta)
    if kind not in _KEYS:
        known = ", ".join(name for name in _KEYS if name != "factors")
        raise UnsupportedModelError(f"config: rope_type {kind!r} is not supported; supported: {known}")
    partial = rope.pop("partial_rotary_factor", config.get("partial_rotary_factor"))
    if partial not in (None, 1, 1.0):
        raise UnsupportedModelError(f"config: partial_rotary_factor = {partial} is not supported, expected 1")
    if kind == "default":
        rope = {key: rope[key] for key in rope if key not in ("factor", "original_max_position_embeddings")}
    extra = sorted(rope.keys() - _KEYS[kind] - {"rope_type", "rope_theta", "finetuned"})
    if extra:
        raise UnsupportedModelError(f"config: rope_parameters.{extra[0]} is not supported with rope_type {kind!r}")
    missing = [key for key in _REQUIRED.get(kind, ()) if key not in rope]
    if missing:
        raise UnsupportedModelError(f"config: rope_type {kind!r} needs rope_parameters.{missing[0]}")
    if kind in ("llama3", "yarn"):
        original = config.get("original_max_position_embeddings") or config["max_position_embeddings"]
        rope.setdefault("original_max_position_embeddings", original)
    return rope


def longest_context(config: Mapping[str, Any], default_theta: float = 10000.0) -> int:
    """The most positions that the model's own rotation is made for."""
    rope, trained = rope_settings(config, default_theta), int(config["max_position_embeddings"])
    if rope["rope_type"] == "yarn":
        return max(trained, int(rope["factor"] * rope["original_max_position_embeddings"]))
    if rope["rope_type"] in ("linear", "dynamic"):
        return int(rope["factor"] * trained)
    return trained


def rotary_tables(
    config: Mapping[str, Any], decoder: Decoder, default_theta: float = 10000.0
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """``(cos, sin)``, float32 [context, rotary_dim/2]; YaRN's attention factor is multiplied into both.

    Dynamic NTK takes its base for ``decoder.context`` once and for all, so that a position's rotation does
    not depend on how long the text has become.
    """
    rope = rope_settings(config, default_theta)
    frequencies, factor = _frequencies(
        rope, decoder.rotary_dim, decoder.context, int(config["max_position_embeddings"])
    )
    angles = np.arange(decoder.context, dtype=np.float64)[:, None] * frequencies
    return (np.cos(angles) * factor).astype(np.float32), (np.sin(angles) * factor).astype(np.float32)


def _frequencies(rope: Mapping[str, Any], dim: int, context: int, trained: int) -> tuple[NDArray[np.float64], float]:
    """Radians per position, float64 [dim/2], and the factor on cosine and sine."""
    kind, base = rope["rope_type"], float(rope["rope_theta"])
    if kind == "dynamic":
        stretch = rope["factor"] * max(context, trained) / trained - (rope["factor"] - 1)
        base *= stretch ** (dim / (dim - 2))
    frequencies = base ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)
    if kind == "linear":
        return frequencies / rope["factor"], 1.0
    if kind == "factors":
        return frequencies / np.asarray(rope["factors"], np.float64), 1.0
    if kind == "llama3":
        return _llama3(frequencies, rope), 1.0
    if kind == "yarn":
        return _yarn(frequencies, rope, dim, base), _yarn_attention_factor(rope)
    return frequencies, 1.0


def _llama3(frequencies: NDArray[np.float64], rope: Mapping[str, Any]) -> NDArray[np.float64]:
    """Short wavelengths stay, long ones are stretched by ``factor``, those between are blended."""
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    turns = rope["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    blend = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return np.asarray((1 - blend) * frequencies / factor + blend * frequencies)


def _yarn(frequencies: NDArray[np.float64], rope: Mapping[str, Any], dim: int, base: float) -> NDArray[np.float64]:
    """Dimensions that turn often keep their frequency, slow ones are interpolated, with a ramp between."""
    original = rope["original_max_position_embeddings"]

    def dimension(turns: float) -> float:
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = dimension(rope.get("beta_fast") or 32), dimension(rope.get("beta_slow") or 1)
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    width = (high - low) or 0.001
    ramp = np.clip((np.arange(dim // 2, dtype=np.float64) - low) / width, 0.0, 1.0)
    return np.asarray(frequencies / rope["factor"] * ramp + frequencies * (1 - ramp))


def _yarn_attention_factor(rope: Mapping[str, Any]) -> float:
    if rope.get("attention_factor") is not None:
        return float(rope["attention_factor"])

    def mscale(weight: float) -> float:
        return 0.1 * weight * math.log(rope["factor"]) + 1.0 if rope["factor"] > 1 else 1.0

    if rope.get("mscale") and rope.get("mscale_all_dim"):
        return mscale(rope["mscale"]) / mscale(rope["mscale_all_dim"])
    return mscale(1.0)
