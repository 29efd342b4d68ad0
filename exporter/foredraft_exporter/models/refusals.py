"""Settings that would change what a model computes and have no counterpart here: refused by name."""

from __future__ import annotations

import re

from foredraft.errors import UnsupportedModelError
from foredraft_exporter.models.architecture import Architecture
from foredraft_exporter.sources.fields import Fields, describe

_REFUSED: tuple[tuple[str, str, tuple[object, ...]], ...] = (
    # pattern of keys, what it means, values (besides None and False) that switch it off
    (r"num_.*experts.*|n_.*experts|moe_.*|.*_experts|expert_.*", "a mixture of experts", (0, 1)),
    (r".*soft_?cap.*", "soft-capped logits", (0, 0.0)),
    (r".*_multiplier|mup_.*", "scaled activations", (1, 1.0)),
    (
        r"logit_scale|embedding_scale|residual_scale|scale_emb|scale_depth|dim_model_base",
        "scaled activations",
        (1, 1.0),
    ),
    (r"query_pre_attn_scalar|attention_scale|attn_scale|attn_temperature.*", "another attention scale", ()),
    (r".*parallel_residual|parallel_attn|parallel_attention", "parallel attention and MLP", ()),
    (r"alibi|.*_alibi", "ALiBi positions", ()),
    (r"clip_qkv|clamp_kqv|qkv_clip", "clipped q, k and v", ()),
    (r"(use_)?qk_(layer)?norm|qk_layernorm", "norms over q and k", ()),
    (r".*lora_rank", "low-rank attention", (0,)),
    (r"rope_interleave[d]?|is_neox_style", "another rotation", ()),
    (r"quantization_config|compression_config", "quantized weights (use the original or a GGUF file)", ()),
    (r"(vision|text|audio)_config", "a multimodal model", ()),
    (r"attention_chunk_size|attention_sinks?|sink_.*", "chunked attention or sinks", (0,)),
    (r"num_nextn_predict_layers", "extra prediction layers", (0,)),
    (r"use_bias|bias|lm_head_bias", "biases of its own", ()),
    (r"is_encoder_decoder|add_cross_attention", "an encoder", ()),
    (r"num_kv_shared_layers|cross_layer.*|kv_sharing.*", "layers that share their cache", (0,)),
)


def refuse_unsupported(config: Fields, architecture: Architecture, context: int) -> None:
    """Raises ``UnsupportedModelError`` with the first key, its value and its meaning."""
    for key, value in config.items():
        for pattern, meaning, neutral in _REFUSED:
            if not _off(value, neutral) and re.fullmatch(pattern, key):
                raise UnsupportedModelError(
                    f"{config.where}: {config.name(key)} = {describe(value)} ({meaning}) is not supported"
                )
    classes = config.texts("architectures") or [architecture.class_name]
    if architecture.class_name not in classes:
        raise UnsupportedModelError(
            f"{config.where}: architectures = {', '.join(map(describe, classes[:3]))} with model_type "
            f"{architecture.model_type!r}; expected {architecture.class_name}"
        )
    if "AutoModelForCausalLM" in config.object("auto_map"):
        raise UnsupportedModelError(
            f"{config.where}: auto_map asks for code from the model's folder, which is never run"
        )
    activation = config.text("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise UnsupportedModelError(
            f"{config.where}: hidden_act = {describe(activation)} is not supported, expected silu"
        )
    _refuse_window(config, architecture, context)


def is_off(key: str, value: object) -> bool:
    """Whether ``key`` is one of those that are refused, with a ``value`` that changes nothing."""
    return any(_off(value, neutral) for pattern, _, neutral in _REFUSED if re.fullmatch(pattern, key))


def _off(value: object, neutral: tuple[object, ...]) -> bool:
    return value is None or value is False or value in neutral


def _refuse_window(config: Fields, architecture: Architecture, context: int) -> None:
    """A window at least as long as the context hides nothing, and is fine."""
    key = "sliding_window"
    window = config.whole_or_none(key) if key in config else architecture.window
    kinds = set(config.texts("layer_types"))
    other = sorted(kinds - {"full_attention", "sliding_attention"})
    if other:
        raise UnsupportedModelError(f"{config.where}: layer_types has {describe(other[0])}; supported: full_attention")
    switch = architecture.windowed
    on = config.flag(switch) if isinstance(switch, str) else switch
    first = config.whole("max_window_layers", 28, least=0)
    if isinstance(switch, str) and kinds:
        on = False  # the list of layers has the last word
    elif on and architecture.window_layers:
        on = first < config.whole("num_hidden_layers")
    on = on or "sliding_attention" in kinds
    if on and window is not None and window < context:
        raise UnsupportedModelError(
            f"{config.where}: {config.name(key)} = {window} is shorter than the context of {context}, and windowed "
            f"attention is not supported; export with --context {window} or less"
        )
