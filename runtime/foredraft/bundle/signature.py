"""Whether a bundle is signed by a key: the signature of OpenSSF model-signing, checked without hashing any
file.

The format is a Sigstore bundle (v0.3) around a DSSE envelope around an in-toto statement, which lists the
sha256 of every file; here each must be the one in the manifest, and the manifest's own must be that of its
bytes. So a file needs only to match the manifest when it is used. Signing itself is
``foredraft.distribution.sign``; here nothing but ``cryptography`` is imported, because this runs at every
opening.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foredraft.bundle.key_files import HASH_OF_CURVE, load_public_key
from foredraft.bundle.manifest import FILE_NAME, Manifest
from foredraft.bundle.typed_json import parse_object
from foredraft.errors import BundleError, SignatureError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

MAX_SIGNATURE = 16 << 20
_BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_PAYLOAD = "application/vnd.in-toto+json"
_STATEMENT = "https://in-toto.io/Statement/v1"
_PREDICATE = "https://model_signing/signature/v1.0"


def check_signature(signature: bytes, key: Path, manifest_bytes: bytes, manifest: Manifest, where: str) -> None:
    """Raise SignatureError unless ``key`` (PEM, public) made ``signature`` over exactly this manifest."""
    check_made_with(signature, load_public_key(key), key, manifest_bytes, manifest, where)


def check_made_with(
    signature: bytes,
    public: EllipticCurvePublicKey,
    key: Path,
    manifest_bytes: bytes,
    manifest: Manifest,
    where: str,
) -> None:
    """The same for a key that was read; ``key`` is the file that errors name."""
    try:
        statement = parse_object(_verified_payload(signature, public, key, where), where)
        signed = _digests(statement)
    except (BundleError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, SignatureError):
            raise
        raise SignatureError(
            f"{where}: is not a signature of model-signing ({error}); sign the bundle again"
        ) from error
    expected = {name: info.sha256 for name, info in manifest.files.items()}
    expected[FILE_NAME] = hashlib.sha256(manifest_bytes).hexdigest()
    if signed == expected:
        return
    differing = sorted(name for name in {*signed, *expected} if signed.get(name) != expected.get(name))
    raise SignatureError(
        f"{where}: was made for other content: {differing[0]!r} differs ({len(differing)} files in all); "
        "the bundle was changed after it was signed, fetch it again or let its publisher sign it again"
    )


def _verified_payload(signature: bytes, public: EllipticCurvePublicKey, key: Path, where: str) -> bytes:
    """The statement in the envelope, once its signature was found to be the key's."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA

    bundle = parse_object(signature, where)
    envelope = bundle["dsseEnvelope"]
    if bundle["mediaType"] != _BUNDLE or envelope["payloadType"] != _PAYLOAD:
        raise ValueError(f"media types {bundle['mediaType']!r} and {envelope['payloadType']!r}")
    payload = base64.b64decode(envelope["payload"], validate=True)
    (entry,) = envelope["signatures"]
    proof = base64.b64decode(entry["sig"], validate=True)
    algorithm = getattr(hashes, HASH_OF_CURVE[public.curve.name])()
    signed = b"DSSEv1 %d %s %d %s" % (len(_PAYLOAD), _PAYLOAD.encode(), len(payload), payload)
    try:
        public.verify(proof, signed, ECDSA(algorithm))
    except InvalidSignature:
        raise SignatureError(
            f"{where}: was not made with the key {key}; use the publisher's key, or fetch the bundle again"
        ) from None
    return payload


def _digests(statement: dict[str, Any]) -> dict[str, str]:
    """sha256 by file name, from the statement's predicate."""
    predicate = statement["predicate"]
    method = predicate["serialization"]["method"], predicate["serialization"]["hash_type"]
    if statement["_type"] != _STATEMENT or statement["predicateType"] != _PREDICATE or method != ("files", "sha256"):
        raise ValueError(f"statement {statement['predicateType']!r} with {method}")
    found: dict[str, str] = {}
    for resource in predicate["resources"]:
        name = resource["name"]
        if resource["algorithm"] != "sha256" or name in found:
            raise ValueError(f"entry {name!r}")
        found[name] = resource["digest"]
    return found
