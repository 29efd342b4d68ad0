"""The model that exits are fitted for: its hidden states on a text, its final norm, its head, its sizes.

A checkpoint runs in transformers, float32; a bundle on its own engine, cut at the exits that it was exported with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from foredraft.bundle import Bundle
from foredraft.bundle.manifest import FILE_NAME, ModelInfo
from foredraft.bundle.tensor_file import arrays
from foredraft.engines.onnxruntime import OnnxRuntimeEngine
from foredraft.engines.protocol import WINDOW
from foredraft.errors import ForedraftError
from foredraft.loop.arena import Arena
from foredraft.text import Tokenizer
from foredraft_exporter.build import check_exits
from foredraft_exporter.exits.draft_vocabulary import draft_size
from foredraft_exporter.exits.fingerprint import METADATA_KEY, fingerprint
from foredraft_exporter.models import decoder as decoder_of
from foredraft_exporter.parity.torch_reference import load_reference
from foredraft_exporter.sources.checkpoint import open_checkpoint
from foredraft_exporter.weights.size_check import check_sizes
from foredraft_graphs.decoder import Decoder
from foredraft_graphs.head import DRAFT_IDS
from foredraft_plugins.block_linear.packing import dequantize, packed_shapes, unpack

Float32 = NDArray[np.float32]
WINDOW_TOKENS = 512
"""Longest run of text that the model reads at once."""


@dataclass(frozen=True, slots=True)
class States:
    """``hidden``: the residual stream at each exit, [T, H]; ``readout``: the normed state at the end, [T, H]."""

    hidden: tuple[Float32, ...]
    readout: Float32


@dataclass(frozen=True, slots=True)
class SourceSizes:
    """How many layers there are, and weights that are read for one token: of a layer, of the head and of the head
    that exits draft with.
    """

    layers: int
    layer: int
    head: int
    draft_head: int


@dataclass(frozen=True, slots=True)
class Source:
    """``norm`` [H] and ``head`` [V, H] are float32; ``start`` begins every text, as a prompt would, and ``window`` is
    the longest run of tokens that ``read`` takes.
    """

    name: str
    model: str
    exits: tuple[int, ...]
    sizes: SourceSizes
    tokenizer: Tokenizer
    start: tuple[int, ...]
    window: int
    norm: Float32
    head: Float32
    read: Callable[[Sequence[int]], States]

    @property
    def targets_scale(self) -> Float32:
        """[H]: a readout times this has its norm's weight taken off again."""
        return np.divide(1, self.norm, out=np.zeros_like(self.norm), where=np.abs(self.norm) > 1e-6)

    def readout(self, states: Float32) -> Float32:
        """The final norm of ``states`` [T, H]. Its epsilon, which no bundle states, changes no argmax."""
        scale = np.sqrt(np.mean(np.square(states, dtype=np.float32), axis=-1, keepdims=True) + np.float32(1e-6))
        return np.asarray(states / scale * self.norm, np.float32)


