"""The process that builds one engine: ``python -m foredraft_exporter.tensorrt.worker`` with a job on its input.

It speaks JSON lines on its output: ``progress``, ``warning``, ``done`` or ``error``. It is a process of its own because
the library may end it instead of raising.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from foredraft.disk_space import size_text
from foredraft.engines.tensorrt.libraries import Library, library, load, require_parser
from foredraft.errors import ForedraftError
from foredraft_exporter.tensorrt.job import BuildJob, profile_shape, profile_sizes
from foredraft_plugins.tree_attention import tensorrt as plugin

_COPY = "Inserting copy"
"""What the builder logs when another node reads a cache, which is then no longer updated in place."""


def main() -> None:
    """Build the job's engine and tell how it went; the exit code is 0 also if it failed."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the library prints must not get between the lines

    def tell(event: str, **values: object) -> None:
        out.write(json.dumps({"event": event, **values}) + "\n")
        out.flush()

    job = BuildJob.from_json(sys.stdin.read())
    try:
        tell("done", **_build(job, tell))
    except ForedraftError as error:
        tell("error", text=str(error))


def _build(job: BuildJob, tell: Any) -> dict[str, Any]:
    chosen = library(job.library)
    trt = load(chosen)
    require_parser(chosen)
    started = time.monotonic()
    logger = _logger(trt, tell)
    plugin.register(trt, None, None)
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    _parse(trt, network, logger, job)
    config = _config(trt, builder, network, chosen, job, tell)
    timing = _timing_cache(config, job, tell)
    serialized = builder.build_serialized_network(network, config)
    if logger.copies:
        raise ForedraftError(f"{job.graph}: the cache would be copied in every forward: {logger.copies[0]}")
    if serialized is None:
        raise ForedraftError(f"{job.graph}: {chosen.name} cannot build it: {_cause(logger)}")
    data = bytes(serialized)
    try:
        Path(job.engine).write_bytes(data)
    except OSError as error:
        raise ForedraftError(
            f"{job.graph}: its engine of {size_text(len(data))} cannot be written: {error.strerror}; make room"
        ) from error
    if timing is not None and job.timing_cache:
        try:
            _keep(Path(job.timing_cache), bytes(timing.serialize()))
        except OSError as error:
            tell(
                "warning", text=f"{job.timing_cache}: cannot be written: {error.strerror}; the next build takes longer"
            )
    return {
        "seconds": time.monotonic() - started,
        "bytes": len(data),
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "version": str(trt.__version__),
    }


def _logger(trt: Any, tell: Any) -> Any:
    class Logger(trt.ILogger):  # type: ignore[misc]
        """Keeps errors and copies, passes warnings on."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []
            self.copies: list[str] = []

        def log(self, severity: Any, text: str) -> None:
            if severity in (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR):
                self.errors.append(text)
            elif _COPY in text:
                self.copies.append(text)
            elif severity == trt.ILogger.Severity.WARNING:
                tell("warning", text=text)

    return Logger()


def _parse(trt: Any, network: Any, logger: Any, job: BuildJob) -> None:
    parser = trt.OnnxParser(network, logger)
    if parser.parse_from_file(job.graph):
        return
    found = parser.get_error(0) if parser.num_errors else None
    node = f"node {found.node_name()} ({found.node_operator()}): " if found is not None else ""
    cause = found.desc() if found is not None else _cause(logger)
    if raised := plugin.last_error():
        cause = f"{cause} ({raised})"
    raise ForedraftError(f"{job.graph}: {node}{cause}")


def _config(trt: Any, builder: Any, network: Any, chosen: Library, job: BuildJob, tell: Any) -> Any:
    config = builder.create_builder_config()
    config.set_preview_feature(trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)
    if hasattr(trt.BuilderFlag, "REQUIRE_USER_ALLOCATION"):
        config.set_flag(trt.BuilderFlag.REQUIRE_USER_ALLOCATION)  # else an engine may refuse to be captured in a graph
    config.progress_monitor = _monitor(trt, tell)
    if not chosen.needs_gpu:
        config.num_compute_capabilities = len(job.targets)
        for index, target in enumerate(job.targets):
            config.set_compute_capability(getattr(trt.ComputeCapability, target.upper()), index)
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    for sizes in profile_sizes(job):
        profile = builder.create_optimization_profile()
        for value in (v for v in inputs if any(dimension < 0 for dimension in v.shape)):
            profile.set_shape(value.name, *(profile_shape(value.name, tuple(value.shape), *size) for size in sizes))
        config.add_optimization_profile(profile)
    return config


def _monitor(trt: Any, tell: Any) -> Any:
    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]
        """Tells the outermost phase and how far it is."""

        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)
            self.steps: dict[str, int] = {}

        def phase_start(self, phase: str, parent: str | None, steps: int) -> None:
            self.steps[phase] = steps
            tell("progress", phase=phase, step=0, steps=steps)

        def step_complete(self, phase: str, step: int) -> bool:
            tell("progress", phase=phase, step=step + 1, steps=self.steps.get(phase, 0))
            return True

        def phase_finish(self, phase: str) -> None:
            self.steps.pop(phase, None)

    return Monitor()


def _timing_cache(config: Any, job: BuildJob, tell: Any) -> Any:
    """The library's measurements of earlier builds; what does not fit is dropped with a warning."""
    if job.timing_cache is None:
        return None
    path = Path(job.timing_cache)
    data = path.read_bytes() if path.is_file() else b""
    cache = config.create_timing_cache(data)
    if data and (cache is None or not config.set_timing_cache(cache, False)):
        tell("warning", text=f"{path}: a timing cache of another version or device; a fresh one is begun")
        cache, data = config.create_timing_cache(b""), b""
    if not data and cache is not None:
        config.set_timing_cache(cache, False)
    return cache


def _keep(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = path.with_suffix(f".{os.getpid()}")
    staging.write_bytes(data)
    staging.replace(path)


def _cause(logger: Any) -> str:
    raised = plugin.last_error()
    texts = [" ".join(text.split()) for text in logger.errors[:3]] + ([f"TreeAttention: {raised}"] if raised else [])
    return "; ".join(texts) or "the library gave no reason"


if __name__ == "__main__":
    main()
