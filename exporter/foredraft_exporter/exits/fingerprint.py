"""Which model an adapter belongs to: a hash that a checkpoint and every bundle made from it share."""

from __future__ import annotations

import hashlib
import json

import numpy as np

from foredraft_exporter.sources.checkpoint import Checkpoint
from foredraft_graphs.decoder import Decoder

METADATA_KEY = "model"
"""Under which the weights file of a bundle and a file of adapters carry the fingerprint in their metadata."""
_ROWS = 64
_SIZES = ("hidden_size", "intermediate_size", "layers", "heads", "kv_heads", "head_dim", "vocab_size")


def fingerprint(checkpoint: Checkpoint, decoder: Decoder) -> str:
    """Lower-case hex sha256 over the sizes, the final norm and the first rows of the embedding, as float32.

    Two fine-tunes of one model differ, unless they share all of these; so do a model and its GGUF, whose numbers
    were rounded.
    """
    sizes = json.dumps({name: getattr(decoder, name) for name in _SIZES}).encode()
    rows = checkpoint.read_rows("model.embed_tokens.weight", 0, min(_ROWS, decoder.vocab_size))
    digest = hashlib.sha256(sizes)
    for values in (checkpoint.read("model.norm.weight"), rows):
        digest.update(np.ascontiguousarray(values, np.dtype("<f4")).tobytes())
    return digest.hexdigest()