def open_source(
    source: str | Path,
    exits: Sequence[int],
    threads: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Source:
    """A bundle if ``source`` is one, else a checkpoint in any form that ``export`` takes.

    ``exits`` may be empty for a bundle: all that it has. Raises ForedraftError, in one line, for exits that the model
    or the bundle does not have, and if transformers is needed and missing.
    """
    if (Path(source) / FILE_NAME).is_file():
        return _of_bundle(Path(source), exits, threads)
    return _of_checkpoint(source, exits, threads, progress)


def _of_checkpoint(
    source: str | Path, exits: Sequence[int], threads: int | None, progress: Callable[[int, int, str], None] | None
) -> Source:
    checkpoint = open_checkpoint(source)
    decoder = decoder_of(checkpoint.info.config)
    check_sizes(checkpoint, decoder)
    if not exits:
        raise ForedraftError(
            f"{source}: name the exits to fit, such as --exits {decoder.layers // 8},{decoder.layers // 4}"
        )
    check_exits(exits, decoder.layers)
    generation = checkpoint.info.generation
    start = (generation["bos_token_id"],) if generation["add_bos"] and generation["bos_token_id"] is not None else ()
    reference = load_reference(checkpoint, decoder.context, threads, progress)
    head = reference.model.get_output_embeddings().weight.detach().numpy()
    drafted = draft_size("auto", decoder, exits) or decoder.vocab_size

    def read(tokens: Sequence[int]) -> States:
        import torch

        with torch.inference_mode():
            ids = torch.tensor([list(tokens)])
            states = reference.model.get_decoder()(ids, output_hidden_states=True, use_cache=False).hidden_states
        hidden = tuple(states[exit_][0].numpy() for exit_ in exits)
        return States(hidden, states[-1][0].numpy())  # the last one is normed already

    return Source(
        name=checkpoint.info.name,
        model=fingerprint(checkpoint, decoder),
        exits=tuple(exits),
        sizes=_sizes(decoder, drafted),
        tokenizer=Tokenizer(checkpoint.tokenizer_json()),
        start=start,
        window=min(WINDOW_TOKENS, decoder.context),
        norm=checkpoint.read("model.norm.weight"),
        head=head,
        read=read,
    )


def _of_bundle(path: Path, exits: Sequence[int], threads: int | None) -> Source:
    bundle = Bundle.open(path)
    manifest, model = bundle.manifest, bundle.manifest.model
    if not manifest.exits or any(exit_ not in manifest.exits for exit_ in exits):
        cut = ", ".join(map(str, manifest.exits)) or "no exit"
        wanted = ",".join(map(str, exits)) or f"{model.layers // 8},{model.layers // 4}"
        raise ForedraftError(f"{path}: cut at {cut}; export it again with --exits {wanted}")
    check_exits(exits, model.layers)
    chosen = tuple(exits) or manifest.exits
    with safe_open(bundle.file(manifest.weights), framework="numpy") as file:
        metadata = file.metadata() or {}
    if METADATA_KEY not in metadata:
        raise ForedraftError(f"{path}: does not say which model it was made from; export it again")
    tensors = arrays(bundle.map(manifest.weights), str(path / manifest.weights))
    info = manifest.tokenizer
    drafted = len(tensors[DRAFT_IDS]) if DRAFT_IDS in tensors else model.vocab_size
    engine = OnnxRuntimeEngine(bundle, threads)
    return Source(
        name=model.name,
        model=metadata[METADATA_KEY],
        exits=chosen,
        sizes=_sizes(model, drafted),
        tokenizer=bundle.tokenizer,
        start=(info.bos_id,) if info.add_bos and info.bos_id is not None else (),
        window=min(WINDOW_TOKENS, model.context),
        norm=np.array(tensors["norm"], np.float32),
        head=_dense(tensors, "head", model.vocab_size, model.hidden_size),
        read=_engine_reader(engine, [manifest.exits.index(exit_) for exit_ in chosen]),
    )


def _engine_reader(engine: OnnxRuntimeEngine, segments: Sequence[int]) -> Callable[[Sequence[int]], States]:
    """Reads through the engine's own segments; ``segments`` end at the exits that are wanted."""
    sequence = engine.open_sequence(WINDOW_TOKENS)
    arena = Arena(sequence.slots)

    def read(tokens: Sequence[int]) -> States:
        arena.rewind(0)
        hidden: list[list[Float32]] = [[] for _ in segments]
        readouts = []
        for start in range(0, len(tokens), WINDOW):
            part = list(tokens[start : start + WINDOW])
            slots = arena.extend(part, range(arena.used - 1, arena.used - 1 + len(part)))
            batch = arena.batch(slots)
            for segment in range(engine.segments):
                sequence.run(segment, batch)
            readouts.append(sequence.readout(np.arange(len(part), dtype=np.int32)))
            for pieces, segment in zip(hidden, segments, strict=True):
                pieces.append(sequence.hidden(segment, slots))
            arena.commit(slots.tolist())
        return States(tuple(np.concatenate(pieces) for pieces in hidden), np.concatenate(readouts))

    return read


def _dense(tensors: Mapping[str, NDArray[np.generic]], name: str, n: int, k: int) -> Float32:
    """A matrix of the weights file as float32 [n, k], whatever its precision."""
    if name in tensors:
        return np.array(tensors[name], np.float32)
    packed = {s: tensors[f"{name}.{s}"] for s in ("codes", "scale", "min") if f"{name}.{s}" in tensors}
    bits = next(b for b in (4, 8) if packed_shapes(n, k, b, False)["codes"][0] == packed["codes"].shape)
    return dequantize(*unpack(packed, n, bits), bits)


def _sizes(model: Decoder | ModelInfo, drafted: int) -> SourceSizes:
    attention = model.hidden_size * model.head_dim * 2 * (model.heads + model.kv_heads)
    layer = attention + 3 * model.hidden_size * model.intermediate_size
    return SourceSizes(model.layers, layer, model.vocab_size * model.hidden_size, drafted * model.hidden_size)
