"""What may be asked for, and what is refused before anything is written."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from foredraft.errors import EngineError, ForedraftError
from foredraft_exporter.build import export
from foredraft_exporter.tensorrt import engine_set
from foredraft_exporter.tensorrt.build_options import BuildOptions, engine_options, parse_targets
from foredraft_exporter.tensorrt.job import BuildJob, profile_shape, profile_sizes
from tests.fixtures import tiny_checkpoint


def test_targets_are_sorted_and_unique() -> None:
    assert parse_targets("sm120, sm89,SM89") == ("sm89", "sm120")


@pytest.mark.parametrize("text", ["89", "ada", "sm89;sm120", "smx"])
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(ForedraftError, match="expected compute capabilities such as sm89,sm120"):
        parse_targets(text)


def test_a_target_of_the_other_library_names_it() -> None:
    with pytest.raises(ForedraftError, match=r"--targets sm90: tensorrt-rtx compiles for .*--backend tensorrt"):
        BuildOptions("tensorrt-rtx", ("sm90",))


def test_no_target_at_all() -> None:
    with pytest.raises(ForedraftError, match="--targets: tensorrt-rtx needs at least one"):
        BuildOptions("tensorrt-rtx", ())


def test_the_usual_targets() -> None:
    assert engine_options("tensorrt-rtx", None, "plugin", "inputs").targets == ("sm89", "sm120")


def test_without_a_device_tensorrt_is_refused_at_once(tmp_path: Path) -> None:
    """Its engines are compiled on the device; this machine's driver may be missing, or the library."""
    nothing = mock.patch("foredraft.engines.cuda.device.importlib.import_module", side_effect=ImportError("none"))
    with nothing, pytest.raises(EngineError, match="CUDA"):
        engine_options("tensorrt", None, "plugin", "inputs")


def test_a_missing_library_is_named_before_anything_is_written(tiny_folder: Path, tmp_path: Path) -> None:
    missing = EngineError("tensorrt-rtx: the Python module tensorrt_rtx is not installed")
    with mock.patch.object(engine_set, "load", side_effect=missing), pytest.raises(EngineError, match="not installed"):
        export(tiny_folder, tmp_path / "out", engines=BuildOptions("tensorrt-rtx", ("sm89",)))
    assert not (tmp_path / "out").exists()


def test_heads_that_the_plugin_lacks(tiny_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ForedraftError, match=r"heads of 16: the attention plugin takes 32, .*--attention native"):
        export(tiny_folder, tmp_path / "out", engines=BuildOptions("tensorrt-rtx", ("sm89",)))


def test_cpu_precisions_are_not_for_engines(tmp_path: Path) -> None:
    source = tiny_checkpoint(tmp_path / "model", head_dim=32)
    with pytest.raises(ForedraftError, match="'fp32' is not known here; expected one of auto, fp16, bf16, int8, int4"):
        export(source, tmp_path / "out", precision="fp32", engines=BuildOptions("tensorrt-rtx", ("sm89",)))
    with pytest.raises(ForedraftError, match="'fp16' is not known here; expected one of auto, fp32, int8, int4"):
        export(source, tmp_path / "out", precision="fp16")


def test_names_tell_sets_apart() -> None:
    plain = BuildOptions("tensorrt-rtx", ("sm89", "sm120"))
    assert (plain.name, plain.graphs) == ("tensorrt-rtx-sm89-sm120", "tensorrt")
    other = BuildOptions("tensorrt-rtx", ("sm89",), "native", "constants")
    assert (other.name, other.graphs) == ("tensorrt-rtx-native-constants-sm89", "tensorrt-native-constants")


def test_profiles_cover_decoding_and_prompts() -> None:
    job = BuildJob("tensorrt-rtx", "g", "e", ("sm89",), 64, 256, 8464)
    decode, prefill = profile_sizes(job)
    assert (decode[0], decode[2]) == ((1, 1), (64, 8464))
    assert (prefill[0], prefill[2]) == ((1, 1), (256, 8464))
    assert profile_shape("mask", (-1, 8), 64, 8464) == (64, 8)
    assert profile_shape("key_3", (-1, 2, 64), 64, 8464) == (8464, 2, 64)
    assert BuildJob.from_json(job.to_json()) == job
