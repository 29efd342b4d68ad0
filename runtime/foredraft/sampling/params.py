"""How the next token is chosen: the values that a request may set, checked."""

from __future__ import annotations

import numbers
from dataclasses import dataclass

from foredraft.errors import RequestError


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen. The defaults are greedy decoding; raises RequestError for what makes no
    sense.

    The steps are taken in this order: penalties, temperature, ``top_k``, ``top_p``, ``min_p``. Penalties look
    at the whole text so far, prompt included: ``repetition_penalty`` divides a positive logit of a token that
    occurred and multiplies a negative one; ``presence_penalty`` is subtracted once, ``frequency_penalty``
    once per occurrence.
    """

    temperature: float = 0.0
    """0 is greedy, and so is what is closer to it than the numbers of logits tell apart (1e-6)."""
    top_k: int = 0
    """Only the k likeliest tokens; 0 is off."""
    top_p: float = 1.0
    """Only the likeliest tokens that together reach this probability; 0 leaves the likeliest alone."""
    min_p: float = 0.0
    """Only tokens at least this likely, relative to the likeliest."""
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0
    """Negative ones, which OpenAI's API takes, count from 2**64 downwards."""

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, 0.0, 100.0)
        _check_integer("top_k", self.top_k, 0, 10_000_000)
        _check("top_p", self.top_p, 0.0, 1.0)
        _check("min_p", self.min_p, 0.0, 1.0)
        _check("repetition_penalty", self.repetition_penalty, 0.01, 100.0)
        _check("presence_penalty", self.presence_penalty, -100.0, 100.0)
        _check("frequency_penalty", self.frequency_penalty, -100.0, 100.0)
        _check_integer("seed", self.seed, -(2**63), 2**64 - 1)
        object.__setattr__(self, "temperature", 0.0 if self.temperature < 1e-6 else self.temperature)
        object.__setattr__(self, "seed", int(self.seed) % 2**64)

    @property
    def filtered(self) -> bool:
        """True if not every token can be chosen."""
        return self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0

    @property
    def penalised(self) -> bool:
        """True if the choice depends on the text so far, beyond the logits."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0


def _check(name: str, got: object, low: float, high: float) -> None:
    fine = isinstance(got, numbers.Real) and not isinstance(got, bool) and low <= float(got) <= high
    if not fine:
        raise RequestError(f"{name}: got {got!r}, expected a number from {low:g} to {high:g}")


def _check_integer(name: str, got: object, low: int, high: int) -> None:
    fine = isinstance(got, numbers.Integral) and not isinstance(got, bool) and low <= int(got) <= high
    if not fine:
        raise RequestError(f"{name}: got {got!r}, expected an integer from {low} to {high}")
