"""Sign a bundle with a local key, in the format of OpenSSF model-signing. Checking is
``foredraft.bundle.signature``.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from foredraft.bundle import Bundle
from foredraft.bundle.key_files import load_private_key
from foredraft.bundle.manifest import FILE_NAME, SIGNATURE
from foredraft.bundle.signature import check_made_with
from foredraft.disk_space import naming_full_disk
from foredraft.errors import SignatureError
from foredraft.staging import locked, put_inside


def sign(bundle: Bundle, key: Path, password: str | None = None) -> Path:
    """Write the signature by ``key`` (PEM, private, on a NIST curve) over the manifest and every file.

    All files are hashed anew: what is damaged is not signed. Raises SignatureError for an unusable key or a
    partly pulled bundle, BundleError for a file that is not the manifest's.
    """
    if not bundle.complete:
        raise SignatureError(f"{bundle.path}: only a part of the bundle was pulled; pull all of it before signing")
    public = load_private_key(key, password).public_key()
    path, folder = bundle.path / SIGNATURE, bundle.path.absolute()
    with (
        locked(folder),
        naming_full_disk(path),
        TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.signature-") as beside,
    ):
        written = Path(beside) / SIGNATURE
        _write_signature(bundle.path, key, password, written)
        signature, manifest = written.read_bytes(), (bundle.path / FILE_NAME).read_bytes()
        try:
            check_made_with(signature, public, key, manifest, bundle.published, str(bundle.path))
        except SignatureError:
            bundle.verify()
            raise
        put_inside(bundle.path, SIGNATURE, signature)
    return path


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
