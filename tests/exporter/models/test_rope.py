"""Rotary tables against transformers' own, for every kind of scaling and both spellings of the config."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from foredraft_exporter import models
from foredraft_exporter.models.rope import rope_settings, rotary_tables
from tests.fixtures import tiny_config

LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"factor": 4.0, "original_max_position_embeddings": 64}
SCALINGS: list[dict[str, Any]] = [
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "llama3", **LLAMA3},
    {"rope_type": "yarn", **YARN},
    {"rope_type": "yarn", **YARN, "attention_factor": 1.5},
    {"rope_type": "yarn", **YARN, "mscale": 0.7, "mscale_all_dim": 1.2},
    {"rope_type": "yarn", **YARN, "beta_fast": 16, "beta_slow": 2, "truncate": False},
]


def _transformers(config: dict[str, Any], rope_type: str, context: int) -> tuple[np.ndarray, float]:
    """Frequencies and attention factor by transformers' ROPE_INIT_FUNCTIONS."""
    transformers = pytest.importorskip("transformers")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    own = copy.deepcopy({key: value for key, value in config.items() if key != "model_type"})
    reference = transformers.LlamaConfig(**own)
    frequencies, factor = ROPE_INIT_FUNCTIONS[rope_type](reference, "cpu", seq_len=context)
    return frequencies.double().numpy(), factor


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("context", [200, 256])
def test_tables_are_transformers(scaling: dict[str, Any], head_dim: int, context: int) -> None:
    config = tiny_config(rope_scaling=scaling, head_dim=head_dim, rope_theta=50000.0)
    cos, sin = rotary_tables(config, models.decoder(config, context))
    frequencies, factor = _transformers(config, scaling["rope_type"], context)
    angles = np.arange(context)[:, None] * frequencies
    assert cos.shape == sin.shape == (context, head_dim // 2)
    assert cos.dtype == sin.dtype == np.float32
    np.testing.assert_allclose(cos, np.cos(angles) * factor, atol=1e-4)
    np.testing.assert_allclose(sin, np.sin(angles) * factor, atol=1e-4)


def test_dynamic_beyond_the_trained_length() -> None:
    scaling = {"rope_type": "dynamic", "factor": 4.0}
    config = tiny_config(rope_scaling=scaling)
    cos, _ = rotary_tables(config, models.decoder(config, 1000))
    frequencies, _ = _transformers(config, "dynamic", 1000)
    np.testing.assert_allclose(cos, np.cos(np.arange(1000)[:, None] * frequencies), atol=2e-4)


def test_default_is_exact() -> None:
    config = tiny_config()
    cos, sin = rotary_tables(config, models.decoder(config))
    angles = np.arange(256)[:, None] * 10000.0 ** (-np.arange(0, 16, 2) / 16)
    np.testing.assert_array_equal(cos, np.cos(angles).astype(np.float32))
    np.testing.assert_array_equal(sin, np.sin(angles).astype(np.float32))


@pytest.mark.parametrize("scaling", SCALINGS)
def test_both_spellings_mean_the_same(scaling: dict[str, Any]) -> None:
    old = {key: value for key, value in scaling.items() if key != "rope_type"}
    old["type"] = scaling["rope_type"]
    before = tiny_config(rope_scaling=old, rope_theta=12345.0)
    after = tiny_config(rope_parameters={**scaling, "rope_theta": 12345.0})
    del after["rope_theta"]
    assert rope_settings(before) == rope_settings(after)


def test_factors_divide_each_frequency() -> None:
    """A GGUF of Llama 3.1 stores the scaling as one divisor per frequency; both must give the same tables."""
    config = tiny_config(rope_scaling={"rope_type": "llama3", **LLAMA3})
    decoder = models.decoder(config)
    plain = 10000.0 ** (-np.arange(0, 16, 2) / 16)
    scaled, _ = _transformers(config, "llama3", 256)
    listed = tiny_config(rope_parameters={"rope_type": "factors", "factors": (plain / scaled).tolist()})
    for a, b in zip(rotary_tables(config, decoder), rotary_tables(listed, decoder), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


def test_defaults_of_an_architecture() -> None:
    config = tiny_config("smollm3")
    del config["rope_theta"]
    assert rope_settings(config, models.architecture_of(config).rope_theta)["rope_theta"] == 2_000_000.0
