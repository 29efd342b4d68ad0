"""A hostile archive: refused before the dangerous member is written, and nothing of it stays."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from foredraft.bundle import Bundle
from foredraft.distribution.pack import pack
from foredraft.distribution.unpack import unpack
from foredraft.errors import BundleError
from tests.runtime.distribution.made import edit_manifest


def _archive(bundle: Path, *more: tarfile.TarInfo, order: Callable[[list[Path]], list[Path]] = list) -> bytes:
    """A tar of the bundle, with some members more after the manifest."""
    out = io.BytesIO()
    files = [bundle / "manifest.json", *sorted(p for p in bundle.rglob("*") if p.is_file())]
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in order(list(dict.fromkeys(files))):
            info = tarfile.TarInfo(path.relative_to(bundle).as_posix())
            info.size = path.stat().st_size
            archive.addfile(info, io.BytesIO(path.read_bytes()))
            if path.name == "manifest.json":
                for extra in more:
                    archive.addfile(extra, io.BytesIO(bytes(extra.size)))
    return out.getvalue()


def _refused(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "work").mkdir(exist_ok=True)
    (tmp_path / "work" / "a.tar").write_bytes(data)
    with pytest.raises(BundleError, match=message):
        unpack(tmp_path / "work" / "a.tar", tmp_path / "work" / "out")
    assert [p.name for p in (tmp_path / "work").iterdir()] == ["a.tar"]


def _member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, link
    return info


def test_a_sound_one_is_not_refused(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(_archive(bundle))
    unpack(tmp_path / "a.tar", tmp_path / "out").verify()


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (_member("../outside"), "'../outside' is not listed in its manifest; nothing was unpacked"),
        (_member("/tmp/outside"), "is not listed in its manifest"),
        (_member("a\\b"), "is not listed in its manifest"),
        (_member("Tokenizer.json"), "is not listed in its manifest"),
        (_member("tokenizer.json", size=5), r"tokenizer.json has 5 bytes, its manifest says"),
        (_member("tokenizer.json", tarfile.SYMTYPE, link="/etc/passwd"), "is a symbolic link"),
        (_member("graphs", tarfile.SYMTYPE, link="/tmp"), "is a symbolic link"),
        (_member("tokenizer.json", tarfile.LNKTYPE, link="manifest.json"), "is a hard link"),
        (_member("tokenizer.json", tarfile.CHRTYPE), "is a device"),
        (_member("tokenizer.json", tarfile.FIFOTYPE), "is a pipe"),
        (_member("graphs", tarfile.DIRTYPE), "is a folder entry"),
        (_member("tokenizer.json", tarfile.GNUTYPE_SPARSE), "is a sparse file, which unpacks to more"),
        (_member("x", tarfile.GNUTYPE_LONGNAME, 1 << 20), "is an entry of type b'L'"),
        (_member("x", tarfile.XHDTYPE, 1 << 20), "is an entry of type b'x'"),
        (_member("manifest.json"), "'manifest.json' comes twice"),
        (_member("model.sig", size=17 << 20), "'model.sig' is not listed"),
    ],
    ids=lambda value: f"{value.name}-{value.type!r}" if isinstance(value, tarfile.TarInfo) else "",
)
def test_members(bundle: Path, tmp_path: Path, member: tarfile.TarInfo, message: str) -> None:
    _refused(tmp_path, _archive(bundle, member), message)


def test_a_member_twice(bundle: Path, tmp_path: Path) -> None:
    _refused(tmp_path, _archive(bundle, order=lambda files: [*files, files[-1]]), "comes twice")


def test_a_member_missing(bundle: Path, tmp_path: Path) -> None:
    _refused(tmp_path, _archive(bundle, order=lambda files: files[:-1]), "missing, but listed|truncated")


def test_the_manifest_not_first(bundle: Path, tmp_path: Path) -> None:
    _refused(tmp_path, _archive(bundle, order=lambda files: files[::-1]), "begins with .* expected manifest.json")


def test_a_manifest_of_gigabytes(bundle: Path, tmp_path: Path) -> None:
    huge = _member("manifest.json", size=8 << 30).tobuf(tarfile.GNU_FORMAT)
    _refused(tmp_path, huge, r"begins with 'manifest.json' \(8589934592 bytes\)")


def test_a_manifest_that_leads_outside(bundle: Path, tmp_path: Path) -> None:
    files = {"../../outside": {"size": 0, "sha256": "0" * 64}}
    edit_manifest(bundle, files=files)
    _refused(tmp_path, _archive(bundle), "leaves the folder")
    assert not (tmp_path.parent / "outside").exists()


def test_wrong_bytes(bundle: Path, tmp_path: Path) -> None:
    sound = _archive(bundle)
    at = sound.index(b"database words")
    _refused(tmp_path, sound[:at] + b"D" + sound[at + 1 :], "db/words.fdb does not have the sha256")


def test_more_announced_than_there_is(bundle: Path, tmp_path: Path) -> None:
    """A small file that would unpack to petabytes."""
    sizes = {"chat_template.jinja": {"size": 2**52, "sha256": "0" * 64}}
    edit_manifest(bundle, files={**_files(bundle), **sizes})
    _refused(tmp_path, _archive(bundle), r"but its manifest lists 45\d+; truncated")


def _files(bundle: Path) -> dict[str, object]:
    return {name: {"size": i.size, "sha256": i.sha256} for name, i in Bundle.open(bundle).manifest.files.items()}


@pytest.mark.parametrize(("compress", "name"), [(gzip.compress, "gzip"), (lzma.compress, "xz")], ids=["gzip", "xz"])
def test_a_bomb(tmp_path: Path, compress: Callable[[bytes], bytes], name: str) -> None:
    _refused(tmp_path, compress(bytes(50 << 20)), rf"compressed \({name}\), expected a plain tar")


def test_a_zip(tmp_path: Path) -> None:
    _refused(tmp_path, b"PK\x03\x04" + bytes(1000), r"compressed \(zip\)")


def test_noise_and_damage(bundle: Path, tmp_path: Path) -> None:
    sound = _archive(bundle)
    broken = bytearray(sound)
    broken[700] ^= 0xFF  # inside the manifest
    for data, message in [
        (b"", "truncated"),
        (b"x" * 2000, "not a tar that"),
        (bytes(1024), "begins with nothing"),
        (sound[: len(sound) // 2], "truncated"),
        (sound + b"hidden", "goes on after its end"),
        (bytes(broken), "not valid JSON|manifest.json|sha256"),
    ]:
        _refused(tmp_path, data, message)


def test_every_cut_is_refused(bundle: Path, tmp_path: Path) -> None:
    pack(Bundle.open(bundle), tmp_path / "sound.tar")
    sound = (tmp_path / "sound.tar").read_bytes()
    for length in range(0, len(sound) - 1024, 1931):
        _refused(tmp_path, sound[:length], "truncated")
