"""BlockLinear, BlockEmbedding and DenseLinear against their meaning, and the law that a row depends on itself only."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft_plugins.block_linear import reference
from foredraft_plugins.block_linear.packing import dequantize, unpack
from foredraft_plugins.dense_linear.reference import dense_linear

from .session import Operator, same_bits
from .weights import activations, random_packed

PRECISIONS = [(4, False), (4, True), (8, False), (8, True)]
INPUTS = {"x": "FLOAT T K"}
PACKED = {"codes": "UINT8 A B C", "scale": "FLOAT16 A B D"}


@functools.cache
def linear(n: int, k: int, bits: int, has_min: bool, threads: int = 1):
    packed = random_packed(np.random.default_rng(n + k), n, k, bits, has_min)
    return Operator("BlockLinear", INPUTS, threads=threads, constants=packed, bits=bits, N=n, K=k), packed


def assert_close(got: np.ndarray, expected: np.ndarray, size: np.ndarray) -> None:
    """Within the rounding of fp32 sums of terms whose magnitudes add up to `size`."""
    assert np.abs(got - expected).max() <= 1e-6 * size.max()


@pytest.mark.parametrize(("bits", "has_min"), PRECISIONS)
@pytest.mark.parametrize(("n", "k"), [(16, 32), (1, 64), (40, 96), (300, 576), (33, 1536)])
def test_block_linear_means_what_the_reference_says(n, k, bits, has_min):
    operator, packed = linear(n, k, bits, has_min)
    x = activations(np.random.default_rng(1), 11, k)
    expected = reference.block_linear(x, packed, n, bits)
    weight = np.abs(dequantize(*unpack(packed, n, bits), bits))
    assert_close(operator(x=x), expected, np.abs(x) @ weight.T)


@pytest.mark.parametrize(("bits", "has_min"), PRECISIONS)
def test_weights_may_be_inputs(bits, has_min):
    operator, packed = linear(40, 96, bits, has_min)
    inputs = INPUTS | PACKED | ({"min": "FLOAT16 A B D"} if has_min else {})
    x = activations(np.random.default_rng(1), 3, 96)
    assert same_bits(Operator("BlockLinear", inputs, bits=bits, N=40, K=96)(x=x, **packed), operator(x=x))


@settings(max_examples=30)
@given(st.integers(1, 70), st.sampled_from(PRECISIONS), st.sampled_from([(40, 96), (300, 576)]), st.integers(0, 9999))
def test_a_row_is_the_same_alone_and_among_others(rows, precision, shape, seed):
    alone, among = linear(*shape, *precision)[0], linear(*shape, *precision, threads=2)[0]
    x = activations(np.random.default_rng(seed), rows, shape[1])
    y = among(x=x)
    assert same_bits(y, alone(x=x))
    for row in {0, rows // 2, rows - 1}:
        assert same_bits(y[row : row + 1], alone(x=x[row : row + 1]))


def test_more_rows_than_one_pass():
    operator, _ = linear(40, 96, 4, True)
    x = activations(np.random.default_rng(0), 600, 96)
    y = operator(x=x)
    assert same_bits(y[255:258], operator(x=x[255:258]))


@pytest.mark.parametrize("bits", [4, 8])
def test_extreme_activations(bits):
    operator, packed = linear(40, 96, bits, True)
    x = np.zeros((4, 96), np.float32)
    x[1] = 1e-38
    x[2, ::2], x[2, 1::2] = 1e30, -1e30
    x[3] = np.float32(1e-29)
    y = operator(x=x)
    assert not y[:2].any()
    np.testing.assert_allclose(y, reference.block_linear(x, packed, 40, bits), rtol=1e-4, atol=1e-34)


@pytest.mark.parametrize("shape", [(0, 96), (96,), (2, 3, 96)])
def test_any_leading_dimensions(shape):
    operator, _ = linear(40, 96, 8, False)
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    operator = Operator("BlockLinear", {"x": "FLOAT" + " A" * len(shape)} | PACKED, bits=8, N=40, K=96)
    y = operator(x=x, **linear(40, 96, 8, False)[1])
    assert y.shape == (*shape[:-1], 40)
    assert same_bits(y.reshape(-1, 40), linear(40, 96, 8, False)[0](x=x.reshape(-1, 96)))


@pytest.mark.parametrize(("bits", "has_min"), PRECISIONS)
def test_embedding_rows_are_the_numbers_of_the_weight(bits, has_min):
    packed = random_packed(np.random.default_rng(5), 70, 96, bits, has_min)
    operator = Operator("BlockEmbedding", {"tokens": "INT32 T"}, constants=packed, bits=bits, N=70, K=96)
    tokens = np.array([0, 69, 15, 16, 17, 3, 3], np.int32)
    assert same_bits(operator(tokens=tokens), reference.block_embedding(tokens, packed, 70, bits))
    for token in (-1, 70):
        with pytest.raises(Exception, match=rf"tokens\[1\] is {token}, the vocabulary has 70 tokens"):
            operator(tokens=np.array([0, token], np.int32))


@functools.cache
def dense(threads: int = 1):
    return Operator("DenseLinear", {"x": "FLOAT T K", "w": "FLOAT N K"}, threads=threads)


@pytest.mark.parametrize(("n", "k"), [(1, 1), (5, 15), (7, 16), (66, 100), (130, 576)])
def test_dense_linear_means_what_the_reference_says(n, k):
    rng = np.random.default_rng(n)
    x, w = rng.normal(size=(9, k)).astype(np.float32), rng.normal(size=(n, k)).astype(np.float32)
    assert_close(dense()(x=x, w=w), dense_linear(x, w), np.abs(x) @ np.abs(w).T)


@settings(max_examples=20)
@given(st.integers(1, 40), st.sampled_from([(7, 33), (300, 576)]), st.integers(0, 9999))
def test_a_dense_row_is_the_same_alone_and_among_others(rows, shape, seed):
    rng = np.random.default_rng(seed)
    n, k = shape
    x, w = rng.normal(size=(rows, k)).astype(np.float32), rng.normal(size=(n, k)).astype(np.float32)
    y = dense(threads=2)(x=x, w=w)
    assert same_bits(y, dense()(x=x, w=w))
    for row in {0, rows // 2, rows - 1}:
        assert same_bits(y[row : row + 1], dense()(x=x[row : row + 1], w=w))


def test_shapes_that_do_not_fit_are_named():
    operator, packed = linear(40, 96, 4, False)
    with pytest.raises(Exception, match=r"x has shape \[2, 64\], expected \[any, 96\]"):
        operator(x=np.zeros((2, 64), np.float32))
    with pytest.raises(Exception, match=r"codes has shape \[2, 3, 512\], expected \[3, 3, 512\]"):
        Operator("BlockLinear", INPUTS, constants=packed, bits=4, N=66, K=96)
    with pytest.raises(Exception, match=r"bits is 5, expected 4 or 8"):
        Operator("BlockLinear", INPUTS, constants=packed, bits=5, N=40, K=96)
    with pytest.raises(Exception, match=r"K is 90, expected positive numbers and K a multiple of 32"):
        Operator("BlockLinear", INPUTS, constants=packed, bits=4, N=40, K=90)
    with pytest.raises(Exception, match=r"bits"):
        Operator("BlockLinear", INPUTS, constants=packed, N=40, K=96)
    with pytest.raises(Exception, match=r"x has shape \[2, 5\], expected \[any, 6\]"):
        dense()(x=np.zeros((2, 5), np.float32), w=np.zeros((3, 6), np.float32))
