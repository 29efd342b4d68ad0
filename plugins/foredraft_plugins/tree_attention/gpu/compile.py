"""Compiles the kernels to cubins, ahead of time: it takes Triton with its assemblers, and no GPU."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from foredraft_plugins.tree_attention.gpu import kernel
from foredraft_plugins.tree_attention.gpu.images import AttentionShape, Image, Images, PluginError
from foredraft_plugins.tree_attention.gpu.interface import (
    COPY_COLUMNS,
    COPY_ROWS,
    DTYPES,
    HIDDEN_PARAMETERS,
    SIGNATURES,
    TILE_ROWS,
    most_splits,
)

__all__ = ["SMS", "Recipe", "compile_images", "compile_kernel", "recipes"]

SMS = (75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121)
"""Compute capabilities that Triton and its assemblers compile the kernels for without spills."""

_BF16_FROM = 80
"""Below, there is no bfloat16 arithmetic."""

_TENSOR_CORES_FROM = 80
"""Below, Triton has no tensor cores (it gave up those of 7.5), and the tiles must fit the ordinary units' registers."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a kernel is compiled: its function, constants, warps of a block, and stages of its loads' pipeline."""

    function: Any
    constants: dict[str, int]
    warps: int
    stages: int = 1


def compile_images(
    shape: AttentionShape,
    dtype: str,
    sms: Sequence[int],
    progress: Callable[[int, int, str], None] | None = None,
) -> Images:
    """All kernels of `shape` in `dtype` (fp16 or bf16) for every compute capability of `sms` (89 for 8.9).

    `progress` is called after each kernel with their number so far, the number of all, and which it was. A capability
    takes some seconds.

    Raises:
        PluginError: a capability or dtype that cannot be compiled for, named.
    """
    if dtype not in DTYPES:
        raise PluginError(f"dtype is {dtype!r}, expected one of {', '.join(DTYPES)}")
    wanted = sorted(set(sms))
    for sm in wanted:
        _check_sm(sm, dtype)
    images: list[Image] = []
    with _own_settings():
        for sm in wanted:
            for name, recipe in recipes(shape, sm).items():
                images.append(compile_kernel(name, recipe, dtype, sm))
                if progress is not None:
                    progress(len(images), len(wanted) * len(SIGNATURES), f"{name} for sm{sm}")
    return Images(shape, dtype, tuple(images))


def recipes(shape: AttentionShape, sm: int) -> dict[str, Recipe]:
    """Kernel -> its recipe. What was chosen among those without spills; no GPU was there to time them."""
    heads = {"HQ": shape.num_heads, "HK": shape.kv_num_heads}
    lanes = max(triton.next_power_of_2(shape.head_dim), 16)
    splits = most_splits(shape.kv_num_heads)
    dims = {"HD": shape.head_dim, "LANES": lanes}
    rows = {name: {"ROWS": rows, "SPLIT": name == "attend-decode", "UPCAST": False} for name, rows in TILE_ROWS.items()}
    if sm < _TENSOR_CORES_FROM:
        slots, warps, stages = 16, {"attend-decode": 4, "attend-prefill": 16}, 1
    else:
        slots, warps, stages = 32, {"attend-decode": 4, "attend-prefill": 8 if lanes > 64 else 4}, 2
    attends = {
        name: Recipe(kernel.attend, {**heads, **dims, **rows[name], "SLOTS": slots}, warps[name], stages)
        for name in TILE_ROWS
    }
    return {
        "append": Recipe(kernel.append, {**heads, **dims, "HALF": shape.rotary_dim // 2}, warps=1),
        **attends,
        "combine": Recipe(kernel.combine, {"HQ": shape.num_heads, **dims, "SPLITS": splits}, warps=4),
        "copy-rows": Recipe(kernel.copy_rows, {"ROWS": COPY_ROWS, "COLUMNS": COPY_COLUMNS}, warps=4),
    }


def compile_kernel(name: str, recipe: Recipe, dtype: str, sm: int) -> Image:
    """One kernel by a recipe. Raises PluginError if Triton fails, or counts parameters otherwise than the launches."""
    parameters = SIGNATURES[name]
    types = {parameter: kind.replace("T", dtype) for parameter, kind in parameters.items()}
    # Rows to copy may start at any word; all else starts where an allocation does.
    aligned = [] if name == "copy-rows" else [i for i, kind in enumerate(types.values()) if kind.startswith("*")]
    source = ASTSource(
        fn=recipe.function,
        signature={**types, **dict.fromkeys(recipe.constants, "constexpr")},
        constexprs=recipe.constants,
        attrs={(i,): [["tt.divisibility", 16]] for i in aligned},
    )
    # Without fused multiply-adds: the loops over text and over drafts must round alike, which fusion leaves to chance.
    options = {"num_warps": recipe.warps, "num_stages": recipe.stages, "enable_fp_fusion": False}
    try:
        compiled = triton.compile(source, target=GPUTarget("cuda", sm, 32), options=options)
    except Exception as error:
        raise PluginError(
            f"Triton {triton.__version__} cannot compile {name} in {dtype} for sm{sm}: {error}"
        ) from error
    counted = _count_parameters(compiled.asm["ptx"])
    if counted != len(parameters) + HIDDEN_PARAMETERS:
        raise PluginError(
            f"Triton {triton.__version__} gave {name} {counted} parameters, expected {len(parameters)} and "
            f"{HIDDEN_PARAMETERS} hidden ones: this version of Triton cannot be used"
        )
    cubin, about = compiled.asm["cubin"], compiled.metadata
    if about.global_scratch_size or about.profile_scratch_size:
        raise PluginError(f"Triton {triton.__version__} wants scratch memory for {name}, and launches bring none")
    registers, spills = _resources(cubin)
    return Image(name, sm, about.name, about.shared, about.num_warps, registers, spills, cubin)


def _check_sm(sm: int, dtype: str) -> None:
    if sm not in SMS:
        raise PluginError(f"sm{sm} is not supported, expected one of {', '.join(f'sm{known}' for known in SMS)}")
    if dtype == "bf16" and sm < _BF16_FROM:
        raise PluginError(f"sm{sm} has no bfloat16 arithmetic: use fp16 for it, or leave sm{sm} out")


@contextmanager
def _own_settings() -> Iterator[None]:
    """Triton's cache in a folder that goes away, and no paths of this machine's files in the images."""
    knobs = triton.knobs
    with knobs.cache.scope(), knobs.compilation.scope(), tempfile.TemporaryDirectory() as folder:
        knobs.cache.dir = folder
        knobs.compilation.disable_line_info = True
        yield


def _count_parameters(ptx: str) -> int:
    entry = ptx.split(".entry", 1)[1]
    return entry[: entry.index("{")].count(".param ")


def _resources(cubin: bytes) -> tuple[int, int]:
    """Registers, and bytes of local memory, of one thread."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        listed = subprocess.run(
            [triton.knobs.nvidia.cuobjdump.path, "-res-usage", str(path)], capture_output=True, text=True, check=True
        ).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) .*LOCAL:(\d+)", listed)
    if found is None:
        raise PluginError(f"cuobjdump says nothing of the kernel's registers: {listed!r}")
    registers, stack, local = map(int, found.groups())
    return registers, stack + local
