"""What exits add to an export: the matrices of adapters, and the rows of the draft head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foredraft.errors import ForedraftError
from foredraft_exporter.exits.adapters import Adapter, read_adapters
from foredraft_exporter.exits.draft_vocabulary import choose_ids, draft_size
from foredraft_exporter.exits.fingerprint import METADATA_KEY, fingerprint
from foredraft_exporter.exits.lens import read_lens
from foredraft_exporter.exits.texts import read_texts
from foredraft_exporter.sources.checkpoint import Checkpoint, CheckpointInfo
from foredraft_exporter.weights.blocks import BlockFormat, Blocks
from foredraft_exporter.weights.weight_plan import Extras
from foredraft_graphs.decoder import Decoder
from foredraft_graphs.head import DRAFT_IDS

_SPAN = 4096
"""Rows of a head that are read at once when some of them are picked."""


@dataclass(frozen=True, slots=True)
class ExitOptions:
    """What a user may ask for: adapters from a file or a lens, and the draft vocabulary (a size, auto or none)."""

    adapters: Path | None = None
    lens: Path | None = None
    draft_vocab: str | int = "auto"
    draft_vocab_text: tuple[Path, ...] = ()


def add_exits(
    checkpoint: Checkpoint, decoder: Decoder, exits: Sequence[int], options: ExitOptions
) -> tuple[Checkpoint, Extras]:
    """The checkpoint with the tensors that exits need, and what of them to write.

    Raises CheckpointError or ForedraftError, in one line: adapters or a lens of another model or width, for an exit
    that is not cut, or without any exit.
    """
    model = fingerprint(checkpoint, decoder)
    adapters = _adapters(decoder, exits, options, model)
    size = draft_size(options.draft_vocab, decoder, exits)
    if options.draft_vocab_text and not size:
        raise ForedraftError("--draft-vocab-text: there is no draft vocabulary here; give --draft-vocab N as well")
    own: dict[str, NDArray[np.float32]] = {}
    extras = Extras(metadata={METADATA_KEY: model})
    for exit_, adapter in adapters.items():
        own |= {f"exits.{exit_}.{name}": values for name, values in adapter.tensors().items()}
    matrices = tuple((name, name, *m.shape) for name, m in own.items() if m.ndim == 2)
    extras = replace(extras, matrices=matrices, constants={n: v for n, v in own.items() if v.ndim == 1})
    picked: dict[str, tuple[str, NDArray[np.int32]]] = {}
    if size:
        ids = _ids(checkpoint, decoder, size, options)
        head = "model.embed_tokens.weight" if decoder.tied else "lm_head.weight"
        picked["draft_head"] = (head, ids)
        rows = ("draft_head", "draft_head", len(ids), decoder.hidden_size)
        extras = replace(extras, matrices=(*matrices, rows), constants={**extras.constants, DRAFT_IDS: ids})
    return Overlay(checkpoint, own, picked), extras


def _adapters(decoder: Decoder, exits: Sequence[int], options: ExitOptions, model: str) -> dict[int, Adapter]:
    if options.adapters is None and options.lens is None:
        return {}
    if options.adapters is not None and options.lens is not None:
        raise ForedraftError("--adapters and --lens: give one of them, both say how exits are read out")
    if not exits:
        raise ForedraftError(f"{options.adapters or options.lens}: there are no exits to adapt; give --exits")
    if options.lens is not None:
        return read_lens(options.lens, exits, decoder.hidden_size)
    assert options.adapters is not None
    adapters = read_adapters(options.adapters, model=model, hidden_size=decoder.hidden_size)
    if uncut := sorted(set(adapters) - set(exits)):
        raise ForedraftError(
            f"{options.adapters}: has an adapter for exit {uncut[0]}, but the export cuts at "
            f"{', '.join(map(str, exits))}; give --exits {','.join(map(str, sorted(adapters)))}"
        )
    return adapters


def _ids(checkpoint: Checkpoint, decoder: Decoder, size: int, options: ExitOptions) -> NDArray[np.int32]:
    eos = checkpoint.info.generation["eos_token_ids"]
    texts = (text for _, text in read_texts(options.draft_vocab_text))
    return choose_ids(checkpoint.tokenizer_json(), size, decoder.vocab_size, eos, texts)


class Overlay:
    """A ``Checkpoint`` with tensors of its own, and with rows picked from the base's matrices.

    ``own``: float32 arrays by name. ``picked``: name -> (the base's matrix, ascending row numbers); their numbers
    are the base's, also where it stores them in blocks.
    """

    def __init__(
        self,
        base: Checkpoint,
        own: Mapping[str, NDArray[np.float32]],
        picked: Mapping[str, tuple[str, NDArray[np.int32]]],
    ) -> None:
        self._base, self._own, self._picked = base, own, picked

    @property
    def info(self) -> CheckpointInfo:
        return self._base.info

    def names(self) -> tuple[str, ...]:
        """The base's alone: what is added is not the model's."""
        return self._base.names()

    def shape(self, name: str) -> tuple[int, ...]:
        if name in self._own:
            return self._own[name].shape
        if name in self._picked:
            source, rows = self._picked[name]
            return (len(rows), *self._base.shape(source)[1:])
        return self._base.shape(name)

    def read_rows(self, name: str, start: int, stop: int) -> NDArray[np.float32]:
        if name in self._own:
            return self._own[name][start:stop]
        if name in self._picked:
            source, rows = self._picked[name]
            pieces = [self._base.read_rows(source, a, b)[at] for a, b, at in _spans(rows[start:stop])]
            return np.concatenate(pieces)
        return self._base.read_rows(name, start, stop)

    def read(self, name: str) -> NDArray[np.float32]:
        if name in self._own or name in self._picked:
            return self.read_rows(name, 0, self.shape(name)[0])
        return self._base.read(name)

    def block_format(self, name: str) -> BlockFormat | None:
        if name in self._own:
            return None
        return self._base.block_format(self._picked[name][0] if name in self._picked else name)

    def blocks(self, name: str, start: int, stop: int) -> Blocks | None:
        if name in self._own:
            return None
        if name not in self._picked:
            return self._base.blocks(name, start, stop)
        source, rows = self._picked[name]
        pieces = []
        for a, b, at in _spans(rows[start:stop]):
            blocks = self._base.blocks(source, a, b)
            if blocks is None:
                return None
            low = None if blocks.min is None else blocks.min[at]
            pieces.append(Blocks(blocks.bits, blocks.codes[at], blocks.scale[at], low))
        return _joined(pieces)

    def tokenizer_json(self) -> bytes:
        return self._base.tokenizer_json()

    def release(self) -> None:
        self._base.release()


def _spans(rows: NDArray[np.int32]) -> list[tuple[int, int, NDArray[np.int32]]]:
    """Ascending rows as (first, end, places in between): few reads, none of them long."""
    groups = np.split(rows, np.flatnonzero(np.diff(rows // _SPAN)) + 1)
    return [(int(g[0]), int(g[-1]) + 1, g - g[0]) for g in groups if len(g)]


def _joined(pieces: Sequence[Blocks]) -> Blocks:
    lows = [piece.min for piece in pieces if piece.min is not None]
    codes = np.concatenate([piece.codes for piece in pieces])
    scale = np.concatenate([piece.scale for piece in pieces])
    return Blocks(pieces[0].bits, codes, scale, np.concatenate(lows) if lows else None)
