"""Too little room: said with path, need and what is free before anything is written, and with the path when it ends."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from foredraft import disk_space
from foredraft.bundle import Bundle
from foredraft.bundle.manifest import FILE_NAME
from foredraft.disk_space import check_space, naming_full_disk
from foredraft.distribution.add import add_adapter
from foredraft.distribution.pack import pack
from foredraft.distribution.pull import pull
from foredraft.distribution.push import push
from foredraft.distribution.registry_reference import RegistryReference, parse
from foredraft.distribution.unpack import unpack
from foredraft.errors import ForedraftError
from tests.full_disk import no_file_beyond
from tests.runtime.distribution.faulty import FaultyRegistry
from tests.runtime.distribution.made import make_bundle, safetensors

MB = 1 << 20


@pytest.fixture
def server() -> Iterator[FaultyRegistry]:
    with FaultyRegistry() as made:
        yield made


@pytest.fixture
def big(tmp_path: Path) -> Bundle:
    """A bundle whose weights no small file holds."""
    return Bundle.open(make_bundle(tmp_path / "big.foredraft", weights=4 * MB))


Disks = Callable[..., None]


@pytest.fixture
def disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disks:
    """Call it with bytes free by name of a folder in ``tmp_path``; each is then a disk of its own, as is the rest."""

    def set_(**free: int) -> None:
        def name(path: Path) -> str:
            below = path.absolute().relative_to(tmp_path).parts
            return below[0] if below and below[0] in free else ""

        monkeypatch.setattr(disk_space, "_disk", lambda path: hash(name(path)))
        monkeypatch.setattr(disk_space, "_free", lambda path: free.get(name(path), 1 << 50))

    return set_


def _reference(server: FaultyRegistry) -> RegistryReference:
    return parse(f"{server.address}/team/model:1")


def test_what_shares_a_disk_is_added_up(disks: Disks, tmp_path: Path) -> None:
    disks(one=3000, other=3000)
    check_space("this", (tmp_path / "one" / "a", 2000), (tmp_path / "other", 2000))
    with pytest.raises(ForedraftError, match=r"one/a: this needs 4\.0 kB on this disk, 3\.0 kB are free; make room"):
        check_space("this", (tmp_path / "one" / "a", 2000), (tmp_path / "one" / "b", 2000))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_gets_a_path(tmp_path: Path, number: int) -> None:
    message = r"x: could not be written: .* are free on this disk\); make room, or"
    with pytest.raises(ForedraftError, match=message), naming_full_disk(tmp_path / "x"):
        raise OSError(number, "made")
    with pytest.raises(PermissionError), naming_full_disk(tmp_path / "x"):
        raise PermissionError(errno.EACCES, "made")


def test_a_pull_needs_room_in_the_cache(server: FaultyRegistry, disks: Disks, big: Bundle, tmp_path: Path) -> None:
    """The file goes through the cache even if --out is on another disk."""
    push(big, _reference(server))
    disks(cache=4 * MB)
    server.asked.clear()
    with pytest.raises(
        ForedraftError, match=r"cache: the pull needs 4\.2 MB .*4\.2 MB are free; .*set FOREDRAFT_CACHE"
    ):
        pull(_reference(server), out=tmp_path / "out")
    assert server.asked == ["GET manifest", "GET blob"]  # manifest.json
    assert not (tmp_path / "out").exists()


def test_a_pull_needs_room_at_its_end(server: FaultyRegistry, disks: Disks, big: Bundle, tmp_path: Path) -> None:
    push(big, _reference(server))
    disks(cache=8 * MB, there=4 * MB)
    with pytest.raises(ForedraftError, match=r"there/out: the pull needs 4\.2 MB .*choose another folder"):
        pull(_reference(server), out=tmp_path / "there" / "out")


def test_what_is_moved_is_not_counted_twice(
    server: FaultyRegistry, disks: Disks, big: Bundle, tmp_path: Path, own_cache: Path
) -> None:
    push(big, _reference(server))
    needed = sum(info.size for info in big.manifest.files.values())
    disks(cache=needed)
    pull(_reference(server), out=own_cache / "out")
    Bundle.open(own_cache / "out").verify()


def test_what_is_there_needs_no_room(server: FaultyRegistry, disks: Disks, big: Bundle, own_cache: Path) -> None:
    push(big, _reference(server))
    info = big.manifest.files[big.manifest.weights]
    partial = own_cache / "downloads" / f"{info.sha256}.partial"
    partial.parent.mkdir(parents=True)
    partial.write_bytes((big.path / big.manifest.weights).read_bytes()[: 3 * MB])
    disks(cache=2 * MB)
    pull(_reference(server), out=own_cache / "out")
    disks(cache=0)
    pull(_reference(server), out=own_cache / "out")


def test_pack_and_unpack_ask_first(disks: Disks, big: Bundle, tmp_path: Path) -> None:
    disks(full=MB)
    with pytest.raises(ForedraftError, match=r"full/big\.tar: packing needs 4\.2 MB on this disk, 1\.0 MB are free"):
        pack(big, tmp_path / "full" / "big.tar")
    pack(big, tmp_path / "big.tar")
    with pytest.raises(ForedraftError, match=r"full/out: unpacking needs 4\.2 MB on this disk, 1\.0 MB are free"):
        unpack(tmp_path / "big.tar", tmp_path / "full" / "out")
    assert not list((tmp_path / "full").iterdir())


def test_adding_asks_first(disks: Disks, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "full" / "made.foredraft")
    (tmp_path / "a.safetensors").write_bytes(safetensors(4 * MB, 1))
    before = (bundle / FILE_NAME).read_bytes()
    disks(full=MB)
    with pytest.raises(ForedraftError, match=r"made\.foredraft: adding 'a' needs 4\.2 MB on this disk, 1\.0 MB"):
        add_adapter(Bundle.open(bundle), tmp_path / "a.safetensors")
    assert (bundle / FILE_NAME).read_bytes() == before


def test_a_disk_that_fills_up_meanwhile(server: FaultyRegistry, big: Bundle, tmp_path: Path) -> None:
    push(big, _reference(server))
    pack(big, tmp_path / "big.tar")
    small = make_bundle(tmp_path / "small.foredraft")
    (tmp_path / "a.safetensors").write_bytes(safetensors(4 * MB, 1))
    left = set(tmp_path.iterdir()) | {tmp_path / "cache"}
    attempts: dict[str, Callable[[], object]] = {
        r"/cache: could not be written: .*set FOREDRAFT_CACHE": lambda: pull(_reference(server), out=tmp_path / "out"),
        r"/other\.tar: could not be written: file too large": lambda: pack(big, tmp_path / "other.tar"),
        r"/unpacked: could not be written: file too large": lambda: unpack(tmp_path / "big.tar", tmp_path / "unpacked"),
        r"/small\.foredraft: could not be written": lambda: add_adapter(Bundle.open(small), tmp_path / "a.safetensors"),
    }
    for message, attempt in attempts.items():
        with no_file_beyond(MB), pytest.raises(ForedraftError, match=message) as raised:
            attempt()
        assert "staging" not in str(raised.value)
        assert ".added" not in str(raised.value)
    assert set(tmp_path.iterdir()) == left
    Bundle.open(small).verify()
    pull(_reference(server), out=tmp_path / "out")
    Bundle.open(tmp_path / "out").verify()
