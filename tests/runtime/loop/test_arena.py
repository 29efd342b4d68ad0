"""The arena's laws: ancestry masks, closing up, forgetting."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.engines.protocol import WINDOW
from foredraft.loop.arena import Arena


def bits(mask: np.ndarray) -> np.ndarray:
    return np.unpackbits(mask.view(np.uint8), axis=1, bitorder="little").astype(bool)


@st.composite
def parents(draw: st.DrawFn, most: int = 40) -> list[int]:
    """A random tree as parents, -1 for its root's parent; node 0 is the root."""
    size = draw(st.integers(1, most))
    return [-1] + [draw(st.integers(0, i - 1)) for i in range(1, size)]


@given(parents(), st.integers(0, 70))
def test_a_node_sees_its_ancestors_and_itself_only(tree: list[int], past: int) -> None:
    arena = Arena(200)
    if past:
        arena.commit(arena.extend(range(past), range(-1, past - 1)).tolist())
    slots = arena.extend([7] * len(tree), [past + p for p in tree])
    seen = bits(arena.batch(slots).mask)
    for node in range(len(tree)):
        expected, step = set(), node
        while step >= 0:
            expected.add(step)
            step = tree[step]
        assert set(np.flatnonzero(seen[node])) == expected
        assert arena.position[past + node] == past + len(expected) - 1


@given(parents(), st.data())
def test_commit_closes_a_path_up_and_forgets_the_rest(tree: list[int], data: st.DataObject) -> None:
    arena = Arena(64)
    slots = arena.extend([10 + i for i in range(len(tree))], tree)
    path = arena.path(data.draw(st.sampled_from(slots.tolist())))
    tokens = arena.token[path].tolist()
    source, target = arena.commit(path)
    assert arena.settled == arena.used == len(path)
    assert arena.token[: len(path)].tolist() == tokens
    assert arena.position[: len(path)].tolist() == list(range(len(path)))
    assert (source > target).all()
    assert set(source) == {s for i, s in enumerate(path) if s != i}


def test_what_does_not_fit_is_refused() -> None:
    arena = Arena(16)
    with pytest.raises(OverflowError, match="16 slots"):
        arena.extend(range(17), range(-1, 16))
    with pytest.raises(ValueError, match="parent 5"):
        arena.extend([1], [5])
    big = Arena(2 * WINDOW)
    with pytest.raises(OverflowError, match="window"):
        big.extend(range(WINDOW + 1), range(-1, WINDOW))


def test_a_path_must_follow_the_tree() -> None:
    arena = Arena(16)
    arena.extend([1, 2, 3], [-1, 0, 0])
    with pytest.raises(ValueError, match="does not continue"):
        arena.commit([0, 1, 2])


def test_rewinding_keeps_a_beginning() -> None:
    arena = Arena(16)
    arena.commit(arena.extend([5, 6, 7], [-1, 0, 1]).tolist())
    arena.rewind(2)
    assert arena.settled == arena.used == 2
    with pytest.raises(ValueError, match="cannot rewind"):
        arena.rewind(3)
