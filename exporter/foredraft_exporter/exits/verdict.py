"""Does an exit pay? Its cost, the agreement that it needs for it, and the sentence that says so.

A draft from the token databases is free and right with probability d. An exit's guess is right with probability a, and
its layers and head cost the share f of a forward of the whole model. A right guess is worth V tokens (itself and what
follows from it); time is worth R tokens per forward. So the exit pays if ``a V - f R > d V``, that is, if

    a > d + f R / V.

d and R/V are set so that this meets the two points which simulation on recorded text gave (docs/exits.md): 0.55 at an
eighth of the cost, 0.65 at a quarter.
"""

from __future__ import annotations

from foredraft_exporter.exits.source import SourceSizes

FREE_GUESS = 0.45
"""d: how often the best free guess is right (0.48 measured on Spec-Bench prompts)."""
PRICE = 0.8
"""R/V: 1.6 to 1.8 tokens per forward against about two for a right guess."""
MARGIN = 0.05
"""Agreements this close to the break-even are left to the runtime, which measures for itself."""


def cost_fraction(sizes: SourceSizes, exit_: int, adapter: int = 0) -> float:
    """Share of a forward of one token that a draft at ``exit_`` costs, by weights read.

    ``adapter``: weights of the exit's adapter.
    """
    drafted = exit_ * sizes.layer + adapter + sizes.draft_head
    return min(1.0, drafted / (sizes.layers * sizes.layer + sizes.head))


def break_even(fraction: float) -> float:
    """Agreement above which an exit at this share of the cost beats drafting from databases alone."""
    return FREE_GUESS + PRICE * fraction


def verdict(exit_: int, agreement: float, fraction: float) -> str:
    """One line for the user."""
    needed = break_even(fraction)
    says = f"exit {exit_} agrees {agreement:.0%}"
    if needed >= 1:
        return f"{says}: it costs {fraction:.0%} of the whole model and cannot pay; the runtime will leave it off"
    if agreement < needed - MARGIN:
        return f"{says}, and needs {needed:.0%}: it will not help; the runtime will leave it off"
    if agreement < needed + MARGIN:
        return f"{says}, and needs {needed:.0%}: it may or may not help; the runtime will find out while it writes"
    return f"{says}, and needs {needed:.0%}: it will help"
