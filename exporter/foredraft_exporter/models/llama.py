"""Llama 1 to 3.x, and everything that is published as a Llama (SmolLM 1 and 2, TinyLlama, LayerSkip)."""

from foredraft_exporter.models.architecture import Architecture

LLAMA = Architecture(
    model_type="llama",
    class_name="LlamaForCausalLM",
    qkv_bias="attention_bias",
    o_bias="attention_bias",
    mlp_bias="mlp_bias",
)
