"""Opening and verifying: what is checked, when, and that nothing is read twice."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from foredraft.bundle import Bundle, hashes
from foredraft.bundle.hashes import REMEMBER_FROM
from foredraft.bundle.parts import choose, names_of, reduce
from foredraft.errors import BundleError
from tests.runtime.distribution.made import make_bundle


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Descriptors of files that were read to be hashed."""
    found: list[int] = []
    real = hashes.sha256_of

    def counted(descriptor: int) -> str:
        found.append(descriptor)
        return real(descriptor)

    monkeypatch.setattr(hashes, "sha256_of", counted)
    return found


def test_opening_reads_no_file(bundle: Path, hashed: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bundle, "read", lambda *_: pytest.fail("read"))
    Bundle.open(bundle)
    assert hashed == []


def test_a_big_file_is_hashed_once(tmp_path: Path, hashed: list[int], own_cache: Path) -> None:
    path = make_bundle(tmp_path / "made", weights=REMEMBER_FROM)
    opened = Bundle.open(path)
    opened.map(opened.manifest.weights)
    assert len(hashed) == 1
    Bundle.open(path).map(opened.manifest.weights)
    opened.file(opened.manifest.weights)
    assert len(hashed) == 1
    assert len(list((own_cache / "hashes").iterdir())) == 1
    (path / opened.manifest.weights).touch()
    Bundle.open(path).map(opened.manifest.weights)
    assert len(hashed) == 2


def test_verify_full_reads_everything_and_fast_does_not(tmp_path: Path, hashed: list[int]) -> None:
    path = make_bundle(tmp_path / "made", weights=REMEMBER_FROM)
    files = len(Bundle.open(path).manifest.files)
    Bundle.open(path).verify(full=False)
    assert len(hashed) == files
    hashed.clear()
    Bundle.open(path).verify(full=False)
    assert len(hashed) == files - 1  # the weights are remembered
    hashed.clear()
    Bundle.open(path).verify()
    assert len(hashed) == files


def test_a_cache_that_cannot_be_written_only_costs_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hashed: list[int]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FOREDRAFT_CACHE", str(tmp_path / "file" / "cache"))
    path = make_bundle(tmp_path / "made", weights=REMEMBER_FROM)
    for _ in range(2):
        Bundle.open(path).map("graphs/weights/int8.safetensors")
    assert len(hashed) == 2


def test_an_unsigned_bundle_opens_quietly(bundle: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "foredraft"):
        Bundle.open(bundle)
    assert not caplog.records
    with caplog.at_level(logging.DEBUG, "foredraft"):
        Bundle.open(bundle)
    assert "not signed" in caplog.text


def test_progress_ends_at_the_whole(bundle: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    Bundle.open(bundle).verify(progress=lambda *step: seen.append(step))
    assert seen[0][0] == 0
    assert seen[-1][0] == seen[-1][1] == sum(i.size for i in Bundle.open(bundle).manifest.files.values())
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)


def test_choosing_parts(bundle: Path) -> None:
    manifest = Bundle.open(bundle).manifest
    assert names_of(manifest) == ("kernels", "portable", "words")
    for only, expected in [
        ([], ("kernels", "portable", "words")),
        (["portable"], ("portable",)),
        (["onnxruntime"], ("kernels", "portable")),
        (["int8"], ("kernels", "portable")),
        (["kernels", "words"], ("kernels", "words")),
        (["databases"], ("kernels", "portable", "words")),
        (["portable", "adapters"], ("portable",)),
    ]:
        assert choose(manifest, only, "x") == expected
    with pytest.raises(BundleError, match="has no part 'int4', expected some of kernels"):
        choose(manifest, ["int4"], "x")


def test_a_part_leaves_its_own_files_out_and_no_other(bundle: Path) -> None:
    manifest = Bundle.open(bundle).manifest
    left = reduce(manifest, ["portable"])
    assert set(manifest.files) - set(left.files) == {
        "db/words.fdb",
        "graphs/kernels-head.onnx",
        "graphs/kernels-segment-0.onnx",
    }
    left.check("x")
    assert reduce(manifest, names_of(manifest)) == manifest
