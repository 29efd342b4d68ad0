"""The GPU kernels against the meaning of TreeAttention, under Triton's interpreter. No GPU takes part."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from foredraft_plugins.tree_attention import reference
from foredraft_plugins.tree_attention.gpu.images import AttentionShape

from .gpu_interpreter import NUMPY, Call, Interpreter, Result
from .trees import Shape, Tree, mask_of, random_tree

pytestmark = pytest.mark.slow

SIXTEEN_BITS = {"fp16": 2.5e-4, "bf16": 4e-3}
"""Absolute for scores of up to 96 products, and relative. A result and the softmax's weights are rounded: half a
unit is 2^-11, 2^-8."""

ONE_HEAD = AttentionShape(1, 1, 32, 32)
PAIR = AttentionShape(2, 1, 64, 64)


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    with Interpreter() as started:
        yield started


def call(
    shape: AttentionShape,
    dtype: str,
    tree: Tree,
    cache_rows: int,
    *,
    words: int = 8,
    seed: int = 0,
    unseen: float = np.nan,
) -> Call:
    """Random inputs for the nodes of a tree. Slots that hold neither text nor a node are NaN."""
    rng = np.random.default_rng(seed)

    def normal(*size: int) -> np.ndarray:
        return rng.normal(0, 1, size).astype(NUMPY[dtype]).astype(np.float32)

    key, value = normal(2, cache_rows, shape.kv_num_heads, shape.head_dim)
    key[tree.n_past :], value[tree.n_past :] = np.nan, np.nan
    return Call(
        shape,
        dtype,
        normal(len(tree.slots), shape.qkv_width),
        key,
        value,
        np.array(tree.slots),
        np.array(tree.positions()),
        tree.n_past,
        mask_of(tree.visible(), tree.n_past, words),
        **Shape(shape.num_heads, shape.kv_num_heads, shape.head_dim, shape.rotary_dim).tables(),
        scale=float(np.float32(shape.head_dim**-0.5)),
    )


def expected(given: Call) -> Result:
    """By the reference, which multiplies what nobody sees with zero, so that no NaN may be there."""
    key, value = np.nan_to_num(given.key), np.nan_to_num(given.value)
    out = reference.tree_attention(
        given.qkv,
        key,
        value,
        given.slots,
        given.positions,
        given.n_past,
        given.mask,
        given.cos,
        given.sin,
        num_heads=given.shape.num_heads,
        kv_num_heads=given.shape.kv_num_heads,
        head_dim=given.shape.head_dim,
        scale=given.scale,
    )
    return Result(out, key, value)


def tolerance(head_dim: int, dtype: str) -> tuple[float, float]:
    """Absolute and relative. In float32 the error of a sum of n products grows as the root of n, in units of 2^-24
    (Higham and Mary 2019), on each of the two sides: NumPy's sums differ with the instruction set."""
    if dtype == "fp32":
        return (bound := 2 * head_dim**0.5 * 2**-24), bound
    return SIXTEEN_BITS[dtype] * max(1.0, head_dim / 96), SIXTEEN_BITS[dtype]


def check(given: Call, got: Result) -> None:
    wanted, (absolute, relative) = expected(given), tolerance(given.shape.head_dim, given.dtype)
    np.testing.assert_allclose(got.out, wanted.out, atol=absolute, rtol=relative)
    text = np.arange(len(given.key)) < given.n_past
    written = np.isin(np.arange(len(given.key)), given.slots)
    np.testing.assert_allclose(got.key[written], wanted.key[written], atol=absolute, rtol=relative)
    np.testing.assert_array_equal(got.value[written], wanted.value[written])
    for after, before in ((got.key, given.key), (got.value, given.value)):
        np.testing.assert_array_equal(after[text], before[text])
        assert np.isnan(after[~text & ~written]).all()


def chain(tokens: int, n_past: int) -> Tree:
    return Tree(n_past, list(range(n_past, n_past + tokens)), list(range(-1, tokens - 1)))


def bushy(tokens: int, n_past: int, window: int, seed: int = 0) -> Tree:
    return random_tree(np.random.default_rng(seed), n_past, tokens, window)


