"""GGUF metadata -> the config that the same model has on Hugging Face, and the names of its tensors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from foredraft.errors import UnsupportedModelError
from foredraft_exporter.models.refusals import is_off
from foredraft_exporter.sources.fields import Fields, describe

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
_PER_LAYER = {"feed_forward_length", "attention.head_count", "attention.head_count_kv"}
_SPELLED = {
    **_SIZES,
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "sliding_window": _WINDOW,
    "rope_parameters.rope_theta": "rope.freq_base",
    "rope_parameters.rope_type": "rope.scaling.type",
    "rope_parameters.factor": "rope.scaling.factor",
    **{f"rope_parameters.{ours}": key for key, ours in _YARN.items()},
}
"""Of keys of the config those of the file, for messages."""
_TENSORS = {"vocab_size": "token_embd.weight", "rope_parameters.factors": "rope_freqs.weight"}


def hf_name(name: str) -> str | None:
    """The Hugging Face name of a GGUF tensor, or None if it has none."""
    if name in _TOP:
        return _TOP[name]
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
    if match is None or match.group(2) not in _NAMES:
        return None
    return f"model.layers.{match.group(1)}.{_NAMES[match.group(2)]}.{match.group(3)}"


def config_from(metadata: Fields, tensors: Mapping[str, tuple[int, ...]]) -> Fields:
    """The synthesised config.json. ``tensors`` are GGUF names with their shapes (rows first).

    Raises ``UnsupportedModelError`` for an architecture or a setting that is not understood, by name, and
    ``CheckpointError`` for a value of another type than it should have.
    """
    architecture = metadata.text("general.architecture")
    if architecture not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"{metadata.where}: general.architecture {describe(architecture)} is not supported; "
            f"supported: {', '.join(ARCHITECTURES)}"
        )
    own = _own(metadata, f"{architecture}.")
    _refuse_unknown(own)
    model_type, class_name = ARCHITECTURES[architecture]
    sizes = {key: own.whole(gguf_key) for key, gguf_key in _SIZES.items()}
    heads = sizes["num_attention_heads"]
    head_dim = own.whole_or_none("attention.key_length", least=0) or sizes["hidden_size"] // heads
    config = {
        "model_type": model_type,
        "architectures": [class_name],
        "hidden_act": "silu",
        **sizes,
        "num_key_value_heads": own.whole("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "rms_norm_eps": _short(own.number("attention.layer_norm_rms_epsilon")),
        "vocab_size": tensors.get("token_embd.weight", (0,))[0],
        "rope_parameters": _rope(own, head_dim),
        "attention_bias": "blk.0.attn_q.bias" in tensors,
        "mlp_bias": "blk.0.ffn_down.bias" in tensors,
        "tie_word_embeddings": "output.weight" not in tensors,
        **_window(own, model_type),
    }
    return Fields(config, metadata.where, names=_TENSORS | {ours: own.name(key) for ours, key in _SPELLED.items()})


def _own(metadata: Fields, prefix: str) -> Fields:
    """The architecture's settings without their prefix; one number for each layer is one for all, if they agree."""
    own = {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}
    for key in _PER_LAYER & own.keys():
        values = own[key]
        if isinstance(values, list) and values:
            if any(value != values[0] for value in values):
                raise UnsupportedModelError(
                    f"{metadata.where}: {prefix}{key} differs from layer to layer, which is not supported"
                )
            own[key] = values[0]
    return Fields(own, metadata.where, prefix)


def _window(own: Fields, model_type: str) -> dict[str, Any]:
    """A Llama with a window is what Hugging Face calls a Mistral; others have a switch for it. Taken for all layers."""
    window = own.whole_or_none(_WINDOW, least=0)
    if not window:
        return {}
    if model_type == "llama":
        return {"sliding_window": window, "model_type": "mistral", "architectures": ["MistralForCausalLM"]}
    return {"sliding_window": window, "use_sliding_window": True, "max_window_layers": 0}


def _refuse_unknown(own: Fields) -> None:
    """Settings beyond the known ones change what the model computes, unless they are switched off."""
    neutral = {**_NEUTRAL, "rope.scaling.yarn_ext_factor": float(_scaling(own) == "yarn")}
    for key, value in own.items():
        if key in neutral:
            off = value == neutral[key]
        else:
            off = value in (0, False, None) or is_off(key.removeprefix("attention."), value)
        if key not in _KNOWN and not off:
            raise UnsupportedModelError(f"{own.where}: {own.name(key)} = {describe(value)} is not supported")
    lengths = [own.whole_or_none(f"attention.{part}_length", least=0) for part in ("key", "value")]
    if lengths[1] is not None and lengths[1] != lengths[0]:
        raise UnsupportedModelError(
            f"{own.where}: {own.name('attention.key_length')} {lengths[0]} and {own.name('attention.value_length')} "
            f"{lengths[1]} differ, expected heads of one size"
        )


def _short(value: float) -> float:
    """A float32 as the shortest decimal that means it: 1e-05 for 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def _rope(own: Fields, head_dim: int) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_theta": own.number("rope.freq_base", 10000.0, above=1), "rope_type": "default"}
    rotated = own.whole("rope.dimension_count", head_dim)
    if rotated != head_dim:
        raise UnsupportedModelError(
            f"{own.where}: {own.name('rope.dimension_count')} is {rotated} of {head_dim}; partial rotation is not "
            "supported"
        )
    kind, factor = _scaling(own), _number(own, "rope.scaling.factor") or _number(own, "rope.scale_linear")
    scaled = {ours: value for key, ours in _YARN.items() if (value := _number(own, key))}
    if kind == "none" or not factor:
        return rope
    return rope | {"rope_type": kind, "factor": factor} | (scaled if kind == "yarn" else {})


def _scaling(own: Fields) -> str:
    kind = own.text("rope.scaling.type", "linear" if _number(own, "rope.scale_linear") else "none")
    if kind not in ("none", "linear", "yarn"):
        raise UnsupportedModelError(
            f"{own.where}: {own.name('rope.scaling.type')} {describe(kind)} is not supported; "
            "supported: none, linear, yarn"
        )
    return kind


def _number(own: Fields, key: str) -> float | None:
    """None for 0, too, which stands for the default."""
    return None if own.get(key) == 0 else own.number_or_none(key)
