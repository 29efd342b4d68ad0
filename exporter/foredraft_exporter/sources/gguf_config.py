"""GGUF metadata -> the config that the same model has on Hugging Face, and the names of its tensors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from foredraft.errors import CheckpointError, UnsupportedModelError
from foredraft_exporter.models.refusals import is_off

ARCHITECTURES = {
    "llama": ("llama", "LlamaForCausalLM"),
    "qwen2": ("qwen2", "Qwen2ForCausalLM"),
    "qwen3": ("qwen3", "Qwen3ForCausalLM"),
    "smollm3": ("smollm3", "SmolLM3ForCausalLM"),
}
PERMUTED = frozenset({"llama", "mistral", "smollm3"})
"""Model types whose q and k rows are stored for interleaved rotation and have to be put back."""

_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_SIZES = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "max_position_embeddings": "context_length",
}
_WINDOW = "attention.sliding_window"
_KNOWN = frozenset(_SIZES.values()) | {
    "attention.head_count_kv",
    "attention.layer_norm_rms_epsilon",
    "attention.key_length",
    "attention.value_length",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scale_linear",
    "vocab_size",
    _WINDOW,
    "attention.sliding_window_pattern",  # which layers have the window
}

_NEUTRAL = {
    "attention.causal": True,
    "rope.scaling.attn_factor": 1.0,
    "rope.scaling.yarn_attn_factor": 1.0,
    "tensor_data_layout": "Meta AI original pth",  # the order that q and k have in every file of a Llama
}
"""Where that value, and no other, changes nothing."""
_YARN = {
    "rope.scaling.original_context_length": "original_max_position_embeddings",
    "rope.scaling.yarn_beta_fast": "beta_fast",
    "rope.scaling.yarn_beta_slow": "beta_slow",
}


def hf_name(name: str) -> str | None:
    """The Hugging Face name of a GGUF tensor, or None if it has none."""
    if name in _TOP:
        return _TOP[name]
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
    if match is None or match.group(2) not in _NAMES:
        return None
    return f"model.layers.{match.group(1)}.{_NAMES[match.group(2)]}.{match.group(3)}"


def config_from(path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """The synthesised config.json. ``tensors`` are GGUF names with their shapes (rows first).

    Raises ``UnsupportedModelError`` for an architecture or a setting that is not understood, by name.
    """
    architecture = metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise UnsupportedModelError(f"{path}: GGUF architecture {architecture!r} is not supported; supported: {known}")
    prefix = f"{architecture}."
    own = {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}
    _refuse_unknown(path, architecture, own)
    model_type, class_name = ARCHITECTURES[architecture]
    config: dict[str, Any] = {"model_type": model_type, "architectures": [class_name], "hidden_act": "silu"}
    config |= {key: _number(path, prefix, own, gguf_key) for key, gguf_key in _SIZES.items()}
    head_dim = own.get("attention.key_length") or config["hidden_size"] // config["num_attention_heads"]
    config["num_key_value_heads"] = config["num_attention_heads"]
    if "attention.head_count_kv" in own:
        config["num_key_value_heads"] = _number(path, prefix, own, "attention.head_count_kv")
    config["head_dim"] = head_dim
    config["rms_norm_eps"] = _short(_number(path, prefix, own, "attention.layer_norm_rms_epsilon"))
    config["vocab_size"] = tensors.get("token_embd.weight", (0,))[0]
    config["rope_parameters"] = _rope(path, own, head_dim)
    config["attention_bias"] = "blk.0.attn_q.bias" in tensors
    config["mlp_bias"] = "blk.0.ffn_down.bias" in tensors
    config["tie_word_embeddings"] = "output.weight" not in tensors
    return config | _window(path, prefix, own, model_type)


def _window(path: Path, prefix: str, own: Mapping[str, Any], model_type: str) -> dict[str, Any]:
    """A Llama with a window is what Hugging Face calls a Mistral; others have a switch for it. Taken for all layers."""
    if own.get(_WINDOW) in (None, 0):
        return {}
    window = {"sliding_window": _number(path, prefix, own, _WINDOW)}
    if model_type == "llama":
        return window | {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}
    return window | {"use_sliding_window": True, "max_window_layers": 0}


def _refuse_unknown(path: Path, architecture: str, own: Mapping[str, Any]) -> None:
    """Settings beyond the known ones change what the model computes, unless they are switched off."""
    neutral = {**_NEUTRAL, "rope.scaling.yarn_ext_factor": float(own.get("rope.scaling.type") == "yarn")}
    for key, value in own.items():
        if key in neutral:
            off = value == neutral[key]
        else:
            off = value in (0, False, None) or is_off(key.removeprefix("attention."), value)
        if key not in _KNOWN and not off:
            raise UnsupportedModelError(f"{path}: setting {architecture}.{key} = {value!r} is not supported")
    if own.get("attention.value_length", own.get("attention.key_length")) != own.get("attention.key_length"):
        raise UnsupportedModelError(
            f"{path}: attention.key_length {own.get('attention.key_length')} and attention.value_length "
            f"{own['attention.value_length']} differ, expected heads of one size"
        )


def _number(path: Path, prefix: str, own: Mapping[str, Any], key: str) -> Any:
    value = own.get(key)
    if isinstance(value, list) and value and all(item == value[0] for item in value):
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise CheckpointError(f"{path}: metadata {prefix}{key} is {value!r}, expected a number above 0")
    return value


def _short(value: float) -> float:
    """A float32 as the shortest decimal that means it: 1e-05 for 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def _rope(path: Path, own: Mapping[str, Any], head_dim: int) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_theta": float(own.get("rope.freq_base", 10000.0)), "rope_type": "default"}
    rotated = own.get("rope.dimension_count", head_dim)
    if rotated != head_dim:
        raise UnsupportedModelError(
            f"{path}: rotates {rotated} of {head_dim} dimensions; partial rotation is not supported"
        )
    linear = own.get("rope.scale_linear")
    kind = own.get("rope.scaling.type", "linear" if linear else "none")
    factor = own.get("rope.scaling.factor") or linear
    if kind == "none" or not factor:
        return rope
    if kind not in ("linear", "yarn"):
        raise UnsupportedModelError(
            f"{path}: rope.scaling.type {kind!r} is not supported; supported: none, linear, yarn"
        )
    rope |= {"rope_type": kind, "factor": float(factor)}
    if kind == "yarn":
        rope |= {ours: own[key] for key, ours in _YARN.items() if own.get(key)}
    return rope
