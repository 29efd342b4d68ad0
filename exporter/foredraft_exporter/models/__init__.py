"""The supported architectures: a config -> a ``Decoder``, and which tensors make up each weight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foredraft.errors import UnsupportedModelError
from foredraft_exporter.models import rope
from foredraft_exporter.models.architecture import Architecture
from foredraft_exporter.models.llama import LLAMA
from foredraft_exporter.models.mistral import MISTRAL
from foredraft_exporter.models.qwen2 import QWEN2
from foredraft_exporter.models.qwen3 import QWEN3
from foredraft_exporter.models.refusals import refuse_unsupported
from foredraft_exporter.models.smollm3 import SMOLLM3
from foredraft_exporter.sources.fields import Fields, describe
from foredraft_graphs.decoder import Decoder

ARCHITECTURES: dict[str, Architecture] = {a.model_type: a for a in (LLAMA, MISTRAL, QWEN2, QWEN3, SMOLLM3)}

__all__ = ["ARCHITECTURES", "Architecture", "architecture_of", "decoder"]


def architecture_of(config: Mapping[str, Any]) -> Architecture:
    """Raises ``UnsupportedModelError`` listing the supported ones."""
    fields = Fields.of(config)
    found = ARCHITECTURES.get(fields.text("model_type"))
    if found is None:
        raise UnsupportedModelError(
            f"{fields.where}: {fields.name('model_type')} {describe(fields['model_type'])} is not supported; "
            f"supported: {', '.join(ARCHITECTURES)}"
        )
    return found


def decoder(config: Mapping[str, Any], context: int | None = None) -> Decoder:
    """The decoder that ``config`` describes, for sequences of up to ``context`` tokens.

    ``context`` None means ``max_position_embeddings``; a scaled rotation may allow more.

    Raises ``UnsupportedModelError`` for anything without an exact counterpart, by name, and
    ``CheckpointError`` for a config that lacks a size, has one of another type or contradicts itself.
    """
    architecture, fields = architecture_of(config), Fields.of(config)
    context = _context(fields, architecture, context)
    refuse_unsupported(fields, architecture, context)
    hidden, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    kv_heads = fields.whole_or_none("num_key_value_heads") or heads
    if heads % kv_heads:
        raise fields.fault("num_key_value_heads", f"a divisor of {fields.name('num_attention_heads')}, {heads}")
    head_dim = _head_dim(fields, architecture, hidden, heads)
    made = Decoder(
        hidden_size=hidden,
        intermediate_size=fields.whole("intermediate_size"),
        layers=fields.whole("num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=fields.whole("vocab_size"),
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        context=context,
        rotary_dim=head_dim,
        attention_scale=head_dim**-0.5,
        no_rope_layers=_no_rope_layers(fields, architecture),
        qkv_bias=_flag(fields, architecture.qkv_bias),
        o_bias=_flag(fields, architecture.o_bias),
        mlp_bias=_flag(fields, architecture.mlp_bias),
        qk_norm=architecture.qk_norm,
        tied=fields.flag("tie_word_embeddings"),
    )
    rope.check_rotation(fields, made, architecture.rope_theta)
    return made


def _context(config: Fields, architecture: Architecture, wanted: int | None) -> int:
    trained = config.whole("max_position_embeddings")
    longest = max(trained, rope.longest_context(config, architecture.rope_theta))
    if wanted is not None and not 1 <= wanted <= longest:
        raise UnsupportedModelError(f"context {wanted} is not possible; this model is made for 1 to {longest} tokens")
    return trained if wanted is None else wanted


def _flag(config: Fields, rule: bool | str) -> bool:
    return config.flag(rule) if isinstance(rule, str) else rule


def _head_dim(config: Fields, architecture: Architecture, hidden: int, heads: int) -> int:
    given = config.whole_or_none("head_dim") or architecture.head_dim
    if given is None and hidden % heads:
        raise config.fault(
            "num_attention_heads",
            f"a divisor of {config.name('hidden_size')}, {hidden}, as {config.name('head_dim')} is not given",
        )
    head_dim = given or hidden // heads
    if head_dim % 2:
        raise UnsupportedModelError(
            f"{config.where}: {config.name('head_dim')} = {head_dim} is odd, and rotation needs pairs"
        )
    return head_dim


def _no_rope_layers(config: Fields, architecture: Architecture) -> tuple[int, ...]:
    """Layers that do not rotate; a config lists 1 for a layer that does and 0 for one that does not."""
    key, layers = "no_rope_layers", config.whole("num_hidden_layers")
    listed = config.wholes(key, 0, 1)
    if not architecture.no_rope:
        if listed:
            raise UnsupportedModelError(
                f"{config.where}: {config.name(key)} is not supported for {architecture.model_type}"
            )
        return ()
    if config.get(key) is None:
        interval = config.whole_or_none("no_rope_layer_interval") or 4
        return tuple(layer for layer in range(layers) if (layer + 1) % interval == 0)
    if len(listed) < layers:
        raise config.fault(key, f"{layers} numbers, one for each layer")
    return tuple(layer for layer in range(layers) if not listed[layer])
