"""What the tests of exits share: random adapters, a bundle's segments run by hand, the trained tiny model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foredraft import Bundle
from foredraft.engines.onnxruntime import OnnxRuntimeEngine, OnnxRuntimeSequence
from foredraft.loop.arena import Arena
from foredraft.sampling.logits import dense
from foredraft_exporter.exits.adapters import Adapter, Correction
from foredraft_exporter.exits.fingerprint import fingerprint
from foredraft_exporter.models import decoder
from foredraft_exporter.sources.checkpoint import open_checkpoint

LAYERSKIP = Path(__file__).parents[2] / "data" / "layerskip-tiny"
HELD_OUT = (
    "lib2to3/pgen2/driver.py", "email/encoders.py", "turtledemo/tree.py", "multiprocessing/managers.py", "gzip.py",
    "email/headerregistry.py", "_collections_abc.py", "ftplib.py", "warnings.py", "selectors.py",
)  # fmt: skip
"""Files of the standard library that the model was not trained on (its README lists all)."""


def random_adapter(hidden: int, rank: int = 0, seed: int = 0) -> Adapter:
    """Near the identity, as fitted ones are."""
    random = np.random.default_rng(seed)

    def normal(*shape: int) -> NDArray[np.float32]:
        return (random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    weight = np.eye(hidden, dtype=np.float32) + normal(hidden, hidden)
    correction = Correction(normal(rank, hidden), normal(rank), normal(hidden, rank)) if rank else None
    return Adapter(weight, normal(hidden), correction)


def model_of(folder: Path) -> str:
    """The fingerprint of a checkpoint."""
    checkpoint = open_checkpoint(folder)
    return fingerprint(checkpoint, decoder(checkpoint.info.config))


@dataclass(frozen=True, slots=True)
class Run:
    """Outputs of one segment for a chain of tokens: hidden is None for the last one."""

    readout: NDArray[np.float32]
    hidden: NDArray[np.float32] | None
    logits: NDArray[np.float32]
    draft_logits: NDArray[np.float32]
    draft_ids: NDArray[np.int64]


def run_segments(bundle: Path, tokens: Sequence[int], lowering: str = "kernels") -> list[Run]:
    """A chain of at most 256 tokens through every segment, and the heads over each readout."""
    engine = OnnxRuntimeEngine(Bundle.open(bundle), threads=2, lowering=lowering)
    return run_on(engine, engine.open_sequence(256), tokens)


def run_on(engine: OnnxRuntimeEngine, sequence: OnnxRuntimeSequence, tokens: Sequence[int]) -> list[Run]:
    arena = Arena(sequence.slots)
    slots = arena.extend(list(tokens), range(-1, len(tokens) - 1))
    rows, batch = np.arange(len(tokens), dtype=np.int32), arena.batch(slots)
    runs = []
    for segment in range(engine.segments):
        sequence.run(segment, batch)
        hidden = sequence.hidden(segment, slots) if segment < engine.segments - 1 else None
        ids = np.arange(engine.vocab_size) if engine.draft_ids is None else engine.draft_ids
        drafted = dense(sequence.draft_logits(rows))[:, ids]
        runs.append(Run(sequence.readout(rows), hidden, dense(sequence.logits(rows)).copy(), drafted, ids))
    return runs


def rms_norm(x: NDArray[np.float32], weight: NDArray[np.float32], epsilon: float = 1e-5) -> NDArray[np.float64]:
    wide = x.astype(np.float64)
    return wide / np.sqrt((wide**2).mean(axis=-1, keepdims=True) + epsilon) * weight
