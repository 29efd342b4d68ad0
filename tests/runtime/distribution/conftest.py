"""Every test here has a cache of its own, and may have a registry."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from foredraft.distribution import retry
from tests.programs import needs
from tests.runtime.distribution.made import make_bundle
from tests.runtime.distribution.proxy import Proxy
from tests.waiting import until

_CONFIG = """
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {storage}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""
_LOGIN = "auth: {{htpasswd: {{realm: test, path: {path}}}}}\n"
_SUZIE = "suzie:$2b$05$oTqVwbcyhPnnCOkqyvA1CugU4/gPgKwrSYu1VnLb1dXqJSBTj.e5C"
"""What `htpasswd -Bbn suzie secret` prints."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running registry: its address, its storage, and the proxy in front of it that tests watch and break."""

    address: str
    storage: Path
    proxy: Proxy

    def blob(self, sha256: str) -> Path:
        """Where the registry keeps a blob."""
        return self.storage / f"docker/registry/v2/blobs/sha256/{sha256[:2]}/{sha256}/data"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of this test."""
    monkeypatch.setenv("FOREDRAFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long would have been waited for a registry, each time; no test waits."""
    found: list[float] = []
    monkeypatch.setattr(retry, "sleep", found.append)
    return found


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A small bundle with one database."""
    return make_bundle(tmp_path / "made.foredraft", databases=("words",))


@pytest.fixture(scope="module")
def _registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from _serve(tmp_path_factory.mktemp("registry"))


@pytest.fixture
def registry(_registry: Server) -> Server:
    """Debian's docker-registry on loopback, started once for each test file; a proxy that does no harm before it."""
    _registry.proxy.reset()
    return _registry


@pytest.fixture
def registry_with_login(tmp_path: Path) -> Iterator[Server]:
    """A registry that wants user suzie and password secret."""
    (tmp_path / "htpasswd").write_text(_SUZIE + "\n")
    yield from _serve(tmp_path / "registry", _LOGIN.format(path=tmp_path / "htpasswd"))


def _serve(folder: Path, more: str = "") -> Iterator[Server]:
    binary = needs("docker-registry")
    folder.mkdir(exist_ok=True)
    process, port = _started(binary, folder, more)
    try:
        with Proxy(port) as proxy:
            yield Server(f"localhost:{proxy.port}", folder / "storage", proxy)
    finally:
        process.kill()
        process.wait()


def _started(binary: str, folder: Path, more: str) -> tuple[subprocess.Popen[bytes], int]:
    """A registry that listens, and its port. Another program may take a port that was free: then the next one."""
    config, log = folder / "config.yml", folder / "log"
    for _ in range(5):
        port = _free_port()
        config.write_text(_CONFIG.format(storage=folder / "storage", port=port) + more)
        with log.open("wb") as out:
            process = subprocess.Popen([binary, "serve", str(config)], stdout=out, stderr=out)
        until(lambda: process.poll() is not None or _listens(process, port), "the registry answers or has ended")  # noqa: B023
        if process.poll() is None:
            return process, port
    pytest.fail(f"docker-registry did not start: {log.read_text()[-2000:]}")


def _listens(process: subprocess.Popen[bytes], port: int) -> bool:
    try:
        taken = psutil.Process(process.pid).net_connections("tcp")
    except psutil.Error:
        return False
    return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in taken)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
