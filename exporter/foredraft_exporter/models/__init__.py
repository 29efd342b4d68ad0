"""The supported architectures: a config -> a ``Decoder``, and which tensors make up each weight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foredraft.errors import CheckpointError, UnsupportedModelError
from foredraft_exporter.models import rope
from foredraft_exporter.models.architecture import Architecture
from foredraft_exporter.models.llama import LLAMA
from foredraft_exporter.models.mistral import MISTRAL
from foredraft_exporter.models.qwen2 import QWEN2
from foredraft_exporter.models.qwen3 import QWEN3
from foredraft_exporter.models.refusals import refuse_unsupported
from foredraft_exporter.models.smollm3 import SMOLLM3
from foredraft_graphs.decoder import Decoder

ARCHITECTURES: dict[str, Architecture] = {a.model_type: a for a in (LLAMA, MISTRAL, QWEN2, QWEN3, SMOLLM3)}

__all__ = ["ARCHITECTURES", "Architecture", "architecture_of", "decoder"]


def architecture_of(config: Mapping[str, Any]) -> Architecture:
    """Raises ``UnsupportedModelError`` listing the supported ones."""
    found = ARCHITECTURES.get(str(config.get("model_type")))
    if found is None:
        raise UnsupportedModelError(
            f"config: model_type {config.get('model_type')!r} is not supported; supported: {', '.join(ARCHITECTURES)}"
        )
    return found


def decoder(config: Mapping[str, Any], context: int | None = None) -> Decoder:
    """The decoder that ``config`` describes, for sequences of up to ``context`` tokens.

    ``context`` None means ``max_position_embeddings``; a scaled rotation may allow more.

    Raises ``UnsupportedModelError`` for anything without an exact counterpart, by name, and
    ``CheckpointError`` for a config that lacks a size or contradicts itself.
    """
    architecture = architecture_of(config)
    context = _context(config, architecture, context)
    refuse_unsupported(config, architecture, context)
    hidden, heads = _size(config, "hidden_size"), _size(config, "num_attention_heads")
    kv_heads = _size(config, "num_key_value_heads", heads)
    if heads % kv_heads:
        raise CheckpointError(f"config: {heads} heads cannot share {kv_heads} key/value heads evenly")
    head_dim = _head_dim(config, architecture, hidden, heads)
    return Decoder(
        hidden_size=hidden,
        intermediate_size=_size(config, "intermediate_size"),
        layers=_size(config, "num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=_size(config, "vocab_size"),
        norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        context=context,
        rotary_dim=head_dim,
        attention_scale=head_dim**-0.5,
        no_rope_layers=_no_rope_layers(config, architecture),
        qkv_bias=_flag(config, architecture.qkv_bias),
        o_bias=_flag(config, architecture.o_bias),
        mlp_bias=_flag(config, architecture.mlp_bias),
        qk_norm=architecture.qk_norm,
        tied=bool(config.get("tie_word_embeddings", False)),
    )


def _context(config: Mapping[str, Any], architecture: Architecture, wanted: int | None) -> int:
    trained = _size(config, "max_position_embeddings")
    longest = max(trained, rope.longest_context(config, architecture.rope_theta))
    if wanted is not None and not 1 <= wanted <= longest:
        raise UnsupportedModelError(f"context {wanted} is not possible; this model is made for 1 to {longest} tokens")
    return trained if wanted is None else wanted


def _size(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = config.get(key)
    value = default if value is None else value
    if type(value) is not int or value < 1:
        raise CheckpointError(f"config: {key} is {value!r}, expected a positive integer")
    return value


def _flag(config: Mapping[str, Any], rule: bool | str) -> bool:
    return bool(config.get(rule, False)) if isinstance(rule, str) else rule


def _head_dim(config: Mapping[str, Any], architecture: Architecture, hidden: int, heads: int) -> int:
    if config.get("head_dim") is None and architecture.head_dim is None and hidden % heads:
        raise CheckpointError(f"config: hidden_size {hidden} is no multiple of {heads} heads, and head_dim is missing")
    head_dim = _size(config, "head_dim", architecture.head_dim or hidden // heads)
    if head_dim % 2:
        raise UnsupportedModelError(f"config: head_dim = {head_dim} is odd, and rotation needs pairs")
    return head_dim


def _no_rope_layers(config: Mapping[str, Any], architecture: Architecture) -> tuple[int, ...]:
    """Layers that do not rotate; a config lists 1 for a layer that does and 0 for one that does not."""
    listed, layers = config.get("no_rope_layers"), _size(config, "num_hidden_layers")
    if not architecture.no_rope:
        if listed:
            raise UnsupportedModelError(f"config: no_rope_layers is not supported for {architecture.model_type}")
        return ()
    if listed is None:
        interval = _size(config, "no_rope_layer_interval", 4)
        return tuple(layer for layer in range(layers) if (layer + 1) % interval == 0)
    if len(listed) < layers:
        raise CheckpointError(f"config: no_rope_layers has {len(listed)} entries, expected {layers}")
    return tuple(layer for layer in range(layers) if not listed[layer])
