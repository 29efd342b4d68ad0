"""RMSNorm, AddRMSNorm and SwiGLU against their meaning, and the law that a row depends on itself only."""

import functools

import numpy as np
import pytest

from foredraft_plugins.rows import reference

from .session import Operator, same_bits
from .weights import activations

EPSILON = 1e-5


@functools.cache
def operator(name: str, threads: int = 1) -> Operator:
    if name == "RMSNorm":
        return Operator(name, {"x": "FLOAT T D", "weight": "FLOAT D"}, threads=threads, epsilon=EPSILON)
    if name == "AddRMSNorm":
        inputs = {"x": "FLOAT T D", "residual": "FLOAT T D", "weight": "FLOAT D"}
        return Operator(name, inputs, outputs=2, threads=threads, epsilon=EPSILON)
    return Operator(name, {"gate_up": "FLOAT T D"}, threads=threads)


WIDTHS = [5, 16, 20, 64, 576]


@pytest.mark.parametrize("width", WIDTHS)
def test_rms_norm(width):
    rng = np.random.default_rng(width)
    x, weight = activations(rng, 4, width), rng.normal(size=width).astype(np.float32)
    expected = reference.rms_norm(x, weight, EPSILON)
    np.testing.assert_allclose(operator("RMSNorm")(x=x, weight=weight), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("width", WIDTHS)
def test_add_rms_norm_is_an_addition_and_a_norm(width):
    rng = np.random.default_rng(width)
    x, residual, weight = activations(rng, 4, width), activations(rng, 4, width), np.ones(width, np.float32)
    normed, total = operator("AddRMSNorm")(x=x, residual=residual, weight=weight)
    assert same_bits(total, x + residual)
    assert same_bits(normed, operator("RMSNorm")(x=total, weight=weight))


@pytest.mark.parametrize("width", WIDTHS)
def test_swiglu(width):
    gate_up = activations(np.random.default_rng(width), 3, 2 * width)
    gate_up[0, :4] = [-200, 200, 0, -1e-20]
    got = operator("SwiGLU")(gate_up=gate_up)
    np.testing.assert_allclose(got, reference.swiglu(gate_up), rtol=1e-6, atol=1e-29)


@pytest.mark.parametrize("name", ["RMSNorm", "AddRMSNorm", "SwiGLU"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_is_the_same_alone_and_among_others(name, threads):
    rng = np.random.default_rng(0)
    arrays = {spec.name: activations(rng, 300, 576) for spec in operator(name).session.get_inputs()}
    if "weight" in arrays:
        arrays["weight"] = arrays["weight"][0]

    def run(rows: slice, threads: int) -> list[np.ndarray]:
        cut = {key: a if key == "weight" else np.ascontiguousarray(a[rows]) for key, a in arrays.items()}
        found = operator(name, threads)(**cut)
        return found if isinstance(found, list) else [found]

    for all_rows, one_row in zip(run(slice(None), threads), run(slice(171, 172), 1), strict=True):
        assert same_bits(all_rows[171:172], one_row)


def test_shapes_that_do_not_fit_are_named():
    x = np.zeros((2, 6), np.float32)
    with pytest.raises(Exception, match=r"weight has shape \[5\], expected \[6\]"):
        operator("RMSNorm")(x=x, weight=np.ones(5, np.float32))
    with pytest.raises(Exception, match=r"residual has shape \[3, 6\], expected that of x, \[2, 6\]"):
        operator("AddRMSNorm")(x=x, residual=np.zeros((3, 6), np.float32), weight=np.ones(6, np.float32))
    with pytest.raises(Exception, match=r"gate_up has width 5, expected an even number"):
        operator("SwiGLU")(gate_up=np.zeros((2, 5), np.float32))
