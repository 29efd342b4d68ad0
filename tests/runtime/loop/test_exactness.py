"""Batch invariance: a node's logits are the same bits whatever else is in its forward, and wherever its path lies.

This is what makes speculation exactly lossless, so it is tested on the real engine at every precision: the same text
alone, in a chain, in a random tree with dead branches, in several rounds, and after commits that move rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.bundle import Bundle
from foredraft.engines.onnxruntime import OnnxRuntimeEngine
from foredraft.loop.chain import Chain

EXITS = (1, 2)
TEXT = [int(t) for t in np.random.default_rng(3).integers(0, 256, 48)]


@cache
def engine(path: Path, threads: int = 1, lowering: str = "kernels") -> OnnxRuntimeEngine:
    return OnnxRuntimeEngine(Bundle.open(path), threads, lowering)


def chain_on(path: Path, threads: int = 1, lowering: str = "kernels") -> Chain:
    return Chain(engine(path, threads, lowering).open_sequence(320), [1, 1, 2])


@cache
def one_by_one(path: Path, lowering: str = "kernels") -> np.ndarray:
    """Logits after every token of the text, each from a forward of its own."""
    chain = chain_on(path, lowering=lowering)
    return np.concatenate([chain.prefill([token]).copy() for token in TEXT])


@st.composite
def rounds(draw: st.DrawFn) -> list[list[int]]:
    """Per round, a tree: 0 is the next token of the text under the deepest true node, n > 0 a wrong branch under the
    n-th node before."""
    return draw(st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=20), min_size=1, max_size=12))


@pytest.mark.parametrize("precision", ["fp32", "int8", "int4"])
@settings(max_examples=40)
@given(plan=rounds(), threads=st.sampled_from([1, 2]), prompt=st.integers(1, 20))
def test_a_path_through_any_tree_gives_the_bits_of_plain_decoding(
    tiny_bundle: Callable[..., Path], precision: str, plan: list[list[int]], threads: int, prompt: int
) -> None:
    path = tiny_bundle(precision, EXITS)
    expected, chain = one_by_one(path), chain_on(path, threads)
    assert np.array_equal(chain.prefill(TEXT[:prompt])[0], expected[prompt - 1])
    done = prompt
    for shape in plan:
        true_path, tokens, parents, first = [], [], [], chain.arena.used
        for move in shape:
            if move == 0 and done + len(true_path) < len(TEXT):
                parents.append(true_path[-1] if true_path else first - 1)
                tokens.append(TEXT[done + len(true_path)])
                true_path.append(first + len(tokens) - 1)
            elif tokens:
                parents.append(first + max(len(tokens) - move, 0))
                tokens.append(7 + move)
        if not true_path:
            continue
        slots = chain.arena.extend(tokens, parents)
        logits = chain.verify(slots)
        for depth, slot in enumerate(true_path):
            assert np.array_equal(logits[slot - first], expected[done + depth]), (done, depth)
        chain.commit(true_path)
        done += len(true_path)


@pytest.mark.parametrize("precision", ["fp32", "int8", "int4"])
@pytest.mark.parametrize("lowering", ["kernels", "portable"])
@pytest.mark.parametrize("size", [2, 7, 31, 48])
def test_a_chain_gives_the_bits_of_plain_decoding(
    tiny_bundle: Callable[..., Path], precision: str, lowering: str, size: int
) -> None:
    path = tiny_bundle(precision, EXITS)
    expected, chain = one_by_one(path, lowering), chain_on(path, lowering=lowering)
    done = 0
    while done < len(TEXT):
        part = TEXT[done : done + size]
        first = chain.arena.used
        slots = chain.arena.extend(part, range(first - 1, first - 1 + len(part)))
        assert np.array_equal(chain.verify(slots), expected[done : done + len(part)])
        chain.commit(slots.tolist())
        done += len(part)


@pytest.mark.parametrize("precision", ["fp32", "int8", "int4"])
def test_the_portable_lowering_agrees_with_the_kernels(tiny_bundle: Callable[..., Path], precision: str) -> None:
    path = tiny_bundle(precision, EXITS)
    kernels, portable = one_by_one(path, "kernels"), one_by_one(path, "portable")
    scale = np.sqrt((kernels**2).mean())
    typical = np.sqrt(((kernels - portable) ** 2).mean()) / scale
    # An activation that lies on the edge between two int8 codes may be rounded either way, hence the wider bound.
    assert typical < (1e-5 if precision == "fp32" else 5e-2)
    assert (kernels.argmax(axis=1) == portable.argmax(axis=1)).mean() >= (1.0 if precision == "fp32" else 0.9)


def test_splitting_at_exits_costs_no_layer_twice(tiny_bundle: Callable[..., Path]) -> None:
    chain = chain_on(tiny_bundle("int8", EXITS))
    chain.prefill(TEXT[:10])
    slots = chain.arena.extend(TEXT[10:15], range(9, 14))
    chain.verify(slots)
    assert chain.work.layer_runs == 15 * 4
    with pytest.raises(AssertionError, match="stages"):
        chain._run(0, chain.arena.batch(slots))
