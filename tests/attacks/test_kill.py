"""Kill -9 around every tenth of the work: what is there afterwards opens whole or not at all, and the next run ends.

The work runs in a forked process that has everything imported, so that the kills fall into the work itself.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest

from foredraft.bundle import Bundle
from foredraft.databases.building import Identity, build_database
from foredraft.databases.database import Database
from foredraft.distribution.pack import pack
from foredraft.distribution.pull import pull
from foredraft.distribution.push import push
from foredraft.distribution.registry_reference import parse
from foredraft.distribution.unpack import unpack
from foredraft.errors import BundleError
from foredraft_exporter.build import export
from tests.runtime.distribution.conftest import Server
from tests.runtime.distribution.made import make_bundle
from tests.waiting import until

pytestmark = pytest.mark.slow

MB = 1 << 20
TENTHS = range(1, 10)
_FORK = multiprocessing.get_context("forkserver")
_FORK.set_forkserver_preload([__name__])


def _start(work: Callable[..., object], *args: object) -> BaseProcess:
    process = _FORK.Process(target=_in_child, args=(os.environ["FOREDRAFT_CACHE"], work, args))
    process.start()
    return process


def _in_child(cache: str, work: Callable[..., object], args: tuple[object, ...]) -> None:
    os.environ["FOREDRAFT_CACHE"] = cache
    work(*args)


def _kill_around(work: Callable[..., object], args: tuple[object, ...], check: Callable[[], None]) -> None:
    """Let the work be done once to learn how long it takes, then kill it nine times, then let it be done again."""
    begin = time.monotonic()
    whole = _start(work, *args)
    whole.join()
    seconds = time.monotonic() - begin
    assert whole.exitcode == 0
    check()
    chance = random.Random(0)
    for tenth in TENTHS:
        process = _start(work, *args)
        process.join(seconds * (tenth - chance.random()) / 10)
        process.kill()
        process.join()
        check()
    last = _start(work, *args)
    last.join()
    assert last.exitcode == 0
    check()


def _opens_whole_or_not_at_all(folder: Path) -> bool:
    """Whether there is a bundle. A folder that is there must be whole."""
    if not folder.exists():
        with pytest.raises(BundleError):
            Bundle.open(folder)
        return False
    Bundle.open(folder).verify()
    return True


def _only(folder: Path, *names: str) -> None:
    assert sorted(p.name for p in folder.iterdir()) == sorted(names)


def _pack(bundle: Path, out: Path) -> None:
    pack(Bundle.open(bundle), out, replace=True)


def test_pack(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "made", weights=48 * MB)
    out = tmp_path / "out" / "a.tar"
    _pack(bundle, out)
    sound = out.read_bytes()

    def check() -> None:
        assert out.read_bytes() == sound

    _kill_around(_pack, (bundle, out), check)
    _only(out.parent, "a.tar")


def _unpack(archive: Path, out: Path) -> None:
    unpack(archive, out, replace=True)


def test_unpack(tmp_path: Path) -> None:
    _pack(make_bundle(tmp_path / "made", weights=48 * MB), tmp_path / "a.tar")
    out = tmp_path / "out" / "b"
    _kill_around(_unpack, (tmp_path / "a.tar", out), lambda: _may_be_aside(out))
    _only(out.parent, "b")


def _may_be_aside(folder: Path) -> None:
    """Between two renames the old folder stands aside; the next run puts it back."""
    if not _opens_whole_or_not_at_all(folder):
        assert _opens_whole_or_not_at_all(folder.parent / f".{folder.name}.replaced")


def _pull(name: str, out: Path) -> None:
    pull(parse(name), out=out)


def test_pull(tmp_path: Path, registry: Server, own_cache: Path) -> None:
    """Killed over and over it still gets on: each run takes up what the one before it had fetched."""
    whole = Bundle.open(make_bundle(tmp_path / "made", weights=16 * MB))
    weights = whole.manifest.files[whole.manifest.weights].sha256
    name = f"{registry.address}/kill:1"
    push(whole, parse(name))
    registry.proxy.hold_after = 3 * MB
    out, chance, kills, here = tmp_path / "out" / "b", random.Random(1), 0, own_cache / "downloads"
    partial = here / f"{weights}.partial"
    while True:
        process = _start(_pull, name, out)
        enough = _size(partial) + chance.randint(1, 2 * MB)
        until(lambda: not process.is_alive() or _size(partial) >= enough, "more bytes, or all", pause=0.002)  # noqa: B023
        process.kill()
        process.join()
        _opens_whole_or_not_at_all(out)
        if process.exitcode == 0:
            break
        kills += 1
    assert kills >= 4
    starts = [asked.start for asked in registry.proxy.blobs() if asked.path.endswith(weights)]
    assert starts == sorted(starts)
    assert len(set(starts)) >= 4
    assert Bundle.open(out).complete
    _only(out.parent, "b")
    assert not list(here.iterdir())


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def test_a_pull_killed_while_it_puts_files_in_place(tmp_path: Path, registry: Server, own_cache: Path) -> None:
    """What had been moved to its place already is not fetched again."""
    whole = Bundle.open(make_bundle(tmp_path / "made", weights=2 * MB))
    name, out = f"{registry.address}/placing:1", tmp_path / "out" / "b"
    push(whole, parse(name))
    shutil.copytree(whole.path, out.parent / ".b.staging")
    registry.proxy.reset()
    pull(parse(name), out=out)
    fetched = {asked.path.rpartition(":")[2] for asked in registry.proxy.blobs()}
    assert fetched.isdisjoint(info.sha256 for info in whole.manifest.files.values())
    _only(out.parent, "b")


def test_pull_of_another_version(tmp_path: Path, registry: Server) -> None:
    """The old version stays whole until the new one is."""
    name, out = f"{registry.address}/versions:1", tmp_path / "out" / "b"
    old = Bundle.open(make_bundle(tmp_path / "old", weights=8 * MB))
    new = Bundle.open(make_bundle(tmp_path / "new", weights=8 * MB, seed=1))
    for tenth in TENTHS:
        push(old, parse(name))
        pull(parse(name), out=out, replace=True)
        push(new, parse(name))
        process = _start(_pull_over, name, out)
        process.join(0.06 * tenth)
        process.kill()
        process.join()
        _may_be_aside(out)
    _pull_over(name, out)
    assert Bundle.open(out).manifest == new.manifest
    _only(out.parent, "b")


def _pull_over(name: str, out: Path) -> None:
    pull(parse(name), out=out, replace=True)


def _export(source: Path, out: Path) -> None:
    export(source, out, precision="int8", replace=True)


def test_export(tmp_path: Path, tiny_folder: Path) -> None:
    out = tmp_path / "out" / "b"
    _kill_around(_export, (tiny_folder, out), lambda: _may_be_aside(out))
    _only(out.parent, "b")


def _build_database(path: Path) -> None:
    random_tokens = np.random.default_rng(0)
    documents = [random_tokens.integers(0, 200, 20_000).astype(np.uint32) for _ in range(5)]
    build_database(path, "corpus", documents, Identity("ab" * 32, 272))


def test_database_build(tmp_path: Path) -> None:
    path = tmp_path / "out" / "x.fdb"
    path.parent.mkdir()

    def check() -> None:
        database = Database(path)
        database.verify()
        database.close()

    _kill_around(_build_database, (path,), check)
    _only(path.parent, "x.fdb")
