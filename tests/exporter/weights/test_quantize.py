"""Rounding to blocks: small errors, better than the simple way, and exact where the numbers allow it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.errors import CheckpointError, ForedraftError, UnsupportedModelError
from foredraft_exporter.weights.blocks import BlockFormat, Blocks, fits, widen
from foredraft_exporter.weights.precision import TILES
from foredraft_exporter.weights.quantize import quantize, squared_error
from foredraft_exporter.weights.storage import Floats, Tiles
from foredraft_plugins.block_linear import packing


def _rows(seed: int, shape: tuple[int, int] = (64, 128), scale: float = 0.05) -> np.ndarray:
    random = np.random.default_rng(seed)
    return (random.standard_normal(shape) * scale * random.lognormal(0, 0.5, (shape[0], 1))).astype(np.float32)


def _relative(rows: np.ndarray, blocks: Blocks) -> float:
    wrong, total = squared_error(rows, blocks)
    return float(np.sqrt(wrong / total))


def _min_max4(rows: np.ndarray) -> Blocks:
    """The simple way: scale and minimum from the block's extremes, as GGUF's Q4_1."""
    x = rows.reshape(rows.shape[0], -1, 32)
    low = x.min(-1).astype(np.float16)
    scale = (np.ptp(x, axis=-1) / 15).astype(np.float16)
    codes = np.clip(np.rint((x - low[..., None]) / scale[..., None].astype(np.float32)), 0, 15)
    codes = codes.astype(np.uint8)
    return Blocks(4, codes.reshape(rows.shape), scale, low)


@pytest.mark.parametrize("seed", range(3))
def test_errors_are_small(seed: int) -> None:
    rows = _rows(seed)
    eight, four = quantize(rows, 8, "w"), quantize(rows, 4, "w")
    assert (eight.format, four.format) == (BlockFormat(8, False), BlockFormat(4, True))
    assert _relative(rows, eight) < 0.006
    assert _relative(rows, four) < 0.95 * _relative(rows, _min_max4(rows)) < 0.09


@settings(max_examples=60)
@given(st.lists(st.floats(-1000, 1000, width=32), min_size=32, max_size=32))
def test_never_worse_than_the_simple_way(values: list[float]) -> None:
    """For any block; where scale or minimum rounds away in float16, both lose the same."""
    row = np.array([values], np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        simple = _min_max4(row)
    if np.ptp(row) > 1e-3:
        ours, theirs = squared_error(row, quantize(row, 4, "w"))[0], squared_error(row, simple)[0]
        assert ours <= theirs * (1 + 1e-5) + 1e-9


def test_what_fits_stays_exact() -> None:
    random = np.random.default_rng(0)
    codes = random.integers(0, 16, (8, 64), np.uint8)
    codes[:, ::32], codes[:, 1::32] = 0, 15
    original = Blocks(4, codes, np.full((8, 2), 0.25, np.float16), np.full((8, 2), -1.5, np.float16))
    np.testing.assert_array_equal(quantize(original.values(), 4, "w").values(), original.values())


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("value", [0.0, 0.5, -3.0])
def test_constant_blocks(bits: int, value: float) -> None:
    rows = np.full((4, 64), value, np.float32)
    np.testing.assert_allclose(quantize(rows, bits, "w").values(), rows, rtol=1e-3)


@pytest.mark.parametrize("bits", [4, 8])
def test_tiny_and_large_values(bits: int) -> None:
    for scale in (1e-6, 3e4):
        rows = np.clip(_rows(1, scale=scale), -6e4, 6e4)
        assert np.isfinite(quantize(rows, bits, "w").values()).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite(bad: float) -> None:
    rows = _rows(0)
    rows[3, 5] = bad
    with pytest.raises(CheckpointError, match="w: has values that are not finite"):
        quantize(rows, 8, "w")


def test_widths_that_do_not_divide() -> None:
    with pytest.raises(UnsupportedModelError, match="--precision fp32"):
        quantize(np.zeros((4, 48), np.float32), 8, "w")


def test_values_beyond_float16() -> None:
    with pytest.raises(UnsupportedModelError, match="float16"):
        quantize(np.full((1, 32), 1e7, np.float32), 8, "w")


FORMATS = [BlockFormat(bits, has_min) for bits in (4, 8) for has_min in (False, True)]


@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("target", FORMATS)
def test_widening_changes_no_number(source: BlockFormat, target: BlockFormat) -> None:
    assert fits(source, target) == (source.bits <= target.bits and (target.has_min or not source.has_min))
    if not fits(source, target):
        return
    random = np.random.default_rng(0)
    scale = random.standard_normal((16, 2)).astype(np.float16)
    low = random.standard_normal((16, 2)).astype(np.float16) if source.has_min else None
    blocks = Blocks(source.bits, random.integers(0, 2**source.bits, (16, 64), np.uint8), scale, low)
    wide = widen(blocks, target, "w")
    assert wide.format == target
    np.testing.assert_array_equal(wide.values(), blocks.values())


def test_a_minimum_beyond_float16_is_refused() -> None:
    blocks = Blocks(8, np.zeros((1, 32), np.uint8), np.full((1, 1), 1000, np.float16), None)
    with pytest.raises(UnsupportedModelError, match="fp32"):
        widen(blocks, BlockFormat(8, True), "w")


@pytest.mark.parametrize("form", FORMATS)
def test_values_are_what_the_kernels_compute(form: BlockFormat) -> None:
    random = np.random.default_rng(1)
    scale, low = (random.standard_normal((20, 3)).astype(np.float16) for _ in range(2))
    codes = random.integers(0, 2**form.bits, (20, 96), np.uint8)
    blocks = Blocks(form.bits, codes, scale, low if form.has_min else None)
    expected = packing.dequantize(blocks.codes, blocks.scale, blocks.min, blocks.bits)
    np.testing.assert_array_equal(blocks.values(), expected)


Q4_0, Q4_1, Q8_0 = BlockFormat(4, False), BlockFormat(4, True), BlockFormat(8, False)


@pytest.mark.parametrize(("precision", "parts", "wide", "expected"), [
    ("fp32", [Q4_1], False, None),
    ("auto", [None], False, Q8_0),
    ("auto", [Q4_1, Q4_1, Q4_1], False, Q4_1),
    ("auto", [Q4_0], False, Q4_0),
    ("auto", [Q4_0, Q4_1], False, Q4_1),
    ("auto", [Q4_1, Q4_1, Q8_0], False, BlockFormat(8, True)),
    ("auto", [Q4_0, Q8_0], False, Q8_0),
    ("auto", [Q4_1, None], False, BlockFormat(8, True)),
    ("auto", [Q8_0], True, Q8_0),
    ("auto", [Q4_1], True, Q4_1),
    ("int8", [None], True, Q8_0),
    ("int8", [Q4_1], False, BlockFormat(8, True)),
    ("int4", [None], False, Q4_1),
    ("int4", [None], True, Q8_0),
    ("int4", [Q4_0, Q4_0], False, Q4_0),
    ("int4", [Q8_0], False, Q4_1),
])  # fmt: skip
def test_formats(precision: str, parts: list[BlockFormat | None], wide: bool, expected: BlockFormat | None) -> None:
    storage = Floats("fp32") if expected is None else Tiles(expected)
    assert TILES.chooser(precision)(parts, wide) == storage


def test_unknown_precision_lists_the_known() -> None:
    with pytest.raises(ForedraftError, match="auto, fp32, int8, int4"):
        TILES.chooser("int2")
