"""The blend and the baselines over the same levels: valid trees, right guesses, honest probabilities."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.databases.building import recycled_table
from foredraft.databases.database import Database
from foredraft.databases.log import LearnLog, read_log
from foredraft.drafters.blend.drafter import Blend
from foredraft.drafters.pools import Pools
from foredraft.drafters.protocol import Drafter
from foredraft.drafters.recycling import Recycling
from foredraft.drafters.suffix import Suffix
from foredraft.errors import RequestError
from foredraft.loop.tree import TIP, Tree
from tests.runtime.databases.made import IDENTITY, VOCAB, built, markov

TEXTS = st.lists(st.integers(0, VOCAB + 3), max_size=40)
Make = Callable[[], Drafter]


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> tuple[Database, Database]:
    folder = tmp_path_factory.mktemp("databases")
    table = recycled_table({token: [(token + 1) % VOCAB, 5] for token in range(VOCAB)}, VOCAB)
    model = built(folder / "m.fdb", [markov(500, 7)], "model", recycled=table)
    return model, built(folder / "c.fdb", [markov(5000, 8)])


def drafter(name: str, databases: tuple[Database, Database]) -> Drafter:
    model, corpus = databases
    made: dict[str, Make] = {
        "blend": lambda: Blend(VOCAB, None, model, corpus),
        "context": lambda: Blend(VOCAB, "context"),
        "reversed": lambda: Blend(VOCAB, "recycled,corpus,model,context", model, corpus),
        "pools": lambda: Pools(VOCAB, None, model, corpus),
        "suffix": lambda: Suffix(VOCAB, None, model, corpus),
        "recycling": lambda: Recycling(model),
    }
    return made[name]()


NAMES = ("blend", "context", "reversed", "pools", "suffix", "recycling")


def logits_of(tokens: list[int]) -> np.ndarray:
    logits = np.zeros((len(tokens), VOCAB), np.float32)
    logits[np.arange(len(tokens)), [token % VOCAB for token in tokens]] = 5.0
    return logits


def assert_valid(tree: Tree, drafter: Drafter, budget: int) -> None:
    assert len(tree) <= budget
    assert len(set(zip(tree.parents, tree.tokens, strict=True))) == len(tree)  # siblings differ
    for node, parent in enumerate(tree.parents):
        assert TIP <= parent < node
        assert 0 < tree.probabilities[node] <= (tree.probabilities[parent] if parent != TIP else 1.0)
        assert 0 <= tree.levels[node] < len(drafter.level_names)
        assert 0 <= tree.tokens[node] < VOCAB


def replay(drafter: Drafter, text: list[int], prompt: int, budget: int) -> tuple[float, list[tuple[float, bool]]]:
    """Tokens a round when ``text`` is what the model writes, and (probability, accepted) of the nodes."""
    drafter.begin(text[:prompt])
    place, rounds, outcomes = prompt, 0, list[tuple[float, bool]]()
    while place < len(text):
        tree = drafter.propose(text[:place], budget)
        assert_valid(tree, drafter, budget)
        depths, on_path, accepted = tree.depths(), {TIP}, 0
        for node, parent in enumerate(tree.parents):
            if place + depths[node] > len(text):
                continue
            hit = parent in on_path and text[place + depths[node] - 1] == tree.tokens[node]
            outcomes.append((tree.probabilities[node], hit))
            if hit:
                on_path.add(node)
                accepted += 1
        committed = text[place : place + accepted + 1]
        drafter.commit(committed, logits_of(committed) if drafter.wants_logits else None)
        place += len(committed)
        rounds += 1
    return (len(text) - prompt) / rounds, outcomes


@pytest.mark.parametrize("name", NAMES)
@given(prompt=TEXTS, more=st.lists(TEXTS, max_size=3), budget=st.integers(0, 20), data=st.data())
def test_trees_are_valid_whatever_the_text(
    databases: tuple[Database, Database],
    name: str,
    prompt: list[int],
    more: list[list[int]],
    budget: int,
    data: st.DataObject,
) -> None:
    tested, text = drafter(name, databases), list(prompt)
    tested.begin(prompt)
    for tokens in more:
        assert_valid(tested.propose(text, budget), tested, budget)
        beyond = data.draw(TEXTS)
        assert_valid(tested.propose(text + beyond, budget), tested, budget)  # a tentative path
        tested.commit(tokens, logits_of(tokens) if data.draw(st.booleans()) else None)
        text += tokens
        length = data.draw(st.integers(0, len(text)))
        tested.rewind(length)
        del text[length:]
    minimum = data.draw(st.floats(0.0, 1.0))
    tree = tested.propose(text, budget, minimum)
    assert_valid(tree, tested, budget)
    assert all(probability >= minimum for probability in tree.probabilities)


@pytest.mark.parametrize("name", ["pools", "suffix"])
@given(text=TEXTS, more=TEXTS, data=st.data())
def test_a_rewound_drafter_drafts_as_one_that_never_went_on(
    databases: tuple[Database, Database], name: str, text: list[int], more: list[int], data: st.DataObject
) -> None:
    length = data.draw(st.integers(0, len(text) + len(more)))
    kept = (text + more)[:length]
    gone_on, fresh = drafter(name, databases), drafter(name, databases)
    gone_on.begin(text)
    gone_on.commit(more, None)
    gone_on.rewind(length)
    fresh.begin(kept)
    assert gone_on.propose(kept, 16) == fresh.propose(kept, 16)


@pytest.mark.parametrize("name", ["context", "blend", "pools", "suffix"])
def test_a_text_that_repeats_is_found(databases: tuple[Database, Database], name: str) -> None:
    phrase = [int(token) for token in np.random.default_rng(3).permutation(VOCAB)[:20]]
    rate, _ = replay(drafter(name, databases), phrase * 6, 40, 16)
    assert rate > 3.0


@pytest.mark.parametrize(("levels", "least"), [("corpus", 1.7), ("model", 1.5), ("context,model,corpus,recycled", 1.8)])
def test_each_level_finds_what_it_knows(databases: tuple[Database, Database], levels: str, least: float) -> None:
    model, corpus = databases
    rate, _ = replay(Blend(VOCAB, levels, model, corpus), markov(600, 99), 5, 16)
    assert rate > least


def test_recycled_logits_are_used() -> None:
    blend = Blend(VOCAB, "recycled")
    text = [1, 2, 3, 4] * 30
    rate, _ = replay(blend, text, 4, 8)
    assert rate > 3.0
    assert replay(Recycling(), text, 4, 8)[0] > 3.0


def test_probabilities_are_honest(databases: tuple[Database, Database]) -> None:
    blend = Blend(VOCAB, None, *databases)
    replay(blend, markov(3000, 11), 5, 16)
    _, outcomes = replay(blend, markov(6000, 12), 5, 16)
    buckets = [[(p, hit) for p, hit in outcomes if 2.0**-b <= p < 2.0 ** (1 - b)] for b in range(1, 7)]
    buckets = [bucket for bucket in buckets if len(bucket) >= 200]
    assert len(buckets) >= 3
    for bucket in buckets:
        predicted, observed = sum(p for p, _ in bucket), sum(hit for _, hit in bucket)
        assert predicted == pytest.approx(observed, rel=0.25)


def test_levels_say_who_proposed_a_token(databases: tuple[Database, Database]) -> None:
    blend = Blend(VOCAB, "recycled,context", databases[0])
    blend.begin([1, 2, 9, 1])
    tree = blend.propose([1, 2, 9, 1], 8)
    levels = dict(zip(tree.tokens, tree.levels, strict=True))
    assert blend.level_names[levels[2]] in ("context", "recycled")
    assert blend.level_names[levels[5]] == "recycled"


def test_reset_and_a_new_sequence_leave_no_trace(databases: tuple[Database, Database]) -> None:
    used, fresh = Blend(VOCAB, None, *databases, learn=True), Blend(VOCAB, None, *databases)
    replay(used, markov(300, 5), 5, 16)
    used.reset()
    assert replay(used, markov(300, 6), 5, 16) == replay(fresh, markov(300, 6), 5, 16)


def test_learning_helps_the_next_sequence_and_is_logged(databases: tuple[Database, Database], tmp_path: Path) -> None:
    text = [int(token) for token in np.random.default_rng(4).integers(0, VOCAB, 60)]
    log = LearnLog(tmp_path / "a.log", IDENTITY)
    learning, plain = Blend(VOCAB, "context,model", *databases, learn=True, log=log), Blend(VOCAB, "context")
    replay(learning, text, 5, 8)
    again, _ = replay(learning, text, 5, 8)
    assert again > replay(plain, text, 5, 8)[0] + 1.0
    learning.finish()
    assert [record.tolist() for record in read_log(log.path, IDENTITY)] == [text[5:], text[5:]]


def test_levels_are_checked(databases: tuple[Database, Database]) -> None:
    assert Blend(VOCAB).level_names == ("context", "recycled")
    assert Blend(VOCAB, " corpus , context", None, databases[1]).level_names == ("corpus", "context")
    for levels, message in (
        ("contxt", "got 'contxt', expected some of context, model, corpus, recycled"),
        ("model", "'model' needs a database"),
        ("context,context", "each once"),
        ("", "got '', expected"),
    ):
        with pytest.raises(RequestError, match=message):
            Blend(VOCAB, levels)
    with pytest.raises(RequestError, match="got 'recycled', expected some of context, model, corpus"):
        Pools(VOCAB, "recycled")
