"""A bundle from a registry: only the parts that were asked for, only the bytes that are not here yet."""

from __future__ import annotations

import errno
import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from foredraft.bundle import Bundle, Progress, hashes
from foredraft.bundle.folder import open_plain
from foredraft.bundle.manifest import FILE_NAME, PARTIAL, SIGNATURE, FileInfo
from foredraft.bundle.parts import choose, names_of, partial_bytes, reduce
from foredraft.bundle.signature import check_signature
from foredraft.cache_folder import cache_folder
from foredraft.disk_space import check_space, naming_full_disk, same_disk
from foredraft.distribution.artifact import Artifact, fetch
from foredraft.distribution.download import download, put_back, still_to_fetch
from foredraft.distribution.registry import Registry
from foredraft.distribution.registry_reference import RegistryReference
from foredraft.distribution.store import bundle_folder
from foredraft.errors import BundleError, ForedraftError, SignatureError
from foredraft.staging import incoming_path, locked, put_inside, staged_folder

_BLOCK = 4 << 20


@dataclass(frozen=True, slots=True)
class Pulled:
    """What a pull did; sizes in bytes. ``digest`` pins exactly this version: ``host/name@digest``."""

    path: Path
    digest: str
    parts: tuple[str, ...]
    fetched: int
    reused: int


def pull(
    reference: RegistryReference,
    *,
    only: Sequence[str] = (),
    out: Path | None = None,
    replace: bool = False,
    key: Path | None = None,
    plain_http: bool = False,
    progress: Progress | None = None,
) -> Pulled:
    """Fetch a bundle into the cache, or into ``out``; it appears complete or not at all.

    ``only`` names parts (see ``foredraft.bundle.parts``). If the same version is there already, the parts are added
    to it; of another version every unchanged file is taken over. An interrupted pull goes on where it was.
    With ``key`` the signature is checked before anything is fetched.

    Raises RegistryError, SignatureError, BundleError for what the registry offers, and ForedraftError if
    ``out`` holds something else (unless ``replace``) or is being written by someone else.
    """
    registry = Registry(reference, plain_http)
    artifact = fetch(registry, reference.target, only, str(reference))
    if key is not None:
        _check_signature(artifact, key, str(reference))
    parts = choose(artifact.manifest, only, str(reference))
    target = (out or bundle_folder(reference)).absolute()
    present = _present(target)
    if present is not None and present.published == artifact.manifest:
        held = (*parts, *names_of(present.manifest))
        parts = tuple(name for name in names_of(artifact.manifest) if name in held)
        wanted = reduce(artifact.manifest, parts).files
        missing = _extend(registry, artifact, parts, target, progress)
    else:
        wanted = reduce(artifact.manifest, parts).files
        salvage = partial(_salvage, wanted)
        with staged_folder(target, replace or out is None, salvage, marker=FILE_NAME) as folder:
            missing = _fill(registry, wanted, target, folder, progress)
            (folder / FILE_NAME).write_bytes(artifact.manifest_bytes)
            _write_own_files(folder, artifact, parts)
    _check_again(target, missing, key)
    fetched = _bytes(missing)
    return Pulled(target, artifact.digest, parts, fetched, _bytes(wanted) - fetched)


def _check_again(target: Path, fetched: Mapping[str, FileInfo], key: Path | None) -> None:
    """The bundle in its place; what was hashed on its way need not be hashed when it is used."""
    Bundle.open(target, key=key)
    for name, info in fetched.items():
        hashes.remember_file(target / name, info.sha256)


def _check_signature(artifact: Artifact, key: Path, where: str) -> None:
    if artifact.signature is None:
        raise SignatureError(f"{where}: is not signed; nothing was fetched")
    check_signature(artifact.signature, key, artifact.manifest_bytes, artifact.manifest, where)


def _present(target: Path) -> Bundle | None:
    """The bundle at ``target``, if there is one that opens."""
    try:
        return Bundle.open(target)
    except BundleError:
        return None


