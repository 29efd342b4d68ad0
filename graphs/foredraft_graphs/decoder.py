"""What a decoder looks like, as far as its graph is concerned. Knows nothing of where weights come from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Decoder:
    """A Llama-like decoder. Every architecture in the exporter is a set of values for these fields.

    Sizes are in elements. A layer is pre-norm attention, then pre-norm SwiGLU, both residual:
    ``x += o(attention(qkv(norm(x))))``, ``x += down(silu(gate(norm(x))) * up(norm(x)))``.
    """

    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    norm_eps: float
    context: int
    """Longest sequence in tokens: the number of rows of the rotary tables."""
    rotary_dim: int
    """How many of a head's first dimensions are rotated (half-split pairs, as in Hugging Face)."""
    attention_scale: float
    """Factor on q.k before the softmax; 1/sqrt(head_dim) unless the model says otherwise."""
    no_rope_layers: tuple[int, ...] = ()
    """Layers that do not rotate q and k at all (SmolLM3)."""
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    """RMS norm over each head's q and k before the rotation (Qwen3)."""
    tied: bool = False
    """The head reads the embedding's own tensor."""

    @property
    def qkv_size(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.head_dim
