"""Open, check and read a bundle. Nothing in it is used before its path, size and hash have been checked."""

from __future__ import annotations

import hashlib
import logging
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from foredraft.bundle import hashes
from foredraft.bundle.folder import check_plain, open_plain, scan
from foredraft.bundle.manifest import FILE_NAME, MAX_MANIFEST, OWN_FILES, PARTIAL, SIGNATURE, FileInfo, Manifest
from foredraft.bundle.onnx_external import check_external_data
from foredraft.bundle.parts import read_partial, reduce
from foredraft.bundle.signature import MAX_SIGNATURE, check_signature
from foredraft.errors import BundleError, SignatureError
from foredraft.text import ChatTemplate, Tokenizer

MAX_SMALL_FILE = 256 << 20
"""Largest file that is read into memory as a whole (graphs, tokenizer), in bytes."""
Progress = Callable[[int, int, str], None]
"""Called with (bytes done, bytes in all, what is being done)."""
_log = logging.getLogger("foredraft")


class Bundle:
    """A checked folder with everything needed to write text. Open one with ``Bundle.open``; threads may share
    it.

    ``manifest`` is what this folder holds: of a partly pulled bundle, the published manifest reduced to those
    parts.
    """

    def __init__(self, path: Path, manifest: Manifest, published: Manifest | None = None) -> None:
        self.path = path
        self.manifest = manifest
        self.published = published or manifest

    def __repr__(self) -> str:
        return f"Bundle({str(self.path)!r})"

    @classmethod
    def open(cls, path: str | Path, *, require_signature: bool = False, key: str | Path | None = None) -> Bundle:
        """Check the manifest, its signature, all paths and all sizes; hashes are checked when a file is first
        used.

        With ``key`` (a PEM public key) the bundle must be signed by it; ``require_signature`` insists on a
        key. Raises BundleError: not a bundle, another schema, or a file missing, not listed, changed in size,
        or with an unsafe path; SignatureError: not signed by this key.
        """
        folder = Path(path)
        where = str(folder / FILE_NAME)
        data = _read_manifest(folder)
        published = Manifest.from_bytes(data, where)
        _check_signed(folder, data, published, require_signature, key)
        manifest = published
        if os.path.lexists(folder / PARTIAL):
            partial = _read_capped(folder, PARTIAL, MAX_MANIFEST)
            manifest = reduce(published, read_partial(partial, published, str(folder / PARTIAL)))
        _check_folder(folder, manifest, published)
        return cls(folder, manifest, published)

    @property
    def complete(self) -> bool:
        """Whether every part of the published bundle is here."""
        return len(self.manifest.files) == len(self.published.files)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        info = self.manifest.tokenizer
        return Tokenizer(self.read("tokenizer.json"), bos_id=info.bos_id, add_bos=info.add_bos)

    @cached_property
    def chat_template(self) -> ChatTemplate | None:
        """The model's chat template, or None if it has none."""
        name = "chat_template.jinja"
        if name not in self.manifest.files:
            return None
        tokenizer, info = self.tokenizer, self.manifest.tokenizer
        bos = tokenizer.token_text(info.bos_id) if info.bos_id is not None else ""
        eos = tokenizer.token_text(info.eos_ids[0]) if info.eos_ids else ""
        return ChatTemplate(self.read(name).decode(), bos_token=bos, eos_token=eos)

    def read(self, name: str) -> bytes:
        """A small file's checked bytes; of an ONNX file also where its tensors lie."""
        info = self._info(name)
        if info.size > MAX_SMALL_FILE:
            raise BundleError(
                f"{self.path / name}: {info.size} bytes, more than {MAX_SMALL_FILE} for this kind of file"
            )
        with self._opened(name) as descriptor:
            data = _read_all(descriptor, info.size)
            if not hashes.matches_bytes(self.path / name, os.fstat(descriptor), data, info.sha256):
                raise self._changed(name)
        if name.endswith(".onnx"):
            self._check_external_data(name, data)
        return data

    def map(self, name: str) -> memoryview:
        """A file's bytes, memory-mapped read-only, hash checked (once per version of the file on this
        machine).
        """
        with self._checked(name) as descriptor:
            if not self._info(name).size:
                return memoryview(b"")
            return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))

    def file(self, name: str) -> Path:
        """A checked file's path, for a library that opens files itself. Prefer ``map``: here the path is
        looked up a second time, and only the permissions of the folder keep others from changing it in
        between.
        """
        with self._checked(name):
            return self.path / name

    def verify(self, full: bool = True, progress: Progress | None = None) -> None:
        """Check every file's hash and where its ONNX files point; raises BundleError for the first that is
        wrong.

        Unless ``full``, big files whose hash is remembered from this machine are not read again.
        """
        total, done = sum(info.size for info in self.manifest.files.values()), 0
        for name, info in self.manifest.files.items():
            if progress:
                progress(done, total, name)
            with self._checked(name, again=full):
                done += info.size
            if name.endswith(".onnx"):
                self._check_external_data(name, self.read(name), again=full)
        if progress:
            progress(total, total, "verified")

    def _info(self, name: str) -> FileInfo:
        info = self.manifest.files.get(name)
        if info is None and name in self.published.files:
            raise BundleError(f"{self.path}: {name} was not pulled; pull the bundle again with the part it belongs to")
        if info is None:
            raise BundleError(f"{self.path}: {name} is not part of this bundle")
        return info

    def _check_external_data(self, name: str, data: bytes, again: bool = False) -> None:
        """Once for each graph of each version of a bundle: graph and list of files together decide the answer."""
        fact = f"external data|{name}|{self.published.files[name].sha256}|{self._listing}"
        if again or not hashes.known(fact):
            check_external_data(data, name, self.published.files, str(self.path / name))
            hashes.learn(fact)

    @cached_property
    def _listing(self) -> str:
        """A hash of the list of files and their sizes."""
        files = sorted((name, info.size, info.sha256) for name, info in self.published.files.items())
        return hashlib.sha256(repr(files).encode()).hexdigest()

    @contextmanager
    def _opened(self, name: str) -> Iterator[int]:
        """A descriptor of a plain file of the right size; what is read from it is what is hashed on it."""
        info = self._info(name)
        descriptor = open_plain(self.path, name)
        try:
            _check_size(self.path / name, os.fstat(descriptor), info)
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _checked(self, name: str, again: bool = False) -> Iterator[int]:
        """The same once its hash is right, too; ``again`` reads it even if that is remembered."""
        with self._opened(name) as descriptor:
            if not hashes.matches(self.path / name, descriptor, self._info(name).sha256, again):
                raise self._changed(name)
            yield descriptor

    def _changed(self, name: str) -> BundleError:
        return BundleError(
            f"{self.path / name}: its sha256 is not the one in {FILE_NAME}; the file was changed or damaged, "
            "export or fetch the bundle again"
        )


