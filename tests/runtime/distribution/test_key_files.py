"""Keys of every other kind: the error names the user's file, what it holds and what is accepted."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from foredraft.bundle import Bundle
from foredraft.cli import main
from foredraft.distribution.pack import pack
from foredraft.distribution.push import push
from foredraft.distribution.registry_reference import parse
from foredraft.distribution.sign import sign
from foredraft.errors import ForedraftError, SignatureError
from tests.runtime.distribution.faulty import FaultyRegistry
from tests.runtime.distribution.made import make_keys

ELLIPTIC, OTHER_CURVE = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256K1())
ED25519, RSA = ed25519.Ed25519PrivateKey.generate(), rsa.generate_private_key(65537, 2048)
SECRET = BestAvailableEncryption(b"secret")


def _private(key: object, form: PrivateFormat = PrivateFormat.PKCS8, locked: bool = False) -> bytes:
    return key.private_bytes(Encoding.PEM, form, SECRET if locked else NoEncryption())  # type: ignore[attr-defined]


def _public(key: object, coding: Encoding = Encoding.PEM) -> bytes:
    form = PublicFormat.OpenSSH if coding is Encoding.OpenSSH else PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(coding, form)  # type: ignore[attr-defined]


CERTIFICATE = b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
DER = ELLIPTIC.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
WRONG_FOR_BOTH = [
    (_private(ED25519), "an Ed25519 private key"),
    (_private(RSA), "an RSA private key"),
    (_private(RSA, PrivateFormat.TraditionalOpenSSL), "an RSA private key"),
    (_private(OTHER_CURVE), "an elliptic private key on secp256k1"),
    (_private(ED25519, PrivateFormat.OpenSSH), "a private key in OpenSSH's own form"),
    (_private(ELLIPTIC, locked=True), "an encrypted private key"),
    (_private(ELLIPTIC, PrivateFormat.TraditionalOpenSSL, locked=True), "an encrypted private key"),
    (_private(ELLIPTIC).replace(b"M", b"N", 1), "a damaged private key"),
    (_public(ED25519), "an Ed25519 public key"),
    (_public(RSA), "an RSA public key"),
    (_public(OTHER_CURVE), "an elliptic public key on secp256k1"),
    (_public(ED25519, Encoding.OpenSSH), "a public key in OpenSSH's own form"),
    (_public(ELLIPTIC).replace(b"M", b"N", 1), "a damaged public key"),
    (CERTIFICATE, "a certificate"),
    (DER, "binary data (DER, perhaps)"),
    (b"hello", "no key in PEM form"),
    (b"\xff\xfe\x00", "no key in PEM form"),
    (b"", "an empty file"),
]
CURVES = r"elliptic on secp256r1 \(prime256v1\), secp384r1 or secp521r1; "


@pytest.mark.parametrize(
    ("data", "found"), [*WRONG_FOR_BOTH, (_public(ELLIPTIC), "an elliptic public key on secp256r1")]
)
def test_what_cannot_sign(bundle: Path, tmp_path: Path, data: bytes, found: str) -> None:
    key = tmp_path / "mine.pem"
    key.write_bytes(data)
    message = rf"^{re.escape(f'{key}: {found}')}, expected a private key in PEM form, {CURVES}"
    with pytest.raises(SignatureError, match=message):
        sign(Bundle.open(bundle), key)
    assert not (bundle / "model.sig").exists()


@pytest.mark.parametrize(
    ("data", "found"), [*WRONG_FOR_BOTH, (_private(ELLIPTIC), "an elliptic private key on secp256r1")]
)
def test_what_cannot_check(bundle: Path, tmp_path: Path, data: bytes, found: str) -> None:
    sign(Bundle.open(bundle), make_keys(tmp_path / "keys")[0])
    key = tmp_path / "mine.pem"
    key.write_bytes(data)
    message = rf"^{re.escape(f'{key}: {found}')}, expected a public key in PEM form, {CURVES}"
    with pytest.raises(SignatureError, match=message):
        Bundle.open(bundle, key=key)


@pytest.mark.parametrize(
    ("data", "password", "advice"),
    [
        (_private(ELLIPTIC, locked=True), None, "give its password"),
        (_private(ELLIPTIC, locked=True), "other", "the password is wrong"),
        (_private(ELLIPTIC), "secret", "do not give one"),
        (_public(ELLIPTIC), None, "give the private half"),
        (_private(ED25519), None, "make one with: openssl ecparam"),
        (_private(ED25519), "secret", "make one with: openssl ecparam"),
    ],
)
def test_what_to_do_about_a_signing_key(
    bundle: Path, tmp_path: Path, data: bytes, password: str | None, advice: str
) -> None:
    (tmp_path / "mine.pem").write_bytes(data)
    with pytest.raises(SignatureError, match=f"; {advice}"):
        sign(Bundle.open(bundle), tmp_path / "mine.pem", password)


@pytest.mark.parametrize(
    ("data", "advice"),
    [
        (_private(ELLIPTIC), "give the public half"),
        (CERTIFICATE, "openssl x509"),
        (_public(RSA), "use the publisher's public key"),
    ],
)
def test_what_to_do_about_a_checking_key(bundle: Path, tmp_path: Path, data: bytes, advice: str) -> None:
    sign(Bundle.open(bundle), make_keys(tmp_path / "keys")[0])
    (tmp_path / "mine.pem").write_bytes(data)
    with pytest.raises(SignatureError, match=advice):
        Bundle.open(bundle, key=tmp_path / "mine.pem")


def test_every_entrance_names_the_users_file(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    wrong = tmp_path / "mine.pem"
    wrong.write_bytes(_private(ED25519))
    assert main(["sign", str(bundle), "--key", str(wrong)]) == 1
    sign(Bundle.open(bundle), make_keys(tmp_path / "keys")[0])
    assert main(["verify", str(bundle), "--key", str(wrong)]) == 1
    pack(Bundle.open(bundle), tmp_path / "made.tar")
    assert main(["unpack", str(tmp_path / "made.tar"), "--out", str(tmp_path / "out"), "--key", str(wrong)]) == 1
    with FaultyRegistry() as server:
        reference = f"{server.address}/made:1"
        push(Bundle.open(bundle), parse(reference))
        assert main(["pull", reference, "--key", str(wrong)]) == 1
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 4
    assert all(line.startswith(f"error: {wrong}: an Ed25519 private key, expected a ") for line in errors)


def test_a_file_that_cannot_be_read(bundle: Path, tmp_path: Path) -> None:
    for key in (tmp_path, tmp_path / "none"):
        with pytest.raises(SignatureError, match="the key cannot be read"):
            sign(Bundle.open(bundle), key)
    sign(Bundle.open(bundle), make_keys(tmp_path / "keys")[0])
    for key in (tmp_path, tmp_path / "none"):
        with pytest.raises(SignatureError, match="the key cannot be read"):
            Bundle.open(bundle, key=key)


def test_a_lock_that_cannot_be_made_is_the_bundles_trouble(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / f".{bundle.name}.lock").mkdir()
    with pytest.raises(ForedraftError, match=rf"{bundle.name}: cannot be written in its folder \(Is a directory\)"):
        sign(Bundle.open(bundle), make_keys(tmp_path / "keys")[0])
