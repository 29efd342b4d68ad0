"""Which token sequences bundle and reference are compared on. Knows nothing of engines."""

from __future__ import annotations

import importlib.resources
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from foredraft.bundle import Bundle
from foredraft.bundle.manifest import ModelInfo
from foredraft.engines.protocol import WINDOW
from foredraft.errors import RequestError

SHORT = (1, 2, 7)
"""Lengths at which an export that only works as it was traced goes wrong."""
MEDIUM = 64
"""Run seven tokens at a time, so that a forward also starts from a cache that others filled."""
TEXT_WINDOW = 512
"""Tokens of the text that are read in one piece."""
MAX_OPERATIONS = 5e11
"""Floating-point operations that the longest sequence may cost by itself, some seconds of two cores."""
MAX_ATTENTION_BYTES = 2 << 30
"""Memory that eager attention may take, three matrices [heads, T, T] in float32."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A sequence, ``chunk`` tokens per forward; those of one ``name`` are reported together.

    ``scored``: its predictions count for the perplexity.
    """

    name: str
    tokens: tuple[int, ...]
    chunk: int = WINDOW
    scored: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """``longest`` is the longest sequence in tokens; ``note`` says why it is not the context limit, if it is
    not.
    """

    samples: tuple[Sample, ...]
    longest: int
    note: str | None


def default_text() -> str:
    """A few paragraphs of prose, a letter, a calculation and some code."""
    return importlib.resources.files(__package__).joinpath("text.txt").read_text(encoding="utf-8")


def plan_samples(bundle: Bundle, text: str, longest: int | None = None) -> Plan:
    """Sequences of 1, 2, 7 and 64 tokens, one as long as the context allows or is affordable, and the text in
    windows.

    All begin as a prompt would (with BOS, where the model wants it) and go on with the text, again and again
    if it is short. ``longest`` stands in for what is affordable. Raises RequestError for a text of fewer than
    two tokens or with ids that the model does not have.
    """
    model, info = bundle.manifest.model, bundle.manifest.tokenizer
    words = bundle.tokenizer.encode(text, add_bos=False)
    if len(words) < 2:
        raise RequestError(f"the text has {len(words)} tokens; give one of at least 2")
    if max(words) >= model.vocab_size:
        raise RequestError(f"token id {max(words)} in the text: this model has ids 0 to {model.vocab_size - 1}")
    start = [info.bos_id] if info.add_bos and info.bos_id is not None else []
    limit = min(model.context, longest or affordable_length(model))
    lengths = sorted({min(length, limit) for length in (*SHORT, MEDIUM, limit)})
    samples = [_repeated(start, words, length) for length in lengths]
    samples += _windows(start, words, min(model.context, TEXT_WINDOW))
    note = None
    if limit < model.context:
        reason = "as asked" if longest else "longer ones would take too long"
        note = f"the context limit of {model.context} tokens was not run: the longest sequence has {limit} ({reason})"
    return Plan(tuple(samples), limit, note)


def affordable_length(model: ModelInfo) -> int:
    """The longest sequence within MAX_OPERATIONS and MAX_ATTENTION_BYTES, at least MEDIUM."""
    width = model.heads * model.head_dim
    layer = 2 * width * model.hidden_size + 2 * model.kv_heads * model.head_dim * model.hidden_size
    layer += 3 * model.intermediate_size * model.hidden_size
    per_token = 2 * (model.layers * layer + model.vocab_size * model.hidden_size)

    def fits(length: int) -> bool:
        operations = length * (per_token + 4 * model.layers * width * length)
        return operations <= MAX_OPERATIONS and 12 * model.heads * length**2 <= MAX_ATTENTION_BYTES

    length = MEDIUM
    while length < model.context and fits(length + MEDIUM):
        length += MEDIUM
    return min(length, model.context)


def _repeated(start: Sequence[int], words: Sequence[int], length: int) -> Sample:
    tokens = itertools.islice(itertools.chain(start, itertools.cycle(words)), length)
    return Sample(str(length), tuple(tokens), chunk=7 if length == MEDIUM else WINDOW)


def _windows(start: Sequence[int], words: Sequence[int], size: int) -> list[Sample]:
    step = size - len(start)
    if step < 1 or size < 2:
        return []
    pieces = [(*start, *words[at : at + step]) for at in range(0, len(words), step)]
    return [Sample("text", piece, scored=True) for piece in pieces if len(piece) > 1]
