"""Sign a bundle with a local key, in the format of OpenSSF model-signing. Checking is
``foredraft.bundle.signature``.
"""

from __future__ import annotations

import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from foredraft.bundle import Bundle
from foredraft.bundle.manifest import FILE_NAME, SIGNATURE
from foredraft.bundle.signature import check_signature, load_public_key
from foredraft.errors import SignatureError
from foredraft.staging import locked, put_inside


def sign(bundle: Bundle, key: Path, password: str | None = None) -> Path:
    """Write the signature by ``key`` (PEM, private, on a NIST curve) over the manifest and every file.

    All files are hashed anew: what is damaged is not signed. Raises SignatureError for an unusable key or a
    partly pulled bundle, BundleError for a file that is not the manifest's.
    """
    if not bundle.complete:
        raise SignatureError(f"{bundle.path}: only a part of the bundle was pulled; pull all of it before signing")
    with tempfile.TemporaryDirectory() as folder:
        signature, public = Path(folder) / SIGNATURE, Path(folder) / "public.pem"
        public.write_bytes(_public_key(key, password))
        load_public_key(public)
        _write_signature(bundle.path, key, password, signature)
        manifest = (bundle.path / FILE_NAME).read_bytes()
        try:
            check_signature(signature.read_bytes(), public, manifest, bundle.published, str(bundle.path))
        except SignatureError:
            bundle.verify()
            raise
        with locked(bundle.path.absolute()):
            put_inside(bundle.path, SIGNATURE, signature.read_bytes())
    return bundle.path / SIGNATURE


def _public_key(key: Path, password: str | None) -> bytes:
    """The public half of a private key, in PEM form."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            PublicFormat,
            load_pem_private_key,
        )
    except ImportError as error:
        raise SignatureError(f"signing: {error}; install it with: pip install 'foredraft[ship]'") from error
    try:
        private = load_pem_private_key(key.read_bytes(), password.encode() if password else None)
    except OSError as error:
        raise SignatureError(f"{key}: the key cannot be read ({error.strerror})") from error
    except (TypeError, ValueError, UnsupportedAlgorithm) as error:
        raise SignatureError(f"{key}: is not a private key in PEM form, or its password is wrong ({error})") from error
    return private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _write_signature(folder: Path, key: Path, password: str | None, out: Path) -> None:
    try:
        hashing: Any = import_module("model_signing.hashing")
        signing: Any = import_module("model_signing.signing")
    except ImportError as error:
        raise SignatureError(f"signing: {error}; install it with: pip install 'foredraft[ship]'") from error
    hashed = hashing.Config().set_ignored_paths(paths=[SIGNATURE], ignore_git_paths=False)
    # model-signing hands the password on to cryptography, which takes bytes
    secret = password.encode() if password else None
    signer = signing.Config().use_elliptic_key_signer(private_key=key, password=secret)
    signer.set_hashing_config(hashed).sign(folder, out)
