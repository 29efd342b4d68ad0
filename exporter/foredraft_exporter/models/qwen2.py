"""Qwen 2 and 2.5: biases on q, k and v only."""

from foredraft_exporter.models.architecture import Architecture

QWEN2 = Architecture(
    model_type="qwen2",
    class_name="Qwen2ForCausalLM",
    qkv_bias=True,
    windowed="use_sliding_window",
    window_layers=True,
)
