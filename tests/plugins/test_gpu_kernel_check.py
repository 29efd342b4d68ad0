"""The check for machines with a GPU, run on a stand-in that computes in numpy: that the check works, not the GPU."""

import ctypes
import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu import kernel_check
from foredraft_plugins.tree_attention.gpu.images import PluginError
from tests.runtime.engines import kernels_standin
from tests.runtime.engines.cuda_standin import CudaStandIn, CUresult

pytestmark = pytest.mark.slow

OK = CUresult.CUDA_SUCCESS


class Gpu(CudaStandIn):
    """With what only the check uses. Every graph takes 5 ms."""

    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1)

    def cuMemcpyHtoD(self, target: int, source: int, size: int) -> tuple[CUresult]:  # noqa: N802
        self.view(target, size)[:] = self._memory(source, size)
        return (OK,)

    def cuMemcpyDtoH(self, target: int, source: int, size: int) -> tuple[CUresult]:  # noqa: N802
        self._memory(target, size)[:] = self.view(source, size)
        return (OK,)

    def cuEventCreate(self, flags: int) -> tuple[CUresult, int]:  # noqa: N802
        return OK, next(self._handles)

    def cuEventRecord(self, event: int, stream: int) -> tuple[CUresult]:  # noqa: N802
        return (OK,)

    def cuEventElapsedTime(self, start: int, end: int) -> tuple[CUresult, float]:  # noqa: N802
        return OK, 5.0

    def cuEventDestroy(self, event: int) -> tuple[CUresult]:  # noqa: N802
        return (OK,)

    def cuDevicePrimaryCtxRelease(self, device: int) -> tuple[CUresult]:  # noqa: N802
        return (OK,)

    @staticmethod
    def _memory(address: int, size: int) -> np.ndarray:
        return np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    monkeypatch.setattr(kernel_check, "compile_images", kernels_standin.images)
    monkeypatch.setattr(kernel_check, "SHAPES", kernel_check.SHAPES[4:])
    monkeypatch.setattr(kernel_check, "FORWARDS", ((64, 0, 128), (9, 30, 128), (66, 10, 128)))
    return Gpu(sm=90)


def run(gpu: Gpu) -> tuple[bool, list[str]]:
    lines: list[str] = []
    return kernel_check.check(lines.append, gpu), lines


def test_every_shape_dtype_and_forward_is_reported(gpu):
    good, lines = run(gpu)
    assert good
    assert len(lines) == 2 * 2 * (3 + 1)
    assert all(line.startswith("ok  ") for line in lines)
    assert lines[0].startswith(
        "ok   sm90 fp16, 6 heads over 2 KV heads, head_dim 96, no rotary embedding: T 64, n_past 0"
    )
    assert lines[0].endswith("100.0 us, same bits alone")
    assert gpu.taken == 0


def test_a_device_without_bfloat16_is_checked_without(gpu):
    gpu.sm = 75
    assert not [line for line in run(gpu)[1] if "bf16" in line]


def test_a_kernel_that_computes_something_else_fails(gpu, monkeypatch):
    real, calls = kernels_standin._combine, itertools.count()

    def drifting(kernel: Any, at: Any, grid: Any, values: dict[str, Any]) -> None:
        real(kernel, at, grid, values)
        at(values["out"], np.uint16, 1)[0] += next(calls) % 2

    monkeypatch.setattr(kernels_standin, "_combine", drifting)
    good, lines = run(gpu)
    assert not good
    assert any("OTHER BITS ALONE" in line and line.startswith("FAIL") for line in lines)


def test_a_copy_that_goes_wrong_fails(gpu, monkeypatch):
    monkeypatch.setattr(kernels_standin, "_copy_rows", lambda *arguments: None)
    good, lines = run(gpu)
    assert not good
    assert lines[3] == "FAIL copy-rows"


def test_without_a_gpu_it_says_so(gpu):
    gpu.fail["cuInit"] = CUresult.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(PluginError, match="no GPU that CUDA can use: cuInit failed"):
        kernel_check.check(print, gpu)
