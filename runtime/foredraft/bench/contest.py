"""What is compared: several drafters under one policy, or several policies with one drafter; and how each is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from foredraft.bench.comparison import BASELINE, Kind
from foredraft.bench.hardware import Hardware
from foredraft.bench.simulate import Elsewhere
from foredraft.bundle import Bundle
from foredraft.engines.protocol import Engine
from foredraft.errors import RequestError
from foredraft.scheduling.policy import Scheduler, named
from foredraft.session import Session

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Rig:
    """What all sessions of a comparison share."""

    bundle: Bundle
    engine: Engine
    databases: Sequence[Path] = ()
    levels: str | None = None

    def open(self, drafter: str, policy: str | Scheduler) -> Session:
        """A new session."""
        if drafter == BASELINE:
            return Session(self.bundle, BASELINE, engine=self.engine, policy=policy)
        own = self.levels if drafter == "blend" else None
        return Session(self.bundle, drafter, engine=self.engine, policy=policy, databases=self.databases, levels=own)

    def asks_drafter(self, policy: str) -> bool:
        """Does the policy ever ask its drafter?"""
        return policy == AUTO or named(policy, self.exits).budget > 0

    def check(self, policies: Iterable[str]) -> None:
        """Refuse a policy that does not exist, or whose exits the bundle lacks, before anything runs."""
        for policy in policies:
            if policy != AUTO:
                named(policy, self.exits)

    @property
    def exits(self) -> int:
        return len(self.bundle.manifest.exits)

    @property
    def layers(self) -> list[int]:
        """Of each segment."""
        return [segment.last - segment.first for segment in self.bundle.manifest.segments]


@dataclass(frozen=True, slots=True)
class Contest:
    """The names that are compared, how each one's session is opened, and what they have in common, in words."""

    kind: Kind
    names: tuple[str, ...]
    open_session: Callable[[str], Session]
    settings: str


def between_drafters(rig: Rig, drafters: Sequence[str], policy: str) -> Contest:
    """All under one policy; plain decoding has none."""
    rig.check([policy])

    def open_session(name: str) -> Session:
        return rig.open(name, "fixed:0" if name == BASELINE else policy)

    return Contest("drafter", tuple(drafters), open_session, f"policy {policy}")


def between_policies(rig: Rig, policies: Sequence[str], drafter: str, elsewhere: Hardware | None = None) -> Contest:
    """All with one drafter, which is left out where it is never asked.

    With hardware to simulate, ``auto`` is there twice: as it decides here, and as it would decide there.
    """
    rig.check(policies)
    names = dict.fromkeys(policies)
    planned = f"{AUTO}@{elsewhere.name}" if elsewhere and AUTO in names else None

    def open_session(name: str) -> Session:
        if name == BASELINE:
            return rig.open(BASELINE, "fixed:0")
        if name == planned and elsewhere:
            return rig.open(drafter, Elsewhere(len(rig.layers), elsewhere.times(rig.layers), elsewhere.host))
        return rig.open(drafter if rig.asks_drafter(name) else BASELINE, name)

    return Contest("policy", (*names, *([planned] if planned else [])), open_session, f"drafter {drafter}")


def split_names(text: str) -> list[str]:
    """Names between commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def split_policies(texts: Iterable[str]) -> list[str]:
    """Policies between commas. A part like ``tentative=4`` is one more setting of the policy before it.

    Raises RequestError for a setting that no policy stands before.
    """
    policies: list[str] = []
    for text in texts:
        for place, part in enumerate(split_names(text)):
            if "=" not in part or ":" in part:
                policies.append(part)
            elif place and ":" in policies[-1]:
                policies[-1] += f",{part}"
            else:
                raise RequestError(f"policies: {part!r} is a setting; write it after its policy, as in hispec:{part}")
    return policies


def one_drafter(drafters: Sequence[str], policies: Sequence[str], default: str) -> str:
    """The drafter that ``policies`` are compared with; RequestError if there are several to choose from."""
    chosen = [name for name in drafters if name != BASELINE] or [BASELINE if drafters else default]
    if len(chosen) > 1:
        raise RequestError(
            f"bench: {len(policies)} policies and {len(chosen)} drafters; compare policies with one drafter "
            "(--drafters NAME), or drafters under one policy (--policy NAME)"
        )
    return chosen[0]
