"""Drafters of the context: right trees, nothing left behind by a rewind, quick."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft import drafters
from foredraft.drafters.ngram_index import NgramIndex
from foredraft.drafters.protocol import Drafter
from foredraft.errors import RequestError
from foredraft.loop.tree import TIP, Tree
from tests.work import instructions

TEXTS = st.lists(st.integers(0, 3), min_size=1, max_size=60)


def paths(tree: Tree) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    for token, parent in zip(tree.tokens, tree.parents, strict=True):
        found.append((*(found[parent] if parent != TIP else ()), token))
    return found


def begun(name: str, text: list[int]) -> Drafter:
    drafter = drafters.create(name, vocab_size=2048)
    drafter.begin(text)
    return drafter


def test_names_and_settings_are_checked() -> None:
    assert {"blend", "context", "pools", "suffix", "recycling", "prompt-lookup", "none"} == set(drafters.names())
    with pytest.raises(RequestError, match="did you mean 'prompt-lookup'"):
        drafters.create("prompt_lookup", vocab_size=8)
    with pytest.raises(RequestError, match="expected one of blend, context"):
        drafters.create("zzz", vocab_size=8)
    for name in ("none", "prompt-lookup", "recycling", "context"):
        with pytest.raises(RequestError, match="has no setting 'levels'"):
            drafters.create(name, vocab_size=8, levels="context")
    assert drafters.create("context", vocab_size=8).name == "context"
    assert drafters.create("prompt-lookup", vocab_size=8, longest=2, length=4).name == "prompt-lookup"


@pytest.mark.parametrize("name", drafters.names())
@given(text=TEXTS, budget=st.integers(0, 20))
def test_trees_are_well_formed(name: str, text: list[int], budget: int) -> None:
    drafter = begun(name, text)
    tree = drafter.propose(text, budget)
    assert len(tree) <= budget
    assert len(set(paths(tree))) == len(tree)  # siblings differ
    for node, parent in enumerate(tree.parents):
        assert TIP <= parent < node
        assert 0 < tree.probabilities[node] <= (tree.probabilities[parent] if parent != TIP else 1.0)
        assert 0 <= tree.levels[node] < len(drafter.level_names)
    assert set(tree.tokens) <= set(text)


@pytest.mark.parametrize("name", ["prompt-lookup", "pools", "suffix", "none"])
@given(text=TEXTS, more=TEXTS, data=st.data())
def test_rewound_drafts_as_if_the_rest_had_never_been(
    name: str, text: list[int], more: list[int], data: st.DataObject
) -> None:
    whole = text + more
    length = data.draw(st.integers(1, len(whole)))
    again = data.draw(TEXTS)
    drafter = begun(name, text)
    drafter.commit(more, None)
    drafter.rewind(length)
    assert drafter.propose(whole[:length], 16) == begun(name, whole[:length]).propose(whole[:length], 16)
    drafter.commit(again, None)
    final = whole[:length] + again
    assert drafter.propose(final, 16) == begun(name, final).propose(final, 16)


@given(text=TEXTS, more=st.lists(st.integers(4, 9), min_size=1, max_size=30), data=st.data())
def test_a_rewound_blend_forgets_the_rest_of_the_text(text: list[int], more: list[int], data: st.DataObject) -> None:
    """It keeps what it learned about its levels' worth, so its tree need not be that of a fresh one."""
    length = data.draw(st.integers(1, len(text)))
    drafter = begun("context", text)
    drafter.commit(more, None)
    drafter.rewind(length)
    kept = text[:length]
    pairs = set(itertools.pairwise(kept))
    for path in paths(drafter.propose(kept, 16)):
        assert set(zip((kept[-1], *path), path, strict=False)) <= pairs


@pytest.mark.parametrize("name", drafters.names())
def test_a_new_text_knows_nothing_of_the_last(name: str) -> None:
    drafter = begun(name, [1, 2, 3, 1, 2, 3])
    drafter.begin([1, 2])
    assert len(drafter.propose([1, 2], 16)) == 0


@given(text=TEXTS, cut=st.integers(0, 100))
def test_index_finds_the_latest_occurrence_also_after_a_cut(text: list[int], cut: int) -> None:
    index = NgramIndex((1, 2, 4))
    index.extend(text[:5])
    index.extend(text[5:])
    for length in (len(text), max(0, len(text) - cut)):
        index.truncate(length)
        assert index.text == text[:length]
        for order in (1, 2, 4):
            tail = tuple(text[-order:])
            places = [p for p in range(order, length) if tuple(text[p - order : p]) == tail]
            if len(tail) == order:
                assert index.latest(tail) == (places[-1] if places else None)


def test_prompt_lookup_copies_what_followed_the_latest_longest_match() -> None:
    text = [7, 1, 2, 3, 4, 5, 9, 2, 3, 6, 8, 1, 2, 3]
    drafter = begun("prompt-lookup", text)
    assert paths(drafter.propose(text, 16))[-1] == (4, 5, 9, 2, 3, 6, 8, 1, 2, 3)  # after 1 2 3, not after 2 3
    assert drafter.propose(text, 3).tokens == [4, 5, 9]
    drafter.commit([9, 2], None)
    assert drafter.propose([*text, 9, 2], 2).tokens == [3, 6]


def test_context_offers_several_branches_likeliest_first() -> None:
    text = [1, 2, 5, 1, 2, 6, 0, 1, 2, 5, 9, 1, 2]
    tree = begun("context", text).propose(text, 8)
    firsts = [token for token, parent in zip(tree.tokens, tree.parents, strict=True) if parent == TIP]
    assert firsts[:2] == [5, 6]
    assert tree.probabilities == sorted(tree.probabilities, reverse=True)
    assert (5, 1, 2) in paths(tree)


def test_context_prefers_the_longer_match() -> None:
    text = [1, 2, 3, 9, 4, 2, 3, 8, 5, 2, 3, 8, 1, 2, 3]
    tree = begun("context", text).propose(text, 4)
    assert tree.tokens[0] == 9


def test_context_says_nothing_where_it_knows_nothing() -> None:
    assert len(begun("context", list(range(50))).propose(list(range(50)), 16)) == 0


@pytest.mark.parametrize("length", [500, 8000])
@pytest.mark.parametrize("alphabet", [2, 4, 50, 2000])
def test_drafting_is_quick_whatever_the_text(alphabet: int, length: int) -> None:
    rng = random.Random(0)
    text = [rng.randrange(alphabet) for _ in range(length)]
    drafter = begun("context", text)
    for _ in range(3):
        work = instructions(lambda: drafter.propose(text, 16))
        assert work < 2000 * 16  # twice what it takes for 16 nodes
