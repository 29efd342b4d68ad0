"""Settings that would change what a model computes and have no counterpart here: refused by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from foredraft.errors import UnsupportedModelError
from foredraft_exporter.models.architecture import Architecture

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


def refuse_unsupported(config: Mapping[str, Any], architecture: Architecture, context: int) -> None:
    """Raises ``UnsupportedModelError`` with the first key, its value and its meaning."""
    for key, value in config.items():
        for pattern, meaning, neutral in _REFUSED:
            if not _off(value, neutral) and re.fullmatch(pattern, key):
                raise UnsupportedModelError(f"config: {key} = {_brief(value)} ({meaning}) is not supported")
    classes = config.get("architectures") or [architecture.class_name]
    if architecture.class_name not in classes:
        raise UnsupportedModelError(
            f"config: architectures = {classes} with model_type {architecture.model_type!r}; "
            f"expected {architecture.class_name}"
        )
    if "AutoModelForCausalLM" in (config.get("auto_map") or {}):
        raise UnsupportedModelError("config: auto_map asks for code from the model's folder, which is never run")
    activation = config.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise UnsupportedModelError(f"config: hidden_act = {activation!r} is not supported, expected silu")
    _refuse_window(config, architecture, context)


def is_off(key: str, value: object) -> bool:
    """Whether ``key`` is one of those that are refused, with a ``value`` that changes nothing."""
    return any(_off(value, neutral) for pattern, _, neutral in _REFUSED if re.fullmatch(pattern, key))


def _off(value: object, neutral: tuple[object, ...]) -> bool:
    return value is None or value is False or value in neutral


def _refuse_window(config: Mapping[str, Any], architecture: Architecture, context: int) -> None:
    """A window at least as long as the context hides nothing, and is fine."""
    window = config.get("sliding_window", architecture.window)
    kinds = set(config.get("layer_types") or ())
    other = sorted(kinds - {"full_attention", "sliding_attention"})
    if other:
        raise UnsupportedModelError(f"config: layer_types has {other[0]!r}; supported: full_attention")
    switch = architecture.windowed
    on = bool(config.get(switch, False)) if isinstance(switch, str) else switch
    if isinstance(switch, str) and kinds:
        on = False  # the list of layers has the last word
    elif on and architecture.window_layers:
        on = config.get("max_window_layers", 28) < config["num_hidden_layers"]
    on = on or "sliding_attention" in kinds
    if on and window is not None and window < context:
        raise UnsupportedModelError(
            f"config: sliding_window = {window} is shorter than the context of {context}, and windowed "
            "attention is "
            f"not supported; export with --context {window} or less"
        )


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
