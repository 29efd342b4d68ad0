"""A bundle against the model that it was made from, segment by segment. Knows nothing of the command line.

Both sides read the same tokens. What is compared at every exit is the readout (the normed hidden state that
the head gets) and the logits that the one shared head makes of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foredraft.bundle import Bundle
from foredraft.engines.onnxruntime import OnnxRuntimeEngine
from foredraft.engines.protocol import WINDOW, Engine
from foredraft.errors import ForedraftError
from foredraft.loop.arena import Arena
from foredraft.sampling.logits import dense
from foredraft_exporter import models
from foredraft_exporter.parity.limits import Limits, limits_for
from foredraft_exporter.parity.samples import Sample, default_text, plan_samples
from foredraft_exporter.parity.tally import Difference, Perplexity, Tally
from foredraft_exporter.parity.torch_reference import TorchReference, load_reference, require_libraries
from foredraft_exporter.sources.checkpoint import Checkpoint, open_checkpoint

Float32 = NDArray[np.float32]
Progress = Callable[[int, int, str], None]
"""``(done, total, what)``"""


@dataclass(frozen=True, slots=True)
class ParityReport:
    """What was measured. ``failures``: one sentence each, the gravest first; none if all is well."""

    bundle: str
    source: str
    engine: str
    threads: int
    precision: str
    limits: Limits
    context: int
    longest: int
    note: str | None
    differences: tuple[Difference, ...]
    perplexity: Perplexity
    failures: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.failures

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; a number that is NaN or infinite becomes None."""
        values = {**asdict(self), "passed": self.passed}
        values["perplexity"]["ratio"] = self.perplexity.ratio
        return {key: _finite(value) for key, value in values.items()}


def check(
    bundle: Bundle,
    source: str | Path,
    *,
    text: str | None = None,
    lowering: str = "auto",
    threads: int | None = None,
    longest: int | None = None,
    progress: Progress | None = None,
) -> ParityReport:
    """Compare ``bundle`` with the checkpoint ``source`` (as ``export`` takes it) on the CPU.

    ``text`` is what both read (default: a page that comes with the exporter); ``longest`` is the length of
    the longest sequence (default: the context limit, or what takes some seconds); ``threads`` are each
    side's, and become torch's own setting. Raises ForedraftError or one of its kinds before anything is
    computed if torch is missing, or source and bundle are not of the same model.
    """
    require_libraries()
    checkpoint = open_checkpoint(source)
    check_same_model(bundle, checkpoint)
    context = bundle.manifest.model.context
    limits = limits_for(bundle, checkpoint, models.decoder(checkpoint.info.config, context))
    plan = plan_samples(bundle, default_text() if text is None else text, longest)
    engine = OnnxRuntimeEngine(bundle, threads, lowering)
    reference = load_reference(checkpoint, context, engine.threads, progress)
    differences, perplexity = compare(bundle, engine, reference, plan.samples, progress)
    return ParityReport(
        bundle=str(bundle.path),
        source=str(source),
        engine=engine.name,
        threads=engine.threads,
        precision=bundle.manifest.precision,
        limits=limits,
        context=context,
        longest=plan.longest,
        note=plan.note,
        differences=differences,
        perplexity=perplexity,
        failures=tuple(find_failures(differences, perplexity, limits)),
    )


def check_same_model(bundle: Bundle, checkpoint: Checkpoint) -> None:
    """Raises ``ForedraftError`` that lists every size in which source and bundle differ."""
    model, config = bundle.manifest.model, checkpoint.info.config
    decoder = models.decoder(config, min(model.context, config.whole("max_position_embeddings")))
    names = ("layers", "hidden_size", "intermediate_size", "heads", "kv_heads", "head_dim", "vocab_size")
    pairs = [(name, getattr(model, name), getattr(decoder, name)) for name in names]
    pairs.insert(0, ("architecture", model.architecture, models.architecture_of(config).model_type))
    wrong = [f"{name} {ours}, not {theirs}" for name, ours, theirs in pairs if ours != theirs]
    if wrong:
        raise ForedraftError(
            f"{checkpoint.info.name} is not the model of {bundle.path}: the bundle has {'; '.join(wrong)}; "
            f"give the checkpoint that it was exported from ({model.name})"
        )


