"""One sequence at a time from prompt to text: joins bundle, engine, drafter, sampling and text. Not thread-safe."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from foredraft import drafters
from foredraft.bundle import Bundle
from foredraft.databases.database import Database
from foredraft.databases.identity import identity_of
from foredraft.databases.log import LearnLog
from foredraft.databases.opening import open_databases
from foredraft.drafters.protocol import Drafter
from foredraft.engines.protocol import WINDOW, Engine
from foredraft.engines.select import EngineFields, open_engine
from foredraft.errors import RequestError
from foredraft.loop.chain import Chain
from foredraft.loop.generate import Writer
from foredraft.loop.rounds import Round
from foredraft.request import CheckedRequest, Request, RequestFields, context_of
from foredraft.result import Chunk, FinishReason, Result, Statistics
from foredraft.sampling.picking import make_picker
from foredraft.scheduling.auto import AutoScheduler
from foredraft.scheduling.measure import measured_costs
from foredraft.scheduling.parts import ForwardCosts
from foredraft.scheduling.policy import FixedPolicy, Policy, Scheduler, named
from foredraft.text import TextStream


class Session:
    """Writes texts with one model, one after the other. What a prompt shares with the text before it is not run again.

    ``drafter`` is a name (see ``foredraft.drafters``) or a Drafter, ``policy`` a name (see ``scheduling.policy.named``)
    or a Policy or Scheduler; ``engine`` may be shared by several sessions.
    """

    def __init__(
        self,
        bundle: Bundle,
        drafter: str | Drafter = drafters.DEFAULT,
        *,
        databases: Sequence[str | Path | Database] = (),
        levels: str | None = None,
        learn: str | Path | None = None,
        context: int | None = None,
        policy: str | Policy | Scheduler = "auto",
        engine: Engine | None = None,
        **engine_fields: Unpack[EngineFields],
    ) -> None:
        """``context`` limits prompt and answer together, in tokens (default: the model's own limit).

        Without an ``engine``, one is opened as ``threads``, ``lowering``, ``device`` and ``provider`` say: see
        ``foredraft.engines.select.open_engine``.

        ``databases`` are token databases to draft from besides the bundle's own; ``levels`` names those to use and
        their order; ``learn`` is a file that answers are appended to, and the model level learns from them at once.
        """
        manifest = bundle.manifest
        self.bundle = bundle
        self.context = context_of(bundle, context)
        self.drafter = drafter if not isinstance(drafter, str) else _drafter(bundle, drafter, databases, levels, learn)
        self.engine = engine or open_engine(bundle, **engine_fields)
        layers = [segment.last - segment.first for segment in manifest.segments]
        self.chain = Chain(self.engine.open_sequence(self.context + WINDOW), layers)
        self.level_names = (*self.drafter.level_names, *(f"exit-{layer}" for layer in manifest.exits))
        self.scheduler = self._scheduler(policy)

    def generate(self, prompt: str | Sequence[int] | None = None, **fields: Unpack[RequestFields]) -> Result:
        """The whole answer at once; arguments as for ``stream``."""
        for chunk in self.stream(prompt, **fields):
            result = chunk.result
        assert result is not None  # the last chunk of a stream carries it
        return result

    def stream(self, prompt: str | Sequence[int] | None = None, **fields: Unpack[RequestFields]) -> Iterator[Chunk]:
        """Write an answer to a prompt (text or token ids) or to chat messages, yielding it piece by piece.

        The arguments are those of ``Request``. Raises RequestError before anything runs if the request cannot be
        served.
        """
        return self.answer(self.check(Request(prompt, **fields)))

    def check(self, request: Request) -> CheckedRequest:
        """The request as ``answer`` takes it. Raises RequestError if it cannot be served."""
        return request.check(self.bundle, self.context)

    def encode(self, prompt: str | Sequence[int] | None = None, **fields: Unpack[RequestFields]) -> list[int]:
        """The token ids that a prompt or chat messages stand for; arguments as for ``stream``."""
        return Request(prompt, **fields).encode(self.bundle)

    def answer(self, request: CheckedRequest) -> Iterator[Chunk]:
        """Write the answer to a request that was checked, piece by piece."""
        prompt, eos = request.tokens, frozenset(self.bundle.manifest.tokenizer.eos_ids)
        answer = _Answer(TextStream(self.bundle.tokenizer, request.stop, prompt), eos)
        stats = self._begin(prompt)
        before = dataclasses.replace(self.chain.work)
        text, tokens, offsets, last = "", tuple[int, ...](), tuple[int, ...](), None
        with contextlib.closing(self._rounds(request, eos)) as rounds:
            for round_ in rounds:
                stats.add(round_, self.level_names)
                if round_.prompt:
                    before = dataclasses.replace(self.chain.work)  # what the prompt took is not counted
                text, tokens, offsets = answer.add(tuple(round_.tokens))
                if answer.finish_reason:
                    last = round_
                    break
                yield Chunk(text, tokens, round=round_, offsets=offsets)
                text, tokens, offsets = "", (), ()
        if answer.tokens:
            self.drafter.rewind(len(prompt) + len(answer.tokens))  # a stop string may have cut the last round
            self.drafter.finish()
        text += answer.finish()
        stats.tokens = len(answer.tokens)
        stats.layer_passes = self.chain.work.layer_passes - before.layer_passes
        stats.layer_runs = self.chain.work.layer_runs - before.layer_runs
        stats.rows_moved = self.chain.work.rows_moved - before.rows_moved
        result = Result(answer.text, answer.tokens, answer.finish_reason or "length", stats)
        yield Chunk(text, tokens, result, last, offsets)

    def _rounds(self, request: CheckedRequest, eos: frozenset[int]) -> Generator[Round, None, None]:
        if request.limit:
            pick = make_picker(request.sampling)
            writer = Writer(self.chain, self.drafter, self.scheduler, pick, eos, self.engine.trees)
            yield from writer.write(request.tokens, request.limit)

    def _scheduler(self, policy: str | Policy | Scheduler) -> Scheduler:
        if not isinstance(policy, str | Policy):
            return policy
        exits = len(self.bundle.manifest.exits)
        if policy == "auto":
            costs = measured_costs(self.bundle, self.engine)
            return AutoScheduler(costs if self.engine.trees else ForwardCosts(costs.whole))
        chosen = named(policy, exits) if isinstance(policy, str) else policy
        chosen.check(exits)
        if not self.engine.trees and chosen.uses_exits:
            raise RequestError(
                f"policy {policy!r}: drafting with exits needs an engine that is exact for trees, which "
                f"{self.engine.name} is not; use auto or fixed:N"
            )
        return FixedPolicy(chosen)

    def _begin(self, prompt: list[int]) -> Statistics:
        """Keep what the cache and the new prompt share; the last token is always run, for its logits."""
        arena = self.chain.arena
        shared = min(arena.settled, len(prompt) - 1)
        same = arena.token[:shared] == np.array(prompt[:shared], np.int32)
        kept = shared if same.all() else int(same.argmin())
        arena.rewind(kept)
        return Statistics(
            drafter=self.drafter.name,
            engine=self.engine.name,
            exact=self.engine.exact,
            threads=self.engine.threads,
            prompt_tokens=len(prompt),
            cached_tokens=kept,
        )


def _drafter(
    bundle: Bundle,
    name: str,
    databases: Sequence[str | Path | Database],
    levels: str | None,
    learn: str | Path | None,
) -> Drafter:
    settings: dict[str, Any] = dict(open_databases(bundle, databases))
    if levels is not None:
        settings["levels"] = levels
    if learn is not None:
        settings |= {"learn": True, "log": LearnLog(learn, identity_of(bundle.manifest))}
    return drafters.create(name, vocab_size=bundle.manifest.model.vocab_size, **settings)


class _Answer:
    """The answer so far: its text and tokens, cut at the same place, and why it ended."""

    def __init__(self, stream: TextStream, eos: frozenset[int]) -> None:
        self.text = ""
        self.tokens: list[int] = []
        self.finish_reason: FinishReason | None = None
        self._stream = stream
        self._eos = eos

    def add(self, tokens: tuple[int, ...]) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
        """Take a round's tokens; returns the text that is safe to show, the tokens that were kept and their offsets."""
        update = self._stream.push(tokens)
        kept = tokens[: update.kept]
        if update.stopped:
            self.finish_reason = "stop"
        elif kept and kept[-1] in self._eos:
            self.finish_reason = "eos"
        self.text += update.text
        self.tokens += kept
        return update.text, kept, update.offsets

    def finish(self) -> str:
        """The text that was held back, now that nothing can follow."""
        rest = self._stream.finish()
        self.text += rest
        return rest