CASES = {
    "one token on an empty cache": (AttentionShape(9, 3, 64, 64), "fp32", chain(1, 0), 128, 8),
    "a tree with holes, three splits": (AttentionShape(6, 2, 64, 64), "fp32", bushy(5, 250, 60), 330, 8),
    "text up to a chunk's end": (PAIR, "fp32", bushy(3, 128, 40), 300, 8),
    "the cache's last rows": (AttentionShape(4, 1, 32, 8), "fp32", bushy(9, 220, 45), 265, 8),
    "the widest tree": (AttentionShape(2, 1, 32, 32), "fp32", bushy(64, 17, 256), 290, 8),
    "sixteen words": (AttentionShape(2, 2, 80, 32), "fp32", bushy(7, 70, 512), 600, 16),
    "head_dim 96, no rotation": (AttentionShape(3, 1, 96, 0), "fp32", bushy(6, 37, 30), 128, 8),
    "head_dim 128": (AttentionShape(2, 1, 128, 128), "fp32", bushy(8, 130, 30), 200, 8),
    "prefill of a tree": (AttentionShape(2, 1, 64, 20), "fp32", bushy(70, 45, 200), 260, 8),
    "prefill of 300 tokens": (ONE_HEAD, "fp32", chain(300, 0), 320, 16),
    "float16": (AttentionShape(4, 2, 64, 0), "fp16", bushy(6, 140, 40), 200, 8),
    "float16, prefill": (AttentionShape(2, 1, 128, 0), "fp16", chain(66, 20), 100, 8),
    "bfloat16": (AttentionShape(4, 2, 64, 0), "bf16", bushy(6, 140, 40), 200, 8),
}


@pytest.mark.parametrize(("shape", "dtype", "tree", "cache_rows", "words"), CASES.values(), ids=CASES)
def test_means_what_the_reference_says(interpreter, shape, dtype, tree, cache_rows, words):
    given = call(shape, dtype, tree, cache_rows, words=words)
    check(given, interpreter.attention(given)[0])


@pytest.mark.parametrize("seed", range(4))
def test_any_tree(interpreter, seed):
    rng = np.random.default_rng(seed)
    heads = int(rng.integers(1, 4))
    shape = AttentionShape(heads * int(rng.integers(1, 4)), heads, 32, int(rng.integers(0, 17)) * 2)
    n_past, nodes = int(rng.integers(0, 200)), int(rng.integers(1, 14))
    given = call(shape, "fp32", bushy(nodes, n_past, 50, seed), n_past + 50 + int(rng.integers(0, 40)), seed=seed)
    check(given, interpreter.attention(given)[0])


def test_keys_in_sixteen_bits_are_rounded_once(interpreter):
    """float16 of the exact rotation, but for what lies so near a tie that float32 decides it."""
    given = call(PAIR, "fp16", chain(6, 0), 128)
    rounded = expected(given).key[:6].astype(np.float16).astype(np.float32)
    got = interpreter.attention(given)[0].key[:6]
    assert (got != rounded).mean() < 0.01
    np.testing.assert_allclose(got, rounded, rtol=2**-10)


def test_a_row_has_the_same_bits_alone_and_among_others(interpreter):
    shape = AttentionShape(3, 1, 32, 32)
    together = call(shape, "fp16", bushy(33, 150, 90), 260)
    whole = interpreter.attention(together)[0]
    for node in (0, 17, 32):
        one = slice(node, node + 1)
        parts = {name: getattr(together, name)[one] for name in ("qkv", "slots", "positions", "mask")}
        alone = interpreter.attention(replace(together, **parts, key=whole.key, value=whole.value))[0]
        np.testing.assert_array_equal(alone.out, whole.out[one])
        np.testing.assert_array_equal(alone.key, whole.key)


def test_a_draft_has_the_bits_of_text(interpreter):
    """The last node of a chain that lies in the window, and the same token when all before it is text."""
    drafted = call(PAIR, "fp16", chain(5, 126), 200)
    whole = interpreter.attention(drafted)[0]
    text = {"n_past": 130, "mask": mask_of([{130}], 130), "key": whole.key, "value": whole.value}
    last = {name: getattr(drafted, name)[4:] for name in ("qkv", "slots", "positions")}
    alone = interpreter.attention(replace(drafted, **text, **last))[0]
    np.testing.assert_array_equal(alone.out, whole.out[4:])


