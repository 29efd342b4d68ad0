"""Push and pull against a real registry."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from foredraft.bundle import Bundle
from foredraft.bundle.manifest import FILE_NAME, PARTIAL
from foredraft.cli import cli
from foredraft.distribution import open_bundle, resolve
from foredraft.distribution.pull import pull
from foredraft.distribution.push import push
from foredraft.distribution.registry_reference import RegistryReference, parse
from foredraft.distribution.sign import sign
from foredraft.errors import BundleError, ForedraftError, RegistryError, SignatureError
from foredraft.session import Session
from tests.runtime.distribution.conftest import Server
from tests.runtime.distribution.made import make_bundle, make_keys

pytestmark = pytest.mark.slow

MB = 1 << 20


def _reference(registry: Server, name: str, tag: str = "1") -> RegistryReference:
    return parse(f"{registry.address}/{name}:{tag}")


def _contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_what_is_pulled_is_what_was_pushed(registry: Server, bundle: Path, tmp_path: Path) -> None:
    reference = _reference(registry, "team/whole")
    pushed = push(Bundle.open(bundle), reference)
    pulled = pull(reference, out=tmp_path / "out")
    assert pulled.digest == pushed.digest
    assert pulled.reused == 0
    assert _contents(tmp_path / "out") == _contents(bundle)
    Bundle.open(tmp_path / "out").verify()


def test_a_pulled_reference_opens_without_the_network(
    registry: Server, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = _reference(registry, "offline")
    push(Bundle.open(bundle), reference)
    with pytest.raises(BundleError, match=f"not pulled; fetch it with: foredraft pull {reference}"):
        resolve(str(reference))
    pull(reference)
    registry.proxy.reset()
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("the network was used"))
    assert open_bundle(str(reference)).manifest == Bundle.open(bundle).manifest
    assert open_bundle(f"oci://{reference}").complete
    assert registry.proxy.asked == []


def test_a_pulled_model_writes_the_same_text(
    registry: Server, tiny_bundle: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = _reference(registry, "writes")
    push(Bundle.open(tiny_bundle()), reference)
    pull(reference, only=["portable"])
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("the network was used"))
    texts = [
        Session(bundle, "none", lowering="portable").generate("abc", max_tokens=8).tokens
        for bundle in (Bundle.open(tiny_bundle()), open_bundle(str(reference)))
    ]
    assert texts[0] == texts[1]


def test_a_second_push_uploads_only_what_changed(registry: Server, tmp_path: Path) -> None:
    reference = _reference(registry, "changed")
    first = Bundle.open(make_bundle(tmp_path / "a", databases=("words",)))
    assert len(push(first, reference).sent) == len(first.manifest.files)
    registry.proxy.reset()
    again = push(first, reference)
    assert again.sent == ()
    assert registry.proxy.uploads() == []
    other = Bundle.open(make_bundle(tmp_path / "b", databases=("words",), seed=1))
    assert push(other, reference).sent == ("db/words.fdb", "graphs/weights/int8.safetensors")
    assert len(registry.proxy.uploads()) == 3  # these two and the manifest


def test_a_part_alone_is_pulled_and_others_later(registry: Server, tmp_path: Path) -> None:
    whole = Bundle.open(make_bundle(tmp_path / "made", weights=2 * MB, databases=("words", "code")))
    reference = _reference(registry, "parts")
    push(whole, reference)
    registry.proxy.reset()
    pulled = pull(reference, only=["portable", "int8"])
    assert pulled.parts == ("portable",)
    graphs = whole.manifest.graphs["kernels"]
    left_out = {*graphs.segments, graphs.head, "db/words.fdb", "db/code.fdb"}
    fetched = {asked.path.rpartition(":")[2] for asked in registry.proxy.blobs()}
    assert fetched.isdisjoint(whole.manifest.files[name].sha256 for name in left_out)
    bundle = open_bundle(str(reference))
    assert not bundle.complete
    assert list(bundle.manifest.graphs) == ["portable"]
    assert bundle.manifest.databases == {}
    bundle.verify()
    with pytest.raises(BundleError, match=r"db/words.fdb was not pulled"):
        bundle.map("db/words.fdb")

    registry.proxy.reset()
    pulled = pull(reference, only=["words"])
    assert pulled.parts == ("kernels", "portable", "words")  # no lowering named: every lowering
    assert pulled.fetched < MB  # the weights were there
    complete = pull(reference)
    assert open_bundle(str(reference)).complete
    assert not (complete.path / PARTIAL).exists()


def test_an_unknown_part_is_named(registry: Server, bundle: Path) -> None:
    reference = _reference(registry, "unknown")
    push(Bundle.open(bundle), reference)
    with pytest.raises(BundleError, match="no part 'tensorrt', expected some of kernels, portable, words"):
        pull(reference, only=["tensorrt"])


def test_a_new_version_takes_over_what_did_not_change(registry: Server, tmp_path: Path) -> None:
    reference = _reference(registry, "versions")
    push(Bundle.open(make_bundle(tmp_path / "a", weights=2 * MB)), reference)
    pull(reference)
    push(Bundle.open(make_bundle(tmp_path / "b", weights=2 * MB, databases=("words",))), reference)
    pulled = pull(reference)
    assert pulled.fetched < MB < pulled.reused
    assert open_bundle(str(reference)).manifest.databases == {"words": "db/words.fdb"}
    open_bundle(str(reference)).verify()


def test_two_precisions_share_a_tag(registry: Server, tmp_path: Path) -> None:
    reference = _reference(registry, "precisions")
    push(Bundle.open(make_bundle(tmp_path / "int8")), reference)
    small = Bundle.open(make_bundle(tmp_path / "int4", precision="int4", weights=2048))
    pushed = push(small, reference, add=True)
    assert "tokenizer.json" in pushed.present
    with pytest.raises(RegistryError, match="holds the precisions int4, int8; name one, as in --only int4"):
        pull(reference)
    assert pull(reference, only=["int4", "onnxruntime"], out=tmp_path / "out4").digest == pushed.digest
    assert Bundle.open(tmp_path / "out4").manifest.precision == "int4"
    pull(reference, only=["int8"], out=tmp_path / "out8")
    assert Bundle.open(tmp_path / "out8").manifest.precision == "int8"


def test_a_broken_transfer_goes_on_where_it_was(registry: Server, tmp_path: Path) -> None:
    whole = Bundle.open(make_bundle(tmp_path / "made", weights=4 * MB))
    reference = _reference(registry, "broken")
    push(whole, reference)
    registry.proxy.reset()
    registry.proxy.break_after, registry.proxy.breaks_left = MB, 2
    pull(reference, out=tmp_path / "out")
    weights = f"sha256:{whole.manifest.files[whole.manifest.weights].sha256}"
    starts = [asked.start for asked in registry.proxy.blobs() if asked.path.endswith(weights)]
    assert starts == [0, MB, 2 * MB]
    Bundle.open(tmp_path / "out").verify()


def test_a_pull_that_gave_up_is_resumed_by_the_next(registry: Server, tmp_path: Path, own_cache: Path) -> None:
    whole = Bundle.open(make_bundle(tmp_path / "made", weights=4 * MB))
    reference = _reference(registry, "resumed")
    push(whole, reference)
    weights = whole.manifest.files[whole.manifest.weights]
    partial = own_cache / "downloads" / f"{weights.sha256}.partial"
    partial.parent.mkdir(parents=True)
    partial.write_bytes((whole.path / whole.manifest.weights).read_bytes()[: 3 * MB])
    registry.proxy.reset()
    seen: list[tuple[int, int]] = []
    pull(reference, out=tmp_path / "out", progress=lambda done, total, _: seen.append((done, total)))
    starts = [asked.start for asked in registry.proxy.blobs() if asked.path.endswith(weights.sha256)]
    assert starts == [3 * MB]
    assert seen[-1][0] == seen[-1][1] == sum(info.size for info in whole.manifest.files.values())
    assert not list((own_cache / "downloads").iterdir())


def test_a_damaged_partial_file_costs_a_second_try_and_no_more(
    registry: Server, tmp_path: Path, own_cache: Path
) -> None:
    whole = Bundle.open(make_bundle(tmp_path / "made", weights=2 * MB))
    reference = _reference(registry, "damaged-partial")
    push(whole, reference)
    partial = own_cache / "downloads" / f"{whole.manifest.files[whole.manifest.weights].sha256}.partial"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(b"\0" * MB)
    pull(reference, out=tmp_path / "out")
    Bundle.open(tmp_path / "out").verify()


def test_a_tampered_blob_is_refused(registry: Server, tmp_path: Path, own_cache: Path) -> None:
    whole = Bundle.open(make_bundle(tmp_path / "made", weights=MB, seed=9))
    reference = _reference(registry, "tampered")
    push(whole, reference)
    info = whole.manifest.files[whole.manifest.weights]
    blob = registry.blob(info.sha256)
    data = bytearray(blob.read_bytes())
    data[-1] ^= 1
    blob.write_bytes(data)
    with pytest.raises(RegistryError, match=r"tampered with or damaged there, nothing of it was kept"):
        pull(reference, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not (own_cache / "downloads" / f"{info.sha256}.partial").exists()
    blob.write_bytes(data + b"more")
    with pytest.raises(RegistryError, match="sends more than the"):
        pull(reference, out=tmp_path / "out")


def test_a_tampered_manifest_is_refused(registry: Server, tmp_path: Path) -> None:
    whole = Bundle.open(make_bundle(tmp_path / "made", seed=11))
    reference = _reference(registry, "tampered-manifest")
    push(whole, reference)
    config = (whole.path / FILE_NAME).read_bytes()
    registry.blob(hashlib.sha256(config).hexdigest()).write_bytes(config.replace(b'"made"', b'"mad!"'))
    with pytest.raises(RegistryError, match="it was changed or damaged there"):
        pull(reference, out=tmp_path / "out")


def test_a_signature_travels_and_is_asked_for(registry: Server, bundle: Path, tmp_path: Path) -> None:
    private, public = make_keys(tmp_path)
    _, other = make_keys(tmp_path, "other")
    reference = _reference(registry, "signed")
    push(Bundle.open(bundle), reference)
    with pytest.raises(SignatureError, match="is not signed; nothing was fetched"):
        pull(reference, key=public)
    sign(Bundle.open(bundle), private)
    assert push(Bundle.open(bundle), reference).sent == ()
    with pytest.raises(SignatureError, match="was not made with the key"):
        pull(reference, key=other)
    pull(reference, key=public, only=["portable"])
    assert not open_bundle(str(reference), require_signature=True, key=public).complete


def test_a_registry_with_a_login(
    registry_with_login: Server, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    reference = _reference(registry_with_login, "private")
    with pytest.raises(RegistryError, match="needs a login for private; run: docker login"):
        push(Bundle.open(bundle), reference)

    def log_in(password: str) -> None:
        login = base64.b64encode(f"suzie:{password}".encode()).decode()
        (tmp_path / "config.json").write_text(json.dumps({"auths": {reference.registry: {"auth": login}}}))

    log_in("wrong")
    with pytest.raises(RegistryError, match="the login was refused"):
        push(Bundle.open(bundle), reference)
    log_in("secret")
    push(Bundle.open(bundle), reference)
    pull(reference, out=tmp_path / "out")
    assert Bundle.open(tmp_path / "out").complete


def test_what_is_not_there(registry: Server, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RegistryError, match="has no '7'; check the name and the tag"):
        pull(_reference(registry, "nothing", "7"))
    with pytest.raises(RegistryError, match="cannot be reached, or broke off; check the network"):
        pull(parse("localhost:1/nothing:1"))
    reference = _reference(registry, "there")
    push(Bundle.open(bundle), reference)
    (tmp_path / "out").mkdir()
    with pytest.raises(ForedraftError, match="already exists; pass --force"):
        pull(reference, out=tmp_path / "out")


def test_a_partial_bundle_is_neither_pushed_nor_signed(registry: Server, bundle: Path, tmp_path: Path) -> None:
    reference = _reference(registry, "partial")
    push(Bundle.open(bundle), reference)
    pull(reference, only=["portable"], out=tmp_path / "out")
    with pytest.raises(BundleError, match="only a part of the bundle was pulled"):
        push(Bundle.open(tmp_path / "out"), reference)
    with pytest.raises(SignatureError, match="only a part of the bundle was pulled"):
        sign(Bundle.open(tmp_path / "out"), make_keys(tmp_path)[0])


def test_the_commands(registry: Server, bundle: Path, tmp_path: Path) -> None:
    name = f"{registry.address}/commands:1"
    pushed = CliRunner().invoke(cli, ["push", str(bundle), name], catch_exceptions=False)
    assert pushed.exit_code == 0
    pinned = pushed.stdout.strip()
    pulled = CliRunner().invoke(cli, ["pull", pinned, "--only", "kernels"], catch_exceptions=False)
    assert pulled.exit_code == 0
    assert "holds kernels" in pulled.stderr
    assert Path(pulled.stdout.strip()) == resolve(pinned)
    checked = CliRunner().invoke(cli, ["verify", pinned], catch_exceptions=False)
    assert "a part of what was published; all as the manifest says" in checked.stdout
