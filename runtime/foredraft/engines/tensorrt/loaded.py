"""A compiled graph, opened: what tensors it has, and execution contexts for a number of rows."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from foredraft.bundle import Bundle
from foredraft.engines.cuda.device import Device, DeviceBuffer, Stream
from foredraft.engines.cuda.runnable import Addresses, Tensor
from foredraft.engines.tensorrt.libraries import Library
from foredraft.engines.tensorrt.messages import cause, errors_of, logger_of, patience
from foredraft.engines.tensorrt.runtime_cache import RuntimeCache
from foredraft.errors import EngineError
from foredraft_plugins.tree_attention.tensorrt import last_error

_BY_ROWS = ("tokens", "hidden", "readout")
"""An engine has one of these inputs, and its first dimension is the number of rows."""


class LoadedEngine:
    """``inputs`` and ``outputs`` by name; ``memory`` is the scratch memory in bytes that any context of it needs."""

    def __init__(self, trt: Any, library: Library, device: Device, bundle: Bundle, path: str) -> None:
        """Opens a file of the bundle, whose hash is checked first. Raises EngineError with the library's reason."""
        self.where = str(bundle.path / path)
        self._trt, self._device = trt, device
        data = bundle.map(path)
        self._runtime = trt.Runtime(logger_of(trt))
        with errors_of(trt) as errors, patience(lambda: f"{self.where}: loading"):
            engine = self._runtime.deserialize_cuda_engine(data)
            if engine is None:
                raise EngineError(f"{self.where}: {library.name} cannot load it: {cause(errors, last_error())}")
        self._engine = engine
        tensors = [self._tensor(engine.get_tensor_name(index)) for index in range(engine.num_io_tensors)]
        modes = {tensor.name: engine.get_tensor_mode(tensor.name) for tensor in tensors}
        self.inputs: Mapping[str, Tensor] = {t.name: t for t in tensors if modes[t.name] == trt.TensorIOMode.INPUT}
        self.outputs: Mapping[str, Tensor] = {t.name: t for t in tensors if modes[t.name] == trt.TensorIOMode.OUTPUT}
        self.memory = int(engine.device_memory_size_v2)
        self._lock = threading.Lock()
        self._config, self._cache = self._configured(library, bundle.manifest.files[path].sha256)

    def context(
        self, rows: int, slots: int, addresses: Addresses, scratch: DeviceBuffer, stream: Stream
    ) -> ExecutionContext:
        """A context for forwards of ``rows`` nodes, every tensor bound. Raises EngineError for one without address."""
        unknown = sorted({*self.inputs, *self.outputs} - set(addresses))
        if unknown:
            raise EngineError(f"{self.where}: has a tensor {unknown[0]!r} that nothing is known of; build it again")
        with self._lock, errors_of(self._trt) as errors:
            made = self._engine.create_execution_context(self._config)
            if made is None:
                raise EngineError(f"{self.where}: no execution context: {cause(errors)}")
        made.set_device_memory(scratch.address, scratch.size)
        context = ExecutionContext(self, made, stream)
        context.choose_profile(self._profile(rows))
        context.shape(rows, slots)
        for name in (*self.inputs, *self.outputs):
            if not made.set_tensor_address(name, addresses[name]):
                raise EngineError(f"{self.where}: tensor {name!r} cannot be bound to {addresses[name]:#x}")
        return context

    def keep_kernels(self) -> None:
        """Remember the kernels that were finished so far for the next start, where the library finishes any."""
        if self._cache is not None:
            with self._lock:
                self._cache.keep()

    def failure(self, what: str, errors: list[str]) -> EngineError:
        """The error to raise when one of its contexts failed."""
        return EngineError(f"{self.where}: {what} failed on {self._device}: {cause(errors, last_error())}")

    def _tensor(self, name: str) -> Tensor:
        dtype = self._engine.get_tensor_dtype(name)
        return Tensor(name, tuple(self._engine.get_tensor_shape(name)), dtype.name.lower(), dtype.itemsize)

    def _profile(self, rows: int) -> int:
        """The first optimization profile that takes so many rows."""
        name = next(name for name in _BY_ROWS if name in self.inputs)
        most = [
            int(self._engine.get_tensor_profile_shape(name, index)[2][0])
            for index in range(self._engine.num_optimization_profiles)
        ]
        for index, limit in enumerate(most):
            if rows <= limit:
                return index
        raise EngineError(f"{self.where}: takes at most {max(most)} nodes in a forward, got {rows}; build it again")

    def _configured(self, library: Library, sha256: str) -> tuple[Any, RuntimeCache | None]:
        """What contexts are made with: scratch memory comes from us, and kernels are finished for each shape at once.

        A kernel that is finished later, in the background, would never get into a CUDA graph that was captured before.
        """
        trt = self._trt
        strategy = trt.ExecutionContextAllocationStrategy.USER_MANAGED
        if not library.jit:
            return strategy, None
        config = self._engine.create_runtime_config()
        config.set_execution_context_allocation_strategy(strategy)
        config.dynamic_shapes_kernel_specialization_strategy = trt.DynamicShapesKernelSpecializationStrategy.EAGER
        return config, RuntimeCache(config, self._device, sha256, str(trt.__version__))


class ExecutionContext:
    """One context of an engine: bound, shaped, ready to be put into its stream."""

    def __init__(self, engine: LoadedEngine, context: Any, stream: Stream) -> None:
        self._engine, self._context, self._stream = engine, context, stream

    def choose_profile(self, profile: int) -> None:
        """Once, before it gets its shapes."""
        if not self._context.set_optimization_profile_async(profile, self._stream.handle):
            raise EngineError(f"{self._engine.where}: profile {profile} cannot be chosen")
        self._stream.wait()

    def shape(self, rows: int, slots: int) -> None:
        """Give every input its shape for ``rows`` nodes."""
        for tensor in self._engine.inputs.values():
            if -1 in tensor.shape:
                shape = tensor.sized(rows, slots)
                if not self._context.set_input_shape(tensor.name, shape):
                    raise EngineError(f"{self._engine.where}: input {tensor.name!r} does not take the shape {shape}")

    def enqueue(self) -> None:
        """Put a forward into the stream. Raises EngineError with the library's, or our plugin's, reason."""
        with errors_of(self._engine._trt) as errors:
            if not self._context.execute_async_v3(self._stream.handle):
                raise self._engine.failure("a forward", errors)

    def capturable(self) -> bool:
        asked = getattr(self._context, "is_stream_capturable", None)  # not every version of the library knows
        return asked is None or bool(asked(self._stream.handle))
