"""Which graphs engines need, and what building them takes: known before any work starts."""

from __future__ import annotations

from foredraft.errors import UnsupportedModelError
from foredraft_exporter.tensorrt.build_options import BuildOptions, activation_dtype, slots_for
from foredraft_graphs.decoder import Decoder
from foredraft_graphs.lowering import Lowering
from foredraft_graphs.portable_lowering import PortableLowering
from foredraft_graphs.tensorrt_lowering import TensorRTLowering
from foredraft_plugins.tree_attention.gpu.images import HEAD_DIMS

_BUILDER = 400 << 20
"""Bytes that the library takes in its process; measured with TensorRT for RTX 1.7."""
_ENGINE, _LAYER = 2 << 20, 11 << 17
"""Bytes of an engine without weights, and of each layer in it, whatever the targets."""


def engine_lowerings(decoder: Decoder, options: BuildOptions, precision: str) -> tuple[Lowering, ...]:
    """The engines' own graphs, and the portable ones over the same weights: their reference, and what runs where no
    engine does. Raises UnsupportedModelError if the plugin has no kernel for the model's heads.
    """
    own = TensorRTLowering(
        activation_dtype(precision),
        options.attention,
        weights_as_inputs=options.weights == "inputs",
        slots=slots_for(decoder.context) if options.attention == "native" else None,
    )
    if not own.supports(decoder):
        raise UnsupportedModelError(
            f"heads of {decoder.head_dim}: the attention plugin takes {', '.join(map(str, HEAD_DIMS))}; "
            "use --attention native"
        )
    return own, PortableLowering()


def engines_size(options: BuildOptions, weights: int, layers: int, engines: int) -> int:
    """About how many bytes ``engines`` engines of ``layers`` layers in all take, beside weights of so many bytes."""
    return engines * _ENGINE + layers * _LAYER + (weights if options.weights == "constants" else 0)


def builder_memory(options: BuildOptions, weights: int) -> int:
    """About how many bytes the builder takes at its peak."""
    return _BUILDER + (3 * weights if options.weights == "constants" else 0)