def compare(
    bundle: Bundle,
    engine: Engine,
    reference: TorchReference,
    samples: Sequence[Sample],
    progress: Progress | None = None,
) -> tuple[tuple[Difference, ...], Perplexity]:
    """Run both on every sample. Differences are in the order of the samples' names, then of the segments."""
    exits = [segment.last for segment in bundle.manifest.segments]
    tallies: dict[str, list[Tally]] = {}
    perplexity = Perplexity()
    total = sum(len(sample.tokens) for sample in samples)
    done = 0
    for sample in samples:
        length = len(sample.tokens)
        if progress:
            progress(done, total, f"reading {length} tokens with the reference")
        expected = reference.readouts(sample.tokens, exits)
        own = tallies.setdefault(sample.name, [Tally() for _ in exits])
        for start, segment, readout, logits in run_segments(engine, sample):
            if progress:
                progress(done + start, total, f"comparing {length} tokens")
            rows = slice(start, start + len(readout))
            wanted = reference.logits(expected[segment][rows])
            own[segment].add(start, expected[segment][rows], readout, wanted, logits)
            if sample.scored and segment == len(exits) - 1:
                perplexity = perplexity.add(sample.tokens[start + 1 : start + 1 + len(readout)], wanted, logits)
        done += length
    differences = [
        tally.difference(name, segment, exits[segment])
        for name, own in tallies.items()
        for segment, tally in enumerate(own)
    ]
    return tuple(differences), perplexity


def run_segments(engine: Engine, sample: Sample) -> Iterator[tuple[int, int, Float32, Float32]]:
    """The sample through a fresh sequence of the engine, chunk by chunk and segment by segment.

    Yields ``(first token, segment, readout [rows, hidden_size], logits [rows, vocab_size])``; the logits are
    valid until the next step.
    """
    sequence = engine.open_sequence(len(sample.tokens) + WINDOW)
    arena = Arena(sequence.slots)
    for start in range(0, len(sample.tokens), sample.chunk):
        part = sample.tokens[start : start + sample.chunk]
        slots = arena.extend(part, range(start - 1, start - 1 + len(part)))
        batch, rows = arena.batch(slots), np.arange(len(part), dtype=np.int32)
        for segment in range(engine.segments):
            sequence.run(segment, batch)
            yield start, segment, sequence.readout(rows), dense(sequence.logits(rows))
        arena.commit(slots.tolist())


def find_failures(differences: Sequence[Difference], perplexity: Perplexity, limits: Limits) -> Iterator[str]:
    """One sentence for each thing that is beyond the limits: what is not a number first."""
    for d in differences:
        for side, count in (("bundle", d.not_finite), ("reference", d.reference_not_finite)):
            if count:
                yield (f"{d.where}: {count} values of the {side} are NaN or infinite, first at token {d.worst_token}")
    for d in differences:
        for what, value in (("readouts", d.readout_relative), ("logits", d.logits_relative)):
            if value > limits.relative:
                yield (
                    f"{d.where}: {what} differ by up to {value:.2g} of the reference's RMS, "
                    f"expected at most {limits.relative:g}"
                )
    last = max(d.segment for d in differences)
    of_last = [d for d in differences if d.segment == last]
    rows = sum(d.rows for d in of_last)
    agreement = sum(d.agreeing for d in of_last) / rows
    if agreement < limits.argmax:
        yield f"argmax agreement {agreement:.2%} over {rows} tokens, expected at least {limits.argmax:.1%}"
    if perplexity.tokens and not abs(perplexity.ratio - 1) <= limits.perplexity:
        yield f"perplexity ratio {perplexity.ratio:.4f}, expected 1 within {limits.perplexity:.1%}"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
