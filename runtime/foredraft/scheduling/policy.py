"""How a round goes: how much is drafted, and which exits of the model look at it before the whole model does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from foredraft.errors import RequestError
from foredraft.loop.tree import Tree

if TYPE_CHECKING:
    from foredraft.loop.rounds import Opinion, Round

NO_EXIT = -1


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings of one round of the loop; all published schemes are values of these fields.

    Exits are numbered from 0 (the end of the first segment); ``NO_EXIT`` leaves that part of the loop out.
    """

    budget: int = 8
    """Most nodes that the drafter is asked for at a time; 0: it is not asked."""
    minimum: float = 0.0
    """Smallest path probability of a drafted node."""
    draft_exit: int = NO_EXIT
    """This exit writes drafts of its own where the drafter has none."""
    draft_tokens: int = 0
    """How many of them, one after the other."""
    judge_exit: int = NO_EXIT
    """This exit keeps the path that it agrees with, adds its own next token, and drafting goes on from there."""
    tentative: int = 0
    """The whole model verifies once the tentative path has this many tokens."""
    confidence: float = 0.0
    """... or once the product of the judge's probabilities along the path falls below this."""
    look_exit: int = NO_EXIT
    """This exit is only asked what it would have said after the text's last token; nothing comes of it."""
    keep: float = 1.0
    """Branches off the judge's path are verified too if their probability under the judge is at least this."""
    alternatives: int = 0
    """So many runner-ups of the exit after each node of its path are verified too, and what it said after the last."""

    @property
    def uses_exits(self) -> bool:
        """Whether an exit drafts or judges."""
        return (self.draft_exit, self.judge_exit) != (NO_EXIT, NO_EXIT)

    def check(self, exits: int) -> None:
        """Refuse an exit that the bundle does not have, and settings that contradict each other."""
        for name in ("draft_exit", "judge_exit", "look_exit"):
            value = getattr(self, name)
            if not NO_EXIT <= value < exits:
                has = f"exits 0 to {exits - 1}" if exits else "no exits; export it with --exits"
                raise RequestError(f"policy: {name} is {value}, this bundle has {has}")
        if self.draft_exit != NO_EXIT and self.draft_tokens < 1:
            raise RequestError(f"policy: draft_tokens is {self.draft_tokens}, an exit that drafts needs at least 1")
        if self.judge_exit != NO_EXIT and self.tentative < 1:
            raise RequestError(f"policy: tentative is {self.tentative}, an exit that judges needs at least 1")
        asked = self.uses_exits or self.look_exit != NO_EXIT
        if self.alternatives < 0 or (self.alternatives and not asked):
            expected = "0 or more" if asked else "0 where no exit drafts or judges"
            raise RequestError(f"policy: alternatives is {self.alternatives}, expected {expected}")
        if NO_EXIT < self.judge_exit <= self.draft_exit:
            raise RequestError(f"policy: exit {self.judge_exit} cannot judge what exit {self.draft_exit} drafts")


class Scheduler(Protocol):
    """Decides, round by round, how the loop goes. It can never change the text."""

    def plan(self) -> Policy:
        """The next round's policy."""
        ...

    def choose(self, tree: Tree) -> int:
        """How many nodes of a proposed tree (likeliest first) are worth running."""
        ...

    def go_on(self, round_: Round, depth: int) -> bool:
        """After a judgement: draft on from the tentative path of ``depth`` tokens, or verify it now?"""
        ...

    def widths(self, path: Sequence[Opinion], judged: bool) -> list[int]:
        """After each node of an exit's path, how many of its choices to add: the first is its own token.

        Not ``judged`` is a path that the exit wrote itself: what is added then takes no further pass.
        """
        ...

    def observe(self, round_: Round) -> None:
        """Learn from a finished round."""
        ...


class FixedPolicy:
    """Every round the same."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def plan(self) -> Policy:
        return self.policy

    def choose(self, tree: Tree) -> int:
        return len(tree)

    def go_on(self, round_: Round, depth: int) -> bool:
        """``depth`` counts the tokens before the judge's own, which makes one more."""
        confidence = 1.0
        for opinion in round_.opinions:
            if opinion.exit == self.policy.judge_exit:
                confidence *= opinion.confidence
        return depth + 1 < self.policy.tentative and confidence >= self.policy.confidence

    def widths(self, path: Sequence[Opinion], judged: bool) -> list[int]:
        return [1 + self.policy.alternatives if self.policy.alternatives else 0] * len(path)

    def observe(self, round_: Round) -> None:
        """Nothing to learn."""


def named(name: str, exits: int) -> Policy:
    """A policy by name: ``fixed:N`` (N nodes, no exits), or one of the published schemes with its usual settings.

    ``self-spec`` (LayerSkip), ``hispec`` and ``echo`` take settings, as in ``hispec:draft_tokens=2,tentative=4``; the
    last two as published are those with ``alternatives=0``.
    Raises RequestError for a name or setting that does not exist, or exits that the bundle lacks.
    """
    kind, _, settings = name.partition(":")
    if kind == "fixed" and settings.isdecimal():
        return Policy(budget=int(settings))
    schemes = {
        "tree": Policy(budget=8),
        "self-spec": Policy(budget=0, draft_exit=max(exits - 1, 0), draft_tokens=4),
        "hispec": Policy(budget=0, draft_exit=0, draft_tokens=2, judge_exit=1, tentative=4, alternatives=3),
        "echo": Policy(budget=8, judge_exit=max(exits - 1, 0), tentative=5, alternatives=3),
    }
    if kind not in schemes:
        raise RequestError(f"policy: got {name!r}, expected auto, fixed:N, {', '.join(schemes)}")
    policy = _with_settings(schemes[kind], settings, name)
    policy.check(exits)
    return policy


def _with_settings(policy: Policy, settings: str, name: str) -> Policy:
    for part in filter(None, settings.split(",")):
        key, equals, value = part.partition("=")
        if not equals or key not in Policy.__slots__:
            raise RequestError(f"policy {name!r}: no setting {key!r}; settings are {', '.join(Policy.__slots__)}")
        try:
            number = type(getattr(policy, key))(value)
        except ValueError:
            raise RequestError(f"policy {name!r}: {key}={value!r} is not a number") from None
        policy = replace(policy, **{key: number})
    return policy
