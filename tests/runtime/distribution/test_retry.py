"""A registry that is busy, slow or short of patience: bounded waits, and no blob sent twice for nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

import pytest

from foredraft.bundle import Bundle
from foredraft.distribution import registry as protocol
from foredraft.distribution import retry
from foredraft.distribution.pull import pull
from foredraft.distribution.push import push
from foredraft.distribution.registry_reference import RegistryReference, parse
from foredraft.errors import RegistryError
from tests.runtime.distribution.faulty import Fault, FaultyRegistry
from tests.runtime.distribution.made import make_bundle

STEPS = ["HEAD blob", "POST upload", "PUT upload", "PUT manifest", "GET manifest", "GET blob"]
PASSING = [408, 429, 500, 502, 503, 504]
_CUT = {"Content-Length": "10", "Connection": "close"}


@pytest.fixture
def server() -> Iterator[FaultyRegistry]:
    with FaultyRegistry() as made:
        yield made


def _reference(server: FaultyRegistry) -> RegistryReference:
    return parse(f"{server.address}/team/model:1")


@pytest.mark.parametrize("status", PASSING)
@pytest.mark.parametrize("step", STEPS)
def test_a_busy_registry_is_asked_again(
    server: FaultyRegistry, waits: list[float], bundle: Path, tmp_path: Path, step: str, status: int
) -> None:
    server.faults[step] = [Fault(status, {"Retry-After": "7"}), Fault(status)]
    push(Bundle.open(bundle), _reference(server))
    pull(_reference(server), out=tmp_path / "out")
    assert waits == [7.0, retry.PAUSES[1]]
    Bundle.open(tmp_path / "out").verify()


@pytest.mark.parametrize("step", STEPS)
def test_patience_ends(server: FaultyRegistry, waits: list[float], bundle: Path, tmp_path: Path, step: str) -> None:
    server.faults[step] = [Fault(503) for _ in range(len(retry.PAUSES) + 1)]
    with pytest.raises(RegistryError, match=r"team/model: \w+ .*: status 503; it stayed so over several tries; try"):
        push(Bundle.open(bundle), _reference(server))
        pull(_reference(server), out=tmp_path / "out")
    assert waits == list(retry.PAUSES)


def test_who_is_asked_to_wait_an_hour_is_told_at_once(server: FaultyRegistry, waits: list[float], bundle: Path) -> None:
    server.faults["POST upload"] = [Fault(429, {"Retry-After": "3600"})]
    with pytest.raises(RegistryError, match=r"status 429; it asks to be left alone for 3600 s; try again then"):
        push(Bundle.open(bundle), _reference(server))
    assert waits == []


def test_a_wait_may_be_a_date() -> None:
    past = format_datetime(datetime(2020, 1, 1, tzinfo=UTC), usegmt=True)
    assert retry.asked_wait({"Retry-After": past}) == 0.0
    assert retry.asked_wait({"Retry-After": "soon"}) is None
    assert retry.asked_wait({}) is None


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (403, "log in as somebody"),
        (404, "must be created first"),
        (413, "limit raised"),
        (418, "who runs the registry"),
    ],
)
def test_a_refusal_names_the_file_and_what_to_do(
    server: FaultyRegistry, waits: list[float], bundle: Path, status: int, advice: str
) -> None:
    server.faults["PUT upload"] = [Fault(status)]
    first = next(iter(Bundle.open(bundle).manifest.files))
    with pytest.raises(RegistryError, match=f"uploading {first}: status {status}; .*{advice}"):
        push(Bundle.open(bundle), _reference(server))
    assert waits == []


def test_a_pull_names_the_file_too(server: FaultyRegistry, waits: list[float], bundle: Path, tmp_path: Path) -> None:
    push(Bundle.open(bundle), _reference(server))
    server.faults["GET blob"] = [Fault(403)]
    with pytest.raises(RegistryError, match=r"fetching manifest\.json: status 403; log in"):
        pull(_reference(server), out=tmp_path / "out")


@pytest.mark.parametrize("status", [500, 502, 504])
def test_a_blob_that_arrived_is_not_sent_again(
    server: FaultyRegistry, waits: list[float], bundle: Path, status: int
) -> None:
    server.faults["PUT upload"] = [Fault(status, keep=True)]
    pushed = push(Bundle.open(bundle), _reference(server))
    assert server.asked.count("PUT upload") == len(pushed.sent) + 1  # and manifest.json
    assert waits == []


def test_a_slow_commit_is_waited_for(
    server: FaultyRegistry, waits: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registry takes longer than an answer may; the bound grows with the blob, and then the blob is asked for."""
    whole = Bundle.open(make_bundle(tmp_path / "made", weights=1 << 20))
    monkeypatch.setattr(protocol, "TIMEOUT", (10.0, 0.2))
    monkeypatch.setattr(protocol, "_COMMIT_RATE", 1 << 16)
    count = len(whole.manifest.files)
    server.faults["PUT upload"] = [Fault(201, keep=True, late=0.7) for _ in range(count + 1)]
    pushed = push(whole, _reference(server))
    assert len(pushed.sent) == count
    assert server.asked.count("PUT upload") == count + 1


def test_a_proxy_that_loses_patience_while_the_registry_commits(
    server: FaultyRegistry, waits: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "_COMMIT_RATE", 1 << 18)
    whole = Bundle.open(make_bundle(tmp_path / "made", weights=1 << 20))
    push(whole, _reference(server))
    digest = f"sha256:{whole.manifest.files[whole.manifest.weights].sha256}"
    data = server.blobs.pop(digest)
    server.asked.clear()
    server.faults["PUT upload"] = [Fault(504)]

    def commit(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            server.blobs[digest] = data

    monkeypatch.setattr(retry, "sleep", commit)
    push(whole, _reference(server))
    assert waits == list(retry.PAUSES[:2])
    assert server.asked.count("PUT upload") == 1


def test_a_transfer_that_keeps_breaking_off_ends(
    server: FaultyRegistry, waits: list[float], bundle: Path, tmp_path: Path
) -> None:
    """The connection is closed before the body, every time: a pull gives up, and says where it was."""
    push(Bundle.open(bundle), _reference(server))
    server.faults["GET blob"] = [Fault(None, keep=True)]  # manifest.json arrives
    server.faults["GET blob"] += [Fault(200, _CUT) for _ in range(len(retry.PAUSES) + 1)]
    with pytest.raises(RegistryError, match=r"broke off at byte 0 of \d+; pull again to go on from there"):
        pull(_reference(server), out=tmp_path / "out")
    assert waits == list(retry.PAUSES)
