import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft_plugins.block_linear.packing import BLOCK, TILE, dequantize, pack, packed_shapes, unpack
from foredraft_plugins.block_linear.reference import round_activations


def draw(rng: np.random.Generator, n: int, k: int, bits: int, has_min: bool):
    codes = rng.integers(0, 2**bits, (n, k), dtype=np.uint8)
    scale, minima = (rng.normal(size=(n, k // BLOCK)).astype(np.float16) for _ in range(2))
    return codes, scale, minima if has_min else None


@settings(max_examples=40)
@given(st.integers(1, 70), st.integers(1, 4), st.sampled_from([4, 8]), st.booleans(), st.integers(0, 2**32 - 1))
def test_unpack_is_the_inverse_of_pack(n, blocks, bits, has_min, seed):
    codes, scale, minima = draw(np.random.default_rng(seed), n, blocks * BLOCK, bits, has_min)
    packed = pack(codes, scale, minima, bits)
    assert {name: (a.shape, a.dtype) for name, a in packed.items()} == packed_shapes(n, blocks * BLOCK, bits, has_min)
    got_codes, got_scale, got_min = unpack(packed, n, bits)
    np.testing.assert_array_equal(got_codes, codes)
    np.testing.assert_array_equal(got_scale, scale)
    assert (got_min is None) if minima is None else np.array_equal(got_min, minima)


@pytest.mark.parametrize("bits", [4, 8])
def test_pieces_of_whole_tiles_are_the_whole(bits):
    codes, scale, minima = draw(np.random.default_rng(0), 5 * TILE + 3, 64, bits, True)
    cuts = [0, TILE, 4 * TILE, len(codes)]
    pieces = [pack(codes[a:b], scale[a:b], minima[a:b], bits) for a, b in itertools.pairwise(cuts)]
    whole = pack(codes, scale, minima, bits)
    for name, array in whole.items():
        np.testing.assert_array_equal(np.concatenate([piece[name] for piece in pieces]), array)


def test_without_minima_the_codes_are_centred():
    codes = np.array([[0, 255] * 16], np.uint8)
    scale = np.array([[0.5]], np.float16)
    np.testing.assert_array_equal(dequantize(codes, scale, None, 8)[0, :2], [-64, 63.5])
    np.testing.assert_array_equal(dequantize(codes & 15, scale, None, 4)[0, :2], [-4, 3.5])


def test_refuses_what_it_cannot_pack():
    codes, scale, _ = draw(np.random.default_rng(0), 16, 64, 8, False)
    with pytest.raises(ValueError, match=r"K is 40, expected a multiple of 32"):
        packed_shapes(16, 40, 4, False)
    with pytest.raises(ValueError, match=r"K is 40, expected a multiple of 32"):
        pack(codes[:, :40], scale, None, 8)
    with pytest.raises(ValueError, match=r"bits is 5, expected 4 or 8"):
        pack(codes, scale, None, 5)
    with pytest.raises(ValueError, match=r"at most 15 with 4 bits"):
        pack(codes, scale, None, 4)
    with pytest.raises(ValueError, match=r"scale has shape \(16, 1\), expected \(16, 2\)"):
        pack(codes, scale[:, :1], None, 8)


def test_rounded_activations_stay_within_half_a_step():
    x = np.random.default_rng(0).normal(size=(3, 96)).astype(np.float32)
    x[1, :32] = 0
    step = np.abs(x.reshape(3, 3, 32)).max(-1) / 127
    error = np.abs(round_activations(x) - x).reshape(3, 3, 32).max(-1)
    assert (error <= step / 2 * 1.0001).all()
    assert not round_activations(x)[1, :32].any()
