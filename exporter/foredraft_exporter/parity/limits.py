"""How far a bundle may be from its reference, by precision. Knows nothing of how it is measured."""

from __future__ import annotations

from dataclasses import dataclass, replace

from foredraft.bundle import Bundle
from foredraft.errors import ForedraftError
from foredraft_exporter.sources.checkpoint import Checkpoint
from foredraft_exporter.weights.weight_plan import WeightPlan, plan
from foredraft_exporter.weights.writing import read_layout
from foredraft_graphs.decoder import Decoder


@dataclass(frozen=True, slots=True)
class Limits:
    """What passes.

    ``relative``: of the worst token's readout or logits, RMS of the difference over RMS of the reference, at
    most; ``argmax``: share of tokens after which both prefer the same next one, at least (last exit);
    ``perplexity``: how far the ratio of the perplexities may be from 1. ``kind`` says in words what was
    rounded.
    """

    kind: str
    relative: float
    argmax: float
    perplexity: float


FLOAT = Limits("float32 throughout", relative=5e-4, argmax=0.998, perplexity=0.001)
FLOATS = {
    "fp32": FLOAT,
    "fp16": Limits("weights rounded to float16", relative=0.02, argmax=0.98, perplexity=0.005),
    "bf16": Limits("weights rounded to bfloat16", relative=0.1, argmax=0.95, perplexity=0.02),
}
ACTIVATIONS = Limits(
    "weights as in the source, activations rounded to 8 bits", relative=0.25, argmax=0.95, perplexity=0.03
)
EIGHT_BITS = Limits("weights and activations rounded to 8 bits", relative=0.25, argmax=0.95, perplexity=0.03)
FOUR_BITS = Limits("weights rounded to 4 bits, activations to 8", relative=0.6, argmax=0.8, perplexity=0.15)
EIGHT_BIT_ROWS = replace(EIGHT_BITS, kind="weights rounded to 8 bits, a scale for each row")
FOUR_BIT_ROWS = replace(FOUR_BITS, kind="weights rounded to 4 bits, a scale for each 32")


def limits_for(bundle: Bundle, checkpoint: Checkpoint, decoder: Decoder) -> Limits:
    """What to expect of this bundle against this source. Raises ForedraftError for an unknown precision."""
    precision = bundle.manifest.precision
    if precision in FLOATS:
        return FLOATS[precision]
    if precision not in ("int8", "int4"):
        known = ", ".join((*FLOATS, "int8", "int4"))
        raise ForedraftError(f"{bundle.path}: precision {precision!r}; this check knows {known}")
    if "kernels" not in bundle.manifest.graphs:
        return FOUR_BIT_ROWS if precision == "int4" else EIGHT_BIT_ROWS
    planned = _plan_of(bundle, checkpoint, decoder)
    rounded = {4 if precision == "int4" else 8} if planned is None else _rounded_bits(planned, checkpoint)
    if not rounded:
        return ACTIVATIONS
    return FOUR_BITS if 4 in rounded else EIGHT_BITS


def _plan_of(bundle: Bundle, checkpoint: Checkpoint, decoder: Decoder) -> WeightPlan | None:
    """The export of this source that is laid out exactly as the bundle is, if there is one."""
    layout = read_layout(bundle.path / bundle.manifest.weights)
    held = {name: (place.dtype, place.shape) for name, place in layout.items()}
    plans = (plan(checkpoint, decoder, precision) for precision in ("auto", bundle.manifest.precision))
    return next((p for p in plans if {t.name: (t.dtype, t.shape) for t in p.tensors} == held), None)


def _rounded_bits(planned: WeightPlan, checkpoint: Checkpoint) -> set[int]:
    """The widths of matrices whose numbers are not all the source's own."""
    return {
        matrix.bits
        for matrix in planned.matrices
        if any(matrix.storage.rounds(checkpoint, part) for part in matrix.parts)
    }
