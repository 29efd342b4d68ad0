"""TreeAttention against its meaning, and the laws that make speculation exact."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft_plugins.tree_attention import reference

from .session import same_bits
from .trees import POSITIONS, Shape, Tree, attend, mask_of, random_tree

SLOTS = 320
SHAPES = [
    Shape(9, 3, 64, 64),
    Shape(4, 4, 16, 16),
    Shape(6, 2, 32, 32),
    Shape(8, 1, 32, 8),
    Shape(5, 1, 80, 32),
    Shape(7, 1, 96, 20),
    Shape(4, 2, 128, 128),
    Shape(2, 2, 48, 0),
    Shape(3, 1, 256, 64),
]


def draw(shape: Shape, seed: int, nodes: int, n_past: int, window: int = 60):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, n_past, nodes, window)
    qkv = rng.normal(0, 1, (nodes, shape.qkv_width)).astype(np.float32)
    return tree, qkv, *shape.cache(rng, SLOTS)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("n_past", "nodes"), [(0, 1), (37, 1), (16, 5), (130, 21)])
def test_means_what_the_reference_says(shape, n_past, nodes):
    tree, qkv, key, value = draw(shape, nodes, nodes, n_past)
    mask = mask_of(tree.visible(), n_past)
    expected_key, expected_value = key.copy(), value.copy()
    expected = reference.tree_attention(
        qkv,
        expected_key,
        expected_value,
        np.array(tree.slots),
        np.array(tree.positions()),
        n_past,
        mask,
        **shape.tables(),
        num_heads=shape.heads,
        kv_num_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        scale=shape.scale,
    )
    got = attend(shape, qkv, key, value, tree.slots, tree.positions(), n_past, mask)
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(key, expected_key, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(value, expected_value)


@settings(max_examples=40)
@given(st.sampled_from(SHAPES), st.integers(0, 200), st.integers(1, 40), st.integers(0, 9999))
def test_a_node_is_the_same_alone_and_among_others(shape, n_past, nodes, seed):
    """Nodes in one forward on two threads, against one forward per node."""
    tree, qkv, key, value = draw(shape, seed, nodes, n_past)
    mask, positions = mask_of(tree.visible(), n_past), tree.positions()
    alone_key, alone_value = key.copy(), value.copy()
    together = attend(shape, qkv, key, value, tree.slots, positions, n_past, mask, threads=2)
    for t in range(nodes):
        one = slice(t, t + 1)
        alone = attend(
            shape, qkv[one], alone_key, alone_value, tree.slots[one], positions[one], n_past, mask[one].copy()
        )
        assert same_bits(together[one], alone)
    assert same_bits(key, alone_key)
    assert same_bits(value, alone_value)


@settings(max_examples=40)
@given(st.sampled_from(SHAPES), st.integers(0, 200), st.integers(1, 40), st.integers(0, 9999))
def test_a_path_with_holes_is_the_same_as_closed_up(shape, n_past, nodes, seed):
    """A path through a tree at scattered slots, against the same tokens as committed text, one forward per token."""
    tree, qkv, key, value = draw(shape, seed, nodes, n_past)
    text_key, text_value = shape.cache(np.random.default_rng(seed + 1), SLOTS)
    text_key[:n_past], text_value[:n_past] = key[:n_past], value[:n_past]
    mask = mask_of(tree.visible(), n_past)
    scattered = attend(shape, qkv, key, value, tree.slots, tree.positions(), n_past, mask)
    path = tree.path(nodes - 1)
    for i, node in enumerate(path):
        past = n_past + i
        one = qkv[node : node + 1]
        plain = attend(shape, one, text_key, text_value, [past], [past], past, mask_of([{past}], past))
        assert same_bits(scattered[node : node + 1], plain)


def test_prefill_is_the_same_in_one_piece_and_in_two():
    shape, tokens = SHAPES[0], 200
    rng = np.random.default_rng(0)
    qkv = rng.normal(0, 1, (tokens, shape.qkv_width)).astype(np.float32)
    order = list(range(tokens))

    def run(cuts: list[int], threads: int) -> np.ndarray:
        key, value = shape.cache(rng, SLOTS)
        pieces = []
        for a, b in itertools.pairwise(cuts):
            mask = mask_of([set(range(a, t + 1)) for t in range(a, b)], a)
            pieces.append(attend(shape, qkv[a:b], key, value, order[a:b], order[a:b], a, mask, threads))
        return np.concatenate(pieces)

    assert same_bits(run([0, tokens], 2), run([0, 77, 78, tokens], 1))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("nodes", [1, 3])
def test_a_long_text_is_the_same_on_several_threads(shape, nodes):
    rng, n_past, slots = np.random.default_rng(nodes), 600, 640
    tree = random_tree(rng, n_past, nodes, 35)
    qkv = rng.normal(0, 1, (nodes, shape.qkv_width)).astype(np.float32)
    key, value = shape.cache(rng, slots)
    positions, mask = [p % POSITIONS for p in tree.positions()], mask_of(tree.visible(), n_past)
    expected = attend(shape, qkv, key, value, tree.slots, positions, n_past, mask)
    for _ in range(3):
        assert same_bits(attend(shape, qkv, key, value, tree.slots, positions, n_past, mask, threads=2), expected)


def test_what_a_masked_slot_holds_does_not_matter():
    shape = SHAPES[0]
    tree, qkv, key, value = draw(shape, 3, 9, 40)
    mask = mask_of(tree.visible(), 40)
    outs = []
    for stale in (0.0, 1e30, -7.0):
        k, v = np.full_like(key, stale), np.full_like(value, stale)
        k[:40], v[:40] = key[:40], value[:40]
        outs.append(attend(shape, qkv, k, v, tree.slots, tree.positions(), 40, mask))
    assert same_bits(outs[0], outs[1])
    assert same_bits(outs[0], outs[2])


def test_a_sharp_softmax_has_no_tail():
    """Scores far below the maximum count as exactly nothing, also where exp would be a denormal."""
    shape = Shape(1, 1, 16, 0)
    key, value = np.zeros((16, 1, 16), np.float32), np.ones((16, 1, 16), np.float32)
    key[:, 0, 0] = np.linspace(-400, 0, 16)
    value[:15] = 1e30
    qkv = np.zeros((1, shape.qkv_width), np.float32)
    qkv[0, 0] = 16.0
    qkv[0, 32:] = 2.0
    out = attend(shape, qkv, key, value, [15], [0], 15, mask_of([{15}], 15))
    np.testing.assert_array_equal(out, np.full((1, 16), 2.0, np.float32))


def test_a_token_that_sees_nothing_is_zero():
    shape = SHAPES[0]
    _, qkv, key, value = draw(shape, 0, 2, 0)
    out = attend(shape, qkv, key, value, [0, 1], [0, 1], 0, mask_of([set(), {1}], 0))
    assert not out[0].any()
    assert out[1].any()


def test_the_last_slots_of_the_cache_can_be_used():
    shape = SHAPES[0]
    _, qkv, key, value = draw(shape, 0, 2, 0)
    tree = Tree(SLOTS - 2, [SLOTS - 2, SLOTS - 1], [-1, 0])
    out = attend(
        shape, qkv, key, value, tree.slots, tree.positions(), tree.n_past, mask_of(tree.visible(), tree.n_past)
    )
    assert np.isfinite(out).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"slots": [5, SLOTS]}, rf"slots\[1\] is {SLOTS}, but the number of slots in the cache is {SLOTS}"),
        ({"slots": [-1, 6]}, r"slots\[0\] is -1"),
        (
            {"positions": [0, POSITIONS]},
            rf"positions\[1\] is {POSITIONS}, but the number of positions in cos and sin is 512",
        ),
        ({"n_past": SLOTS + 1}, rf"n_past is {SLOTS + 1}, but the cache has {SLOTS} slots"),
        ({"n_past": -1}, r"n_past is -1"),
        (
            {"n_past": SLOTS - 2, "mask": mask_of([{0}, {5}], 0)},
            rf"mask\[1\] shows slot {SLOTS + 3}, but the cache has",
        ),
        ({"slots": [5]}, r"slots has shape \[1\], expected \[2\]"),
        ({"qkv": np.zeros((2, 30), np.float32)}, r"qkv has shape \[2, 30\], expected \[any, 960\]"),
        ({"mask": np.zeros((3, 8), np.int32)}, r"mask has shape \[3, 8\], expected \[2, any\]"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_values_out_of_range_are_named(change, message):
    shape = SHAPES[0]
    _, qkv, key, value = draw(shape, 0, 2, 5)
    call = {"qkv": qkv, "slots": [5, 6], "positions": [5, 6], "n_past": 5, "mask": mask_of([{5}, {5, 6}], 5)}
    before = key.copy(), value.copy()
    with pytest.raises(Exception, match=message):
        attend(shape, key=key, value=value, **(call | change))
    assert same_bits(key, before[0])
    assert same_bits(value, before[1])


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (Shape(4, 3, 64, 64), r"num_heads is 4 and kv_num_heads is 3"),
        (Shape(3, 3, 20, 20), r"head_dim is 20, expected a multiple of 16 up to 256"),
        (Shape(3, 3, 16, 32), r"rotary_dim is 32, expected an even number up to head_dim, 16"),
    ],
    ids=str,
)
def test_impossible_attributes_are_refused_when_the_session_opens(shape, message):
    with pytest.raises(Exception, match=message):
        attend(
            shape,
            np.zeros((1, 1), np.float32),
            *shape.cache(np.random.default_rng(0), 16),
            [0],
            [0],
            0,
            mask_of([{0}], 0),
        )


def test_interleaving_is_undone():
    key, value = SHAPES[0].cache(np.random.default_rng(0), 32)
    kernel = reference.interleave_keys(key)
    assert kernel[1, 1, 7, 3] == key[19, 1, 7]
    np.testing.assert_array_equal(reference.separate_keys(kernel), key)
    np.testing.assert_array_equal(reference.separate_values(reference.interleave_values(value)), value)