@pytest.mark.parametrize("tokens", [3, 65])
def test_padding_rows_change_nothing_but_the_scratch_row(interpreter, tokens):
    given = call(ONE_HEAD, "fp32", chain(tokens, 9), 100)
    padded = replace(
        given,
        qkv=np.append(given.qkv, given.qkv[:1], 0),
        slots=np.append(given.slots, 99),
        positions=np.append(given.positions, 0),
        mask=np.append(given.mask, np.zeros((1, 8), np.int32), 0),
    )
    got, wanted = interpreter.attention(padded, given)
    assert np.isfinite(got.out[-1]).all()
    np.testing.assert_array_equal(got.out[:-1], wanted.out)
    np.testing.assert_array_equal(got.key[:99], wanted.key[:99])
    np.testing.assert_array_equal(got.value[:99], wanted.value[:99])


@pytest.mark.parametrize("tokens", [2, 65])
def test_a_row_that_sees_nothing_is_zero(interpreter, tokens):
    given = call(ONE_HEAD, "fp32", chain(tokens, 0), 128)
    given.mask[-1] = 0
    got = interpreter.attention(given)[0]
    assert not got.out[-1].any()
    assert got.out[:-1].all()


def test_slots_and_positions_out_of_range_touch_nothing(interpreter):
    """The runtime refuses them; should one come through, it must not write into other memory (the guards check it)."""
    given = call(ONE_HEAD, "fp32", chain(3, 5), 64)
    wrong = replace(given, slots=np.array([64, -1, 7]), positions=np.array([512, -3, 7]))
    got = interpreter.attention(wrong)[0]
    np.testing.assert_array_equal(got.value[:5], given.value[:5])
    assert np.isnan(got.value[5:7]).all()


@pytest.mark.parametrize("n_past", [64, 9999])
def test_n_past_beyond_the_cache_reads_no_further(interpreter, n_past):
    given = call(ONE_HEAD, "fp32", chain(1, 63), 64)
    got = interpreter.attention(replace(given, n_past=n_past))[0]
    np.testing.assert_array_equal(got.out, interpreter.attention(given)[0].out)


def test_mask_bits_beyond_the_cache_are_not_looked_at(interpreter):
    given = call(ONE_HEAD, "fp32", chain(2, 40), 45)
    beyond = replace(given, mask=given.mask | mask_of([set(range(45, 80))] * 2, 40))
    got, wanted = interpreter.attention(beyond, given)
    np.testing.assert_array_equal(got.out, wanted.out)


def memory(planes: int, rows: int, width: int) -> np.ndarray:
    return np.arange(planes * rows * width, dtype=np.int32).reshape(planes, rows, width)


def test_rows_move_within_a_buffer_in_any_order(interpreter):
    cache = memory(2, 70, 40)
    rng = np.random.default_rng(0)
    source, target = rng.permutation(70)[:64], rng.permutation(70)[:64]
    strides = {"source_stride": 70 * 40, "target_stride": 70 * 40}
    got = interpreter.copy_rows(
        cache, source=0, target=0, rows=64, width=40, source_rows=source, target_rows=target, planes=2, **strides
    )
    wanted = cache.copy()
    wanted[:, target] = cache[:, source]
    np.testing.assert_array_equal(got, wanted)


def test_more_rows_than_a_tile_move_down(interpreter):
    cache = memory(1, 150, 3)
    source = np.sort(np.random.default_rng(0).permutation(150)[:100])
    got = interpreter.copy_rows(cache, source=0, target=0, rows=100, width=3, source_rows=source)
    np.testing.assert_array_equal(got[0, :100], cache[0, source])
    np.testing.assert_array_equal(got[0, 100:], cache[0, 100:])


@pytest.mark.parametrize(("gathers", "scatters"), [(True, False), (False, True), (False, False)])
def test_rows_are_gathered_and_scattered(interpreter, gathers, scatters):
    pool = memory(2, 20, 33)
    rows = np.array([4, 0, 19, 7])
    tables = {"source_rows": rows} if gathers else {"target_rows": rows} if scatters else {}
    got = interpreter.copy_rows(pool, source=0, target=20 * 33, rows=4, width=33, **tables)
    wanted = pool.copy()
    wanted[1, rows if scatters else range(4)] = pool[0, rows if gathers else range(4)]
    np.testing.assert_array_equal(got, wanted)
