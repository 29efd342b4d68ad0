"""What a bundle's engines do on a device: load, agree with ONNX Runtime, keep their caches in place, replay, and write.

Every step is a function of a subject and a report. None of them changes a bundle.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.gpu.report import Report
from foredraft import Session
from foredraft.bundle import Bundle
from foredraft.engines.cuda.device import Device, PinnedBuffer
from foredraft.engines.cuda.sequence import CudaSequence
from foredraft.engines.onnxruntime import OnnxRuntimeEngine
from foredraft.engines.protocol import Engine, Float32
from foredraft.engines.tensorrt.engine import TensorRTEngine
from foredraft.loop.chain import Chain
from foredraft.sampling.logits import dense

TOKENS = 64
"""Of each answer."""
PROMPTS = ("The capital of France is", "def fibonacci(n):\n    ", "1, 2, 3, 4, 5, 6, 7,")
TOLERANCE = 0.05
"""Largest difference of logits from float32's, relative to their spread; the widest of the 16-bit types needs most."""
ONE_BUCKET = 16


@dataclass(frozen=True, slots=True)
class Subject:
    """``name`` is the set of engines; ``trt`` the library's module."""

    bundle: Bundle
    name: str
    device: Device
    trt: Any
    tokens: int = TOKENS

    def engine(self, buckets: tuple[int, ...] | None = None) -> TensorRTEngine:
        return TensorRTEngine(self.bundle, self.name, self.device, self.trt, buckets)

    def prompts(self) -> list[list[int]]:
        """As token ids."""
        return [self.bundle.tokenizer.encode(prompt, add_bos=True)[:200] for prompt in PROMPTS]

    def chain(self, engine: Engine) -> Chain:
        layers = [segment.last - segment.first for segment in self.bundle.manifest.segments]
        slots = min(self.bundle.manifest.model.context, 512) + 256
        return Chain(engine.open_sequence(slots), layers)


def loading(subject: Subject, report: Report) -> None:
    """How long engines take to open, and each number of rows the first time (kernels are finished then) and later."""
    started = time.perf_counter()
    engine = subject.engine()
    report.add("load", "engines and weights", _seconds(time.perf_counter() - started))
    first: dict[int, float] = {}
    second: dict[int, float] = {}
    for times in (first, second):
        chain = subject.chain(engine)
        for rows in engine.buckets:
            started = time.perf_counter()
            _forward(chain, rows)
            times[rows] = time.perf_counter() - started
    for rows in engine.buckets:
        report.add(
            "load", f"{rows} rows, first sequence / second", f"{_seconds(first[rows])} / {_seconds(second[rows])}"
        )


def numerics(subject: Subject, report: Report) -> None:
    """Logits after every segment against the portable graphs in float32 on the CPU."""
    engines = [subject.engine(), OnnxRuntimeEngine(subject.bundle, lowering="portable")]
    text = [token for prompt in subject.prompts() for token in prompt]
    for rows in (1, 5, 16, 64, 100):
        results = [_logits_by_segment(subject.chain(engine), text, rows) for engine in engines]
        for segment, (ours, expected) in enumerate(zip(*results, strict=True)):
            error = float(np.abs(ours - expected).max() / expected.std())
            agree = float((ours.argmax(1) == expected.argmax(1)).mean())
            good = bool(np.isfinite(ours).all()) and error < TOLERANCE
            report.add(
                "numerics", f"segment {segment}, {rows} rows", f"{error:.2e} of the spread, {agree:.0%} same", good
            )


def caches(subject: Subject, report: Report) -> None:
    """A forward writes its own rows of the caches and the last one, and no others."""
    sequence = subject.engine().open_sequence(400)
    chain = Chain(sequence, [1] * len(subject.bundle.manifest.segments))
    chain.prefill(subject.prompts()[0])
    before = _cache_rows(subject.device, sequence)
    slots = chain.arena.extend([1, 2, 3], [chain.arena.used - 1] * 3)
    chain.verify(slots)
    after = _cache_rows(subject.device, sequence)
    changed = np.flatnonzero((before != after).any(axis=(0, 2)))
    spare = sequence._memory.layout.slots - 1
    good = set(slots.tolist()) <= set(changed.tolist()) <= {*slots.tolist(), spare}
    report.add("caches", f"rows written for slots {slots.tolist()}", changed.tolist(), good)


def replay(subject: Subject, report: Report) -> None:
    """The second forward of a number of rows is a graph's: its bits are those of the first, which was not."""
    engine = subject.engine()
    for rows in (rows for rows in engine.buckets if rows in engine.small):
        chain = subject.chain(engine)
        results = [_forward(chain, rows) for _ in range(3)]
        good = all(np.array_equal(results[0], each) for each in results[1:])
        report.add("replay", f"{rows} rows, as it is and as a graph", "same bits" if good else "other bits", good)


