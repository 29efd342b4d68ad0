"""Trees of drafts: order, trimming, laying out."""

from hypothesis import given
from hypothesis import strategies as st

from foredraft.loop.tree import TIP, Tree


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    tree = Tree()
    for index in range(draw(st.integers(0, 30))):
        parent = draw(st.integers(TIP, index - 1))
        above = 1.0 if parent == TIP else tree.probabilities[parent]
        tree.add(index, parent, above * draw(st.floats(0.01, 1.0)))
    return tree


def paths(tree: Tree) -> set[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    for token, parent in zip(tree.tokens, tree.parents, strict=True):
        found.append((*(found[parent] if parent != TIP else ()), token))
    return set(found)


@given(trees())
def test_laying_out_keeps_every_path(tree: Tree) -> None:
    laid = tree.likeliest_first()
    assert paths(laid) == paths(tree)
    if len(laid):
        assert laid.parents[0] == TIP
        assert laid.probabilities[0] == max(
            p for p, up in zip(tree.probabilities, tree.parents, strict=True) if up == TIP
        )


@given(trees(), st.integers(0, 30), st.integers(0, 8))
def test_trimming_keeps_first_nodes_up_to_a_depth(tree: Tree, nodes: int, depth: int) -> None:
    kept = tree.trimmed(nodes, depth)
    assert len(kept) <= nodes
    assert max(kept.depths(), default=0) <= depth
    assert paths(kept) <= paths(tree)
    if nodes >= len(tree):
        assert paths(kept) == {path for path in paths(tree) if len(path) <= depth}


@given(trees())
def test_the_likeliest_path_is_one_path_of_the_tree(tree: Tree) -> None:
    path = tree.likeliest_path()
    assert path.parents == list(range(-1, len(path) - 1))
    assert paths(path) <= paths(tree)
    assert bool(len(path)) == bool(len(tree))
