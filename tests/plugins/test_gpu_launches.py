"""Which kernels a forward launches and with what, down to the bytes that the driver reads. No GPU takes part."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft_plugins.tree_attention.gpu.driver import Kernels, context_id, device_sm
from foredraft_plugins.tree_attention.gpu.images import AttentionShape, Image, PluginError
from foredraft_plugins.tree_attention.gpu.interface import SIGNATURES
from foredraft_plugins.tree_attention.gpu.launches import (
    Buffers,
    Launch,
    attention,
    chunk_size,
    row_copy,
    workspace_size,
)

from .gpu_driver import Driver

SHAPE = AttentionShape(9, 3, 64, 64)
AT = Buffers(
    **{name: 0x1000 * (i + 1) for i, name in enumerate(Buffers.__slots__)} | {"workspace": 1 << 40}
)  # fmt: skip
FUNCTIONS = ["cuModuleLoadData", "cuModuleGetFunction", "cuFuncSetAttribute"]


def launches(tokens: int, cache_rows: int = 2048, shape: AttentionShape = SHAPE) -> list[Launch]:
    return attention(shape, AT, tokens=tokens, cache_rows=cache_rows, words=8, angles=512, scale=0.125)


def arguments(launch: Launch) -> dict[str, int | float]:
    return dict(zip(SIGNATURES[launch.kernel], launch.args, strict=True))


def images(sm: int = 89, shared: int = 11264) -> dict[str, Image]:
    return {name: Image(name, sm, f"f_{name}", shared, 4, 64, 0, f"sm{sm} {name}".encode()) for name in SIGNATURES}


def test_a_short_forward_is_split_over_the_slots():
    append, attend, combine = launches(5)
    assert (append.kernel, append.grid) == ("append", (5, 15, 1))
    # 15 rows of a KV head fit one tile of 16; 2048 slots are 32 chunks of 64.
    assert (attend.kernel, attend.grid) == ("attend-decode", (1, 3, 32))
    assert (combine.kernel, combine.grid) == ("combine", (45, 1, 1))
    assert arguments(attend)["chunk"] == arguments(combine)["chunk"] == 64
    assert arguments(attend)["query"] == arguments(append)["query"]
    assert arguments(attend)["partial"] == arguments(combine)["partial"]
    assert arguments(combine)["out"] == AT.out


def test_a_long_forward_is_not():
    append, attend = launches(65)
    assert append.grid == (65, 15, 1)
    # 195 rows in tiles of 64.
    assert (attend.kernel, attend.grid) == ("attend-prefill", (4, 3, 1))
    assert arguments(attend)["chunk"] == 2048
    assert arguments(attend)["out"] == AT.out
    assert arguments(attend)["partial"] == arguments(attend)["sums"] == 0


def test_chunks_follow_from_the_cache_alone():
    few, many = SHAPE, AttentionShape(32, 32, 128, 128)
    assert [chunk_size(few, rows) for rows in (1, 4096, 4097, 8192, 100_000)] == [64, 64, 128, 128, 2048]
    assert [chunk_size(many, rows) for rows in (1, 1024, 1025, 8192)] == [64, 64, 128, 512]
    assert len({arguments(launches(tokens)[1])["chunk"] for tokens in range(1, 65)}) == 1


@given(st.integers(1, 64), st.integers(1, 20_000), st.integers(1, 600), st.integers(0, 20_000))
def test_the_workspace_holds_every_smaller_forward(tokens, cache_rows, more_tokens, more_rows):
    size = workspace_size(SHAPE, tokens + more_tokens, cache_rows + more_rows)
    append, attend, *_ = launches(tokens, cache_rows)
    partial, sums, query = (
        int(arguments(launch)[name]) - AT.workspace
        for launch, name in ((attend, "partial"), (attend, "sums"), (append, "query"))
    )
    rows = attend.grid[2] * tokens * SHAPE.num_heads
    assert partial >= 0 and partial + rows * 64 * 4 <= sums
    assert sums + rows * 2 * 4 <= query
    assert query + tokens * SHAPE.width * 2 <= size
    assert all(offset % 16 == 0 for offset in (partial, sums, query))


def test_a_cache_beyond_32_bits_is_refused():
    launches(1, (2**31 - 1) // 192)
    with pytest.raises(PluginError, match=r"a cache of 11184811 rows for 9 heads .* too many"):
        launches(1, 2**31 // 192 + 1)


def test_the_driver_reads_every_argument():
    driver = Driver()
    kernels = Kernels(driver, images())
    for launch in (*launches(5), *launches(300)):
        kernels.launch(launch, stream=77)
        seen = driver.launched[-1]
        assert seen.arguments == arguments(launch)
        assert seen.hidden == [0, 0]
        assert seen.image == f"sm89 {launch.kernel}".encode()
        assert seen.entry == f"f_{launch.kernel}"
        assert seen.grid == launch.grid
        assert seen.block == (128, 1, 1)
        assert seen.shared == 11264
        assert seen.stream == 77


def test_copied_rows_have_wide_strides():
    driver = Driver()
    launch = row_copy(
        64, 128, rows=9, width=96, target_rows=4096, planes=30, source_stride=1 << 33, target_stride=1 << 34
    )
    Kernels(driver, {"copy-rows": images()["copy-rows"]}).launch(launch, 0)
    assert launch.grid == (3, 30, 1)
    assert driver.launched[0].arguments == {
        **{"source": 64, "target": 128, "source_rows": 0, "target_rows": 4096, "rows": 9, "width": 96},
        **{"source_stride": 1 << 33, "target_stride": 1 << 34},
    }


@pytest.mark.parametrize(("shared", "asked"), [(48 * 1024, False), (48 * 1024 + 16, True)])
def test_more_shared_memory_than_usual_is_asked_for(shared, asked):
    driver = Driver()
    Kernels(driver, {"combine": images(shared=shared)["combine"]})
    assert driver.shared == ({"sm89 combine": shared} if asked else {})


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_kernel_that_cannot_be_loaded_is_named_and_the_others_are_freed(function):
    driver = Driver(failing={function: 209})
    with pytest.raises(PluginError, match=rf"sm89-append.cubin: {function} failed with CUDA error 209, something went"):
        Kernels(driver, images(shared=50_000))
    assert driver.unloaded == driver.loaded


def test_a_launch_that_fails_is_named():
    driver = Driver(failing={"cuLaunchKernel": 701})
    with pytest.raises(
        PluginError, match=r"attend-decode, grid \(1, 3, 32\): cuLaunchKernel failed with CUDA error 701"
    ):
        Kernels(driver, images()).launch(launches(5)[1], 0)


def test_kernels_are_unloaded_once():
    driver = Driver()
    kernels = Kernels(driver, images())
    kernels.unload()
    kernels.unload()
    assert sorted(driver.unloaded) == sorted(driver.loaded)


def test_the_device_is_the_current_contexts():
    assert device_sm(Driver(sm=120)) == 120
    assert context_id(Driver(context=5)) == 5
    with pytest.raises(PluginError, match="a current CUDA context: cuCtxGetDevice failed with CUDA error 201"):
        device_sm(Driver(failing={"cuCtxGetDevice": 201}))


def test_a_launch_of_other_arguments_is_refused():
    with pytest.raises(PluginError, match="combine takes 8 arguments, and got 1"):
        Kernels(Driver(), images()).launch(Launch("combine", (1, 1, 1), (0,)), 0)
