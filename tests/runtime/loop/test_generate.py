"""The loop on a toy model: exact for any drafter, every layer once per node, ends where it should."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.loop.chain import Chain
from foredraft.loop.generate import Writer
from foredraft.loop.tree import TIP, Tree
from foredraft.scheduling.policy import FixedPolicy, Policy
from tests.runtime.toy import ToyEngine


class Largest:
    """Greedy."""

    def __call__(self, logits: np.ndarray, position: int, path: Sequence[int]) -> int:
        assert position == len(path)
        return int(logits.argmax())

    def ranked(self, logits: np.ndarray, position: int, path: Sequence[int], count: int) -> list[tuple[int, float]]:
        assert position == len(path)
        return [(int(token), float(logits[token])) for token in np.argsort(-logits, kind="stable")[:count]]


class RandomDrafter:
    """Proposes random trees over the toy's alphabet, good guesses and bad ones."""

    name, level_names, wants_logits = "random", ("random",), True

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.text: list[int] = []

    def begin(self, prompt: Sequence[int]) -> None:
        self.text = list(prompt)

    def propose(self, context: Sequence[int], budget: int, minimum: float = 0.0) -> Tree:
        assert list(context)[: len(self.text)] == self.text
        tree, taken = Tree(), set()
        for _ in range(int(self.random.integers(0, budget + 1))):
            parent, token = int(self.random.integers(TIP, len(tree))), int(self.random.integers(0, 4))
            if (parent, token) not in taken:
                taken.add((parent, token))
                tree.add(token, parent, float(self.random.random()))
        return tree

    def commit(self, tokens: Sequence[int], logits: Sequence[np.ndarray] | None) -> None:
        assert logits is not None
        assert [int(row.argmax()) for row in logits] == list(tokens)
        self.text += tokens

    def rewind(self, length: int) -> None:
        del self.text[length:]

    def finish(self) -> None: ...


class Nothing(RandomDrafter):
    def propose(self, context: Sequence[int], budget: int, minimum: float = 0.0) -> Tree:
        return Tree()


class Fixed(RandomDrafter):
    """Proposes one given chain, once."""

    def __init__(self, tokens: Sequence[int]) -> None:
        super().__init__(0)
        self.chain: Sequence[int] = tokens

    def propose(self, context: Sequence[int], budget: int, minimum: float = 0.0) -> Tree:
        tree, self.chain = Tree.chain(self.chain), ()
        return tree


PLAIN = Policy(budget=12)


def writer(chain: Chain, drafter: RandomDrafter, policy: Policy = PLAIN, eos: Collection[int] = ()) -> Writer:
    return Writer(chain, drafter, FixedPolicy(policy), Largest(), eos)


def run(drafter, prompt, limit, segments=1, eos=(), policy=PLAIN):
    sequence = ToyEngine(segments).open_sequence(400)
    chain = Chain(sequence, [2] * segments)
    rounds = list(writer(chain, drafter, policy, eos).write(prompt, limit))
    return [t for r in rounds for t in r.tokens], chain, sequence, rounds


@st.composite
def policies(draw: st.DrawFn, exits: int) -> Policy:
    """Any way of using up to ``exits`` exits."""
    draft = draw(st.integers(-1, exits - 1))
    judge = draw(st.sampled_from([-1, *range(draft + 1, exits)]))
    return Policy(
        budget=draw(st.integers(0, 12)),
        draft_exit=draft,
        draft_tokens=draw(st.integers(1, 5)),
        judge_exit=judge,
        tentative=draw(st.integers(1, 8)),
        confidence=draw(st.sampled_from([0.0, 0.02, 0.3])),
        keep=draw(st.sampled_from([0.01, 0.1, 0.5, 1.0])),
        alternatives=draw(st.integers(0, 4)) if (draft, judge) != (-1, -1) else 0,
    )


@given(
    st.integers(0, 10_000), st.lists(st.integers(0, 4), min_size=1, max_size=9), st.integers(1, 3), st.integers(1, 40)
)
def test_any_drafter_writes_the_models_own_text(seed: int, prompt: list[int], segments: int, limit: int) -> None:
    plain, *_ = run(Nothing(0), prompt, limit, segments)
    drafted, chain, sequence, rounds = run(RandomDrafter(seed), prompt, limit, segments)
    assert drafted == plain and len(plain) == limit
    assert chain.arena.token[: chain.arena.settled].tolist() == [*prompt, *drafted][:-1]
    nodes = len(prompt) + sum(1 + len(r.tree) for r in rounds[1:])
    assert chain.work.layer_runs == 2 * segments * nodes == 2 * len(sequence.runs)


