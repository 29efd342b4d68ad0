"""Files that hold keys: those that signatures are made and checked with, and the names of all others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from foredraft.errors import SignatureError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

HASH_OF_CURVE = {"secp256r1": "SHA256", "secp384r1": "SHA384", "secp521r1": "SHA512"}
"""The curves that model-signing uses, and each one's hash."""
_CURVES = "secp256r1 (prime256v1), secp384r1 or secp521r1"
_MAX_SIZE = 1 << 20
_LABEL = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----")
_ENDS = ("PRIVATE KEY", "PUBLIC KEY", "CERTIFICATE")
"""How PEM's labels end, what matters most first."""
_ENCRYPTED = "an encrypted private key"
_MAKE = "make one with: openssl ecparam -name prime256v1 -genkey -noout -out private.pem"


def load_public_key(path: Path) -> EllipticCurvePublicKey:
    """A PEM public key on one of the curves; raises SignatureError that says what the file holds instead."""
    data = _read(path)
    key = None if b"PRIVATE KEY" in data else _loaded(data)
    if _fits(key):
        return cast("EllipticCurvePublicKey", key)
    found, advice = _found(data, key), "use the publisher's public key"
    if "private key" in found and (found == _ENCRYPTED or "elliptic" in found):
        advice = "give the public half (openssl pkey -in PRIVATE.pem -pubout)"
    elif found == "a certificate":
        advice = "give the key in it (openssl x509 -in CERTIFICATE.pem -pubkey -noout)"
    raise SignatureError(f"{path}: {found}, expected a public key in PEM form, elliptic on {_CURVES}; {advice}")


def load_private_key(path: Path, password: str | None) -> EllipticCurvePrivateKey:
    """A PEM private key on one of the curves; raises SignatureError that says what the file holds instead."""
    data = _read(path)
    key = _loaded(data, password, private=True)
    if _fits(key):
        return cast("EllipticCurvePrivateKey", key)
    found, advice = _found(data, key), _MAKE
    if found == _ENCRYPTED:
        advice = "give its password (--password)" if not password else "the password is wrong, or the file is damaged"
    elif key is None and password and _fits(_loaded(data, private=True)):
        found, advice = f"{found} without a password", "do not give one"
    elif "public key" in found:
        advice = "give the private half"
    raise SignatureError(f"{path}: {found}, expected a private key in PEM form, elliptic on {_CURVES}; {advice}")


def _fits(key: Any) -> bool:
    """Whether it is on one of the curves."""
    return key is not None and getattr(getattr(key, "curve", None), "name", None) in HASH_OF_CURVE


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_SIZE)
    except OSError as error:
        raise SignatureError(f"{path}: the key cannot be read ({error.strerror})") from error


def _loaded(data: bytes, password: str | None = None, private: bool = False) -> Any:
    """The key of whatever kind, or None."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
    except ImportError as error:
        raise SignatureError(f"signatures: {error}; install it with: pip install 'foredraft[ship]'") from error
    try:
        return (
            load_pem_private_key(data, password.encode() if password else None)
            if private
            else load_pem_public_key(data)
        )
    except (TypeError, ValueError, UnsupportedAlgorithm):
        return None


def _found(data: bytes, key: Any) -> str:
    """What a file holds, in words; ``key`` if it could be loaded."""
    labels = [label.decode() for label in _LABEL.findall(data)]
    label = next((label for end in _ENDS for label in labels if label.endswith(end)), None)
    if key is not None:
        return _named(key)
    if label is None:
        return _unlabelled(data)
    if label == "CERTIFICATE":
        return "a certificate"
    if label == "OPENSSH PRIVATE KEY":
        return "a private key in OpenSSH's own form"
    half = "private key" if label.endswith("PRIVATE KEY") else "public key"
    if half == "private key" and (label.startswith("ENCRYPTED") or b"ENCRYPTED" in data):
        return _ENCRYPTED
    other = _loaded(data, private=half == "private key")
    return _named(other) if other is not None else f"a damaged {half}"


def _named(key: Any) -> str:
    """An article, the algorithm, and which half of a pair it is."""
    kind = type(key).__name__.lstrip("_")
    half = "private key" if "Private" in kind else "public key"
    algorithm = kind.removesuffix("PrivateKey").removesuffix("PublicKey")
    if algorithm in ("EC", "EllipticCurve"):
        return f"an elliptic {half} on {key.curve.name}"
    return f"{'an' if algorithm[0] in 'AEFHILMNORSX' else 'a'} {algorithm} {half}"


def _unlabelled(data: bytes) -> str:
    """What a file without PEM's lines seems to be."""
    if not data:
        return "an empty file"
    if data.startswith((b"ssh-", b"ecdsa-", b"sk-")):
        return "a public key in OpenSSH's own form"
    if data[0] == 0x30 and data[1:2] >= b"\x80":
        return "binary data (DER, perhaps)"
    return "no key in PEM form"
