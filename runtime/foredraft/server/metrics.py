"""Figures for Prometheus. Implements the scheduler's Observer; knows nothing of HTTP beyond a status."""

from __future__ import annotations

import os
import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from foredraft.server.jobs import AnswerPiece, Job

MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
"""prometheus_client's environment variable: where worker processes share their figures."""
_FIRST = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_EACH = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)
_ROUND = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)


class Metrics:
    """One set of figures, in a registry of its own."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"foredraft_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"foredraft_{name}", text, registry=registry, multiprocess_mode="livesum")

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"foredraft_{name}", text, registry=registry, buckets=buckets)

        self.requests = counter("requests", "Requests answered.", "path", "status")
        self.tokens = counter("tokens", "Tokens: of prompts, of these from the prefix cache, written.", "kind")
        self.rounds = counter("rounds", "Forwards through the whole model after a prompt.")
        self.drafted = counter("drafted_tokens", "Draft tokens proposed, by level.", "level")
        self.accepted = counter("accepted_tokens", "Draft tokens accepted, by level.", "level")
        self.finished = counter("answers", "Answers finished, by reason.", "reason")
        self.active = gauge("active_sequences", "Answers being written.")
        self.waiting = gauge("waiting_requests", "Answers in the queue.")
        self.kept = gauge("prefix_cache_tokens", "Tokens of finished texts in the prefix cache.")
        self.per_forward = histogram("tokens_per_forward", "Tokens that a forward after the prompt gave.", _ROUND)
        self.first_token = histogram("time_to_first_token_seconds", "From request to first token.", _FIRST)
        self.each_token = histogram("time_per_token_seconds", "Between tokens after the first.", _EACH)

    def request(self, path: str, status: int) -> None:
        """A request was answered."""
        self.requests.labels(path, str(status)).inc()

    def piece(self, job: Job, piece: AnswerPiece, seconds_since_last: float | None) -> None:
        """A round has written something; the last piece brings the totals."""
        count = len(piece.tokens)
        if count and seconds_since_last is None:
            self.first_token.observe(time.monotonic() - job.created)
        elif count and seconds_since_last is not None:
            self.per_forward.observe(count)
            self.each_token.observe(seconds_since_last / count)
        if piece.result is None:
            return
        stats = piece.result.stats
        self.finished.labels(piece.result.finish_reason).inc()
        self.rounds.inc(stats.rounds)
        counts = (("prompt", stats.prompt_tokens), ("cached", stats.cached_tokens), ("completion", stats.tokens))
        for kind, number in counts:
            self.tokens.labels(kind).inc(number)
        for level, (drafted, accepted) in stats.levels.items():
            self.drafted.labels(level).inc(drafted)
            self.accepted.labels(level).inc(accepted)

    def load(self, active: int, waiting: int, kept_tokens: int) -> None:
        """What the scheduler has in hand."""
        self.active.set(active)
        self.waiting.set(waiting)
        self.kept.set(kept_tokens)

    def text(self) -> bytes:
        """In Prometheus' text format; of all worker processes together if there are several."""
        if MULTIPROCESS not in os.environ:
            return generate_latest(self._registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
