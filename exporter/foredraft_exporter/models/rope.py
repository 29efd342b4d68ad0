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
from foredraft_exporter.sources.fields import Fields, describe
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
_ALL = frozenset().union(*_KEYS.values()) | {"rope_type", "rope_theta", "partial_rotary_factor"}
_ZERO_IS_DEFAULT = ("beta_fast", "beta_slow", "mscale", "mscale_all_dim")
_REQUIRED: dict[str, tuple[str, ...]] = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor",),
    "factors": ("factors",),
}


def rope_settings(config: Mapping[str, Any], default_theta: float = 10000.0) -> dict[str, Any]:
    """One spelling of ``rope_parameters`` (transformers 5) and ``rope_scaling`` + ``rope_theta`` (before).

    The result always has ``rope_type`` and ``rope_theta``; every value has its right type. Raises
    ``UnsupportedModelError`` for a type or a key that is not understood, or one that lacks what its type needs, and
    ``CheckpointError`` for a value of another type.
    """
    fields = Fields.of(config)
    found = _both(fields)
    kind = found.text("rope_type", found.text("type", "default"))
    if kind not in _KEYS:
        known = ", ".join(name for name in _KEYS if name != "factors")
        raise UnsupportedModelError(
            f"{found.where}: {found.name('rope_type')} {describe(kind)} is not supported; supported: {known}"
        )
    for part in (found, fields):
        partial = part.number_or_none("partial_rotary_factor")
        if partial not in (None, 1):
            raise UnsupportedModelError(
                f"{part.where}: {part.name('partial_rotary_factor')} = {partial} is not supported, expected 1"
            )
    own = fields.number_or_none("rope_theta", above=1) or default_theta
    theta = found.number("rope_theta", own, above=1)
    unused = {"factor", "original_max_position_embeddings"} if kind == "default" else set()
    keys = found.keys() - unused - {"rope_type", "type", "rope_theta", "finetuned", "partial_rotary_factor"}
    if extra := sorted(keys - _KEYS[kind]):
        raise UnsupportedModelError(f"{found.where}: {found.name(extra[0])} is not supported with rope_type {kind!r}")
    if missing := [key for key in _REQUIRED.get(kind, ()) if key not in found]:
        raise UnsupportedModelError(f"{found.where}: rope_type {kind!r} needs {found.name(missing[0])}")
    rope: dict[str, Any] = {"rope_type": kind, "rope_theta": theta} | {key: _read(found, key) for key in keys}
    if kind in ("llama3", "yarn"):
        original = fields.number_or_none("original_max_position_embeddings")
        rope.setdefault("original_max_position_embeddings", original or fields.whole("max_position_embeddings"))
    if kind == "llama3" and rope["high_freq_factor"] <= rope["low_freq_factor"]:
        raise found.fault("high_freq_factor", f"more than {found.name('low_freq_factor')}, {rope['low_freq_factor']:g}")
    return rope


def _both(config: Fields) -> Fields:
    """The values of both spellings that are not null, under the names that the file has for them."""
    values: dict[str, Any] = {}
    names = {name: config.object("rope_parameters").name(name) for name in _ALL}
    for key in ("rope_scaling", "rope_parameters"):
        part = config.object(key)
        values |= {name: value for name, value in part.items() if value is not None}
        names |= {name: part.name(name) for name in part}
    return Fields(values, config.where, names=names)


def _read(rope: Fields, key: str) -> bool | float | list[float]:
    if key == "truncate":
        return rope.flag(key)
    if key == "factors":
        return rope.numbers(key, above=0)
    return 0.0 if key in _ZERO_IS_DEFAULT and rope[key] == 0 else rope.number(key)


def check_rotation(config: Fields, decoder: Decoder, default_theta: float = 10000.0) -> None:
    """Raises ``CheckpointError`` where the rotation does not fit heads of this size."""
    rope = rope_settings(config, default_theta)
    if rope["rope_type"] == "dynamic" and decoder.rotary_dim < 4:
        raise config.fault("head_dim", "4 or more for a rotation with dynamic scaling")
    factors = rope.get("factors")
    if factors is not None and len(factors) != decoder.rotary_dim // 2:
        raise config.object("rope_parameters").fault(
            "factors", f"{decoder.rotary_dim // 2} numbers, one for each pair of a head of {decoder.rotary_dim}"
        )


def longest_context(config: Mapping[str, Any], default_theta: float = 10000.0) -> int:
    """The most positions that the model's own rotation is made for."""
    rope, trained = rope_settings(config, default_theta), Fields.of(config).whole("max_position_embeddings")
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
        stretch = 1 + rope["factor"] * (max(context, trained) / trained - 1)
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
