"""Qwen 3 (dense): RMS norm over each head's q and k, heads of 128 whatever the width."""

from foredraft_exporter.models.architecture import Architecture

QWEN3 = Architecture(
    model_type="qwen3",
    class_name="Qwen3ForCausalLM",
    qkv_bias="attention_bias",
    o_bias="attention_bias",
    qk_norm=True,
    head_dim=128,
    windowed="use_sliding_window",
    window_layers=True,
)
