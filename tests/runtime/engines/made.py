"""Bundles with engines for the stand-ins: exported as usual, but an engine is its graph, a kernel its name."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import onnx

from foredraft.bundle import Bundle
from foredraft.engines.cuda.device import Device
from foredraft.engines.tensorrt.engine import TensorRTEngine
from foredraft_exporter import build
from foredraft_exporter.exits.additions import ExitOptions
from foredraft_exporter.tensorrt import engine_set
from foredraft_exporter.tensorrt.build_options import BuildOptions
from foredraft_exporter.tensorrt.process import Built
from foredraft_plugins.tree_attention.gpu.images import AttentionShape, Images
from tests.fixtures import tiny_checkpoint
from tests.runtime.engines.cuda_standin import CudaStandIn
from tests.runtime.engines.kernels_standin import images
from tests.runtime.engines.tensorrt_standin import VERSION, TensorRTStandIn

COMPILER = "foredraft_plugins.tree_attention.gpu.compile"


def tiny_engines(folder: Path, *, exits: Sequence[int] = (1, 2), **options: Any) -> Path:
    """A bundle of the tiny Llama, with heads as wide as the plugin takes them."""
    source = tiny_checkpoint(folder / "checkpoint", head_dim=32)
    return exported(source, folder / "tiny.foredraft", exits=exits, **options)


def exported(
    source: Path,
    out: Path,
    *,
    exits: Sequence[int],
    precision: str = "fp16",
    targets: tuple[str, ...] = ("sm89",),
    draft_vocab: str | int = "none",
    **options: Any,
) -> Path:
    """A bundle of any model; ``options`` are those of ``BuildOptions``."""
    chosen = BuildOptions("tensorrt-rtx", targets, **options)
    with (
        mock.patch.object(build, "require_builder"),
        mock.patch.object(engine_set, "build_engine", _graph_as_engine),
        mock.patch.object(engine_set, "check_header"),
        mock.patch.dict(sys.modules, {COMPILER: SimpleNamespace(compile_images=_described)}),
    ):
        build.export(
            source,
            out,
            exits=exits,
            precision=precision,
            engines=chosen,
            exit_options=ExitOptions(draft_vocab=draft_vocab),
        )
    return out


def _graph_as_engine(job: Any, tell: Any = None) -> Built:
    onnx.save(onnx.load(job.graph), job.engine)  # what lies outside the graph comes inside
    return Built(0.0, Path(job.engine).stat().st_size, 0, VERSION, ())


def _described(shape: AttentionShape, dtype: str, sms: Sequence[int], progress: Any = None) -> Images:
    return images(shape, dtype, sms)


def opened(
    bundle: Bundle, cuda: CudaStandIn | None = None, trt: TensorRTStandIn | None = None, **settings: Any
) -> tuple[TensorRTEngine, CudaStandIn, TensorRTStandIn]:
    """The bundle's only engines on the stand-ins."""
    cuda = cuda or CudaStandIn()
    trt = trt or TensorRTStandIn(cuda)
    (name,) = bundle.manifest.engines
    return TensorRTEngine(bundle, name, Device(cuda), trt, **settings), cuda, trt
