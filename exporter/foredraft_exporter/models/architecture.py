"""What differs between the supported decoders, as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Architecture:
    """One ``model_type``. A ``bool | str`` is a fact, or the config key that decides (default False)."""

    model_type: str
    class_name: str
    """The transformers class whose function this is; a config that names another head is refused."""
    qkv_bias: bool | str = False
    o_bias: bool | str = False
    mlp_bias: bool | str = False
    qk_norm: bool = False
    head_dim: int | None = None
    """Where the config is silent; None means hidden_size / heads."""
    rope_theta: float = 10000.0
    """Where the config is silent."""
    windowed: bool | str = False
    """Whether ``sliding_window`` is in force."""
    window_layers: bool = False
    """Whether the window only holds from layer ``max_window_layers`` on."""
    window: int | None = None
    """Where the config is silent about ``sliding_window``; a config that says null has none."""
    no_rope: bool = False
    """Whether the config may list layers without rotation."""
