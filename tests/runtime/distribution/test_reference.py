"""Names of bundles in registries."""

from __future__ import annotations

from pathlib import Path

import pytest

from foredraft.distribution import resolve
from foredraft.distribution.registry_reference import RegistryReference, parse, try_parse
from foredraft.distribution.store import bundle_folder
from foredraft.errors import RegistryError

DIGEST = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ghcr.io/me/smollm2:int4", RegistryReference("ghcr.io", "me/smollm2", "int4", None)),
        ("ghcr.io/me/smollm2", RegistryReference("ghcr.io", "me/smollm2", "latest", None)),
        ("localhost:5000/x:1", RegistryReference("localhost:5000", "x", "1", None)),
        ("localhost/x", RegistryReference("localhost", "x", "latest", None)),
        ("[::1]:5000/x", RegistryReference("[::1]:5000", "x", "latest", None)),
        (f"oci://r.example/a/b_c.d@{DIGEST}", RegistryReference("r.example", "a/b_c.d", "latest", DIGEST)),
        ("docker.io/me/smollm2:int4", RegistryReference("docker.io", "me/smollm2", "int4", None)),
        ("docker.io/smollm2", RegistryReference("docker.io", "library/smollm2", "latest", None)),
        ("index.docker.io/smollm2:1", RegistryReference("docker.io", "library/smollm2", "1", None)),
        ("registry-1.docker.io/me/smollm2", RegistryReference("docker.io", "me/smollm2", "latest", None)),
        (f"oci://docker.io/smollm2@{DIGEST}", RegistryReference("docker.io", "library/smollm2", "latest", DIGEST)),
        ("docker.io.example/smollm2", RegistryReference("docker.io.example", "smollm2", "latest", None)),
        (f"r.example/a:1@{DIGEST}", RegistryReference("r.example", "a", "1", DIGEST)),
    ],
)
def test_parse(text: str, expected: RegistryReference) -> None:
    assert parse(text) == expected
    assert parse(str(expected)) == expected or expected.digest


@pytest.mark.parametrize(
    "text",
    ["bundles/made", "made.foredraft", "./a/b", "/a/b", "../a/b", "r.example/a/../b", "r.example/A", "r.example/a:",
     "r.example/a@sha256:12", "r.example/.git", "-r.example/a", "r..example/", "me/smollm2:int4", "", "r.example/a:..",
     "r.example/" + "a" * 600],
)  # fmt: skip
def test_anything_else_is_a_path(text: str) -> None:
    assert try_parse(text) is None
    with pytest.raises(RegistryError, match=r"expected HOST/NAME\[:TAG\]"):
        parse(text)


def test_an_existing_path_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.example" / "a").mkdir(parents=True)
    assert resolve("r.example/a") == Path("r.example/a")
    assert resolve("no/such/folder") == Path("no/such/folder")


def test_no_two_references_share_a_folder(own_cache: Path) -> None:
    texts = ["r.example/a/b:c", "r.example/a:b", "r.example/a/b/c:c", f"r.example/a@{DIGEST}", "r.example:1/a:b"]
    folders = [bundle_folder(parse(text)) for text in texts]
    assert len(set(folders)) == len(folders)
    for folder in folders:
        assert folder.relative_to(own_cache / "bundles").parts[0].startswith("r.example")
        assert not any(folder in other.parents for other in folders)


def test_docker_hub_answers_elsewhere_and_has_its_own_login() -> None:
    hub = parse("docker.io/me/smollm2")
    assert hub.host == "registry-1.docker.io"
    assert hub.logins[0] == "https://index.docker.io/v1/"
    assert bundle_folder(hub) == bundle_folder(parse("index.docker.io/me/smollm2"))
    other = parse("ghcr.io/me/smollm2")
    assert (other.host, other.logins) == ("ghcr.io", ("ghcr.io",))


def test_loopback() -> None:
    assert all(parse(text).loopback for text in ("localhost/x", "localhost:1/x", "127.0.0.1:1/x", "[::1]:1/x"))
    assert not any(parse(text).loopback for text in ("r.example/x", "localhost.example/x", "127.0.0.1.example:1/x"))
