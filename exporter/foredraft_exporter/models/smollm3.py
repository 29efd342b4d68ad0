"""SmolLM3: a Llama in which every fourth layer does not rotate q and k."""

from foredraft_exporter.models.architecture import Architecture

SMOLLM3 = Architecture(
    model_type="smollm3",
    class_name="SmolLM3ForCausalLM",
    qkv_bias="attention_bias",
    o_bias="attention_bias",
    mlp_bias="mlp_bias",
    rope_theta=2_000_000.0,
    windowed="use_sliding_window",
    no_rope=True,
)
