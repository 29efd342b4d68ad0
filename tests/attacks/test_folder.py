"""A bundle's folder that is not what its manifest says."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from foredraft.bundle import Bundle, hashes
from foredraft.bundle.folder import open_plain
from foredraft.errors import BundleError
from tests.runtime.distribution.made import make_bundle, write

WEIGHTS = "graphs/weights/int8.safetensors"


def _refused(bundle: Path, message: str) -> None:
    with pytest.raises(BundleError, match=message):
        Bundle.open(bundle)


def test_a_symbolic_link_to_a_file(bundle: Path, tmp_path: Path) -> None:
    (bundle / WEIGHTS).rename(tmp_path / "elsewhere")
    (bundle / WEIGHTS).symlink_to(tmp_path / "elsewhere")
    _refused(bundle, "a symbolic link; a bundle holds only plain files")


def test_a_symbolic_link_on_the_way(bundle: Path, tmp_path: Path) -> None:
    (bundle / "graphs").rename(tmp_path / "elsewhere")
    (bundle / "graphs").symlink_to(tmp_path / "elsewhere")
    _refused(bundle, "graphs: a symbolic link; a bundle holds only plain files")


def test_a_symbolic_link_for_the_manifest(bundle: Path, tmp_path: Path) -> None:
    (bundle / "manifest.json").rename(tmp_path / "elsewhere")
    (bundle / "manifest.json").symlink_to(tmp_path / "elsewhere")
    _refused(bundle, "manifest.json: a symbolic link")


def test_a_hard_link(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").hardlink_to(bundle / WEIGHTS)
    _refused(bundle, "has 2 hard links, expected one")


def test_a_pipe_does_not_hang(bundle: Path) -> None:
    (bundle / WEIGHTS).unlink()
    os.mkfifo(bundle / WEIGHTS)
    _refused(bundle, "a pipe, expected a plain file")


def test_a_folder_in_a_files_place(bundle: Path) -> None:
    (bundle / WEIGHTS).unlink()
    (bundle / WEIGHTS).mkdir()
    _refused(bundle, "int8.safetensors: missing")


def test_a_file_that_is_not_listed(bundle: Path) -> None:
    write(bundle / "graphs/evil.so", b"x")
    _refused(bundle, r"graphs/evil.so: not listed in manifest.json")


def test_a_missing_file(bundle: Path) -> None:
    (bundle / WEIGHTS).unlink()
    _refused(bundle, "missing, but listed in manifest.json")


def test_a_truncated_file(bundle: Path) -> None:
    size = (bundle / WEIGHTS).stat().st_size
    with (bundle / WEIGHTS).open("r+b") as file:
        file.truncate(size - 1)
    _refused(bundle, f"{size - 1} bytes, manifest.json says {size}")


def test_a_link_slipped_in_after_opening(bundle: Path, tmp_path: Path) -> None:
    """The secret has the right size; only the link gives it away, and it is never read."""
    opened = Bundle.open(bundle)
    write(tmp_path / "weights/int8.safetensors", (bundle / WEIGHTS).read_bytes())
    shutil.rmtree(bundle / "graphs/weights")
    (bundle / "graphs/weights").symlink_to(tmp_path / "weights")
    with pytest.raises(BundleError, match="graphs/weights: a symbolic link"):
        opened.map(WEIGHTS)
    with pytest.raises(BundleError, match="graphs/weights: a symbolic link"):
        open_plain(bundle, WEIGHTS)


@pytest.mark.parametrize("size", [4096, hashes.REMEMBER_FROM])
def test_a_file_swapped_after_it_was_verified(tmp_path: Path, size: int) -> None:
    """Same size, same time of modification: the hash was remembered, and yet the other bytes are found out."""
    bundle = make_bundle(tmp_path / "made", weights=size)
    opened = Bundle.open(bundle)
    opened.verify()
    status, data = (bundle / WEIGHTS).stat(), bytearray((bundle / WEIGHTS).read_bytes())
    data[-1] ^= 1
    (bundle / WEIGHTS).write_bytes(data)
    os.utime(bundle / WEIGHTS, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(BundleError, match="its sha256 is not the one in manifest"):
        opened.map(WEIGHTS)
    other = tmp_path / "other"
    other.write_bytes(data)
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(bundle / WEIGHTS)
    with pytest.raises(BundleError, match="its sha256 is not the one in manifest"):
        Bundle.open(bundle).verify(full=False)


def test_a_file_replaced_while_it_is_mapped(bundle: Path) -> None:
    """What was checked is what stays mapped: a new file of the same name is another file."""
    mapped = Bundle.open(bundle).map(WEIGHTS)
    before = bytes(mapped)
    other = bundle.parent / "other"
    other.write_bytes(bytes(len(before)))
    other.replace(bundle / WEIGHTS)
    assert bytes(mapped) == before


def test_what_is_no_bundle(bundle: Path, tmp_path: Path) -> None:
    _refused(tmp_path / "none", "no such folder")
    (tmp_path / "empty").mkdir()
    _refused(tmp_path / "empty", "no manifest.json in it")
    (tmp_path / "a.tar").write_bytes(b"x")
    _refused(tmp_path / "a.tar", "if it is one packed: foredraft unpack")
    with pytest.raises(BundleError, match="is not part of this bundle"):
        Bundle.open(bundle).read("other")
