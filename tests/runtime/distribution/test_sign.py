"""Signatures: ours opens, the OpenSSF tool agrees, and nothing else passes."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from foredraft.bundle import Bundle
from foredraft.cli import cli
from foredraft.distribution.sign import sign
from foredraft.errors import BundleError, SignatureError
from tests.runtime.distribution.made import edit_manifest, make_bundle, make_keys


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    return make_keys(tmp_path / "keys")


def _tool(*args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "model_signing", *map(str, args)], capture_output=True, text=True)


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()], ids=lambda c: c.name)
def test_a_signed_bundle_opens_with_its_key(bundle: Path, tmp_path: Path, curve: ec.EllipticCurve) -> None:
    private, public = make_keys(tmp_path / "keys", curve=curve)
    sign(Bundle.open(bundle), private)
    Bundle.open(bundle, require_signature=True, key=public)
    Bundle.open(bundle)


def test_the_openssf_tool_agrees_both_ways(bundle: Path, keys: tuple[Path, Path]) -> None:
    private, public = keys
    signature = sign(Bundle.open(bundle), private)
    done = _tool("verify", "key", bundle, "--signature", signature, "--public_key", public)
    assert done.returncode == 0, done.stderr
    signature.unlink()
    done = _tool("sign", "key", bundle, "--signature", signature, "--private_key", private)
    assert done.returncode == 0, done.stderr
    Bundle.open(bundle, key=public)


def test_a_signature_is_required(bundle: Path, keys: tuple[Path, Path]) -> None:
    with pytest.raises(SignatureError, match="a signature is required but no key was given"):
        Bundle.open(bundle, require_signature=True)
    with pytest.raises(SignatureError, match="is not signed"):
        Bundle.open(bundle, key=keys[1])


def test_another_key(bundle: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    sign(Bundle.open(bundle), keys[0])
    with pytest.raises(SignatureError, match="was not made with the key"):
        Bundle.open(bundle, key=make_keys(tmp_path, "other")[1])


def test_a_changed_manifest_needs_a_new_signature(bundle: Path, keys: tuple[Path, Path]) -> None:
    sign(Bundle.open(bundle), keys[0])
    edit_manifest(bundle, foredraft="9.9.9")
    with pytest.raises(SignatureError, match=r"made for other content: 'manifest.json' differs \(1 files"):
        Bundle.open(bundle, key=keys[1])


def test_a_signature_of_another_bundle(bundle: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    other = make_bundle(tmp_path / "other", seed=5)
    sign(Bundle.open(other), keys[0])
    (bundle / "model.sig").write_bytes((other / "model.sig").read_bytes())
    with pytest.raises(SignatureError, match="made for other content"):
        Bundle.open(bundle, key=keys[1])


def test_a_changed_file_is_found_when_it_is_used(bundle: Path, keys: tuple[Path, Path]) -> None:
    sign(Bundle.open(bundle), keys[0])
    weights = bundle / "graphs/weights/int8.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    opened = Bundle.open(bundle, key=keys[1])
    with pytest.raises(BundleError, match="its sha256 is not the one in"):
        opened.map(opened.manifest.weights)


def test_damage_is_not_signed(bundle: Path, keys: tuple[Path, Path]) -> None:
    opened = Bundle.open(bundle)
    weights = bundle / "graphs/weights/int8.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    with pytest.raises(BundleError, match="its sha256 is not the one in"):
        sign(opened, keys[0])
    assert not (bundle / "model.sig").exists()


def _edit_payload(signature: dict, **changes: object) -> None:
    envelope = signature["dsseEnvelope"]
    statement = json.loads(base64.b64decode(envelope["payload"]))
    envelope["payload"] = base64.b64encode(json.dumps({**statement, **changes}).encode()).decode()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda s: _edit_payload(s, predicateType="other"), "was not made with the key"),
        (lambda s: s["dsseEnvelope"].update(signatures=[]), "is not a signature of model-signing"),
        (lambda s: s["dsseEnvelope"].update(payload="%%%"), "is not a signature of model-signing"),
        (lambda s: s["dsseEnvelope"].update(payloadType="text/plain"), "is not a signature of model-signing"),
        (lambda s: s.update(dsseEnvelope=[]), "is not a signature of model-signing"),
        (lambda s: s.update(mediaType="application/json"), "is not a signature of model-signing"),
    ],
)
def test_an_edited_signature(bundle: Path, keys: tuple[Path, Path], edit: object, message: str) -> None:
    path = sign(Bundle.open(bundle), keys[0])
    signature = json.loads(path.read_bytes())
    edit(signature)  # type: ignore[operator]
    path.write_text(json.dumps(signature))
    with pytest.raises(SignatureError, match=message):
        Bundle.open(bundle, key=keys[1])


def test_a_key_with_a_password(bundle: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    key = load_pem_private_key(keys[0].read_bytes(), None)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    sign(Bundle.open(bundle), locked, "secret")
    Bundle.open(bundle, key=keys[1])


def test_a_good_signature_is_checked_once(
    bundle: Path, keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    sign(Bundle.open(bundle), keys[0])
    Bundle.open(bundle, key=keys[1])
    with monkeypatch.context() as patch:
        patch.setattr("foredraft.bundle.opening.check_signature", lambda *_: pytest.fail("checked again"))
        Bundle.open(bundle, key=keys[1])
    edit_manifest(bundle, foredraft="9.9.9")
    with pytest.raises(SignatureError, match="made for other content"):
        Bundle.open(bundle, key=keys[1])


def test_the_commands(bundle: Path, keys: tuple[Path, Path]) -> None:
    assert CliRunner().invoke(cli, ["sign", str(bundle), "--key", str(keys[0])]).exit_code == 0
    done = CliRunner().invoke(cli, ["verify", str(bundle), "--require-signature", "--key", str(keys[1])])
    assert f"signed by {keys[1]}" in done.stdout
    failed = CliRunner().invoke(cli, ["verify", str(bundle), "--require-signature"])
    assert isinstance(failed.exception, SignatureError)
