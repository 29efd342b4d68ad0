"""Stored weights back to float32, in standard operators; their layouts are described in weights.py."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from foredraft_graphs.builder import GraphBuilder
from foredraft_plugins.block_linear.packing import BLOCK, TILE

RUN = 4
"""Codes of one row that lie side by side."""
FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64


def dequantized(g: GraphBuilder, weight: str, n: int, k: int) -> ir.Value:
    """The whole matrix, float32 [n, k]; an engine folds it once when it opens."""
    parts = {suffix: g.weight(f"{weight}.{suffix}") for suffix in _suffixes(g, weight)}
    tiles = _tiles(g, parts, g.weights.bits[weight], k, f"{weight}/unpacked")
    flat = g.constant(f"matrix_{k}", np.array([-1, k], np.int64))
    matrix = g.op("Reshape", tiles, flat, name=f"{weight}/matrix")
    if n % TILE == 0:
        return matrix
    start, end = g.constant("start", np.array([0], np.int64)), g.constant(f"end_{n}", np.array([n], np.int64))
    return g.op("Slice", matrix, start, end, name=f"{weight}/rows")


def dequantized_rows(g: GraphBuilder, weight: str, tokens: ir.Value, k: int, name: str) -> ir.Value:
    """Rows ``tokens`` [T] of the matrix, float32 [T, k], without unpacking the rest."""
    width = g.constant("tile", np.array(TILE, np.int32))
    tile, lane = g.op("Div", tokens, width, name=f"{name}/tile"), g.op("Mod", tokens, width, name=f"{name}/lane")
    parts = {
        suffix: g.op("Gather", g.weight(f"{weight}.{suffix}"), tile, name=f"{name}/{suffix}", axis=0)
        for suffix in _suffixes(g, weight)
    }
    tiles = _tiles(g, parts, g.weights.bits[weight], k, f"{name}/unpacked")
    axis = g.constant("axis_1", np.array([1], np.int64))
    lane = g.op("Unsqueeze", g.op("Cast", lane, name=f"{name}/lane64", to=INT64), axis, name=f"{name}/lanes")
    rows = g.op("GatherND", tiles, lane, name=f"{name}/picked", batch_dims=1)
    flat = g.constant(f"matrix_{k}", np.array([-1, k], np.int64))
    return g.op("Reshape", rows, flat, name=name)


def dequantized_by_rows(g: GraphBuilder, weight: str, k: int) -> ir.Value:
    """The whole matrix of the ``rows`` layout, float32 [n, k]; an engine folds it once when it opens."""
    codes, scale = g.weight(f"{weight}.codes"), g.op("Cast", g.weight(f"{weight}.scale"), name=f"{weight}/s", to=FLOAT)
    last = g.constant("axis_-1", np.array([-1], np.int64))
    scale = g.op("Unsqueeze", scale, last, name=f"{weight}/scale")
    if g.weights.bits[weight] == 8:
        floats = g.op("Cast", codes, name=f"{weight}/floats", to=FLOAT)
        return g.op("Mul", floats, scale, name=f"{weight}/matrix")
    low = g.op("BitwiseAnd", codes, g.constant("nibble", np.array(15, np.uint8)), name=f"{weight}/low")
    high = g.op("BitShift", codes, g.constant("shift", np.array(4, np.uint8)), name=f"{weight}/high", direction="RIGHT")
    pairs = [g.op("Unsqueeze", half, last, name=f"{half.name}/pair") for half in (low, high)]
    both = g.op("Concat", *pairs, name=f"{weight}/pairs", axis=-1)
    # Two's complement of four bits: with the sign bit turned over, the number is 8 too big.
    turned = g.op("BitwiseXor", both, g.constant("sign", np.array(8, np.uint8)), name=f"{weight}/turned")
    blocks = g.constant(f"row_blocks_{k}", np.array([-1, k // BLOCK, BLOCK], np.int64))
    floats = g.op("Cast", g.op("Reshape", turned, blocks, name=f"{weight}/blocks"), name=f"{weight}/floats", to=FLOAT)
    signed = g.op("Sub", floats, g.constant("eight", np.array(8, np.float32)), name=f"{weight}/signed")
    scaled = g.op("Mul", signed, scale, name=f"{weight}/scaled")
    if g.has_weight(f"{weight}.offset"):
        offset = g.op("Cast", g.weight(f"{weight}.offset"), name=f"{weight}/o", to=FLOAT)
        offset = g.op("Unsqueeze", offset, last, name=f"{weight}/offset")
        scaled = g.op("Add", scaled, offset, name=f"{weight}/moved")
    return g.op("Reshape", scaled, g.constant(f"matrix_{k}", np.array([-1, k], np.int64)), name=f"{weight}/matrix")


def as_float(g: GraphBuilder, value: ir.Value, bits: int, name: str) -> ir.Value:
    """A float of 16 or 32 bits as float32."""
    return value if bits == 32 else g.op("Cast", value, name=name, to=FLOAT)


def _suffixes(g: GraphBuilder, weight: str) -> list[str]:
    return [suffix for suffix in ("codes", "scale", "min") if g.has_weight(f"{weight}.{suffix}")]


def _tiles(g: GraphBuilder, parts: dict[str, ir.Value], bits: int, k: int, name: str) -> ir.Value:
    """Packed tiles -> float32 [tiles, TILE, k / 32, 32]."""
    codes = _codes(g, parts["codes"], bits, k, name)
    scale = _per_block(g, parts["scale"], f"{name}/scale")
    if "min" in parts:
        scaled = g.op("Mul", codes, scale, name=f"{name}/scaled")
        return g.op("Add", scaled, _per_block(g, parts["min"], f"{name}/min"), name=name)
    middle = g.constant(f"middle_{bits}", np.array(2 ** (bits - 1), np.float32))
    return g.op("Mul", g.op("Sub", codes, middle, name=f"{name}/centred"), scale, name=name)


def _codes(g: GraphBuilder, codes: ir.Value, bits: int, k: int, name: str) -> ir.Value:
    """u8 [tiles, k / 32, 4 * TILE * bits] -> float32 [tiles, TILE, k / 32, 32]."""
    blocks = k // BLOCK
    if bits == 4:
        pairs = g.constant(f"pairs_{k}", np.array([-1, blocks, BLOCK // RUN // 2, 1, TILE, RUN], np.int64))
        codes = g.op("Reshape", codes, pairs, name=f"{name}/pairs")
        low = g.op("BitwiseAnd", codes, g.constant("nibble", np.array(15, np.uint8)), name=f"{name}/low")
        shift = g.constant("shift", np.array(4, np.uint8))
        high = g.op("BitShift", codes, shift, name=f"{name}/high", direction="RIGHT")
        codes = g.op("Concat", low, high, name=f"{name}/nibbles", axis=3)
    runs = g.constant(f"runs_{k}", np.array([-1, blocks, BLOCK // RUN, TILE, RUN], np.int64))
    codes = g.op("Reshape", codes, runs, name=f"{name}/runs")
    codes = g.op("Transpose", codes, name=f"{name}/by_row", perm=[0, 3, 1, 2, 4])
    rows = g.constant(f"rows_{k}", np.array([-1, TILE, blocks, BLOCK], np.int64))
    codes = g.op("Reshape", codes, rows, name=f"{name}/codes")
    return g.op("Cast", codes, name=f"{name}/floats", to=FLOAT)


def _per_block(g: GraphBuilder, values: ir.Value, name: str) -> ir.Value:
    """f16 [tiles, k / 32, TILE] -> float32 [tiles, TILE, k / 32, 1]."""
    values = g.op("Transpose", values, name=f"{name}/by_row", perm=[0, 2, 1])
    last = g.constant("axis_-1", np.array([-1], np.int64))
    return g.op("Cast", g.op("Unsqueeze", values, last, name=f"{name}/4d"), name=f"{name}/floats", to=FLOAT)
