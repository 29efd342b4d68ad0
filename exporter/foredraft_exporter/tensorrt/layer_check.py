"""Every layer of the graphs that engines are built from, against the same layer in float32. Needs no GPU."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from polygraphy.comparator import Comparator, RunResults
from polygraphy.logger import G_LOGGER

from foredraft.bundle import Bundle
from foredraft.disk_space import naming_full_disk
from foredraft.errors import ForedraftError
from foredraft.loop.arena import Arena
from foredraft_exporter.tensorrt.graph_runners import EngineGraphRunner, ReferenceRunner

LIMITS = {"fp16": 0.02, "bf16": 0.15, "int8": 0.02, "int4": 0.02}
"""By precision: RMS of a layer's difference over RMS of the reference, at most. Both sides have the same weights."""
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class LayerDifference:
    """One tensor: ``relative`` is RMS of the difference over RMS of the reference, ``largest`` the largest number of
    the engine's side, ``finite`` whether all of it is.
    """

    segment: int
    output: str
    relative: float
    largest: float
    finite: bool


def check_layers(
    bundle: Bundle, tokens: Sequence[int], save: Path | None = None, progress: Progress | None = None
) -> list[LayerDifference]:
    """Compare layer by layer on ``tokens``; every segment starts from the reference's hidden states.

    ``save`` is a folder that gets the results of both sides as Polygraphy's own files. Raises ForedraftError if the
    bundle holds no graphs for engines.
    """
    name = next((name for name in bundle.manifest.graphs if name.startswith("tensorrt")), None)
    if name is None or "portable" not in bundle.manifest.graphs:
        raise ForedraftError(
            f"{bundle.path}: has no graphs for engines to check; export it with --backend tensorrt-rtx"
        )
    feed, differences = _feed(tokens), []
    segments = bundle.manifest.segments
    G_LOGGER.module_severity = G_LOGGER.ERROR
    for index, segment in enumerate(segments):
        if progress:
            progress(index, len(segments), f"segment {index}")
        outputs = _outputs(segment.first, segment.last, index + 1 == len(segments))
        slots = _slots(bundle, len(tokens))
        runners = [
            ReferenceRunner(bundle, bundle.manifest.graphs["portable"].segments[index], outputs, slots),
            EngineGraphRunner(bundle, bundle.manifest.graphs[name].segments[index], outputs, slots),
        ]
        results = Comparator.run(runners, data_loader=[feed], warm_up=0)
        if save:
            save.mkdir(parents=True, exist_ok=True)
            with naming_full_disk(save):
                results.save(str(save / f"segment-{index}.json"))
        reference, engine = _values(results)
        differences += [_difference(index, output, reference[output], engine[output]) for output in outputs]
        if index + 1 < len(segments):
            feed = OrderedDict(hidden=reference["hidden_out"], **{k: v for k, v in feed.items() if k in _SHARED})
    return differences


def failures(differences: Sequence[LayerDifference], precision: str) -> list[str]:
    """One sentence for each output that is not finite or too far off, the first layer first."""
    limit, found = LIMITS[precision], []
    for d in differences:
        if not d.finite:
            found.append(f"segment {d.segment}, {d.output}: NaN or infinite; export with --precision bf16")
        elif d.relative > limit:
            found.append(f"segment {d.segment}, {d.output}: off by {d.relative:.2%}, at most {limit:.0%} is expected")
    return found


_SHARED = ("positions", "slots", "n_past", "mask")


def _feed(tokens: Sequence[int]) -> OrderedDict[str, NDArray[Any]]:
    """The batch of a prompt at the start of a text."""
    arena = Arena(2 * len(tokens) + 1)
    batch = arena.batch(arena.extend(tokens, range(-1, len(tokens) - 1)))
    return OrderedDict(
        tokens=batch.tokens,
        positions=batch.positions,
        slots=batch.slots,
        n_past=np.array([batch.n_past], np.int32),
        mask=batch.mask,
    )


def _outputs(first: int, last: int, is_last: bool) -> list[str]:
    names = [f"layers.{layer}.{name}" for layer in range(first, last) for name in ("attention", "mlp_norm/sum", "act")]
    return [*names, "readout"] if is_last else [*names, "readout", "hidden_out"]


def _slots(bundle: Bundle, tokens: int) -> int:
    return max(
        [tokens, *(engines.slots for engines in bundle.manifest.engines.values() if engines.attention == "native")]
    )


def _values(results: RunResults) -> list[dict[str, NDArray[np.float32]]]:
    return [{name: iterations[0][name] for name in iterations[0]} for _, iterations in results.items()]


def _difference(
    segment: int, output: str, reference: NDArray[np.float32], engine: NDArray[np.float32]
) -> LayerDifference:
    wide, own = reference.astype(np.float64), engine.astype(np.float64)
    finite = bool(np.isfinite(own).all())
    scale = np.sqrt(np.mean(wide**2)) or 1.0
    relative = float(np.sqrt(np.mean((own - wide) ** 2)) / scale) if finite else float("inf")
    return LayerDifference(segment, output, relative, float(np.abs(own).max()), finite)
