"""What a generation returns: text, tokens, why it ended, and what it cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from foredraft.loop.rounds import Round

FinishReason = Literal["stop", "length", "eos"]
"""A stop string appeared; ``max_tokens`` or the context was used up; the model ended the text."""


@dataclass(slots=True)
class Statistics:
    """Counts and times (seconds) of one generation.

    ``tokens`` are those of the answer; ``cached_tokens`` of the prompt were still in the cache; ``rounds`` forwards
    through the whole model after the prompt; ``drafted`` and ``accepted`` count draft tokens; ``levels`` maps a level's
    name to its (drafted, accepted); ``accepted_counts`` maps a number of accepted drafts to the rounds that had it.
    After the prompt, ``layer_passes`` counts how often a layer's weights were read, ``layer_runs`` the same times the
    nodes that went through it (exactly one for each node and layer), ``rows_moved`` the slots that were closed up.
    ``tokens_per_forward`` leaves out the first token, which the prompt's own forward gives. ``exact`` is False if the
    engine rounds a node's numbers differently with other nodes beside it, so that drafts may change a near tie.
    """

    drafter: str = ""
    engine: str = ""
    exact: bool = True
    threads: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    layer_passes: int = 0
    layer_runs: int = 0
    rows_moved: int = 0
    seconds_prefill: float = 0.0
    seconds_draft: float = 0.0
    seconds_verify: float = 0.0
    levels: dict[str, tuple[int, int]] = field(default_factory=dict)
    accepted_counts: dict[int, int] = field(default_factory=dict)

    def add(self, round_: Round, level_names: Sequence[str]) -> None:
        """Count a round; the prompt's own counts for nothing but its time."""
        if round_.prompt:
            self.seconds_prefill += round_.seconds_verify
            return
        self.rounds += 1
        self.drafted += len(round_.tree)
        self.accepted += len(round_.accepted)
        self.seconds_draft += round_.seconds_draft
        self.seconds_verify += round_.seconds_verify
        self.accepted_counts[len(round_.accepted)] = self.accepted_counts.get(len(round_.accepted), 0) + 1
        accepted = set(round_.accepted)
        for node, level in enumerate(round_.tree.levels):
            drafted, taken = self.levels.get(level_names[level], (0, 0))
            self.levels[level_names[level]] = (drafted + 1, taken + (node in accepted))

    @property
    def seconds_decode(self) -> float:
        """Time after the first token."""
        return self.seconds_draft + self.seconds_verify

    @property
    def tokens_per_second(self) -> float:
        """Decoding speed: tokens after the first over the time after the first."""
        return (self.tokens - 1) / self.seconds_decode if self.tokens > 1 and self.seconds_decode else 0.0

    @property
    def tokens_per_forward(self) -> float:
        return (self.tokens - 1) / self.rounds if self.rounds else 0.0

    def to_json(self) -> dict[str, Any]:
        """All fields and derived figures as plain JSON values."""
        values: dict[str, Any] = dataclasses.asdict(self)
        levels: Mapping[str, tuple[int, int]] = self.levels
        values["levels"] = {name: {"drafted": d, "accepted": a} for name, (d, a) in levels.items()}
        for name in ("seconds_decode", "tokens_per_second", "tokens_per_forward"):
            values[name] = getattr(self, name)
        return values


@dataclass(frozen=True, slots=True)
class Result:
    """A finished answer. ``tokens`` and ``text`` are cut at the same place.

    ``text`` goes on where the prompt's ends: together they are the text of all tokens, with the space that some
    decoders strip from the beginning of a text. A character at the end whose last bytes are missing is left out.
    """

    text: str
    tokens: list[int]
    finish_reason: FinishReason
    stats: Statistics


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a streamed answer: its new text (maybe empty while it could still become a stop string) and tokens.

    The last chunk carries the whole ``result``. ``round`` is what the tokens came from; of its tokens, ``tokens`` may
    be only the first. A last chunk without tokens has none. ``offsets`` are the places of the tokens' first characters
    in the answer's text; of tokens that share a character or have none, see ``foredraft.text.StreamUpdate``.
    """

    text: str
    tokens: tuple[int, ...]
    result: Result | None = None
    round: Round | None = None
    offsets: tuple[int, ...] = ()
