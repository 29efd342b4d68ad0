"""One tar, the same bytes for the same bundle, and back."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from foredraft.bundle import Bundle, hashes
from foredraft.cli import cli
from foredraft.distribution import tar
from foredraft.distribution.pack import pack
from foredraft.distribution.sign import sign
from foredraft.distribution.unpack import unpack
from foredraft.errors import BundleError, ForedraftError, SignatureError
from tests.runtime.distribution.made import make_bundle, make_keys


def test_there_and_back(bundle: Path, tmp_path: Path) -> None:
    size = pack(Bundle.open(bundle), tmp_path / "a.tar")
    assert size == (tmp_path / "a.tar").stat().st_size
    opened = unpack(tmp_path / "a.tar", tmp_path / "out")
    opened.verify()
    pack(opened, tmp_path / "b.tar")
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_the_same_bundle_gives_the_same_bytes(tmp_path: Path) -> None:
    packed = []
    for name, mode, time in (("one", 0o600, 1), ("other", 0o755, 2_000_000_000)):
        folder = make_bundle(tmp_path / name / "b")
        for path in folder.rglob("*"):
            os.utime(path, (time, time))
            if path.is_file():
                path.chmod(mode)
        pack(Bundle.open(folder), tmp_path / f"{name}.tar")
        packed.append(hashlib.sha256((tmp_path / f"{name}.tar").read_bytes()).hexdigest())
    assert packed[0] == packed[1]


def test_any_tar_reads_it(bundle: Path, tmp_path: Path) -> None:
    pack(Bundle.open(bundle), tmp_path / "a.tar")
    with tarfile.open(tmp_path / "a.tar") as archive:
        assert archive.getnames()[0] == "manifest.json"
        archive.extractall(tmp_path / "out", filter="data")
    Bundle.open(tmp_path / "out").verify()


def test_a_file_beyond_eight_gigabytes_has_a_header() -> None:
    info = tarfile.TarInfo.frombuf(tar.header("w.safetensors", 20 << 30), "utf-8", "strict")
    assert (info.name, info.size) == ("w.safetensors", 20 << 30)


def test_a_signature_is_checked_before_anything_is_kept(bundle: Path, tmp_path: Path) -> None:
    private, public = make_keys(tmp_path)
    pack(Bundle.open(bundle), tmp_path / "unsigned.tar")
    with pytest.raises(SignatureError, match="is not signed"):
        unpack(tmp_path / "unsigned.tar", tmp_path / "out", key=public)
    assert not (tmp_path / "out").exists()
    sign(Bundle.open(bundle), private)
    pack(Bundle.open(bundle), tmp_path / "signed.tar")
    unpack(tmp_path / "signed.tar", tmp_path / "out", key=public)


def test_a_damaged_bundle_is_not_packed(bundle: Path, tmp_path: Path) -> None:
    path = bundle / "graphs/weights/int8.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(BundleError, match="its sha256 is not the manifest's"):
        pack(Bundle.open(bundle), tmp_path / "a.tar")
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == []


def test_what_exists_is_kept(bundle: Path, tmp_path: Path) -> None:
    pack(Bundle.open(bundle), tmp_path / "a.tar")
    with pytest.raises(ForedraftError, match="already exists; pass --force"):
        pack(Bundle.open(bundle), tmp_path / "a.tar")
    pack(Bundle.open(bundle), tmp_path / "a.tar", replace=True)
    (tmp_path / "out").mkdir()
    with pytest.raises(ForedraftError, match="already exists; pass --force"):
        unpack(tmp_path / "a.tar", tmp_path / "out")
    unpack(tmp_path / "a.tar", tmp_path / "out", replace=True)


def test_what_was_unpacked_is_not_hashed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_bundle(tmp_path / "made", weights=hashes.REMEMBER_FROM)
    pack(Bundle.open(folder), tmp_path / "a.tar")
    opened = unpack(tmp_path / "a.tar", tmp_path / "out")
    monkeypatch.setattr(hashes, "sha256_of", lambda _: pytest.fail("a file was hashed again"))
    opened.map(opened.manifest.weights)


def test_the_commands(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(cli, ["pack", str(bundle)]).exit_code == 0
    shutil.rmtree(bundle)
    result = CliRunner().invoke(cli, ["unpack", "made.foredraft.tar"], catch_exceptions=False)
    assert result.exit_code == 0
    assert CliRunner().invoke(cli, ["verify", "made.foredraft", "--full"]).exit_code == 0
