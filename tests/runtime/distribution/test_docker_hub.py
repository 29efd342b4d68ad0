"""Docker Hub by any of its names, with the login that docker keeps; a server on this machine stands in for it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from foredraft.bundle import Bundle
from foredraft.distribution import registry_reference, retry
from foredraft.distribution.pull import pull
from foredraft.distribution.push import push
from foredraft.distribution.registry_reference import parse
from foredraft.errors import RegistryError
from tests.runtime.distribution.faulty import Fault, FaultyRegistry

LOGIN = base64.b64encode(b"suzie:secret").decode()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyRegistry]:
    with FaultyRegistry(login=LOGIN) as made:
        monkeypatch.setattr(registry_reference, "_HUB_HOST", made.address)
        yield made


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where docker's settings lie."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "docker").mkdir()
    return tmp_path / "docker" / "config.json"


@pytest.mark.parametrize(
    "name", ["docker.io/{}", "index.docker.io/{}", "registry-1.docker.io/{}", "oci://docker.io/{}"]
)
@pytest.mark.parametrize("key", ["https://index.docker.io/v1/", "docker.io", "index.docker.io"])
def test_push_and_pull(hub: FaultyRegistry, docker: Path, bundle: Path, tmp_path: Path, name: str, key: str) -> None:
    docker.write_text(json.dumps({"auths": {"r.example": {"auth": "b3RoZXI="}, key: {"auth": LOGIN}}}))
    push(Bundle.open(bundle), parse(name.format("smollm2:1")))
    pull(parse(name.format("smollm2:1")), out=tmp_path / "out")
    Bundle.open(tmp_path / "out").verify()
    assert {path.partition("?")[0] for path, _ in hub.paths if not path.startswith("/v2/library/smollm2/")} == {
        "/token"
    }
    push(Bundle.open(bundle), parse(name.format("me/smollm2:1")))
    assert hub.paths[-1][0] == "/v2/me/smollm2/manifests/1"


def test_dockers_own_key_comes_first(hub: FaultyRegistry, docker: Path, bundle: Path) -> None:
    wrong = base64.b64encode(b"suzie:wrong").decode()
    docker.write_text(
        json.dumps({"auths": {"docker.io": {"auth": wrong}, "https://index.docker.io/v1/": {"auth": LOGIN}}})
    )
    push(Bundle.open(bundle), parse("docker.io/me/smollm2:1"))


def test_a_helper_is_asked_for_dockers_own_key(
    hub: FaultyRegistry, docker: Path, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "bin" / "docker-credential-made"
    helper.parent.mkdir()
    helper.write_text('#!/bin/sh\ncat >> "$0.asked"\necho \'{"Username": "suzie", "Secret": "secret"}\'\n')
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{helper.parent}:/usr/bin:/bin")
    docker.write_text(json.dumps({"credsStore": "made"}))
    push(Bundle.open(bundle), parse("docker.io/me/smollm2:1"))
    assert set(helper.with_name("docker-credential-made.asked").read_text().split("https:")) == {
        "",
        "//index.docker.io/v1/",
    }


def test_without_a_login(hub: FaultyRegistry, docker: Path, bundle: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(
        RegistryError, match=r"docker\.io: needs a login for library/smollm2; run: docker login docker\.io"
    ):
        push(Bundle.open(bundle), parse("docker.io/smollm2:1"))
    assert caplog.text == ""


def test_only_the_chosen_settings_count(hub: FaultyRegistry, docker: Path, bundle: Path, tmp_path: Path) -> None:
    home = tmp_path / "home" / ".docker" / "config.json"
    home.parent.mkdir(parents=True)
    home.write_text(json.dumps({"auths": {"docker.io": {"auth": LOGIN}}}))
    docker.write_text("{}")
    with pytest.raises(RegistryError, match="needs a login"):
        push(Bundle.open(bundle), parse("docker.io/smollm2:1"))


@pytest.mark.parametrize("text", ["{", "[]", '{"auths": [1]}', '{"auths": {"docker.io": "me"}}', '{"credHelpers": 1}'])
def test_broken_settings(hub: FaultyRegistry, docker: Path, bundle: Path, text: str) -> None:
    docker.write_text(text)
    with pytest.raises(RegistryError, match=r"docker/config\.json: cannot be read as docker's settings.*log in again"):
        push(Bundle.open(bundle), parse("docker.io/smollm2:1"))


def test_a_busy_login_service_is_asked_again(
    hub: FaultyRegistry, docker: Path, bundle: Path, waits: list[float]
) -> None:
    docker.write_text(json.dumps({"auths": {"docker.io": {"auth": LOGIN}}}))
    hub.faults["GET token"] = [Fault(429, {"Retry-After": "7"}), Fault(503)]
    push(Bundle.open(bundle), parse("docker.io/me/smollm2:1"))
    assert waits == [7.0, retry.PAUSES[1]]


def test_a_login_service_that_stays_busy_is_no_missing_login(hub: FaultyRegistry, docker: Path, bundle: Path) -> None:
    docker.write_text(json.dumps({"auths": {"docker.io": {"auth": LOGIN}}}))
    hub.faults["GET token"] = [Fault(503) for _ in range(len(retry.PAUSES) + 1)]
    with pytest.raises(RegistryError, match=r"docker\.io: the service that lets in answers with status 503.*try again"):
        push(Bundle.open(bundle), parse("docker.io/me/smollm2:1"))
