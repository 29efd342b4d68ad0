"""Every key of a GGUF, with every kind of wrong value: the model is taken, or there is one error of ours that names
file and key. It comes before any weight is read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import gguf
import numpy as np
import pytest
from gguf.gguf_writer import GGUFValue

from tests.exporter.sources.outcomes import outcome
from tests.fixtures import tiny_gguf

Typed = tuple[Any, gguf.GGUFValueType, gguf.GGUFValueType | None]
KIND = gguf.GGUFValueType
GGUF_WRONG: tuple[Typed, ...] = (
    *((value, KIND.UINT64, None) for value in (0, 1, 2**31, 2**63)),
    *((value, KIND.INT64, None) for value in (-1, -(2**40))),
    *((value, KIND.FLOAT64, None) for value in (0.0, 0.5, -2.5, 1e300, math.nan, -math.inf)),
    *((value, KIND.BOOL, None) for value in (True, False)),
    *((value, KIND.STRING, None) for value in ("", "x", "12", b"\xe9\xff", "y" * 5000)),
    ([3, 4], KIND.ARRAY, KIND.INT32), ([0.5, math.nan], KIND.ARRAY, KIND.FLOAT32),
    (["x", "y"], KIND.ARRAY, KIND.STRING), ([b"\xe9"], KIND.ARRAY, KIND.STRING),
    ([True], KIND.ARRAY, KIND.BOOL), ([-1], KIND.ARRAY, KIND.INT32),
)  # fmt: skip
NUMBER, TEXT = KIND.FLOAT32, KIND.STRING
YARN: dict[str, Typed] = {
    "llama.rope.scaling.type": ("yarn", TEXT, None), "llama.rope.scaling.factor": (2.0, NUMBER, None),
    "llama.rope.scaling.original_context_length": (128, KIND.UINT32, None),
    "llama.rope.scaling.yarn_beta_fast": (32.0, NUMBER, None), "llama.rope.scaling.yarn_beta_slow": (1.0, NUMBER, None),
    "llama.rope.scaling.attn_factor": (1.0, NUMBER, None), "llama.rope.scaling.yarn_ext_factor": (1.0, NUMBER, None),
    "llama.rope.scale_linear": (2.0, NUMBER, None), "llama.attention.sliding_window": (256, KIND.UINT32, None),
    "llama.attention.causal": (True, KIND.BOOL, None), "llama.logit_scale": (1.0, NUMBER, None),
    "llama.expert_count": (0, KIND.UINT32, None), "general.license.name": ("x", TEXT, None),
    "general.license.link": ("x", TEXT, None), "general.alignment": (32, KIND.UINT32, None),
    "tokenizer.ggml.eot_token_id": (260, KIND.UINT32, None), "tokenizer.ggml.eom_token_id": (260, KIND.UINT32, None),
    "split.count": (1, KIND.UINT32, None),
}  # fmt: skip
PIECES = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *"\u2581abcdefghi", "ab", "bc", "abc"]
SENTENCEPIECE: dict[str, Typed] = {
    "tokenizer.ggml.model": ("llama", TEXT, None), "tokenizer.ggml.tokens": (PIECES, KIND.ARRAY, TEXT),
    "tokenizer.ggml.scores": ([-float(i) for i in range(len(PIECES))], KIND.ARRAY, NUMBER),
    "tokenizer.ggml.token_type": ([2, 3, 3] + [6] * 256 + [1] * 13, KIND.ARRAY, KIND.INT32),
    "tokenizer.ggml.bos_token_id": (1, KIND.UINT32, None), "tokenizer.ggml.eos_token_id": (2, KIND.UINT32, None),
    "tokenizer.ggml.add_space_prefix": (True, KIND.BOOL, None),
    "tokenizer.ggml.remove_extra_whitespaces": (False, KIND.BOOL, None),
    "llama.attention.head_count": ([4] * 4, KIND.ARRAY, KIND.INT32),
    "llama.attention.head_count_kv": ([2] * 4, KIND.ARRAY, KIND.INT32),
}  # fmt: skip


def _write_gguf(path: Path, keys: Mapping[str, GGUFValue], tensors: Mapping[str, Any]) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.kv_data[0] = dict(keys)
    for name, value in tensors.items():
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _gguf_keys(path: Path) -> tuple[dict[str, GGUFValue], dict[str, Any]]:
    """What the tiny GGUF is written from: its keys and its tensors."""
    written: dict[str, GGUFValue] = {}
    write = gguf.GGUFWriter.write_kv_data_to_file

    def kept(writer: gguf.GGUFWriter) -> None:
        written.update(writer.kv_data[0])
        write(writer)

    with patch.object(gguf.GGUFWriter, "write_kv_data_to_file", kept):
        tiny_gguf(path, "F32")
    return written, {tensor.name: np.array(tensor.data) for tensor in gguf.GGUFReader(path).tensors}


@pytest.mark.parametrize("more", [YARN, SENTENCEPIECE], ids=["bytes", "sentencepiece"])
def test_every_key_of_a_gguf(tmp_path: Path, more: dict[str, Typed]) -> None:
    path = tmp_path / "m.gguf"
    keys, tensors = _gguf_keys(path)
    keys |= {key: GGUFValue(*value) for key, value in more.items()}
    if more is SENTENCEPIECE:
        keys.pop("tokenizer.chat_template")
    _write_gguf(path, keys, tensors)
    assert outcome(path) == ""
    said = set()
    for key in keys:
        _write_gguf(path, {k: v for k, v in keys.items() if k != key}, tensors)
        said.add(outcome(path))  # without it another key may be the one that makes no sense
        for wrong in GGUF_WRONG:
            _write_gguf(path, {**keys, key: GGUFValue(*wrong)}, tensors)
            said.add(outcome(path, path, [key]))
    assert len(said) > 100


@pytest.mark.parametrize(("shape", "values"), [((7,), 1.0), ((2, 8), 1.0), ((8,), 0.0), ((8,), math.nan)])
def test_frequency_factors_that_do_not_fit(tmp_path: Path, shape: tuple[int, ...], values: float) -> None:
    factors = np.full(shape, values, np.float32)
    path = tiny_gguf(tmp_path / "m.gguf", extra={"rope_freqs.weight": factors})
    said = outcome(path, path, ["rope_freqs.weight"])
    assert (said == "") == (shape == (2, 8))