def _read_manifest(folder: Path) -> bytes:
    if not os.path.lexists(folder / FILE_NAME):
        if folder.is_file():
            raise BundleError(
                f"{folder}: a file, not a bundle's folder; if it is one packed: foredraft unpack {folder}"
            )
        what = f"no {FILE_NAME} in it" if folder.exists() else "no such folder"
        raise BundleError(f"{folder}: not a bundle ({what}); make one with: foredraft export SOURCE --out FOLDER")
    return _read_capped(folder, FILE_NAME, MAX_MANIFEST)


def _read_capped(folder: Path, name: str, limit: int) -> bytes:
    descriptor = open_plain(folder, name)
    try:
        size = os.fstat(descriptor).st_size
        if size > limit:
            raise BundleError(f"{folder / name}: {size} bytes, more than the {limit} that such a file may have")
        return _read_all(descriptor, size)
    finally:
        os.close(descriptor)


def _read_all(descriptor: int, size: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read(size)


def _check_signed(folder: Path, data: bytes, manifest: Manifest, required: bool, key: str | Path | None) -> None:
    """Order matters: nothing of the bundle but the manifest has been read yet."""
    if required and key is None:
        raise SignatureError(f"{folder}: a signature is required but no key was given; pass --key PUBLIC_KEY.pem")
    signed = os.path.lexists(folder / SIGNATURE)
    if key is None:
        _log.debug("%s: %s", folder, "signed, not checked (no key given)" if signed else "not signed")
        return
    if not signed:
        raise SignatureError(f"{folder}: is not signed; sign it with: foredraft sign {folder} --key PRIVATE_KEY.pem")
    signature = _read_capped(folder, SIGNATURE, MAX_SIGNATURE)
    try:
        parts = (signature, data, Path(key).read_bytes())
    except OSError as error:
        raise SignatureError(f"{key}: the key cannot be read ({error.strerror})") from error
    fact = f"signed|{'|'.join(hashlib.sha256(part).hexdigest() for part in parts)}"
    if not hashes.known(fact):  # the same three files give the same answer
        check_signature(signature, Path(key), data, manifest, str(folder / SIGNATURE))
        hashes.learn(fact)


def _check_folder(folder: Path, manifest: Manifest, published: Manifest) -> None:
    """The folder holds the files of ``manifest``, each of its size, and none that is not in ``published``."""
    missing = set(manifest.files)
    for name, status in scan(folder):
        check_plain(folder / name, status)
        if name in OWN_FILES:
            continue
        if name not in published.files:
            raise BundleError(
                f"{folder / name}: not listed in {FILE_NAME}; remove it, or add it with: foredraft bundle add"
            )
        if name in manifest.files:  # the file of a part that does not count as here may be of any version
            _check_size(folder / name, status, manifest.files[name])
            missing.discard(name)
    if missing:
        first = min(missing)
        raise BundleError(f"{folder / first}: missing, but listed in {FILE_NAME}; export or fetch the bundle again")


def _check_size(path: Path, status: os.stat_result, info: FileInfo) -> None:
    if status.st_size != info.size:
        raise BundleError(
            f"{path}: {status.st_size} bytes, {FILE_NAME} says {info.size}; export or fetch the bundle again"
        )
