"""The loop: draft, judge, verify, commit. Knows nothing of text, files or where drafts come from.

The law of acceptance: at each node the model's own next token is ``pick(logits, position, path)``; a drafted child is
accepted if and only if it is that token. So a drafter, an exit or a policy can change how fast a text is written, never
the text.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass

from foredraft.drafters.protocol import Drafter
from foredraft.loop.chain import Chain
from foredraft.loop.draft import Draft
from foredraft.loop.exits import Pick, judge, look, widen, write_drafts
from foredraft.loop.rounds import Opinion, Round
from foredraft.loop.tree import TIP, Tree
from foredraft.sampling.logits import Row, Rows
from foredraft.scheduling.policy import NO_EXIT, Scheduler


@dataclass(frozen=True, slots=True)
class Writer:
    """Everything that a text is written with. ``eos`` are the tokens that end one."""

    chain: Chain
    drafter: Drafter
    scheduler: Scheduler
    pick: Pick
    eos: Collection[int]
    trees: bool = True
    """False: the engine is exact for single paths only, so nothing else is drafted."""

    def write(self, prompt: Sequence[int], limit: int) -> Generator[Round, None, None]:
        """Yield rounds until an EOS token or ``limit`` tokens have been written; close the generator to stop earlier.

        ``prompt`` is the whole text so far; what of it the chain has already settled is not run again. The first round
        is the prompt's own forward. After each, the chain's settled text is the text without its last token. A round's
        ``rows`` are there until the next one is asked for.
        """
        text = list(prompt)
        self.drafter.begin(text)
        started = time.perf_counter()
        self.chain.take_forwards()
        logits: Sequence[Row] = [*self.chain.prefill(text[self.chain.arena.settled :])]
        round_ = Round(prompt=True, tokens=[self.pick(logits[0], len(text), text)], verified=len(prompt))
        while True:
            picked = time.perf_counter()
            self.drafter.commit(round_.tokens, logits if self.drafter.wants_logits else None)
            text += round_.tokens
            limit -= len(round_.tokens)
            round_.forwards, round_.rows = self.chain.take_forwards(), logits
            now = time.perf_counter()
            round_.seconds_verify = now - started - round_.seconds_draft
            round_.seconds_learn = now - picked
            if not round_.prompt:
                self.scheduler.observe(round_)
            yield round_
            round_.rows = ()
            if limit <= 0 or text[-1] in self.eos:
                return
            started = time.perf_counter()
            round_, logits = self._round(text, limit - 1)

    def _round(self, text: list[int], depth: int) -> tuple[Round, Sequence[Row]]:
        """Draft at most ``depth`` deep, let exits judge as the policy says, verify what is left, commit what is right.

        Returns the round and the rows of logits that chose its tokens, valid until the engine runs again.
        """
        round_, draft, alive = Round(self.scheduler.plan()), Draft(self.chain.arena, text), [TIP]
        passes = self.chain.work.layer_passes
        while True:
            base, nodes = draft.tip, self._grow(draft, round_, depth - draft.depth)
            if round_.policy.judge_exit == NO_EXIT:
                alive += nodes
                if round_.policy.look_exit != NO_EXIT and draft.tip == TIP:
                    round_.opinions.append(look(self.chain, draft, self.pick, round_.policy, alive))
                break
            opinions, branches = judge(self.chain, draft, self.pick, round_.policy, base, nodes, self.eos)
            round_.opinions += opinions
            round_.judgements += 1
            alive += sorted({opinion.node for opinion in opinions[1:]}.union(branches))
            own = opinions[-1]
            full = draft.depth >= depth or not draft.room
            if own.token in self.eos or full or not self.scheduler.go_on(round_, draft.depth):
                break
            (tip,) = draft.add(Tree([own.token], [TIP], [own.confidence], [self._level(own.exit)]))
            draft.step(tip)
            alive.append(tip)
        if round_.policy.judge_exit != NO_EXIT:
            judged = [opinion for opinion in round_.opinions if opinion.exit == round_.policy.judge_exit]
            alive = sorted({*alive, *self._widen(draft, judged, depth, judged=True)})
        logits = self.chain.verify(draft.slots(alive))
        path, rows = self._accept(draft, logits, {node: row for row, node in enumerate(alive)}, round_, text)
        self.chain.commit(draft.slots(path).tolist())
        round_.tree, round_.accepted, round_.verified = draft.tree, path[1:], len(alive)
        round_.layer_passes = self.chain.work.layer_passes - passes
        return round_, rows

    def _grow(self, draft: Draft, round_: Round, room: int) -> list[int]:
        """Hang the drafter's tree under the tip, or where it has none, what the draft exit writes -> the nodes."""
        started, first, policy = time.perf_counter(), len(draft.tree), round_.policy
        budget = min(policy.budget, draft.room)
        if budget > 0 and room > 0:
            tree = self.drafter.propose(draft.context, budget, policy.minimum)
            tree = tree if self.trees else tree.likeliest_path()
            draft.add(tree.trimmed(min(budget, self.scheduler.choose(tree)), room).likeliest_first())
        round_.seconds_draft += time.perf_counter() - started
        if len(draft.tree) == first and policy.draft_exit != NO_EXIT:
            level = self._level(policy.draft_exit)
            written = write_drafts(self.chain, draft, self.pick, policy, min(room, draft.room), level, self.eos)
            if written:
                self._widen(draft, written, room, judged=False)
            round_.opinions += written
        return list(range(first, len(draft.tree)))

    def _widen(self, draft: Draft, path: Sequence[Opinion], depth: int, judged: bool) -> list[int]:
        """Add what an exit held likely beside its path, at most ``depth`` deep from its first node -> those nodes."""
        return widen(draft, path, self.scheduler.widths(path, judged), self._level(path[0].exit), depth)

    def _accept(
        self, draft: Draft, logits: Rows, row_of: dict[int, int], round_: Round, text: Sequence[int]
    ) -> tuple[list[int], list[Row]]:
        """Follow the model's own tokens down the verified nodes, ``row_of`` them in ``logits`` -> the path whose logits
        chose them, root first, and these.
        """
        path, full, rows = [TIP], list(text), list[Row]()
        while True:
            rows.append(logits[row_of[path[-1]]])
            token = self.pick(rows[-1], len(full), full)
            round_.tokens.append(token)
            full.append(token)
            node = draft.child(path[-1], token)
            if node is None or node not in row_of or token in self.eos:
                return path, rows
            path.append(node)

    def _level(self, exit_: int) -> int:
        """Exits count as levels after the drafter's own."""
        return len(self.drafter.level_names) + exit_
