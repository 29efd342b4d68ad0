"""The loop: draft, verify, commit. Knows nothing of text, files or where drafts come from.

The law of acceptance: at each node the model's own next token is ``pick(logits, position, path)``; a drafted child is
accepted if and only if it is that token. So a drafter can change how fast a text is written, never the text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, field

from foredraft.chain import Chain
from foredraft.drafters.base import Drafter
from foredraft.engines.base import Float32
from foredraft.tree import TIP, Tree

Pick = Callable[[Float32, int, Sequence[int]], int]
"""``pick(logits [vocab], position, path)`` -> the model's own token at ``position`` after the tokens ``path``."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one round added to the text: accepted drafts, then the model's own next token. Times are in seconds."""

    tokens: tuple[int, ...]
    tree: Tree = field(default_factory=Tree)
    accepted: tuple[int, ...] = ()
    """Indices of the tree's accepted nodes, along the path."""
    seconds_draft: float = 0.0
    seconds_verify: float = 0.0


def write(
    chain: Chain,
    drafter: Drafter,
    pick: Pick,
    prompt: Sequence[int],
    limit: int,
    budget: int,
    eos: Collection[int],
) -> Generator[Round, None, None]:
    """Yield rounds until an ``eos`` token or ``limit`` tokens have been written; close the generator to stop earlier.

    ``prompt`` is the whole text so far; what of it the chain has already settled is not run again. ``budget`` is the
    largest tree. After each round the chain's settled text is the text without its last token.
    """
    text = list(prompt)
    drafter.begin(text)
    started = time.perf_counter()
    logits = chain.prefill(text[chain.arena.settled :])
    tokens, path = _accept(Tree(), logits, text, pick, eos)
    tree, drafted = Tree(), started
    while True:
        drafter.commit(tokens, logits[[node + 1 for node in path]] if drafter.wants_logits else None)
        text += tokens
        limit -= len(tokens)
        yield Round(tuple(tokens), tree, tuple(path[1:]), drafted - started, time.perf_counter() - drafted)
        if limit <= 0 or tokens[-1] in eos:
            return
        started = time.perf_counter()
        tree = drafter.propose(text, budget).trimmed(budget, limit - 1).likeliest_first()
        drafted = time.perf_counter()
        tip = chain.arena.used
        slots = chain.arena.extend(
            [text[-1], *tree.tokens], [tip - 1, *(tip + 1 + parent for parent in tree.parents)]
        )
        logits = chain.verify(slots)
        tokens, path = _accept(tree, logits, text, pick, eos)
        chain.commit([tip + 1 + node for node in path])


def _accept(
    tree: Tree, logits: Float32, text: Sequence[int], pick: Pick, eos: Collection[int]
) -> tuple[list[int], list[int]]:
    """The tokens the model itself writes next, and the path of nodes (tip first) whose logits chose them.

    ``logits[0]`` is the tip's row, ``logits[i + 1]`` that of node i.
    """
    child = {
        (parent, token): node
        for node, (parent, token) in enumerate(zip(tree.parents, tree.tokens, strict=True))
    }
    path, tokens, full = [TIP], [], list(text)
    while True:
        token = pick(logits[path[-1] + 1], len(full), full)
        tokens.append(token)
        full.append(token)
        node = child.get((path[-1], token))
        if node is None or token in eos:
            return tokens, path
        path.append(node)
