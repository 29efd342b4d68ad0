"""What engines are to be built. Knows nothing of how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foredraft.engines.cuda.device import Device, load_driver
from foredraft.engines.protocol import WINDOW
from foredraft.engines.tensorrt.libraries import LIBRARIES, Library, library
from foredraft.errors import ForedraftError
from foredraft_graphs.tensorrt_lowering import lowering_name

DECODE, PREFILL = 64, WINDOW
"""Most nodes of the two optimization profiles."""
SPARE_SLOTS = WINDOW + 16
"""Cache rows beyond the context: the window of drafts, and a row that padding writes to."""
USUAL_TARGETS = ("sm89", "sm120")
ATTENTIONS, WEIGHTS = ("plugin", "native"), ("inputs", "constants")


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """``backend`` is the library's name, ``targets`` compute capabilities such as ``sm89``.

    ``attention``: ``plugin`` (our kernel: any tree, any cache size) or ``native`` (the library's own layers).
    ``weights``: ``inputs`` (engines are code alone, one weights file serves them all) or ``constants`` (inside).
    """

    backend: str
    targets: tuple[str, ...]
    attention: str = "plugin"
    weights: str = "inputs"

    def __post_init__(self) -> None:
        """Raises ForedraftError for what no engine can be, in one line."""
        for what, value, known in (("--attention", self.attention, ATTENTIONS), ("--weights", self.weights, WEIGHTS)):
            if value not in known:
                raise ForedraftError(f"{what} {value!r}: expected {' or '.join(known)}")
        chosen = library(self.backend)
        if not self.targets:
            raise ForedraftError(f"--targets: {chosen.name} needs at least one of {', '.join(chosen.targets)}")
        for target in self.targets:
            if target not in chosen.targets:
                raise ForedraftError(_unknown_target(target, chosen))

    @property
    def library(self) -> Library:
        return library(self.backend)

    @property
    def graphs(self) -> str:
        """The lowering that engines are built from."""
        return lowering_name(self.attention, self.weights == "inputs")

    @property
    def name(self) -> str:
        """What a bundle calls these engines."""
        return f"{self.backend}{self.graphs.removeprefix('tensorrt')}-{'-'.join(self.targets)}"


def parse_targets(text: str) -> tuple[str, ...]:
    """``sm89,sm120`` in ascending order, each once; raises ForedraftError for what is no such list."""
    names = [part.strip().lower() for part in text.split(",") if part.strip()]
    for name in names:
        if not (name.startswith("sm") and name[2:].isdigit()):
            raise ForedraftError(f"--targets {text!r}: expected compute capabilities such as sm89,sm120")
    return tuple(sorted(dict.fromkeys(names), key=lambda name: int(name[2:])))


def engine_options(backend: str, targets: str | None, attention: str, weights: str) -> BuildOptions:
    """From a command's words. No targets: the usual consumer GPUs, or the device that is here for a library that
    builds on it; raises EngineError if there is none.
    """
    if targets is not None:
        return BuildOptions(backend, parse_targets(targets), attention, weights)
    here = library(backend).needs_gpu
    return BuildOptions(backend, (Device(load_driver()).target,) if here else USUAL_TARGETS, attention, weights)


def activation_dtype(precision: str) -> str:
    """Of matrix products, attention and caches, where the weights have this precision."""
    return "bf16" if precision == "bf16" else "fp16"


def slots_for(context: int) -> int:
    """Most rows of a cache for texts of ``context`` tokens."""
    return context + SPARE_SLOTS


def _unknown_target(target: str, chosen: Library) -> str:
    others: Sequence[str] = [other.name for other in LIBRARIES.values() if target in other.targets]
    hint = f"; {others[0]} has it: --backend {others[0]}" if others else ""
    return f"--targets {target}: {chosen.name} compiles for {', '.join(chosen.targets)}{hint}"
