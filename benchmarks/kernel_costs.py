"""What the GPU kernels of TreeAttention cost, without a GPU: the tables of docs/tree-attention-kernel.md.

python benchmarks/kernel_costs.py             bytes, operations and least times of one attention node; at once
python benchmarks/kernel_costs.py --images    compile for every compute capability: registers, shared memory, blocks
python benchmarks/kernel_costs.py --sweep     the same for every head_dim and dtype, spills only; minutes
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from foredraft_plugins.tree_attention.gpu.images import HEAD_DIMS, AttentionShape, Image
from foredraft_plugins.tree_attention.gpu.interface import DECODE_TOKENS, TILE_ROWS
from foredraft_plugins.tree_attention.gpu.launches import chunk_size

SHAPES = {
    "SmolLM2-135M, 9/3 heads of 64": AttentionShape(9, 3, 64, 64),
    "7B, 32/32 heads of 128": AttentionShape(32, 32, 128, 128),
}
TOKENS, CONTEXTS, CACHE_ROWS = (1, 8, 64, 256), (512, 2048, 8192), 8448


@dataclass(frozen=True, slots=True)
class Gpu:
    """Assumed: GB/s of memory and of the second-level cache, TFLOP/s of the tensor cores (16 bits in, 32 out)."""

    name: str
    memory: float
    cache: float
    tensor: float


GPUS = (
    Gpu("L4", 300, 1500, 121),
    Gpu("RTX 4090", 1008, 4500, 165),
    Gpu("H200", 4800, 5500, 989),
)


@dataclass(frozen=True, slots=True)
class Costs:
    """Of one node: bytes that memory moves at least, bytes that the programs ask for, floating-point operations done.

    `useful` are the operations of the definition; `done` adds what fills the tiles up.
    """

    memory: int
    asked: int
    useful: int
    done: int

    def least_seconds(self, gpu: Gpu) -> float:
        """When everything overlaps and nothing waits."""
        return max(self.memory / gpu.memory / 1e9, self.asked / gpu.cache / 1e9, self.done / gpu.tensor / 1e12)


def costs(shape: AttentionShape, tokens: int, context: int, cache_rows: int) -> Costs:
    """T tokens after `context` slots of text, each of which sees about all of them; elements of 2 bytes."""
    row = shape.kv_num_heads * shape.head_dim
    slots = context + tokens
    split = tokens <= DECODE_TOKENS
    tile = TILE_ROWS["attend-decode" if split else "attend-prefill"]
    tiles = -(-tokens * shape.group // tile)
    read, written = 2 * 2 * slots * row, 2 * 2 * tokens * row
    activations = 2 * tokens * (shape.qkv_width + shape.width)
    splits = -(-slots // chunk_size(shape, cache_rows)) if split else 0
    scratch = 2 * 2 * tokens * shape.width + 2 * 4 * splits * tokens * (shape.width + 2 * shape.num_heads)
    lanes = 1 << (shape.head_dim - 1).bit_length()
    return Costs(
        memory=read + written + activations,
        asked=read * tiles + written + activations + scratch,
        useful=4 * tokens * shape.width * slots,
        done=4 * tiles * tile * shape.kv_num_heads * lanes * -(-slots // 32) * 32,
    )


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """Most resident warps and blocks, and KiB of shared memory, of one multiprocessor (CUDA programming guide)."""

    warps: int
    blocks: int
    shared: int


MULTIPROCESSORS = {
    75: Multiprocessor(32, 16, 64),
    80: Multiprocessor(64, 32, 164),
    86: Multiprocessor(48, 16, 100),
    87: Multiprocessor(48, 16, 164),
    89: Multiprocessor(48, 24, 100),
    90: Multiprocessor(64, 32, 228),
    100: Multiprocessor(64, 32, 228),
    103: Multiprocessor(64, 32, 228),
    110: Multiprocessor(48, 24, 228),
    120: Multiprocessor(48, 24, 100),
    121: Multiprocessor(48, 24, 100),
}
REGISTERS = 65536


def resident_blocks(image: Image) -> int:
    """Blocks of the kernel that one multiprocessor holds at once: by registers, shared memory, warps and blocks."""
    limits = MULTIPROCESSORS[image.sm]
    # Registers are given out by 256 for each warp; from 8.0 on, a block also takes 1 KiB for the system.
    registers = image.warps * -(-image.registers * 32 // 256) * 256
    shared = image.shared + (1024 if image.sm >= 80 else 0)
    by_shared = limits.shared * 1024 // shared if shared else limits.blocks
    return min(REGISTERS // registers, by_shared, limits.warps // image.warps, limits.blocks)


def cost_table() -> Iterator[str]:
    for name, shape in SHAPES.items():
        yield f"\n{name}, cache of {CACHE_ROWS} rows:\n"
        yield (
            "| T | context | MB moved | MB asked for | GFLOP (done) | "
            + " | ".join(f"{g.name} us" for g in GPUS)
            + " |"
        )
        yield "|" + " --- |" * (5 + len(GPUS))
        for tokens in TOKENS:
            for context in CONTEXTS:
                c = costs(shape, tokens, context, CACHE_ROWS)
                least = " | ".join(f"{c.least_seconds(gpu) * 1e6:.1f}" for gpu in GPUS)
                moved = f"{c.memory / 1e6:.2f} | {c.asked / 1e6:.2f}"
                yield f"| {tokens} | {context} | {moved} | {c.useful / 1e9:.3f} ({c.done / 1e9:.3f}) | {least} |"


def image_table() -> Iterator[str]:
    from foredraft_plugins.tree_attention.gpu.compile import SMS, compile_images

    for name, shape in SHAPES.items():
        yield f"\n{name}, fp16: registers / KiB of shared memory / warps, and blocks (warps) per multiprocessor:\n"
        yield "| | `append` | `attend-decode` | `attend-prefill` | `combine` | `copy-rows` |\n|" + " --- |" * 6
        for sm in SMS:
            cells = [
                f"{image.registers} / {image.shared / 1024:.1f} / {image.warps}: {blocks} ({blocks * image.warps})"
                for image in compile_images(shape, "fp16", [sm]).images
                for blocks in [resident_blocks(image)]
            ]
            yield f"| sm{sm} | " + " | ".join(cells) + " |"


def sweep() -> Iterator[str]:
    """Also shapes without groups: what a program does depends on it."""
    from foredraft_plugins.tree_attention.gpu.compile import SMS, compile_images

    for head_dim in HEAD_DIMS:
        for heads in ((9, 3), (8, 8)):
            for dtype in ("fp16", "bf16"):
                sms = [sm for sm in SMS if dtype == "fp16" or sm >= 80]
                images = compile_images(AttentionShape(*heads, head_dim, head_dim), dtype, sms).images
                spilled = [f"{image.file} {image.spills} bytes" for image in images if image.spills]
                size = sum(len(image.data) for image in images) // 1024
                said = ", ".join(spilled) or "no spills"
                yield f"head_dim {head_dim}, heads {heads}, {dtype}: {len(images)} images, {size} KiB, {said}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", action="store_true", help="compile, and list what the kernels take of a GPU")
    parser.add_argument("--sweep", action="store_true", help="compile every head_dim and dtype, and look for spills")
    arguments = parser.parse_args()
    lines = sweep() if arguments.sweep else image_table() if arguments.images else cost_table()
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