@given(st.data(), st.integers(0, 3), st.lists(st.integers(0, 4), min_size=1, max_size=5), st.integers(1, 40))
def test_any_policy_over_any_exits_writes_the_models_own_text(
    data: st.DataObject, exits: int, prompt: list[int], limit: int
) -> None:
    policy, seed = data.draw(policies(exits)), data.draw(st.integers(0, 1000))
    plain, *_ = run(Nothing(0), prompt, limit)
    drafted, chain, sequence, rounds = run(RandomDrafter(seed), prompt, limit, exits + 1, policy=policy)
    assert drafted == plain
    assert chain.arena.token[: chain.arena.settled].tolist() == [*prompt, *drafted][:-1]
    assert chain.work.layer_runs == 2 * len(sequence.runs)
    verified = sum(r.verified for r in rounds)
    assert sum(segment == exits for segment, _ in sequence.runs) == verified  # what an exit threw out got no further
    for round_ in rounds[1:]:
        assert max(round_.tree.depths(), default=0) < limit - sum(len(r.tokens) for r in rounds[: rounds.index(round_)])
        assert all(0.0 <= p <= 1.0 for p in round_.tree.probabilities)


def test_an_exit_that_judges_saves_layer_runs() -> None:
    """Two exits of three segments, right two times in three: fewer layers per token than drafting alone."""
    policy = Policy(budget=0, draft_exit=0, draft_tokens=2, judge_exit=1, tentative=4)
    _, plain, *_ = run(Nothing(0), [1], 200, 3)
    _, hispec, *_ = run(Nothing(0), [1], 200, 3, policy=policy)
    assert hispec.work.forwards < plain.work.forwards


@pytest.mark.parametrize("policy", [Policy(budget=0, draft_exit=0, draft_tokens=2), Policy(budget=0, judge_exit=0)])
def test_runners_up_of_an_exit_save_layer_passes(policy: Policy) -> None:
    """With all 13 tokens of the toy tried after each node of a path, a path never ends before its length."""
    policy = replace(policy, tentative=2)
    plain, without, *_ = run(Nothing(0), [1], 200, 2, policy=policy)
    tokens, chain, _, rounds = run(Nothing(0), [1], 200, 2, policy=replace(policy, alternatives=12))
    assert tokens == plain and chain.work.forwards < 0.8 * without.work.forwards
    assert chain.work.layer_passes < without.work.layer_passes
    assert all(len(round_.accepted) > 0 for round_ in rounds[1:-1])


def test_drafts_save_forwards() -> None:
    plain, chain, *_ = run(Nothing(0), [1], 40)
    drafted, drafted_chain, *_ = run(RandomDrafter(1), [1], 40)
    assert drafted == plain
    assert drafted_chain.work.forwards < chain.work.forwards == 39


def test_eos_inside_an_accepted_draft_ends_the_text_there() -> None:
    plain, *_ = run(Nothing(0), [1, 2], 30)
    place = next(i for i in range(2, 20) if plain[i] not in plain[:i])
    eos = plain[place]
    tokens, chain, *_ = run(Fixed(plain[1 : place + 4]), [1, 2], 30, eos={eos})
    assert tokens == plain[: place + 1]
    assert chain.arena.settled == 2 + len(tokens) - 1


def test_a_draft_longer_than_the_room_is_cut_to_it() -> None:
    plain, *_ = run(Nothing(0), [1, 2], 30)
    tokens, chain, *_ = run(Fixed(plain[1:9]), [1, 2], 4)
    assert tokens == plain[:4]
    assert chain.arena.settled == 2 + 4 - 1


def test_the_likeliest_path_needs_no_moves() -> None:
    plain, *_ = run(Nothing(0), [1, 2], 10)
    _, chain, *_ = run(Fixed(plain[1:9]), [1, 2], 10)
    assert chain.work.rows_moved == 0


def test_continuing_after_a_rewind_gives_the_same_text() -> None:
    plain, chain, *_ = run(Nothing(0), [1, 2, 3], 20)
    chain.arena.rewind(2)
    again = writer(chain, Nothing(0)).write([1, 2, 3], 20)
    assert [token for round_ in again for token in round_.tokens] == plain