def _extend(
    registry: Registry, artifact: Artifact, parts: tuple[str, ...], target: Path, progress: Progress | None
) -> Mapping[str, FileInfo]:
    """Add parts to a bundle of the same version. It opens before, during and after: its files only become
    more.
    """
    with locked(target):
        if (target / FILE_NAME).read_bytes() != artifact.manifest_bytes:
            raise ForedraftError(f"{target}: holds another version than {artifact.digest}; pull again")
        wanted = reduce(artifact.manifest, parts).files
        with naming_full_disk(target):
            missing = _fill(registry, wanted, target, target, progress)
        _write_own_files(target, artifact, parts)
    return missing


def _salvage(wanted: Mapping[str, FileInfo], folder: Path) -> None:
    """Put blobs back that a pull was just moving to their place when it was killed."""
    for name, info in wanted.items():
        if _holds(folder, name, info):
            put_back(folder / name, info)


def _fill(
    registry: Registry, wanted: Mapping[str, FileInfo], present: Path, folder: Path, progress: Progress | None
) -> dict[str, FileInfo]:
    """Put every wanted file into ``folder``, those that ``present`` has from there; returns those that were
    fetched.
    """
    missing = {name: info for name, info in wanted.items() if not _holds(present, name, info)}
    _check_room(missing if folder == present else wanted, missing, present)
    blobs = _download(registry, missing, progress)
    uses = Counter(info.sha256 for info in missing.values())
    for name, info in wanted.items():
        if name in missing:
            uses[info.sha256] -= 1
            _place(blobs[info.sha256], folder, name, info, keep=uses[info.sha256] > 0)
        elif folder != present:
            _copy(present / name, folder, name, info)
    return missing


def _holds(folder: Path, name: str, info: FileInfo) -> bool:
    """Whether the file is there and right; a damaged one is fetched again."""
    try:
        descriptor = open_plain(folder, name)
    except BundleError:
        return False
    try:
        return hashes.matches(folder / name, descriptor, info.sha256)
    finally:
        os.close(descriptor)


def _check_room(new: Mapping[str, FileInfo], missing: Mapping[str, FileInfo], target: Path) -> None:
    """What is fetched goes through the cache, and is moved from there if that is on the target's disk."""
    blobs = {info.sha256: info for info in missing.values()}.values()
    moved = sum(info.size for info in blobs) if same_disk(target, cache_folder()) else 0
    fetched = sum(still_to_fetch(info) for info in blobs)
    check_space("the pull", (target, _bytes(new) - moved), (cache_folder(), fetched))


def _download(registry: Registry, files: Mapping[str, FileInfo], progress: Progress | None) -> dict[str, Path]:
    """Every blob, complete in the cache, by sha256."""
    total, done = _bytes(files), 0

    def advance(name: str, count: int) -> None:
        nonlocal done
        done += count
        if progress:
            progress(done, total, name)

    return {info.sha256: download(registry, info, name, partial(advance, name)) for name, info in files.items()}


def _place(blob: Path, folder: Path, name: str, info: FileInfo, keep: bool) -> None:
    """Move a checked blob to its name, or copy it where the cache is on another disk or if it is needed again."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not keep:
        try:
            blob.replace(path)
            return
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
    _copy(blob, folder, name, info)
    if not keep:
        blob.unlink()


def _copy(source: Path, folder: Path, name: str, info: FileInfo) -> None:
    """Copy a file, checking its hash; it appears whole, so that the folder opens at any moment."""
    incoming, digest = incoming_path(folder), hashlib.sha256()
    with source.open("rb") as data, incoming.open("wb") as out:
        while block := data.read(_BLOCK):
            digest.update(block)
            out.write(block)
    if digest.hexdigest() != info.sha256:
        incoming.unlink()
        raise BundleError(f"{source}: changed while it was copied; pull again")
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    incoming.replace(path)


def _write_own_files(folder: Path, artifact: Artifact, parts: tuple[str, ...]) -> None:
    """The signature, and last of all which parts are here: until then they count as absent."""
    if artifact.signature is not None:
        put_inside(folder, SIGNATURE, artifact.signature)
    if parts == names_of(artifact.manifest):
        (folder / PARTIAL).unlink(missing_ok=True)
    else:
        put_inside(folder, PARTIAL, partial_bytes(parts))


def _bytes(files: Mapping[str, FileInfo]) -> int:
    return sum(info.size for info in files.values())
