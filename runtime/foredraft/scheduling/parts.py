"""What each part of a forward costs: every segment, and the heads. Plans and simulations add them up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from foredraft.loop.chain import EXIT_HEAD, HEAD
from foredraft.scheduling.forward_costs import SIZES, CostCurve

Times = Callable[[int, int], float]
"""``times(what, nodes)``: seconds of a segment or head (as a round's ``forwards`` have it) on so many nodes."""


@dataclass(frozen=True, slots=True)
class ForwardCosts:
    """Seconds by number of nodes: through the ``whole`` model with its head; per exit, ``until`` it with the head that
    reads it, and the ``rest`` of the model from there."""

    whole: CostCurve
    until: tuple[CostCurve, ...] = ()
    rest: tuple[CostCurve, ...] = ()


@dataclass(frozen=True, slots=True)
class PartCosts:
    """Seconds by number of nodes of each segment, of the head that reads exits, and of the whole head."""

    segments: tuple[CostCurve, ...]
    exit_head: CostCurve
    head: CostCurve

    def times(self, what: int, nodes: int) -> float:
        """As ``Times``."""
        if what == HEAD:
            return self.head.seconds(nodes)
        return (self.exit_head if what == EXIT_HEAD else self.segments[what]).seconds(nodes)


def costs_of(times: Times, segments: int) -> ForwardCosts:
    """What ``auto`` plans with, on a machine with these ``times``."""

    def curve(first: int, last: int, head: int) -> CostCurve:
        ran = [*range(first, last), head]
        return CostCurve({nodes: sum(times(what, nodes) for what in ran) for nodes in SIZES})

    return ForwardCosts(
        whole=curve(0, segments, HEAD),
        until=tuple(curve(0, exit_ + 1, EXIT_HEAD) for exit_ in range(segments - 1)),
        rest=tuple(curve(exit_ + 1, segments, HEAD) for exit_ in range(segments - 1)),
    )