def drift(subject: Subject, report: Report) -> None:
    """How far a node's logits depend on what shares its forward, and whether drafts change a text."""
    for what, buckets in (("usual rows", None), (f"always {ONE_BUCKET} rows", (ONE_BUCKET, 256))):
        engine = subject.engine(buckets)
        alone = _forward(subject.chain(engine), 1)[0]
        shared = _forward(subject.chain(engine), ONE_BUCKET)[0]
        report.add("drift", f"{what}: logits, 1 node against {ONE_BUCKET}", f"{np.abs(alone - shared).max():.2e}")
        texts = {policy: _texts(subject, engine, policy) for policy in ("none", *_policies(subject))}
        for policy, answers in texts.items():
            same = sum(answer == plain for answer, plain in zip(answers, texts["none"], strict=True))
            report.add("drift", f"{what}: answers of {policy} like plain ones", f"{same} of {len(answers)}")


def reading(subject: Subject, report: Report) -> None:
    """What the head takes with the highest logits brought to the host, and with every row fetched whole."""
    chain = subject.chain(subject.engine())
    for count in (1, 8, 32):
        _forward(chain, count)
        rows = np.arange(count, dtype=np.int32)
        for what, read in (("the top", chain.logits), ("whole rows", lambda rows: dense(chain.logits(rows)))):
            times = []
            for _ in range(20):
                started = time.perf_counter()
                read(rows)
                times.append(time.perf_counter() - started)
            report.add("reading", f"head and {what} of {count}", _seconds(float(np.median(times))))


def speed(subject: Subject, report: Report) -> None:
    """Tokens per second by policy, the median of three rounds over the prompts."""
    engine = subject.engine()
    for policy in ("none", "auto", *_policies(subject)):
        rates = []
        for _ in range(3):
            session = _session(subject, engine, policy)
            stats = [session.generate(prompt, max_tokens=subject.tokens).stats for prompt in subject.prompts()]
            decoded, taken = sum(s.tokens - 1 for s in stats), sum(s.seconds_decode for s in stats)
            rates.append(decoded / taken if taken else 0.0)
        report.add("speed", policy, f"{np.median(rates):.1f} tokens/s")


STEPS: dict[str, Callable[[Subject, Report], None]] = {
    "load": loading,
    "numerics": numerics,
    "caches": caches,
    "replay": replay,
    "drift": drift,
    "reading": reading,
    "speed": speed,
}


def check(subject: Subject, report: Report) -> None:
    """All steps; what fails in one does not keep the others from running."""
    for name, step in STEPS.items():
        with report.guarded(name):
            step(subject, report)


def _policies(subject: Subject) -> list[str]:
    exits = len(subject.bundle.manifest.exits)
    return ["fixed:8", "fixed:24", *(["self-spec", "echo"] if exits else []), *(["hispec"] if exits > 1 else [])]


def _session(subject: Subject, engine: Engine, policy: str) -> Session:
    if policy == "none":
        return Session(subject.bundle, "none", engine=engine, policy="fixed:0", context=_context(subject))
    return Session(subject.bundle, engine=engine, policy=policy, context=_context(subject))


def _context(subject: Subject) -> int:
    return min(subject.bundle.manifest.model.context, 512)


def _texts(subject: Subject, engine: Engine, policy: str) -> list[list[int]]:
    session = _session(subject, engine, policy)
    return [session.generate(prompt, max_tokens=subject.tokens).tokens for prompt in subject.prompts()]


def _forward(chain: Chain, rows: int) -> Float32:
    """Logits of a bush of ``rows`` nodes over the chain's text, which is as it was afterwards."""
    tip = chain.arena.used - 1
    slots = chain.arena.extend([1] * rows, [tip] * rows)
    logits = dense(chain.verify(slots)).copy()
    chain.arena.drop_window()
    return logits


def _logits_by_segment(chain: Chain, text: list[int], rows: int) -> list[Float32]:
    """After some text: a chain of ``rows`` more nodes through one segment after the other, and the head over each."""
    chain.prefill(text[:8])
    tail = [text[place % len(text)] for place in range(8, 8 + rows)]
    slots = chain.arena.extend(tail, range(chain.arena.used - 1, chain.arena.used - 1 + rows))
    results = []
    for stage in range(1, chain.segments + 1):
        chain.advance(slots, stage)
        results.append(dense(chain.logits(np.arange(rows, dtype=np.int32))).copy())
    return results


def _cache_rows(device: Device, sequence: CudaSequence) -> np.ndarray:
    """Every plane of the caches, uint8 [planes, slots, bytes]."""
    memory, layout = sequence._memory, sequence._memory.layout
    host = PinnedBuffer(device, memory.caches.size)
    memory.stream.to_host(host.address, memory.caches.address, memory.caches.size)
    memory.stream.wait()
    planes = [host.array[start : start + layout.slots * layout.row] for start in layout.plane_offsets()]
    return np.stack(planes).reshape(layout.planes, layout.slots, layout.row)


def _seconds(value: float) -> str:
    return f"{value:.3f} s" if value > 0.1 else f"{1000 * value:.2f} ms"
