"""Matrices as the GPU libraries take them: row by row, floats of 16 bits or integers with scales."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from foredraft.errors import ForedraftError, UnsupportedModelError
from foredraft_exporter.sources.checkpoint import open_checkpoint
from foredraft_exporter.weights.blocks import BlockFormat
from foredraft_exporter.weights.precision import ROWS
from foredraft_exporter.weights.quantize import round_rows
from foredraft_exporter.weights.storage import BlockRows, Floats, IntegerRows, Storage
from tests.fixtures import tiny_checkpoint, tiny_gguf

NAME = "model.layers.1.mlp.down_proj.weight"


def widened(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """The integers back to float32 [n, k], written down independently."""
    codes, scale = arrays["codes"], arrays["scale"].astype(np.float32)
    if codes.dtype == np.int8:
        return codes.astype(np.float32) * scale[:, None]
    numbers = np.stack([codes & 15, codes >> 4], -1).reshape(len(codes), -1).astype(np.int8)
    numbers = np.where(numbers > 7, numbers - 16, numbers).reshape(len(codes), -1, 32)
    offset = arrays.get("offset", np.zeros_like(scale)).astype(np.float32)
    return (numbers * scale[..., None] + offset[..., None]).reshape(len(codes), -1).astype(np.float32)


@pytest.mark.parametrize(("storage", "limit"), [(IntegerRows(), 0.02), (BlockRows(True), 0.09)])
def test_rounded_rows(tiny_folder: Path, storage: Storage, limit: float) -> None:
    checkpoint = open_checkpoint(tiny_folder)
    rows = checkpoint.read(NAME)
    arrays, rounding = storage.encode(checkpoint, [(NAME, 0, 24), (NAME, 24, 64)])
    assert {name: (array.shape, array.dtype) for name, array in arrays.items()} == storage.shapes(*rows.shape)
    wrong = float(np.linalg.norm(widened(arrays) - rows) / np.linalg.norm(rows))
    assert wrong < limit
    assert np.sqrt(rounding.wrong / rounding.total) == pytest.approx(wrong, rel=1e-2)


@pytest.mark.parametrize(("kind", "has_offset"), [("Q4_0", False), ("Q4_0", True), ("Q4_1", True)])
def test_blocks_of_four_bits_are_taken_over(tmp_path: Path, kind: str, has_offset: bool) -> None:
    checkpoint, storage = open_checkpoint(tiny_gguf(tmp_path / "m.gguf", kind)), BlockRows(has_offset)
    assert not storage.rounds(checkpoint, NAME)
    arrays, rounding = storage.encode(checkpoint, [(NAME, 0, 64)])
    assert (rounding.wrong, rounding.total) == (0.0, 0.0)
    # Exact but for the offset's own rounding to float16.
    tolerance = 0.0 if kind == "Q4_0" else 1e-3
    np.testing.assert_allclose(widened(arrays), checkpoint.read(NAME), atol=tolerance)


def test_a_minimum_needs_an_offset(tmp_path: Path) -> None:
    assert BlockRows(False).rounds(open_checkpoint(tiny_gguf(tmp_path / "m.gguf", "Q4_1")), NAME)


@pytest.mark.parametrize(("kind", "dtype"), [("fp16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_half_floats(tiny_folder: Path, kind: str, dtype: type) -> None:
    checkpoint = open_checkpoint(tiny_folder)
    arrays, rounding = Floats(kind).encode(checkpoint, [(NAME, 0, 64)])
    np.testing.assert_array_equal(arrays[""], checkpoint.read(NAME).astype(dtype))
    assert 0 < rounding.wrong < 1e-4 * rounding.total


def test_a_half_float_checkpoint_keeps_its_numbers(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(tiny_checkpoint(tmp_path / "m", dtype=np.float16))
    arrays, rounding = Floats("fp16").encode(checkpoint, [(NAME, 0, 64)])
    assert rounding.wrong == 0.0
    np.testing.assert_array_equal(arrays[""].astype(np.float32), checkpoint.read(NAME))


def test_values_beyond_float16_name_tensor_and_way_out() -> None:
    with pytest.raises(UnsupportedModelError, match=r"w: .*--precision bf16"):
        round_rows(np.full((1, 32), 1e9, np.float32), "w")


def test_precisions() -> None:
    plain, q4_0 = [None], [BlockFormat(4, False)]
    assert ROWS.chooser("auto")(q4_0, False) == Floats("fp16")
    assert ROWS.chooser("bf16")(plain, True) == Floats("bf16")
    assert ROWS.chooser("int4")(plain, False) == BlockRows(True)
    assert ROWS.chooser("int4")(q4_0, False) == BlockRows(False)
    assert ROWS.chooser("int8")(plain, True) == Floats("fp16")
    with pytest.raises(ForedraftError, match="expected one of auto, fp16, bf16, int8, int4"):
        ROWS.chooser("fp32")
