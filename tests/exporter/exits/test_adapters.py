"""The adapters' file: what is written is read, and whatever does not fit is refused in one line."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from foredraft.errors import CheckpointError, ForedraftError
from foredraft_exporter.build import prepare
from foredraft_exporter.exits.adapters import read_adapters, write_adapters
from foredraft_exporter.exits.additions import ExitOptions
from tests.exporter.exits.helpers import model_of, random_adapter
from tests.fixtures import tiny_checkpoint
from tests.full_disk import no_file_beyond

METADATA = {"format": "foredraft-exits", "model": "m"}


def test_round_trip(tmp_path: Path) -> None:
    written = {2: random_adapter(64, rank=32), 10: random_adapter(64, seed=3)}
    write_adapters(tmp_path / "new" / "a.safetensors", written, "m")
    read = read_adapters(tmp_path / "new" / "a.safetensors", model="m", hidden_size=64)
    assert list(read) == [2, 10]
    x = np.random.default_rng(0).standard_normal((5, 64)).astype(np.float32)
    for exit_, adapter in written.items():
        assert read[exit_].rank == adapter.rank
        assert np.array_equal(read[exit_](x), adapter(x))
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["a.safetensors"]


def test_down_bias_and_half_precision_are_taken_in(tmp_path: Path) -> None:
    adapter = random_adapter(64, rank=32)
    tensors = {f"exits.1.{name}": v.astype(np.float16) for name, v in adapter.tensors().items()}
    tensors["exits.1.down_bias"] = np.full(64, 2, np.float16)
    save_file(tensors, tmp_path / "a.safetensors", METADATA)
    read = read_adapters(tmp_path / "a.safetensors", model="m", hidden_size=64)[1]
    np.testing.assert_allclose(read.bias, adapter.bias + 2, atol=2e-3)


def _without(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda tensors: tensors.pop(name)


def _set(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda tensors: tensors.__setitem__(name, value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_without("exits.2.bias"), "exit 2: has"),
        (_without("exits.2.up_bias"), "exit 2: has"),
        (_set("exits.2.weight", np.ones((32, 32), np.float32)), "shape [32, 32], expected [64, 64]"),
        (_set("exits.2.down", np.ones((64, 31), np.float32)), "expected [64, 32]"),
        (_set("exits.2.bias", np.full(64, np.nan, np.float32)), "not finite"),
        (_set("exits.2.bias", np.ones(64, np.int32)), "dtype int32"),
        (_set("exits.2.up_bias", np.array(1, np.float32)), "expected"),
        (_set("exits.02.bias", np.ones(64, np.float32)), "no part of an adapter"),
        (_set("lm_head.weight", np.ones(64, np.float32)), "no part of an adapter"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], None], says: str) -> None:
    tensors = {f"exits.2.{name}": v for name, v in random_adapter(64, rank=32).tensors().items()}
    change(tensors)
    save_file(tensors, tmp_path / "a.safetensors", METADATA)
    with pytest.raises(CheckpointError) as error:
        read_adapters(tmp_path / "a.safetensors", model="m", hidden_size=64)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert "a.safetensors" in str(error.value)


def test_damaged_missing_or_foreign_files(tmp_path: Path) -> None:
    (tmp_path / "damaged.safetensors").write_bytes(b"\xff" * 100)
    save_file({"x": np.ones(3, np.float32)}, tmp_path / "other.safetensors")
    for name, says in (("damaged", "safetensors"), ("missing", "cannot be read"), ("other", "not a file of exit")):
        with pytest.raises(CheckpointError, match=says):
            read_adapters(tmp_path / f"{name}.safetensors", model="m", hidden_size=64)


def test_bfloat16_is_read_as_it_is(tmp_path: Path) -> None:
    tensors = {f"exits.2.{name}": v.astype(ml_dtypes.bfloat16) for name, v in random_adapter(64).tensors().items()}
    save_file(tensors, tmp_path / "a.safetensors", METADATA)
    adapter = read_adapters(tmp_path / "a.safetensors", model="m", hidden_size=64)[2]
    np.testing.assert_array_equal(adapter.weight, tensors["exits.2.weight"].astype(np.float32))


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2"])
def test_a_type_that_numpy_does_not_know_is_named(tmp_path: Path, dtype: str) -> None:
    tensor = {"dtype": dtype, "shape": [8], "data_offsets": [0, 8]}
    header = json.dumps({"__metadata__": METADATA, "exits.2.bias": tensor}).encode()
    path = tmp_path / "a.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(CheckpointError, match=rf"a\.safetensors: .*exits\.2.bias.* dtype {dtype}"):
        read_adapters(path, model="m", hidden_size=8)


def test_export_refuses_what_is_not_this_models(tiny_folder: Path, tmp_path: Path) -> None:
    own, other = tmp_path / "own.safetensors", tmp_path / "other.safetensors"
    write_adapters(own, {1: random_adapter(64), 3: random_adapter(64)}, model_of(tiny_folder))
    write_adapters(other, {1: random_adapter(64)}, model_of(tiny_checkpoint(tmp_path / "other", seed=1)))
    cases: list[tuple[tuple[int, ...], ExitOptions, str]] = [
        ((1,), ExitOptions(adapters=other), "another model"),
        ((1, 2), ExitOptions(adapters=own), "exit 3, but the export cuts at 1, 2; give --exits 1,3"),
        ((), ExitOptions(adapters=own), "give --exits"),
        ((1, 3), ExitOptions(adapters=own, lens=tmp_path), "give one of them"),
        ((1, 4), ExitOptions(), "exit 4: this model has 4 layers"),
        ((2, 1), ExitOptions(), "larger than the one before"),
        ((2, 2), ExitOptions(), "larger than the one before"),
        ((0,), ExitOptions(), "an exit lies at 1 to 3"),
    ]
    for exits, options, says in cases:
        with pytest.raises(ForedraftError) as error:
            prepare(tiny_folder, exits=exits, exit_options=options)
        assert says in str(error.value)
        assert "\n" not in str(error.value)
    assert prepare(tiny_folder, exits=(1, 3), exit_options=ExitOptions(adapters=own)).exits == (1, 3)


def test_half_precision_and_shards_do_not_change_the_model(tmp_path: Path) -> None:
    folders = [tiny_checkpoint(tmp_path / "a"), tiny_checkpoint(tmp_path / "b", shards=3)]
    halves = [tiny_checkpoint(tmp_path / "c", dtype=np.float16), tiny_checkpoint(tmp_path / "d", seed=5)]
    models = [model_of(folder) for folder in (*folders, *halves)]
    assert models[0] == models[1]
    assert len(set(models)) == 3


def test_a_full_disk_is_named_by_the_file(tmp_path: Path) -> None:
    adapters = {2: random_adapter(64, rank=32)}
    out = tmp_path / "a.safetensors"
    with (
        no_file_beyond(1 << 12),
        pytest.raises(ForedraftError, match=r"/a\.safetensors: could not be written: file"),
    ):
        write_adapters(out, adapters, "m")
    assert not list(tmp_path.iterdir())
