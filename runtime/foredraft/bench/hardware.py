"""What forwards would take on hardware that is not here, from its data sheet.

A forward of T nodes through a layer takes the time to read its weights or the time to compute with them, whichever is
longer (so nodes are free up to a knee), and the time to launch it. The cache that attention reads is left out, and so
is what moves between the stages of a round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foredraft.errors import RequestError
from foredraft.loop.chain import EXIT_HEAD, HEAD
from foredraft.scheduling.parts import Times


@dataclass(frozen=True, slots=True)
class Host:
    """Seconds of the loop itself: for each round, each token that is picked, each opinion of an exit, and each of its
    runners-up. Nodes take next to none."""

    round: float
    pick: float
    opinion: float
    runner_up: float = 0.0

    def seconds(self, tokens: int, opinions: int, runners_up: int) -> float:
        """Of a round that wrote so many tokens after so many opinions with so many runners-up in all."""
        return self.round + tokens * self.pick + opinions * self.opinion + runners_up * self.runner_up

    def scaled(self, factor: float) -> Host:
        """All times so many times as long."""
        return Host(*(factor * value for value in (self.round, self.pick, self.opinion, self.runner_up)))


HERE = "here"
"""The name of this machine among those to simulate."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """A model on a machine. Weights are numbers of them; ``bandwidth`` is bytes/s and ``compute`` operations/s, both as
    reached in practice; ``launch`` is seconds, per layer or head."""

    name: str
    about: str
    layers: int
    layer_weights: float
    head_weights: float
    weight_bytes: float
    bandwidth: float
    compute: float
    launch: float
    host: Host

    @property
    def knee(self) -> float:
        """Nodes up to which a forward takes as long as one of a single node."""
        return self.weight_bytes * self.compute / (2.0 * self.bandwidth)

    def describe(self) -> str:
        """All constants, on one line."""
        return (
            f"{self.name}: {self.about}; {self.layers} layers of {self.layer_weights / 1e6:.0f}M weights, head "
            f"{self.head_weights / 1e6:.0f}M, {self.weight_bytes:g} bytes each; {self.bandwidth / 1e9:.0f} GB/s, "
            f"{self.compute / 1e12:g} Top/s (nodes are free up to {self.knee:.0f}); launch {self.launch * 1e6:.0f} us "
            f"per layer; host {self.host.round * 1e6:.0f} us per round, {self.host.pick * 1e6:.0f} per pick or opinion"
        )

    def seconds(self, weights: float, nodes: int) -> float:
        """A matrix of so many weights, or a layer's, on so many nodes."""
        return max(weights * self.weight_bytes / self.bandwidth, 2.0 * weights * nodes / self.compute) + self.launch

    def times(self, layers: Sequence[int]) -> Times:
        """For a chain recorded on a model whose segments have these ``layers``: each stands for its share of the
        layers here."""
        share = [self.layers * count / sum(layers) for count in layers]

        def times(what: int, nodes: int) -> float:
            if what in (HEAD, EXIT_HEAD):
                return self.seconds(self.head_weights, nodes)
            return share[what] * self.seconds(self.layer_weights, nodes)

        return times


def _llama_7b(name: str, about: str, weight_bytes: float, bandwidth: float, compute: float, launch: float) -> Hardware:
    return Hardware(
        name, about, 32, 202.4e6, 131.1e6, weight_bytes, bandwidth, compute, launch, Host(100e-6, 30e-6, 30e-6)
    )


_ALL = (
    _llama_7b(
        "gpu-7b",
        "a 7B Llama in 16 bits on a data-centre GPU (2.0 TB/s and 312 Top/s, of which 80% and 60%)",
        weight_bytes=2.0,
        bandwidth=1.6e12,
        compute=187e12,
        launch=10e-6,
    ),
    _llama_7b(
        "gpu-7b-int4",
        "a 7B Llama in 4 bits on a desktop GPU (1.0 TB/s and 165 Top/s, of which 80% and 50%)",
        weight_bytes=0.5625,
        bandwidth=0.8e12,
        compute=82e12,
        launch=10e-6,
    ),
    _llama_7b(
        "cpu-7b-int4",
        "a 7B Llama in 4 bits on a desktop processor (60 GB/s and 1 Top/s as reached)",
        weight_bytes=0.5625,
        bandwidth=60e9,
        compute=1e12,
        launch=20e-6,
    ),
)
HARDWARE = {hardware.name: hardware for hardware in _ALL}
"""The machines that can be simulated, and all their constants."""


def hardware(name: str) -> Hardware:
    """By name; RequestError if there is none of it."""
    if name not in HARDWARE:
        raise RequestError(f"simulate: got {name!r}, expected {', '.join([*HARDWARE, HERE])}")
    return HARDWARE[name]
