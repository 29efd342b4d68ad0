"""The middle of the loop: exits of the model draft, and judge what was drafted, before the whole model verifies.

HiSpec (arXiv 2510.01336) with drafts of any origin: a node runs through the layers up to the exit once, and goes on
from its hidden state when it is verified. What an exit says decides how far a node gets, never what the text is.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np

from foredraft.loop.chain import Chain
from foredraft.loop.draft import Draft
from foredraft.loop.rounds import Choice, Opinion
from foredraft.loop.tree import TIP, Tree
from foredraft.sampling.logits import Row, Rows, log_total, logit
from foredraft.scheduling.policy import Policy


class Pick(Protocol):
    """Chooses the token at ``position`` after the tokens ``path``, from a row of logits."""

    def __call__(self, logits: Row, position: int, path: Sequence[int], /) -> int:
        """The token."""
        ...

    def ranked(self, logits: Row, position: int, path: Sequence[int], count: int, /) -> list[tuple[int, float]]:
        """The same, then up to ``count - 1`` runner-ups, best first, each with its score."""
        ...


def write_drafts(
    chain: Chain, draft: Draft, pick: Pick, policy: Policy, room: int, level: int, eos: Collection[int]
) -> list[Opinion]:
    """The draft exit writes up to ``room`` tokens under the tip, one after the other, and the tip follows.

    The last one has not been through any layer yet; the others have been up to the exit.
    """
    opinions: list[Opinion] = []
    for _ in range(min(policy.draft_tokens, room)):
        chain.advance(draft.slots([draft.tip]), policy.draft_exit + 1)
        opinion = _opinion(
            chain.exit_logits(np.zeros(1, np.int32))[0], draft, pick, policy.draft_exit, policy.alternatives
        )
        opinions.append(opinion)
        if opinion.token in eos:
            break
        draft.step(draft.add(Tree([opinion.token], [TIP], [opinion.confidence], [level]))[0])
    return opinions


def judge(
    chain: Chain, draft: Draft, pick: Pick, policy: Policy, base: int, nodes: Sequence[int], eos: Collection[int]
) -> tuple[list[Opinion], list[int]]:
    """Run ``base`` and the ``nodes`` drafted below it up to the judging exit; the tip moves to the end of its path.

    Returns the exit's opinions along that path (the last one is its own next token, which no draft foresaw), and the
    nodes off the path that it holds probable enough to be verified too.
    """
    judged = [base, *nodes]
    chain.advance(draft.slots(judged), policy.judge_exit + 1)
    logits = chain.exit_logits(np.arange(len(judged), dtype=np.int32))
    row_of = {node: row for row, node in enumerate(judged)}
    draft.back(base)
    opinions: list[Opinion] = []
    while True:
        opinion = _opinion(logits[row_of[draft.tip]], draft, pick, policy.judge_exit, policy.alternatives)
        opinions.append(opinion)
        following = draft.child(draft.tip, opinion.token)
        if following is None or opinion.token in eos:
            break
        draft.step(following)
    path = {opinion.node for opinion in opinions}
    return opinions, _survivors(draft.tree, logits, row_of, path, policy.keep)


def look(chain: Chain, draft: Draft, pick: Pick, policy: Policy, nodes: Sequence[int]) -> Opinion:
    """Run ``nodes``, the root first, up to an exit, and ask what it says after the root. The tip must be the root."""
    chain.advance(draft.slots(nodes), policy.look_exit + 1)
    return _opinion(chain.exit_logits(np.zeros(1, np.int32))[0], draft, pick, policy.look_exit, policy.alternatives)


def widen(draft: Draft, path: Sequence[Opinion], widths: Sequence[int], level: int, depth: int) -> list[int]:
    """Hang an exit's first choices under the nodes of its path, down to ``depth``, while the window has room.

    ``path`` are its opinions from the tip of that time down, and ``widths`` how many choices of each are wanted.
    Returns the path's children that hold one of them, those that were there already included.
    """
    nodes: list[int] = []
    for opinion, width in zip(path[:depth], widths, strict=False):
        for choice in opinion.choices[:width]:
            node = draft.child(opinion.node, choice.token)
            if node is None and draft.room:
                (node,) = draft.add(Tree([choice.token], [TIP], [choice.probability], [level]), opinion.node)
            if node is not None:
                nodes.append(node)
    return nodes


def _opinion(row: Row, draft: Draft, pick: Pick, exit_: int, others: int) -> Opinion:
    """After the tip, with so many runner-ups."""
    ranked, total = pick.ranked(row, len(draft.context), draft.context, 1 + others), log_total(row)
    return Opinion(
        draft.tip, exit_, tuple([Choice(token, logit(row, token) - total, score) for token, score in ranked])
    )


def _survivors(tree: Tree, logits: Rows, row_of: dict[int, int], path: set[int], keep: float) -> list[int]:
    """Judged nodes off the path whose probability under the exit, given the path above, is at least ``keep``.

    ``row_of`` are their rows in ``logits``, the node that all hang under first.
    """
    if keep >= 1.0:
        return []
    probability = dict.fromkeys(path, 1.0)
    survivors = []
    for node in list(row_of)[1:]:
        parent = tree.parents[node]
        if node in path or parent not in probability:
            continue
        row = logits[row_of[parent]]
        here = probability[parent] * math.exp(logit(row, tree.tokens[node]) - log_total(row))
        if here >= keep:
            probability[node] = here
            survivors.append(node)
    return survivors
