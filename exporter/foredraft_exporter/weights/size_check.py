"""Whether a config is that of the weights beside it: each size is looked up in the shape of a tensor."""

from __future__ import annotations

import re

from foredraft.errors import CheckpointError
from foredraft_exporter.models import architecture_of
from foredraft_exporter.sources.checkpoint import Checkpoint
from foredraft_graphs.decoder import Decoder

_LAYER = re.compile(r"model\.layers\.([0-9]{1,6})\.")


def check_sizes(checkpoint: Checkpoint, decoder: Decoder) -> None:
    """Raises ``CheckpointError`` with the config's key for the first size that the tensors contradict.

    A tensor that is missing, or of a form of its own, is left to the plan of the weights, which names it.
    """
    config, names = checkpoint.info.config, set(checkpoint.names())
    d, first = decoder, "model.layers.0."
    rows = (
        ("hidden_size", d.hidden_size, "model.norm.weight", d.hidden_size),
        ("vocab_size", d.vocab_size, "model.embed_tokens.weight", d.vocab_size),
        ("intermediate_size", d.intermediate_size, f"{first}mlp.gate_proj.weight", d.intermediate_size),
        ("num_attention_heads", d.heads, f"{first}self_attn.q_proj.weight", d.heads * d.head_dim),
        ("num_key_value_heads", d.kv_heads, f"{first}self_attn.k_proj.weight", d.kv_heads * d.head_dim),
    )
    for key, got, tensor, expected in rows:
        shape = checkpoint.shape(tensor) if tensor in names else ()
        if shape and shape[0] != expected:
            each = f" of {config.name('head_dim')} {d.head_dim}" if expected != got else ""
            raise CheckpointError(
                f"{config.where}: {config.name(key)}: got {got}{each}, but tensor {tensor!r} has {shape[0]} rows; "
                "config and weights are of different models"
            )
    layers = len({found[1] for name in names if (found := _LAYER.match(name))})
    if layers not in (0, d.layers):
        raise CheckpointError(
            f"{config.where}: {config.name('num_hidden_layers')}: got {d.layers}, but there are tensors of {layers} "
            "layers; config and weights are of different models"
        )
    architecture = architecture_of(config)
    for switch, on, tensor in (
        (architecture.qkv_bias, d.qkv_bias, f"{first}self_attn.q_proj.bias"),
        (architecture.mlp_bias, d.mlp_bias, f"{first}mlp.gate_proj.bias"),
    ):
        if isinstance(switch, str) and on != (tensor in names):
            raise CheckpointError(
                f"{config.where}: {config.name(switch)}: {'is on' if on else 'is off'}, but there is "
                f"{'no' if on else 'a'} tensor {tensor!r}; config and weights are of different models"
            )
