"""Whether a loaded engine is what the runtime takes it for: a wrong type or size would be read as garbage."""

from __future__ import annotations

from collections.abc import Mapping

from foredraft.bundle.manifest import EngineSet, ModelInfo
from foredraft.engines.cuda.runnable import Runnable, Tensor
from foredraft.errors import EngineError

_TYPES = {"fp16": "half", "bf16": "bf16", "f32": "float", "i32": "int32"}
"""What the library's enum calls them."""


def check_tensors(engine: Runnable, model: ModelInfo, engines: EngineSet) -> list[str]:
    """The inputs of ``engine`` that are weights. Raises EngineError for a tensor that has not the type expected."""
    known = _known(model, engines)
    weights = []
    for tensor in (*engine.inputs.values(), *engine.outputs.values()):
        kind = known.get(tensor.name)
        if kind is None and tensor.name in engine.inputs:
            weights.append(tensor.name)
        elif kind is None:
            raise EngineError(f"{engine.where}: has an output {tensor.name!r} that nothing is known of; build it again")
        elif tensor.dtype != _TYPES[kind]:
            raise EngineError(
                f"{engine.where}: {tensor.name!r} is {tensor.dtype}, expected {kind}; build the engines again"
            )
    return weights


def check_weights(engine: Runnable, sizes: Mapping[str, int], where: str) -> None:
    """Every weight fills the tensor that the engine reads it as; raises EngineError otherwise."""
    for name in (name for name in engine.inputs if name in sizes):
        tensor: Tensor = engine.inputs[name]
        if tensor.nbytes(0, 0) != sizes[name]:
            raise EngineError(
                f"{where}: {name!r} has {sizes[name]} bytes, but {engine.where} reads {tensor.nbytes(0, 0)}; "
                "build the engines again"
            )


def _known(model: ModelInfo, engines: EngineSet) -> dict[str, str]:
    """Type by name of every tensor that is no weight."""
    integers = ("tokens", "positions", "slots", "n_past", "mask", "top_ids")
    floats = ("hidden", "hidden_out", "readout", "logits", "top_logits", "log_total")
    caches = [f"{which}_{layer}" for layer in range(model.layers) for which in ("key", "value")]
    return {
        **dict.fromkeys(integers, "i32"),
        **dict.fromkeys(floats, "f32"),
        **{f"{cache}{suffix}": engines.dtype for cache in caches for suffix in ("", "_out")},
    }
